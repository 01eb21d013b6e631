"""Owns the tools that a Gemini request offers, the results it carries, and the request that goes on from an answer.

Must not decide on calls. Invariant: of a request that goes on, every byte but those of the new contents is as it was;
what ``continued`` writes as a result, ``results`` reads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from agentstate.core.model import Call, OfferedTool, Shape, ToolCall, ToolResult
from agentstate.dialects import gemini_shape
from agentstate.dialects.base import UNREADABLE
from agentstate.dialects.gemini_amend import CALLS
from agentstate.dialects.gemini_answer import judge_plain
from agentstate.dialects.rewriting import (
    appended,
    elements,
    encoded,
    listed,
    loaded,
    member,
    members,
    with_elements,
    with_members,
)

_DECLARED = ("functionDeclarations", "function_declarations")
_JSON_SCHEMA = ("parametersJsonSchema", "parameters_json_schema")
ANSWERED = ("functionResponse", "function_response")


# --- tools ------------------------------------------------------------------------------------------------------------


def offered(call: Call) -> tuple[OfferedTool, ...]:
    """See ``dialects.base.Amending``. A schema of Gemini's own kind is given as the JSON schema that means the same."""
    tools = member(call.body, "tools")
    found = []
    for tool in elements(tools) if tools.startswith(b"[") else [tools]:
        for declared in (raw for name in _DECLARED for raw in listed(tool, name)):
            name = loaded(member(declared, "name"))
            if isinstance(name, str):
                found.append(OfferedTool(name, _schema(declared)))
    return tuple(found)


def _schema(declared: bytes) -> str:
    raw = next((found for name in _JSON_SCHEMA if (found := member(declared, name))), b"")
    if not raw and (raw := member(declared, "parameters")):
        own = loaded(raw)
        translated = json_schema(own)
        raw = raw if translated == own else msgspec.json.encode(translated)
    return raw.decode("utf-8", "replace")


_SNAKE = re.compile(r"_([a-z])")
_ONE = ("items", "additionalProperties", "not")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_NAMED = ("properties", "$defs", "defs")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")


def json_schema(schema: Any) -> Any:
    """A schema of the kind that Google's APIs have, as JSON schema.

    Its types are in capitals, null is allowed by a field of its own, and limits may be texts of digits.
    https://ai.google.dev/api/caching#Schema
    """
    if not isinstance(schema, dict):
        return schema
    shown: dict[str, Any] = {}
    for spelled, part in schema.items():
        name = _SNAKE.sub(lambda found: found[1].upper(), spelled)
        if name in _ONE:
            shown[name] = json_schema(part)
        elif name in _MANY and isinstance(part, list):
            shown[name] = [json_schema(one) for one in part]
        elif name in _NAMED and isinstance(part, dict):
            shown[name] = {key: json_schema(one) for key, one in part.items()}
        elif name == "type" and isinstance(part, str):
            if part != "TYPE_UNSPECIFIED":
                shown[name] = part.lower()
        elif name in _COUNTS and isinstance(part, str) and part.isdecimal():
            shown[name] = int(part)
        elif name != "nullable":
            shown[name] = part
    return _nullable(shown) if schema.get("nullable") is True else shown


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind, values, choices = schema.get("type"), schema.get("enum"), schema.get("anyOf")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
    if isinstance(values, list):
        schema["enum"] = [*values, None]
    if isinstance(choices, list):
        schema["anyOf"] = [*choices, {"type": "null"}]
    return schema


# --- results ----------------------------------------------------------------------------------------------------------


def results(call: Call) -> tuple[ToolResult, ...]:
    """See ``dialects.base.Amending``. A prefilled beginning of the answer, which ends the list, is no answer."""
    raws = [item.raw for item in call.items] or listed(call.body, "contents")
    after: list[bytes] = []
    for raw in reversed(raws):
        if loaded(member(raw, "role")) != "model":
            after.append(raw)
        elif after or any(member(part, name) for part in _parts(raw) for name in CALLS):
            break
    return tuple(
        _result(result)
        for raw in reversed(after)
        for part in _parts(raw)
        for name in ANSWERED
        if (result := member(part, name)).startswith(b"{")
    )


def _parts(content: bytes) -> list[bytes]:
    found = member(content, "parts")
    return elements(found) if found.startswith(b"[") else [found]


def _result(result: bytes) -> ToolResult:
    call_id = loaded(member(result, "id"))
    content, failed = _read(member(result, "response"))
    return ToolResult(call_id if isinstance(call_id, str) else "", content, failed)


def _read(response: bytes) -> tuple[str, bool]:
    """(content, whether it is an error) of a response: the API names its members ``output`` and ``error``."""
    fields = members(response) if response.startswith(b"{") else []
    names = [one.name for one in fields]
    only = response[fields[0].value : fields[0].end] if len(fields) == 1 else b""
    if names == ["error"]:
        return _text(only), True
    return _text(only if names == ["output"] and only.startswith(b'"') else response), False


def _text(raw: bytes) -> str:
    return str(loaded(raw)) if raw.startswith(b'"') else raw.decode("utf-8", "replace")


# --- the request that goes on -----------------------------------------------------------------------------------------


def continued(call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
    """See ``dialects.base.Amending``. Of several candidates the first that calls goes on.

    Calls that have no ids are answered in their order. Raises ``ValueError`` where a result is missing, or is none of
    the answer's calls.
    """
    plain = gemini_shape.convert(shape, Shape(), body)
    calls = judge_plain(plain).calls
    if not calls or sorted(one.call_id for one in calls) != sorted(one.call_id for one in results):
        raise ValueError("there must be one result for each call of the answer")
    choice = calls[0].choice
    answers: list[bytes] = []
    waiting = list(calls)
    for result in results:
        asked = next(one for one in waiting if one.call_id == result.call_id)
        waiting.remove(asked)
        if asked.choice == choice:
            answers.append(told(asked, result))
    results_of = b'{"role":"user","parts":[' + b",".join(answers) + b"]}"
    return appended(call.body, "contents", [_said(plain, choice), results_of])


def _said(plain: bytes, choice: int) -> bytes:
    """The content of a candidate as it may come back."""
    content = next(
        member(candidate, "content")
        for candidate in listed(plain, "candidates")
        if (loaded(member(candidate, "index")) or 0) == choice and any(_calls(member(candidate, "content")))
    )
    # A part that holds nothing is refused when it comes back.
    empty: dict[int, Sequence[bytes]] = {at: [] for at, part in enumerate(_parts(content)) if _is_empty(part)}
    changes: dict[str, bytes | None] = {}
    if empty:
        changes["parts"] = with_elements(member(content, "parts"), empty)
    if not member(content, "role"):
        changes["role"] = b'"model"'
    return with_members(content, changes) if changes else content


def _calls(content: bytes) -> list[bytes]:
    return [found for part in _parts(content) for name in CALLS if (found := member(part, name))]


def _is_empty(part: bytes) -> bool:
    value = loaded(part)
    return isinstance(value, dict) and not value.get("text") and value.keys() <= {"text", "thought"}


def told(call: ToolCall, result: ToolResult) -> bytes:
    fields = [b'"id":' + encoded(call.call_id)] if call.call_id else []
    fields += [b'"name":' + encoded(call.name), b'"response":' + _response(result)]
    return b'{"functionResponse":{' + b",".join(fields) + b"}}"


def _response(result: ToolResult) -> bytes:
    """A result as an object: as it is where it is one that says so itself."""
    if result.failed:
        return b'{"error":' + encoded(result.content) + b"}"
    own = result.content.encode("utf-8", "replace")
    if own == own.strip() and _is_object(own) and _read(own) == (result.content, False):
        return own
    return b'{"output":' + encoded(result.content) + b"}"


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except UNREADABLE:
        return False
