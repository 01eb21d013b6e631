"""Owns changing the calls of an Anthropic message, and the request that goes on from one. Must not decide on calls.

Invariant: what was shown before the commit stays at the beginning; of a call that is taken out, and of arguments that
are replaced, nothing remains; the indices of blocks have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, OfferedTool, Shape, ToolCall, ToolResult
from agentstate.dialects import anthropic_shape, sse
from agentstate.dialects.anthropic_answer import StreamGate, event, judge_plain
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.rewriting import (
    appended,
    by_call,
    elements,
    encoded,
    line_ends_of,
    listed,
    loaded,
    member,
    pieces,
    spliced,
    with_data,
    with_elements,
    with_members,
)

# Tools that the provider runs. The agent runs all others, also those that the provider has defined and new ones.
_SERVERS = ("web_search", "web_fetch", "code_execution", "tool_search_tool", "mcp_toolset", "advisor")


# --- the answer -------------------------------------------------------------------------------------------------------


class _Plan:
    """What becomes of the calls, by their place among the blocks. ``said`` stands in the place of the first that is
    taken out; ``ends``: no call is left."""

    __slots__ = ("edits", "ends", "out", "said", "said_at")

    def __init__(self, calls: Sequence[ToolCall], changes: Mapping[tuple[int, int], Change], said: str) -> None:
        self.edits = {place: one.arguments for (_, place), one in changes.items() if one.arguments is not None}
        self.out = {place for (_, place), one in changes.items() if one.arguments is None}
        self.ends = all(call.index in self.out for call in calls)
        self.said = said
        self.said_at = min(self.out) if said and self.out else -1

    def stays(self, place: int) -> bool:
        return place not in self.out or place == self.said_at


def amended(shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
    """See ``dialects.base.Amending``. The text is a block of its own, in the place of the first call taken out.

    Raises ``ValueError`` for a change that is for no call of the answer.
    """
    if not changes:
        return body
    if not shape.stream:
        calls = judge_plain(body).calls
        return _message(body, _Plan(calls, by_call(calls, changes), said))
    gate = StreamGate()
    shown = len(gate.feed(body))
    calls = gate.finish().calls
    return _Stream(_Plan(calls, by_call(calls, changes), said)).amended(body, shown)


def _message(message: bytes, plan: _Plan) -> bytes:
    """A message object, amended."""
    changes: dict[str, bytes | None] = _ending(message, plan)
    array = member(message, "content")
    if array.startswith(b"["):
        changed: dict[int, Sequence[bytes]] = {}
        for place, block in enumerate(elements(array)):
            if place == plan.said_at:
                changed[place] = [b'{"type":"text","text":' + encoded(plan.said) + b"}"]
            elif place in plan.out:
                changed[place] = []
            elif place in plan.edits:
                changed[place] = [with_members(block, {"input": spliced(plan.edits[place])})]
        if changed:
            changes["content"] = with_elements(array, changed)
    return with_members(message, changes) if changes else message


def _ending(fields: bytes, plan: _Plan) -> dict[str, bytes | None]:
    """What to change of an object with a stop reason. Any other reason than calls holds as well without them."""
    if plan.ends and loaded(member(fields, "stop_reason")) == "tool_use":
        return {"stop_reason": b'"end_turn"'}
    return {}


class _Block:
    """A content block of a stream. ``place``: among all; ``index``: as the events say, ``new``: as they are to say;
    ``told``: it stands in ``message_start``; ``parts``: how many events hold a part of its input."""

    __slots__ = ("held", "index", "new", "parts", "place", "told", "written")

    def __init__(self, place: int, index: int, held: bool, told: bool = False) -> None:
        self.place = place
        self.index = self.new = index
        self.held = held
        self.told = told
        self.parts = 0
        self.written = False


class _Event:
    """An event as it was read. ``data``: empty where it is none of a message."""

    __slots__ = ("block", "data", "held", "kind", "part", "raw")

    def __init__(self, raw: bytes, held: bool) -> None:
        self.raw = raw
        self.held = held
        self.kind = ""
        self.data = b""
        self.block: _Block | None = None
        self.part = False


class _Stream:
    """Amends a stream, event by event."""

    __slots__ = ("_blocks", "_index", "_plan")

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._blocks: list[_Block] = []
        self._index: dict[int, _Block] = {}

    def amended(self, body: bytes, shown: int) -> bytes:
        found = []
        at = 0
        for raw in pieces(body):
            found.append(self._read(raw, at >= shown))
            at += len(raw)
        self._renumber()
        return b"".join(part for one in found for part in self._written(one))

    def _read(self, raw: bytes, held: bool) -> _Event:
        """Take note of an event, as the gate does."""
        found = _Event(raw, held)
        data = sse.data_of(raw)
        if data is None or not data.lstrip().startswith(b"{"):
            return found
        found.data = data
        kind = loaded(member(data, "type"))
        found.kind = kind if isinstance(kind, str) and kind else sse.name_of(raw).decode("utf-8", "replace")
        if found.kind == "message_start":
            for place in range(len(listed(member(data, "message"), "content"))):
                self._open(place, held, told=True)
        elif found.kind == "content_block_start":
            found.block = self._open(_number(data, len(self._blocks)), held)
        elif found.kind.startswith("content_block"):
            found.block = self._index.get(_number(data, len(self._blocks) - 1))
            found.part = bool(member(member(data, "delta"), "partial_json"))
            if found.block is not None and found.part:
                found.block.parts += 1
        return found

    def _open(self, index: int, held: bool, told: bool = False) -> _Block:
        block = self._index[index] = _Block(len(self._blocks), index, held, told)
        self._blocks.append(block)
        return block

    def _renumber(self) -> None:
        """Give the blocks that stay the indices that the blocks had, lowest first; those that were shown keep theirs.

        Indices may stand in any order, and begin anywhere.
        """
        held = [block for block in self._blocks if block.held]
        staying = [block for block in held if self._plan.stays(block.place)]
        free = sorted(block.index for block in held)
        for index, block in zip(free, sorted(staying, key=lambda block: block.index), strict=False):
            block.new = index

    def _written(self, found: _Event) -> Iterator[bytes]:
        """What stands in the place of an event."""
        if not found.held or not found.data:
            yield found.raw
        elif found.kind in ("message_start", "message_delta"):
            yield self._around(found)
        elif found.block is None:
            yield found.raw
        elif found.block.place in self._plan.out:
            if found.block.place == self._plan.said_at and found.kind == "content_block_start":
                yield from self._said(found, found.block.new)
        elif found.block.place in self._plan.edits:
            yield from self._edited(found, found.block, self._plan.edits[found.block.place])
        else:
            yield _numbered(found, found.block, {})

    def _around(self, found: _Event) -> bytes:
        """An event that tells of the message as a whole."""
        name = "message" if found.kind == "message_start" else "delta"
        part = member(found.data, name)
        if not part.startswith(b"{"):
            return found.raw
        if name == "message":
            changed = _message(part, self._plan)
        else:
            ending = _ending(part, self._plan)
            changed = with_members(part, ending) if ending else part
        return found.raw if changed == part else with_data(found.raw, with_members(found.data, {name: changed}))

    def _said(self, found: _Event, index: int) -> Iterator[bytes]:
        begun = b'"index":%d,"content_block":{"type":"text","text":""}' % index
        grown = b'"index":%d,"delta":{"type":"text_delta","text":%b}' % (index, encoded(self._plan.said))
        for kind, fields in (
            (b"content_block_start", begun),
            (b"content_block_delta", grown),
            (b"content_block_stop", b'"index":%d' % index),
        ):
            yield _ours(kind, fields, found.raw)

    def _edited(self, found: _Event, block: _Block, arguments: str) -> Iterator[bytes]:
        """An event of a call with other arguments: they stand as a whole where the first part of the old ones stood."""
        if found.kind == "content_block_delta":
            if found.part and not block.written and not block.told:
                block.written = True
                delta = with_members(member(found.data, "delta"), {"partial_json": encoded(arguments)})
                yield _numbered(found, block, {"delta": delta})
            return
        begun = member(found.data, "content_block")
        changes: dict[str, bytes | None] = {}
        if begun.startswith(b"{") and member(begun, "input") not in (b"", b"{}"):
            changes["content_block"] = with_members(begun, {"input": b"{}"})
        yield _numbered(found, block, changes)
        if found.kind == "content_block_start" and not block.parts:
            delta = b'"delta":{"type":"input_json_delta","partial_json":' + encoded(arguments) + b"}"
            yield _ours(b"content_block_delta", b'"index":%d,%b' % (block.new, delta), found.raw)


def _number(data: bytes, otherwise: int) -> int:
    """The index that an event names, as leniently as the gate takes it."""
    try:
        found = msgspec.json.decode(member(data, "index") or b"null", type=int | None, strict=False)
    except UNREADABLE:
        return otherwise
    return otherwise if found is None else found


def _numbered(found: _Event, block: _Block, changes: dict[str, bytes | None]) -> bytes:
    """The event with the new index of its block, and other changes; the very bytes where nothing changes."""
    if block.new != block.index:
        changes["index"] = b"%d" % block.new
    return with_data(found.raw, with_members(found.data, changes)) if changes else found.raw


def _ours(kind: bytes, fields: bytes, model: bytes) -> bytes:
    return line_ends_of(event(kind, b'{"type":"' + kind + b'",' + fields + b"}"), model)


# --- the request ------------------------------------------------------------------------------------------------------


def offered(call: Call) -> tuple[OfferedTool, ...]:
    """See ``dialects.base.Amending``. Tools that the provider defines and the agent runs have no schema here."""
    found = []
    for raw in listed(call.body, "tools"):
        name, kind = loaded(member(raw, "name")), loaded(member(raw, "type"))
        if not isinstance(name, str) or (isinstance(kind, str) and kind.startswith(_SERVERS)):
            continue
        found.append(OfferedTool(name, member(raw, "input_schema").decode("utf-8", "replace")))
    return tuple(found)


def results(call: Call) -> tuple[ToolResult, ...]:
    """See ``dialects.base.Amending``. A prefilled beginning of the answer, which ends the list, is no answer."""
    raws = [item.raw for item in call.items] or listed(call.body, "messages")
    after: list[bytes] = []
    for raw in reversed(raws):
        if loaded(member(raw, "role")) != "assistant":
            after.append(raw)
        elif after or any(str(loaded(member(block, "type"))).endswith("_use") for block in listed(raw, "content")):
            break
    return tuple(
        _result(block)
        for raw in reversed(after)
        for block in listed(raw, "content")
        if loaded(member(block, "type")) == "tool_result"
    )


def _result(block: bytes) -> ToolResult:
    content = member(block, "content")
    text: Any = loaded(content) if content.startswith(b'"') else None
    parts = elements(content) if content.startswith(b"[") else []
    if len(parts) == 1 and loaded(member(parts[0], "type")) == "text":
        text = loaded(member(parts[0], "text"))  # says the same as a bare text
    return ToolResult(
        str(loaded(member(block, "tool_use_id")) or ""),
        text if isinstance(text, str) else content.decode("utf-8", "replace"),
        loaded(member(block, "is_error")) is True,
    )


def continued(call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
    """See ``dialects.base.Amending``. Raises ``ValueError`` where the results are not those of the answer's calls."""
    plain = anthropic_shape.convert(shape, Shape(), body)
    calls = judge_plain(plain).calls
    if not calls or sorted(one.call_id for one in calls) != sorted(one.call_id for one in results):
        raise ValueError("there must be one result for each call of the answer")
    # A text of nothing, which providers do write, is refused when it comes back.
    said = [block for block in listed(plain, "content") if not _is_empty(block)]
    answer = b'{"role":"assistant","content":[' + b",".join(said) + b"]}"
    answers = b'{"role":"user","content":[' + b",".join(told(one) for one in results) + b"]}"
    return appended(call.body, "messages", [answer, answers])


def _is_empty(block: bytes) -> bool:
    return loaded(member(block, "type")) == "text" and not loaded(member(block, "text"))


def told(result: ToolResult) -> bytes:
    fields = b'{"type":"tool_result","tool_use_id":' + encoded(result.call_id)
    if result.content:
        fields += b',"content":' + encoded(result.content)
    return fields + (b',"is_error":true}' if result.failed else b"}")
