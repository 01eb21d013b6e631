"""Owns what OpenAI's two dialects have in common where questions are translated. Must not know Anthropic's.

Invariant: what one of the two says and the other has a field for goes over as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentstate.dialects import translate_models as models
from agentstate.dialects.translate_form import Asked, Format, Losses, Tool
from agentstate.dialects.translate_json import Fields, dumped, value_of
from agentstate.dialects.translate_schema import strict_for_openai

# How the answer is delivered, which the proxy sees to.
DELIVERY = frozenset({"stream", "stream_options"})
# Fields that both dialects have, handed on as they are.
SHARED = frozenset(
    {
        "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
        "moderation",
    }
)  # fmt: skip
_TIERS = ("default", "flex", "scale", "priority", "fast", "ultrafast")  # compatible providers have others
# Values that say no more than that the field is absent.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "logprobs": (False,), "top_logprobs": (0,),
    "logit_bias": ({},), "store": (False,), "background": (False,), "truncation": ("disabled",), "include": ([],),
    "stop": ([],), "service_tier": ("auto",), "metadata": ({},), "text": ({},), "reasoning": ({},),
}  # fmt: skip


def neutral(body: Fields) -> Fields:
    """The fields that say something."""
    return {name: said for name, said in body.items() if said is not None and said not in _NEUTRAL.get(name, ())}


def options(asked: Asked, losses: Losses) -> Fields:
    """Whom the question is for and how it is served, in both dialects."""
    said: Fields = {name: value_of(text) for name, text in asked.shared}
    if asked.tier in _TIERS:
        said["service_tier"] = asked.tier
    elif asked.tier not in ("", "auto"):
        losses.add("service_tier")
    if asked.user:
        said["user"] = asked.user
    return said


def sampling(asked: Asked, model: str, losses: Losses) -> Fields:
    """Temperature and the like, as far as the model takes them."""
    said: Fields = {}
    for name, value in (("temperature", asked.temperature), ("top_p", asked.top_p)):
        if value is None:
            continue
        if not models.reasons(model):
            said[name] = value
        elif value != 1:
            losses.add(name)
    if asked.top_k is not None:
        losses.add("top_k")
    return said


def effort(asked: Asked, model: str, losses: Losses) -> str:
    """How much the model is to reason, in a word that it takes; empty: as it likes, or it does not reason."""
    taken = models.efforts(model)
    if not asked.effort:
        return ""
    if not taken:
        if asked.effort != "none":
            losses.add("reasoning_effort")
        return ""
    found = models.nearest(asked.effort, taken)
    if found != asked.effort:
        losses.add(f"reasoning_effort ({asked.effort} as {found})")
    return found


def parallel(asked: Asked, model: str, losses: Losses) -> Fields:
    """Whether several calls may come at once."""
    if asked.parallel is None:
        return {}
    if models.one_call_at_a_time(model):
        if not asked.parallel:
            losses.add("parallel_tool_calls")
        return {}
    return {"parallel_tool_calls": asked.parallel}


def strict_as_openai(asked: Asked, losses: Losses) -> Asked:
    """The question with tools and format ``strict`` only where OpenAI would take their schemas so."""
    return replace(
        asked,
        tools=tuple(_tool(tool, losses) for tool in asked.tools),
        format=None if asked.format is None else _format(asked.format, losses),
    )


def _tool(tool: Tool, losses: Losses) -> Tool:
    if not tool.strict or not tool.schema or strict_for_openai(tool.schema):
        return tool
    losses.add("tools.strict")
    return tool._replace(strict=False)


def _format(form: Format, losses: Losses) -> Format:
    if not form.strict or not form.schema or strict_for_openai(form.schema):
        return form
    losses.add("response_format.strict")
    return form._replace(strict=False)


def shared(body: Fields) -> tuple[tuple[str, bytes], ...]:
    """The fields of a question that both dialects have, as (name, JSON text)."""
    return tuple((name, dumped(body[name])) for name in sorted(SHARED) if name in body)
