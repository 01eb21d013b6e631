"""Owns the usage of OpenAI's chat and completion streams that their agents did not ask for: asking the provider for it,
and taking it out of what agents are given. Pure.

Must not touch a chunk that has choices, whatever else it tells. Invariant: but for the one option in the request and
the one chunk in the answer, every byte stays as it was written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import Call, Shape
from agentstate.dialects import splice, sse
from agentstate.dialects.base import UNREADABLE

_DIALECTS = frozenset({"openai_chat", "openai_completions"})
_NAME = "stream_options"
_NAMED = _NAME.encode()
_ADDED = b'"stream_options":{"include_usage":true},'
_BLANKS = b" \t\r\n"
_REFUSALS = frozenset({400, 422})  # statuses by which providers say that they do not know an option


def is_uncounted(call: Call) -> bool:
    """Whether a call asks for a stream that tells its usage only if asked, and does not ask."""
    return call.shape.stream and not call.shape.usage and call.dialect in _DIALECTS


def asking(body: bytes, call: Call) -> bytes:
    """The request of a call with the option that asks for usage; unchanged where it has no place for one."""
    start = body.find(b"{") + 1
    if not start or body[: start - 1].strip(_BLANKS) or body[start : start + 64].lstrip(_BLANKS)[:1] != b'"':
        return body
    added = b"".join((body[:start], _ADDED, memoryview(body)[start:]))
    # Messages may be long, and need not be looked through.
    if not any(_NAMED in part for part in ((call.before, call.after) if call.before else (body,))):
        return added
    try:
        options = splice.member(body, _NAME)
        if options is None:  # the words stand somewhere else in it
            return added
        given = splice.members(options) or {}
        return splice.with_member(body, _NAME, splice.of_members({**given, "include_usage": b"true"}))
    except (ValueError, RecursionError):
        return body


def not_asking(asking: bytes, body: bytes) -> bytes:
    """A request that was made by ``asking`` of ``body``, whatever was changed in it since, without the option."""
    start = asking.find(b"{") + 1
    if asking.startswith(_ADDED, start):
        return asking[:start] + asking[start + len(_ADDED) :]
    options = splice.member(body, _NAME)
    return asking if options is None else splice.with_member(asking, _NAME, options)


def was_refused(status: int, body: bytes) -> bool:
    """Whether a provider's error says that it does not take the option."""
    return status in _REFUSALS and (_NAMED in body or b"include_usage" in body)


def without(events: bytes) -> bytes:
    """The end of a stream less the chunk that tells nothing but the usage."""
    if b'"usage"' not in events:
        return events
    return b"".join(event for event in sse.events(events) if not _tells_usage_only(event))


def put_back(body: bytes, usage: str) -> bytes:
    """A whole stream with a chunk that tells the usage, before its end marker; unchanged where some chunk tells it."""
    before: list[bytes] = []
    after: list[bytes] = []
    last: dict[str, Any] = {}
    for event in sse.events(body):
        chunk = _chunk(event)
        if chunk is None:
            (after if _is_done(event) else before).append(event)
            continue
        if chunk.get("usage") is not None:
            return body
        last = chunk
        before.append(event)
    told = {**last, "choices": [], "usage": msgspec.Raw(usage.encode())}
    return b"".join([*before, sse.encode(msgspec.json.encode(told)), *after])


def is_to_put_back(dialect: str, recorded: Shape, asked: Shape, usage: str) -> bool:
    """Whether a recorded stream is asked for in a shape that tells the usage, which was taken out of it."""
    return (
        dialect in _DIALECTS and bool(usage) and recorded.stream and not recorded.usage
        and (asked.usage or not asked.stream)
    )  # fmt: skip


def _is_done(event: bytes) -> bool:
    return (sse.data_of(event) or b"").strip() == b"[DONE]"


def _chunk(event: bytes) -> dict[str, Any] | None:
    data = sse.data_of(event)
    if data is None:
        return None
    try:
        value = msgspec.json.decode(data)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


def _tells_usage_only(event: bytes) -> bool:
    chunk = _chunk(event)
    return chunk is not None and not chunk.get("choices") and chunk.get("usage") is not None and "error" not in chunk
