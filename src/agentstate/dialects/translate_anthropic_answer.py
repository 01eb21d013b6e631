"""Owns answers in Anthropic's messages: read into the translator's form, and written from it. Must not know the other
dialects.

Invariant: an answer that is written holds no thinking, for nobody but Anthropic can sign it.
"""

from __future__ import annotations

from typing import Any

from agentstate.dialects.anthropic_shape import readable
from agentstate.dialects.translate_form import (
    NOT_TOLD,
    End,
    Losses,
    Part,
    Refusal,
    Said,
    Text,
    ToolUse,
    Usage,
    given_ids,
    stem_of,
)
from agentstate.dialects.translate_json import Fields, count_in, dumped, fields_in, object_of, objects, text_in

_TOP = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"}
_ENDS: dict[str, End] = {
    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tools", "max_tokens": "length",
    "model_context_window_exceeded": "length", "refusal": "refusal",
}  # fmt: skip
_REASONS: dict[End, str] = {"stop": "end_turn", "tools": "tool_use", "length": "max_tokens", "refusal": "refusal"}
_USAGE = {
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation",
    "output_tokens_details", "service_tier", "inference_geo", "speed",
}  # fmt: skip
_TIERS = {"standard": "default", "priority": "priority"}

# --- read -------------------------------------------------------------------------------------------------------------


def read(body: Fields, losses: Losses) -> Said:
    """The answer."""
    losses.own_fields(body, _TOP)
    reason = text_in(body.get("stop_reason"))
    if reason not in _ENDS:
        losses.add(f"stop_reason ({reason})")
    parts: list[Part] = []
    thought: list[str] = []
    for block in objects(body.get("content"), "content"):
        _block(block, parts, thought, losses)
    explanation = text_in(fields_in(body.get("stop_details")).get("explanation"))
    if explanation:
        parts.append(Refusal(explanation))
    usage = fields_in(body.get("usage"))
    tier = text_in(usage.get("service_tier"))
    if tier and tier not in _TIERS:
        losses.add("usage.service_tier")
    return Said(
        id=text_in(body.get("id")),
        model=text_in(body.get("model")),
        parts=tuple(parts),
        end=_ENDS.get(reason, "stop"),
        usage=_usage(usage, losses) if usage else None,
        reasoning="\n\n".join(thought),
        stopped_by=text_in(body.get("stop_sequence")),
        tier=_TIERS.get(tier, ""),
    )


def _block(block: Fields, parts: list[Part], thought: list[str], losses: Losses) -> None:
    kind = text_in(block.get("type"))
    if kind == "text":
        if block.get("citations"):
            losses.add("citations")
        if text_in(block.get("text")):
            parts.append(Text(block["text"]))
    elif kind == "tool_use":
        written = dumped(fields_in(block.get("input"))).decode()
        parts.append(ToolUse(text_in(block.get("id")), text_in(block.get("name")), written))
    elif kind == "thinking" and text_in(block.get("thinking")):
        thought.append(block["thinking"])
    elif kind in ("thinking", "redacted_thinking"):
        losses.add("thinking")
    elif kind != "fallback":
        losses.add(f"content ({kind})")


def _usage(said: Fields, losses: Losses) -> Usage:
    losses.own_fields(said, _USAGE)
    details = fields_in(said.get("output_tokens_details"))

    def told(of: Fields, name: str) -> int | None:
        return count_in(of[name]) if name in of else NOT_TOLD

    cached, written = told(said, "cache_read_input_tokens"), told(said, "cache_creation_input_tokens")
    # Tokens that were read from the cache or written to it stand beside the others here, and among them in OpenAI's.
    input_ = (count_in(said.get("input_tokens")) or 0) + sum(max(count or 0, 0) for count in (cached, written))
    output = count_in(said.get("output_tokens")) or 0
    return Usage(input_, output, cached, written, told(details, "thinking_tokens"))


# --- written ----------------------------------------------------------------------------------------------------------


def write(said: Said, asked: Fields, key: str, created: int, losses: Losses) -> Fields:
    """The answer as an agent gets it that asks in this dialect. ``key``: tells it from other answers."""
    if said.reasoning:
        losses.add("thinking")
    if said.quotes:
        losses.add("citations")
    calls, refusal = said.calls(), said.refusal()
    names = iter(given_ids(calls, key, "toolu_"))
    content: list[Fields] = []
    for part in said.parts:
        if isinstance(part, ToolUse):
            content.append(
                {"type": "tool_use", "id": next(names), "name": part.name, "input": _input(part, said, losses)}
            )
        elif isinstance(part, Text | Refusal) and part.text:
            content.append({"type": "text", "text": part.text})
    reason = "tool_use" if calls and said.end == "stop" else _REASONS[said.end]
    if reason == "tool_use" and not calls:
        reason = "end_turn"
    if refusal and not calls and not said.texts():
        reason = "refusal"
    out: Fields = {
        "id": "msg_" + (stem_of(said.id) or key),
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": _written_usage(said, losses),
    }
    if reason == "refusal":
        out["stop_details"] = {"type": "refusal", "category": None, "explanation": refusal or None}
    return out


def _input(call: ToolUse, said: Said, losses: Losses) -> Fields:
    """The arguments as an object: of those that a limit cut, as much as is whole, as Anthropic itself shows them."""
    found = object_of(call.arguments)
    if found is None and said.end in ("length", "refusal"):
        found = object_of(readable(call.arguments))
        losses.add("tool_calls.arguments (cut)")
    if found is None:
        losses.add("tool_calls.arguments (not a JSON object)")
        return {"arguments": call.arguments}
    return found


def _written_usage(said: Said, losses: Losses) -> Fields:
    usage = said.usage
    if usage is None:
        losses.add("usage")
        return {"input_tokens": 0, "output_tokens": 0}
    beside = sum(max(count or 0, 0) for count in (usage.cached, usage.written))
    out: Fields = {"input_tokens": max(usage.input - beside, 0)}
    for name, count in (
        ("cache_creation_input_tokens", usage.written),
        ("cache_read_input_tokens", usage.cached),
    ):
        if count != NOT_TOLD:
            out[name] = count
    out["output_tokens"] = usage.output
    if usage.reasoning not in (NOT_TOLD, None):
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    tiers: dict[str, Any] = {word: ours for ours, word in _TIERS.items()}
    if said.tier in tiers:
        out["service_tier"] = tiers[said.tier]
    elif said.tier:
        losses.add("service_tier")
    return out
