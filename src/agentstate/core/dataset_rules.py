"""Owns the rules by which trainers take a line, and whether a line that is to be written keeps to them. Pure.

Sources: OpenAI's published schema of fine-tuning input and its guides for supervised and preference fine-tuning, and
TRL's description of its conversational data sets. Must not mend a line. Invariant: what is not known to be allowed is a
fault; a line with a fault is not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agentstate.core.dataset_filter import Format

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "weight", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}
_TOP = {
    "openai": ({"messages"}, {"tools", "parallel_tool_calls"}),
    "trl": ({"messages"}, {"tools"}),
    "openai-dpo": ({"input", "preferred_output", "non_preferred_output"}, set[str]()),
    "trl-dpo": ({"prompt", "chosen", "rejected"}, {"tools"}),
}
MOST_TOOLS = 128


def faults(form: Format, line: dict[str, Any]) -> list[str]:
    """What is wrong with a line of a format; empty: nothing. Formats of our own have no rules but their writer's."""
    if form not in _TOP:
        return []
    return list(_faults(form, line))


def _faults(form: Format, line: dict[str, Any]) -> Iterator[str]:
    needed, allowed = _TOP[form]
    if not needed <= line.keys() <= needed | allowed:
        yield f"the line has the fields {sorted(line)}"
        return
    trl = form.startswith("trl")
    if form == "openai-dpo":
        given = line["input"]
        if not isinstance(given, dict) or not {"messages"} <= given.keys() <= {
            "messages",
            "tools",
            "parallel_tool_calls",
        }:
            yield "input is no object with messages"
            return
        yield from _tools(given)
        yield from _paired(given["messages"], line["preferred_output"], line["non_preferred_output"], trl)
    elif form == "trl-dpo":
        yield from _tools(line)
        yield from _paired(line["prompt"], line["chosen"], line["rejected"], trl)
    else:
        yield from _tools(line)
        yield from _messages(line["messages"], trl)
        if not any(_is_trained(message) for message in line["messages"]):
            yield "no answer in it is trained"


def _is_trained(message: dict[str, Any]) -> bool:
    return message.get("role") == "assistant" and bool(message.get("weight", 1))


def _paired(given: Any, better: Any, worse: Any, trl: bool) -> Iterator[str]:
    yield from _messages(given, trl)
    if isinstance(given, list) and given and given[-1].get("role") == "assistant":
        yield "the conversation ends with an answer"
    for answer in (better, worse):
        if not isinstance(answer, list) or [part.get("role") for part in answer] != ["assistant"]:
            yield "an output is not one answer"
        else:
            yield from _message(answer[0], trl)
            if "weight" in answer[0]:
                yield "an output has a weight"
    if better == worse:
        yield "both outputs are the same"


def _messages(messages: Any, trl: bool) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "there are no messages"
        return
    open_: set[str] = set()
    for place, message in enumerate(messages):
        yield from _message(message, trl)
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in open_:
                yield f"message {place} answers no call"
            open_.discard(message.get("tool_call_id", ""))
        else:
            if open_:
                yield f"a call before message {place} is not answered"
            open_ = {call["id"] for call in message.get("tool_calls", ())}
            if len(open_) != len(message.get("tool_calls", ())):
                yield f"message {place} has two calls of one id"
    if open_ and messages[-1].get("role") != "assistant":
        yield "a call is not answered"


def _message(message: Any, trl: bool) -> Iterator[str]:
    role = message.get("role")
    if role not in _FIELDS or not message.keys() <= _FIELDS[role]:
        yield f"a message of role {role!r} has the fields {sorted(message)}"
        return
    content, calls = message.get("content"), message.get("tool_calls")
    if "content" in message:
        yield from _content(content, role, trl)
    if role == "assistant":
        if calls is not None and (not isinstance(calls, list) or not calls):
            yield "tool_calls is empty"
        if not calls and not content and not message.get("refusal"):
            yield "an answer says nothing"
        if message.get("weight", 1) not in (0, 1):
            yield "a weight is neither 0 nor 1"
        for call in calls or ():
            yield from _call(call, trl)
    elif "content" not in message or (role == "tool" and not isinstance(message.get("tool_call_id"), str)):
        yield f"a message of role {role} is not whole"


def _content(content: Any, role: str, trl: bool) -> Iterator[str]:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content or role != "user" or trl:
        yield f"the content of a message of role {role} is no text"
        return
    for part in content:
        kind = part.get("type")
        if kind == "text":
            if not isinstance(part.get("text"), str):
                yield "a text part has no text"
        elif kind != "image_url" or not isinstance(part["image_url"].get("url"), str):
            yield f"there is a part of type {kind!r}"


def _call(call: Any, trl: bool) -> Iterator[str]:
    function = call.get("function", {})
    if call.keys() != {"id", "type", "function"} or call["type"] != "function" or not call["id"]:
        yield f"a call has the fields {sorted(call)}"
    if not _NAME.fullmatch(str(function.get("name"))):
        yield f"a tool is called {str(function.get('name'))[:80]!r}"
    arguments = function.get("arguments")
    if isinstance(arguments, str) and not trl:
        try:
            arguments = json.loads(arguments)
        except ValueError:
            yield "arguments are no JSON"
            return
    elif not trl:
        yield "arguments are no text"
    if not isinstance(arguments, dict):
        yield "arguments are no object"


def _tools(line: dict[str, Any]) -> Iterator[str]:
    if not isinstance(line.get("parallel_tool_calls", True), bool):
        yield "parallel_tool_calls is neither true nor false"
    if "tools" not in line:
        return
    tools = line["tools"]
    if not isinstance(tools, list) or not 0 < len(tools) <= MOST_TOOLS:
        yield f"there are more than {MOST_TOOLS} tools, or none"
        return
    names = [tool.get("function", {}).get("name") for tool in tools if tool.get("type") == "function"]
    if len(names) != len(tools) or not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names):
        yield "a tool is no function with a name"
    if len(set(names)) != len(names):
        yield "two tools have the same name"
    for tool in tools:
        if not isinstance(tool.get("function", {}).get("parameters", {}), dict):
            yield "the schema of a tool is no object"
