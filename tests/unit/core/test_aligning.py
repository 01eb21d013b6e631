"""Two lists are laid side by side: nothing is lost, nothing is twice there, and both ways round give the same."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import aligning
from agentstate.core.aligning import Beside, aligned, common

lists = st.lists(st.integers(0, 6), max_size=14)


def longest(left: list[int], right: list[int]) -> int:
    """The plain way, by a table."""
    row = [0] * (len(right) + 1)
    for mine in left:
        above = row[:]
        for place, theirs in enumerate(right):
            row[place + 1] = above[place] + 1 if mine == theirs else max(row[place], above[place + 1])
    return row[-1]


@given(lists, lists)
def test_as_many_equal_entries_are_laid_beside_each_other_as_can_be(left: list[int], right: list[int]) -> None:
    pairs = common(left, right)
    assert all(left[mine] == right[theirs] for mine, theirs in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == longest(left, right)


@given(lists, lists)
def test_every_entry_is_in_one_pair_in_its_order(left: list[int], right: list[int]) -> None:
    pairs = aligned(left, right, [entry % 2 for entry in left], [entry % 2 for entry in right])
    assert [pair.left for pair in pairs if pair.left is not None] == list(range(len(left)))
    assert [pair.right for pair in pairs if pair.right is not None] == list(range(len(right)))
    for pair in pairs:
        if pair.left is not None and pair.right is not None:
            assert left[pair.left] % 2 == right[pair.right] % 2
            assert pair.equal is (left[pair.left] == right[pair.right]) or not pair.equal


@given(lists, lists)
def test_turned_round_the_sides_change_places(left: list[int], right: list[int]) -> None:
    def pairs(one: list[int], other: list[int]) -> set[Beside]:
        return set(aligned(one, other, [entry % 2 for entry in one], [entry % 2 for entry in other]))

    assert pairs(left, right) == {Beside(pair.right, pair.left, pair.equal) for pair in pairs(right, left)}


@given(lists)
def test_a_list_beside_itself_is_equal_throughout(entries: list[int]) -> None:
    assert aligned(entries, entries) == [Beside(place, place, True) for place in range(len(entries))]


def test_entries_of_one_shape_between_equal_ones_are_laid_beside_each_other() -> None:
    found = aligned("aXYb", "aZb", "mmtm", "mtm")
    assert found == [Beside(0, 0, True), Beside(1, None), Beside(2, 1), Beside(3, 2, True)]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([0] * 10_000, [1] * 10_000),
        (list(range(10_000)), list(range(10_000, 20_000))),
        ([place % 3 for place in range(10_000)], [place % 5 for place in range(10_000)]),
        (list(range(10_000)), list(reversed(range(10_000)))),
    ],
)
def test_ten_thousand_entries_take_a_bounded_time(left: list[int], right: list[int]) -> None:
    began = time.process_time()
    pairs = aligned(left, right, ["x"] * len(left), ["x"] * len(right))
    assert time.process_time() - began < 2
    assert [pair.left for pair in pairs if pair.left is not None] == list(range(10_000))


def test_lists_that_repeat_a_few_entries_are_laid_side_by_side_by_how_often_each_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aligning, "MOST_MATCHES", 3)
    assert common("xababy", "zababw") == [(1, 1), (2, 2), (3, 3), (4, 4)]
