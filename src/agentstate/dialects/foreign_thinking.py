"""Owns taking thinking out of a question that goes to another provider in the agent's own wire format. Pure.

Must not touch what a provider of that format takes whoever wrote it. Invariant: thinking is bound, by a signature or a
name, to who wrote it, and nobody else can check that; it goes from what a candidate is sent, never from the journal.
"""

from __future__ import annotations

import re

import msgspec

from agentstate.dialects import rewriting, translate_models

LOSS = "thinking (foreign signature)"
NO_THINKING = "reasoning_effort (no thinking after calls of another provider)"
_THOUGHTS = (b'"thinking"', b'"redacted_thinking"')
# What gateways that speak OpenAI's chat format hold signed thoughts of a message in.
_IN_MESSAGES = ("reasoning_details", "thinking_blocks")
_MAKER = re.compile(r"[a-z]*")


def bound(dialect: str, asked: str, model: str, elsewhere: bool) -> bool:
    """Whether ``model`` may be unable to check what ``asked`` has thought. ``elsewhere``: at another provider; at the
    same one, which may be a gateway, models of one maker see to it themselves."""
    if elsewhere or dialect not in ("openai_chat", "anthropic_messages"):
        return elsewhere
    return _maker(asked) != _maker(model)


def _maker(model: str) -> str:
    found = _MAKER.match(model.lower())
    return found[0] if found else ""


def without(dialect: str, body: bytes, model: str) -> tuple[bytes, tuple[str, ...]]:
    """A question less the thinking in it, for ``model``: (the question, what is lost). Raises ``ValueError``."""
    if dialect == "anthropic_messages":
        return _messages(body, model) if any(word in body for word in _THOUGHTS) else (body, ())
    if dialect == "openai_responses":
        items = rewriting.listed(body, "input") if b'"reasoning"' in body else []
        left = [item for item in items if _type(item) != "reasoning"]
        return (body, ()) if len(left) == len(items) else (_with(body, "input", left), (LOSS,))
    if dialect == "openai_chat" and any(name.encode() in body for name in _IN_MESSAGES):
        messages = rewriting.listed(body, "messages")
        changed = [_plain(message) for message in messages]
        return (body, ()) if changed == messages else (_with(body, "messages", changed), (LOSS,))
    return body, ()


def _messages(body: bytes, model: str) -> tuple[bytes, tuple[str, ...]]:
    messages = rewriting.listed(body, "messages")
    left: list[bytes] = []
    calls = False
    for message in messages:
        blocks = rewriting.listed(message, "content")
        kept = [block for block in blocks if _type(block) not in ("thinking", "redacted_thinking")]
        calls = calls or any(_type(block) == "tool_use" for block in kept)
        if len(kept) == len(blocks):
            left.append(message)
        elif kept:  # who has only thought has said nothing
            left.append(_with(message, "content", kept))
    if left == messages:
        return body, ()
    body = _with(body, "messages", left)
    if not calls or not rewriting.member(body, "thinking"):
        return body, (LOSS,)
    # Who is to think must have thought before it called its tools.
    off = translate_models.claude(model).off
    said = msgspec.json.encode({"type": off}) if off else None
    return rewriting.with_members(body, {"thinking": said}), (NO_THINKING, LOSS)


def _plain(message: bytes) -> bytes:
    gone = {name: None for name in _IN_MESSAGES if rewriting.member(message, name)}
    return rewriting.with_members(message, gone) if gone else message


def _type(item: bytes) -> str:
    """What kind of item it says it is; empty: it does not."""
    found = rewriting.member(item, "type")
    return found.strip(b'"').decode("utf-8", "replace")


def _with(body: bytes, name: str, parts: list[bytes]) -> bytes:
    return rewriting.with_members(body, {name: b"[" + b",".join(parts) + b"]"})
