"""Owns the small drawings of lists: a session's tape, bars of latency. Must not query.

Invariant: no inline style: classes colour it; each drawing says in words what it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

TAPE_W, TAPE_H, TICK = 120, 14, 2
MOST_TICKS = TAPE_W // TICK
_WORDS = {"paid": "paid", "replayed": "replayed", "held": "held", "failed": "failed", "live": "in flight"}


def tape(ticks: Sequence[str], more: int = 0) -> Markup:
    """One tick a step, oldest left. ``ticks``: of the last ``MOST_TICKS`` steps at most, each ``paid``, ``replayed``,
    ``held``, ``failed`` or ``live``; ``more``: steps before them."""
    counts = Counter(ticks)
    said = ", ".join(f"{counts[name]} {word}" for name, word in _WORDS.items() if counts[name])
    said = f"the last {len(ticks)} steps: {said}" if more else said or "no steps"
    drawn = Markup("").join(
        Markup('<rect class="t-{}" x="{}" y="{}" width="{}" height="{}"/>').format(
            name, start * TICK, 0 if name in ("failed", "held") else 3, width * TICK - (0 if width > 1 else 0.5),
            TAPE_H if name in ("failed", "held") else TAPE_H - 6,
        )
        for name, start, width in _stretches(ticks)
    )  # fmt: skip
    return Markup('<svg class="tape{}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>').format(
        " more" if more else "", TAPE_W, TAPE_H, said, drawn
    )


def _stretches(ticks: Sequence[str]) -> list[tuple[str, int, int]]:
    """(name, where it begins, how many): each tick by itself, so that steps can be counted."""
    return [(name, at, 1) for at, name in enumerate(ticks)]


def gutter(marks: Sequence[str], names: Sequence[str]) -> Markup:
    """A cell for each run, oldest left: who paid a step, and who was given it again."""
    words = {"paid": "paid by", "replayed": "replayed by", "failed": "failed in"}
    said = (
        ", ".join(f"{words[mark]} {name}" for mark, name in zip(marks, names, strict=True) if mark) or "given to no run"
    )
    cells = Markup("").join(
        Markup('<rect class="t-{}" x="{}" y="0" width="4" height="14"/>').format(mark or "none", at * 5)
        for at, mark in enumerate(marks)
    )
    width = max(5 * len(marks) - 1, 4)
    return Markup(
        '<svg class="gutter" width="{}" height="14" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(width, said, said, cells)


def bar(part: float, kind: str = "paid", start: float = 0.0) -> Markup:
    """A bar on a scale from 0 to 1; ``start``: where it begins on it. It stands beside its figure in words."""
    part, start = min(max(part, 0.0), 1.0), min(max(start, 0.0), 1.0)
    width = max(part * 100, 1.0 if part else 0.0)
    return Markup(
        '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="bar-back" width="100" height="6"/>'
        '<rect class="t-{}" x="{}" width="{}" height="6"/></svg>'
    ).format(kind, round(min(start * 100, 100 - width), 2), round(width, 2))
