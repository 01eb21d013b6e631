"""Owns what a Responses request says of the agent's tools: those it offers, the results it brings, and going on from an
answer with results. Must not make any call's decision.

Invariant: the results that a request is made to bring are those that are read in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from agentstate.core.model import Call, OfferedTool, Shape, ToolCall, ToolResult
from agentstate.dialects import responses_shape
from agentstate.dialects.base import UNREADABLE, list_of
from agentstate.dialects.openai_follow import CUSTOM_SCHEMA
from agentstate.dialects.responses_amend import quoted
from agentstate.dialects.responses_answer import calls_of, is_for_agent, keeps, loaded, text_in
from agentstate.dialects.responses_context import edited, member

Fields = dict[str, msgspec.Raw]
_decode_fields = msgspec.json.Decoder(Fields)
_NULL = msgspec.Raw(b"null")
# Tools without a name of their own → the name by which their calls are known.
_UNNAMED = {
    "local_shell": "local_shell", "shell": "shell", "apply_patch": "apply_patch", "computer": "computer",
    "computer_use_preview": "computer", "computer_use": "computer",
}  # fmt: skip
# Outputs that the provider itself makes.
_PROVIDERS_OWN = ("program_output",)
_AGENTS_OWN = ("additional_tools", "configuration_update", "compaction_trigger")
_PARTS = ("input_text", "input_image", "input_file")
# Of a computer call the API takes only a screenshot as its result: one pixel, where the result is a text.
_PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_SCREENSHOT = {"type": "computer_screenshot", "image_url": _PIXEL}


# --- tools ------------------------------------------------------------------------------------------------------------


def offered(call: Call) -> tuple[OfferedTool, ...]:
    """The tools of the request, then those that its messages bring."""
    found = list(_tools(_object(call.body).get("tools", _NULL)))
    for raw in _input(call):
        if b'"tools"' in raw:
            fields = _object(raw)
            if text_in(fields.get("type", _NULL)) in ("additional_tools", "tool_search_output"):
                found += _tools(fields.get("tools", _NULL))
    return tuple(dict.fromkeys(found))


def _tools(array: msgspec.Raw) -> Iterator[OfferedTool]:
    for raw in _elements(array):
        fields = _object(raw)
        kind, name = text_in(fields.get("type", _NULL)), text_in(fields.get("name", _NULL))
        if kind == "namespace":
            yield from _tools(fields.get("tools", _NULL))
        elif kind in ("function", "custom") and name:
            yield OfferedTool(name, _schema(fields) if kind == "function" else CUSTOM_SCHEMA)
        elif kind == "tool_search" and text_in(fields.get("execution", _NULL)) == "client":
            yield OfferedTool("tool_search", _schema(fields))
        elif kind == "shell":
            place = loaded(fields.get("environment", _NULL))
            if not (isinstance(place, dict) and str(place.get("type")).startswith("container")):
                yield OfferedTool("shell")
        elif kind in _UNNAMED:
            yield OfferedTool(_UNNAMED[kind])


def _schema(fields: Fields) -> str:
    raw = bytes(fields.get("parameters", b""))
    return raw.decode("utf-8", "replace") if raw[:1] == b"{" else ""


# --- results ----------------------------------------------------------------------------------------------------------


def results(call: Call) -> tuple[ToolResult, ...]:
    """The results after the last answer.

    Where one answer ends and the next begins the input does not say; some clients put each result right after its call.
    So calls and results with nothing between them count as one answer: a result may be told of again, never not at all.
    """
    found: list[tuple[str, Fields]] = []
    notes: dict[str, str] = {}
    called = False
    for raw in reversed(_input(call)):
        fields = _object(raw)
        kind = text_in(fields.get("type", _NULL))
        if _is_result(kind, fields):
            found.append((kind, fields))
        elif kind in ("", "message") and text_in(fields.get("role", _NULL)) not in ("", "assistant"):
            if called:
                break
            notes |= _note(fields)
        elif kind not in _AGENTS_OWN:
            item = loaded(raw)
            called = isinstance(item, dict) and is_for_agent(item)
            if not called:
                made = {_id_of(fields)} - {""}
                found = [(kind, fields) for kind, fields in found if _id_of(fields) not in made]
                break
    return tuple(_result(kind, fields, notes) for kind, fields in reversed(found))


def _is_result(kind: str, fields: Fields) -> bool:
    """Whether an item is what the agent says to a call; the provider's own runs have outputs of the same kinds."""
    own = kind not in _PROVIDERS_OWN and text_in(fields.get("execution", _NULL)) != "server"
    return (kind.endswith("_output") and own) or kind == "mcp_approval_response"


def _id_of(fields: Fields) -> str:
    """The call that an output answers; some name it by their own id."""
    named = (text_in(fields.get(name, _NULL)) for name in ("call_id", "approval_request_id", "id"))
    return next((name for name in named if name), "")


def _result(kind: str, fields: Fields, notes: dict[str, str]) -> ToolResult:
    call_id = _id_of(fields)
    if kind == "mcp_approval_response":
        approved = bytes(fields.get("approve", _NULL)) == b"true"
        reason = loaded(fields.get("reason", _NULL))
        content = reason if isinstance(reason, str) else json.dumps({"approve": approved})
        return ToolResult(call_id, content, not approved)
    output = fields.get("tools" if kind == "tool_search_output" else "output", _NULL)
    said = loaded(output)
    if call_id in notes and said in ([], _SCREENSHOT):
        return ToolResult(call_id, notes[call_id])
    if isinstance(said, str):
        return ToolResult(call_id, said, text_in(fields.get("status", _NULL)) == "failed")
    if kind == "shell_call_output" and (plain := _plain_shell(said)) is not None:
        return ToolResult(call_id, *plain)
    content = "" if said is None else bytes(output).decode("utf-8", "replace")
    return ToolResult(call_id, content, text_in(fields.get("status", _NULL)) == "failed")


def _shell(content: str, failed: bool) -> list[dict[str, Any]]:
    """A text as the output of a shell."""
    out, error = ("", content) if failed else (content, "")
    return [{"stdout": out, "stderr": error, "outcome": {"type": "exit", "exit_code": int(failed)}}]


def _plain_shell(said: Any) -> tuple[str, bool] | None:
    """The text, and whether it is an error, of which ``_shell`` would make this; ``None``: none."""
    for failed in (False, True):
        name = "stderr" if failed else "stdout"
        text = said[0].get(name) if isinstance(said, list) and said and isinstance(said[0], dict) else None
        if isinstance(text, str) and said == _shell(text, failed) and _listed(text, None) is None:
            return text, failed
    return None


# --- going on ---------------------------------------------------------------------------------------------------------


def continued(call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
    """See ``dialects.base.Amending``. Raises ``ValueError`` unless there is one result for each call of the answer.

    Nothing but the input changes. It grows by the answer's items as they came, less who made them, which the API does
    not take back, and less reasoning that nobody keeps; where the provider keeps the conversation itself, it is the
    results alone.
    """
    plain = responses_shape.to_plain(body) if shape.stream else body
    outputs = [bytes(raw) for raw in list_of(_decode_fields.decode(plain).get("output", _NULL)) or ()]
    left = list(results)
    answers: list[bytes] = []
    notes: list[bytes] = []
    for raw in outputs:
        item = loaded(raw)
        for proposed in calls_of([(0, item)]) if isinstance(item, dict) else ():
            result = next((one for one in left if one.call_id == proposed.call_id), None)
            if result is None:
                raise ValueError(f"no result for the call {proposed.call_id!r} of {proposed.name}")
            left.remove(result)
            answers.append(answer(proposed, item, result, notes))
    if left:
        raise ValueError(f"the answer has no call {left[0].call_id!r}")
    given = member(call.body, "input")
    if member(call.body, "conversation") not in (b"", b"null"):
        grown = b"[" + b",".join([*answers, *notes]) + b"]"
    else:
        said = [_sendable(raw) for raw in outputs if keeps(call.body) or not _unkept(raw)]
        grown = _longer(given, [*said, *answers, *notes])
    if given:
        return edited(call.body, {"input": grown})
    end = call.body.rindex(b"}")
    return (
        call.body[:end] + (b'"input":' if call.body[:end].rstrip() == b"{" else b',"input":') + grown + call.body[end:]
    )


def _longer(given: bytes, items: Sequence[bytes]) -> bytes:
    """The input with more items; a text is one message of the user."""
    added = b",".join(items)
    if given[:1] == b'"':
        return b'[{"role":"user","content":' + given + b"}" + (b"," + added if added else b"") + b"]"
    if given[:1] != b"[":
        return b"[" + added + b"]"
    end = len(given[:-1].rstrip())
    comma = b"," if added and end > 1 else b""
    return given[:end] + comma + added + given[end:]


def _sendable(raw: bytes) -> bytes:
    """An item of an answer as a request may bring it back: without who made it."""
    return edited(raw, {"created_by": None}) if "created_by" in _object(raw) else raw


def _unkept(raw: bytes) -> bool:
    """Whether an item is reasoning that only its id tells of; a provider that keeps no answer does not know that id."""
    fields = _object(raw)
    told = ("encrypted_content", "content")
    return text_in(fields.get("type", _NULL)) == "reasoning" and not any(loaded(fields.get(k, _NULL)) for k in told)


def answer(call: ToolCall, item: dict[str, Any], result: ToolResult, notes: list[bytes]) -> bytes:
    """The output item of a call. ``notes``: is given what the item has no room for."""
    kind, content = str(item["type"]), result.content
    members: dict[str, bytes] = {"type": quoted(_output_kind(kind)), "call_id": quoted(call.call_id)}
    if kind == "mcp_approval_request":
        # A text never approves: only the agent's own request can.
        members = {"type": b'"mcp_approval_response"', "approval_request_id": quoted(call.call_id)}
        members |= {"approve": b"false", "reason": quoted(content)}
    elif kind == "local_shell_call":
        members = {"type": b'"local_shell_call_output"', "id": quoted(call.call_id), "output": quoted(content)}
    elif kind == "shell_call":
        members["output"] = _listed(content, None) or json.dumps(_shell(content, result.failed)).encode()
    elif kind == "apply_patch_call":
        members |= {"status": b'"failed"' if result.failed else b'"completed"', "output": quoted(content)}
    elif kind == "computer_call":
        taken = _screenshot(content)
        members["output"] = taken or msgspec.json.encode(_SCREENSHOT)
        notes += () if taken else (_as_note(call.call_id, content),)
    elif kind == "tool_search_call":
        taken = _listed(content, None) if content != "[]" else b"[]"
        members |= {"execution": b'"client"', "status": b'"completed"', "tools": taken or b"[]"}
        notes += () if taken else (_as_note(call.call_id, content),)
    else:
        members["output"] = _listed(content, _PARTS) or quoted(content)
    if isinstance(item.get("caller"), dict):
        members["caller"] = json.dumps(item["caller"]).encode()
    return b"{" + b",".join(quoted(name) + b":" + value for name, value in members.items()) + b"}"


def _output_kind(kind: str) -> str:
    return "tool_search_output" if kind == "tool_search_call" else kind + "_output"


def _listed(content: str, kinds: tuple[str, ...] | None) -> bytes | None:
    """A text that is a JSON list of objects (of these types), as it may stand in a request; ``None``: it is another."""
    value = _strict(content) if content[:1] == "[" else None
    if not isinstance(value, list) or not value or not all(isinstance(part, dict) for part in value):
        return None
    return content.encode() if kinds is None or all(part.get("type") in kinds for part in value) else None


def _screenshot(content: str) -> bytes | None:
    value = _strict(content) if content[:1] == "{" else None
    return content.encode() if isinstance(value, dict) and value.get("type") == "computer_screenshot" else None


def _strict(content: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except (UnicodeEncodeError, *UNREADABLE):
        return None


def _as_note(call_id: str, content: str) -> bytes:
    return b'{"type":"message","role":"developer","content":' + quoted(f"About call {call_id}: {content}") + b"}"


def _note(fields: Fields) -> dict[str, str]:
    """What ``_as_note`` made a message of, by call."""
    said = text_in(fields.get("content", _NULL))
    if text_in(fields.get("role", _NULL)) != "developer" or not said.startswith("About call "):
        return {}
    call_id, _, content = said.removeprefix("About call ").partition(": ")
    return {call_id: content}


# --- reading ----------------------------------------------------------------------------------------------------------


def _object(raw: msgspec.Raw | bytes) -> Fields:
    """The members of a JSON object, written anew where only a lenient parser takes it; none of what is no object."""
    try:
        return _decode_fields.decode(raw)
    except UNREADABLE:
        value = loaded(raw)
        return {name: _raw(part) for name, part in value.items()} if isinstance(value, dict) else {}


def _elements(array: msgspec.Raw | bytes) -> Sequence[msgspec.Raw]:
    """The elements of a JSON array, written anew where only a lenient parser takes it; none of what is no array."""
    found = list_of(array)
    if found is None:
        value = loaded(array)
        found = [_raw(part) for part in value] if isinstance(value, list) else []
    return found


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def _input(call: Call) -> Sequence[msgspec.Raw | bytes]:
    """The items of the input."""
    if call.items:
        return [item.raw for item in call.items]
    return _elements(_object(call.body).get("input", _NULL))
