"""Owns questions written in Anthropic's messages from the translator's form. Must not know the other dialects.

Invariant: what is written keeps Anthropic's rules of order: the first message is the user's, roles alternate, results
stand first in the message right after their calls, and no text is empty. No thinking goes over, and where tools have
been called by another provider's answers the model is kept from thinking as far as it can be.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.dialects import translate_models as models
from agentstate.dialects.translate_form import (
    Asked,
    Choice,
    File,
    Image,
    Losses,
    Message,
    Part,
    Refusal,
    Text,
    Tool,
    ToolUse,
    joined_users,
    settled,
    wire_name,
    with_tools_of_history,
)
from agentstate.dialects.translate_json import Fields, object_of, plain_text, value_of
from agentstate.dialects.translate_models import Takes
from agentstate.dialects.translate_schema import for_anthropic, strict_for_anthropic
from agentstate.errors import Untranslatable

# Tokens of thinking for an effort, of models that think by a number of them: pydantic-ai's table.
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 10_000, "high": 16_384, "xhigh": 32_768, "max": 32_768}
_GO_ON = "(continue)"  # what the user says where Anthropic wants somebody to have said something
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_FREE_TEXT = b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


def write(asked: Asked, model: str, losses: Losses) -> Fields:
    """The body that asks a model plainly."""
    takes = models.claude(model)
    asked = with_tools_of_history(_allowed(asked))
    system, messages = _conversation(asked, takes, losses)
    limit = _limit(asked, takes, losses)
    said: Fields = {"model": model, "max_tokens": limit, "messages": messages}
    if system:
        said["system"] = system
    said |= _sampling(asked, takes, losses)
    stops = [text for text in asked.stop if text.strip()]
    if len(stops) < len(asked.stop):
        losses.add("stop (blanks only)")
    if stops:
        said["stop_sequences"] = stops
    if asked.tools:
        said["tools"] = [_tool(tool, takes, losses) for tool in asked.tools]
        if choice := _choice(asked, takes, losses):
            said["tool_choice"] = choice
    if output := _output(asked, takes, losses):
        said["output_config"] = output
    if thinking := _thinking(asked, takes, said, losses):
        said["thinking"] = thinking
    return said | _whom(asked, losses)


def _limit(asked: Asked, takes: Takes, losses: Losses) -> int:
    if asked.max_tokens is None:
        return min(models.DEFAULT_MAX_TOKENS, takes.most or models.DEFAULT_MAX_TOKENS)
    if takes.most and asked.max_tokens > takes.most:
        losses.add(f"max_tokens (lowered to {takes.most})")
        return takes.most
    return max(asked.max_tokens, 1)


def _sampling(asked: Asked, takes: Takes, losses: Losses) -> Fields:
    said: Fields = {}
    if asked.temperature is not None:
        said["temperature"] = min(asked.temperature, 1)
        if asked.temperature > 1 and takes.sampling:
            losses.add("temperature (lowered to 1)")
    if asked.top_p is not None:
        said["top_p"] = asked.top_p
    if asked.top_k is not None:
        said["top_k"] = asked.top_k
    if not takes.sampling:
        for name, value in said.items():
            if value != 1:
                losses.add(name)
        return {}
    if not takes.together and "temperature" in said and said.pop("top_p", 1) != 1:
        losses.add("top_p")
    return said


def _whom(asked: Asked, losses: Losses) -> Fields:
    said: Fields = {}
    shared = {name: value_of(text) for name, text in asked.shared}
    user = asked.user or shared.pop("safety_identifier", "")
    if user:
        said["metadata"] = {"user_id": user}
    for name in shared:
        losses.add(name)
    if asked.verbosity:
        losses.add("verbosity")
    if asked.tier == "default":
        said["service_tier"] = "standard_only"
    elif asked.tier not in ("", "auto"):
        losses.add("service_tier")
    return said


# --- how the model thinks and answers ---------------------------------------------------------------------------------


def _output(asked: Asked, takes: Takes, losses: Losses) -> Fields:
    said: Fields = {}
    if asked.effort and asked.effort != "none" and takes.effort:
        effort = models.nearest(asked.effort, takes.effort)
        if takes.off and _has_calls(asked) and effort in ("xhigh", "max"):
            effort = "high"  # the most that a model takes that is kept from thinking
        if effort != asked.effort:
            losses.add(f"reasoning_effort ({asked.effort} as {effort})")
        said["effort"] = effort
    form = asked.format
    if form is None:
        return said
    if not form.schema:
        losses.add("response_format (json_object)")
    elif not takes.structured:
        losses.add("response_format (json_schema)")
    else:
        schema, lost = for_anthropic(form.schema)
        for name in lost:
            losses.add(f"response_format.schema ({name})")
        for name, told in (("name", form.name), ("description", form.description)):
            if told:
                losses.add(f"response_format.{name}")
        said["format"] = {"type": "json_schema", "schema": value_of(schema)}
    return said


def _thinking(asked: Asked, takes: Takes, said: Fields, losses: Losses) -> Fields | None:
    wanted = asked.effort is not None and asked.effort != "none"
    if _has_calls(asked):
        if wanted and (takes.adaptive or takes.budget):
            losses.add("reasoning_effort (no thinking after calls of another provider)")
        return {"type": takes.off} if takes.off else None
    if asked.effort == "none":
        return {"type": takes.off} if takes.off else None
    if not wanted:
        return None
    if takes.adaptive:
        return {"type": "adaptive"}
    if takes.effort:
        return None
    budget = _BUDGETS.get(asked.effort or "medium", 0)
    forced = said.get("tool_choice", {}).get("type") in ("any", "tool")
    if (
        takes.budget
        and budget < said["max_tokens"]
        and not forced
        and not {"temperature", "top_p", "top_k"} & set(said)
    ):
        return {"type": "enabled", "budget_tokens": budget}
    if asked.effort:
        losses.add("reasoning_effort")
    return None


def _has_calls(asked: Asked) -> bool:
    return any(isinstance(part, ToolUse) for message in asked.messages for part in message.parts)


# --- tools ------------------------------------------------------------------------------------------------------------


def _allowed(asked: Asked) -> Asked:
    """The question with only those tools that may be called, where not all may: there is no choice that says so."""
    if asked.choice is None or not asked.choice.only:
        return asked
    tools = tuple(tool for tool in asked.tools if tool.name in asked.choice.only)
    return replace(asked, tools=tools, choice=Choice(asked.choice.kind))


def _tool(tool: Tool, takes: Takes, losses: Losses) -> Fields:
    said: Fields = {"name": wire_name(tool.name, tool.space)}
    if tool.description:
        said["description"] = tool.description
    schema = value_of(tool.schema or _FREE_TEXT)
    said["input_schema"] = {"type": "object", **(schema if isinstance(schema, dict) else {})}
    if not tool.strict:
        return said
    if takes.structured and strict_for_anthropic(tool.schema):
        said["strict"] = True
    else:
        losses.add("tools.strict")
    return said


def _choice(asked: Asked, takes: Takes, losses: Losses) -> Fields:
    choice = asked.choice or Choice("auto")
    kind = {"auto": "auto", "required": "any", "none": "none", "tool": "tool"}[choice.kind]
    said: Fields = {"type": kind}
    if kind in ("any", "tool") and not takes.forced:
        losses.add("tool_choice (forced)")
        said = {"type": "auto"}
    elif kind == "tool":
        said["name"] = wire_name(choice.name)
    if asked.parallel is not None and kind != "none":
        said["disable_parallel_tool_use"] = not asked.parallel
    return said if len(said) > 1 or asked.choice is not None else {}


# --- messages ---------------------------------------------------------------------------------------------------------


def _conversation(asked: Asked, takes: Takes, losses: Losses) -> tuple[list[Fields], list[Fields]]:
    """(system blocks, messages)."""
    system: list[Fields] = []
    spoken: list[Message] = []
    for message in settled(asked.messages):
        if message.role != "system":
            spoken.append(message)
            continue
        said = [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]
        texts = [{"type": "text", "text": text} for text in said]
        if spoken and texts:
            losses.add("system messages (moved to the front)")
        system += texts
    out = []
    for message in _joined(spoken):
        content = [_block(part, losses) for part in message.parts if _says(part)]
        if content:
            out.append({"role": message.role, "content": content})
    return _with_user(system, [_plain(message) for message in out], takes, losses)


def _joined(spoken: list[Message]) -> list[Message]:
    """The messages that say something, roles alternating; results stand first, as ``settled`` puts them there."""
    kept = [Message(one.role, tuple(part for part in one.parts if _says(part))) for one in spoken]
    return joined_users(settled([one for one in kept if one.parts]))


def _with_user(
    system: list[Fields], messages: list[Fields], takes: Takes, losses: Losses
) -> tuple[list[Fields], list[Fields]]:
    """The same with what a user would have to say where Anthropic wants it."""
    if not messages and system:
        losses.add("system messages (said as the user)")
        return system[:-1], [{"role": "user", "content": system[-1]["text"]}]
    if not messages:
        raise Untranslatable("the request says nothing that another provider could read")
    if messages[0]["role"] == "assistant":
        losses.add("messages (the user begins)")
        messages = [{"role": "user", "content": _GO_ON}, *messages]
    last = messages[-1]
    if last["role"] == "assistant":
        if not takes.prefill:
            losses.add("messages (the user ends)")
            return system, [*messages, {"role": "user", "content": _GO_ON}]
        if isinstance(last["content"], str):  # which may not end with blanks where the answer goes on from it
            messages = [*messages[:-1], {**last, "content": last["content"].rstrip()}]
    return system, messages


def _plain(message: Fields) -> Fields:
    """A message of one text as a string."""
    content = message["content"]
    if len(content) == 1 and content[0]["type"] == "text":
        return {**message, "content": content[0]["text"]}
    return message


def _says(part: Part) -> bool:
    """Whether a part may stand in a message: Anthropic refuses texts of nothing but blanks."""
    return not isinstance(part, Text | Refusal) or bool(part.text.strip())


def _block(part: Part, losses: Losses) -> Fields:
    if isinstance(part, Text | Refusal):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return _image(part)
    if isinstance(part, File):
        return _document(part)
    if isinstance(part, ToolUse):
        name = wire_name(part.name, part.space)
        return {"type": "tool_use", "id": part.id, "name": name, "input": _input(part, losses)}
    said: Fields = {"type": "tool_result", "tool_use_id": part.id}
    content = [_block(inner, losses) for inner in part.parts if _says(inner)]
    if len(content) == 1 and content[0]["type"] == "text":
        said["content"] = content[0]["text"]
    elif content:
        said["content"] = content
    return said | ({"is_error": True} if part.failed else {})


def _input(call: ToolUse, losses: Losses) -> Fields:
    if call.custom:
        return {"input": call.arguments}
    found = object_of(call.arguments)
    if found is None:
        losses.add("tool_calls.arguments (not a JSON object)")
        return {"arguments": call.arguments}
    return found


def _image(image: Image) -> Fields:
    if image.url:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    if image.media not in _IMAGES:
        raise Untranslatable(f"an image of type {image.media!r}: Anthropic takes {', '.join(_IMAGES)}")
    return {"type": "image", "source": {"type": "base64", "media_type": image.media, "data": image.data}}


def _document(file: File) -> Fields:
    if file.url:
        source = {"type": "url", "url": file.url}
    elif file.media == "application/pdf":
        source = {"type": "base64", "media_type": file.media, "data": file.data}
    elif file.media.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": plain_text(file.data)}
    else:
        raise Untranslatable(f"a file of type {file.media!r}: Anthropic takes PDF and text")
    return {"type": "document", "source": source, **({"title": file.name} if file.name else {})}
