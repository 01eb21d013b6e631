"""Owns the conversion of a recorded chat completion into the shape that is asked for now. Must not be used live.

Invariant: an SDK that reads the converted answer ends with an object equal to the one it makes of the original.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import Shape
from agentstate.dialects import sse
from agentstate.dialects.openai_answer import GrowingCalls, grown_name

# Parts of a streamed message that are named whole rather than grown piece by piece.
_WHOLE = frozenset({"role", "id", "type", "index", "expires_at", "format", "signature"})
_DONE = sse.encode(b"[DONE]")


def convert(recorded: Shape, asked: Shape, body: bytes) -> bytes:
    """The recorded body in the asked shape; the very bytes where the shapes are equal."""
    if recorded == asked:
        return body
    if recorded.stream and asked.stream:
        return _with_usage(body) if asked.usage else _without_usage(body)
    return to_stream(body, asked.usage) if asked.stream else to_plain(body)


def to_stream(body: bytes, usage: bool) -> bytes:
    """A completion object as the chunks that add up to it. ``usage``: end with a usage chunk."""
    whole = msgspec.json.decode(body)
    common = {key: value for key, value in whole.items() if key not in ("choices", "usage", "object")}
    common["object"] = "chat.completion.chunk"
    out: list[dict[str, Any]] = []
    for choice in sorted(whole.get("choices") or (), key=lambda choice: choice.get("index", 0)):
        out.extend(_chunks_of(choice))
    chunks = [{**common, "choices": [choice]} for choice in out]
    if usage:
        for chunk in chunks:
            chunk["usage"] = None
        chunks.append({**common, "choices": [], "usage": whole.get("usage")})
    return b"".join(sse.encode(msgspec.json.encode(chunk)) for chunk in chunks) + _DONE


def _chunks_of(choice: dict[str, Any]) -> list[dict[str, Any]]:
    """One choice as deltas: its message without the calls, each call, and the finish."""
    index = choice.get("index", 0)
    message = dict(choice.get("message") or {})
    calls = message.pop("tool_calls", None)
    rest = {key: value for key, value in choice.items() if key not in ("message", "finish_reason", "logprobs")}
    found = [{**rest, "index": index, "delta": message, "logprobs": choice.get("logprobs"), "finish_reason": None}]
    for place, call in enumerate(calls or ()):
        delta = {"tool_calls": [{"index": place, **call}]}
        found.append({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})
    found.append({"index": index, "delta": {}, "logprobs": None, "finish_reason": choice.get("finish_reason")})
    return found


def to_plain(body: bytes) -> bytes:
    """The chunks of a stream added up to a completion object."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    growing = GrowingCalls()
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is None or data.strip() == b"[DONE]":
            continue
        chunk = msgspec.json.decode(data)
        for key, value in chunk.items():
            if key == "choices" or key == "object":
                continue
            if value not in (None, "", 0) or key not in whole:
                whole[key] = value
        for part in chunk.get("choices") or ():
            _add_choice(choices.setdefault(part.get("index") or 0, {}), part, growing)
    whole["object"] = "chat.completion"
    whole["choices"] = [_finished(index, choices[index]) for index in sorted(choices)]
    if whole.get("usage") is None:
        whole.pop("usage", None)
    whole.pop("obfuscation", None)
    return msgspec.json.encode(whole)


def _add_choice(choice: dict[str, Any], part: dict[str, Any], growing: GrowingCalls) -> None:
    message = choice.setdefault("message", {})
    for key, value in (part.get("delta") or {}).items():
        if key == "tool_calls":
            calls = message.setdefault("tool_calls", {})
            for call in value or ():
                _, place = growing.add(part.get("index") or 0, call)
                _grow(calls.setdefault(place, {}), {k: v for k, v in call.items() if k != "index"})
        else:
            message[key] = _grown(message.get(key), value, key)
    for key, value in part.items():
        if key in ("delta", "index"):
            continue
        if key == "logprobs":
            choice[key] = _grown(choice.get(key), value, key)
        elif value is not None or key not in choice:
            choice[key] = value


def _grow(whole: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        whole[key] = _grown(whole.get(key), value, key)


def _grown(old: Any, new: Any, key: str) -> Any:
    """``old`` with a delta added: text grows, lists are extended, objects are merged, names are set once."""
    if new is None or old is None:
        return old if new is None else new
    if isinstance(old, str) and isinstance(new, str):
        if key == "name":
            return grown_name(old, new)
        return (old or new) if key in _WHOLE else old + new
    if isinstance(old, list) and isinstance(new, list):
        return _extended(old, new)
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        _grow(merged, new)
        return merged
    return new


def _extended(old: list[Any], new: list[Any]) -> list[Any]:
    """A list with another one added; an entry with an index grows the one that has it."""
    whole = list(old)
    for entry in new:
        index = entry.get("index") if isinstance(entry, dict) else None
        place = next(
            (at for at, known in enumerate(whole) if isinstance(known, dict) and known.get("index") == index), None
        )
        if isinstance(index, int) and place is not None:
            whole[place] = _grown(whole[place], entry, "")
        else:
            whole.append(entry)
    return whole


def _finished(index: int, choice: dict[str, Any]) -> dict[str, Any]:
    message = choice.pop("message", {})
    if "tool_calls" in message:
        message["tool_calls"] = [message["tool_calls"][place] for place in sorted(message["tool_calls"])]
    message.setdefault("role", "assistant")
    message.setdefault("content", None)
    return {"index": index, "message": message, **choice}


def _is_usage_chunk(data: bytes) -> bool:
    chunk = msgspec.json.decode(data)
    return isinstance(chunk, dict) and chunk.get("choices") == [] and chunk.get("usage") is not None


def _without_usage(body: bytes) -> bytes:
    """The stream less its usage chunk, which a client that did not ask for it may not expect."""
    kept = []
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is None or data.strip() == b"[DONE]" or not _is_usage_chunk(data):
            kept.append(event)
    return b"".join(kept)


def _with_usage(body: bytes) -> bytes:
    """The stream with a usage chunk, where the recorded chunks tell the usage; unchanged where they do not."""
    usage: Any = None
    last: dict[str, Any] = {}
    kept = []
    for event in sse.events(body):
        data = sse.data_of(event)
        if data is not None and data.strip() == b"[DONE]":
            continue
        if data is not None:
            last = msgspec.json.decode(data)
            usage = last.get("usage") or (last.get("x_groq") or {}).get("usage") or usage
        kept.append(event)
    if usage is not None:
        kept.append(sse.encode(msgspec.json.encode({**last, "choices": [], "usage": usage})))
    return b"".join(kept) + _DONE
