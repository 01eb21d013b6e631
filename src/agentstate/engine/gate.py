"""Owns the gate: which calls of an answer are kept back, and what is given once people have decided about them.

Must not decide itself: policies and people do. Invariant: of an answer with a call that is held or denied, no byte of
a call and nothing after it is shown before its release is in the journal; what is released is what the decisions, bound
to that very call, say; whatever fails on the way leaves it held.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, NamedTuple

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
    Shape,
    ToolCall,
    Verdict,
)
from agentstate.core.policy import Place, Ruling
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.preamble import says
from agentstate.engine.headers import kept_headers
from agentstate.engine.invocations import acts
from agentstate.engine.policies import Policies
from agentstate.engine.recording import Recording
from agentstate.engine.releasing import release
from agentstate.engine.settling import digest_of, schemas_of, spelled_rule, told_by_text
from agentstate.errors import (
    AgentStateError,
    ApprovalUnavailable,
    HumanRejection,
    ShuttingDown,
    Unprocessable,
)
from agentstate.store.rows import AnswerRow, ApprovalRow, Invoked, Message, NewApproval, SessionRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
_MOST_ROUNDS = 3  # in a row in which the model is told of refusals


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
        self.requests: dict[int, asyncio.Event] = {}  # questions that wait to be sent, by step

    def place_of(self, session: SessionRow) -> Place:
        labels = self._parts.journal.read.labels(session.id) if self.policies.labelled else ()
        return Place(session.key, labels)

    # --- before the commit ---

    def judged(
        self, place: Place, branch: int, run: int, step: int, dialect: Dialect, call: Call, verdict: Verdict,
        rounds: int = 0,
    ) -> Judged:  # fmt: skip
        """What policies say of an answer's calls, and what this run was refused already. ``rounds``: how often the
        model was told of a refusal on the way to this answer; it is not told without end."""
        if not verdict.calls:
            return _NOTHING
        rulings = [self.policies.ruling(proposed, place) for proposed in verdict.calls]
        invoked = tuple(
            Invoked(one.choice, one.index, one.arguments.encode("utf-8", "surrogatepass"), digest_of(one))
            for one in verdict.calls
        )
        made = [self._made_before(place, run, one) for one in verdict.calls]
        if all(ruling.action is Action.ALLOW for ruling in rulings) and not any(made):
            return Judged(invoked)
        schemas = schemas_of(dialect, call)
        refused = self._parts.journal.read.refused(run)
        asked = [
            self._question(
                place, branch, step, one, schemas.get(one.name, ""), ruling, refused.get(digest_of(one), ""), before
            )
            for one, ruling, before in zip(verdict.calls, rulings, made, strict=True)
            if before or ruling.action is not Action.ALLOW
        ]
        if rounds >= _MOST_ROUNDS:
            asked = [one._replace(on_reject=told_by_text(one.on_reject)) for one in asked]
        pending = [one for one in asked if one.state is ApprovalState.PENDING]
        messages = tuple(message for one in pending for message in self.messages(place.session, one))
        return Judged((), tuple(asked), messages)

    def _question(
        self, place: Place, branch: int, step: int, call: ToolCall, schema: str, ruling: Ruling, refused: str,
        made: str,
    ) -> NewApproval:  # fmt: skip
        """``refused``: what was said when this run was refused an equal call; ``made``: where an equal one was made."""
        denied = ruling.action is Action.DENY or bool(refused)
        why = f"an equal call was refused already: {refused}" if refused else ruling.why
        expires = ruling.rule.expires_s if ruling.rule is not None else None
        return NewApproval(
            clock.approval_id(),
            ApprovalKind.DUPLICATE if made and not denied else ApprovalKind.CALL,
            policy.approval_digest(place.session, branch, step, (call.choice, call.index), call.name, call.arguments,
                                   schema),
            call.arguments.encode("utf-8", "surrogatepass"),
            told_by_text(ruling.on_reject) if refused else ruling.on_reject,
            call.name,
            call.choice,
            call.index,
            call.call_id,
            schema.encode("utf-8", "surrogatepass"),
            spelled_rule(ruling, made),
            ruling.rule.quorum if ruling.rule is not None else 1,
            ruling.rule.approvers if ruling.rule is not None else (),
            clock.now() + expires if expires is not None else None,
            ApprovalState.REJECTED if denied else ApprovalState.PENDING,
            why if denied else "",
        )  # fmt: skip

    def _made_before(self, place: Place, run: int, call: ToolCall) -> str:
        """Where the session made an equal call already that this run knows nothing of; empty: nowhere, or the tool may
        be called twice."""
        if not acts(self._parts.settings.tools, call.name):
            return ""
        session = self._parts.journal.facts.session(place.session)
        found = None if session is None else self._parts.journal.read.made_before(session, run, digest_of(call))
        return "" if found is None else f"step {found[0]}, of another run, branch or fork, made an equal call"

    def question_of_request(self, place: Place, branch: int, call: Call) -> NewApproval:
        """What is asked where the agent wants its request held before it is sent."""
        text = call.body.decode("utf-8", "replace")
        return NewApproval(
            clock.approval_id(), ApprovalKind.REQUEST,
            policy.approval_digest(place.session, branch, 0, (0, 0), "", text, ""), call.body, OnReject.ERROR,
            rule=json.dumps({"why": "the request asks for it (x-agent-require-approval)"}),
        )  # fmt: skip

    def messages(self, session: str, asked: NewApproval | ApprovalRow) -> tuple[Message, ...]:
        """What people are told of a question, for the transaction that puts it."""
        facts = {"approval": asked.id, "tool": asked.tool, "kind": asked.kind.value}
        event = "call.in_doubt" if asked.kind is ApprovalKind.DOUBT else "approval.required"
        return self._parts.outbox.messages(event, session, asked.id, facts)

    # --- after it ---

    def attach(self, step: int, dialect: Dialect, call: Call, answer: AnswerRow) -> Recording:
        """The recording with which readers of a step wait for the decision, entered; made anew where there is none."""
        known = self._parts.floating.holding.get(step)
        if known is not None:
            known.enter()
            return known
        recording = Recording()
        recording.begin(answer.status, kept_headers(answer.head), answer.shape)
        if answer.shape.stream and call.shape == answer.shape:
            gate = dialect.gate(call)
            free = gate.feed(answer.body)
            recording.append(free if not self.policies.tells or says(dialect.name, free) else b"")
            recording.heartbeat = gate.heartbeat
            recording.failure = getattr(gate, "failure", None)
        recording.hold()
        recording.enter()
        self._hold(step, recording)
        return recording

    def passed(
        self,
        place: Place,
        dialect: Dialect,
        call: Call,
        verdict: Verdict,
        body: bytes,
        shape: Shape = Shape(),  # noqa: B008 - it never changes
    ) -> bytes:
        """A whole answer that cannot wait for people, one that failed or that is looked up: less the calls that may
        not pass without them. Raises ``ApprovalUnavailable`` where they cannot be taken out."""
        refused = [
            (one, ruling) for one in verdict.calls
            if (ruling := self.policies.ruling(one, place)).action is not Action.ALLOW
        ]  # fmt: skip
        if not refused:
            return body
        what = "an answer that failed" if verdict.failed else "an answer that is only looked up"
        onward = "ask again" if verdict.failed else "ask for the answer itself"
        said = " ".join(
            f"The call of {one.name or 'a tool'} was refused: {ruling.why}, and {what} cannot wait for a person; "
            f"{onward}."
            for one, ruling in refused
        )
        changes = [Change(one.choice, one.index) for one, _ in refused]
        try:
            return dialect.amended(call, shape, body, changes, said)  # type: ignore[attr-defined, no-any-return]
        except (ValueError, AttributeError) as error:
            raise ApprovalUnavailable(
                f"{what} holds calls that policies do not let pass, and they cannot be taken out ({error}); {onward}"
            ) from error

    def tools(self, dialect: Dialect, call: Call) -> list[str]:
        """The names of the tools that a request offers."""
        return list(schemas_of(dialect, call))

    def keep(self, step: int, recording: Recording) -> None:
        """The answer of a step is in the journal and waits; so do the readers of its recording."""
        recording.hold()
        self._hold(step, recording)
        self.look(step)

    def _hold(self, step: int, recording: Recording) -> None:
        """Readers wait with it. Once they are gone nothing is released: a decision is kept for who asks again, and what
        governs the call by then counts."""
        holding = self._parts.floating.holding
        holding[step] = recording

        def deserted() -> None:
            holding.pop(step, None)

        recording.on_deserted(deserted)
        if recording.readers == 0:
            deserted()

    def check_edit(self, row: ApprovalRow, text: str) -> None:
        """Whether the answer can be given with these arguments. Raises ``Unprocessable``."""
        answer, _ = self._parts.journal.read.proposed(row.step)
        _, method, path, body = self._parts.journal.read.request(row.step)
        dialect = registry.BY_NAME.get(answer.dialect)
        if dialect is None or row.kind not in (ApprovalKind.CALL, ApprovalKind.DUPLICATE):
            return
        try:
            if not hasattr(dialect, "amended"):
                raise ValueError(f"answers of {dialect.name} cannot be given with other arguments")
            change = Change(row.choice, row.place, text)
            dialect.amended(dialect.parse(method, path, body), answer.shape, answer.body, [change], "")
        except ValueError as error:
            raise Unprocessable(
                f"the call cannot be edited like that: {error}; the approval is still pending"
            ) from None

    def close(self) -> None:
        """The process ends: whoever waits is told to ask again, which finds the same approval."""
        for recording in list(self._parts.floating.holding.values()):
            recording.fail(ShuttingDown("the proxy is stopping; ask again"))
        self._parts.floating.holding.clear()
        for event in self.requests.values():
            event.set()
        self._parts.floating.decided_any()
        self._parts.pauses.news()

    def look_again(self) -> None:
        """Something that held steps back may be over."""
        for step in (*self._parts.floating.holding, *self.requests):
            self.look(step)
        self._parts.floating.decided_any()
        self._parts.pauses.news()

    def look_at_requests(self) -> None:
        """Questions that wait to be sent may have room now."""
        for event in self.requests.values():
            event.set()

    def look(self, step: int) -> None:
        """Settle a step, if all is decided, in a task of the process."""
        self._parts.floating.decided(step)  # a call of a tool may wait for it
        if (event := self.requests.get(step)) is not None:
            event.set()
        elif step not in self._settling:
            task = self._parts.tasks.start(f"settle step {step}", self.settle(step))
            self._settling[step] = task
            task.add_done_callback(lambda done: self._settling.pop(step, None))

    async def settle(self, step: int) -> bool:
        """Release a step if everything about it is decided and somebody waits for it; whether it was released."""
        recording = self._parts.floating.holding.get(step)
        if recording is None:
            return False
        try:
            released = await release(self._parts, step, recording)
        except Exception as error:  # whatever it is, nothing is given, and whoever waits hears of it
            told = error if isinstance(error, AgentStateError) else None
            log.error("step %d stays held: %s", step, error, exc_info=None if told else error)
            self._parts.floating.holding.pop(step, None)
            recording.fail(
                told
                or AgentStateError(
                    f"the proxy failed while releasing the answer ({type(error).__name__}); it is still held, ask again"
                )
            )
            return False
        if released is None:
            return False
        self._parts.floating.holding.pop(step, None)
        answer = self._parts.journal.read.answer(step)
        if answer.release is Release.ERROR:
            recording.fail(HumanRejection(json.loads(answer.said)["text"]))
        elif answer.release is Release.CONTINUE:
            if recording.onward is not None:
                recording.onward()
            else:  # nobody waits any more
                recording.fail(AgentStateError("the answer was refused; ask again to have the model told"))
        else:
            recording.end(answer.body[recording.shown :])
        return True
