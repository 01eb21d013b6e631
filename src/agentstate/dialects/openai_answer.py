"""Owns judging an OpenAI chat answer, whole or while it streams. Must not change its bytes.

Invariant: an answer is finished only when every choice has a finish reason and every tool call's arguments parse;
``[DONE]`` proves nothing. Text may be shown while it streams; finish reasons, tool calls and whatever follows may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from agentstate.core.model import ToolCall, Verdict
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.openai_signs import signs_call
from agentstate.dialects.splice import value_of

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
    message: msgspec.Raw = msgspec.Raw(b"")


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    model: str | None = None
    service_tier: str | None = None


_decode_chunk = msgspec.json.Decoder(_Chunk)
_NOTHING = (b"", b"null")
# Something at a place of a call that is no call: taken for one whose name cannot be told, so that policies hold it.
_ODD: dict[str, Any] = {"function": "odd"}


class _Growing:
    """One call of a stream, as its pieces have told it so far."""

    __slots__ = ("arguments", "custom", "id", "input", "joined", "name", "names", "odd", "plain")

    def __init__(self, joined: str) -> None:
        """``joined``: the name that a client which adds up all calls of one index has before this call begins."""
        self.id = self.name = self.arguments = self.input = ""
        self.names: list[str] = []
        self.joined = joined
        self.plain = self.custom = self.odd = False

    def add(self, call: dict[str, Any]) -> None:
        self.id = self.id or str(call.get("id") or "")
        function, custom = call.get("function"), call.get("custom")
        self.odd = self.odd or any(part and not isinstance(part, dict) for part in (function, custom))
        if isinstance(function, dict):
            self.plain = True
            self._called(function.get("name"))
            self.arguments += text_of(function.get("arguments"))
        if isinstance(custom, dict):
            self.custom = True
            self._called(custom.get("name"))
            self.input += text_of(custom.get("input"))

    def _called(self, name: Any) -> None:
        if name and not isinstance(name, str):
            self.odd = True
        elif name:
            self.names.append(name)
            self.name = grown_name(self.name, name)

    def whole(self, choice: int, index: int) -> ToolCall:
        if self.odd or (self.plain and self.custom):
            return ToolCall(choice, index, self.id, "", self.arguments or custom_arguments(self.input))
        readings = ("".join(self.names), *self.names[:1], *self.names[-1:], self.joined + self.name)
        also = tuple(dict.fromkeys(name for name in readings if name != self.name))
        arguments = custom_arguments(self.input) if self.custom else self.arguments
        return ToolCall(choice, index, self.id, self.name, arguments, also)


class GrowingCalls:
    """The tool calls of a stream as they grow from piece to piece, by (choice, place).

    The place is the index that the provider gives, unless it gives one to several calls: a piece with a new id and a
    name begins a call of its own, whatever its index.
    """

    __slots__ = ("_at", "_calls")

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], _Growing] = {}
        self._at: dict[tuple[int, int], int] = {}  # (choice, index as the provider gives it) -> place

    def add(self, choice: int, call: dict[str, Any]) -> tuple[int, int]:
        """Take note of a piece of a call; the (choice, place) of the call that it belongs to."""
        index = call.get("index")
        joined = ""
        if isinstance(index, int):
            at = self._at.get((choice, index))
            known = None if at is None else self._calls[choice, at]
            if known is None or _begins(known, call):
                # What a client that goes by the index alone takes for one call, as far as nothing tells the two apart.
                joined = "" if known is None or known.arguments or known.input else known.joined + known.name
                at = index if (choice, index) not in self._calls else self._last(choice) + 1
            self._at[choice, index] = place = at if at is not None else index
        else:
            place = self._unnumbered(choice, call)
        if (choice, place) not in self._calls:
            self._calls[choice, place] = _Growing(joined)
        self._calls[choice, place].add(call)
        return choice, place

    def whole(self) -> tuple[ToolCall, ...]:
        return tuple(call.whole(*place) for place, call in sorted(self._calls.items(), key=itemgetter(0)))

    def _last(self, choice: int) -> int:
        return max((place for at, place in self._calls if at == choice), default=-1)

    def _unnumbered(self, choice: int, call: dict[str, Any]) -> int:
        # Some providers send whole calls without an index: a new id starts a new call.
        call_id = call.get("id") or ""
        mine = [key for key in self._calls if key[0] == choice]
        same = [key for key in mine if self._calls[key].id == call_id]
        last = self._last(choice)
        begins = bool(call_id) or _names(call)
        return same[-1][1] if same and call_id else (last if not begins and mine else last + 1)


def _names(call: dict[str, Any]) -> bool:
    """Whether a piece of a call tells a name, or a part of one."""
    return any(isinstance(part, dict) and part.get("name") for part in (call.get("function"), call.get("custom")))


def _begins(known: _Growing, call: dict[str, Any]) -> bool:
    """Whether a piece of a call with a known index is the beginning of another call nonetheless."""
    call_id = str(call.get("id") or "")
    return bool(call_id) and call_id != known.id and bool(known.id or known.name) and _names(call)


def grown_name(old: str, new: str) -> str:
    """A tool's name with another piece of it. Some providers send it in pieces, others all of it with every piece."""
    return old if new == old else old + new


def custom_arguments(text: str) -> str:
    """The input of a custom tool, which is free text, as arguments."""
    return msgspec.json.encode({"input": text}).decode()


class StreamGate(sse.Holding):
    """Reads a chat stream event by event; see ``dialects.base.Gate``."""

    __slots__ = ("_calls", "_choices", "_done", "_fault", "_finish", "_messages", "_model", "_seen", "_tier", "_usage")

    def __init__(self, choices: int = 1) -> None:
        super().__init__()
        self._choices = choices
        self._done = False
        self._fault = self._model = self._tier = ""
        self._usage = b""
        self._finish: dict[int, str] = {}
        self._seen: set[int] = set()
        self._calls = GrowingCalls()
        self._messages: list[ToolCall] = []  # calls in messages, where a stream should have deltas

    @property
    def done(self) -> bool:
        return self._done

    def finish(self) -> Verdict:
        self._read_rest()
        calls = _with_more(self._calls.whole(), self._messages)
        finish = tuple(self._finish.get(choice, "") for choice in sorted(self._seen))
        unreadable, broken = _unreadable(calls, self._finish)
        fault = self._fault or self._unfinished() or unreadable
        usage = self._usage.decode("utf-8", "replace")
        return Verdict(fault, self._model, usage, calls, finish, broken, tier=self._tier)

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
        self._model, self._tier = chunk.model or self._model, chunk.service_tier or self._tier
        free = True
        if bytes(chunk.usage) not in _NOTHING:
            self._usage, free = bytes(chunk.usage), bool(chunk.choices)  # it may have to be taken out
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
        if bytes(choice.message) not in _NOTHING:
            message = value_of(bytes(choice.message))
            free = self._message(choice.index, "odd" if message is None else message) and free
        return free

    def _message(self, choice: int, message: Any) -> bool:
        """Take note of a whole message in a stream; whether it may be shown before the commit."""
        calls = _calls_of(choice, message)
        self._messages.extend(calls)
        return not calls

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
        choices = value.get("choices") or []
        for choice in choices if isinstance(choices, list) else ["odd"]:
            if choice is not None:
                self._odd_choice(choice if isinstance(choice, dict) else {"delta": "odd"})
        if value.get("usage"):
            self._usage = msgspec.json.encode(value["usage"])
        return False

    def _odd_choice(self, choice: dict[str, Any]) -> None:
        place = choice.get("index")
        index = place if isinstance(place, int) else 0
        self._seen.add(index)
        if choice.get("finish_reason") is not None:
            self._finish[index] = str(choice["finish_reason"])
        for call in _proposed(choice.get("delta")):
            self._calls.add(index, call)
        self._message(index, choice.get("message"))


def _proposed(delta: Any) -> list[dict[str, Any]]:
    """The tool calls of a delta, the legacy one among them, in the form of tool calls."""
    if not isinstance(delta, dict):
        return [_ODD] if delta else []
    calls, legacy = delta.get("tool_calls") or (), delta.get("function_call")
    found = [
        call if isinstance(call, dict) else _ODD
        for call in (calls if isinstance(calls, list) else (_ODD,) * bool(calls))
    ]
    if legacy:
        found.append(legacy_call(legacy) if isinstance(legacy, dict) else _ODD)
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
        calls.extend(_with_more(_calls_of(place, message), _calls_of(place, choice.get("delta"))))
    model, usage, tier = value.get("model"), value.get("usage"), value.get("service_tier")
    unreadable, broken = _unreadable(tuple(calls), finish)
    return Verdict(
        unreadable,
        model if isinstance(model, str) else "",
        msgspec.json.encode(usage).decode() if isinstance(usage, dict) else "",
        tuple(calls),
        tuple(finish.values()),
        broken,
        tier=tier if isinstance(tier, str) else "",
    )


def _calls_of(choice: int, message: Any) -> list[ToolCall]:
    """The calls of a whole message; what is no call at a place of one is a call whose name cannot be told."""
    if not isinstance(message, dict):
        return [_call(choice, 0, _ODD)] if message else []
    calls, legacy = message.get("tool_calls") or (), message.get("function_call")
    if not isinstance(calls, list):
        calls = (_ODD,) if calls else ()
    found = [_call(choice, index, call) for index, call in enumerate(calls) if call is not None]
    if legacy or isinstance(legacy, dict):
        found.append(_call(choice, LEGACY_INDEX, legacy_call(legacy)))
    return found


def _call(choice: int, index: int, call: Any) -> ToolCall:
    growing = _Growing("")
    growing.add(call if isinstance(call, dict) else _ODD)
    return growing.whole(choice, index)


def _with_more(calls: Sequence[ToolCall], more: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    """``calls`` and those of ``more`` that repeat none of them, at places of their own."""
    found = list(calls)
    for call in more:
        if not any((call.choice, call.call_id, call.name, call.arguments)
                   == (one.choice, one.call_id, one.name, one.arguments) for one in found):  # fmt: skip
            place = max((one.index for one in found if one.choice == call.choice), default=-1) + 1
            found.append(replace(call, index=place))
    return tuple(sorted(found, key=attrgetter("choice", "index")))
