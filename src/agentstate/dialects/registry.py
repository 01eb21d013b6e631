"""Owns which path speaks which dialect, and how paths are normalised. Must not read bodies.

Invariant: a path that no dialect knows is passed through exactly as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from agentstate.core.model import Call
from agentstate.dialects import function, mcp
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

# Calls of tools are steps as well; they are no questions to a provider.
_TOOL_CALLS: dict[str, Callable[[str, str, bytes], Call]] = {mcp.NAME: mcp.parse, function.NAME: function.parse}

# First parts of paths that belong to one kind of provider alone; all others go to an OpenAI-style one.
_FIRST = {"messages": "anthropic", "complete": "anthropic", "api": "ollama", "tunedModels": "gemini"}
_VERSION = re.compile(r"v\d+\w+(?:/|$)|upload/v\d")  # v1beta, v1alpha: only Gemini's paths have one
_ERRORS: dict[str, Callable[[AgentStateError], bytes]] = {
    "anthropic": anthropic_error,
    "gemini": gemini_error,
    "ollama": ollama_error,
}


def normalise(path: str) -> str:
    """The path without leading, doubled or missing ``/v1`` and without outer slashes."""
    parts = [part for part in path.split("/") if part]
    while parts and parts[0] == "v1":
        parts.pop(0)
    return "/".join(parts)


def for_path(method: str, path: str) -> Dialect | None:
    """The dialect that understands a normalised path; ``None``: pass it through."""
    if method != "POST":
        return None
    found = _BY_PATH.get(path)
    if found is None and (operation := gemini_operation(path)) is not None:
        return _OF_GEMINI.get(operation[1])
    return found


def parse(dialect: str, method: str, path: str, body: bytes) -> Call:
    """A recorded step's request, read again."""
    of_tool = _TOOL_CALLS.get(dialect)
    return of_tool(method, path, body) if of_tool is not None else BY_NAME[dialect].parse(method, path, body)


def provider_kind(path: str, headers: Iterable[tuple[str, str]] = ()) -> str:
    """Which kind of provider a normalised path is for, known to a dialect or not. Where two kinds have the same path,
    such as ``models``, the headers that only the clients of one send tell."""
    first = path.partition("/")[0]
    if first in _FIRST:
        return _FIRST[first]
    if _VERSION.match(path) or gemini_operation(path) is not None:
        return "gemini"
    if path in _BY_PATH:
        return _BY_PATH[path].provider
    for name, _ in headers:
        if name.lower() == "anthropic-version":
            return "anthropic"
        if name.lower() == "x-goog-api-key":
            return "gemini"
    return "openai"


def error_body(path: str, error: AgentStateError) -> bytes:
    """An error of ours as the clients of that normalised path understand it."""
    return _ERRORS.get(provider_kind(path), openai_error)(error)
