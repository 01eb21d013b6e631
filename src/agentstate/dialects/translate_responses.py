"""Owns questions in OpenAI's Responses API read into the translator's form. Must not know the other dialects.

Invariant: every field of a question is in the form or among the losses; what the provider holds of a conversation
cannot be asked elsewhere, and is refused.
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
)
from agentstate.dialects.translate_openai import DELIVERY, SHARED, neutral, shared
from agentstate.dialects.translate_tools import unknown_tools
from agentstate.errors import Untranslatable

PATH = "responses"
FOREIGN = "thinking (foreign signature)"

# What makes a question depend on something that only its own provider has.
_HELD = ("previous_response_id", "conversation", "prompt", "background")
_KNOWN = DELIVERY | SHARED | {
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "max_output_tokens",
    "temperature", "top_p", "text", "reasoning", "user", "service_tier", *_HELD,
}  # fmt: skip
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
# Items of tools that the provider runs; they may be missing from a history, their answers are in its texts.
_RUN_BY_PROVIDER = (
    "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_list_tools",
    "mcp_call", "tool_search_call", "tool_search_output", "program", "program_output",
)  # fmt: skip
_OWN = {"type", "id", "status"}


def read(body: Fields, losses: Losses) -> Asked:
    """The question; ``Untranslatable`` for what the provider holds and tools that only OpenAI's models know."""
    body = neutral(body)
    for name in _HELD:
        if name in body:
            raise Untranslatable(f"{name}: what the provider holds is not known to another")
    losses.rest(body, _KNOWN)
    text, reasoning = fields_in(body.get("text")), fields_in(body.get("reasoning"))
    losses.rest(text, {"format", "verbosity"}, "text.")
    losses.rest(reasoning, {"effort"}, "reasoning.")
    instructions = text_in(body.get("instructions"))
    first = (Message("system", (Text(instructions),)),) if instructions else ()
    return Asked(
        messages=(*first, *_messages(body.get("input"), losses)),
        tools=tools(body, losses),
        choice=_choice(body.get("tool_choice")),
        parallel=flag_in(body.get("parallel_tool_calls")),
        max_tokens=count_in(body.get("max_output_tokens")),
        temperature=number_in(body.get("temperature")),
        top_p=number_in(body.get("top_p")),
        format=_format(fields_in(text.get("format")), losses),
        effort=text_in(reasoning.get("effort")) or None,
        verbosity=text_in(text.get("verbosity")),
        user=text_in(body.get("user")),
        tier=text_in(body.get("service_tier")),
        shared=shared(body),
    )


def tools(body: Fields, losses: Losses) -> tuple[Tool, ...]:
    """The tools that a question offers and the agent runs, those in namespaces and in the input among them."""
    said = list(objects(body.get("tools"), "tools"))
    for item in body["input"] if isinstance(body.get("input"), list) else ():
        if fields_in(item).get("type") == "additional_tools":
            said += objects(item.get("tools"), "tools")
    found: list[Tool] = []
    others: list[str] = []
    for tool in said:
        kind = text_in(tool.get("type"))
        if kind == "namespace":
            space = text_in(tool.get("name"))
            losses.rest(tool, {"type", "name", "tools", "description"}, "tools.")
            if tool.get("description"):
                losses.add("tools.description (of a namespace)")
            found += [_tool(inner, space, losses) for inner in objects(tool.get("tools"), "tools")]
        elif kind in ("function", "custom"):
            found.append(_tool(tool, "", losses))
        else:
            others.append(kind)
    unknown_tools(others, bool(found), losses)
    return tuple(found)


def _tool(tool: Fields, space: str, losses: Losses) -> Tool:
    name, about = text_in(tool.get("name")), text_in(tool.get("description"))
    if tool.get("type") == "custom":
        losses.rest(tool, {"type", "name", "description", "format"}, "tools.")
        if fields_in(tool.get("format")).get("type", "text") != "text":
            losses.add("tools.format")
        return Tool(name, about, space=space)
    losses.rest(tool, {"type", "name", "description", "parameters", "strict"}, "tools.")
    schema = tool.get("parameters") or {"type": "object", "properties": {}}
    return Tool(name, about, dumped(schema), flag_in(tool.get("strict")), space)


def _choice(said: Any) -> Choice | None:
    if isinstance(said, str):
        return Choice(said) if said in ("auto", "none", "required") else None
    said = fields_in(said)
    kind = said.get("type")
    if kind == "allowed_tools":
        names = [text_in(tool.get("name")) for tool in objects(said.get("tools"), "allowed_tools")]
        return Choice(text_in(said.get("mode")) or "auto", only=tuple(name for name in names if name))
    if kind in ("function", "custom"):
        return Choice("tool", text_in(said.get("name")))
    if kind is not None:
        raise Untranslatable(f"tool_choice: the fallback does not have the tool {kind!r} that must be called")
    return None


def _format(said: Fields, losses: Losses) -> Format | None:
    kind = said.get("type")
    if kind == "json_object":
        return Format()
    if kind != "json_schema" or not isinstance(said.get("schema"), dict):
        return None
    losses.rest(said, {"type", "name", "description", "schema", "strict"}, "text.format.")
    return Format(
        dumped(said["schema"]), text_in(said.get("name")), text_in(said.get("description")), flag_in(said.get("strict"))
    )


# --- the input --------------------------------------------------------------------------------------------------------


def _messages(said: Any, losses: Losses) -> list[Message]:
    if isinstance(said, str):
        return [Message("user", (Text(said),))]
    out = []
    for item in objects(said, "input"):
        message = _item(item, losses)
        if message is not None:
            out.append(message)
    return out


def _item(item: Fields, losses: Losses) -> Message | None:
    kind = text_in(item.get("type"))
    if kind == "message" or (not kind and "role" in item):
        role = text_in(item.get("role"))
        if role not in _ROLES:
            raise Untranslatable(f"a message has the role {role!r}, which no other provider knows")
        losses.rest(item, _OWN | {"role", "content"}, "messages.")
        return Message(_ROLES[role], tuple(_parts(item.get("content"), losses)))
    if kind in ("function_call", "custom_tool_call"):
        losses.rest(item, _OWN | {"call_id", "name", "arguments", "input", "namespace"}, "function_call.")
        return Message("assistant", (call_of(item),))
    if kind in ("function_call_output", "custom_tool_call_output"):
        losses.rest(item, _OWN | {"call_id", "output", "name"}, "function_call_output.")
        parts = [part for part in _parts(item.get("output"), losses) if isinstance(part, Text | Image | File)]
        return Message("user", (Result(text_in(item.get("call_id")), tuple(parts)),))
    if kind == "reasoning":
        losses.add(FOREIGN)
        return None
    if kind in _RUN_BY_PROVIDER:
        losses.add("server tools (in the history)")
        return None
    if kind == "additional_tools":
        return None  # read as tools
    if kind in ("", "item_reference"):
        raise Untranslatable("item_reference: what the provider holds is not known to another")
    raise Untranslatable(f"the input holds an item of type {kind!r}, which the fallback does not take")


def call_of(item: Fields) -> ToolUse:
    """A call as an item holds it."""
    custom = item.get("type") == "custom_tool_call"
    written = item.get("input") if custom else item.get("arguments")
    text = written if isinstance(written, str) else dumped(written or {}).decode()
    name, space = text_in(item.get("name")), text_in(item.get("namespace"))
    return ToolUse(text_in(item.get("call_id")) or text_in(item.get("id")), name, text, custom, space)


def _parts(content: Any, losses: Losses) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    return [_part(part, losses) for part in objects(content, "content")]


def _part(part: Fields, losses: Losses) -> Part:
    kind = text_in(part.get("type"))
    if kind in ("input_text", "output_text", "text"):
        losses.rest(part, {"type", "text", "annotations", "logprobs"}, "content.")
        if part.get("annotations"):
            losses.add("citations")
        return Text(text_in(part.get("text")))
    if kind == "refusal":
        return Refusal(text_in(part.get("refusal")))
    if part.get("file_id"):
        raise Untranslatable("a file that is held at the provider cannot be read by another")
    if kind == "input_image":
        losses.rest(part, {"type", "image_url", "detail"}, "content.")
        if part.get("detail") not in (None, "auto"):
            losses.add("image detail")
        url = text_in(part.get("image_url"))
        inline = data_url(url)
        return Image(url=url) if inline is None else Image(*inline)
    if kind == "input_file":
        losses.rest(part, {"type", "file_data", "file_url", "filename", "detail"}, "content.")
        data = text_in(part.get("file_data"))
        media, inline_data = data_url(data) or ("application/pdf", data)
        return File(text_in(part.get("filename")), media, inline_data, text_in(part.get("file_url")))
    raise Untranslatable(f"a message holds a part of type {kind!r}, which the fallback does not take")
