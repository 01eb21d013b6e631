"""Owns realistic chat-completions bodies and every way in which one of them can be changed in one place.

Must not know which changes matter. Invariant: a mutant is valid JSON and differs from its original in one leaf, key or
order.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from agentstate.core import fingerprint
from agentstate.dialects.openai_chat import OpenAIChat

Path = tuple[str | int, ...]
CHAT = OpenAIChat()
# Fields that cannot change the answer: written down here anew, from the documentation of what they do.
DENIED = (
    "stream", "stream_options", "user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options",
)  # fmt: skip


def encoded(body: Any) -> bytes:
    """A body as an SDK writes it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def key(body: Any) -> bytes:
    """The fingerprint of a body, given as an object or as bytes."""
    raw = body if isinstance(body, bytes) else encoded(body)
    return fingerprint.of(CHAT.parse("POST", "chat/completions", raw)).key


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": schema}}


def _calls(*ids: str) -> list[dict[str, Any]]:
    return [
        {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": f'{{"city":"{call_id}"}}'}}
        for call_id in ids
    ]


TOOLS = [
    _tool("weather", city={"type": "string", "enum": ["Oslo", "Rome"]}, days={"type": "integer", "maximum": 7}),
    _tool("send_email", to={"type": ["string", "null"], "default": None}, cache_control={"type": "string"}),
]

BODIES: dict[str, dict[str, Any]] = {
    "plain": {
        "model": "gpt-4o-test",
        "messages": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Why is it blue?"}],
        "temperature": 0.7,
        "seed": 18446744073709551617,
        "max_completion_tokens": 300,
        "stop": ["\n\n", "END"],
        "logit_bias": {"50256": -100, "1": 3},
        "user": "u-1",
        "metadata": {"ticket": "17"},
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "tools": {
        "model": "gpt-4o-test",
        "messages": [
            {"role": "developer", "content": "Use tools."},
            {"role": "user", "content": "Weather in two cities?", "name": "ann"},
            {"role": "assistant", "tool_calls": _calls("call_a", "call_b")},
            {"role": "tool", "tool_call_id": "call_a", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_b", "content": "sun"},
            {"role": "assistant", "content": "Rain and sun.", "refusal": "no"},
            {"role": "user", "content": "And mail it."},
            {"role": "assistant", "content": "Sure.", "tool_calls": _calls("call_c")},
            {"role": "tool", "tool_call_id": "call_c", "content": [{"type": "text", "text": "sent"}]},
        ],
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": True,
    },
    "parts": {
        "model": "gpt-4o-test",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                ],
            }
        ],
        "modalities": ["text", "audio"],
        "audio": {"voice": "alloy", "format": "wav"},
        "n": 2,
        "logprobs": True,
        "top_logprobs": 3,
    },
    "schema": {
        "model": "gpt-4o-test",
        "messages": [{"role": "user", "content": "Give me JSON."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "strict": True,
                "schema": {"type": "object", "properties": {"x": {"type": ["number", "null"], "const": None}}},
            },
        },
        "reasoning_effort": "low",
        "x_vendor": {"unknown": [1, 2.5, {"deep": "yes"}, None, "1"], "empty": {}, "none": []},
    },
    "functions": {
        "model": "gpt-3.5-test",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "nothing"},
        ],
        "functions": [{"name": "look", "parameters": {"type": "object", "properties": {}}}],
        "function_call": "auto",
    },
    "custom tool": {
        "model": "gpt-5-test",
        "messages": [
            {"role": "user", "content": "Run it"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_x", "type": "custom", "custom": {"name": "shell", "input": "ls"}}],
            },
            {"role": "tool", "tool_call_id": "call_x", "content": "a b"},
        ],
        "tools": [{"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}],
    },
}


@dataclass
class Mutant:
    """A body that was changed at ``path``; ``how`` says in which way."""

    how: str
    path: Path
    make: Callable[[], Any]

    @cached_property
    def body(self) -> Any:
        return self.make()

    @property
    def name(self) -> str:
        return f"{self.how} at {'.'.join(map(str, self.path))}"


def mutants(body: Any) -> Iterator[Mutant]:
    """Every change in one place: each leaf's value, each key gone, each object with one more, each list's order."""
    for path, value in walk(body):
        if path:
            for how, other in _others(value):
                yield Mutant(how, path, partial(replaced, body, path, other))
            yield Mutant("gone", path, partial(removed, body, path))
        if isinstance(value, dict):
            yield Mutant("new field", (*path, "x_new"), partial(replaced, body, (*path, "x_new"), 1))
        if isinstance(value, list):
            for place in range(len(value) - 1):
                if value[place] != value[place + 1]:
                    swapped = [*value[:place], value[place + 1], value[place], *value[place + 2 :]]
                    yield Mutant("order", (*path, place), partial(replaced, body, path, swapped))


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All places of a JSON value, the value itself first."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from walk(part, (*path, name))


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    """Values that are not ``value``, near it."""
    if isinstance(value, bool):
        yield "other flag", not value
        yield "flag as number", int(value)
    elif isinstance(value, int):
        yield "one more", value + 1
        yield "as text", str(value)
        yield "as float", float(value) if abs(value) < 2**53 else value + 2
    elif isinstance(value, float):
        yield "a little more", value + 0.001
        yield "as text", str(value)
    elif isinstance(value, str):
        yield "longer", value + "x"
        yield "blank behind", value + " "
        yield "in a list", [value]
        if value.swapcase() != value:
            yield "other case", value.swapcase()
    elif value is None:
        yield "empty text", ""
        yield "no", False
    elif isinstance(value, list):
        yield "in a list", [value]
        yield "one more", [*value, "x_more"]
    elif isinstance(value, dict):
        yield "in a list", [value]


def at(body: Any, path: Path) -> Any:
    for name in path:
        body = body[name]
    return body


def replaced(body: Any, path: Path, value: Any) -> Any:
    """A copy with another value at ``path``."""
    if not path:
        return value
    made = copy.deepcopy(body)
    at(made, path[:-1])[path[-1]] = value
    return made


def removed(body: Any, path: Path) -> Any:
    """A copy without what stands at ``path``."""
    made = copy.deepcopy(body)
    del at(made, path[:-1])[path[-1]]
    return made
