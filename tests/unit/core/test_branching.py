"""Which steps a branch shows after rollbacks and new generations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.branching import NO_LIMIT, Branch, lineage
from tests.unit.core.profile import examples


def tree(*branches: Branch) -> dict[int, Branch]:
    return {branch.id: branch for branch in branches}


ROOT = Branch(1, None, 0)


def test_root_shows_itself() -> None:
    assert lineage(tree(ROOT), 1) == ((1, NO_LIMIT),)


def test_branch_shows_its_parent_below_the_point_where_it_left() -> None:
    assert lineage(tree(ROOT, Branch(2, 1, 5)), 2) == ((2, NO_LIMIT), (1, 5))


def test_nearer_limit_holds_for_all_that_lies_behind_it() -> None:
    branches = tree(ROOT, Branch(2, 1, 5), Branch(3, 2, 3), Branch(4, 3, 9))
    assert lineage(branches, 4) == ((4, NO_LIMIT), (3, 9), (2, 3), (1, 3))


def test_new_generation_shows_nothing_of_the_old_one() -> None:
    assert lineage(tree(ROOT, Branch(2, None, 0)), 2) == ((2, NO_LIMIT),)


def test_unknown_branch_shows_nothing() -> None:
    assert lineage({}, 7) == ()
    assert lineage(tree(Branch(2, 1, 5)), 2) == ((2, NO_LIMIT),)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=10), st.integers(0, 30))
@examples(300)
def test_step_is_shown_exactly_when_every_rollback_after_it_left_it_in_place(
    made: list[tuple[int, int]], number: int
) -> None:
    """``made``: each branch leaves one of those before it. A step of branch b is shown if no turn cut it off."""
    branches = tree(ROOT, *(Branch(at + 2, parent % (at + 1) + 1, upto) for at, (parent, upto) in enumerate(made)))
    head = len(made) + 1
    limits = dict(lineage(branches, head))
    at, limit = branches[head], NO_LIMIT
    expected = {head: limit}
    while at.parent is not None:
        limit = min(limit, at.upto)
        expected[at.parent] = limit
        at = branches[at.parent]
    assert limits == expected
    assert all((number < limits[branch]) == (number < expected[branch]) for branch in expected)
