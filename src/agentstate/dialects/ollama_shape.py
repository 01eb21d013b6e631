"""Owns the conversion of a recorded Ollama answer into the shape that is asked for now. Must not judge.

Invariant: the lines of a converted answer add up to the object that Ollama itself gives when no stream is asked for.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from agentstate.core.model import Shape
from agentstate.dialects.base import UNREADABLE

# Texts that grow from line to line, of a message and of a generated text; lists grow too, all else is the last said.
_GROWING = frozenset({"content", "thinking", "response"})
# What only the last line of a stream holds.
_ENDING = frozenset(
    {
        "done_reason", "context", "total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration",
        "eval_count", "eval_duration",
    }
)  # fmt: skip
_LINE_ENDS = tuple((end.encode(), rb"\u%04x" % ord(end)) for end in "\u2028\u2029\u0085")


def convert(recorded: Shape, asked: Shape, body: bytes) -> bytes:
    """The recorded body in the asked shape; the very bytes where the shapes are equal."""
    if recorded.stream == asked.stream:
        return body
    return to_stream(body) if asked.stream else to_plain(body)


def to_plain(body: bytes) -> bytes:
    """The lines of a stream added up to one object."""
    whole: dict[str, Any] = {}
    for line in body.split(b"\n"):
        if line.strip():
            _grow(whole, _value(line))
    return msgspec.json.encode(whole)


def to_stream(body: bytes) -> bytes:
    """An object as two lines: all that was said, and the end with its counts."""
    whole = _value(body)
    said = {key: value for key, value in whole.items() if key not in _ENDING}
    end = {key: value for key, value in whole.items() if key not in ("message", "response", "thinking", "logprobs")}
    if "message" in whole:
        end["message"] = {"role": "assistant", "content": ""}
    else:
        end["response"] = ""
    lines = ({**said, "done": False}, {**end, "done": True})
    return b"".join(_line(value) for value in lines)


def _line(value: dict[str, Any]) -> bytes:
    """One line, less what some clients take for a line end inside a text: Ollama itself escapes two of them."""
    line = msgspec.json.encode(value)
    for end, escaped in _LINE_ENDS:
        line = line.replace(end, escaped)
    return line + b"\n"


def _value(line: bytes) -> Any:
    """A line that was judged good by the fields that matter, read leniently in those that do not."""
    try:
        return msgspec.json.decode(line)
    except UNREADABLE:
        return json.loads(line.decode("utf-8", "replace"))


def _grow(whole: dict[str, Any], line: dict[str, Any]) -> None:
    for key, value in line.items():
        old = whole.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _grow(old, value)
        elif _both(old, value, list) or (key in _GROWING and _both(old, value, str)):
            whole[key] = old + value
        elif value is not None or key not in whole:
            whole[key] = value


def _both(old: Any, new: Any, kind: type) -> bool:
    return isinstance(old, kind) and isinstance(new, kind)
