"""Owns what a chat request says of tools and their results, and the request that goes on from an answer.

Of OpenAI chat, and of those that share the form of its messages. Must not read answers while they stream. Invariant:
a request that goes on has every byte of the one before it, and between them what was answered and the results.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from agentstate.core.model import Call, OfferedTool, ToolCall, ToolResult
from agentstate.dialects.base import fields_of
from agentstate.dialects.openai_answer import LEGACY_ID, LEGACY_INDEX, judge_plain
from agentstate.dialects.splice import NULL, appended, elements, members, of_members, spelled, value_of

# What a provider says in a message and does not take back.
_OUTPUT_ONLY = frozenset({"executed_tools", "channel"})
CUSTOM_SCHEMA = (
    '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)


def offered(body: bytes) -> tuple[OfferedTool, ...]:
    """The functions and custom tools of a request; tools that the provider runs by itself are left out.

    A custom tool takes free text, which is shown as an object with the one field ``input``.
    """
    fields = _fields(body)
    found = []
    for raw in elements(fields.get("tools")):
        tool = members(raw) or {}
        function, custom = members(tool.get("function")), members(tool.get("custom"))
        kind = value_of(tool.get("type"))
        if function is not None and kind in (None, "function"):
            found.append(_offered(function))
        elif custom is not None and kind == "custom":
            found.append(OfferedTool(str(value_of(custom.get("name")) or ""), CUSTOM_SCHEMA))
    return (*found, *(_offered(members(raw) or {}) for raw in elements(fields.get("functions"))))


def _offered(function: dict[str, bytes]) -> OfferedTool:
    schema = function.get("parameters", NULL)
    return OfferedTool(str(value_of(function.get("name")) or ""), "" if schema == NULL else schema.decode())


def results(call: Call) -> tuple[ToolResult, ...]:
    """The results after the last answer of the model. Chat has no mark for results that are errors."""
    raws = [item.raw for item in call.items] if call.items else elements(_fields(call.body).get("messages"))
    found: list[ToolResult] = []
    for raw in reversed(raws):
        message = members(raw) or {}
        role = value_of(message.get("role"))
        if role == "assistant":
            break
        if role in ("tool", "function"):
            call_id = LEGACY_ID if role == "function" else value_of(message.get("tool_call_id"))
            found.append(ToolResult(call_id if isinstance(call_id, str) else "", _text(message.get("content"))))
    return tuple(reversed(found))


def _text(content: bytes | None) -> str:
    value = value_of(content)
    if isinstance(value, str):
        return value
    return "" if content is None or value is None else content.decode()


def continued(body: bytes, plain: bytes, given: Sequence[ToolResult]) -> bytes:
    """The body that goes on from a plain answer. Of several choices, from the first whose calls have the results.

    Raises ``ValueError`` unless each of its calls has one result, and each result a call.
    """
    calls = judge_plain(plain).calls
    choice, answered = pair(calls, given)
    choices = elements((members(plain) or {}).get("choices"))
    message = (members(choices[choice]) or {}).get("message") if choices else None
    said = [taken_back(message or b'{"role":"assistant","content":""}')]
    return appended(body, "messages", said + [_result(call, result) for call, result in answered])


def _result(call: ToolCall, result: ToolResult) -> bytes:
    legacy = call.index == LEGACY_INDEX
    about = {"name": spelled(call.name)} if legacy else {"tool_call_id": spelled(call.call_id)}
    return of_members({"role": b'"function"' if legacy else b'"tool"', **about, "content": spelled(result.content)})


def taken_back(message: bytes) -> bytes:
    """A message of the model as a request may hold it: the very bytes, less what providers do not take back."""
    fields = members(message) or {}
    kept = {name: value for name, value in fields.items() if name not in _OUTPUT_ONLY}
    audio = members(fields.get("audio"))
    if audio is not None and "id" in audio and audio.keys() != {"id"}:
        kept["audio"] = of_members({"id": audio["id"]})
    if fields.get("role", NULL) == NULL:
        kept["role"] = b'"assistant"'
    return message if kept == fields else of_members(kept)


def pair(calls: Sequence[ToolCall], given: Sequence[ToolResult]) -> tuple[int, list[tuple[ToolCall, ToolResult]]]:
    """(choice, its calls with their results in the order of the results); see ``continued``."""
    wanted = Counter(result.call_id for result in given)
    every = Counter(call.call_id for call in calls)
    for choice in sorted({call.choice for call in calls}) or [0]:
        mine = [call for call in calls if call.choice == choice]
        if Counter(call.call_id for call in mine) != wanted and every != wanted:
            continue
        found = []
        for result in given:
            call = next((call for call in mine if call.call_id == result.call_id), None)
            if call is not None:
                mine.remove(call)
                found.append((call, result))
        if not mine:
            return choice, found
    raise ValueError(
        f"each call of the answer needs one result: its calls are {sorted(every)}, results are there for "
        f"{sorted(wanted.elements())}"
    )


def _fields(body: bytes) -> dict[str, bytes]:
    """The top-level fields of a body that was parsed, strictly or leniently."""
    fields = fields_of(body)
    if fields is not None:
        return {name: bytes(raw) for name, raw in fields.items()}
    # Half a character, as some clients cut texts, can be neither shown nor sent as such.
    return {
        name: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        for name, value in json.loads(body).items()
    }
