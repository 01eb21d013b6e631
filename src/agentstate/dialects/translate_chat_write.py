"""Owns questions written in OpenAI's chat completions from the translator's form. Must not know the other dialects.

Invariant: no field of another dialect is in what is written; results of calls stand right after them, one message each.
"""

from __future__ import annotations

from agentstate.dialects import translate_models as models
from agentstate.dialects.translate_form import (
    Asked,
    File,
    Format,
    Image,
    Losses,
    Message,
    Part,
    Refusal,
    Result,
    Text,
    Tool,
    ToolUse,
    settled,
    wire_name,
)
from agentstate.dialects.translate_json import Fields, plain_text, value_of
from agentstate.dialects.translate_openai import effort, options, parallel, sampling, strict_as_openai
from agentstate.errors import Untranslatable


def write(asked: Asked, model: str, losses: Losses) -> Fields:
    """The body that asks a model plainly."""
    asked = strict_as_openai(asked, losses)
    said: Fields = {"model": model, "messages": _written(asked, losses)}
    said |= options(asked, losses)
    if "metadata" in said:  # which OpenAI takes here only with what it is to keep
        del said["metadata"]
        losses.add("metadata")
    if asked.max_tokens is not None:
        most = models.most_tokens(model)
        if most and asked.max_tokens > most:
            losses.add(f"max_tokens (lowered to {most})")
        limit = min(asked.max_tokens, most or asked.max_tokens)
        said["max_completion_tokens" if models.reasons(model) else "max_tokens"] = limit
    said |= sampling(asked, model, losses)
    if asked.stop and models.reasons(model):
        losses.add("stop")
    elif asked.stop:
        if len(asked.stop) > 4:
            losses.add("stop (4 of them)")
        said["stop"] = list(asked.stop[:4])
    if how_much := effort(asked, model, losses):
        said["reasoning_effort"] = how_much
    if asked.verbosity:
        said["verbosity"] = asked.verbosity
    if asked.tools:
        said["tools"] = [_written_tool(tool, losses) for tool in asked.tools]
        said |= _written_choice(asked, model, losses)
    if asked.format is not None:
        said["response_format"] = _written_format(asked.format)
    return said


def _written_tool(tool: Tool, losses: Losses) -> Fields:
    name = wire_name(tool.name, tool.space)
    about = {"description": tool.description} if tool.description else {}
    if not tool.schema:
        return {"type": "custom", "custom": {"name": name, **about}}
    strict = {} if tool.strict is None else {"strict": tool.strict}
    return {"type": "function", "function": {"name": name, **about, "parameters": value_of(tool.schema), **strict}}


def _written_choice(asked: Asked, model: str, losses: Losses) -> Fields:
    choice = asked.choice
    out: Fields = parallel(asked, model, losses)
    if choice is None:
        return out
    kinds = {wire_name(tool.name, tool.space): "function" if tool.schema else "custom" for tool in asked.tools}

    def named(name: str) -> Fields:
        kind = kinds.get(wire_name(name), "function")
        return {"type": kind, kind: {"name": wire_name(name)}}

    if choice.only:
        allowed = {"mode": choice.kind, "tools": [named(name) for name in choice.only]}
        return out | {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}}
    return out | {"tool_choice": named(choice.name) if choice.kind == "tool" else choice.kind}


def _written_format(form: Format) -> Fields:
    if not form.schema:
        return {"type": "json_object"}
    about = {"description": form.description} if form.description else {}
    strict = {} if form.strict is None else {"strict": form.strict}
    schema = {"name": form.name or "answer", **about, "schema": value_of(form.schema), **strict}
    return {"type": "json_schema", "json_schema": schema}


def _written(asked: Asked, losses: Losses) -> list[Fields]:
    out: list[Fields] = []
    for message in settled(asked.messages):
        if message.role == "system":
            text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text) and part.text)
            out += [{"role": "system", "content": text}] if text else []
        elif message.role == "assistant":
            out += _written_answer(message)
        else:
            out += _written_user(message, losses)
    return out


def _written_answer(message: Message) -> list[Fields]:
    text = "".join(part.text for part in message.parts if isinstance(part, Text | Refusal))
    calls = [_written_call(part) for part in message.parts if isinstance(part, ToolUse)]
    if not text and not calls:
        return []
    return [{"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}]


def _written_call(call: ToolUse) -> Fields:
    name = wire_name(call.name, call.space)
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": name, "input": call.arguments}}
    arguments = call.arguments if call.arguments.strip() else "{}"
    return {"id": call.id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _written_user(message: Message, losses: Losses) -> list[Fields]:
    """The results in a message, one message each, then what else it holds: images of results too, which a result
    cannot hold here."""
    out: list[Fields] = []
    more: list[Part] = []
    for part in message.parts:
        if not isinstance(part, Result):
            continue
        text = "\n".join(inner.text for inner in part.parts if isinstance(inner, Text))
        out.append({"role": "tool", "tool_call_id": part.id, "content": text})
        shown = [inner for inner in part.parts if not isinstance(inner, Text)]
        if shown:
            losses.add("tool_result.content (images and files sent after it)")
            more += [Text(f"What the call {part.id} gave:"), *shown]
        if part.failed:
            losses.add("tool_result.is_error")
    more += [part for part in message.parts if not isinstance(part, Result)]
    content = [_written_part(part) for part in more if not (isinstance(part, Text) and not part.text)]
    if len(content) == 1 and content[0]["type"] == "text":
        return [*out, {"role": "user", "content": content[0]["text"]}]
    return [*out, {"role": "user", "content": content}] if content else out


def _written_part(part: Part) -> Fields:
    if isinstance(part, Text | Refusal):
        return {"type": "text", "text": part.text}
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media};base64,{part.data}"}}
    assert isinstance(part, File)
    if part.url:
        raise Untranslatable("a document by its URL: chat completions take the document itself only")
    if part.media.startswith("text/"):
        return {"type": "text", "text": "\n\n".join(filter(None, (part.name, plain_text(part.data))))}
    data = f"data:{part.media};base64,{part.data}"
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": data}}
