"""Owns trying a recorded step with another model: asking that one the same, and keeping its answer. Must not give it to
an agent, ask or tell people, run a tool, nor try again.

Invariant: a trial is a step of a session of its own, in the journal before a byte of it leaves, within the budgets, and
with its usage and cost; what is sent is what the step's model was sent, but for the model's name and the wire format.
The agent's credentials are not kept, so that a provider is asked with its own key or one that is given for this call.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from agentstate import clock
from agentstate.core import fingerprint
from agentstate.core.approval import Person
from agentstate.core.model import Call, SessionStatus, Shape, State, Verdict
from agentstate.core.routing import candidate_of
from agentstate.core.runs import Evidence
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.concealing import MARK, scrubbed
from agentstate.dialects.responses_context import conversation_of
from agentstate.dialects.rewriting import with_members
from agentstate.engine import costs, held
from agentstate.engine.candidates import Asking, Switch, Unfit, answered, headers_for, switch_to
from agentstate.engine.core import Parts
from agentstate.engine.headers import packed_headers
from agentstate.engine.looks import whole_of
from agentstate.engine.secrets import secrets_of
from agentstate.engine.sessions import MOST_ID, found
from agentstate.errors import AgentStateError, BadRequest, Conflict, NotFound, ShuttingDown, Unprocessable
from agentstate.providers.client import Headers, Question
from agentstate.store.rows import Begun, Ending, NewRunRow, NewStep, SessionRow, StepRow

log = logging.getLogger("agentstate")
_PLAIN = {"stream": None, "stream_options": None}
_VERSIONS: dict[str, Headers] = {"anthropic": [("anthropic-version", "2023-06-01")]}
_SIMULATED = "simulated"  # the simulator takes any key


class Trial(NamedTuple):
    """What became of it. ``session`` and ``number``: where it is kept; ``step`` and ``original``: the ids of both
    steps; ``lost``: what could not be carried over into another wire format; ``error``: why there is no answer, or
    empty."""

    session: str
    number: int
    step: int
    original: int
    provider: str
    model: str
    lost: tuple[str, ...]
    error: str


class _Prepared(NamedTuple):
    """``call``: as it is journaled, in the wire format of the step; ``switch``: as it is sent."""

    dialect: Dialect
    call: Call
    switch: Switch


class Trials:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def try_step(self, key: str, number: int, model: str, actor: Person, provider_key: str = "") -> Trial:
        """Ask ``model`` (``model``, or ``provider/model``) what a recorded step asked. ``provider_key``: for this call
        alone. Raises ``NotFound``, ``BadRequest``, ``Unprocessable`` where it cannot be asked, ``BudgetExceeded``."""
        if self._parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        if not model.strip():
            raise BadRequest('say which model: {"model": "gpt-4o"}, or {"model": "anthropic/claude-sonnet-5-5"}')
        session = found(self._parts.journal.read, key)
        row = next(iter(self._parts.journal.read.all_steps(session.id, number, 1)), None)
        if row is None or row.number != number:
            raise NotFound(f"session {key!r} has no step {number}; it has the steps 0 to {session.steps - 1}")
        prepared = self._prepared(session, row, model.strip(), provider_key)
        # It goes on without who asked for it: it is paid in any case.
        task = self._parts.tasks.start(f"try step {number} of {key}", self._tried(session, row, prepared, actor))
        return await asyncio.shield(task)

    # --- what is asked ---

    def _prepared(self, session: SessionRow, row: StepRow, model: str, provider_key: str) -> _Prepared:
        dialect = registry.BY_NAME.get(row.dialect)
        if row.kind != "model" or dialect is None:
            raise BadRequest(f"step {row.number} is no question to a model; only those can be tried")
        _, method, path, body = self._parts.journal.read.request(row.id)
        body = self._materialised(session, row, dialect, dialect.parse(method, path, body), body)
        try:
            path, body = _plain(dialect, path, body)
            call = dialect.parse(method, path, body)
            asking = Asking(self._parts, dialect, call, session.id, key=provider_key or self._simulated)
            asked = self._parts.providers.for_dialect(dialect.provider)
            candidate = candidate_of(model, asked.name, self._parts.providers.kinds)
            headers = [*_OURS, *_VERSIONS.get(dialect.provider, [])]
            if candidate.provider == asked.name:
                headers = headers_for(asking, asked, headers)
            route, _, query = path.partition("?")
            switch = switch_to(asking, candidate, asked, Question(method, f"/{route}", query, headers, body), False)
        except Unfit as unfit:
            raise Unprocessable(f"step {row.number} cannot be tried with {model}: {unfit}{_help(str(unfit))}") from None
        except (ValueError, IndexError) as error:
            raise Unprocessable(f"the request of step {row.number} cannot be read well enough: {error}") from error
        if switch.foreign is None:
            sent = switch.question
            path = sent.path.lstrip("/") + (f"?{query}" if query else "")
            call = dialect.parse(method, registry.normalise(path.partition("?")[0]), sent.body, query)
        else:
            call = dialect.parse(method, path, _named(body, candidate.model))
        return _Prepared(dialect, call, switch)

    @property
    def _simulated(self) -> str:
        return _SIMULATED if self._parts.settings.simulate.enabled else ""

    def _materialised(self, session: SessionRow, row: StepRow, dialect: Dialect, call: Call, body: bytes) -> bytes:
        """The request as the model was sent it, standing alone. Raises ``Unprocessable``."""
        if MARK.encode() in body:
            raise Unprocessable(f"the request of step {row.number} held credentials, which are not kept")
        if conversation_of(body):
            raise Unprocessable(f"step {row.number} goes on a conversation that only its own provider holds")
        whole: held.Whole | None = held.Whole(body)
        if call.previous:
            whole = held.whole(self._parts, session.id, call.previous, body)
        if whole is None:
            raise Unprocessable(f"step {row.number} goes on from an answer that the journal does not hold")
        shown, _ = self._parts.head(session)
        overlays = self._parts.overlays
        return overlays.applied(session.id, shown, row.run, dialect, call, whole.body, whole.answers)

    # --- asking ---

    async def _tried(self, session: SessionRow, row: StepRow, prepared: _Prepared, actor: Person) -> Trial:
        parts, switch = self._parts, prepared.switch
        own = await self._own_session(session, row, actor)
        run = clock.run_id()
        await parts.journal.begin_run(NewRunRow(own.id, run, True, Evidence.RUN_ID.value))
        begun_run = parts.journal.read.run(own.id, run)
        own = found(parts.journal.read, own.key)
        assert begun_run is not None
        _, opening = parts.head(own)
        new = NewStep(
            own.id, own.head, begun_run.id, "model", switch.provider.name, prepared.call,
            fingerprint.of(prepared.call), opening=opening is None,
        )  # fmt: skip
        if parts.budgets.on:
            begun = await parts.budgets.begin_quietly(own.key, new, switch.provider)
        else:
            begun = await parts.journal.begin_step(new)
        ending, error, lost = await self._asked(own, begun, prepared)
        await parts.journal.end_step(ending)
        if parts.budgets.on:
            parts.budgets.settled()
        # No run of an agent that took this name is ever replayed into what is in it.
        await parts.journal.set_status(own.id, SessionStatus.COMPLETED)
        candidate = switch.candidate
        return Trial(
            own.key, begun.number, begun.step, row.id, candidate.provider, candidate.model, lost, error
        )  # fmt: skip

    async def _own_session(self, session: SessionRow, row: StepRow, actor: Person) -> SessionRow:
        from agentstate.core.dataset import TRIAL_LABEL  # a start of the server does not wait for it

        read = self._parts.journal.read
        for more in ("", *(f"-{at}" for at in range(2, 100))):
            suffix = f"/{TRIAL_LABEL}-{row.number}{more}"
            key = session.key[: MOST_ID - len(suffix)] + suffix
            known = read.session(key)
            if known is None or TRIAL_LABEL in read.labels(known.id):  # else it is an agent's own
                own = known or await self._parts.journal.open_session(key)
                # And so the audit log says who tried it.
                await self._parts.journal.set_labels(own, [TRIAL_LABEL], [], actor.name)
                return own
        raise Conflict(
            f"agents have taken the names of sessions for trials of step {row.number}; fork it, and try there"
        )

    async def _asked(self, own: SessionRow, begun: Begun, prepared: _Prepared) -> tuple[Ending, str, tuple[str, ...]]:
        """One attempt, whatever comes of it: (its end, why there is no answer, what was lost)."""
        parts, (dialect, call, switch) = self._parts, prepared
        status, headers, body, lost, verdict = 0, [], b"", switch.losses, Verdict()
        began = heard = clock.monotonic()
        try:
            async with asyncio.timeout(parts.settings.retry.attempt_timeout_s):
                async with parts.client.attempt(switch.provider, switch.question) as reply:
                    heard = clock.monotonic()
                    status, headers = reply.status, reply.headers
                    body = await whole_of(parts, reply)
            error = _refusal(status, body) if status >= 300 else ""
            if not error and switch.foreign is not None:
                body, verdict, lost = answered(dialect, call, switch.foreign, body)
                headers = [("content-type", dialect.content_type(Shape()))]
            elif not error:
                verdict = dialect.judge(call, body)
            error = error or verdict.fault or verdict.failed
        except Unfit as unfit:
            error = f"the answer cannot be carried over: {unfit}"
        except TimeoutError:
            error = f"it took longer than {parts.settings.retry.attempt_timeout_s} s (retry.attempt_timeout_s)"
        except AgentStateError as fault:
            error = f"{fault.code}: {fault}"
        except asyncio.CancelledError:
            await asyncio.shield(parts.journal.interrupt_step(begun.step))
            raise
        except Exception as fault:
            log.exception("a trial failed")
            error = f"the proxy failed while reading the answer ({type(fault).__name__})"
        secrets = secrets_of(switch.question, call)
        error = scrubbed(error.encode(), secrets).decode("utf-8", "replace")[:2000]
        cost, prices = None, ""
        if verdict.usage:
            cost, prices = await costs.priced(parts, switch.provider, switch.candidate.model, verdict)
        whole_s, name = clock.monotonic() - began, switch.candidate.model
        parts.insight.metrics.attempt(
            switch.provider.name, verdict.model or name, status, heard - began, whole_s, verdict.usage, cost
        )
        ending = Ending(
            own.id, begun.step, begun.attempt, State.FAILED if error else State.COMPLETED, status,
            scrubbed(packed_headers(headers), secrets), scrubbed(body, secrets), not error, Shape(),
            verdict._replace(model=verdict.model or name, answer_id=""), cost, error, prices=prices,
            budgeted=parts.budgets.on,
        )  # fmt: skip
        return ending, error, lost


_OURS: Headers = [
    ("content-type", "application/json"), ("accept", "application/json"), ("user-agent", "AgentState"),
    ("accept-encoding", "identity"),
]  # fmt: skip


def _plain(dialect: Dialect, path: str, body: bytes) -> tuple[str, bytes]:
    """The question for an answer in one piece: (path, body)."""
    if dialect.name == "gemini":
        return path.replace(":streamGenerateContent", ":generateContent"), body
    if dialect.name.startswith("ollama"):
        return path, with_members(body, {"stream": b"false"})
    return path, with_members(body, _PLAIN) if dialect.parse("POST", path, body).shape.stream else body


def _named(body: bytes, model: str) -> bytes:
    import msgspec

    return with_members(body, {"model": msgspec.json.encode(model)})


def _refusal(status: int, body: bytes) -> str:
    return f"HTTP {status}: {body[:500].decode('utf-8', 'replace')}"


def _help(why: str) -> str:
    return ", or give a key for this call alone in the header x-provider-key" if "key_env" in why else ""
