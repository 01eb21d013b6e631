"""Owns the path of one request from question to answer: which run, which step, then replay, follow or execute.

Must not read upstream (the recorder does) nor write to the agent (the server does). Invariant: between the decision and
the note that it was taken there is no await, so two requests are never given the same recorded answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from agentstate.core import divergence, fingerprint, replay
from agentstate.core.divergence import Diverged, Policy
from agentstate.core.model import (
    Outcome,
    Release,
    RunState,
    SessionStatus,
    Shape,
)
from agentstate.core.replay import Ask, Execute, Follow, Miss, Replay
from agentstate.dialects import registry, stream_usage
from agentstate.dialects.base import Dialect, check_content_type, check_model
from agentstate.engine import given, invocations, revised, waiting
from agentstate.engine.asked import Asked
from agentstate.engine.core import Parts
from agentstate.engine.failing import told_detour
from agentstate.engine.headers import asked_shape, forwarded, live_headers, recorded_headers
from agentstate.engine.identity import Identity
from agentstate.engine.ordering import in_order
from agentstate.engine.pausing import Rest, heartbeats
from agentstate.engine.readers import cut, left
from agentstate.engine.recorder import Job, record
from agentstate.engine.recording import Recording
from agentstate.engine.rematch import Rematch, sentence
from agentstate.engine.request import Answer, Request
from agentstate.engine.state import Live
from agentstate.errors import AgentStateError, RunDiverged, RunFenced, SessionPaused, ShuttingDown
from agentstate.store.rows import AnswerRow, NewStep, RunRow

log = logging.getLogger("agentstate")


class Answering:
    """``answer`` is the whole path."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.identity = Identity(parts)
        self.rematch = Rematch(parts)
        self._cursors: dict[int, int] = {}

    async def answer(self, request: Request, dialect: Dialect) -> Answer:
        """Answer a request of a session. Raises ``AgentStateError``."""
        if self.parts.closing:
            raise ShuttingDown("the proxy is stopping; ask again")
        content_type = next((value for name, value in request.headers if name.lower() == "content-type"), "")
        check_content_type(content_type)
        call = dialect.parse(request.method, request.normal, request.body, request.query)
        if not call.model.isascii():
            check_model(call.model)
        asked_print = fingerprint.of(call)
        session = self.parts.journal.facts.session(request.session)
        if session is None:
            session = await self.parts.journal.open_session(request.session)
        session, run = await self.identity.of(request, session, asked_print)
        self.parts.presence.speaks_for(request.connection, session.key, run.id)
        if run.state is RunState.FENCED:
            raise RunFenced(f"run {run.name} was replaced by a newer one; this process should end")
        invocations.note(self.parts, session, run.id, dialect, call)
        asked = Asked(request, dialect, call, asked_print, session, run)
        try:
            return await self._act(asked, self._decide(asked))
        except SessionPaused as paused:
            if paused.waited or not self.parts.pauses.waits(session.key):
                raise
            return self._resting(asked)

    # --- the decision ---

    def _decide(self, asked: Asked) -> replay.Decision:
        request, run = asked.request, asked.run
        view = self.parts.view(asked.session)
        journal = self.parts.journal
        entries = []
        if journal.facts.holds(view.shown, asked.print.key):
            entries = journal.read.entries(view.shown, asked.print.key, run.id, run.siblings)
        known = seen = self.parts.floating.seen(entries, run.id, asked.session.head, asked.print.key)
        if view.floor or view.edits:
            seen = view.usable(known)
        ask = Ask(request.mode, request.retry, request.retry_key, request.hint, asked.call.pure)
        decision = replay.decide(ask, run.id, seen)
        if isinstance(decision, Miss):
            # What its source asked too, and got no answer to, is no other way to go: it is asked as a step of its own.
            own = any(entry.mine for entry in seen)
            return Execute() if not own and view.unanswered(known) else self._missed(asked)
        if isinstance(decision, Follow) and decision.step in view.edits:
            return Replay(decision.step, again=decision.again)  # what grows is what was edited
        if isinstance(decision, Execute) and decision.poison is not None:
            log.warning("session %s: step id %d kills runs and is asked anew", asked.session.key, decision.poison)
        return decision

    def _missed(self, asked: Asked) -> replay.Decision:
        """Nothing equal is recorded: it matches all the same, or goes on, or diverges."""
        run, session = asked.run, asked.session
        if asked.call.pure or run.base == 0 or self._has_diverged(run):
            return Miss()
        read = self.parts.journal.read
        view = self.parts.view(session)
        start = read.first_unread(session.id, run, self._cursors.get(run.id, 0), view.shared)
        if start is None:
            self._cursors[run.id] = run.base
            return Miss()
        self._remember(run.id, start)
        claimed = self.parts.floating.claimed
        unread = [step for step in read.unread(session.id, view.shown, run, start) if not claimed(run.id, step.step)]
        candidates, missed = revised.apart(self.parts, view, run.id, unread)
        match = self.rematch.find(session, run.id, asked.call, candidates) if candidates else None
        if match is not None:
            return Replay(match[0], match[1])
        if not missed:
            return Miss()
        unread = self.rematch.with_effects(missed)
        asked.carried = tuple(step.step for step in divergence.carried(asked.print.chain, unread))
        policy = Policy(self.parts.settings.replay.on_divergence)
        found = divergence.judge(asked.print.chain, unread, policy, asked.request.mode)
        return _Diverging(found) if found is not None else Miss()

    def _has_diverged(self, run: RunRow) -> bool:
        return run.divergence is not None and json.loads(run.divergence)["policy"] != Policy.STRICT

    def _remember(self, run: int, start: int) -> None:
        """Below this number the run has read everything: the next look begins there."""
        if len(self._cursors) > 10_000:
            self._cursors.clear()
        self._cursors[run] = start

    # --- acting on it ---

    async def _act(self, asked: Asked, decision: replay.Decision) -> Answer:
        if isinstance(decision, Replay):
            return await self._replay(asked, decision)
        if isinstance(decision, Follow):
            return await self._follow(asked, self.parts.floating.live[decision.step])
        if isinstance(decision, _Diverging):
            self.parts.pauses.check_of_person(asked.session.key)
            await self._diverge(asked, decision.found)
            return await self._execute(asked, None)
        return await self._execute(asked, decision.step if isinstance(decision, Execute) else None)

    async def _replay(self, asked: Asked, decision: Replay) -> Answer:
        run, floating = asked.run, self.parts.floating
        edit = self.parts.view(asked.session).edits.get(decision.step)
        if edit is not None:
            revised.check_grounds(self.parts, asked.session, edit)
        outcome = Outcome.MEMO if asked.call.pure else Outcome.REPLAY if edit is None else Outcome.EDITED
        hint = asked.request.hint
        commit = self.parts.journal.serve(
            asked.session.id, run.id, decision.step, outcome.value, decision.match.value, hint, floating.alone()
        )
        floating.claim(run.id, decision.step, commit)
        floating.reads(run.id, decision.step, asked.request.retry)
        try:
            recorded = self.parts.journal.read.answer(decision.step)
            if not commit.done():
                await asyncio.shield(commit)
            commit.result()
            if recorded.release is Release.HELD and (live := floating.live.get(decision.step)) is not None:
                await live.recording.complete()  # committed, but the gate has it only once it is on disk
                recorded = self.parts.journal.read.answer(decision.step)
            apart = recorded.release is not None and recorded.release not in given.AS_IT_IS
            received = recorded
            if edit is not None:
                recorded = revised.as_edited(self.parts.journal.read, recorded, edit)
            shape, body = asked.call.shape, b""
            if not apart:
                shape, body = await self._recorded(asked, decision, recorded)
        except BaseException:
            left(self.parts, run.id, decision.step, None, asked.request.connection, False)
            raise
        if apart:
            return await self._given(asked, decision, recorded)
        headers = recorded_headers(received, asked.dialect, shape)
        told = asked.told(outcome, recorded.number, recorded.model or asked.call.model, True, decision.match)
        if recorded.attempts > 1 and recorded.status < 400:  # errors are those of its own provider
            detour = self.parts.journal.read.detour(decision.step, recorded.attempts)
            told = told._replace(detour=told_detour(detour))
        return Answer(
            recorded.status,
            headers + told.headers(),
            body,
            close=partial(left, self.parts, run.id, decision.step, None, asked.request.connection),
            told=told,
            saved=recorded.cost,
        )

    async def _recorded(self, asked: Asked, decision: Replay, recorded: AnswerRow) -> tuple[Shape, bytes]:
        """A recorded answer in the shape that is asked for, in its turn."""
        if (live := self.parts.floating.live.get(decision.step)) is not None:
            await live.recording.whole()  # committed, but perhaps not on disk yet
        if recorded.finished - recorded.started > 1 and not asked.call.pure:
            await in_order(self.parts, asked.run.id, recorded)
        shape, was, body = asked_shape(asked.call, recorded), recorded.shape, recorded.body
        if was != shape and stream_usage.is_to_put_back(recorded.dialect, was, shape, recorded.usage):
            was, body = replace(was, usage=True), stream_usage.put_back(body, recorded.usage)
        return shape, asked.dialect.convert(was, shape, body)

    async def _given(self, asked: Asked, decision: Replay, recorded: AnswerRow) -> Answer:
        """A recorded answer that was held: it still is, was refused, or the model is told of the refusal."""
        close = partial(left, self.parts, asked.run.id, decision.step, None, asked.request.connection)
        if recorded.release is Release.ERROR:
            close(True)
            raise given.rejection(recorded)
        if recorded.release is Release.CONTINUE:
            close(True)
            return await self.answer(given.continued(self.parts, asked, decision.step), asked.dialect)
        try:
            recording = self.parts.gate.attach(decision.step, asked.dialect, asked.call, recorded)
            if recorded.attempts > 1:
                recording.model = recorded.model
                recording.detour = told_detour(self.parts.journal.read.detour(decision.step, recorded.attempts))
        except BaseException:
            close(False)
            raise
        self.parts.gate.look(decision.step)
        return self._waiting(asked, decision.step, recorded.number, recording)

    def _waiting(
        self, asked: Asked, step: int, number: int, recording: Recording, outcome: Outcome = Outcome.HELD
    ) -> Answer:
        """What is given to a reader who is to be kept waiting: for a person, or for a whole answer."""
        if recording.onward is None:
            recording.onward = lambda: self.parts.tasks.start(
                f"go on after step {step}", given.go_on(self.parts, self.answer, asked, step, recording)
            )
        told = asked.told(outcome, number, recording.model or asked.call.model, False)
        told = told._replace(detour=recording.detour)
        return given.waiting(
            asked, told, recording, partial(left, self.parts, asked.run.id, step, recording, asked.request.connection)
        )

    def _resting(self, asked: Asked) -> Answer:
        """Nothing is begun while a person has paused the session; after that the request is judged anew."""
        dialect, call, parts = asked.dialect, asked.call, self.parts
        kind = dialect.content_type(call.shape)
        headers = [("content-type", kind), *asked.told(Outcome.HELD, None, call.model, False).headers()]
        rest = Rest(
            parts.pauses, asked.session.key, headers, heartbeats(dialect, call),
            lambda: self.answer(asked.request, dialect), lambda answer: given.after_heartbeat(dialect, call, answer),
            dialect.stream_error if call.shape.stream else None,
        )  # fmt: skip
        return Answer(200, headers, rest=rest)

    async def _follow(self, asked: Asked, live: Live) -> Answer:
        live.recording.enter()
        return await self._read(asked, live, Outcome.JOINED)

    async def _execute(self, asked: Asked, step: int | None) -> Answer:
        """Ask the provider. ``step``: as a further attempt of this one."""
        request, session = asked.request, asked.session
        if session.status is SessionStatus.PAUSED:
            self.parts.pauses.check(session.key)
        place = self.parts.gate.place_of(session)
        held = None
        if request.needs_approval and (step is None or waiting.must_ask(self.parts, step)):
            step, held = None, self.parts.gate.question_of_request(place, session.head, asked.call)
        kind = registry.provider_kind(request.normal, request.headers)
        provider = self.parts.providers.named(request.provider) if request.provider else None
        provider = provider or self.parts.providers.for_dialect(kind)
        question = forwarded(request, kind, provider)
        uncounted = stream_usage.is_uncounted(asked.call) and self.parts.counts(provider)
        if uncounted:
            question = question._replace(body=stream_usage.asking(question.body, asked.call))
        self.parts.pricing.warm()
        _, opening = self.parts.head(session)
        new = NewStep(
            session.id, session.head, asked.run.id, "model", provider.name, asked.call, asked.print,
            asked.outcome.value, request.hint, request.retry_key, opening is None, asked.carried, held,
            self.parts.gate.messages(session.key, held) if held is not None else (),
        )  # fmt: skip
        recording = Recording()
        live = Live(
            session.id, session.head, asked.run.id, asked.print.key, recording,
            self.parts.floating.temporary() if step is None else step, hint=request.hint,
            retry_key=request.retry_key, tries=request.retry,
        )  # fmt: skip
        recording.enter()
        self.parts.floating.add(live)
        begun = None
        if held is not None:
            begun = self.parts.journal.hold_step(new)
        elif step is None and not self.parts.budgets.on:
            begun = self.parts.journal.begin_step(new, self.parts.floating.alone())
        job = Job(
            self.parts, live, asked.call, asked.dialect, provider, question, new, step, begun,
            request.drain is not False, place, request, uncounted,
        )  # fmt: skip
        self.parts.tasks.start(f"record a step of {session.key}", record(job))
        return await self._read(asked, live, asked.outcome)

    async def _read(self, asked: Asked, live: Live, outcome: Outcome) -> Answer:
        """Read a recording that was entered already; leave it if anything goes wrong."""
        run, recording = asked.run.id, live.recording
        try:
            await live.ready.wait()
        except BaseException:
            recording.leave()
            if live.step >= 0:
                cut(self.parts, run, live.step, asked.request.connection)
            else:
                live.left.append(lambda: cut(self.parts, run, live.step, asked.request.connection))
            raise
        if live.step < 0:
            recording.leave()
            raise recording.error or AgentStateError("the call could not begin; ask again")
        self.parts.floating.reads(run, live.step, asked.request.retry)
        close = partial(left, self.parts, run, live.step, recording, asked.request.connection)
        try:
            if outcome is Outcome.JOINED:
                commit = self.parts.journal.serve(live.session, run, live.step, outcome.value, hint=asked.request.hint)
                self.parts.floating.claim(run, live.step, commit)
                await asyncio.shield(commit)
            return await self._from_recording(asked, live, outcome, close)
        except AgentStateError:
            close(True)  # the error is what the reader gets
            raise
        except BaseException:
            close(False)
            raise

    async def _from_recording(
        self, asked: Asked, live: Live, outcome: Outcome, close: Callable[[bool], None]
    ) -> Answer:
        """The answer as it grows; whole, where it is plain, must be converted, or is over already."""
        recording = live.recording
        if asked.call.shape.stream:
            elsewhere = self.parts.routes.any or asked.request.fallback
            while not await recording.settled(asked.request.patience if elsewhere else None):
                if recording.translating:
                    return self._waiting(asked, live.step, live.number, recording, outcome)
            if recording.held and not (recording.shown and recording.shape == asked.call.shape):
                return self._waiting(asked, live.step, live.number, recording)
            if recording.error is not None and not recording.shown:
                raise recording.error
            # What broke off after its beginning is told as a stream whether or not it is over already.
            if recording.shape == asked.call.shape and (not recording.done or recording.error is not None):
                told = asked.told_of(live, outcome)
                headers = live_headers(recording.headers) + told.headers()
                return Answer(
                    recording.status, headers, None, recording, close,
                    lambda error: (recording.failure or asked.dialect.stream_error)(given.as_ours(error)), told=told,
                )  # fmt: skip
        if not await recording.complete():
            return self._waiting(asked, live.step, live.number, recording)
        body = await recording.whole()
        headers = live_headers(recording.headers)
        other = outcome is Outcome.JOINED or recording.translated
        if recording.status < 300 and recording.shape != asked.call.shape and other:
            body = asked.dialect.convert(recording.shape, asked.call.shape, body)
            headers = [pair for pair in headers if pair[0].lower() != "content-type"]
            headers.append(("content-type", asked.dialect.content_type(asked.call.shape)))
        told = asked.told_of(live, outcome)
        headers += told.headers()
        return Answer(recording.status, headers, body, close=close, told=told, waited_s=recording.waited_s)

    # --- divergence ---

    async def _diverge(self, asked: Asked, found: Diverged) -> None:
        """Report it once; then go on as a fork, or refuse."""
        report = self.rematch.report(asked.run, asked.call, asked.print, found)
        text = sentence(report)
        log.warning("session %s diverged: %s", asked.session.key, text)
        if asked.run.divergence is None:
            told = self.parts.outbox.diverged(asked.session.key, report)
            await self.parts.journal.report_divergence(asked.session.id, asked.run.id, json.dumps(report), told)
        if found.policy is Policy.FORK:
            asked.outcome = Outcome.DIVERGED
            return
        if found.policy is Policy.PAUSE:
            note = json.dumps({"reason": "diverged", "text": text})
            await self.parts.journal.set_status(asked.session.id, SessionStatus.PAUSED, note)
            text += (
                "; the session is paused so that nothing is done twice. To let it go on live, set its status to "
                'RUNNING (or replay.on_divergence = "fork")'
            )
        raise RunDiverged(text, detail=report)


@dataclass(frozen=True, slots=True)
class _Diverging(Miss):
    found: Diverged
