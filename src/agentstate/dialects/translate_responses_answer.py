"""Owns answers in OpenAI's Responses API: read into the translator's form, and written from it. Must not know the other
dialects.

Invariant: an answer that is written repeats what the request asked for, as this API does, and points to nothing that a
provider holds: it has no reasoning items, which OpenAI looks up by their ids when they come back.
"""

from __future__ import annotations

from typing import Any

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
from agentstate.dialects.translate_json import Fields, count_in, fields_in, objects, text_in
from agentstate.dialects.translate_responses import call_of
from agentstate.errors import Untranslatable

# Fields of an answer that repeat the request or tell nothing of what was said.
_TOP = {
    "id", "object", "created_at", "completed_at", "model", "output", "status", "incomplete_details", "error", "usage",
    "service_tier", "instructions", "metadata", "parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p",
    "max_output_tokens", "max_tool_calls", "previous_response_id", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "reasoning", "safety_identifier", "store", "text", "top_logprobs", "truncation", "user",
    "background", "billing", "frequency_penalty", "presence_penalty", "conversation", "prompt", "tool_usage",
    "output_text", "access_programs", "content_filters", "cost_in_usd_ticks",
}  # fmt: skip
_CUT: dict[str, End] = {"max_output_tokens": "length", "content_filter": "refusal"}
_ECHO: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None,
    "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None, "truncation": "disabled",
    "user": None,
}  # fmt: skip

# --- read -------------------------------------------------------------------------------------------------------------


def read(body: Fields, losses: Losses) -> Said:
    """The answer; ``Untranslatable`` where it is not finished or proposes what only OpenAI's agents run."""
    if body.get("object") == "response.compaction":
        raise Untranslatable("a compacted conversation is known to its own provider only")
    status = text_in(body.get("status"))
    if status not in ("completed", "incomplete", ""):
        raise Untranslatable(f"the answer is {status}: there is nothing to translate")
    losses.own_fields(body, _TOP)
    parts: list[Part] = []
    thought: list[str] = []
    quotes: list[Quote] = []
    for item in objects(body.get("output"), "output"):
        _item(item, parts, thought, quotes, losses)
    end: End = "stop"
    if status == "incomplete":
        reason = text_in(fields_in(body.get("incomplete_details")).get("reason"))
        if reason not in _CUT:
            losses.add(f"incomplete_details ({reason})")
        end = _CUT.get(reason, "length")
    return Said(
        id=text_in(body.get("id")),
        model=text_in(body.get("model")),
        parts=tuple(parts),
        end=end,
        usage=_usage(body.get("usage"), losses),
        created=count_in(body.get("created_at")),
        reasoning="\n\n".join(thought),
        quotes=tuple(quotes),
        tier=text_in(body.get("service_tier")),
    )


def _item(item: Fields, parts: list[Part], thought: list[str], quotes: list[Quote], losses: Losses) -> None:
    kind = text_in(item.get("type"))
    if kind == "message":
        for part in objects(item.get("content"), "content"):
            _part(part, parts, quotes, losses)
    elif kind in ("function_call", "custom_tool_call"):
        parts.append(call_of(item)._replace(space=""))
    elif kind == "reasoning":
        said = [*objects(item.get("summary"), "summary"), *objects(item.get("content"), "content")]
        found = [text_in(part.get("text")) for part in said if text_in(part.get("text"))]
        thought += found
        if not found:
            losses.add("thinking")
    elif kind == "tool_search_call" and item.get("execution") == "server":
        losses.add(f"output ({kind})")
    elif kind in (
        "tool_search_call",
        "local_shell_call",
        "shell_call",
        "computer_call",
        "apply_patch_call",
        "mcp_approval_request",
    ):
        raise Untranslatable(f"the answer holds a {kind}, which the agent cannot be told of in its own dialect")
    else:
        losses.add(f"output ({kind})")


def _part(part: Fields, parts: list[Part], quotes: list[Quote], losses: Losses) -> None:
    kind = text_in(part.get("type"))
    if kind == "refusal":
        parts.append(Refusal(text_in(part.get("refusal"))))
        return
    if kind != "output_text":
        losses.add(f"output ({kind})")
        return
    if part.get("logprobs"):
        losses.add("logprobs")
    before = sum(len(said.text) for said in parts if isinstance(said, Text))
    for annotation in objects(part.get("annotations"), "annotations"):
        if annotation.get("type") != "url_citation":
            losses.add("citations")
            continue
        places = (before + (count_in(annotation.get(name)) or 0) for name in ("start_index", "end_index"))
        quotes.append(Quote(text_in(annotation.get("url")), text_in(annotation.get("title")), *places))
    if text_in(part.get("text")):
        parts.append(Text(part["text"]))


def _usage(said: Any, losses: Losses) -> Usage | None:
    if not isinstance(said, dict):
        return None
    losses.own_fields(
        said, {"input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"}
    )
    asked, written = fields_in(said.get("input_tokens_details")), fields_in(said.get("output_tokens_details"))
    losses.own_fields(asked, {"cached_tokens", "cache_write_tokens", "cache_write_tokens_details"})
    losses.own_fields(written, {"reasoning_tokens"})

    def told(of: Fields, name: str) -> int | None:
        return count_in(of[name]) if name in of else NOT_TOLD

    return Usage(
        count_in(said.get("input_tokens")) or 0,
        count_in(said.get("output_tokens")) or 0,
        told(asked, "cached_tokens"),
        told(asked, "cache_write_tokens"),
        told(written, "reasoning_tokens"),
    )


# --- written ----------------------------------------------------------------------------------------------------------


def write(said: Said, asked: Fields, key: str, created: int, losses: Losses) -> Fields:
    """The answer as an agent gets it that asks in this dialect. ``key``: tells it from other answers."""
    if said.reasoning:
        losses.add("thinking")
    if said.stopped_by:
        losses.add("stop_sequence")
    stem = stem_of(said.id) or key
    reasons = {"length": "max_output_tokens", "refusal": "content_filter"}
    cut = reasons.get(said.end)
    status = "incomplete" if cut else "completed"
    echo = {name: asked[name] if asked.get(name) is not None else value for name, value in _ECHO.items()}
    return {
        "id": "resp_" + stem,
        "object": "response",
        "created_at": created if said.created is None else said.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": cut} if cut else None,
        "model": said.model,
        "output": _output(said, key, stem, status),
        "previous_response_id": None,
        "reasoning": asked.get("reasoning") or {"effort": None, "summary": None},
        "store": False,
        "usage": None if said.usage is None else _written_usage(said.usage),
        **echo,
        **({"service_tier": said.tier} if said.tier else {}),
    }


def _output(said: Said, key: str, stem: str, status: str) -> list[Fields]:
    calls = said.calls()
    names = iter(given_ids(calls, key, "call_"))
    out: list[Fields] = []
    texts: list[Fields] = []

    def close() -> None:
        if texts:
            count = sum(item["type"] == "message" for item in out)
            name = f"msg_{stem}" + (f"_{count}" if count else "")
            out.append({"type": "message", "id": name, "status": status, "role": "assistant", "content": list(texts)})
            texts.clear()

    for part in said.parts:
        if isinstance(part, ToolUse):
            close()
            out.append(_written_call(part, next(names), status))
        elif isinstance(part, Refusal):
            texts.append({"type": "refusal", "refusal": part.text})
        elif isinstance(part, Text):
            if texts and texts[-1]["type"] == "output_text":
                texts[-1]["text"] += part.text
            else:
                texts.append({"type": "output_text", "text": part.text, "annotations": [], "logprobs": []})
    close()
    if not out and status == "completed":
        texts.append({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
        close()
    _place(said.quotes, out)
    return out


def _place(quotes: tuple[Quote, ...], output: list[Fields]) -> None:
    """Put each quote beside the text that it belongs to."""
    start = 0
    for part in (part for item in output if item["type"] == "message" for part in item["content"]):
        length = len(part.get("text", ""))
        for quote in quotes:
            if part["type"] == "output_text" and start <= quote.start < max(start + length, 1):
                place = {"start_index": quote.start - start, "end_index": quote.end - start}
                part["annotations"].append({"type": "url_citation", "url": quote.url, "title": quote.title, **place})
        start += length


def _written_call(call: ToolUse, name: str, status: str) -> Fields:
    own = name.removeprefix("call_")
    space = {"namespace": call.space} if call.space else {}
    if call.custom:
        said: Fields = {"type": "custom_tool_call", "id": f"ctc_{own}", "call_id": name, "name": call.name}
        return said | {"input": call.arguments, **space}
    said = {"type": "function_call", "id": f"fc_{own}", "call_id": name, "name": call.name}
    return said | {"arguments": call.arguments or "{}", "status": status, **space}


def _written_usage(usage: Usage) -> Fields:
    def figure(count: int | None) -> int:
        return max(count or 0, 0)  # the API always gives a figure, and clients want one

    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": figure(usage.cached),
            "cache_write_tokens": figure(usage.written),
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": figure(usage.reasoning)},
        "total_tokens": usage.input + usage.output,
    }
