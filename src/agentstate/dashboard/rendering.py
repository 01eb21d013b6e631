"""Owns turning contexts into pages: the template environment, how figures, times and states are written.

Must not query, nor know a page. Invariant: nothing reaches a page unescaped, and no text of an agent or model reaches
it with a character that cannot be seen; an unknown name in a template is an error, not an empty place.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from agentstate import clock
from agentstate.core.visible import visible
from agentstate.dashboard import charts, markup, svg
from agentstate.dashboard.frame import session_path

# Every state that pages show: its glyph and its word. The class that gives it colour is the key itself.
STATES: Mapping[str, tuple[str, str]] = {
    "live": ("●", "live"),
    "replayed": ("⟲", "replayed"),
    "held": ("✋", "held"),
    "failed": ("✕", "failed"),
    "done": ("✓", "done"),
    "in_flight": ("◌", "in flight"),
    "interrupted": ("✕", "interrupted"),
    "paused": ("‖", "paused"),
    "idle": ("○", "idle"),
    "diverged": ("⚠", "divergence"),
    "fallback": ("⤳", "fallback"),
    "edited": ("✎", "edited"),
    "approved": ("✓", "approved"),
    "rejected": ("✕", "rejected"),
    "expired": ("○", "expired"),
    "pending": ("✋", "held"),
    "open": ("✕", "open"),
    "half_open": ("◌", "half-open"),
    "closed": ("✓", "closed"),
    "superseded": ("○", "superseded"),
}
UNKNOWN_PRICE = "the price of this model is not known; give it under [[prices]] in the settings"


@cache
def environment() -> Environment:
    """The one environment; templates are compiled when first used."""
    made = Environment(
        loader=PackageLoader("agentstate.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_shown,
    )
    made.filters.update(
        money=money, ago=ago, moment=moment, clock=time_of_day, duration=duration, count=count, compact=compact,
        exact=exact, markdown=markup.markdown, coloured=markup.coloured, bytes=size, pretty=pretty,
    )  # fmt: skip
    made.globals.update(
        states=STATES,
        session_path=session_path,
        query=query,
        svg=svg,
        unknown_price=UNKNOWN_PRICE,
        bar=svg.bar,
        charts=charts,
        dollars=dollars,
    )
    return made


def render(template: str, **context: Any) -> str:
    """A page or a part of one."""
    with markup.one_page():
        return environment().get_template(template).render(**context)


def _shown(value: Any) -> Any:
    """What of a text is seen: all of it. Markup is ours, and is what it is."""
    return visible(value) if type(value) is str else value


def exact(value: object) -> Markup:
    """A text escaped and otherwise as it is, for where a person edits it."""
    return escape(str(value))


def money(usd: float | None, why: str = UNKNOWN_PRICE) -> Markup:
    """USD with four significant digits, two decimals at least; a dash that says why where it is unknown."""
    if usd is None:
        return Markup('<span class="unknown" title="{}">—<span class="sr">unknown: {}</span></span>').format(why, why)
    return Markup('<span class="num">{}</span>').format(dollars(usd))


def dollars(usd: float) -> str:
    """``$41.20``, ``$0.001234``, ``$1,204.50``; what is less than a millionth of a cent is ``$0``."""
    if abs(usd) < 1e-8:
        return "$0"
    decimals = max(2, 3 - math.floor(math.log10(abs(usd))))
    whole, _, part = f"{abs(usd):,.{decimals}f}".partition(".")
    return f"{'-' if usd < 0 else ''}${whole}.{part.rstrip('0').ljust(2, '0')}"


def count(value: int | None) -> str:
    """A whole number with thousands apart; a dash for none."""
    return "—" if value is None else f"{value:,}"


def compact(value: int | None) -> str:
    """``812``, ``12.4k``, ``3.1M``."""
    if value is None:
        return "—"
    for size_, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if value >= size_:
            return f"{value / (1000 if unit == 'k' else size_):.1f}".removesuffix(".0") + unit
    return f"{value:,}"


def size(count_: int) -> str:
    """Bytes for people."""
    value = float(count_)
    for unit in ("bytes", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def duration(seconds: float | None) -> str:
    """``0.9 ms``, ``61 ms``, ``1.24 s``, ``3 min 20 s``, ``2 h 5 min``; a dash for none."""
    if seconds is None:
        return "—"
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def absolute(seconds: float) -> str:
    """``2026-01-31 14:02:11 UTC``"""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def relative(seconds: float, now: float) -> str:
    """``now``, ``4 s ago``, ``in 3 min``, ``2 d ago``."""
    apart = now - seconds
    far = abs(apart)
    if far < 2:
        return "now"
    said = next(f"{int(far // unit)} {name}" for unit, name in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
                if far >= unit)  # fmt: skip
    return f"{said} ago" if apart > 0 else f"in {said}"


def ago(seconds: float | None) -> Markup:
    """A time as people say it, with the exact one on hover."""
    if seconds is None:
        return Markup('<span class="unknown">—</span>')
    return Markup('<time datetime="{}" title="{}" data-ago>{}</time>').format(
        iso(seconds), absolute(seconds), relative(seconds, clock.now())
    )


def moment(seconds: float | None) -> Markup:
    """A time in full."""
    if seconds is None:
        return Markup('<span class="unknown">—</span>')
    return Markup('<time datetime="{}">{}</time>').format(iso(seconds), absolute(seconds))


def time_of_day(seconds: float | None) -> Markup:
    """``14:02:11`` (UTC), with the date on hover."""
    if seconds is None:
        return Markup('<span class="unknown">—</span>')
    at = datetime.fromtimestamp(seconds, tz=UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        iso(seconds), absolute(seconds), at.strftime("%H:%M:%S")
    )


def pretty(text: str) -> str:
    """JSON laid out; what is none, or would lose something, to the letter."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def query(**values: Any) -> str:
    """The query of an address, without what is empty: ``?a=1&b=2``, or nothing."""
    kept = {name: value for name, value in values.items() if value not in ("", None, False, (), [])}
    return "?" + urlencode(kept, doseq=True) if kept else ""


# --- what is not made from templates ---

_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


@cache
def assets() -> dict[str, tuple[str, bytes]]:
    """Each file of ``static/`` by name: (content type, content)."""
    found = {}
    for file in resources.files("agentstate.dashboard").joinpath("static").iterdir():
        if kind := _KINDS.get(file.name.rpartition(".")[2]):
            found[file.name] = (kind, file.read_bytes())
    return found


@cache
def assets_path() -> str:
    """Where they are, under a name that changes with any of them: what was fetched from there never changes."""
    digest = hashlib.sha256()
    for name, (_, content) in sorted(assets().items()):
        digest.update(name.encode() + b"\0" + content + b"\0")
    return f"/dashboard/static/{digest.hexdigest()[:16]}"
