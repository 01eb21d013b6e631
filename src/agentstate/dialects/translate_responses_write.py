"""Owns questions written in OpenAI's Responses API from the translator's form. Must not know the other dialects.

Invariant: what is asked is asked plainly and not stored: nothing of it can be pointed to later.
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

LEAST_TOKENS = 16  # of ``max_output_tokens``: OpenAI refuses fewer


def write(asked: Asked, model: str, losses: Losses) -> Fields:
    """The body that asks a model plainly."""
    asked = strict_as_openai(asked, losses)
    instructions, items = _conversation(asked, losses)
    said: Fields = {"model": model, "input": items, "store": False}
    if instructions:
        said["instructions"] = instructions
    said |= options(asked, losses)
    if asked.max_tokens is not None:
        said["max_output_tokens"] = _limit(asked.max_tokens, model, losses)
    said |= sampling(asked, model, losses)
    if asked.stop:
        losses.add("stop")
    if how_much := effort(asked, model, losses):
        said["reasoning"] = {"effort": how_much}
    text: Fields = {"verbosity": asked.verbosity} if asked.verbosity else {}
    if asked.format is not None:
        text |= {"format": written_format(asked.format)}
    if text:
        said["text"] = text
    if asked.tools:
        said["tools"] = [written_tool(tool) for tool in asked.tools]
        said |= _choice(asked, model, losses)
    return said


def _limit(wanted: int, model: str, losses: Losses) -> int:
    most = models.most_tokens(model) or wanted
    limit = max(min(wanted, most), LEAST_TOKENS)
    if limit != wanted:
        losses.add(f"max_tokens ({'lowered' if limit < wanted else 'raised'} to {limit})")
    return limit


def written_tool(tool: Tool) -> Fields:
    """A tool in this dialect, outside of any namespace."""
    name = wire_name(tool.name, tool.space)
    about = {"description": tool.description} if tool.description else {}
    if not tool.schema:
        return {"type": "custom", "name": name, **about}
    # Without a word on it this API tries to be strict; the others do not.
    return {"type": "function", "name": name, **about, "parameters": value_of(tool.schema), "strict": bool(tool.strict)}


def written_format(form: Format) -> Fields:
    """The format of an answer in this dialect."""
    if not form.schema:
        return {"type": "json_object"}
    about = {"description": form.description} if form.description else {}
    strict = {} if form.strict is None else {"strict": form.strict}
    return {"type": "json_schema", "name": form.name or "answer", **about, "schema": value_of(form.schema), **strict}


def _choice(asked: Asked, model: str, losses: Losses) -> Fields:
    choice = asked.choice
    out = parallel(asked, model, losses)
    if choice is None:
        return out
    kinds = {wire_name(tool.name, tool.space): "function" if tool.schema else "custom" for tool in asked.tools}

    def named(name: str) -> Fields:
        return {"type": kinds.get(wire_name(name), "function"), "name": wire_name(name)}

    if choice.only:
        tools = [named(name) for name in choice.only]
        return out | {"tool_choice": {"type": "allowed_tools", "mode": choice.kind, "tools": tools}}
    return out | {"tool_choice": named(choice.name) if choice.kind == "tool" else choice.kind}


# --- the input --------------------------------------------------------------------------------------------------------


def _conversation(asked: Asked, losses: Losses) -> tuple[str, list[Fields]]:
    """(instructions: the system's texts before anything else, items)."""
    first: list[str] = []
    items: list[Fields] = []
    for message in settled(asked.messages):
        if message.role != "system":
            items += _items(message, losses)
            continue
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        if not items:
            first += texts
        elif texts:
            items.append({"role": "system", "content": "\n\n".join(texts)})
    if not items and first:
        return "\n\n".join(first[:-1]), [{"role": "system", "content": first[-1]}]
    return "\n\n".join(first), items


def _items(message: Message, losses: Losses) -> list[Fields]:
    out: list[Fields] = []
    said: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolUse | Result):
            out += _message(message.role, said)
            said = []
            out.append(_call(part) if isinstance(part, ToolUse) else _result(part, losses))
        else:
            said.append(part)
    return out + _message(message.role, said)


def _message(role: str, parts: list[Part]) -> list[Fields]:
    if role == "assistant":
        text = "".join(part.text for part in parts if isinstance(part, Text | Refusal))
        return [{"role": "assistant", "content": text}] if text else []
    content = [written_part(part) for part in parts if not (isinstance(part, Text) and not part.text)]
    if len(content) == 1 and content[0]["type"] == "input_text":
        return [{"role": role, "content": content[0]["text"]}]
    return [{"role": role, "content": content}] if content else []


def _call(call: ToolUse) -> Fields:
    name = wire_name(call.name, call.space)
    if call.custom:
        return {"type": "custom_tool_call", "call_id": call.id, "name": name, "input": call.arguments}
    arguments = call.arguments if call.arguments.strip() else "{}"
    return {"type": "function_call", "call_id": call.id, "name": name, "arguments": arguments}


def _result(result: Result, losses: Losses) -> Fields:
    kind = "custom_tool_call_output" if result.custom else "function_call_output"
    content = [written_part(part) for part in result.parts]
    text = "\n".join(part["text"] for part in content if part["type"] == "input_text")
    only_text = all(part["type"] == "input_text" for part in content)
    if result.failed:
        losses.add("tool_result.is_error")
    return {"type": kind, "call_id": result.id, "output": text if only_text else content}


def written_part(part: Part) -> Fields:
    """A part of what a user says or a call gives."""
    if isinstance(part, Text | Refusal):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, Image):
        url = part.url or f"data:{part.media};base64,{part.data}"
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    assert isinstance(part, File)
    if part.media.startswith("text/") and not part.url:
        return {"type": "input_text", "text": "\n\n".join(filter(None, (part.name, plain_text(part.data))))}
    if part.url:
        return {"type": "input_file", "file_url": part.url}
    data = f"data:{part.media};base64,{part.data}"
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": data}
