"""Owns Anthropic messages: how a request is read, and errors of ours in that shape. Must not change what passes.

Invariant: two bodies have the same canonical parts exactly when no provider could tell the difference by its answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, TypeGuard

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolResult, Verdict
from agentstate.dialects import anthropic_amend, anthropic_shape, volatile
from agentstate.dialects import query as query_of
from agentstate.dialects.anthropic_answer import StreamGate, anthropic_error, event, judge_plain
from agentstate.dialects.base import (
    Blanked,
    Cache,
    Scrubbed,
    canonical,
    digest_of,
    fields_of,
    frame_key,
    tool_set,
    unmarked,
)
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError

# Cannot change the answer: how it is delivered, whom it is for, what the provider's prompt cache keeps or tells of it,
# and on which capacity it is computed (``service_tier``: the price and the limits differ, the model is the same).
DENIED = frozenset({"stream", "metadata", "user_profile_id", "cache_control", "diagnostics", "service_tier"})

# Claude Code's billing line holds a hash of each request; it tells nothing of what is asked. The rest of it counts.
_BILLING = "x-anthropic-billing-header:"
_BILLING_HASH = re.compile(r"\bcch=[0-9a-fA-F]+;?")
_RESULTS = frozenset({"tool_result", "mcp_tool_result"})  # whose content may be a string instead of a text block
# Where a JSON schema holds values of a user's, whatever they are called.
_SCHEMA_VALUES = frozenset({"enum", "const", "default", "examples"})

_frames = Cache(8 * 1024 * 1024)
_systems = Cache(8 * 1024 * 1024)
_toolsets = Cache(8 * 1024 * 1024)


class _Frame(msgspec.Struct, frozen=True):
    digest: bytes
    model: str
    previous: str


class AnthropicMessages:
    """The dialect; see ``dialects.base.Dialect`` and ``dialects.base.Amending``."""

    name = "anthropic_messages"
    provider = "anthropic"

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: _opaque(method, path, kept),
        )

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        array = fields.pop("messages", b"")
        shape = Shape(fields.get("stream") == b"true")
        context = _context(fields.pop("system", None), fields.pop("tools", None))
        frame = _frame(fields)
        digest = frame.digest
        items: tuple[Item, ...] = ()
        around = b"", b"", b""
        if array:
            messages = _conversations.read(array)
            if messages is None:
                # Not a list of messages: the provider will say so. It still counts in the fingerprint.
                digest = digest_of((digest, array))
            else:
                items, around = messages.items, messages.around(array, body)
        return Call(
            self.name, method, path, body, digest, items, *around, frame.model,
            shape=shape, context=context, previous=frame.previous,
        )  # fmt: skip

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        value = msgspec.json.decode(item.raw)
        literals: list[str] = []
        plain: list[str] = []
        if not isinstance(value, dict):
            return Scrubbed(sha256(_scrubbed_context(value, literals)).digest(), tuple(literals), ())
        if item.role not in ("system", "user"):
            return Scrubbed(item.digest, (), tuple(volatile.texts(value)))
        shown = _message(value, [])
        blocks = shown.get("content")
        for block in blocks if isinstance(blocks, list) else [blocks]:
            if item.role == "system" or user_text or volatile.is_generated(block):
                _mask_text(block, literals, plain)
            elif _is_result(block):
                _mask_result(block, literals, plain)
            else:
                plain.extend(volatile.texts(block))
        return Scrubbed(sha256(canonical(shown)).digest(), tuple(literals), tuple(plain))

    def blanked(self, item: Item) -> Blanked:
        shown = _message(msgspec.json.decode(item.raw), None)
        ids: list[str] = []
        blocks = shown.get("content")
        for block in blocks if isinstance(blocks, list) else ():
            if _is_result(block) and isinstance(block.get("tool_use_id"), str):
                block["content"] = None
                ids.append(block["tool_use_id"])
        return Blanked(canonical(shown), tuple(ids))

    def spoken(self, body: bytes) -> Any:
        content = msgspec.json.decode(body).get("content")
        unsaid = ("id", "tool_use_id", "caller", "signature", "data", "encrypted_content")
        return [
            {name: part for name, part in block.items() if name not in unsaid} if isinstance(block, dict) else block
            for block in (content if isinstance(content, list) else ())
        ]

    def is_stream(self, call: Call, start: bytes) -> bool:
        return start[:1] not in (b"{", b"[", b"<")

    def gate(self, call: Call) -> StreamGate:
        return StreamGate(_is_kept(call))

    def judge(self, call: Call, body: bytes) -> Verdict:
        return judge_plain(body, _is_kept(call))

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return anthropic_shape.convert(recorded, asked, body)

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        return anthropic_amend.offered(call)

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        return anthropic_amend.results(call)

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        return anthropic_amend.amended(shape, body, changes, said)

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        return anthropic_amend.continued(call, shape, body, results)

    def content_type(self, shape: Shape) -> str:
        return "text/event-stream; charset=utf-8" if shape.stream else "application/json"

    def error(self, error: AgentStateError) -> bytes:
        return anthropic_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return event(b"error", anthropic_error(error))


def _opaque(method: str, path: str, body: bytes) -> Call:
    """Valid JSON that only a lenient parser takes: its very bytes are its question."""
    value = json.loads(body)
    model = value.get("model")
    return Call(
        AnthropicMessages.name, method, path, body, sha256(b"opaque\0" + body).digest(),
        model=model if isinstance(model, str) else "", shape=Shape(value.get("stream") is True),
    )  # fmt: skip


# --- the request ------------------------------------------------------------------------------------------------------


def _frame(fields: Fields) -> _Frame:
    """Everything but the messages, the context and the denied fields."""
    kept = [(name, raw) for name, raw in sorted(fields.items()) if name not in DENIED]
    named = [(name.encode(), raw) for name, raw in kept]
    key = frame_key(named)
    known = _frames.get(key)
    if known is not None:
        return known  # type: ignore[no-any-return]
    parts: list[bytes] = []
    model = previous = ""
    for name, raw in kept:
        value = msgspec.json.decode(raw)
        if value is None:
            continue
        if name == "model" and isinstance(value, str):
            model = value
        if name == "thread" and isinstance(value, dict) and isinstance(value.get("previous_message_id"), str):
            previous = value["previous_message_id"]
        parts += (name.encode(), canonical(value))
    frame = _Frame(digest_of(parts), model, previous)
    _frames.put(key, frame)
    return frame


def _is_kept(call: Call) -> bool:
    """Whether the provider keeps the answer as a part of a thread, under its id."""
    if b'"thread"' not in call.body:
        return False
    fields = fields_of(call.body) or {}
    return bytes(fields.get("thread", b"null")) != b"null"


def _context(system: bytes | None, tools: bytes | None) -> tuple[Item, ...]:
    """The system text and the tools, which stand beside the messages."""
    parts = (
        (system, _systems, b"system", lambda value: canonical(_system_blocks(value))),
        (tools, _toolsets, b"tools", tool_set),
    )
    return tuple(
        _part(raw, cache, tag, form)
        for raw, cache, tag, form in parts
        if raw is not None and raw != b"null"  # which says no more than its absence
    )


def _part(raw: bytes, cache: Cache, tag: bytes, form: Callable[[Any], bytes]) -> Item:
    item: Item | None = cache.get(raw)
    if item is None:
        digest = digest_of((tag, form(msgspec.json.decode(raw))))
        item = Item(raw, sha256(raw).digest(), digest, "system")
        cache.put(raw, item)
    return item


def _system_blocks(value: Any) -> Any:
    blocks = _content(value, None)
    for block in blocks if isinstance(blocks, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and text.startswith(_BILLING):
            block["text"] = _BILLING_HASH.sub("", text)
    return blocks


# --- messages ---------------------------------------------------------------------------------------------------------


def item_of(raw: bytes, message: dict[str, Any]) -> Item:
    """A message as the fingerprint sees it. The order of several tool results within one counts: the calls, whose order
    theirs would be compared with, stand in another message."""
    ids: list[str] = []
    shown = _message(message, ids)
    role = message.get("role")
    return Item(
        raw,
        sha256(raw).digest(),
        sha256(canonical(shown)).digest(),
        role if isinstance(role, str) else "",
        tuple(ids),
        _answered(message),
    )


def _answered(message: dict[str, Any]) -> str | None:
    """The call whose result a whole message is."""
    content = message.get("content")
    if message.get("role") != "user" or not isinstance(content, list) or len(content) != 1:
        return None
    answers = content[0].get("tool_use_id") if _is_result(content[0]) else None
    return answers if isinstance(answers, str) else None


def _is_result(block: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a block is the result of a tool that the agent has run."""
    return isinstance(block, dict) and block.get("type") == "tool_result"


def _message(message: dict[str, Any], ids: list[str] | None) -> dict[str, Any]:
    """A message without nulls and cache marks, text as a block. ``ids``: collects call ids, which their places in it
    replace; ``None``: they stay."""
    shown: dict[str, Any] = unmarked(message)
    if "content" in shown:
        shown["content"] = _content(shown["content"], ids)
    return shown


def _content(content: Any, ids: list[str] | None) -> Any:
    """Blocks; a string says the same as one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_block(block, ids) for block in content] if isinstance(content, list) else content


def _block(block: Any, ids: list[str] | None) -> Any:
    shown = unmarked(block)
    if not isinstance(shown, dict):
        return shown
    kind = str(shown.get("type"))
    if ids is not None:
        if kind.endswith("tool_use"):
            _rename(shown, "id", ids)
        _rename(shown, "tool_use_id", ids)
        if isinstance(shown.get("caller"), dict):  # the server's tool that has called this one
            shown["caller"] = dict(shown["caller"])
            _rename(shown["caller"], "tool_id", ids)
    content = shown.get("content")
    if isinstance(content, list) or (isinstance(content, str) and kind in _RESULTS):
        shown["content"] = _content(content, ids)
    source = shown.get("source")
    if isinstance(source, dict) and isinstance(source.get("content"), list):
        shown["source"] = source | {"content": _content(source["content"], ids)}
    return shown


def _rename(block: dict[str, Any], key: str, ids: list[str]) -> None:
    """Replace a call id by the place at which it stands in ``ids``."""
    call_id = block.get(key)
    if isinstance(call_id, str):
        if call_id not in ids:
            ids.append(call_id)
        block[key] = {"call": ids.index(call_id)}


# --- volatile text ----------------------------------------------------------------------------------------------------


def _mask_result(block: dict[str, Any], literals: list[str], plain: list[str]) -> None:
    content = block.get("content")
    for part in content if isinstance(content, list) else [content]:
        _mask_text(part, literals, plain)


def _mask_text(block: Any, literals: list[str], plain: list[str]) -> None:
    """Mask a text block or the texts of a tool result; what is neither stays plain."""
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        block["text"] = volatile.scrub(block["text"], literals)
    elif _is_result(block):
        _mask_result(block, literals, plain)
    else:
        plain.extend(volatile.texts(block))


def _scrubbed_context(value: Any, literals: list[str]) -> bytes:
    """The system text or the tool set, masked; the tools in the order of their names, which hold nothing volatile."""
    if isinstance(value, list) and value and all(isinstance(tool, dict) and "text" not in tool for tool in value):
        tools = [_masked_tool(tool, literals) for tool in sorted(value, key=lambda tool: str(tool.get("name")))]
        return b"tools\0" + canonical(tools)
    blocks = _system_blocks(value)
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            block["text"] = volatile.scrub(block["text"], literals)
    return b"system\0" + canonical(blocks)


def _masked_tool(tool: dict[str, Any], literals: list[str]) -> dict[str, Any]:
    shown: dict[str, Any] = unmarked(tool)
    if isinstance(shown.get("description"), str):
        shown["description"] = volatile.scrub(shown["description"], literals)
    if "input_schema" in shown:
        shown["input_schema"] = _masked_schema(shown["input_schema"], literals)
    return shown


def _masked_schema(schema: Any, literals: list[str]) -> Any:
    """A JSON schema with the descriptions in it masked; keys in order, so that their spelling does not matter."""
    if isinstance(schema, list):
        return [_masked_schema(part, literals) for part in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {}
    for name, part in sorted(schema.items()):
        if name == "description" and isinstance(part, str):
            shown[name] = volatile.scrub(part, literals)
        else:
            shown[name] = part if name in _SCHEMA_VALUES else _masked_schema(part, literals)
    return shown


_conversations = Conversations(item_of)
