"""Owns questions in OpenAI's chat completions read into the translator's form. Must not know the other dialects.

Invariant: every field of a question that is read is in the form or among the losses.
"""

from __future__ import annotations

from typing import Any

from agentstate.dialects.translate_form import (
    Asked,
    Choice,
    File,
    Format,
    Image,
    Losses,
    Message,
    Part,
    Refusal,
    Result,
    Role,
    Text,
    Tool,
    ToolUse,
)
from agentstate.dialects.translate_json import (
    Fields,
    count_in,
    data_url,
    dumped,
    fields_in,
    flag_in,
    number_in,
    objects,
    text_in,
    texts_in,
)
from agentstate.dialects.translate_openai import (
    DELIVERY,
    SHARED,
    neutral,
    shared,
)
from agentstate.errors import Untranslatable

PATH = "chat/completions"

_KNOWN = DELIVERY | SHARED | {
    "model", "messages", "tools", "functions", "tool_choice", "function_call", "parallel_tool_calls", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "response_format", "reasoning_effort",
    "verbosity", "user", "n", "modalities", "service_tier",
}  # fmt: skip
_ROLES: dict[str, Role] = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "user",
    "function": "user",
}  # fmt: skip
_OF_MESSAGE = {"role", "content", "tool_calls", "function_call", "refusal", "tool_call_id", "annotations"}
_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
LEGACY = "call_function_"  # the ids of the calls of the legacy form, which has none, by their place


def read(body: Fields, losses: Losses) -> Asked:
    """The question; ``Untranslatable`` for several choices, audio, and tools that only the provider runs."""
    if (count_in(body.get("n")) or 1) > 1:
        raise Untranslatable("n > 1: the fallback gives one answer only")
    if "audio" in texts_in(body.get("modalities")) or body.get("audio") is not None:
        raise Untranslatable("audio: the fallback does not speak")
    if body.get("web_search_options") is not None:
        raise Untranslatable("web_search_options: the fallback does not search the web")
    body = neutral(body)
    losses.rest(body, _KNOWN)
    offered = tools(body, losses)
    most = body.get("max_completion_tokens")
    return Asked(
        messages=tuple(_messages(body.get("messages"), losses)),
        tools=offered,
        choice=_choice(body.get("tool_choice") or _legacy_choice(body.get("function_call"))),
        parallel=False if is_legacy(body) else flag_in(body.get("parallel_tool_calls")),
        max_tokens=count_in(body.get("max_tokens") if most is None else most),
        temperature=number_in(body.get("temperature")),
        top_p=number_in(body.get("top_p")),
        top_k=count_in(body.get("top_k")),
        stop=texts_in(body.get("stop")),
        format=_format(fields_in(body.get("response_format")), losses),
        effort=text_in(body.get("reasoning_effort")) or None,
        verbosity=text_in(body.get("verbosity")),
        user=text_in(body.get("user")),
        tier=text_in(body.get("service_tier")),
        shared=shared(body),
    )


def tools(body: Fields, losses: Losses) -> tuple[Tool, ...]:
    """The tools that a question offers, those of the legacy form among them."""
    found = [_tool(tool, losses) for tool in objects(body.get("tools"), "tools")]
    found += [_function(function, losses) for function in objects(body.get("functions"), "functions")]
    return tuple(found)


def is_legacy(body: Fields) -> bool:
    """Whether the agent expects a call in the legacy form."""
    return bool(body.get("functions")) and not body.get("tools")


def _tool(tool: Fields, losses: Losses) -> Tool:
    losses.rest(tool, {"type", "function", "custom"}, "tools.")
    custom = tool.get("custom")
    if tool.get("type") == "custom" or isinstance(custom, dict):
        custom = fields_in(custom)
        losses.rest(custom, {"name", "description", "format"}, "tools.")
        if fields_in(custom.get("format")).get("type", "text") != "text":
            losses.add("tools.format")
        return Tool(text_in(custom.get("name")), text_in(custom.get("description")))
    if not isinstance(tool.get("function"), dict):
        raise Untranslatable(f"a tool of type {tool.get('type')!r} is known to its provider only")
    return _function(tool["function"], losses)


def _function(function: Fields, losses: Losses) -> Tool:
    losses.rest(function, {"name", "description", "parameters", "strict"}, "tools.")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return Tool(
        text_in(function.get("name")),
        text_in(function.get("description")),
        dumped(schema),
        flag_in(function.get("strict")),
    )


def _choice(said: Any) -> Choice | None:
    if isinstance(said, str):
        return Choice(said) if said in ("auto", "none", "required") else None
    said = fields_in(said)
    if said.get("type") == "allowed_tools":
        allowed = fields_in(said.get("allowed_tools"))
        names = [_named(tool) for tool in objects(allowed.get("tools"), "allowed_tools")]
        return Choice(text_in(allowed.get("mode")) or "auto", only=tuple(names))
    return Choice("tool", _named(said)) if _named(said) else None


def _named(tool: Fields) -> str:
    return text_in(fields_in(tool.get("function") or tool.get("custom")).get("name"))


def _legacy_choice(said: Any) -> Any:
    return {"type": "function", "function": said} if isinstance(said, dict) else said


def _format(said: Fields, losses: Losses) -> Format | None:
    kind = said.get("type")
    if kind == "json_object":
        return Format()
    if kind != "json_schema":
        losses.rest(said if kind not in (None, "text") else {}, set(), "response_format.")
        return None
    schema = fields_in(said.get("json_schema"))
    losses.rest(schema, {"name", "description", "schema", "strict"}, "response_format.")
    if not isinstance(schema.get("schema"), dict):
        return Format()
    return Format(
        dumped(schema["schema"]),
        text_in(schema.get("name")),
        text_in(schema.get("description")),
        flag_in(schema.get("strict")),
    )


def _messages(said: Any, losses: Losses) -> list[Message]:
    out: list[Message] = []
    legacy = 0
    for message in objects(said, "messages"):
        role = text_in(message.get("role"))
        if role not in _ROLES:
            raise Untranslatable(f"a message has the role {role!r}, which no other provider knows")
        if role == "function":
            message = {**message, "tool_call_id": f"{LEGACY}{legacy}", "name": None}
        if isinstance(message.get("function_call"), dict):
            legacy += 1
        _note(message, losses)
        out.append(Message(_ROLES[role], tuple(_parts(message, role, legacy, losses))))
    return out


def _note(message: Fields, losses: Losses) -> None:
    for name in _REASONING:
        if message.get(name):
            losses.add("thinking (foreign signature)")
    if message.get("audio") is not None:
        raise Untranslatable("a message holds audio")
    if message.get("annotations"):
        losses.add("citations")
    losses.rest(message, _OF_MESSAGE | set(_REASONING), "messages.")


def _parts(message: Fields, role: str, legacy: int, losses: Losses) -> list[Part]:
    content = list(parts_of(message.get("content"), losses))
    if role in ("tool", "function"):
        kept = tuple(part for part in content if isinstance(part, Text | Image | File))
        return [Result(text_in(message.get("tool_call_id")), kept)]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        content.append(Refusal(message["refusal"]))
    content += (call_of(call) for call in objects(message.get("tool_calls"), "tool_calls"))
    if isinstance(message.get("function_call"), dict):
        content.append(call_of({"id": f"{LEGACY}{legacy}", "function": message["function_call"]}))
    return content


def call_of(call: Fields) -> ToolUse:
    """A call as a message holds it."""
    name = text_in(call.get("id"))
    if isinstance(call.get("custom"), dict):
        return ToolUse(name, text_in(call["custom"].get("name")), text_in(call["custom"].get("input")), True)
    function = fields_in(call.get("function"))
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else dumped(arguments or {}).decode()
    return ToolUse(name, text_in(function.get("name")), written)


def parts_of(content: Any, losses: Losses) -> list[Part]:
    """The content of a message: a text, or a list of parts."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [_part(part, losses) for part in objects(content, "content")]


def _part(part: Fields, losses: Losses) -> Part:
    kind = text_in(part.get("type"))
    losses.rest(part, {"type", kind, "text", "refusal"}, "content.")
    if kind == "text" or (not kind and isinstance(part.get("text"), str)):
        return Text(text_in(part.get("text")))
    if kind == "refusal":
        return Refusal(text_in(part.get("refusal")))
    if kind in ("thinking", "reasoning"):
        losses.add("thinking (foreign signature)")
        return Text("")
    if kind == "image_url":
        said = part.get("image_url")
        image = said if isinstance(said, dict) else {"url": said}
        if image.get("detail") not in (None, "auto"):
            losses.add("image detail")
        url = text_in(image.get("url"))
        inline = data_url(url)
        return Image(url=url) if inline is None else Image(*inline)
    if kind == "file":
        return _file(fields_in(part.get("file")))
    raise Untranslatable(f"a message holds a part of type {kind!r}, which the fallback does not take")


def _file(said: Fields) -> File:
    data = text_in(said.get("file_data"))
    if not data:
        raise Untranslatable("a file that is held at the provider cannot be read by another")
    media, inline = data_url(data) or ("application/pdf", data)
    return File(text_in(said.get("filename")), media, inline)
