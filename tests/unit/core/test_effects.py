"""What a tool call may do to the world: classes, keys, and that no claim of a `once` tool is ever passed over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agentstate.core import effects
from agentstate.core.effects import (
    After,
    Found,
    Hints,
    Holder,
    Made,
    Patterns,
    Proposed,
    Settled,
    ToolClass,
    paired,
    spelled,
)
from agentstate.core.model import ApprovalState, Entry, ReplayMode, State
from agentstate.core.replay import Ask, Execute, Follow, Miss, Replay

READ, IDEMPOTENT, ONCE = ToolClass.READ, ToolClass.IDEMPOTENT, ToolClass.ONCE
PATTERNS = Patterns(("get_*",), ("put_*", "get_and_put"))


@pytest.mark.parametrize(
    ("tool", "hints", "kind"),
    [
        ("get_mail", None, READ),
        ("get_and_put", None, READ),  # the milder of two patterns is the operator's word too
        ("put_mail", None, IDEMPOTENT),
        ("send", None, ONCE),
        ("send", Hints(), ONCE),
        ("send", Hints(read_only=True), READ),
        ("send", Hints(read_only=True, destructive=True), ONCE),
        ("send", Hints(read_only=False, idempotent=True), IDEMPOTENT),
        ("send", Hints(idempotent=False, destructive=True), ONCE),
        ("get_mail", Hints(read_only=False, destructive=True), READ),
    ],
)
def test_a_tool_is_what_the_settings_say_then_its_hints_then_once(
    tool: str, hints: Hints | None, kind: ToolClass
) -> None:
    assert effects.class_of(tool, PATTERNS, hints) is kind


@pytest.mark.parametrize(
    ("claimed", "hints", "kind"),
    [
        (ONCE, Hints(read_only=True), ONCE),
        (ONCE, Hints(idempotent=True), ONCE),
        (ONCE, None, ONCE),
        (READ, None, READ),
        (READ, Hints(), ONCE),
        (IDEMPOTENT, Hints(read_only=True), READ),
    ],
)
def test_a_call_that_was_claimed_as_once_stays_so_when_its_server_says_milder_things(
    claimed: ToolClass, hints: Hints | None, kind: ToolClass
) -> None:
    assert effects.class_of("send", PATTERNS, hints, claimed) is kind
    assert effects.class_of("get_mail", PATTERNS, hints, claimed) is READ


@pytest.mark.parametrize(("status", "proves"), [(302, True), (303, False), (404, True), (409, False), (500, False)])
def test_a_status_proves_that_a_call_did_not_run_or_proves_nothing(status: int, proves: bool) -> None:
    assert effects.did_not_run(status) is proves


CALL = some.tuples(
    some.text(max_size=5), some.integers(1, 3), some.sampled_from(["", "a"]), some.text(max_size=5),
    some.dictionaries(some.text(max_size=3), some.integers() | some.text(max_size=3), max_size=3), some.integers(0, 2),
)  # fmt: skip


def key(call: tuple[str, int, str, str, dict[str, Any], int]) -> str:
    session, branch, server, tool, arguments, occurrence = call
    return effects.key_of(session, branch, server, tool, effects.spelled(arguments), occurrence)


@given(CALL, CALL)
def test_calls_have_one_key_exactly_if_nothing_of_them_differs(one: Any, other: Any) -> None:
    assert (key(one) == key(other)) == (one == other)


def test_the_order_of_arguments_is_not_part_of_the_key() -> None:
    assert effects.spelled({"a": 1, "b": 2}) == effects.spelled({"b": 2, "a": 1})


ENTRIES = some.lists(
    some.builds(
        Entry, some.integers(1, 50), some.integers(0, 50), some.integers(1, 3), some.sampled_from(State),
        mine=some.booleans(), cut=some.booleans(), excluded=some.booleans(), live=some.booleans(),
        watched=some.booleans(), lost=some.booleans(),
    ),
    max_size=5, unique_by=lambda entry: entry.step,
)  # fmt: skip


@given(ENTRIES, some.integers(1, 4))
def test_a_claim_of_an_earlier_run_without_a_result_is_never_passed_over(entries: list[Entry], run: int) -> None:
    """A new step is made only where each equal call of earlier runs is another run's, or was given to this one."""
    entries = [entry for entry in entries if not (entry.live and entry.state in (State.COMPLETED, State.FAILED))]
    decision = effects.decide(Ask(), run, entries)
    unread = [
        entry
        for entry in entries
        if not entry.mine and not entry.excluded and entry.run < run and entry.state is not State.FAILED
    ]
    if isinstance(decision, Miss) or (isinstance(decision, Execute) and decision.step is None):
        assert not unread
    if isinstance(decision, Follow):
        assert next(entry for entry in entries if entry.step == decision.step).live


def test_a_call_under_way_for_an_earlier_run_is_followed_though_somebody_still_reads_it() -> None:
    entry = Entry(1, 0, 1, State.IN_FLIGHT, live=True, watched=True)
    assert effects.decide(Ask(), 2, [entry]) == Follow(1)


@pytest.mark.parametrize("state", [State.HELD, State.INTERRUPTED])
def test_a_question_with_which_somebody_waits_is_waited_for_together(state: State) -> None:
    assert effects.decide(Ask(), 2, [Entry(1, 0, 1, state, live=True, watched=True)]) == Follow(1)


def test_a_result_that_perhaps_did_not_arrive_is_given_again() -> None:
    entry = Entry(1, 0, 1, State.COMPLETED, mine=True, lost=True)
    assert effects.decide(Ask(), 1, [entry]) == Replay(1, again=True)


def test_a_process_that_would_say_so_and_does_not_asks_for_another_call() -> None:
    entry = Entry(1, 0, 1, State.COMPLETED, mine=True, lost=True)
    asker = Holder("p", b"2", True)
    assert effects.decide(Ask(), 1, [entry], asker) == Miss()
    assert effects.decide(Ask(retry=1), 1, [entry], asker) == Replay(1, again=True)


@pytest.mark.parametrize(
    ("holder", "decision"),
    [
        (Holder("p", b"1"), Miss()),  # another call of the very process that asks
        (Holder("p", b"2"), Execute(1)),  # this call once more
        (Holder("q", b"1", True), Miss()),  # another process of the run, which lives
        (Holder("q", b"1", False), Execute(1)),
        (Holder("q", b"1", None), Execute(1)),
        (effects.THE_PROXY, Execute(1)),
    ],
)
@pytest.mark.parametrize("state", [State.HELD, State.IN_FLIGHT, State.INTERRUPTED])
def test_an_equal_call_of_the_same_run_is_another_one_only_while_its_process_lives(
    holder: Holder, decision: Any, state: State
) -> None:
    entry = Entry(1, 0, 1, state, mine=True)
    assert effects.decide(Ask(), 1, [entry], Holder("p", b"2", True), {1: holder}) == decision


def test_who_asks_for_no_replay_gets_none() -> None:
    entry = Entry(1, 0, 1, State.INTERRUPTED)
    assert effects.decide(Ask(ReplayMode.OFF), 2, [entry]) == Execute()


@pytest.mark.parametrize("kind", ToolClass)
@pytest.mark.parametrize("state", [State.IN_FLIGHT, State.INTERRUPTED])
def test_only_a_tool_that_acts_once_is_in_doubt_after_a_crash(kind: ToolClass, state: State) -> None:
    asker = Holder("p", b"2")
    assert effects.after(state, kind, asker, Holder("q", b"1")) is (After.DOUBT if kind is ONCE else After.SEND)
    assert effects.after(state, kind, asker, asker) is After.GRANT
    assert effects.after(state, kind, effects.THE_PROXY, effects.THE_PROXY) is not After.GRANT


def test_what_certainly_did_not_run_is_sent_and_what_is_held_waits() -> None:
    assert effects.after(State.FAILED, ONCE, effects.THE_PROXY, effects.THE_PROXY) is After.SEND
    assert effects.after(State.HELD, ONCE, effects.THE_PROXY, effects.THE_PROXY) is After.WAIT


def test_a_status_proves_that_nothing_ran_only_where_it_refuses() -> None:
    proof = {status for status in range(100, 600) if effects.did_not_run(status)}
    assert {301, 400, 401, 403, 404, 422, 429} <= proof
    assert not proof & {200, 202, 408, 409, 425, 500, 502, 503, 504}


def test_decisions_about_a_doubt_settle_it_and_what_is_not_understood_leaves_it() -> None:
    told = {state: effects.settled_by(state) for state in ApprovalState}
    assert told == {
        ApprovalState.PENDING: Settled.PENDING, ApprovalState.APPROVED: Settled.AGAIN,
        ApprovalState.REUSED: Settled.RAN, ApprovalState.REJECTED: Settled.ABORTED,
        ApprovalState.EXPIRED: Settled.ABORTED, ApprovalState.EDITED: Settled.PENDING,
    }  # fmt: skip


@pytest.mark.parametrize("answer", [None, 1, "yes", [], {}, {"ran": 1}, {"ran": "true"}, {"result": 3}])
def test_a_probe_that_does_not_say_whether_it_ran_finds_nothing_out(answer: Any) -> None:
    assert effects.found_by_tool(answer) == Found()
    assert effects.found_by_tool({"ran": True, "result": answer}) == Found(True, answer)


def test_an_address_that_is_probed_says_it_by_its_status() -> None:
    found = {status: effects.found_by_status(status, "x") for status in (200, 201, 404, 410, 403, 500)}
    assert [status for status, one in found.items() if one.ran] == [200]
    assert [status for status, one in found.items() if one.ran is False] == [404, 410]


def test_a_proposed_call_and_the_step_that_made_it_are_one() -> None:
    calls = [
        Proposed(0, "mcp__bank__charge", '{"b": 2, "a": 1}'),
        Proposed(0, "charge", '{"a": 1, "b": 2}'),
        Proposed(0, "charge", '{"a": 2}'),
        Proposed(3, "charge", '{"a": 1, "b": 2}'),
        Proposed(3, "mcp__shop__charge", '{"a": 1, "b": 2}'),
    ]
    equal = spelled({"a": 1, "b": 2})
    made = [Made(1, "bank", "charge", equal), Made(2, "bank", "charge", equal), Made(4, "", "charge", equal)]
    assert paired(calls, made) == {0: 1, 1: 2, 3: 4}
    assert paired(calls, [*made, Made(5, "bank", "charge", equal)]) == {0: 1, 1: 2, 3: 4}
    assert paired(calls, [Made(1, "", "refund", equal)]) == {}
