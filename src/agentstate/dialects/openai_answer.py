"""Owns judging an OpenAI chat answer, whole or while it streams. Must not change its bytes.

Invariant: an answer is finished only when every choice has a finish reason and every tool call's arguments parse;
``[DONE]`` proves nothing. Text may be shown while it streams; finish reasons, tool calls and whatever follows may not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentstate.core.model import ToolCall, Verdict
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.openai_signs import signs_call

LEGACY_ID = "function"  # the call id and the index by which the one call of the legacy form is known
LEGACY_INDEX = -1
_CUT_BY_LIMIT = frozenset({"length", "content_filter"})


class _Delta(msgspec.Struct):
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None
    reasoning_details: msgspec.Raw = msgspec.Raw(b"")


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    model: str | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk)
_NOTHING = (b"", b"null")


class GrowingCalls:
    """The tool calls of a stream as they grow from piece to piece, by (choice, index)."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], dict[str, str]] = {}

    def add(self, choice: int, call: dict[str, Any]) -> tuple[int, int]:
        """Take note of a piece of a call; the (choice, index) of the call that it belongs to."""
        place = choice, self._index(choice, call)
        known = self._calls.setdefault(place, {"id": "", "name": "", "arguments": "", "input": "", "custom": ""})
        known["id"] = known["id"] or str(call.get("id") or "")
        function, custom = call.get("function"), call.get("custom")
        if isinstance(function, dict):
            known["name"] = grown_name(known["name"], str(function.get("name") or ""))
            known["arguments"] += text_of(function.get("arguments"))
        if isinstance(custom, dict):
            known["custom"] = "custom"
            known["name"] = grown_name(known["name"], str(custom.get("name") or ""))
            known["input"] += text_of(custom.get("input"))
        return place

    def whole(self) -> tuple[ToolCall, ...]:
        return tuple(
            ToolCall(
                choice, index, call["id"], call["name"],
                custom_arguments(call["input"]) if call["custom"] and not call["arguments"] else call["arguments"],
            )
            for (choice, index), call in sorted(self._calls.items())
        )  # fmt: skip

    def _index(self, choice: int, call: dict[str, Any]) -> int:
        index = call.get("index")
        if isinstance(index, int):
            return index
        # Some providers send whole calls without an index: a new id starts a new call.
        call_id = call.get("id") or ""
        mine = [key for key in self._calls if key[0] == choice]
        same = [key for key in mine if self._calls[key]["id"] == call_id]
        last = max((key[1] for key in mine), default=-1)
        named = [part for part in (call.get("function"), call.get("custom")) if isinstance(part, dict)]
        begins = bool(call_id) or any(part.get("name") for part in named)
        return same[-1][1] if same and call_id else (last if not begins and mine else last + 1)


def grown_name(old: str, new: str) -> str:
    """A tool's name with another piece of it. Some providers send it in pieces, others all of it with every piece."""
    return old if new == old else old + new


def custom_arguments(text: str) -> str:
    """The input of a custom tool, which is free text, as arguments."""
    return msgspec.json.encode({"input": text}).decode()


class StreamGate(sse.Holding):
    """Reads a chat stream event by event; see ``dialects.base.Gate``."""

    __slots__ = ("_calls", "_choices", "_done", "_fault", "_finish", "_model", "_seen", "_usage")

    def __init__(self, choices: int = 1) -> None:
        super().__init__()
        self._choices = choices
        self._done = False
        self._fault = ""
        self._model = ""
        self._usage = b""
        self._finish: dict[int, str] = {}
        self._seen: set[int] = set()
        self._calls = GrowingCalls()

    @property
    def done(self) -> bool:
        return self._done

    def finish(self) -> Verdict:
        self._read_rest()
        calls = self._calls.whole()
        finish = tuple(self._finish.get(choice, "") for choice in sorted(self._seen))
        unreadable, broken = _unreadable(calls, self._finish)
        fault = self._fault or self._unfinished() or unreadable
        return Verdict(fault, self._model, self._usage.decode("utf-8", "replace"), calls, finish, broken)

    def heartbeat(self) -> bytes:
        return sse.KEEP_ALIVE

    def _unfinished(self) -> str:
        if not self._seen:
            return "the stream ended without any choice"
        open_ = sorted(self._seen - set(self._finish))
        if open_:
            return f"the stream ended before choice {open_[0]} was finished"
        if len(self._seen) < self._choices and not self._done:
            return f"the stream ended after {len(self._seen)} of {self._choices} choices"
        return ""

    def _read(self, event: bytes) -> bool:
        data = sse.data_of(event)
        if data is None:
            return True
        if data.strip() == b"[DONE]":
            self._done = True
            return False
        try:
            chunk = _decode_chunk.decode(data)
        except msgspec.ValidationError:
            return self._read_odd(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._fault = self._fault or "the stream holds an event that is not JSON"
            return False
        if bytes(chunk.error) not in _NOTHING:
            self._fault = (
                self._fault or f"the provider broke off: {bytes(chunk.error)[:500].decode('utf-8', 'replace')}"
            )
            return False
        if chunk.model:
            self._model = chunk.model
        if bytes(chunk.usage) not in _NOTHING:
            self._usage = bytes(chunk.usage)
        free = True
        for choice in chunk.choices or ():
            free = self._choice(choice) and free
        return free

    def _choice(self, choice: _Choice) -> bool:
        self._seen.add(choice.index)
        free = True
        if choice.finish_reason is not None:
            self._finish[choice.index] = choice.finish_reason
            free = False
        if choice.delta is not None:
            if choice.delta.tool_calls:
                free = False
                for call in choice.delta.tool_calls:
                    self._calls.add(choice.index, call)
            if choice.delta.function_call:
                free = False
                self._calls.add(choice.index, legacy_call(choice.delta.function_call))
            if signs_call(choice.delta.reasoning_details):
                free = False
        return free

    def _read_odd(self, data: bytes) -> bool:
        """A JSON event whose fields have unusual types: held, and judged by what is usual in it."""
        try:
            value = msgspec.json.decode(data)
        except UNREADABLE:
            value = None
        if not isinstance(value, dict):
            self._fault = self._fault or "the stream holds an event that is not a JSON object"
            return False
        error = value.get("error")
        if error:
            self._fault = self._fault or f"the provider broke off: {str(error)[:500]}"
            return False
        for choice in value.get("choices") or ():
            if isinstance(choice, dict):
                place = choice.get("index")
                index = place if isinstance(place, int) else 0
                self._seen.add(index)
                if choice.get("finish_reason") is not None:
                    self._finish[index] = str(choice["finish_reason"])
                delta = choice.get("delta")
                for call in _proposed(delta) if isinstance(delta, dict) else ():
                    self._calls.add(index, call)
        if value.get("usage"):
            self._usage = msgspec.json.encode(value["usage"])
        return False


def _proposed(delta: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a delta, the legacy one among them, in the form of tool calls."""
    calls = delta.get("tool_calls")
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    legacy = delta.get("function_call")
    if isinstance(legacy, dict) and legacy:
        found.append(legacy_call(legacy))
    return found


def legacy_call(function: dict[str, Any]) -> dict[str, Any]:
    """The one call of the legacy form, as a tool call."""
    return {"index": LEGACY_INDEX, "id": LEGACY_ID, "function": function}


def text_of(arguments: Any) -> str:
    """Tool arguments as text; some providers send an object where the schema says text."""
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _unreadable(calls: tuple[ToolCall, ...], finish: dict[int, str]) -> tuple[str, bool]:
    """(fault, whether a token limit cut arguments) of calls whose arguments are not JSON.

    Where a limit cut them, the finish reason says so, and it is no fault.
    """
    broken = False
    for call in calls:
        if not call.arguments.strip():
            continue
        try:
            msgspec.json.decode(call.arguments)
        except UNREADABLE:
            if finish.get(call.choice) not in _CUT_BY_LIMIT:
                return f"the arguments of the call of tool {call.name!r} are not JSON", False
            broken = True
    return "", broken


def judge_plain(body: bytes) -> Verdict:
    """Judge a whole completion object."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        start = body.lstrip()[:1]
        return Verdict("the answer is an HTML page" if start == b"<" else "the answer is not JSON")
    if not isinstance(value, dict):
        return Verdict("the answer is not a JSON object")
    if value.get("error"):
        return Verdict(f"the provider answered an error under status 200: {str(value['error'])[:500]}")
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices:
        return Verdict("the answer has no choices")
    calls: list[ToolCall] = []
    finish: dict[int, str] = {}
    for place, choice in enumerate(choices):
        if not isinstance(choice, dict) or choice.get("finish_reason") is None:
            return Verdict(f"choice {place} of the answer is not finished")
        finish[place] = str(choice["finish_reason"])
        message = choice.get("message")
        calls.extend(_calls_of(place, message if isinstance(message, dict) else {}))
    model, usage = value.get("model"), value.get("usage")
    unreadable, broken = _unreadable(tuple(calls), finish)
    return Verdict(
        unreadable,
        model if isinstance(model, str) else "",
        msgspec.json.encode(usage).decode() if isinstance(usage, dict) else "",
        tuple(calls),
        tuple(finish.values()),
        broken,
    )


def _calls_of(choice: int, message: dict[str, Any]) -> list[ToolCall]:
    found = []
    for index, call in enumerate(message.get("tool_calls") or ()):
        if not isinstance(call, dict):
            continue
        function = call.get("function") if isinstance(call.get("function"), dict) else None
        custom = call.get("custom") if isinstance(call.get("custom"), dict) else None
        name = str((function or custom or {}).get("name") or "")
        arguments = text_of(function.get("arguments")) if function else ""
        if custom is not None and not arguments:
            arguments = custom_arguments(text_of(custom.get("input")))
        found.append(ToolCall(choice, index, str(call.get("id") or ""), name, arguments))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(
            ToolCall(choice, LEGACY_INDEX, LEGACY_ID, str(legacy.get("name") or ""), text_of(legacy.get("arguments")))
        )
    return found
