"""What pruning writes: a session goes with all that is its own, and with nothing else; no id is given twice."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from agentstate.core.model import ApprovalKind, OnReject, State, ToolCall, Verdict
from agentstate.core.retention import Stands, Why
from agentstate.errors import SessionGone
from agentstate.store import doctor, references, sqlite
from agentstate.store.journal import Journal
from agentstate.store.pruning import Doomed
from agentstate.store.pruning_reader import garbage_blobs, garbage_nodes
from agentstate.store.reader import Reader
from agentstate.store.rows import NewApproval
from agentstate.store.stats_reader import Span
from tests.store.kit import Book, call, opened, parse

COLUMN = re.compile(r"^    (\w+) +(integer|text|real|blob)\b", re.MULTILINE)
# Columns of whole numbers that are no ids of contents or transcripts.
PLAIN = {
    "session": {"id", "head", "clock", "steps"},
    "branch": {"id", "session", "parent", "upto"},
    "run": {"id", "session", "named", "supervisor", "base", "hint_min", "hint_max", "exit_code"},
    "blob": {"id", "codec", "size"},
    "node": {"id"},
    "step": {"id", "session", "number", "branch", "run", "stream", "attempts", "started", "finished", "hint"},
    "attempt": {"step", "n", "run", "status", "released", "broken"},
    "served": {"run", "step", "hint", "delivered", "joins"},
    "call": {"step", "choice", "place"},
    "held": {"session", "step", "job", "status"},
    "deleted": {"session", "upto", "status"},
    "label": {"session"},
    "approval": {"session", "step", "choice", "place", "quorum"},
    "vote": set(),
    "release": {"step"},
    "job_release": {"step"},
    "withheld": {"step"},
    "approver": {"id"},
    "audit": {"id"},
    "outbox": {"id", "attempts"},
    "invocation": {"step", "choice", "place", "failed"},
    "detour": {"step", "n"},
    "breaker": {"opened"},
    "reservation": {"step", "n", "session", "day", "tokens"},
    "reached": {"which"},
    "effect": {"step", "occurrence", "failed"},
    "pin": {"session"},
    "rating": {"session", "step"},
    "step_label": {"step"},
    "revision": {"branch", "step"},
    "left_behind": {"branch", "revised", "step", "held"},
    "revised_call": {"branch", "step", "choice", "place", "failed"},
    "doomed": {"session"},
    "pruned": {"session", "times", "failed", "uncounted", "unpriced"},
}


def fresh() -> sqlite3.Connection:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    sqlite.fresh(conn)
    return conn


def tables() -> dict[str, set[str]]:
    """Each table of the schema, and its columns of whole numbers."""
    conn = fresh()
    names = [row[0] for row in conn.execute("select name from sqlite_master where type = 'table'")]
    return {
        name: {row[1] for row in conn.execute(f"pragma table_info({name})") if row[2].lower() == "integer"}
        for name in names
    }


def test_every_column_that_refers_to_a_content_or_a_transcript_is_known_to_the_sweep() -> None:
    known: dict[str, set[str]] = {}
    for table, column in (*references.BLOBS, *references.NODES):
        known.setdefault(table, set()).add(column)
    for table, columns in tables().items():
        assert columns == known.get(table, set()) | PLAIN.get(table, set()), table


def test_every_table_is_in_exactly_one_group_of_what_goes_with_what() -> None:
    by_session = {table for table, _ in references.OF_SESSIONS}
    by_branch = {table for table, _ in references.OF_BRANCHES}
    by_step = {table for table, _ in references.OF_STEPS} - by_session - by_branch
    groups = [by_session, by_branch, by_step, references.APART, references.STAYING, references.SHARED]
    assert sorted(name for group in groups for name in group) == sorted(tables())


def test_no_statement_lets_the_database_choose_an_id_that_was_given_before() -> None:
    for file in (sqlite.HERE / "sql").glob("*.sql"):
        for table, columns in re.findall(r"insert into (session|branch|run) \(([^)]*)\)", file.read_text()):
            assert columns.startswith("id,"), f"{file.name}: an insert into {table} that names no id"


def test_the_sql_of_the_map_runs() -> None:
    conn = fresh()
    for statement in (*references.unwatching(), *references.watching(), *references.unwatching()):
        conn.execute(statement)
    for _, _, statement in references.dangling():
        assert conn.execute(statement).fetchone() == (0,)


def stands(book: Book) -> Stands:
    row = book.session
    return Stands(row.id, row.key, row.status, row.steps, row.created_at, row.updated_at)


async def doom(book: Book, why: Why = Why.OLD) -> Doomed | Why:
    return await book.journal.doom_session(stands(book), "alice", why)


async def empty(journal: Journal, session: int) -> None:
    while (await journal.drop_steps(session, 3)).done:
        pass
    while (await journal.drop_hand_outs(session, 3)).done:
        pass
    await journal.forget_session(session)


async def collect(journal: Journal) -> None:
    await journal.watch_references()
    kept: set[int] = set()
    for node in garbage_nodes(journal.path, 5.0):
        await journal.sweep_nodes([node], kept)
    await journal.sweep_blobs(list(garbage_blobs(journal.path, 5.0)))
    await journal.end_watch(True)


def rows(journal: Journal) -> dict[str, int]:
    return {
        table: journal.read.raw(f"select count(*) from {table}").fetchone()[0]
        for table in tables()
    }  # fmt: skip


def assert_sound(journal: Journal) -> None:
    reader = Reader(journal.path)
    try:
        assert list(doctor.examine(reader, parse)) == []
    finally:
        reader.close()


async def fill(book: Book, turns: int = 4, name: str = "r") -> list[bytes]:
    run = await book.run(name)
    prompts: list[str] = []
    for turn in range(turns):
        prompts.append(f"{book.key} question {turn} " * 10)
        await book.say(run, *prompts, body=f'{{"answer":"{book.key} {turn}"}}'.encode() * 5)
    return [book.read.answer(book.read.step_by_number(book.session.id, n)).body for n in range(turns)]


async def test_a_pruned_session_leaves_nothing_but_its_sums_and_its_entry_in_the_audit_log(journal: Journal) -> None:
    before = rows(journal)
    book = await Book.open(journal, "gone")
    await fill(book)
    session = book.session.id
    await journal.set_labels(book.session, ["a"], [], "bob")
    assert isinstance(await doom(book), Doomed)
    await empty(journal, session)
    await collect(journal)
    after = rows(journal)
    left = {table for table in after if after[table] != before[table]}
    assert left == {"audit", "pruned", "meta"}
    assert journal.read.audit(0, 10)[-1].action == "session.pruned"
    assert_sound(journal)


async def test_other_sessions_keep_every_byte_that_they_shared_with_a_pruned_one(journal: Journal) -> None:
    kept, gone = await Book.open(journal, "kept"), await Book.open(journal, "gone")
    shared = ["the same opening " * 20, "and the same second " * 20]
    for book in (kept, gone):
        run = await book.run("r")
        await book.say(run, *shared, body=b'{"same":"answer"}')
    await fill(gone, name="r2")
    request = journal.read.request(journal.read.step_by_number(kept.session.id, 0))
    session = gone.session.id
    await doom(gone)
    await empty(journal, session)
    await collect(journal)
    step = journal.read.step_by_number(kept.session.id, 0)
    assert (journal.read.request(step), journal.read.answer(step).body) == (request, b'{"same":"answer"}')
    assert len(garbage_blobs(journal.path, 5.0)) == len(garbage_nodes(journal.path, 5.0)) == 0
    assert_sound(journal)


async def test_a_journal_is_sound_between_any_two_writes_of_pruning(journal: Journal) -> None:
    book = await Book.open(journal, "gone")
    other = await Book.open(journal, "other")
    await fill(other)
    await fill(book, 6)
    session = book.session.id
    await doom(book)
    assert_sound(journal)
    while (await journal.drop_steps(session, 2)).done:
        assert_sound(journal)
    await journal.forget_session(session)
    assert_sound(journal)
    await journal.watch_references()
    kept: set[int] = set()
    for node in garbage_nodes(journal.path, 5.0):
        await journal.sweep_nodes([node], kept)
        assert_sound(journal)
    for blob in garbage_blobs(journal.path, 5.0):
        await journal.sweep_blobs([blob])
        assert_sound(journal)


async def test_what_is_referred_to_again_while_garbage_is_swept_stays(journal: Journal) -> None:
    gone, living = await Book.open(journal, "gone"), await Book.open(journal, "living")
    prompts = ["one " * 30, "two " * 30, "three " * 30, "four " * 30]
    run = await gone.run("r")
    await gone.say(run, *prompts, body=b'{"a":"body that comes back"}')
    session = gone.session.id
    await doom(gone)
    await empty(journal, session)
    await journal.watch_references()
    nodes = garbage_nodes(journal.path, 5.0)
    assert len(nodes) == 4
    # The newest is swept; then a living session says the first three again, and one more.
    kept: set[int] = set()
    await journal.sweep_nodes(list(nodes[:1]), kept)
    other = await living.run("r")
    begun = await living.say(other, *prompts[:3], "another", body=b'{"a":"body that comes back"}')
    request = journal.read.request(begun.step)
    for node in nodes[1:]:
        await journal.sweep_nodes([node], kept)
    await journal.sweep_blobs(list(garbage_blobs(journal.path, 5.0)))
    await journal.end_watch(True)
    assert journal.read.request(begun.step) == request
    assert_sound(journal)


async def test_a_content_that_is_stored_again_between_the_look_and_the_sweep_stays(journal: Journal) -> None:
    gone, living = await Book.open(journal, "gone"), await Book.open(journal, "living")
    body = b'{"a":"body that comes back"}' * 4
    await gone.say(await gone.run("r"), "q", body=body)
    session = gone.session.id
    await doom(gone)
    await empty(journal, session)
    await journal.watch_references()
    for node in garbage_nodes(journal.path, 5.0):
        await journal.sweep_nodes([node], set())
    blobs = list(garbage_blobs(journal.path, 5.0))
    begun = await living.say(await living.run("r"), "other", body=body)
    swept = await journal.sweep_blobs(blobs)
    await journal.end_watch(True)
    assert 0 < swept.done < len(blobs)
    assert journal.read.answer(begun.step).body == body
    assert_sound(journal)


async def test_what_was_swept_is_stored_anew_when_it_comes_again(journal: Journal) -> None:
    """The writer remembers contents and transcripts by hash; of what was swept it must not."""
    book = await Book.open(journal, "gone")
    await fill(book)
    session = book.session.id
    await doom(book)
    await empty(journal, session)
    await collect(journal)
    again = await Book.open(journal, "gone")
    assert len(await fill(again)) == 4
    assert again.session.id > session
    assert_sound(journal)


@pytest.mark.parametrize("restart", [False, True])
async def test_no_id_is_given_twice(path: Path, restart: bool) -> None:
    journal = opened(path)
    book = await Book.open(journal, "s")
    await fill(book)
    counted = ("session", "branch", "run", "step", "node")
    most = {table: journal.read.raw(f"select max(id) from {table}").fetchone()[0] for table in counted}
    session = book.session.id
    await doom(book)
    await empty(journal, session)
    await collect(journal)
    if restart:
        journal.close()
        journal = opened(path)
    again = await Book.open(journal, "s")
    await fill(again)
    for table, before in most.items():
        assert journal.read.raw(f"select min(id) from {table}").fetchone()[0] > before, table
    journal.close()


async def test_figures_stay_the_same_when_sessions_go(journal: Journal) -> None:
    for key in ("a", "b"):
        book = await Book.open(journal, key)
        run = await book.run("r")
        verdict = Verdict(model="gpt-x", usage='{"prompt_tokens": 7, "completion_tokens": 5}')
        begun = await book.say(run, "q", verdict=verdict, cost=0.25)
        await book.say(run, "unpriced", verdict=Verdict(model="gpt-x"))
        await book.fail(await book.ask(run, "fails"))
        await book.serve(await book.run("r2"), begun)
    book = await Book.open(journal, "a")

    def figures() -> list[object]:
        reader = Reader(journal.path)
        try:
            return [(reader.sent(by, Span()), reader.spared(by, Span())) for by in ("", "day", "model", "provider")] + [
                reader.sent("", Span(until=1.0)),
                reader.sent("", Span(session="b")),
            ]
        finally:
            reader.close()

    before = figures()
    session = book.session.id
    await doom(book)
    assert figures() == before
    await journal.drop_steps(session, 1)
    assert figures() == before
    await empty(journal, session)
    assert figures() == before


@pytest.mark.parametrize(
    ("what", "why"),
    [("pin", Why.PINNED), ("pending", Why.PENDING), ("recent", Why.USED_SINCE), ("twice", Why.GONE)],
)
async def test_what_keeps_a_session_is_looked_at_in_the_transaction_that_would_delete_it(
    journal: Journal, what: str, why: Why
) -> None:
    book = await Book.open(journal, "s")
    run = await book.run("r")
    begun = await book.say(run, "q")
    found, at_most = stands(book), book.session.updated_at
    if what == "pin":
        await journal.pin(book.session.id, "s", "bob", "evidence")
    elif what == "pending":
        asked = NewApproval("apr_1", ApprovalKind.CALL, b"d", b"{}", OnReject.MESSAGE, tool="t")
        ending = book.ending(
            await book.ask(run, "two"), verdict=Verdict(calls=(ToolCall(0, 0, "c", "t", "{}"),)), asked=(asked,)
        )
        await journal.end_step(ending)
    elif what == "recent":
        await book.serve(await book.run("r2"), begun)
        found = stands(book)
    else:
        await doom(book)
    assert await journal.doom_session(found, "alice", Why.OLD, at_most if what == "recent" else None) is why
    assert journal.read.raw("select count(*) from step").fetchone()[0] >= 1


async def test_a_late_question_of_a_deleted_session_says_that_it_is_gone(journal: Journal) -> None:
    book = await Book.open(journal, "s")
    run = await book.run("r")
    await book.say(run, "q")
    new = book.new(run, call("late"))
    session = book.session.id
    await doom(book)
    with pytest.raises(SessionGone):
        await journal.begin_step(new)
    await empty(journal, session)
    with pytest.raises(SessionGone):
        await journal.begin_step(new)
    assert_sound(journal)


async def test_steps_that_a_rollback_left_behind_go_only_when_asked_for_and_where_they_did_nothing(
    journal: Journal,
) -> None:
    book = await Book.open(journal, "s")
    run = await book.run("r")
    for turn in range(5):
        await book.say(run, f"q{turn}")
    calls = Verdict(calls=(ToolCall(0, 0, "c", "t", "{}"),))
    acted = await book.say(run, "q5", verdict=calls)
    conn = journal.read
    invoked = book.session.id
    call_of_it = "insert into invocation (step, choice, place, arguments, digest) values (?, 0, 0, 1, x'01')"
    await journal._write("note_results", lambda c: c.execute(call_of_it, (acted.step,)) and None)
    await journal.roll_back(book.session, 2)
    later = (await book.say(await book.run("r2"), "new")).number
    sums = (await figures_of(journal), journal.read.raw("select count(*) from step").fetchone()[0])
    assert (await journal.drop_superseded(invoked, 0.0, 100)).done == 0
    assert len(superseded_of(journal, invoked)) == 3
    await journal.pin(invoked, "s", "bob", "")
    assert (await journal.drop_superseded(invoked, 1e12, 100)).done == len(superseded_of(journal, invoked)) == 0
    await journal.unpin(invoked, "s", "bob")
    batch = await journal.drop_superseded(invoked, 1e12, 100)
    assert batch.done == 3  # 2, 3 and 4; 5 acted
    numbers = [row.number for row in conn.steps(invoked)]
    assert numbers == [0, 1, 5, later]
    assert await figures_of(journal) == sums[0]
    await collect(journal)
    assert_sound(journal)


def superseded_of(journal: Journal, session: int) -> list[int]:
    """As who only looks sees it."""
    reader = Reader(journal.path)
    try:
        assert reader.old_rollbacks(1e12) == [session] and reader.old_rollbacks(0.0) == []
        return reader.superseded_of(session, 1e12)
    finally:
        reader.close()


async def figures_of(journal: Journal) -> object:
    reader = Reader(journal.path)
    try:
        return reader.sent("session", Span()), reader.sent("", Span(session="s"))
    finally:
        reader.close()


async def test_a_source_is_kept_while_a_fork_shows_its_steps(journal: Journal) -> None:
    source, fork = await Book.open(journal, "source"), await Book.open(journal, "fork")
    await fill(source)
    head, own = source.session.head, fork.session.head
    shares = "update branch set parent = ?, upto = 3 where id = ?"
    await journal._write("open_session", lambda c: c.execute(shares, (head, own)) and None, durable=False)
    assert await doom(source) is Why.FORKED
    session = fork.session.id
    assert isinstance(await doom(fork), Doomed)
    await empty(journal, session)
    assert isinstance(await doom(source), Doomed)


def test_states_of_calls_under_way_keep_their_session() -> None:
    assert State.IN_FLIGHT.value == "in_flight"  # as the statements of retention spell it
    assert State.INTERRUPTED.value == "interrupted"


async def test_who_looks_at_a_session_sees_all_of_it_though_it_is_deleted_meanwhile(journal: Journal) -> None:
    book = await Book.open(journal, "s")
    answers = await fill(book)
    reader = Reader(journal.path)
    session = book.session.id
    try:
        with reader.snapshot():
            steps = [row.id for row in reader.steps(session)]
            await doom(book)
            await empty(journal, session)
            await collect(journal)
            assert [reader.answer(step).body for step in steps] == answers
            assert all(reader.request(step)[3] for step in steps)
        assert reader.steps(session) == []
    finally:
        reader.close()
