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

_LEGACY_ID = "function"
_CUT_BY_LIMIT = frozenset({"length", "content_filter"})


class _Delta(msgspec.Struct):
    tool_calls: list[dict[str, Any]] | None = None
    function_call: dict[str, Any] | None = None


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
        self._calls: dict[tuple[int, int], dict[str, str]] = {}

    @property
    def done(self) -> bool:
        return self._done

    def finish(self) -> Verdict:
        self._read_rest()
        calls = tuple(
            ToolCall(choice, index, call["id"], call["name"], call["arguments"])
            for (choice, index), call in sorted(self._calls.items())
        )
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
                    self._tool(choice.index, call)
            if choice.delta.function_call:
                free = False
                self._tool(choice.index, {"index": -1, "id": _LEGACY_ID, "function": choice.delta.function_call})
        return free

    def _tool(self, choice: int, call: dict[str, Any]) -> None:
        index = call.get("index")
        call_id = call.get("id") or ""
        if not isinstance(index, int):
            # Some providers send whole calls without an index: a new id starts a new call.
            mine = [key for key in self._calls if key[0] == choice]
            same = [key for key in mine if self._calls[key]["id"] == call_id]
            last = max((key[1] for key in mine), default=-1)
            function = call.get("function")
            begins = bool(call_id) or (isinstance(function, dict) and bool(function.get("name")))
            index = same[-1][1] if same and call_id else (last if not begins and mine else last + 1)
        known = self._calls.setdefault((choice, index), {"id": "", "name": "", "arguments": "", "custom": ""})
        known["id"] = known["id"] or str(call_id)
        function = call.get("function")
        if isinstance(function, dict):
            known["name"] = known["name"] or str(function.get("name") or "")
            known["arguments"] += text_of(function.get("arguments"))
        custom = call.get("custom")
        if isinstance(custom, dict):
            known["name"] = known["name"] or str(custom.get("name") or "")

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
                    self._tool(index, call)
        if value.get("usage"):
            self._usage = msgspec.json.encode(value["usage"])
        return False


def _proposed(delta: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a delta, the legacy one among them, in the form of tool calls."""
    calls = delta.get("tool_calls")
    found = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    legacy = delta.get("function_call")
    if isinstance(legacy, dict):
        found.append({"index": -1, "id": _LEGACY_ID, "function": legacy})
    return found


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
        named = function or call.get("custom") or {}
        name = str(named.get("name") or "") if isinstance(named, dict) else ""
        arguments = text_of(function.get("arguments")) if function else ""
        found.append(ToolCall(choice, index, str(call.get("id") or ""), name, arguments))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        found.append(ToolCall(choice, -1, _LEGACY_ID, str(legacy.get("name") or ""), text_of(legacy.get("arguments"))))
    return found
