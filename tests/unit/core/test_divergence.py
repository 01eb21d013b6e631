"""When a run diverges, what happens then, and how it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.divergence import Policy, Unread, carried, diff, judge, nearest, only, window
from agentstate.core.model import Match, ReplayMode
from tests.unit.core.profile import examples

A, B, C = b"a" * 32, b"b" * 32, b"c" * 32
FIRST = Unread(1, 0, 1, 2, A)
SECOND = Unread(2, 1, 3, 4, B, ("send_email",))


def test_run_that_has_read_everything_only_goes_on() -> None:
    assert judge([A, C], [], Policy.AUTO, ReplayMode.AUTO) is None


def test_steps_whose_transcript_the_request_begins_with_were_kept_by_the_agent_itself() -> None:
    assert carried([A, B, C], [FIRST, SECOND]) == (FIRST, SECOND)
    assert carried([A], [FIRST]) == ()  # asked again, not gone on from
    assert carried([A, C], [FIRST, SECOND]) == (FIRST,)
    assert carried([A, C], [replace(FIRST, tip=b"")]) == ()
    assert judge([A, B, C], [FIRST, SECOND], Policy.STRICT, ReplayMode.STRICT) is None


def test_run_forks_where_nothing_acted_and_pauses_where_something_may_have() -> None:
    found = judge([C], [FIRST], Policy.AUTO, ReplayMode.AUTO)
    assert found is not None and (found.policy, found.unread, found.effects) == (Policy.FORK, (FIRST,), ())
    found = judge([C], [FIRST, SECOND], Policy.AUTO, ReplayMode.AUTO)
    assert found is not None and (found.policy, found.effects) == (Policy.PAUSE, ("send_email",))


def test_effect_that_the_agent_kept_itself_does_not_pause_it() -> None:
    found = judge([B, C], [FIRST, SECOND], Policy.AUTO, ReplayMode.AUTO)
    assert found is not None and (found.policy, found.unread) == (Policy.FORK, (FIRST,))


@pytest.mark.parametrize("policy", [Policy.FORK, Policy.PAUSE, Policy.STRICT])
def test_policy_of_the_operator_holds_whatever_acted(policy: Policy) -> None:
    for unread in ([FIRST], [SECOND]):
        found = judge([C], unread, policy, ReplayMode.AUTO)
        assert found is not None and found.policy is policy


def test_strict_request_outweighs_the_policy() -> None:
    found = judge([C], [FIRST], Policy.FORK, ReplayMode.STRICT)
    assert found is not None and found.policy is Policy.STRICT


def test_tools_that_may_have_acted_are_named_once_each() -> None:
    steps = [replace(SECOND, effects=("pay", "mail")), replace(SECOND, step=3, effects=("mail", "call"))]
    found = judge([C], steps, Policy.AUTO, ReplayMode.AUTO)
    assert found is not None and found.effects == ("pay", "mail", "call")


# --- where a loose match may be looked for ----------------------------------------------------------------------------


def test_window_is_the_first_unread_step_and_what_overlapped_it() -> None:
    first, beside, later = Unread(1, 0, 1, 6, A), Unread(2, 1, 3, 4, B), Unread(3, 2, 7, 8, C)
    assert window([later, beside, first]) == (first, beside)
    assert window([later]) == (later,)
    assert window([]) == ()
    assert window([replace(first, completed=False), later]) == (later,)


def test_window_is_bounded() -> None:
    steps = [Unread(step, step, step, 1000, A) for step in range(1, 100)]
    assert len(window(steps)) == 16


def test_only_match_is_used_and_a_choice_is_none() -> None:
    assert only([]) is None
    assert only([(7, Match.MASKED)]) == (7, Match.MASKED)
    assert only([(7, Match.MASKED), (8, Match.MASKED)]) is None


# --- how it is told ---------------------------------------------------------------------------------------------------


def test_nearest_step_shares_the_most_leading_messages() -> None:
    assert nearest([A, B, C], [(1, [A]), (2, [A, B]), (3, [C, B, A])]) == 2
    assert nearest([A], [(1, [B]), (2, [C])]) == 1, "the earliest of equals"
    assert nearest([A, B], [(1, [A, C]), (2, [A, C, B])]) == 1
    assert nearest([], [(1, [])]) == 1
    assert nearest([A], []) is None


def test_diff_names_each_leaf_that_differs() -> None:
    old = {"model": "a", "messages": [{"content": "x"}, {"content": "y"}], "gone": 1}
    new = {"model": "b", "messages": [{"content": "x"}, {"content": "z"}, {"content": "more"}], "seed": 2}
    assert [(row["path"], row["recorded"], row["asked"]) for row in diff(old, new)] == [
        ("model", "a", "b"), ("messages[1].content", "y", "z"), ("messages[2]", "(absent)", "(dict of 1)"),
        ("gone", 1, "(absent)"), ("seed", "(absent)", 2),
    ]  # fmt: skip


def test_diff_shows_long_texts_where_they_begin_to_differ() -> None:
    old, new = "x" * 500 + "old" + "y" * 500, "x" * 500 + "new" + "y" * 500
    (row,) = diff({"text": old}, {"text": new})
    assert "old" in row["recorded"] and "new" in row["asked"]
    assert len(row["recorded"]) < 200


def test_diff_is_bounded() -> None:
    assert len(diff(list(range(100)), list(range(1, 101)))) == 20
    assert len(diff(list(range(100)), list(range(1, 101)), most=3)) == 3


_JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


@given(_JSON, _JSON)
@examples(300)
def test_diff_is_empty_exactly_for_equal_values_and_can_be_written_down(old: Any, new: Any) -> None:
    found = diff(old, new)
    assert (found == []) == (old == new)
    json.dumps(found)
    assert all(row["recorded"] != row["asked"] or isinstance(row["recorded"], str) for row in found)
