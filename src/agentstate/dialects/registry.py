"""Owns which path speaks which dialect, and how paths are normalised. Must not read bodies.

Invariant: a path that no dialect knows is passed through exactly as it was sent.
"""

from __future__ import annotations

from agentstate.dialects.base import Dialect, openai_error
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.pure import Pure
from agentstate.errors import AgentStateError

OPENAI_CHAT = OpenAIChat()
PURE = Pure("pure", "openai", openai_error)

_BY_PATH: dict[str, Dialect] = {
    "chat/completions": OPENAI_CHAT,
    "embeddings": PURE,
    "moderations": PURE,
}
BY_NAME: dict[str, Dialect] = {dialect.name: dialect for dialect in (OPENAI_CHAT, PURE)}

# First parts of paths that belong to the Anthropic dialect; all others go to an OpenAI-style provider.
_ANTHROPIC = ("messages", "complete")


def normalise(path: str) -> str:
    """The path without leading, doubled or missing ``/v1`` and without outer slashes."""
    parts = [part for part in path.split("/") if part]
    while parts and parts[0] == "v1":
        parts.pop(0)
    return "/".join(parts)


def for_path(method: str, path: str) -> Dialect | None:
    """The dialect that understands a normalised path; ``None``: pass it through."""
    return _BY_PATH.get(path) if method == "POST" else None


def provider_kind(path: str) -> str:
    """Which kind of provider a normalised path is for, known to a dialect or not."""
    return "anthropic" if path.partition("/")[0] in _ANTHROPIC else "openai"


def error_body(path: str, error: AgentStateError) -> bytes:
    """An error of ours as clients of that normalised path understand it."""
    return openai_error(error)
