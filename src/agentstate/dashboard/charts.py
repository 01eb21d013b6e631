"""Owns the drawings of figures: paid against saved, outcomes over a day, how much of a limit is used. Must not query.

Invariant: classes alone give colour; what a drawing shows is said in words too, in its label or in a table beside it;
nothing unknown is drawn as nothing without a mark that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from markupsafe import Markup

_CHART_W, _CHART_H = 1000.0, 160.0  # of its own scale: it is drawn as wide as there is room
_GAP = 0.25  # of a bar's place
_SLOT, _STRIP_H = 3, 20
_HAIR = 1.5  # the least height that can be seen


class Day(Protocol):
    """What is drawn of a day, or of several. ``label``: what it is called; USD; ``…_unknown``: calls and replays of
    unknown price."""

    @property
    def label(self) -> str: ...
    @property
    def paid(self) -> float: ...
    @property
    def paid_unknown(self) -> int: ...
    @property
    def saved(self) -> float: ...
    @property
    def saved_unknown(self) -> int: ...


class Slot(Protocol):
    """Attempts of a part of a day; ``since``: seconds since the epoch."""

    @property
    def since(self) -> float: ...
    @property
    def answered(self) -> int: ...
    @property
    def limited(self) -> int: ...
    @property
    def failed(self) -> int: ...


def top_of(days: Sequence[Day]) -> float:
    """The figure at the upper edge of the chart: a round one, at least what the highest day comes to."""
    highest = max((day.paid + day.saved for day in days), default=0.0)
    if highest <= 0:
        return 0.0
    step = 10.0
    while step > highest:
        step /= 10
    while step * 10 <= highest:
        step *= 10
    return next(step * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * factor >= highest * 0.999999)


def days(shown: Sequence[Day], spelled: Callable[[float], str]) -> Markup:
    """The chart of ``stacked`` with its axes as text beside it. ``spelled``: USD as they are written."""
    top = top_of(shown)
    words = [_day_said(day, spelled) for day in shown]
    paid, saved = sum(day.paid for day in shown), sum(day.saved for day in shown)
    said = f"{len(shown)} bars from {shown[0].label} to {shown[-1].label}: {spelled(paid)} paid, {spelled(saved)} saved"
    middle = shown[len(shown) // 2].label if len(shown) > 6 else ""
    return Markup(
        '<div class="ch-plot"><div class="ch-y num" aria-hidden="true"><span>{}</span><span>{}</span><span>$0</span>'
        '</div>{}<div class="ch-x num" aria-hidden="true"><span>{}</span><span>{}</span><span>{}</span></div></div>'
    ).format(
        spelled(top) if top else "",
        spelled(top / 2) if top else "",
        stacked(shown, words, said),
        shown[0].label,
        middle,
        shown[-1].label if len(shown) > 1 else "",
    )


def _day_said(day: Day, spelled: Callable[[float], str]) -> str:
    said = f"{day.label}: {spelled(day.paid)} paid, {spelled(day.saved)} saved"
    counts = ((day.paid_unknown, "call"), (day.saved_unknown, "replay"))
    unknown = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
    return said + (f", and {' and '.join(unknown)} of unknown price" if unknown else "")


def stacked(days: Sequence[Day], words: Sequence[str], said: str) -> Markup:
    """Paid below, saved above it, a bar for each of ``days``. ``words``: of each, as on hover; ``said``: of all."""
    top = top_of(days)
    place = _CHART_W / max(len(days), 1)
    bars = Markup("").join(
        _bar(day, word, at * place, place, top) for at, (day, word) in enumerate(zip(days, words, strict=True))
    )
    lines = Markup("").join(
        Markup('<line class="ch-grid" x1="0" x2="{}" y1="{}" y2="{}"/>').format(_n(_CHART_W), y, y)
        for y in ("0.5", _n(_CHART_H / 2), _n(_CHART_H - 0.5))
    )
    return Markup(
        '<svg class="ch-days" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}{}</svg>'
    ).format(_n(_CHART_W), _n(_CHART_H), said, lines, bars)


def _bar(day: Day, word: str, x: float, place: float, top: float) -> Markup:
    left, width = x + place * _GAP / 2, place * (1 - _GAP)
    y, drawn = _CHART_H, Markup("")
    for kind, usd in (("paid", day.paid), ("saved", day.saved)):
        if usd <= 0 or top <= 0:
            continue
        height = max(usd / top * _CHART_H, _HAIR)
        y -= height
        drawn += _rect(f"ch-{kind}", left, max(y, 0.0), width, height)
    if day.paid_unknown or day.saved_unknown:
        drawn += _rect("ch-unknown", left, max(y - 5, 0.0), width, 3)
    # The whole place answers to the pointer, not only what is drawn of it.
    hover = _rect("ch-hover", x, 0, place, _CHART_H)
    return Markup("<g>{}{}<title>{}</title></g>").format(hover, drawn, word)


def split(paid: float, saved: float, share: float) -> Markup:
    """One line's part of the costliest one's, paid and saved apart. It stands beside its figures."""
    whole = paid + saved
    width = share * 100
    first = width * paid / whole if whole > 0 else 0.0
    return Markup(
        '<svg class="ch-split" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{}{}{}</svg>'
    ).format(
        _rect("ch-back", 0, 0, 100, 6), _rect("ch-paid", 0, 0, first, 6), _rect("ch-saved", first, 0, width - first, 6)
    )


def strip(slots: Sequence[Slot]) -> Markup:
    """Outcomes over a day, oldest left: of each slot what share was answered, had no room, failed."""
    width = len(slots) * _SLOT
    drawn = Markup("").join(_outcomes(slot, at * _SLOT) for at, slot in enumerate(slots))
    return Markup('<svg class="ch-strip" width="{}" height="{}" role="img" aria-label="{}">{}</svg>').format(
        width, _STRIP_H, outcomes_said(slots), drawn
    )


def _outcomes(slot: Slot, x: int) -> Markup:
    calls = slot.answered + slot.limited + slot.failed
    if not calls:
        return _rect("ch-none", x, _STRIP_H - 2, _SLOT - 1, 2)
    y, drawn = float(_STRIP_H), Markup("")
    for kind, count in (("answered", slot.answered), ("limited", slot.limited), ("failed", slot.failed)):
        if count:
            height = max(count / calls * _STRIP_H, _HAIR)
            y -= height
            drawn += _rect(f"ch-{kind}", x, max(y, 0.0), _SLOT - 1, height)
    word = f"{_hour(slot.since)}: {slot.answered} answered"
    word += f", {slot.limited} without room (429)" if slot.limited else ""
    word += f", {slot.failed} failed" if slot.failed else ""
    return Markup("<g>{}<title>{}</title></g>").format(drawn, word)


def outcomes_said(slots: Sequence[Slot]) -> str:
    """What a strip shows, in words."""
    answered, limited, failed = (
        sum(getattr(slot, kind) for slot in slots) for kind in ("answered", "limited", "failed")
    )
    if not answered + limited + failed:
        return "24 hours: nothing was asked"
    said = f"24 hours: {answered} answered, {limited} without room, {failed} failed"
    worst = max(slots, key=lambda slot: slot.limited + slot.failed)
    bad = worst.limited + worst.failed
    return f"{said}; most of them ({bad}) from {_hour(worst.since)}" if bad else said


def meter(share: float, reserved: float = 0.0) -> Markup:
    """How much of a limit is used, from 0 to 1 and beyond; ``reserved``: the part of ``share`` that calls in flight
    may still take. It stands beside its figures and needs no words."""
    whole, kept = min(max(share, 0.0), 1.0), min(max(share - reserved, 0.0), 1.0)
    return Markup(
        '<svg class="ch-meter {}" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{}{}{}</svg>'
    ).format(
        level(share),
        _rect("ch-back", 0, 0, 100, 6),
        _rect("ch-reserved", 0, 0, whole * 100, 6),
        _rect("ch-used", 0, 0, kept * 100, 6),
    )


def level(share: float) -> str:
    """``ok``, ``near`` from four fifths on, ``over`` from the whole on."""
    return "over" if share >= 1 else "near" if share >= 0.8 else "ok"


def _rect(kind: str, x: float, y: float, width: float, height: float) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        kind, _n(x), _n(y), _n(width), _n(height)
    )


def _n(number: float) -> str:
    """A number as short as it can be drawn."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _hour(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%H:%M UTC")
