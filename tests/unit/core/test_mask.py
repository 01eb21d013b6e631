"""Which texts count as volatile, which renamings are harmless, and which answers speak of what has changed."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import mask
from tests.unit.core.profile import examples

UUIDS = ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "9b2d7c10-1c3e-4a55-8f0e-aa01bb02cc03")

VOLATILE_TEXT = {
    "uuid": UUIDS[0],
    "date": "2026-11-30",
    "stamp": "2026-11-30T09:41:05Z",
    "stamp with fraction and zone": "2026-11-30 09:41:05.123+02:00",
    "day in words": "Mon, Nov 30, 2026",
    "day in words, British": "30 November 2026",
    "month": "November 2026",
    "slashed": "11/30/2026",
    "clock": "09:41:05",
    "clock with half": "9:41 PM",
    "temporary file": "/tmp/tmpab12cd34",
}


@pytest.mark.parametrize("name", VOLATILE_TEXT)
def test_volatile_text_is_masked_and_kept_as_a_literal(name: str) -> None:
    text = f"Report of {VOLATILE_TEXT[name]}, for you"
    shown, literals = mask.scrub(text)
    assert VOLATILE_TEXT[name] not in shown
    assert shown.startswith("Report of ") and shown.endswith(", for you")
    assert "".join(literals) and all(literal in text for literal in literals)


@pytest.mark.parametrize("text", [
    "order 4711", "1700000000", "3.14", "10:30", "the score was 3:2", "version 1.2.3", "10.0.0.1", "/etc/passwd",
    "42 apples", "chapter 7", "a ratio of 16:9", "2026", "1/2", "deadbeef", "reports/draft-2",
])  # fmt: skip
def test_what_may_be_data_is_not_masked(text: str) -> None:
    assert mask.scrub(text) == (text, ())


@given(st.text(max_size=40), st.text(max_size=40))
@examples(300)
def test_skeletons_of_different_texts_without_volatile_parts_differ(first: str, second: str) -> None:
    one, two = mask.scrub(first), mask.scrub(second)
    assert (one == two) == (first == second)


@given(st.lists(st.sampled_from(tuple(VOLATILE_TEXT.values())), min_size=1, max_size=4))
@examples(100)
def test_text_is_its_skeleton_with_its_literals_in_order(parts: list[str]) -> None:
    text = " and then ".join(parts)
    shown, literals = mask.scrub(text)
    rest = text
    for literal in literals:
        assert literal in rest
        rest = rest[rest.index(literal) + len(literal) :]
    assert shown.count("\x00") == 2 * len(literals)


# --- renaming ---------------------------------------------------------------------------------------------------------


def test_renaming_is_one_to_one() -> None:
    a, b = UUIDS
    assert mask.renaming([a, a], [b, b]) == {a: b}
    assert mask.renaming([a, b], [b, a]) is None, "ids that change places are another question"
    assert mask.renaming([], []) == {}
    assert mask.renaming([a, a], [b, a]) is None, "one literal became two"
    assert mask.renaming([a, b], [b, b]) is None, "two literals became one"
    assert mask.renaming([a], [a, b]) is None
    assert mask.renaming([a, b], [a]) is None


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("wxyz"), max_size=6))
@examples(300)
def test_renaming_maps_place_by_place_or_not_at_all(old: list[str], new: list[str]) -> None:
    found = mask.renaming(old, new)
    pairs = set(zip(old, new, strict=False))
    bijective = len(old) == len(new) and len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    assert (found is not None) == bijective
    if found is not None:
        assert [found[literal] for literal in old] == new


def test_dates_keep_their_order() -> None:
    due, today = "2026-03-14", "2026-03-13"
    assert mask.renaming([due, today], [due, "2026-03-12"]) is not None
    assert mask.renaming([due, today], [due, "2026-03-15"]) is None
    assert mask.renaming([due, today], [due, due]) is None


# --- what an answer says ----------------------------------------------------------------------------------------------

DAY, NEXT = date(2026, 11, 30), date(2027, 2, 3)
QUOTED = (
    "2026-11-30", "November 30", "Nov 30", "30 November", "30. November", "30th of November", "Monday", "11/30/2026",
    "30.11.2026", "11/30", "20261130", "nov 30", "NOVEMBER 30", "2026/11/30", "30/11/2026",
)  # fmt: skip
QUOTED_CLOCKS = ("21:05", "9:05 pm", "9:05pm", "09:05 PM", "2105", "9:05 p.m.")


@pytest.mark.parametrize("spelling", QUOTED)
@pytest.mark.parametrize("literal", ["2026-11-30", "Mon, Nov 30, 2026", "30 November 2026", "2026-11-30T08:00:00Z"])
def test_answer_that_names_the_old_day_in_any_spelling_is_found(literal: str, spelling: str) -> None:
    assert mask.quotes([f"As of {spelling}, nothing."], {literal: "2027-02-03"})
    assert not mask.quotes([f"As of {spelling}, nothing."], {literal: literal})


@pytest.mark.parametrize("spelling", QUOTED_CLOCKS)
@pytest.mark.parametrize("literal", ["21:05:33", "9:05 PM", "2026-11-30T21:05:33Z"])
def test_answer_that_names_the_old_clock_in_any_spelling_is_found(literal: str, spelling: str) -> None:
    assert mask.quotes([f"It is {spelling} now."], {literal: "07:44:01"})


def test_answer_that_names_the_old_id_or_path_is_found() -> None:
    old, new = UUIDS
    assert mask.quotes([f"done with {old}"], {old: new})
    assert mask.quotes(["x", f"done with {old.replace('-', '')}"], {old: new})
    assert mask.quotes([f"done with {old.upper()}"], {old: new})
    assert not mask.quotes(["done", new], {old: new})
    assert mask.quotes(["see /tmp/tmpab12cd34/x"], {"/tmp/tmpab12cd34": "/tmp/tmpzz99yy88"})


def test_answer_that_speaks_of_nothing_that_changed_is_free() -> None:
    assert not mask.quotes(["All is well in March."], {"2026-03-14": "2026-03-15"}), "the month has not changed"
    assert not mask.quotes(["All is well."], {"2026-11-30": "2027-02-03"})
    assert not mask.quotes([], {"2026-11-30": "2027-02-03"})
    assert not mask.quotes(["2026-11-30"], {})


def told(day: date) -> set[str]:
    return {f"{day:%B} {day.day}", f"{day.day} {day:%B}", f"{day:%d/%m/%Y}", day.isoformat(), f"{day:%A}"}


@given(st.dates(date(2001, 1, 1), date(2090, 1, 1)).filter(lambda day: day.day > 12), st.integers(1, 400))
@examples(60)
def test_any_day_is_found_in_the_usual_spellings(day: date, later: int) -> None:
    new = day + timedelta(days=later)
    for spelling in told(day):
        found = mask.quotes([f"on {spelling}."], {day.isoformat(): new.isoformat()})
        assert found == (spelling not in told(new)), spelling
