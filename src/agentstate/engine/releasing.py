"""Owns the moment of release: working out what is given of an answer that was held, and committing that. Must not give
it.

Invariant: nothing is worked out before all of the answer is decided, nothing while its session is paused; what counts
is what governs its calls at that moment; and what is worked out counts only once it is in the journal.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from agentstate.core import policy
from agentstate.core.model import ApprovalState, Call, Release, SessionStatus
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.concealing import MARK
from agentstate.engine.overlay import can_retell
from agentstate.engine.recording import Recording
from agentstate.engine.reopening import check_shown, reopened
from agentstate.engine.settling import Settled, mode_of, schemas_of, settled, verdict_of
from agentstate.errors import AgentStateError
from agentstate.store.rows import AnswerRow, ApprovalRow, Released, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")


async def release(parts: Parts, step: int, waiting: Recording | None) -> Released | None:
    """Work out and commit what is given of a step: to who waits with that recording, or, where there is none, to polls
    of its job. ``None``: something is not decided yet, or the session is paused. Raises ``Conflict`` for a step that
    was rolled back, ``AgentStateError`` where it cannot be given."""
    read, policies = parts.journal.read, parts.gate.policies
    rows = read.approvals_of(step)
    if not rows or any(row.state is ApprovalState.PENDING for row in rows):
        return None
    session = read.session(rows[0].session)
    if session is None or session.status is SessionStatus.PAUSED:
        return None
    check_shown(parts, session, step)
    answer, is_job = read.proposed(step)
    dialect = registry.BY_NAME[answer.dialect]
    _name, method, path, body = read.request(step)
    call = dialect.parse(method, path, body)
    verdict = verdict_of(dialect, call, answer)
    place = parts.gate.place_of(session)
    if await reopened(parts, policies, place, verdict, rows):
        return None
    reused = {
        (row.choice, row.place): _recorded_result(parts, session, row)
        for row in rows if row.state is ApprovalState.REUSED
    }  # fmt: skip
    found = settled(place, answer.branch, step, schemas_of(dialect, call), verdict, rows, policies, reused)
    recording = waiting if waiting is not None else Recording()
    mode = mode_of(found, recording, not is_job and can_retell(dialect, call, verdict, answer))
    # The model cannot be told in the place of a job, nor where what it must be sent is not kept.
    if mode is Release.CONTINUE and (is_job or MARK.encode() in body):
        mode = Release.MESSAGE
    amended: bytes | None = None
    if found.changes:
        mode, amended = _amended(step, dialect, call, answer, found, mode)
        if amended[: recording.shown] != answer.body[: recording.shown]:
            raise AgentStateError("the amended answer does not go on from what was shown")
    if mode in (Release.ERROR, Release.CONTINUE):
        amended = None
    told = json.dumps({"text": found.text, "told": found.told})
    invoked = found.invoked if mode is not Release.ERROR else ()
    released = Released(step, mode, amended, told, invoked, is_job)
    await parts.journal.release(released)
    parts.overlays.forget(session.id)
    return released


def _amended(
    step: int, dialect: Dialect, call: Call, answer: AnswerRow, found: Settled, mode: Release
) -> tuple[Release, bytes]:
    """The answer with what was decided, and how it is given: as an error, where it cannot be given so."""
    try:
        if not hasattr(dialect, "amended"):
            raise ValueError(f"answers of {dialect.name} cannot be given less a call")
        said = found.text if mode is Release.MESSAGE else ""
        return mode, dialect.amended(call, answer.shape, answer.body, found.changes, said)
    except ValueError as error:
        # Its calls cannot be told apart, or the like. What was refused must not be given, and can be told.
        log.error("step %d cannot be given with what was decided, and is refused: %s", step, error)
        return Release.ERROR, answer.body


def _recorded_result(parts: Parts, session: SessionRow, row: ApprovalRow) -> str:
    digest = policy.call_digest(row.tool, row.arguments)
    found = parts.journal.read.made_before(session, parts.journal.read.run_of(row.step), digest)
    if found is None:
        raise AgentStateError(f"the result that approval {row.id} was to reuse is not in the journal any more")
    return found[1]
