"""Owns reading Ollama's chat and generate for exports. Must not know the other dialects but chat, whose form its
messages have.

Invariant: a result that names a tool, and no call, answers the first open call of that tool.
"""

from __future__ import annotations

from agentstate.dialects import translate_chat, translate_chat_answer
from agentstate.dialects.translate_form import Asked, Losses, Said
from agentstate.dialects.translate_json import Fields, fields_in, objects, text_in, texts_in

KEPT = frozenset({"messages", "tools", "prompt", "system", "images"})


def read(body: Fields, losses: Losses) -> Asked:
    """The question, of either path. Raises ``Untranslatable``."""
    messages = objects(body.get("messages"), "messages")
    if not messages and body.get("prompt"):
        first = [{"role": "system", "content": body["system"]}] if text_in(body.get("system")) else []
        messages = [*first, {"role": "user", "content": body["prompt"], "images": body.get("images")}]
    said: list[Fields] = []
    for message in messages:
        said.append(_message(message, said))
    return translate_chat.read({"messages": said, "tools": body.get("tools")}, losses)


def read_answer(body: Fields, losses: Losses) -> Said:
    """The answer, of either path."""
    message = fields_in(body.get("message")) or {"role": "assistant", "content": text_in(body.get("response"))}
    reason = text_in(body.get("done_reason"))
    choice = {"message": _message(message, []), "finish_reason": "length" if reason == "length" else "stop"}
    thought = text_in(message.get("thinking"))
    said = translate_chat_answer.read({"choices": [choice], "model": body.get("model")}, losses)
    return said if not thought else _with_thought(said, thought)


def _with_thought(said: Said, thought: str) -> Said:
    return Said(said.id, said.model, said.parts, said.end, reasoning=thought)


def _message(message: Fields, before: list[Fields]) -> Fields:
    """A message as chat has it. ``before``: those before it, as chat has them."""
    out: Fields = {"role": message.get("role"), "content": message.get("content") or ""}
    pictures = texts_in(message.get("images"))
    if pictures:
        texts = [{"type": "text", "text": out["content"]}] if out["content"] else []
        parts = [{"type": "image_url", "image_url": {"url": _data_url(data)}} for data in pictures]
        out["content"] = [*texts, *parts]
    calls = objects(message.get("tool_calls"), "tool_calls")
    if calls:
        place = sum(len(one.get("tool_calls", ())) for one in before)
        out["tool_calls"] = [
            {"id": text_in(call.get("id")) or f"call_{place + at}", "function": call.get("function")}
            for at, call in enumerate(calls)
        ]
    if message.get("role") == "tool":
        out["tool_call_id"] = text_in(message.get("tool_call_id")) or _open(text_in(message.get("tool_name")), before)
    return out


def _data_url(data: str) -> str:
    """Pictures come as base64 without their kind, which its beginning tells."""
    kinds = {"iVBOR": "png", "/9j/": "jpeg", "R0lGO": "gif", "UklGR": "webp"}
    kind = next((kind for start, kind in kinds.items() if data.startswith(start)), "png")
    return data if data.startswith("data:") else f"data:image/{kind};base64,{data}"


def _open(tool: str, before: list[Fields]) -> str:
    answered = {one.get("tool_call_id") for one in before}
    for message in before:
        for call in message.get("tool_calls", ()):
            if call["id"] not in answered and tool in ("", text_in(fields_in(call["function"]).get("name"))):
                return str(call["id"])
    return ""
