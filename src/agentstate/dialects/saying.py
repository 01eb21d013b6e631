"""Owns reading what an answer says, so that two can be compared: texts, tool calls, finish, and what else. Pure;
must not compare.

Invariant: what is left out of an answer is new for every answer (names, times, signatures), a count of tokens, or
stands in another part of what is given back; an answer that cannot be read is one text, and nothing of it is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from agentstate.core import comparing
from agentstate.core.comparing import Said
from agentstate.core.model import Call, Shape
from agentstate.dialects.base import Dialect

# Members that are another for each answer, or counts and times that are compared as figures.
_NEW = frozenset(
    {
        "id", "created", "created_at", "completed_at", "system_fingerprint", "usage", "usageMetadata", "responseId",
        "response_id", "call_id", "tool_call_id", "item_id", "encrypted_content", "signature", "thoughtSignature",
        "model", "modelVersion", "createTime", "total_duration", "load_duration", "prompt_eval_count",
        "prompt_eval_duration", "eval_count", "eval_duration", "context", "obfuscation", "service_tier", "serviceTier",
    }
)  # fmt: skip
_FINISH = frozenset({"finish_reason", "stop_reason", "finishReason", "done_reason"})
_CALLS = frozenset({"tool_calls", "function_call"})


def said(
    dialect: Dialect | None, call: Call | None, shape: Shape, body: bytes, *, status: int, state: str, error: str,
    model: str,
) -> Said:  # fmt: skip
    """What a recorded answer says. ``dialect`` ``None``: no model's answer, a tool's. ``error``: why it is none."""
    if dialect is None or call is None or status >= 300 or state != "completed":
        return _bare(body, status, state, error, model)
    try:
        plain = dialect.convert(shape, Shape(), body)
        verdict = dialect.judge(call, plain)
        value = msgspec.json.decode(plain)
    except (ValueError, KeyError, TypeError, IndexError):
        return _bare(body, status, state, error, model)
    if not isinstance(value, dict):
        return Said({}, model=model, status=status, state=state, error=error, rest=value)
    parts: dict[str, str] = {}

    def keep(name: str, choice: int, text: Any) -> None:
        if isinstance(text, str) and text:
            name = f"{name} of choice {choice + 1}" if choice else name
            parts[name] = parts.get(name, "") + text

    read = _READERS.get(dialect.name)
    if read is not None:
        read(value, keep)
    calls = tuple(comparing.Call(one.name, _parsed(one.arguments)) for one in verdict.calls)
    return Said(parts, calls, verdict.finish, verdict.model or model, status, state, error, _rest(value))


def _bare(body: bytes, status: int, state: str, error: str, model: str) -> Said:
    """An error, a tool's result, or what cannot be read."""
    try:
        return Said({}, model=model, status=status, state=state, error=error, rest=msgspec.json.decode(body or b"null"))
    except (msgspec.DecodeError, ValueError):
        text = {"text": body.decode("utf-8", "replace")}
        return Said(text, model=model, status=status, state=state, error=error)


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _rest(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _rest(part) for key, part in value.items() if key not in _NEW and key not in _FINISH}
        return {key: part for key, part in kept.items() if part not in ({}, [], None)}
    if isinstance(value, list):
        found = [_rest(part) for part in value]
        return [part for part in found if part not in ({}, [], None)]
    return value


Keep = Callable[[str, int, Any], None]


def _chat(value: dict[str, Any], keep: Keep) -> None:
    for place, choice in enumerate(_dicts(value.get("choices"))):
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        _text(message, "content", "text", place, keep)
        for name, what in (("reasoning_content", "thinking"), ("reasoning", "thinking"), ("refusal", "refusal")):
            keep(what, place, _popped(message, name))
        keep("text", place, _popped(choice, "text"))  # of the legacy completions
        for name in _CALLS:
            message.pop(name, None)


def _responses(value: dict[str, Any], keep: Keep) -> None:
    items = _dicts(value.get("output"))
    for item in items:
        for part in _dicts(item.get("content")):
            what = "thinking" if item.get("type") == "reasoning" else "text"
            keep(what, 0, _popped(part, "text"))
            keep("refusal", 0, _popped(part, "refusal"))
        for part in _dicts(item.get("summary")):
            keep("thinking", 0, _popped(part, "text"))
    if "output" in value:
        value["output"] = [item for item in items if item.get("type") != "function_call"]
    for name in ("instructions", "tools", "input"):  # the question, told again
        value.pop(name, None)


def _messages(value: dict[str, Any], keep: Keep) -> None:
    blocks = _dicts(value.get("content"))
    for block in blocks:
        keep("text", 0, _popped(block, "text"))
        keep("thinking", 0, _popped(block, "thinking"))
    if "content" in value:
        value["content"] = [block for block in blocks if block.get("type") != "tool_use"]


def _gemini(value: dict[str, Any], keep: Keep) -> None:
    for place, candidate in enumerate(_dicts(value.get("candidates"))):
        content = candidate.get("content")
        for part in _dicts(content.get("parts") if isinstance(content, dict) else None):
            keep("thinking" if part.pop("thought", False) else "text", place, _popped(part, "text"))
            part.pop("functionCall", None)


def _ollama(value: dict[str, Any], keep: Keep) -> None:
    message = value.get("message")
    message = message if isinstance(message, dict) else {}
    keep("text", 0, _popped(message, "content"))
    keep("thinking", 0, _popped(message, "thinking"))
    keep("text", 0, _popped(value, "response"))
    message.pop("tool_calls", None)


_READERS: dict[str, Callable[[dict[str, Any], Keep], None]] = {
    "openai_chat": _chat,
    "openai_completions": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
    "ollama_chat": _ollama,
    "ollama_generate": _ollama,
}


def _text(message: dict[str, Any], name: str, what: str, place: int, keep: Keep) -> None:
    """A text, or a list of parts that hold it."""
    if isinstance(message.get(name), list):
        for part in _dicts(message[name]):
            keep(what, place, _popped(part, "text"))
    else:
        keep(what, place, _popped(message, name))


def _popped(value: dict[str, Any], name: str) -> Any:
    """What stands there, taken out where it is a text."""
    found = value.get(name)
    return value.pop(name) if isinstance(found, str) else None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
