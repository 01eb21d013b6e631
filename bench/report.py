"""Turns measurements into text: the table of bars, the tables behind it, the page and the JSON file.

Must not measure or judge. Invariant: only what stands between the page's markers is replaced.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.bars import US, Bar, Measurements, Verdict, judge
from bench.cells import CELLS, Summary
from bench.recovery import KILL_AT, STEPS, Recovery
from bench.storage import REPEATED, Stored

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
TITLES = {
    "direct": "no proxy",
    "agentstate": "AgentState",
    "nginx": "nginx",
    "litellm": "LiteLLM",
    "litellm-cache": "LiteLLM, local cache",
    "portkey": "Portkey",
    "seed": "first AgentState",
}


def render(found: Measurements) -> str:
    """Everything between the markers, as Markdown."""
    parts = [
        _preface(found),
        "### Bars",
        bar_table(judge(found)),
        "### An agent killed and started again",
        _recovery(found),
    ]
    parts += ["### Bytes stored", _stored(found), "### The figures behind the ratios", _cells(found)]
    return "\n\n".join(part for part in parts if part) + "\n"


def bar_table(verdicts: list[Verdict]) -> str:
    """One row a bar: the median of the rounds, their range, the limit, the aim and the verdict."""
    rows = ["| figure | measured | rounds | bar | aim | |", "|---|---|---|---|---|---|"]
    for verdict in verdicts:
        bar = verdict.bar
        sign = "≤" if bar.better == "less" else "≥"
        if verdict.value is None or verdict.low is None or verdict.high is None:
            shown, spread, word = "not measured", "", ""
        else:
            shown, spread = f"**{number(verdict.value, bar)}**", ""
            if verdict.low != verdict.high:
                spread = f"{number(verdict.low, bar)} … {number(verdict.high, bar)}"
            word = "met" if verdict.met else "**missed**"
        limit, aim = f"{sign} {number(bar.limit, bar)}", number(bar.stretch, bar)
        rows.append(f"| {bar.text} | {shown} | {spread} | {limit} | {aim} | {word} |")
    return "\n".join(rows)


def number(value: float, bar: Bar) -> str:
    """A figure in its unit; ratios below two thirds as 1/n."""
    if bar.unit == "count":
        return f"{value:.0f}"
    if bar.unit != "ratio":
        return f"{value:.3g} {bar.unit}"
    if 0 < value < 0.4:
        return f"1/{1 / value:.3g}" if 1 / value < 100 else f"1/{1 / value:.0f}"
    return f"{value:.3g}×"


def _preface(found: Measurements) -> str:
    machine = found.machine
    cores = f"{machine.get('cores')} cores of {machine.get('cpu')}"
    lines = [
        f"Taken {machine.get('date')} on {cores}, {machine.get('system')}, Python {machine.get('python')}, "
        f"journal on {machine.get('filesystem')}; {len(found.rounds)} round(s), load 1-minute average "
        f"{machine.get('load')} at the start."
    ]
    named = [f"{TITLES[name]} {version}" for name, version in found.versions.items() if name != "direct"]
    if named:
        lines.append("Measured: " + ", ".join(named) + ".")
    lines += [f"Not measured: {TITLES[name]}: {why}." for name, why in found.missing.items()]
    return "\n\n".join(lines)


def _recovery(found: Measurements) -> str:
    if not found.recovery:
        return "Not measured."
    what = f"{STEPS} steps, killed in the call of step {KILL_AT}"
    rows = [
        f"| {what} | back after | with its process' start | calls paid | paid twice |",
        "|---|---|---|---|---|",
    ]
    for name, one in found.recovery.items():
        rows.append(f"| {TITLES[name]} | {one.back_s:.3f} s | {one.start_s:.3f} s | {one.paid} | {one.paid_twice} |")
    return "\n".join(rows)


def _stored(found: Measurements) -> str:
    if not found.stored:
        return "Not measured."
    rows = ["| | steps | MB on disk | KB a step | of the text held |", "|---|---|---|---|---|"]
    for name, sizes in found.stored.items():
        for steps, one in sizes.items():
            per_step, share = one.size / steps / 1000, one.size / one.held
            title = TITLES[name.removesuffix(REPEATED)] + (REPEATED if name.endswith(REPEATED) else "")
            rows.append(f"| {title} | {steps} | {one.size / 1e6:.2f} | {per_step:.1f} | {share:.2f}× |")
    return "\n".join(rows)


def _cells(found: Measurements) -> str:
    """The last round's figures of every cell; they hold for that machine and hour only."""
    if not found.rounds:
        return "Not measured."
    blocks = ["From the last round; times in ms. They hold for one machine and one hour: compare within a table only."]
    for cell in CELLS:
        summaries = found.rounds[-1].get(cell.name)
        if summaries:
            blocks.append(f"**{cell.title}**\n\n" + _cell_table(summaries))
    return "\n\n".join(blocks)


def _cell_table(summaries: dict[str, Summary]) -> str:
    streamed = any(one.ttft is not None for one in summaries.values())
    paced = any(one.lag is not None for one in summaries.values())
    head = ["", "p50", "p99", *(["first chunk"] if streamed else []), *(["chunk lag"] if paced else [])]
    head += ["answers/s", "CPU ms each", "memory MB", "calls", "paid", "errors"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, one in summaries.items():
        cells = [TITLES[name], _ms(one.p50), _ms(one.p99), *([_ms(one.ttft)] if streamed else [])]
        cells += [_ms(one.lag)] if paced else []
        cells += [f"{one.rps:.0f}", _ms(one.cpu), f"{one.rss / 1e6:.0f}" if one.rss else "", str(one.n)]
        cells += [f"{one.paid:.0%}" if one.paid is not None else "", str(one.errors)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def write_page(page: Path, text: str) -> None:
    """Replaces what stands between the markers of ``page``. Raises ``ValueError`` unless each is there, once."""
    old = page.read_text("utf-8")
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(BEGIN) > old.index(END):
        raise ValueError(f"{page} needs the lines {BEGIN} and {END}, each once, in this order")
    head, rest = old.split(BEGIN)
    page.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}", "utf-8")


def save(found: Measurements, file: Path) -> None:
    """Measurements as JSON, with every bar's verdict beside them."""
    verdicts = [
        {"figure": one.bar.text, "value": one.value, "limit": one.bar.limit, "met": one.met} for one in judge(found)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**asdict(found), "bars": verdicts}, indent=1), "utf-8")


def load(file: Path) -> Measurements:
    """Measurements that ``save`` wrote."""
    raw: dict[str, Any] = json.loads(file.read_text("utf-8"))
    raw.pop("bars")
    raw["rounds"] = [
        {cell: {name: Summary(**one) for name, one in targets.items()} for cell, targets in cells.items()}
        for cells in raw["rounds"]
    ]
    raw["stored"] = {
        name: {int(steps): Stored(**one) for steps, one in sizes.items()} for name, sizes in raw["stored"].items()
    }
    raw["recovery"] = {name: Recovery(**one) for name, one in raw["recovery"].items()}
    return Measurements(**raw)


def missed(found: Measurements) -> list[str]:
    """The bars that were measured and not met."""
    return [verdict.bar.text for verdict in judge(found) if verdict.met is False]


__all__ = ["US", "bar_table", "load", "missed", "number", "render", "save", "write_page"]
