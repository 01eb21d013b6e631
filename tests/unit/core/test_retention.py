"""What goes and what stays, and why: the rules alone, without a journal."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.branching import Branch
from agentstate.core.model import SessionStatus
from agentstate.core.retention import DAY_S, WORDS, Rules, Stands, Why, fates, kept_by, shown_by, superseded

NOW = 1_000 * DAY_S


def session(key: int, days: float = 0.0, **more: Any) -> Stands:
    """One that was last used so many days ago."""
    at = NOW - days * DAY_S
    fields: dict[str, Any] = {"status": "RUNNING", "steps": 1, "created_at": at, "used_at": at, **more}
    return Stands(id=key, key=f"s{key}", **fields)


Forks = dict[int, list[int]]


def verdicts(rules: Rules, *sessions: Stands, forks: Forks | None = None, used: int = 0) -> dict[int, Why]:
    return {fate.session.id: fate.why for fate in fates(rules, sessions, forks or {}, NOW, used)}


def gone(rules: Rules, *sessions: Stands, forks: Forks | None = None, used: int = 0) -> set[int]:
    return {fate.session.id for fate in fates(rules, sessions, forks or {}, NOW, used) if fate.goes}


OLD = Rules(older_s=30 * DAY_S)


def test_no_rule_lets_anything_go() -> None:
    assert not Rules().any and not gone(Rules(), session(1, 999))


def test_a_session_goes_that_was_not_used_for_longer_than_the_rule_says() -> None:
    assert verdicts(OLD, session(1, 31), session(2, 29)) == {1: Why.OLD, 2: Why.RECENT}


@pytest.mark.parametrize(
    ("fact", "why"),
    [
        ({"pinned": True}, Why.PINNED),
        ({"pending": 1}, Why.PENDING),
        ({"doubts": 1}, Why.IN_DOUBT),
        ({"in_use": True}, Why.IN_USE),
        ({"messages": 1}, Why.UNDELIVERED),
        ({"raised": True}, Why.RAISED),
        ({"status": "PAUSED"}, Why.PAUSED),
    ],
)
def test_what_somebody_may_still_need_stays_whatever_the_rules_say(fact: dict[str, Any], why: Why) -> None:
    for rules in (OLD, Rules(most=0), Rules(most_bytes=1)):
        found = fates(rules, [session(1, 99, **fact)], {}, NOW, 10**9)
        assert not found[0].goes and found[0].why in (why, Why.RECENT)
    assert verdicts(OLD, session(1, 99, **fact)) == {1: why}


def test_a_paused_session_goes_where_paused_ones_are_asked_for() -> None:
    assert gone(Rules(older_s=0, status=SessionStatus.PAUSED), session(1, 9, status="PAUSED"), session(2, 9)) == {1}


def test_the_newest_are_kept_by_count_and_what_stays_anyway_counts_among_them() -> None:
    assert gone(Rules(most=2), *(session(key, days=key) for key in range(1, 5))) == {3, 4}
    assert gone(Rules(most=1), session(1, 1, pinned=True), session(2, 2)) == {2}


def test_labels_keep_sessions_for_good_or_for_times_of_their_own_of_which_the_longest_counts() -> None:
    rules = Rules(30 * DAY_S, keep_labels=("law-*",), by_label=(("test", DAY_S), ("ci", 5 * DAY_S), ("audit", None)))
    found = verdicts(
        rules,
        session(1, 99, labels=("law-7",)),
        session(2, 2, labels=("test",)),
        session(3, 2, labels=("test", "ci")),
        session(4, 99, labels=("audit", "test")),
        session(5, 6, labels=("ci",)),
    )
    assert found == {1: Why.LABEL, 2: Why.OLD, 3: Why.RECENT, 4: Why.LABEL, 5: Why.OLD}


def test_only_those_of_a_label_and_status_go_that_are_asked_for() -> None:
    rules = Rules(older_s=0, label="a", status="FAILED")
    found = verdicts(rules, session(1, 1, labels=("a",), status="FAILED"), session(2, 1, labels=("a",)), session(3, 1))
    assert found == {1: Why.OLD, 2: Why.OTHER, 3: Why.OTHER}


def test_the_oldest_go_until_the_journal_is_small_enough() -> None:
    sessions = [session(key, days=key, steps=10) for key in range(1, 11)]
    assert gone(Rules(most_bytes=500), *sessions, used=1000) == {6, 7, 8, 9, 10}
    assert gone(Rules(most_bytes=500), *sessions, used=500) == set()
    pinned = [one._replace(pinned=one.id == 10) for one in sessions]
    assert gone(Rules(most_bytes=900), *pinned, used=1000) == {9}


def test_what_a_session_that_stays_was_forked_from_stays_and_so_on() -> None:
    chain = {1: [2], 2: [3]}
    everything = [session(key, 99) for key in (1, 2, 3)]
    assert gone(OLD, *everything, forks=chain) == {1, 2, 3}
    recent = [*everything[:2], session(3, 1)]
    assert verdicts(OLD, *recent, forks=chain) == {1: Why.FORKED, 2: Why.FORKED, 3: Why.RECENT}


def test_a_fork_goes_before_what_it_was_forked_from() -> None:
    assert [fate.session.id for fate in fates(OLD, [session(1, 99), session(2, 99)], {1: [2]}, NOW)] == [2, 1]


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(Why)


_STANDS = st.builds(
    Stands,
    id=st.integers(1, 30),
    key=st.just("s"),
    status=st.sampled_from(list(SessionStatus)),
    steps=st.integers(0, 9),
    created_at=st.just(0.0),
    used_at=st.floats(0, NOW),
    labels=st.sampled_from([(), ("a",), ("b",), ("a", "b")]),
    pinned=st.booleans(),
    pending=st.integers(0, 1),
    doubts=st.integers(0, 1),
    messages=st.integers(0, 1),
    raised=st.booleans(),
    in_use=st.booleans(),
)
_RULES = st.builds(
    Rules,
    older_s=st.none() | st.floats(0, NOW),
    most=st.none() | st.integers(0, 5),
    most_bytes=st.none() | st.integers(0, 1000),
    label=st.sampled_from(["", "a"]),
    status=st.sampled_from(["", "PAUSED"]),
    keep_labels=st.sampled_from([(), ("b",)]),
    by_label=st.sampled_from([(), (("a", 5.0),), (("a", None),)]),
)


@given(
    rules=_RULES,
    sessions=st.lists(_STANDS, max_size=12, unique_by=lambda one: one.id),
    pairs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30))),
)
def test_whatever_the_rules_are_nothing_goes_that_is_needed_or_that_something_shows_which_stays(
    rules: Rules, sessions: list[Stands], pairs: list[tuple[int, int]]
) -> None:
    forks: dict[int, list[int]] = {}
    for source, fork in pairs:
        if source < fork:
            forks.setdefault(source, []).append(fork)
    found = {fate.session.id: fate for fate in fates(rules, sessions, forks, NOW, 1000)}
    assert set(found) == {one.id for one in sessions}
    for fate in found.values():
        if fate.goes:
            assert kept_by(fate.session) is None
            assert all(found[fork].goes for fork in forks.get(fate.session.id, ()) if fork in found)
        elif not rules.any:
            assert fate.why in (Why.RECENT, Why.OTHER, Why.LABEL)


def test_steps_are_superseded_that_neither_the_head_nor_a_fork_shows() -> None:
    branches = {1: Branch(1, None, 0), 2: Branch(2, 1, 3), 3: Branch(3, 2, 5)}
    steps = [(number, 1, number) for number in range(6)] + [(10 + number, 2, number) for number in range(6, 9)]
    assert superseded(steps, shown_by(branches, 3)) == [3, 4, 5, 16, 17, 18]
    assert superseded(steps, shown_by(branches, 3, [Branch(9, 1, 5)])) == [5, 16, 17, 18]
    assert superseded(steps, shown_by(branches, 3, [Branch(9, 2, 8)])) == [3, 4, 5, 18]
