"""Owns judging an answer of OpenAI's Responses API, whole or while it streams. Must not change its bytes.

Invariant: an answer is finished only when the provider's own last word says ``completed`` or ``incomplete`` and the
arguments of every call parse. Text may be shown while it streams; what the agent is to run, the last word and whatever
follows may not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from agentstate.core.model import Call, ToolCall, Verdict
from agentstate.dialects import sse
from agentstate.dialects.base import UNREADABLE, list_of
from agentstate.dialects.openai_answer import custom_arguments
from agentstate.dialects.responses_event import encoded, failed_events
from agentstate.dialects.responses_items import identity, merged
from agentstate.errors import AgentStateError

# Items that the agent itself is to act on. ``is_for_agent`` judges others whose name ends so.
FOR_AGENT = frozenset({"function_call", "custom_tool_call", "mcp_approval_request", "local_shell_call", "computer_call",
                       "apply_patch_call"})  # fmt: skip
# Items that the provider runs by itself.
FOR_PROVIDER = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"}
)
_KNOWN = FOR_AGENT | {"tool_search_call", "shell_call"}
BEGUN = frozenset({"response.created", "response.queued", "response.in_progress"})
ENDED = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TEXT = "response.output_text.delta"  # by far the most frequent event
_NOTHING = (b"", b"null")
# Kinds of call whose arguments are JSON text; those of others are free text, or JSON by nature.
ARGUED = ("function_call", "mcp_approval_request")
SAID_IN = ("arguments", "input", "action", "actions", "operation")  # where a call has its arguments: the first there is


class Response(msgspec.Struct):
    """The fields of a response object that matter here, as raw JSON, so that none of an odd type is a surprise."""

    object: msgspec.Raw = msgspec.Raw(b"")
    id: msgspec.Raw = msgspec.Raw(b"")
    status: msgspec.Raw = msgspec.Raw(b"")
    model: msgspec.Raw = msgspec.Raw(b"")
    output: msgspec.Raw = msgspec.Raw(b"")
    usage: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    incomplete_details: msgspec.Raw = msgspec.Raw(b"")
    store: msgspec.Raw = msgspec.Raw(b"")
    service_tier: msgspec.Raw = msgspec.Raw(b"")


class Event(msgspec.Struct):
    """The fields of an event that matter here."""

    type: str = ""
    item: msgspec.Raw = msgspec.Raw(b"")
    response: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")
    sequence_number: msgspec.Raw = msgspec.Raw(b"")
    output_index: int = -1


class _Stored(msgspec.Struct):
    store: bool | None = None


_decode_event = msgspec.json.Decoder(Event)
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decode_response = msgspec.json.Decoder(Response)


class ResponsesGate(sse.Holding):
    """Reads a Responses stream event by event; see ``dialects.base.Gate``."""

    __slots__ = ("_added", "_beat", "_body", "_done", "_ended", "_fault", "_finished", "_last")

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._body = call.body
        self._done = False
        self._fault = ""
        self._last: Event | None = None  # the event that was read last, where it speaks of the whole response
        self._beat: tuple[bytes, Event] | None = None  # the last of those that was shown
        self._ended: tuple[str, Response] | None = None
        self._added: dict[int, dict[str, Any]] = {}
        self._finished: list[tuple[int, dict[str, Any]]] = []

    @property
    def done(self) -> bool:
        return self._done

    def feed(self, data: bytes) -> bytes:
        free = []
        for event in self._parser.feed(data):
            visible = self._read(event)
            if self._held or not visible:
                self._held = True
                continue
            free.append(event)
            if self._last is not None:
                self._beat = event, self._last
                self._last = None
        return b"".join(free)

    def finish(self) -> Verdict:
        self._read_rest()
        if self._fault:
            return Verdict(self._fault)
        if self._ended is None:
            return Verdict("the stream ended before the response was finished")
        kind, response = self._ended
        output = items_of(response.output)
        if not output:
            # Some providers leave the output out of the last event: it is what the stream said before.
            missing = self._added.keys() - {place for place, _ in self._finished}
            if missing and kind == "response.completed":
                return Verdict(f"the stream ended before output item {min(missing)} was finished")
        status = text_in(response.status) or kind.removeprefix("response.")
        items = merged(output, self._finished)
        # A call that was begun and never ended is one too: its pieces are in the stream, and cannot be taken out.
        known = {place for place, _ in self._finished}, {identity(item) for item in output}
        begun = [one for at, one in self._added.items() if at not in known[0] and identity(one) not in known[1]]
        after = 1 + max((place for place, _ in items), default=-1)
        items += enumerate(filter(is_for_agent, begun), after)
        return settled(response, items, status, keeps(self._body))

    def heartbeat(self) -> bytes:
        """The last lifecycle event that was shown, as ``response.in_progress``.

        Its sequence number is repeated: a number never given yet would take that of an event still to come, and no
        SDK minds a repeated one (they use it only to leave out what is not newer than a place asked for).
        """
        if self._beat is None:
            return b""
        event, read = self._beat
        if read.type == "response.in_progress":
            return event
        number = bytes(read.sequence_number)
        return encoded(
            "response.in_progress",
            b'{"type":"response.in_progress",'
            + (b'"sequence_number":' + number + b"," if number not in _NOTHING else b"")
            + b'"response":' + bytes(read.response) + b"}",
        )  # fmt: skip

    def failure(self, error: AgentStateError) -> bytes:
        """An error of ours as the end of the response that has begun."""
        begun = None if self._beat is None else loaded(bytes(self._beat[1].response))
        return failed_events(error, begun if isinstance(begun, dict) else None)

    def _read(self, event: bytes) -> bool:
        """Take note of an event; whether it may be shown before the commit."""
        data = sse.data_of(event)
        if data is None:
            return True
        self._last = None
        if data[:1] != b"{" and data.strip() == b"[DONE]":
            self._done = True
            return False
        usual = True
        try:
            read = _decode_event.decode(data)
        except msgspec.ValidationError:
            usual = False
            odd = odd_event(data)
            if odd is None:
                self._fault = self._fault or "the stream holds an event that is not a JSON object"
                return False
            read = odd
        except UNREADABLE:
            self._fault = self._fault or "the stream holds an event that is not JSON"
            return False
        kind = read.type or sse.name_of(event).decode("utf-8", "replace")
        read.type = kind
        if kind == _TEXT:
            return usual and bytes(read.error) in _NOTHING
        return self._note(kind, read, data) and usual

    def _note(self, kind: str, read: Event, data: bytes) -> bool:
        if kind in ENDED:
            return self._end(kind, read)
        if kind == "error" or bytes(read.error) not in _NOTHING:
            told = bytes(read.error) if bytes(read.error) not in _NOTHING else data
            self._fault = self._fault or f"the provider broke off: {told[:500].decode('utf-8', 'replace')}"
            return False
        if kind in BEGUN:
            return self._begin(read)
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(kind, read)
        return not of_a_call(kind)

    def _begin(self, read: Event) -> bool:
        if bytes(read.response)[:1] != b"{":
            return True
        response = _decode_response.decode(read.response)
        self._last = read
        return not any(is_for_agent(item) for item in items_of(response.output))

    def _end(self, kind: str, read: Event) -> bool:
        try:
            self._ended = kind, _decode_response.decode(read.response)
        except UNREADABLE:
            self._fault = self._fault or f"the event {kind} holds no response"
        self._done = True
        return False

    def _item(self, kind: str, read: Event) -> bool:
        if bytes(read.item) in _NOTHING:
            return True
        item = loaded(read.item)
        if not isinstance(item, dict):
            return False
        place = read.output_index if read.output_index >= 0 else len(self._finished)
        if kind == "response.output_item.done":
            self._finished.append((place, item))
        else:
            self._added[place] = item
        return not is_for_agent(item)


def odd_event(data: bytes) -> Event | None:
    """An event whose fields have unusual types, by what is usual in it. ``None``: it is no JSON object."""
    try:
        fields = _decode_fields.decode(data)
    except UNREADABLE:
        return None
    item, response, error = (fields.get(name, msgspec.Raw(b"")) for name in ("item", "response", "error"))
    return Event(text_in(fields.get("type", msgspec.Raw(b""))), item, response, error)


@lru_cache(256)
def of_a_call(kind: str) -> bool:
    """Whether an event, by its name, holds a part of a call that is not the provider's own to run."""
    name, found, _ = kind.removeprefix("response.").partition("_call")
    return bool(found) and name + found not in FOR_PROVIDER


# --- items ------------------------------------------------------------------------------------------------------------


def loaded(raw: msgspec.Raw | bytes) -> Any:
    """A JSON value; one that a strict parser refuses, as a lenient one reads it. ``None``: no JSON at all."""
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        try:
            return json.loads(bytes(raw))
        except (ValueError, RecursionError):
            return None


def text_in(raw: msgspec.Raw) -> str:
    """The text that a raw JSON value is; empty when it is none."""
    value = loaded(raw) if bytes(raw)[:1] == b'"' else None
    return value if isinstance(value, str) else ""


def items_of(output: msgspec.Raw) -> list[dict[str, Any]]:
    """The objects in a list of output items."""
    found = [loaded(raw) for raw in list_of(output) or ()]
    return [item for item in found if isinstance(item, dict)]


def is_for_agent(item: dict[str, Any]) -> bool:
    """Whether an output item is a call that the agent is to act on, rather than one that the provider runs itself."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    if kind == "shell_call":
        place = item.get("environment")
        return not (isinstance(place, dict) and str(place.get("type")).startswith("container"))
    return kind in FOR_AGENT or (kind.endswith("_call") and kind not in FOR_PROVIDER)


def calls_of(items: Iterable[tuple[int, dict[str, Any]]]) -> tuple[ToolCall, ...]:
    """The calls among output items, given with their places, that the agent is to act on."""
    return tuple(_call(place, item) for place, item in items if is_for_agent(item))


def _call(place: int, item: dict[str, Any]) -> ToolCall:
    kind = str(item["type"])
    call_id = item.get("id") if kind == "mcp_approval_request" else item.get("call_id") or item.get("id")
    name = item.get("name")
    if not isinstance(name, str) or not name:
        # An unknown kind without a call id may be anything: it has no name, so that policies hold it.
        name = kind.removesuffix("_call") if kind in _KNOWN or item.get("call_id") else ""
    key, said = next(((key, item[key]) for key in SAID_IN if item.get(key) is not None), ("", ""))
    if isinstance(said, list):
        said = {key: said}  # arguments are an object, for policies and for people
    arguments = said if isinstance(said, str) else json.dumps(said, ensure_ascii=True, separators=(",", ":"))
    if kind == "custom_tool_call":
        arguments = custom_arguments(arguments)
    return ToolCall(0, place, str(call_id or ""), name, arguments)


# --- the verdict ------------------------------------------------------------------------------------------------------


def keeps(request: bytes) -> bool:
    """Whether a request lets the provider keep its answer for later requests, as it does unless told otherwise."""
    if b'"store"' not in request:
        return True
    try:
        return msgspec.json.decode(request, type=_Stored).store is not False
    except UNREADABLE:
        return False


def settled(response: Response, items: Sequence[tuple[int, dict[str, Any]]], status: str, kept: bool) -> Verdict:
    """The verdict on a response whose provider's last word is ``status``. ``kept``: it may be named later."""
    usage, model, calls = _usage(response), text_in(response.model), calls_of(items)
    if status in ("failed", "cancelled"):
        return Verdict("", model, usage, calls, (status,), failed=_why(response, status))
    if status not in ("completed", "incomplete"):
        return Verdict(f"the response is not finished: its status is {status or 'missing'}", model, usage, calls)
    fault, broken = _unreadable(items, status)
    details = loaded(response.incomplete_details) if status == "incomplete" else None
    reason = details.get("reason") if isinstance(details, dict) else None
    finish = (reason if isinstance(reason, str) and reason else status,)
    answer_id = text_in(response.id) if kept and not fault and bytes(response.store) != b"false" else ""
    tier = text_in(response.service_tier)
    return Verdict(fault, model, usage, calls, finish, broken, answer_id=answer_id, tier=tier)


def _usage(response: Response) -> str:
    """The usage object, its numbers as they were spelled; without the blanks of a body that is laid out for reading."""
    raw = bytes(response.usage)
    return msgspec.json.format(raw, indent=-1).decode("utf-8", "replace") if raw[:1] == b"{" else ""


def _why(response: Response, status: str) -> str:
    error = loaded(response.error)
    if not isinstance(error, dict):
        return "the response was cancelled" if status == "cancelled" else "the response failed"
    return f"{error.get('code') or status}: {error.get('message') or 'no message'}"[:1000]


def _unreadable(items: Iterable[tuple[int, dict[str, Any]]], status: str) -> tuple[str, bool]:
    """(fault, whether a limit cut arguments) of calls whose arguments should be JSON and are not."""
    for _, item in items:
        arguments = item.get("arguments")
        if item.get("type") not in ARGUED or not isinstance(arguments, str) or not arguments.strip():
            continue
        try:
            msgspec.json.decode(arguments)
        except (UnicodeEncodeError, *UNREADABLE):
            if status == "incomplete":
                return "", True
            return f"the arguments of the call of tool {item.get('name')!r} are not JSON", False
    return "", False


def judge_plain(call: Call, body: bytes) -> Verdict:
    """Judge a whole response object. One that is only queued is an answer where the request asked for no more."""
    try:
        value = msgspec.json.decode(body)
    except UNREADABLE:
        return Verdict("the answer is an HTML page" if body.lstrip()[:1] == b"<" else "the answer is not JSON")
    if not isinstance(value, dict):
        return Verdict("the answer is not a JSON object")
    response = _decode_response.decode(body)
    status = text_in(response.status)
    calls = calls_of(enumerate(items_of(response.output)))
    if value.get("error") and not status:
        return Verdict(f"the provider answered an error under status 200: {str(value['error'])[:500]}", calls=calls)
    if value.get("object") not in ("response", "response.compaction"):
        return Verdict("the answer is not a response object", calls=calls)
    if not isinstance(value.get("output"), list) and status not in ("failed", "cancelled"):
        return Verdict("the answer has no output")
    if value["object"] == "response.compaction":
        # It tells no status: there is nothing but the whole. Nor can a later request name it.
        return settled(response, (), status or "completed", False)
    if call.background and status in ("queued", "in_progress"):
        kept = keeps(call.body) and value.get("store") is not False
        answer_id = text_in(response.id) if kept else ""
        return Verdict("", text_in(response.model), calls=calls, finish=("queued",), answer_id=answer_id)
    return settled(response, list(enumerate(items_of(response.output))), status, keeps(call.body))
