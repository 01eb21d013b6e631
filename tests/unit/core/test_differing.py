"""The difference of two texts tells all of both, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.differing import Mark, differing

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "  a"]), max_size=30).map("\n".join)


def test_equal_texts_have_no_difference() -> None:
    assert differing("a\nb", "a\nb") == ()


@given(TEXTS, TEXTS)
def test_what_stands_with_what_went_is_the_old_text_and_with_what_came_the_new_one(before: str, after: str) -> None:
    lines = differing(before, after, context=1000)
    if before == after:
        assert not lines
        return
    assert "\n".join(line.text for line in lines if line.old) == before
    assert "\n".join(line.text for line in lines if line.new) == after
    assert [line.old for line in lines if line.old] == list(range(1, before.count("\n") + 2))
    assert [line.new for line in lines if line.new] == list(range(1, after.count("\n") + 2))
    assert all((line.old is None) == (line.mark is Mark.CAME) for line in lines)


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_what_is_left_out_is_counted_and_equal(before: str, after: str, context: int) -> None:
    lines = differing(before, after, context)
    left_out = sum(int(line.text.split()[0]) for line in lines if line.mark is Mark.GAP)
    told = [line for line in lines if line.mark is not Mark.GAP]
    if before != after:
        assert left_out + sum(line.old is not None for line in told) == before.count("\n") + 1


def test_far_equal_lines_are_one_gap() -> None:
    lines = differing("\n".join(map(str, range(20))), "\n".join([*map(str, range(19)), "x"]))
    assert [(line.mark, line.text) for line in lines][:1] == [(Mark.GAP, "16 equal lines")]
    assert [line.text for line in lines[1:]] == ["16", "17", "18", "19", "x"]


def test_huge_texts_are_told_as_one_block_and_at_once() -> None:
    before, after = "\n".join(f"a{n % 7}" for n in range(20_000)), "\n".join(f"b{n % 7}" for n in range(20_000))
    lines = differing(before, after)
    assert sum(line.mark is Mark.WENT for line in lines) == sum(line.mark is Mark.CAME for line in lines) == 20_000
