"""Owns OpenAI's Responses API: how a request is read. Must not change what passes through.

Invariant: two bodies have the same canonical parts exactly when no provider could tell the difference by its answer.
What the provider holds for later requests is a part of its answer: ``store`` and the pointers to what is held count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolResult, Verdict
from agentstate.dialects import query as query_of
from agentstate.dialects import responses_amend, responses_job, responses_results, responses_shape, sse, volatile
from agentstate.dialects.base import (
    Blanked,
    Cache,
    Scrubbed,
    canonical,
    digest_of,
    frame_key,
    openai_error,
)
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.reading import Fields, read_body
from agentstate.dialects.responses_answer import ResponsesGate, judge_plain, loaded
from agentstate.dialects.responses_event import failed_events
from agentstate.errors import AgentStateError

# Cannot change the answer: how it is delivered, whom it is for, what the provider's prompt cache keeps.
DENIED = frozenset(
    {
        "stream", "stream_options", "user", "metadata", "client_metadata", "safety_identifier", "prompt_cache_key",
        "prompt_cache_retention", "prompt_cache_options",
    }
)  # fmt: skip

_MARKS = frozenset({"cache_control", "prompt_cache_breakpoint"})  # of the prompt cache
_OPTIONS = frozenset({"reasoning", "text"})  # objects in which SDKs spell out what is not set
_MASKED = frozenset({"system", "developer", "tool"})  # roles whose text may be volatile
# Items whose own id is what their results, or their approvals, name.
_NAMED_BY_ID = ("mcp_approval_request", "local_shell_call_output")
_TEXTS = ("text", "stdout", "stderr")  # of the parts of a tool's output
# Fields of an answer that say nothing: names, counts, what no reader can read.
_UNSAID = frozenset({"id", "call_id", "encrypted_content", "status", "logprobs", "created_by"})

_frames = Cache(8 * 1024 * 1024)
_contexts = Cache(8 * 1024 * 1024)


class _Frame(msgspec.Struct, frozen=True):
    digest: bytes
    model: str
    previous: str
    background: bool


class OpenAIResponses:
    """The dialect; see ``dialects.base.Dialect``."""

    name = "openai_responses"
    provider = "openai"
    early_heartbeat = sse.KEEP_ALIVE  # a comment, which clients skip; where it can, the gate says more

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path = query_of.asked(path, query, self.provider)
        return read_body(
            body,
            lambda kept, fields: self._parsed(method, path, kept, fields),
            lambda kept: _opaque(method, path, kept),
        )

    def _parsed(self, method: str, path: str, body: bytes, fields: Fields) -> Call:
        raw_input = fields.pop("input", b"")
        shape = Shape(fields.get("stream") == b"true")
        context = _context(fields)
        frame = _frame(fields)
        digest = frame.digest
        items: tuple[Item, ...] = ()
        around = b"", b"", b""
        if raw_input[:1] == b'"':
            items = (_said(raw_input),)
        elif raw_input not in (b"", b"null"):
            found = _conversations.read(raw_input)
            if found is None:
                # Not a list of items: the provider will say so. It still counts in the fingerprint.
                digest = digest_of((digest, raw_input))
            else:
                items, around = found.items, found.around(raw_input, body)
        return Call(
            self.name, method, path, body, digest, items, *around, frame.model, 1, shape, False, context,
            frame.previous, frame.background,
        )  # fmt: skip

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        value = msgspec.json.decode(item.raw)
        literals: list[str] = []
        if isinstance(value, str):
            value = volatile.scrub(value, literals)
            return Scrubbed(digest_of((b"instructions", canonical(value))), tuple(literals), ())
        if isinstance(value, list):
            return _scrubbed_tools(value)
        shown = _without_ids(value)
        if item.role not in _MASKED and not (user_text and item.role == "user"):
            said = volatile.mask_generated(shown, literals) if item.role == "user" else shown
            digest = sha256(canonical(shown)).digest() if literals else item.digest
            return Scrubbed(digest, tuple(literals), tuple(volatile.texts(_readable(said))))
        _mask(shown, literals)
        return Scrubbed(sha256(canonical(shown)).digest(), tuple(literals), ())

    def blanked(self, item: Item) -> Blanked:
        shown = _shown(msgspec.json.decode(item.raw))
        if item.answers is None or "output" not in shown:
            return Blanked(canonical(shown))
        shown["output"] = None
        return Blanked(canonical(shown), (item.answers,))

    def spoken(self, body: bytes) -> Any:
        whole = loaded(body)
        return _readable(whole.get("output")) if isinstance(whole, dict) else None

    def is_stream(self, call: Call, start: bytes) -> bool:
        return start[:1] not in (b"{", b"[", b"<")

    def gate(self, call: Call) -> ResponsesGate:
        return ResponsesGate(call)

    def judge(self, call: Call, body: bytes) -> Verdict:
        return judge_plain(call, body)

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return responses_shape.convert(recorded, asked, body)

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        return responses_results.offered(call)

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        return responses_results.results(call)

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        return responses_amend.amended(call, shape, body, changes, said)

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        return responses_results.continued(call, shape, body, results)

    def working(self, body: bytes) -> bytes:
        return responses_job.working(body)

    def content_type(self, shape: Shape) -> str:
        return "text/event-stream; charset=utf-8" if shape.stream else "application/json"

    def error(self, error: AgentStateError) -> bytes:
        return openai_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        return failed_events(error)


def _opaque(method: str, path: str, body: bytes) -> Call:
    """Valid JSON that only a lenient parser takes: its very bytes are its question."""
    value = json.loads(body)
    model, previous = value.get("model"), value.get("previous_response_id")
    return Call(
        OpenAIResponses.name, method, path, body, sha256(b"opaque\0" + body).digest(),
        model=model if isinstance(model, str) else "", shape=Shape(value.get("stream") is True),
        previous=previous if isinstance(previous, str) else "", background=value.get("background") is True,
    )  # fmt: skip


# --- the request ------------------------------------------------------------------------------------------------------


def _frame(fields: Fields) -> _Frame:
    """Everything but the input, the context and the denied fields."""
    kept = [(name, raw) for name, raw in sorted(fields.items()) if name not in DENIED]
    named = [(name.encode(), raw) for name, raw in kept]
    key = frame_key(named)
    known = _frames.get(key)
    if known is not None:
        return known  # type: ignore[no-any-return]
    parts: list[bytes] = []
    values: dict[str, Any] = {}
    for name, raw in kept:
        value = values[name] = msgspec.json.decode(raw)
        if value is None:
            continue
        parts += (name.encode(), canonical(_unmarked(value) if name in _OPTIONS else value))
    model, previous = values.get("model"), values.get("previous_response_id")
    frame = _Frame(
        digest_of(parts),
        model if isinstance(model, str) else "",
        previous if isinstance(previous, str) else "",
        values.get("background") is True,
    )
    _frames.put(key, frame)
    return frame


def _context(fields: Fields) -> tuple[Item, ...]:
    """The instructions and the tools, taken out of ``fields`` where they are a text and a list, as they should be."""
    found = []
    for name, start in (("instructions", b'"'), ("tools", b"[")):
        raw = fields.get(name, b"")
        if raw[:1] != start:
            continue
        item = _contexts.get(raw)
        if item is None:
            value = msgspec.json.decode(raw)
            said = _tools(value) if isinstance(value, list) else canonical(value)
            item = Item(raw, sha256(raw).digest(), digest_of((name.encode(), said)), "system")
            _contexts.put(raw, item)
        found.append(item)
        del fields[name]
    return tuple(found)


def _tools(tools: list[Any]) -> bytes:
    """The tool set: its order cannot change the answer, nor can marks of the prompt cache."""
    return b"\0".join(sorted(canonical(_unmarked(tool)) for tool in tools))


def _unmarked(value: Any) -> Any:
    """An object without nulls and cache marks, on its own level only: below may be a user's JSON schema."""
    if not isinstance(value, dict):
        return value
    return {key: part for key, part in value.items() if part is not None and key not in _MARKS}


def _said(raw: bytes) -> Item:
    """Input that is one text: the same as one message of the user."""
    text = msgspec.json.decode(raw)
    return item_of(b'{"role":"user","content":' + raw + b"}", {"role": "user", "content": text})


def item_of(raw: bytes, value: dict[str, Any]) -> Item:
    """An item of the input as the fingerprint sees it."""
    ids: list[str] = []
    shown = _shown(value)
    kind, role = value.get("type"), value.get("role")
    if kind in _NAMED_BY_ID:
        _rename(shown, "id", ids)
    for key in ("call_id", "approval_request_id"):
        _rename(shown, key, ids)
    if isinstance(shown.get("caller"), dict):
        shown["caller"] = dict(shown["caller"])
        _rename(shown["caller"], "caller_id", ids)
    answers = None
    if isinstance(kind, str) and kind.endswith("_output"):
        answers = value.get("call_id") or (value.get("id") if kind in _NAMED_BY_ID else None)
        role = "tool"
    return Item(
        raw,
        sha256(raw).digest(),
        sha256(canonical(shown)).digest(),
        role if isinstance(role, str) else "",
        tuple(ids),
        answers if isinstance(answers, str) else None,
    )


def _rename(shown: dict[str, Any], key: str, ids: list[str]) -> None:
    """Replace a call id by the place at which it stands in ``ids``."""
    call_id = shown.get(key)
    if isinstance(call_id, str):
        if call_id not in ids:
            ids.append(call_id)
        shown[key] = {"call": ids.index(call_id)}


def _shown(value: dict[str, Any]) -> dict[str, Any]:
    """An item without what cannot change the answer: its own id, which clients make up, nulls, marks, the turn's data.

    The id of a reference is all that it says, and the ids that others name are call ids: those stay.
    """
    shown = {key: part for key, part in _unmarked(value).items() if not key.endswith("metadata_passthrough")}
    kind = shown.get("type")
    refers = kind == "item_reference" or (kind is None and "role" not in shown)
    if not refers and kind not in _NAMED_BY_ID:
        shown.pop("id", None)
    for key in ("content", "output", "summary"):
        if isinstance(shown.get(key), list):
            shown[key] = [_unmarked(part) for part in shown[key]]
    if isinstance(shown.get("tools"), list):
        shown["tools"] = [_unmarked(tool) for tool in shown["tools"]]
    return shown


# --- volatile text ----------------------------------------------------------------------------------------------------


def _without_ids(value: dict[str, Any]) -> dict[str, Any]:
    shown = _shown(value)
    if shown.get("type") in _NAMED_BY_ID:
        shown.pop("id", None)
    for key in ("call_id", "approval_request_id"):
        shown.pop(key, None)
    if isinstance(shown.get("caller"), dict):
        shown["caller"] = {key: part for key, part in shown["caller"].items() if key != "caller_id"}
    return shown


def _mask(shown: dict[str, Any], literals: list[str]) -> None:
    """Mask what a message or a tool's output says, and the descriptions of tools that an item brings."""
    for key in ("content", "output"):
        said = shown.get(key)
        if isinstance(said, str):
            shown[key] = volatile.scrub(said, literals)
        elif isinstance(said, list):
            for part in said:
                for name in _TEXTS if isinstance(part, dict) else ():
                    if isinstance(part.get(name), str):
                        part[name] = volatile.scrub(part[name], literals)
    if "tools" in shown:
        _mask_descriptions(shown["tools"], literals)


def _mask_descriptions(value: Any, literals: list[str]) -> None:
    """Mask every description in a tool, those of its parameters too."""
    if isinstance(value, list):
        for part in value:
            _mask_descriptions(part, literals)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key == "description" and isinstance(part, str):
                value[key] = volatile.scrub(part, literals)
            else:
                _mask_descriptions(part, literals)


def _scrubbed_tools(tools: list[Any]) -> Scrubbed:
    """The tool set masked; its literals in the order of the masked tools, whatever order they were sent in."""
    found = []
    for tool in tools:
        literals: list[str] = []
        shown = _unmarked(tool)
        _mask_descriptions(shown, literals)
        found.append((canonical(shown), literals))
    found.sort(key=lambda pair: pair[0])
    said = b"\0".join(text for text, _ in found)
    return Scrubbed(digest_of((b"tools", said)), tuple(literal for _, own in found for literal in own), ())


def _readable(value: Any) -> Any:
    """A JSON value less what says nothing."""
    if isinstance(value, dict):
        return {key: _readable(part) for key, part in value.items() if key not in _UNSAID}
    return [_readable(part) for part in value] if isinstance(value, list) else value


_conversations = Conversations(item_of)
