"""Owns questions in Anthropic's messages read into the translator's form. Must not know the other dialects.

Invariant: every field of a question is in the form or among the losses. Thinking is bound by its signature to the
provider that wrote it, so it never goes over.
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
    Result,
    Role,
    Text,
    Tool,
    ToolUse,
)
from agentstate.dialects.translate_json import (
    Fields,
    base64_of,
    count_in,
    dumped,
    fields_in,
    flag_in,
    number_in,
    objects,
    text_in,
    texts_in,
)
from agentstate.dialects.translate_tools import unknown_tools
from agentstate.errors import Untranslatable

PATH = "messages"
FOREIGN = "thinking (foreign signature)"

_KNOWN = frozenset(
    {
        "model", "max_tokens", "messages", "system", "tools", "tool_choice", "temperature", "top_p", "top_k",
        "stop_sequences", "stream", "thinking", "output_config", "metadata", "service_tier", "container", "thread",
        "output_format",
    }
)  # fmt: skip
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_BILLING = "x-anthropic-billing-header:"  # a line of Claude Code's for Anthropic's accounts; tells the model nothing
_SAYS_NOTHING = ("fallback", "mid_conv_system")
# Tokens of thinking that are less than the next effort's, from pydantic-ai's table of what Claude's efforts come to.
_BUDGETS = ((4_096, "low"), (16_384, "medium"))


def read(body: Fields, losses: Losses) -> Asked:
    """The question; ``Untranslatable`` for what the provider keeps and tools that only Claude models know."""
    for name in ("container", "thread"):
        if body.get(name) is not None:
            raise Untranslatable(f"{name}: what Anthropic keeps is not known to another provider")
    if count_in(body.get("max_tokens")) == 0:
        raise Untranslatable("max_tokens is 0: there is no answer to be had from another provider")
    losses.rest(body, _KNOWN)
    choice = fields_in(body.get("tool_choice"))
    losses.rest(choice, {"type", "name", "disable_parallel_tool_use"}, "tool_choice.")
    serial = flag_in(choice.get("disable_parallel_tool_use"))
    who = fields_in(body.get("metadata"))
    losses.rest(who, {"user_id"}, "metadata.")
    output = fields_in(body.get("output_config"))
    losses.rest(output, {"effort", "format"}, "output_config.")
    tier = text_in(body.get("service_tier"))
    system = Message("system", tuple(_system(body.get("system"), losses)))
    return Asked(
        messages=(*((system,) if system.parts else ()), *_messages(body.get("messages"), losses)),
        tools=tools(body, losses),
        choice=_choice(choice),
        parallel=None if serial is None else not serial,
        max_tokens=count_in(body.get("max_tokens")),
        temperature=number_in(body.get("temperature")),
        top_p=number_in(body.get("top_p")),
        top_k=count_in(body.get("top_k")),
        stop=texts_in(body.get("stop_sequences")),
        format=_format(fields_in(output.get("format") or body.get("output_format"))),
        effort=_effort(fields_in(body.get("thinking")), text_in(output.get("effort"))),
        user=_user(text_in(who.get("user_id")), losses),
        tier="default" if tier == "standard_only" else "",
    )


def tools(body: Fields, losses: Losses) -> tuple[Tool, ...]:
    """The tools that a question offers and the agent runs."""
    said = objects(body.get("tools"), "tools")
    own = [tool for tool in said if tool.get("type") in (None, "custom")]
    unknown_tools((text_in(tool.get("type")) for tool in said if tool not in own), bool(own), losses)
    for tool in own:
        losses.rest(tool, {"type", "name", "description", "input_schema", "strict"}, "tools.")
    return tuple(
        Tool(
            text_in(tool.get("name")),
            text_in(tool.get("description")),
            dumped(fields_in(tool.get("input_schema"))),
            flag_in(tool.get("strict")),
        )
        for tool in own
    )


def _user(name: str, losses: Losses) -> str:
    """The user, where OpenAI takes the name, which is at most 64 characters long there."""
    if len(name) <= 64:
        return name
    losses.add("metadata.user_id")
    return ""


def _choice(said: Fields) -> Choice | None:
    kinds = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
    kind = kinds.get(text_in(said.get("type")))
    return None if kind is None else Choice(kind, text_in(said.get("name")))


def _format(said: Fields) -> Format | None:
    schema = said.get("schema")
    return Format(dumped(schema), strict=True) if isinstance(schema, dict) else None


def _effort(thinking: Fields, effort: str) -> str | None:
    kind = thinking.get("type")
    if kind in ("disabled", "between_tools"):
        return "none"
    if effort:
        return effort
    if kind == "enabled":
        budget = count_in(thinking.get("budget_tokens")) or 0
        return next((name for most, name in _BUDGETS if budget < most), "high")
    return "" if kind == "adaptive" else None


def _system(said: Any, losses: Losses) -> list[Part]:
    found: list[Part] = []
    for part in _blocks(said, losses):
        if isinstance(part, Text) and part.text.startswith(_BILLING):
            losses.add("system (billing line)")
        else:
            found.append(part)
    return found


def _messages(said: Any, losses: Losses) -> list[Message]:
    out = []
    for message in objects(said, "messages"):
        role = text_in(message.get("role"))
        if role not in _ROLES:
            raise Untranslatable(f"a message has the role {role!r}, which no other provider knows")
        losses.rest(message, {"role", "content"}, "messages.")
        out.append(Message(_ROLES[role], tuple(_blocks(message.get("content"), losses))))
    return out


# --- content ----------------------------------------------------------------------------------------------------------


def _blocks(content: Any, losses: Losses) -> list[Part]:
    if isinstance(content, str):
        return [Text(content)] if content else []
    found: list[Part] = []
    for block in objects(content, "content"):
        found += _block(block, losses)
    return found


def _block(block: Fields, losses: Losses) -> list[Part]:
    kind = text_in(block.get("type"))
    if kind == "text":
        losses.rest(block, {"type", "text", "citations"}, "content.")
        if block.get("citations"):
            losses.add("citations")
        return [Text(text_in(block.get("text")))]
    if kind in ("thinking", "redacted_thinking"):
        losses.add(FOREIGN)
        return []
    if kind == "tool_use":
        losses.rest(block, {"type", "id", "name", "input", "caller"}, "tool_use.")
        written = dumped(block.get("input") or {}).decode()
        return [ToolUse(text_in(block.get("id")), text_in(block.get("name")), written)]
    if kind == "tool_result":
        return [_result(block, losses)]
    if kind in ("image", "document", "search_result"):
        return _shown(kind, block, losses)
    return _rare(kind, block, losses)


def _rare(kind: str, block: Fields, losses: Losses) -> list[Part]:
    if kind.endswith("tool_use") or kind.endswith("tool_result"):
        losses.add("server tools (in the history)")
        return []
    if kind == "compaction":
        losses.rest(block, {"type", "content"}, "compaction.")
        return [Text(text_in(block.get("content")))]
    if kind in _SAYS_NOTHING:
        return []
    if kind == "tool_reference":
        losses.add("tool_reference")
        return []
    raise Untranslatable(f"a message holds a block of type {kind!r}, which the fallback does not take")


def _result(block: Fields, losses: Losses) -> Result:
    losses.rest(block, {"type", "tool_use_id", "content", "is_error"}, "tool_result.")
    parts = [part for part in _blocks(block.get("content"), losses) if isinstance(part, Text | Image | File)]
    return Result(text_in(block.get("tool_use_id")), tuple(parts), block.get("is_error") is True)


def _shown(kind: str, block: Fields, losses: Losses) -> list[Part]:
    if kind == "search_result":
        losses.rest(block, {"type", "title", "source", "content", "citations"}, "search_result.")
        texts = [part.text for part in _blocks(block.get("content"), losses) if isinstance(part, Text)]
        return [Text("\n".join([f"{text_in(block.get('title'))} ({text_in(block.get('source'))})", *texts]))]
    known = {"type", "source", "title", "context", "citations"}
    losses.rest(block, known, f"{kind}.")
    source = fields_in(block.get("source"))
    how = source.get("type")
    if how == "file":
        raise Untranslatable("a file that is held at the provider cannot be read by another")
    media, data, url = (text_in(source.get(name)) for name in ("media_type", "data", "url"))
    if kind == "image":
        return [Image(media, data, url)]
    if fields_in(block.get("citations")).get("enabled"):
        losses.add("citations")
    title, about = text_in(block.get("title")), text_in(block.get("context"))
    before: list[Part] = [Text(about)] if about else []
    if how == "content":
        return [*before, *([Text(title)] if title else []), *_blocks(source.get("content"), losses)]
    if how == "text":
        return [*before, File(title, "text/plain", base64_of(data))]
    return [*before, File(title, media or "application/pdf", data, url)]
