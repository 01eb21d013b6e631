"""Owns the gate: which calls of an answer are kept back, and what is given once people have decided about them.

Must not decide itself: policies and people do. Invariant: of an answer with a call that is held or denied, no byte of
a call and nothing after it is shown before its release is in the journal; what is released is what the decisions, bound
to that very call, say; whatever fails on the way leaves it held.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from agentstate import clock
from agentstate.core import policy
from agentstate.core.model import (
    Action,
    ApprovalKind,
    ApprovalState,
    Call,
    Change,
    OnReject,
    Release,
    SessionStatus,
    ToolCall,
    Verdict,
)
from agentstate.core.policy import Place, Rule, Ruling
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.engine.policies import Policies
from agentstate.engine.recording import Recording
from agentstate.errors import AgentStateError, HumanRejection
from agentstate.store.rows import AnswerRow, ApprovalRow, Invoked, Message, NewApproval, Released, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
_PASSES = frozenset({ApprovalState.APPROVED, ApprovalState.EDITED})


class Judged(NamedTuple):
    """What becomes of the calls of an answer before it is committed. ``asked`` empty: it may be given as it is."""

    invoked: tuple[Invoked, ...] = ()
    asked: tuple[NewApproval, ...] = ()
    messages: tuple[Message, ...] = ()


_NOTHING = Judged()


class Gate:
    """One for each serving process. ``judged`` is asked with each answer, ``settle`` with each decision."""

    def __init__(self, parts: Parts, policies: Policies) -> None:
        self._parts = parts
        self.policies = policies
        self._settling: dict[int, asyncio.Task[bool]] = {}

    def place_of(self, session: SessionRow) -> Place:
        labels = self._parts.journal.read.labels(session.id) if self.policies.labelled else ()
        return Place(session.key, labels)

    # --- before the commit ---

    def judged(self, place: Place, branch: int, step: int, dialect: Dialect, call: Call, verdict: Verdict) -> Judged:
        """What policies say of an answer's calls."""
        if not verdict.calls:
            return _NOTHING
        rulings = [self.policies.ruling(proposed, place) for proposed in verdict.calls]
        invoked = tuple(
            Invoked(one.choice, one.index, one.arguments.encode("utf-8", "surrogatepass"), _digest(one))
            for one in verdict.calls
        )
        if all(ruling.action is Action.ALLOW for ruling in rulings):
            return Judged(invoked)
        schemas = schemas_of(dialect, call)
        asked = [
            self._question(place, branch, step, one, schemas.get(one.name, ""), ruling)
            for one, ruling in zip(verdict.calls, rulings, strict=True)
            if ruling.action is not Action.ALLOW
        ]
        pending = [one for one in asked if one.state is ApprovalState.PENDING]
        messages = tuple(message for one in pending for message in self._messages(place.session, step, one))
        return Judged((), tuple(asked), messages)

    def _question(
        self, place: Place, branch: int, step: int, call: ToolCall, schema: str, ruling: Ruling
    ) -> NewApproval:
        denied = ruling.action is Action.DENY
        expires = ruling.rule.expires_s if ruling.rule is not None else None
        return NewApproval(
            clock.approval_id(),
            ApprovalKind.CALL,
            policy.approval_digest(place.session, branch, step, (call.choice, call.index), call.name, call.arguments,
                                   schema),
            call.arguments.encode("utf-8", "surrogatepass"),
            ruling.on_reject,
            call.name,
            call.choice,
            call.index,
            call.call_id,
            schema.encode("utf-8", "surrogatepass"),
            spelled_rule(ruling),
            ruling.rule.quorum if ruling.rule is not None else 1,
            ruling.rule.approvers if ruling.rule is not None else (),
            clock.now() + expires if expires is not None else None,
            ApprovalState.REJECTED if denied else ApprovalState.PENDING,
            ruling.why if denied else "",
        )  # fmt: skip

    def question_of_request(self, place: Place, branch: int, call: Call) -> NewApproval:
        """What is asked where the agent wants its request held before it is sent."""
        text = call.body.decode("utf-8", "replace")
        return NewApproval(
            clock.approval_id(), ApprovalKind.REQUEST,
            policy.approval_digest(place.session, branch, 0, (0, 0), "", text, ""), call.body, OnReject.ERROR,
            rule=json.dumps({"why": "the request asks for it (x-agent-require-approval)"}),
        )  # fmt: skip

    def _messages(self, session: str, step: int, asked: NewApproval) -> tuple[Message, ...]:
        facts = {"approval": asked.id, "tool": asked.tool, "kind": asked.kind.value}
        return self._parts.outbox.messages("approval.required", session, asked.id, facts)

    def messages_of_request(self, session: str, asked: NewApproval) -> tuple[Message, ...]:
        return self._messages(session, 0, asked)

    # --- after it ---

    def attach(self, step: int, dialect: Dialect, call: Call, answer: AnswerRow, headers: Any) -> Recording:
        """The recording with which readers of a step wait for the decision; made anew where there is none."""
        known = self._parts.floating.holding.get(step)
        if known is not None:
            return known
        recording = Recording()
        recording.begin(answer.status, headers, answer.shape)
        if answer.shape.stream and call.shape == answer.shape:
            gate = dialect.gate(call)
            recording.append(gate.feed(answer.body))
            recording.heartbeat = gate.heartbeat
            recording.failure = getattr(gate, "failure", None)
        recording.hold()
        self._parts.floating.holding[step] = recording
        return recording

    def look(self, step: int) -> None:
        """Settle a step, if all is decided, in a task of the process."""
        self._parts.floating.decided(step)  # a call of a tool that waits
        if step not in self._settling:
            task = self._parts.tasks.start(f"settle step {step}", self.settle(step))
            self._settling[step] = task
            task.add_done_callback(lambda done: self._settling.pop(step, None))

    async def settle(self, step: int) -> bool:
        """Release a step if everything about it is decided and somebody waits for it; whether it was released."""
        recording = self._parts.floating.holding.get(step)
        if recording is None:
            return False
        try:
            released = await self._released(step, recording)
        except Exception as error:  # whatever it is, nothing is given, and whoever waits hears of it
            log.exception("step %d stays held", step)
            told = (
                error
                if isinstance(error, AgentStateError)
                else AgentStateError(
                    f"the proxy failed while releasing the answer ({type(error).__name__}); it is still held, ask again"
                )
            )
            self._parts.floating.holding.pop(step, None)
            recording.fail(told)
            return False
        if released is None:
            return False
        self._parts.floating.holding.pop(step, None)
        answer = self._parts.journal.read.answer(step)
        if answer.release is Release.ERROR:
            recording.fail(HumanRejection(json.loads(answer.said)["text"]))
        elif answer.release is Release.CONTINUE:
            recording.fail(Continued(json.loads(answer.said)))
        else:
            recording.end(answer.body[recording.shown :])
        return True

    async def _released(self, step: int, recording: Recording) -> Released | None:
        """Work out and commit what is given; ``None``: something is not decided yet, or the session is paused."""
        read = self._parts.journal.read
        rows = read.approvals_of(step)
        if not rows or any(row.state is ApprovalState.PENDING for row in rows):
            return None
        session = read.session(rows[0].session)
        if session is None or session.status is SessionStatus.PAUSED:
            return None
        answer = read.received(step)
        dialect = registry.BY_NAME[answer.dialect]
        _name, method, path, body = read.request(step)
        call = dialect.parse(method, path, body)
        verdict = _verdict(dialect, call, answer)
        place = self.place_of(session)
        if await self._reopened(place, verdict, rows):
            return None
        settled = _settled(place, answer.branch, step, schemas_of(dialect, call), verdict, rows, self.policies)
        mode = _mode(settled, recording)
        amended: bytes | None = None
        if settled.changes:
            said = settled.text if mode is Release.MESSAGE else ""
            amended = dialect.amended(call, answer.shape, answer.body, settled.changes, said)  # type: ignore[attr-defined]
            if amended[: recording.shown] != answer.body[: recording.shown]:
                raise AgentStateError("the amended answer does not go on from what was shown")
        if mode in (Release.ERROR, Release.CONTINUE):
            amended = None
        told = json.dumps({"text": settled.text, "refused": settled.refused})
        released = Released(step, mode, amended, told, settled.invoked if mode is not Release.ERROR else ())
        await self._parts.journal.release(released)
        return released

    async def _reopened(self, place: Place, verdict: Verdict, rows: Sequence[ApprovalRow]) -> bool:
        """Whether policies that have become stricter since ask for more than was decided; it is pending again then."""
        reopened = False
        proposed = {(one.choice, one.index): one for one in verdict.calls}
        for row in rows:
            call = proposed.get((row.choice, row.place))
            if row.kind is not ApprovalKind.CALL or row.state not in _PASSES or call is None:
                continue
            ruling = self.policies.ruling(_effective(call, row), place)
            rule = ruling.rule
            if ruling.action is not Action.HOLD or rule is None:
                continue
            agreed = {who for who, action, *_ in self._parts.journal.read.votes(row.id) if _agrees(row, action)}
            if len(agreed) < rule.quorum or (rule.approvers and set(rule.approvers) - set(row.approvers) and
                                             row.decided_by not in rule.approvers):  # fmt: skip
                await self._parts.journal.reopen(row.id, spelled_rule(ruling), rule.quorum, rule.approvers)
                reopened = True
        return reopened


class Continued(AgentStateError):
    """No error for the agent: the model is told of a refusal, and its next answer is given. ``said``: what of."""

    code = "continued"

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__("the model is told of a refusal")
        self.said = said


class _Settled(NamedTuple):
    """``changes`` to the answer; ``refused``: what the model is told of each refused call, by its id; ``text``: the
    same as a text for the agent; ``modes``: how to tell it of each; ``left``: how many calls are left."""

    changes: tuple[Change, ...]
    invoked: tuple[Invoked, ...]
    refused: dict[str, str]
    text: str
    modes: tuple[OnReject, ...]
    left: int


def _settled(
    place: Place, branch: int, step: int, schemas: dict[str, str], verdict: Verdict, rows: Sequence[ApprovalRow],
    policies: Policies,
) -> _Settled:  # fmt: skip
    by_place = {(row.choice, row.place): row for row in rows}
    changes: list[Change] = []
    invoked: list[Invoked] = []
    refused: dict[str, str] = {}
    modes: list[OnReject] = []
    for call in verdict.calls:
        row = by_place.get((call.choice, call.index))
        effective = _effective(call, row)
        why = _refusal(place, branch, step, call, schemas.get(call.name, ""), row, policies.ruling(effective, place))
        if why:
            changes.append(Change(call.choice, call.index, None))
            refused[call.call_id] = why
            modes.append(row.on_reject if row is not None else policies.ruling(call, place).on_reject)
            continue
        if row is not None and row.state is ApprovalState.EDITED:
            changes.append(Change(call.choice, call.index, row.effective))
        invoked.append(
            Invoked(call.choice, call.index, effective.arguments.encode("utf-8", "surrogatepass"), _digest(effective))
        )
    return _Settled(tuple(changes), tuple(invoked), refused, " ".join(refused.values()), tuple(modes), len(invoked))


def _refusal(
    place: Place, branch: int, step: int, call: ToolCall, schema: str, row: ApprovalRow | None, now: Ruling
) -> str:
    """Why a call is not given; empty: it is. What was decided counts for this very call alone."""
    name = call.name or "a tool"
    if row is None:
        return "" if now.action is Action.ALLOW else f"The call of {name} was refused: {now.why}."
    if row.state in _PASSES:
        digest = policy.approval_digest(
            place.session, branch, step, (call.choice, call.index), call.name, call.arguments, schema
        )
        if digest != row.digest:
            return f"The call of {name} was refused: it is not the one that was approved."
        if now.action is Action.DENY:
            return f"The call of {name} was refused: {now.why}."
        return ""
    if row.state is ApprovalState.EXPIRED:
        return f"The call of {name} was refused: nobody approved it in time."
    by = "a policy" if row.decided_by == "policy" else row.decided_by
    return f"The call of {name} was refused by {by}" + (f": {row.reason}." if row.reason else ".")


def _mode(settled: _Settled, recording: Recording) -> Release:
    """How it is given. An error needs that no status is out, what the model says that nothing at all is."""
    if not settled.modes:
        return Release.ANSWER
    if OnReject.ERROR in settled.modes and (recording.shape.stream or not recording.flushed):
        return Release.ERROR
    all_continue = all(mode is OnReject.CONTINUE for mode in settled.modes)
    if all_continue and not settled.left and not recording.shown:
        return Release.CONTINUE
    return Release.MESSAGE


def _effective(call: ToolCall, row: ApprovalRow | None) -> ToolCall:
    if row is None or row.state is not ApprovalState.EDITED:
        return call
    return ToolCall(call.choice, call.index, call.call_id, call.name, row.effective)


def _agrees(row: ApprovalRow, action: str) -> bool:
    return action == ("EDITED" if row.state is ApprovalState.EDITED else "APPROVED")


def _digest(call: ToolCall) -> bytes:
    return policy.call_digest(call.name, call.arguments)


def _verdict(dialect: Dialect, call: Call, answer: AnswerRow) -> Verdict:
    if not answer.shape.stream:
        return dialect.judge(call, answer.body)
    gate = dialect.gate(call._replace(shape=answer.shape))
    gate.feed(answer.body)
    return gate.finish()


def schemas_of(dialect: Dialect, call: Call) -> dict[str, str]:
    """The schema of each tool that a request offers, by name; empty text: it has none."""
    offered = getattr(dialect, "offered", None)
    return {tool.name: tool.schema for tool in offered(call)} if offered is not None else {}


def spelled_rule(ruling: Ruling) -> str:
    """A ruling as people are shown it, JSON."""
    rule: Rule | None = ruling.rule
    shown: dict[str, Any] = {"why": ruling.why}
    if rule is not None:
        shown |= {"policy": rule.number, "tools": list(rule.tools), "action": rule.action.value, "when": rule.when}
    return json.dumps(shown)
