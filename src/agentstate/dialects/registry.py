"""Owns which path speaks which dialect, and how paths are normalised. Must not read bodies.

Invariant: a path that no dialect knows is passed through exactly as it was sent; one that a provider may take for a
path that a dialect knows is that path, however it is spelled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from agentstate.dialects.anthropic_answer import anthropic_error
from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.base import Dialect, openai_error
from agentstate.dialects.gemini import GENERATE, Gemini, gemini_operation
from agentstate.dialects.gemini import PURE as PURE_OF_GEMINI
from agentstate.dialects.gemini_answer import gemini_error
from agentstate.dialects.ollama import OllamaChat, ollama_error
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_completions import OpenAICompletions
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.dialects.pure import Pure
from agentstate.dialects.query import unescaped
from agentstate.errors import AgentStateError

OPENAI_CHAT = OpenAIChat()
PURE = Pure("pure", "openai", openai_error)
_GEMINI = Gemini()
_PURE_GEMINI = Pure("pure_gemini", "gemini", gemini_error)
_PURE_ANTHROPIC = Pure("pure_anthropic", "anthropic", anthropic_error)
_PURE_OLLAMA = Pure("pure_ollama", "ollama", ollama_error)
_OLLAMA = OllamaChat()
_RESPONSES = OpenAIResponses()

_BY_PATH: dict[str, Dialect] = {
    "chat/completions": OPENAI_CHAT,
    "responses": _RESPONSES,
    "responses/compact": _RESPONSES,
    "completions": OpenAICompletions(),
    "embeddings": PURE,
    "moderations": PURE,
    "responses/input_tokens": PURE,
    "messages": AnthropicMessages(),
    "messages/count_tokens": _PURE_ANTHROPIC,
    "api/chat": _OLLAMA,
    "api/generate": _OLLAMA,
    "api/embed": _PURE_OLLAMA,
    "api/embeddings": _PURE_OLLAMA,
}
_OF_GEMINI: dict[str, Dialect] = {name: _GEMINI for name in GENERATE} | {name: _PURE_GEMINI for name in PURE_OF_GEMINI}
BY_NAME: dict[str, Dialect] = {dialect.name: dialect for dialect in (*_BY_PATH.values(), *_OF_GEMINI.values())}

# First parts of paths that belong to one kind of provider alone; all others go to an OpenAI-style one.
_FIRST = {"messages": "anthropic", "complete": "anthropic", "api": "ollama", "tunedModels": "gemini"}
_VERSION = re.compile(r"v\d+\w+(?:/|$)|upload/v\d")  # v1beta, v1alpha: only Gemini's paths have one
# Bases under which compatible providers have a path of another's, as v1beta/openai/ or openai/deployments/NAME/.
_UNDER_BASE = re.compile(
    r"(?:.*/)(chat/completions|api/chat|api/generate)"
    r"|(?:.*/)?(?:v\d+\w*|openai|anthropic|api|deployments/[^/]+)/"
    r"(completions|responses|responses/compact|responses/input_tokens|messages|messages/count_tokens)"
)
_ORDINARY = re.compile(r"[\w/.:-]*", re.ASCII)
_LONG = 512  # of a path: longer ones are not remembered
_BLANKS = " " + "".join(map(chr, range(32))) + "\x7f\xa0"
_WORDS = frozenset(word for path in _BY_PATH for word in path.split("/")) | {
    "v1", "v1beta", "openai", "anthropic", "deployments", "models", "conversations", "items", "input_items", "cancel",
}  # fmt: skip
_ERRORS: dict[str, Callable[[AgentStateError], bytes]] = {
    "anthropic": anthropic_error,
    "gemini": gemini_error,
    "ollama": ollama_error,
}


def normalise(path: str) -> str:
    """The path as dialects know it, however it is spelled: without leading, doubled or missing ``/v1`` and outer
    slashes, escapes and dots undone, known words in small letters. What Gemini's operations are named by stays as it
    is."""
    return _normalised(path) if len(path) <= _LONG else _normalised.__wrapped__(path)


@lru_cache(256)
def _normalised(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    while parts and parts[0] == "v1":
        parts.pop(0)
    plain = "/".join(parts)
    if plain in _BY_PATH or (_ORDINARY.fullmatch(plain) and gemini_operation(plain) is not None):
        return plain
    read = _read(path)
    return plain if gemini_operation(plain) is not None and gemini_operation(plain) == gemini_operation(read) else read


def _read(path: str) -> str:
    """What a provider, or a gateway before it, may understand by a path."""
    text = path
    for _ in range(3):  # some undo escapes of escapes
        text = unescaped(text)
    parts: list[str] = []
    for raw in re.split(r"[?#]", text)[0].replace("\\", "/").split("/"):
        part = raw.partition(";")[0].strip(_BLANKS)
        if part == "..":
            del parts[-1:]
        elif part and part != ".":
            parts.append(part.lower() if part.lower() in _WORDS else _operation(part))
    while parts and parts[0] == "v1":
        parts.pop(0)
    return "/".join(parts)


def _operation(part: str) -> str:
    """A part of a path, an operation of Gemini's in it as that API spells it."""
    name, colon, operation = part.rpartition(":")
    return name + colon + next((known for known in _OF_GEMINI if known.lower() == operation.lower()), operation)


def for_path(method: str, path: str) -> Dialect | None:
    """The dialect that understands a normalised path, under whatever base compatible providers have it; ``None``: pass
    it through."""
    if method != "POST":
        return None
    found = _BY_PATH.get(path) or _under_base(path)
    if found is None and (operation := gemini_operation(path)) is not None:
        return _OF_GEMINI.get(operation[1])
    return found


def _under_base(path: str) -> Dialect | None:
    found = _UNDER_BASE.fullmatch(path)
    return _BY_PATH[found[1] or found[2]] if found is not None else None


def provider_kind(path: str, headers: Iterable[tuple[str, str]] = ()) -> str:
    """Which kind of provider a normalised path is for, known to a dialect or not. Where two kinds have the same path,
    such as ``models``, the headers that only the clients of one send tell."""
    if (known := _BY_PATH.get(path)) is not None:
        return known.provider
    if _VERSION.match(path) or gemini_operation(path) is not None:
        return "gemini"
    if (known := _under_base(path)) is not None:
        return known.provider
    first = path.partition("/")[0]
    if first in _FIRST:
        return _FIRST[first]
    for name, _ in headers:
        if name.lower() == "anthropic-version":
            return "anthropic"
        if name.lower() == "x-goog-api-key":
            return "gemini"
    return "openai"


def error_body(path: str, error: AgentStateError) -> bytes:
    """An error of ours as the clients of that normalised path understand it."""
    known = _under_base(path)
    return _ERRORS.get(provider_kind(path) if known is None else known.provider, openai_error)(error)
