"""Owns what counts as the same report: what is volatile, how a difference is shown, which one difference is meant.

Must not start anything. Invariant: nothing is left out of a comparison but durations and tracebacks, and of an id only
its letters: which ids are the same one still counts.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Case = dict[str, Any]
Report = dict[str, list[Case]]

MOST_LINES = 120  # of one difference that are shown
REFUSALS = ("upstream_cut", "upstream_invalid_answer")
# Not steps: these are passed through whether or not the address names a session.
NO_STEPS = ("google-interactions", "compact-")

_MOMENTS = ("created", "created_at", "completed_at")
_VOLATILE = re.compile(
    # Of an id that it finds odd, the tool quotes twenty characters and dots.
    r"\b(?:(?P<kind>chatcmpl|cmpl|resp|msg|fc|rs|req|call|toolu)[-_][A-Za-z0-9_-]{14,}|[0-9a-f]{20,32}\b)(?:\.\.\.)?"
    r"|\b(?P<print>fp_)[0-9a-f]{8}\b"
    r"|(?P<counted>aimock-int-|evt_)\d+"
    r'|(?P<moment>"created(?:_at)?": ?)\d+'
    r"|(?P<host>127\.0\.0\.1:)\d+"
    r"|(?P<cut>IncompleteRead\()\d+"
)


class _Names:
    """The same id has the same name throughout a case; another one has another."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, found: re.Match[str]) -> str:
        if found["moment"] or found["host"] or found["cut"]:
            return f"{found['moment'] or found['host'] or found['cut']}N"
        kind = found["kind"] or found["counted"] or found["print"] or "id"
        return self._known.setdefault(found[0][:20], f"{kind} no. {len(self._known)}")


def steady(report: Report) -> Report:
    """The report less what two runs against one mock differ in: ids, moments, ports, durations, tracebacks."""
    return {suite: [_case(case) for case in cases] for suite, cases in report.items()}


def _case(case: Case) -> Case:
    names = _Names()
    kept = {name: value for name, value in case.items() if name != "duration_ms"}
    kept["errors"] = [text for text in case.get("errors", ()) if not text.startswith("Traceback")]
    # Errors quote the answer: named after it, an id has the same name in both, however many errors there are.
    order = ("answer", "events", "warnings", "errors")
    done = {name: _steady(kept[name], names) for name in order if name in kept}
    return {name: done.get(name, value) for name, value in kept.items()}


def _steady(value: Any, names: _Names) -> Any:
    if isinstance(value, str):
        return _VOLATILE.sub(names, value)
    if isinstance(value, list):
        return [_steady(part, names) for part in value]
    if isinstance(value, Mapping):
        return {
            name: 0 if name in _MOMENTS and isinstance(part, int) else _steady(part, names)
            for name, part in value.items()
        }
    return value


def differences(expected: Report, found: Report, meant: Sequence[tuple[str, str]] = ()) -> str:
    """How two steady reports differ, case by case; empty when they do not. ``meant``: cases that are left out."""
    assert list(expected) == list(found)
    shown = []
    for suite, case in cases(expected):
        if (suite, case) in meant:
            continue
        before, after = _lines(one(expected, suite, case)), _lines(one(found, suite, case))
        if before != after:
            lines = list(difflib.unified_diff(before, after, "directly", "through the proxy", n=2, lineterm=""))
            more = [f"… and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
            shown.append("\n".join([f"{suite}: {case}", *lines[:MOST_LINES], *more]))
    return "\n\n".join(shown)


def _lines(case: Case) -> list[str]:
    return json.dumps(case, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def cases(report: Report) -> list[tuple[str, str]]:
    """(suite, case) of the whole report, in the order in which they were run."""
    return [(suite, case["id"]) for suite, results in report.items() for case in results]


def one(report: Report, suite: str, case: str) -> Case:
    """One case of a report. Fails when it was not run."""
    return next(found for found in report[suite] if found["id"] == case)


def is_step(suite: str, case: str) -> bool:
    """Whether such a request is journaled where the address names a session."""
    return not suite.startswith(NO_STEPS) and not case.startswith(NO_STEPS)


def not_refused(undisturbed: Case, found: Case) -> str:
    """What is wrong with a case whose answer the proxy had to refuse; empty when nothing is.

    The agent gets a part, maybe nothing, of what the provider said, and then an error in its own wire format: with
    status 503 while nothing is out, as the stream's last event after that. Never what ends an answer.
    """
    events = found["events"] or []
    at = next((at for at, event in enumerate(events) if _names_a_refusal(event)), None)
    if found["status"] != "failed":
        return "the tool took it for an answer"
    if at is None and not _names_a_refusal(found["answer"]):
        return f"nothing says why: {found['answer'] or events[-1:]}"
    if at is None:
        return "" if found["errors"][0].startswith("HTTP 503 ") else f"not a 503: {found['errors'][0]}"
    # The Responses format has two last words: an error, and a response that failed.
    if [event["type"] for event in events[at + 1 :]] not in ([], ["response.failed"]):
        return f"the stream went on after its error: {events[at + 1 :]}"
    if events[:at] != (undisturbed["events"] or [])[:at]:
        return f"not what the provider said: {events[:at]}"
    return ""


def _names_a_refusal(value: Any) -> bool:
    text = json.dumps(value)
    return any(f'"{code}"' in text for code in REFUSALS)
