"""Owns reading what a provider says of a failure, in any wire format: what kind it is, and how long to wait. Pure.

Must not decide what follows from it (``core.routing`` does). Invariant: what is not understood is told by its HTTP
status alone, and never taken for something that passes if that does not say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from agentstate.core.routing import Failure, Fault, asked_wait, said_again

_READ = 100_000  # bytes of a body that are looked at

# What the error bodies of providers say, in their own words; the first that is found counts.
_SAYS: tuple[tuple[Fault, re.Pattern[str]], ...] = (
    (
        Fault.QUOTA,
        re.compile(r"insufficient_quota|credit balance|exceeded your current quota|out of credits|billing_hard_limit"),
    ),
    (
        Fault.CONTEXT_LENGTH,
        re.compile(
            r"context_length_exceeded|maximum context length|prompt is too long|context window|exceed_context_size"
            r"|input is too long|exceeds the maximum number of tokens|too many input tokens|reduce the length of"
        ),
    ),
    (
        Fault.CONTENT_FILTER,
        re.compile(
            r"content_filter|content_policy|invalid_prompt|content management policy|responsibleai|safety system"
        ),
    ),
    (
        Fault.MODEL_GONE,
        re.compile(
            r"model_not_found|does not exist or you do not have access|model_decommissioned|has been decommissioned"
            r"|has been deprecated|model .{0,100}not found|models?/\S+ is not found|model: \S+|unknown model"
            r"|no longer available|not a valid model|model .{0,100}does not exist"
        ),
    ),
)
_GONE = re.compile(r"model_decommissioned|has been decommissioned|no longer available|model .{0,100}does not exist")
_IN_A_STREAM: tuple[tuple[Fault, re.Pattern[str]], ...] = (
    (Fault.OVERLOADED, re.compile(r"overloaded")),
    (Fault.RATE_LIMIT, re.compile(r"rate.?limit|too many requests|resource_exhausted")),
)
# What an answer that had begun ends with where the question, or a person, is to blame.
_LASTING = re.compile(
    r"was cancelled|\binvalid_\w+|unsupported_\w+|image_(?:too|parse)\w*|empty_image|failed_to_download_image"
)
# "Please try again in 6.5s", "in 20ms", "in 1m30s", "try again in 2 seconds".
_TRY_AGAIN = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:[\d.]+ ?(?:ms|milliseconds?|h|m(?!s)|s(?:ec(?:ond)?s?)?) ?)+)"
)
_PART = re.compile(r"([\d.]+) ?(milliseconds?|ms|h|m|s)")
_UNITS = {"ms": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}
_DELAY = re.compile(r'"retrydelay": ?"([\d.]+)s"')  # Gemini's RetryInfo


def of_answer(status: int, headers: Iterable[tuple[str, str]], body: bytes, now: float) -> Failure:
    """The failure that an HTTP error is. ``now``: seconds since the epoch."""
    pairs = list(headers)
    text = body[:_READ].decode("utf-8", "replace").lower()
    wait = asked_wait(pairs, now)
    if wait is None:
        wait = _wait_in(text)
    shown = f"HTTP {status}: {' '.join(body[:300].decode('utf-8', 'replace').split())}"
    fault = _kind(status, text)
    if status == 429 and fault is Fault.QUOTA and wait is not None:
        fault = Fault.RATE_LIMIT  # what comes back by itself is no quota that is used up
    return Failure(fault, status, wait, said_again(pairs), shown)


def _kind(status: int, text: str) -> Fault:
    if status in (400, 402, 403, 404, 410, 413, 422, 429):
        for fault, words in _SAYS:
            # A limit of a rate may speak of models and contexts as well: there only a used-up quota counts.
            if words.search(text) and (status != 429 or fault is Fault.QUOTA) and _may_be(fault, status, text):
                return fault
    if status == 402:
        return Fault.QUOTA
    if status in (401, 403, 407):
        return Fault.CREDENTIALS
    if status == 410:
        return Fault.MODEL_GONE
    if status == 413:
        return Fault.CONTEXT_LENGTH
    if status == 429:
        return Fault.RATE_LIMIT
    if status in (503, 529):
        return Fault.OVERLOADED
    if status >= 500 or status in (408, 409, 425):
        return Fault.SERVER_ERROR
    return Fault.REFUSED


def _may_be(fault: Fault, status: int, text: str) -> bool:
    """A model that is gone is told by 404 or 410, or in words that mean nothing else."""
    return fault is not Fault.MODEL_GONE or status in (404, 410) or _GONE.search(text) is not None


# How the dialects begin to say that a provider told of its failure within an answer that had begun.
_TOLD = ("the provider broke off: ", "the provider answered an error under status 200: ")


def is_told(fault: str) -> bool:
    """Whether the fault of an answer is what its provider says itself, and no loss on the way."""
    return any(words in fault for words in _TOLD)


def of_words(text: str, now: float) -> Failure:
    """The failure that a provider tells of within an answer that had begun. ``text``: its words."""
    low = text[:_READ].lower()
    for fault, words in (*_IN_A_STREAM, *_SAYS):
        if words.search(low):
            return Failure(fault, 0, _wait_in(low), None, text[:300])
    lasting = _LASTING.search(low) is not None
    return Failure(Fault.REFUSED if lasting else Fault.SERVER_ERROR, 0, _wait_in(low), None, text[:300])


def _wait_in(text: str) -> float | None:
    """Seconds that an error body asks to wait."""
    if (found := _DELAY.search(text)) is not None:
        return _seconds(found[1])
    if (found := _TRY_AGAIN.search(text)) is None:
        return None
    total = 0.0
    for number, unit in _PART.findall(found[1]):
        seconds = _seconds(number)
        if seconds is None:
            return None
        total += seconds * (_UNITS["ms"] if unit.startswith("mil") else _UNITS[unit])
    return total


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# --- what a provider does itself ---

# Kinds of tools that agents run, or that only look something up.
_HARMLESS = re.compile(
    r"function|custom|namespace|tool_search\w*|web_search\w*|web_fetch\w*|file_search\w*|google_?search\w*|url_?context"
    r"|local_shell|apply_patch|bash_\w+|text_editor_\w+|memory_\w+|computer_\d\w*|computer_use\w*|computer"
)


def acts(body: bytes) -> bool:
    """Whether the provider may act on a request by itself, with tools that it runs: then sending it again may do
    something twice. What cannot be read is taken for one that may."""
    try:
        asked = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        return True
    if not isinstance(asked, dict):
        return True
    if asked.get("background") or asked.get("mcp_servers"):
        return True
    tools = asked.get("tools")
    return any(_acting(tool) for tool in tools) if isinstance(tools, list) else False


def _acting(tool: Any) -> bool:
    if not isinstance(tool, dict):
        return True
    kind = tool.get("type")
    if kind is None:  # Anthropic's plain tools have a name; each of Gemini's is a field
        return not (tool.keys() & {"name", "functionDeclarations", "function_declarations"}) and not all(
            _HARMLESS.fullmatch(str(name).lower()) for name in tool
        )
    return not (isinstance(kind, str) and _HARMLESS.fullmatch(kind))
