"""Owns answers in OpenAI's chat completions: read into the translator's form, and written from it. Must not know the
other dialects.

Invariant: whether tools are called is told by the calls, not by the finish reason, which some providers get wrong.
"""

from __future__ import annotations

from typing import Any

from agentstate.dialects.translate_chat import call_of, is_legacy
from agentstate.dialects.translate_form import (
    NOT_TOLD,
    End,
    Losses,
    Part,
    Quote,
    Refusal,
    Said,
    Text,
    ToolUse,
    Usage,
    given_ids,
    stem_of,
)
from agentstate.dialects.translate_json import Fields, count_in, dumped, fields_in, objects, text_in
from agentstate.errors import Untranslatable

_TOP = {"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"}
_MESSAGE = {
    "role", "content", "refusal", "tool_calls", "function_call", "annotations", "reasoning", "reasoning_content",
    "reasoning_details",
}  # fmt: skip
_ENDS: dict[str, End] = {
    "stop": "stop", "eos": "stop", "end_turn": "stop", "tool_calls": "tools", "function_call": "tools",
    "length": "length", "max_tokens": "length", "content_filter": "refusal",
}  # fmt: skip
_USAGE = {
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details",
    "cached_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens",
}  # fmt: skip
_FINISH: dict[End, str] = {"stop": "stop", "tools": "tool_calls", "length": "length", "refusal": "content_filter"}
REASONING = ("reasoning_content", "reasoning")  # fields of compatible providers; the official dialect has none

# --- read -------------------------------------------------------------------------------------------------------------


def read(body: Fields, losses: Losses) -> Said:
    """The answer; ``Untranslatable`` where it has no choice, or several, or speaks."""
    choices = objects(body.get("choices"), "choices")
    if len(choices) != 1:
        raise Untranslatable(f"the answer has {len(choices)} choices, and can have one only in another dialect")
    losses.own_fields(body, _TOP)
    [choice] = choices
    if choice.get("logprobs"):
        losses.add("logprobs")
    message = fields_in(choice.get("message"))
    if message.get("audio"):
        raise Untranslatable("the answer holds audio")
    losses.rest({name: said for name, said in message.items() if said not in ([], "")}, _MESSAGE, "message.")
    finish = text_in(choice.get("finish_reason"))
    if finish not in _ENDS:
        losses.add(f"finish_reason ({finish})")
    calls = [call_of(call) for call in objects(message.get("tool_calls"), "tool_calls")]
    if isinstance(message.get("function_call"), dict):
        calls.append(call_of({"function": message["function_call"]}))
    parts: list[Part] = [Text(text) for text in _texts(message.get("content")) if text]
    if text_in(message.get("refusal")):
        parts.append(Refusal(message["refusal"]))
    return Said(
        id=text_in(body.get("id")),
        model=text_in(body.get("model")),
        parts=(*parts, *calls),
        end=_ENDS.get(finish, "stop"),
        usage=_usage(body.get("usage"), losses),
        created=count_in(body.get("created")),
        reasoning=next((message[name] for name in REASONING if text_in(message.get(name))), _thought(message)),
        quotes=tuple(_quotes(message.get("annotations"), losses)),
        tier=text_in(body.get("service_tier")),
    )


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):  # one provider parses what it was to write as JSON
        return [dumped(content).decode()]
    return [text_in(part.get("text")) for part in objects(content, "content") if part.get("type") in (None, "text")]


def _thought(message: Fields) -> str:
    """What one provider writes among the content."""
    content = message.get("content")
    found = []
    for part in content if isinstance(content, list) else ():
        if fields_in(part).get("type") == "thinking":
            said = part.get("thinking")
            found += (
                [said] if isinstance(said, str) else [text_in(fields_in(inner).get("text")) for inner in said or ()]
            )
    return "".join(found)


def _quotes(annotations: Any, losses: Losses) -> list[Quote]:
    found = []
    for annotation in objects(annotations, "annotations"):
        cited = annotation.get("url_citation")
        if annotation.get("type") == "url_citation" and isinstance(cited, dict):
            places = (count_in(cited.get("start_index")) or 0, count_in(cited.get("end_index")) or 0)
            found.append(Quote(text_in(cited.get("url")), text_in(cited.get("title")), *places))
        else:
            losses.add("citations")
    return found


def _usage(said: Any, losses: Losses) -> Usage | None:
    if not isinstance(said, dict):
        return None
    asked, written = fields_in(said.get("prompt_tokens_details")), fields_in(said.get("completion_tokens_details"))
    losses.own_fields(said, _USAGE)
    losses.own_fields(asked, {"cached_tokens", "cache_write_tokens"})
    losses.own_fields(written, {"reasoning_tokens"})
    cached = [of[name] for of, name in ((asked, "cached_tokens"), (said, "cached_tokens"),
                                        (said, "prompt_cache_hit_tokens")) if name in of]  # fmt: skip
    input_, output = count_in(said.get("prompt_tokens")) or 0, count_in(said.get("completion_tokens")) or 0
    reasoning = written.get("reasoning_tokens", NOT_TOLD)
    if (count_in(reasoning) or 0) > 0 and count_in(said.get("total_tokens")) == input_ + output + reasoning:
        output += reasoning  # one provider does not count it among the others
    return Usage(
        input_,
        output,
        count_in(cached[0]) if cached else NOT_TOLD,
        count_in(asked["cache_write_tokens"]) if "cache_write_tokens" in asked else NOT_TOLD,
        count_in(reasoning),
    )


# --- written ----------------------------------------------------------------------------------------------------------


def write(said: Said, asked: Fields, key: str, created: int, losses: Losses) -> Fields:
    """The answer as an agent gets it that asks in this dialect. ``key``: tells it from other answers."""
    message: Fields = {"role": "assistant", "content": None, "refusal": said.refusal() or None}
    text, calls = said.texts(), said.calls()
    if text or not (calls or message["refusal"]):
        message["content"] = text
    if said.quotes:
        message["annotations"] = [_written_quote(quote) for quote in said.quotes]
    if said.reasoning:
        name = _room(asked)
        if name:
            message[name] = said.reasoning
        else:
            losses.add("thinking")
    if calls:
        message |= _written_calls(calls, asked, key)
    if said.stopped_by:
        losses.add("stop_sequence")
    finish = "tool_calls" if calls and said.end == "stop" else _FINISH[said.end]
    if finish == "tool_calls" and not calls:
        finish = "stop"
    if finish == "tool_calls" and "function_call" in message:
        finish = "function_call"
    out: Fields = {
        "id": "chatcmpl-" + (stem_of(said.id) or key),
        "object": "chat.completion",
        "created": created if said.created is None else said.created,
        "model": said.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if said.usage is not None:
        out["usage"] = _written_usage(said.usage)
    return out | ({"service_tier": said.tier} if said.tier else {})


def _room(asked: Fields) -> str:
    """The field in which the agent itself sends back how its model reasoned; empty: none, and its provider would
    refuse one."""
    for message in reversed(objects(asked.get("messages"), "messages")):
        for name in REASONING:
            if isinstance(message.get(name), str):
                return name
    return ""


def _written_calls(calls: list[ToolUse], asked: Fields, key: str) -> Fields:
    if is_legacy(asked):
        if len(calls) > 1:
            raise Untranslatable("the answer calls several functions, and the request takes one")
        return {"function_call": {"name": calls[0].name, "arguments": calls[0].arguments}}
    out: list[Fields] = []
    for call, name in zip(calls, given_ids(calls, key, "call_"), strict=True):
        if call.custom:
            out.append({"id": name, "type": "custom", "custom": {"name": call.name, "input": call.arguments}})
        else:
            function = {"name": call.name, "arguments": call.arguments or "{}"}
            out.append({"id": name, "type": "function", "function": function})
    return {"tool_calls": out}


def _written_quote(quote: Quote) -> Fields:
    cited = {"url": quote.url, "title": quote.title, "start_index": quote.start, "end_index": quote.end}
    return {"type": "url_citation", "url_citation": cited}


def _written_usage(usage: Usage) -> Fields:
    out: Fields = {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
    }
    cache = {"cached_tokens": usage.cached, "cache_write_tokens": usage.written}
    told = {name: count for name, count in cache.items() if count != NOT_TOLD}
    if told:
        out["prompt_tokens_details"] = told
    if usage.reasoning != NOT_TOLD:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return out
