"""Charts draw the figures that they are given, in proportion, and say in words what cannot be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.standing import Slot
from agentstate.dashboard import charts
from agentstate.dashboard.rendering import dollars


@dataclass(frozen=True)
class Day:
    label: str
    paid: float
    saved: float
    paid_unknown: int = 0
    saved_unknown: int = 0


def rects(svg: str, kind: str) -> list[dict[str, float]]:
    """The rectangles of a class, by their attributes."""
    root = ElementTree.fromstring(svg)
    return [
        {name: float(one.get(name, "0")) for name in ("x", "y", "width", "height")}
        for one in root.iter("rect")
        if one.get("class") == kind
    ]


MONEY = st.floats(0, 1e6).map(lambda value: round(value, 4))


@given(st.lists(st.tuples(MONEY, MONEY), min_size=1, max_size=60))
def test_bars_are_as_high_as_what_they_show_and_stand_on_each_other(amounts: list[tuple[float, float]]) -> None:
    days = [Day(f"{at}", paid, saved) for at, (paid, saved) in enumerate(amounts)]
    top = charts.top_of(days)
    svg = str(charts.stacked(days, [""] * len(days), "said"))
    paid, saved = rects(svg, "ch-paid"), rects(svg, "ch-saved")
    assert len(paid) == sum(day.paid > 0 for day in days) and len(saved) == sum(day.saved > 0 for day in days)
    for drawn, amount in zip(paid, [day.paid for day in days if day.paid > 0], strict=True):
        assert drawn["height"] == pytest.approx(max(amount / top * 160, 1.5), abs=0.01)
        assert drawn["y"] + drawn["height"] == pytest.approx(160, abs=0.02)
    for one in (*paid, *saved):
        assert one["x"] >= 0 and one["x"] + one["width"] <= 1000.01 and one["y"] >= 0


@given(st.floats(1e-9, 1e9))
def test_the_upper_edge_is_a_round_figure_at_least_as_high_as_the_highest_day(highest: float) -> None:
    top = charts.top_of([Day("a", highest, 0.0)])
    assert highest * 0.999 <= top <= highest * 2.01
    assert re.fullmatch(r"(1|1\.5|2|3|4|5|6|8|10)", f"{top / 10 ** _power(top):g}")


def _power(value: float) -> int:
    from math import floor, log10

    return floor(log10(value) + 1e-9)


def test_what_is_unknown_has_a_mark_and_words_and_is_no_bar_of_nothing() -> None:
    drawn = str(charts.days([Day("1 Nov", 0.0, 0.0, 3, 1), Day("2 Nov", 1.0, 0.5)], dollars))
    assert "1 Nov: $0 paid, $0 saved, and 3 calls and 1 replay of unknown price" in drawn
    assert "2 Nov: $1.00 paid, $0.50 saved<" in drawn
    assert len(re.findall('class="ch-unknown"', drawn)) == 1


def test_a_chart_says_what_it_shows_and_holds_no_style() -> None:
    drawn = str(charts.days([Day("1 Nov", 1.0, 2.0), Day("2 Nov", 3.0, 0.0)], dollars))
    assert 'aria-label="2 bars from 1 Nov to 2 Nov: $4.00 paid, $2.00 saved"' in drawn
    assert "style=" not in drawn and "<script" not in drawn


def test_a_name_in_a_chart_is_text() -> None:
    drawn = str(charts.days([Day('<b onclick="x">', 1.0, 0.0)], dollars))
    assert "<b " not in drawn


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=48))
def test_each_slot_of_a_strip_is_whole_and_in_proportion(counts: list[tuple[int, int, int]]) -> None:
    slots = [Slot(at * 1800.0, *three) for at, three in enumerate(counts)]
    svg = str(charts.strip(slots))
    drawn = {kind: rects(svg, f"ch-{kind}") for kind in ("answered", "limited", "failed", "none")}
    for kind, place in (("answered", 0), ("limited", 1), ("failed", 2)):
        assert len(drawn[kind]) == sum(three[place] > 0 for three in counts)
    assert len(drawn["none"]) == sum(not sum(three) for three in counts)
    said = charts.outcomes_said(slots)
    if any(sum(three) for three in counts):
        assert f"{sum(three[0] for three in counts)} answered" in said
        assert f"{sum(three[2] for three in counts)} failed" in said
    else:
        assert said == "24 hours: nothing was asked"


@pytest.mark.parametrize(("share", "level"), [(0.0, "ok"), (0.79, "ok"), (0.8, "near"), (0.999, "near"), (1.0, "over")])
def test_a_meter_warns_before_the_end(share: float, level: str) -> None:
    drawn = str(charts.meter(share, share / 2))
    assert f'class="ch-meter {level}"' in drawn
    [used], [reserved] = rects(drawn, "ch-used"), rects(drawn, "ch-reserved")
    assert used["width"] == pytest.approx(share * 50, abs=0.01)
    assert reserved["width"] == pytest.approx(share * 100, abs=0.01)


def test_more_than_all_of_a_limit_fills_its_meter_and_no_more() -> None:
    assert rects(str(charts.meter(3.0)), "ch-used")[0]["width"] == 100
