"""Random programs of sessions, rollbacks, holds, forks, pins and prunes: the journal stays sound, what stays is given
back byte for byte, and nothing is left that nothing refers to."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentstate import clock
from agentstate.core import retention
from agentstate.core.approval import Decision, Vote
from agentstate.core.model import ApprovalKind, OnReject, ToolCall, Verdict
from agentstate.core.retention import Rules, Stands, Why
from agentstate.store import doctor
from agentstate.store.pruning import Doomed
from agentstate.store.pruning_reader import garbage_blobs, garbage_nodes
from agentstate.store.reader import Reader
from agentstate.store.rows import NewApproval
from agentstate.store.stats_reader import Span
from agentstate.store.steering import NewRevision, RevisedCall
from tests.store.kit import Book, opened, parse

T = TypeVar("T")
KEYS = st.sampled_from(["a", "b", "c", "d"])
# Few of them, so that sessions share prefixes, bodies and whole transcripts.
WORDS = st.sampled_from(["one " * 30, "two " * 30, "three " * 30])
ANSWERS = st.sampled_from([b'{"x":"first"}' * 9, b'{"x":"second"}' * 9])


class Life:
    """What was told to the journal of one session: what it must give back, by the number of the step."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.id = book.session.id
        self.told: dict[int, tuple[bytes, bytes]] = {}
        self.prompts: list[str] = []
        self.pinned = False
        self.pending: list[str] = []
        self.source: Life | None = None
        self.edits: list[tuple[int, int, bytes]] = []  # branch, step, the answer as edited


class Programs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.runner = asyncio.Runner()
        self.runs = 0

        async def begin() -> Any:
            return opened(self.folder / "journal.db")

        self.journal = self.runner.run(begin())
        self.lives: dict[str, Life] = {}

    def teardown(self) -> None:
        self.journal.close()
        self.runner.close()
        shutil.rmtree(self.folder)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def life(self, key: str) -> Life:
        if key not in self.lives:
            self.lives[key] = Life(await Book.open(self.journal, key))
        return self.lives[key]

    async def say(self, key: str, word: str, answer: bytes, **more: Any) -> tuple[Life, Any]:
        life = await self.life(key)
        self.runs += 1
        run = await life.book.run(f"r{self.runs}")
        life.prompts.append(word)
        begun = await life.book.ask(run, *life.prompts)
        await life.book.end(begun, answer, cost=0.125, **more)
        life.told[begun.number] = (self.journal.read.request(begun.step)[3], answer)
        return life, begun

    # --- what happens ---

    @rule(key=KEYS, word=WORDS, answer=ANSWERS)
    def a_session_goes_on(self, key: str, word: str, answer: bytes) -> None:
        self.do(self.say(key, word, answer))

    @rule(key=KEYS, word=WORDS)
    def a_call_is_held(self, key: str, word: str) -> None:
        name = clock.approval_id()
        asked = NewApproval(name, ApprovalKind.CALL, b"d", word.encode(), OnReject.MESSAGE, tool="t", schema=b"{}")
        verdict = Verdict(model="m", usage='{"total_tokens":3}', calls=(ToolCall(0, 0, "c", "t", "{}"),))
        life, _ = self.do(self.say(key, word, b'{"held":1}' * 9, verdict=verdict, asked=(asked,)))
        life.pending.append(name)

    @precondition(lambda self: any(life.pending for life in self.lives.values()))
    @rule(data=st.data())
    def somebody_decides(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from([life for life in self.lives.values() if life.pending]))
        name = life.pending.pop()
        self.do(self.journal.decide(name, Vote("alice", Decision.APPROVED, ""), "fine"))

    @precondition(lambda self: bool(self.lives))
    @rule(data=st.data())
    def a_session_is_rolled_back(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(list(self.lives.values())))
        number = data.draw(st.integers(0, life.book.session.steps))
        self.do(self.journal.roll_back(life.book.session, number))
        life.pending.clear() if number == 0 else None
        life.pending = [name for name in life.pending if self.state_of(name) == "pending"]
        life.prompts = life.prompts[:number]

    def state_of(self, name: str) -> str:
        return str(self.journal.read.raw("select state from approval where id = ?", (name,)).fetchone()[0])

    @precondition(lambda self: bool(self.lives) and len(self.lives) < 4)
    @rule(data=st.data(), key=KEYS)
    def a_session_is_forked(self, data: st.DataObject, key: str) -> None:
        if key in self.lives:
            return
        source = data.draw(st.sampled_from(list(self.lives.values())))
        number = data.draw(st.integers(0, source.book.session.steps))
        row = source.book.session
        self.do(self.journal.fork(row, row.head, number, key, "bob"))
        fork = self.do(self.life(key))
        fork.source = source

    @precondition(lambda self: any(life.told for life in self.lives.values()))
    @rule(data=st.data(), body=ANSWERS)
    def an_answer_is_edited(self, data: st.DataObject, body: bytes) -> None:
        """One of the session's own, or of those that it shares with the one it was forked from."""
        life = data.draw(st.sampled_from([life for life in self.lives.values() if life.told]))
        for by in [life, *(other for other in self.lives.values() if other.source is life)]:
            shown = self.journal.read.shown(by.book.session)
            numbers = [number for number in life.told if self.journal.read.step_on(shown, number) is not None]
            if not numbers:
                continue
            number = data.draw(st.sampled_from(numbers))
            step = self.journal.read.step_on(shown, number)
            edited = b'{"edited":' + body + b"}"
            call = RevisedCall(0, 0, "c", "t", body * 2, b"d")
            row = by.book.session
            new = NewRevision(step, number, row.head, row.steps, edited, "{}", "", (call,))
            by.edits.append((self.do(self.journal.edit(row, new, "bob")), step, edited))

    @precondition(lambda self: any(life.source for life in self.lives.values()))
    @rule(data=st.data())
    def a_fork_is_given_a_shared_step(self, data: st.DataObject) -> None:
        fork = data.draw(st.sampled_from([life for life in self.lives.values() if life.source]))
        assert fork.source is not None
        if fork.source.told:
            number = data.draw(st.sampled_from(sorted(fork.source.told)))
            step = self.journal.read.step_by_number(fork.source.id, number)
            self.runs += 1

            async def given() -> None:
                run = await fork.book.run(f"r{self.runs}")
                await self.journal.serve(fork.id, run.id, step, "replay")

            self.do(given())

    @precondition(lambda self: bool(self.lives))
    @rule(data=st.data())
    def a_session_is_pinned_or_not(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(list(self.lives.values())))
        if life.pinned:
            assert self.do(self.journal.unpin(life.id, life.book.key, "bob"))
        else:
            self.do(self.journal.pin(life.id, life.book.key, "bob", ""))
        life.pinned = not life.pinned

    # --- what is pruned ---

    def reading(self, work: Any) -> Any:
        reader = Reader(self.folder / "journal.db")
        try:
            return work(reader)
        finally:
            reader.close()

    def figures(self) -> list[Any]:
        return [self.reading(lambda reader, by=by: (reader.sent(by, Span()), reader.spared(by, Span())))
                for by in ("", "day", "model", "provider")]  # fmt: skip

    @rule(most=st.integers(0, 3), batch=st.integers(1, 9), unfinished=st.booleans())
    def sessions_are_pruned(self, most: int, batch: int, unfinished: bool) -> None:
        before = self.figures()
        stands, forks = self.reading(lambda reader: (reader.standing(), reader.forks()))
        for fate in retention.fates(Rules(most=most), stands, forks, clock.now()):
            life = self.lives[fate.session.key]
            needed = self.needed(life)
            if fate.goes:
                assert not needed
            assert needed or fate.goes or fate.why is Why.RECENT
            if fate.goes:
                self.drop(fate.session, batch, unfinished)
        assert self.figures() == before

    def needed(self, life: Life) -> bool:
        forks = [other for other in self.lives.values() if other.source is life]
        return life.pinned or bool(life.pending) or any(self.kept(fork) for fork in forks)

    def kept(self, life: Life) -> bool:
        return life.book.key in self.lives

    @precondition(lambda self: bool(self.lives))
    @rule(data=st.data())
    def one_is_deleted(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(list(self.lives.values())))
        row = life.book.session
        found = Stands(row.id, row.key, row.status, row.steps, row.created_at, row.updated_at)
        gone = self.drop(found, 5, False)
        assert gone or life.book.key in self.lives

    def drop(self, session: Stands, batch: int, unfinished: bool) -> bool:
        needed = self.needed(self.lives[session.key])
        found = self.do(self.journal.doom_session(session, "alice", Why.ASKED))
        assert isinstance(found, Doomed) != needed, found
        if isinstance(found, Doomed):
            del self.lives[session.key]
            if not unfinished:
                self.do(self.empty(session.id, batch))
        return isinstance(found, Doomed)

    async def empty(self, session: int, batch: int) -> None:
        while (await self.journal.drop_steps(session, batch)).done:
            pass
        while (await self.journal.drop_hand_outs(session, batch)).done:
            pass
        await self.journal.forget_session(session)

    @rule()
    def what_was_begun_is_finished_and_garbage_collected(self) -> None:
        for session, _ in self.reading(Reader.left).doomed:
            self.do(self.empty(session, 4))
        self.do(self.collect())
        path = self.folder / "journal.db"
        assert not len(garbage_nodes(path, 5.0)) and not len(garbage_blobs(path, 5.0))
        assert self.reading(Reader.left) == ((), False)
        steps = self.journal.read.raw("select count(*) from step").fetchone()[0]
        assert steps == sum(len(life.told) for life in self.lives.values())

    async def collect(self) -> None:
        await self.journal.watch_references()
        kept: set[int] = set()
        path = self.folder / "journal.db"
        nodes = list(garbage_nodes(path, 5.0))
        for at in range(0, len(nodes), 3):
            await self.journal.sweep_nodes(nodes[at : at + 3], kept)
        await self.journal.sweep_blobs(list(garbage_blobs(path, 5.0)))
        await self.journal.end_watch(True)
        await self.journal.give_back(50)
        await self.journal.fold_log()

    @rule()
    def the_proxy_is_started_anew(self) -> None:
        async def again() -> Any:
            self.journal.close()
            return opened(self.folder / "journal.db")

        self.journal = self.do(again())
        for life in self.lives.values():
            life.book.journal = self.journal

    @invariant()
    def what_stays_is_given_back_byte_for_byte(self) -> None:
        for life in self.lives.values():
            assert life.book.session.id == life.id
            for number, (request, answer) in life.told.items():
                step = self.journal.read.step_by_number(life.id, number)
                assert self.journal.read.request(step)[3] == request
                assert self.journal.read.received(step).body == answer
            for branch, step, edited in life.edits:
                [row] = [row for row in self.journal.read.revisions_of(step) if row.branch == branch]
                assert self.journal.read.blob(row.body) == edited

    @invariant()
    def the_journal_is_sound(self) -> None:
        assert self.reading(lambda reader: list(doctor.examine(reader, parse))) == []


Programs.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
TestPrograms = Programs.TestCase
