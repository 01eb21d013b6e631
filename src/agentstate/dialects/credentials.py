"""Owns which credentials of an agent a provider is sent. Must not look for any in bodies (the dialects do).

Invariant: a provider is sent the credentials of its own kind, and none that another kind of provider was meant to have:
which provider a path is for is sometimes a guess, and a client may hold the keys of several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.dialects import query as query_of

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Own:
    """The credential headers of one kind of provider. ``first``: they go on whenever they are there; ``else_``: where
    none of those is; ``alone``: where neither is, if it is the only credential of the request, as a gateway may want
    it. ``parameter`` of the query stands for one of ``first``."""

    first: frozenset[str]
    else_: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    parameter: str = ""


_OPENAI = Own(frozenset({"authorization", "api-key"}), alone=frozenset({"x-api-key", "x-goog-api-key"}))
OWN: dict[str, Own] = {
    "openai": _OPENAI,
    "ollama": _OPENAI,
    "anthropic": Own(frozenset({"x-api-key"}), frozenset({"authorization"}), frozenset({"api-key"})),
    "gemini": Own(frozenset({"x-goog-api-key"}), frozenset({"authorization"}), frozenset({"api-key"}), "key"),
}

# A cookie belongs to the address that set it. All providers have one address here, the proxy's, and so has whatever
# else listens on its host: nobody is sent any.
NEVER_SENT = frozenset({"cookie"})
HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"}) | NEVER_SENT

# Anthropic's own clients know no other vendor's keys. Where ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are both set,
# Claude Code and older libraries send one as ``x-api-key`` and the other as a bearer, which a gateway may ask for.
_OF_ANTHROPIC = ("claude-cli/", "anthropic/", "asyncanthropic/")


def sent(kind: str, headers: Headers, query: str = "", ours: Headers = ()) -> tuple[list[tuple[str, str]], str]:
    """(headers, query) as a provider of that kind is sent them.

    ``ours``: credentials of the proxy itself, which take the place of all that the agent has, in the query too.
    """
    if ours:
        kept = [pair for pair in headers if pair[0].lower() not in HEADERS]
        return [*kept, *ours], query_of.without_credentials(query)
    dropped = HEADERS - _passed_on(kind, headers, query)
    return [pair for pair in headers if pair[0].lower() not in dropped], query


def _passed_on(kind: str, headers: Headers, query: str) -> frozenset[str]:
    """Which of ``HEADERS`` go on."""
    own = OWN[kind]
    named = [(name.lower(), value.strip().lower()) for name, value in headers]
    there = {name for name, value in named if name in HEADERS - NEVER_SENT and value not in ("", "bearer")}
    if there & own.first or (own.parameter and query_of.has_credential(query, own.parameter)):
        both = kind == "anthropic" and any(
            name == "user-agent" and value.startswith(_OF_ANTHROPIC) for name, value in named
        )
        return own.first | own.else_ if both else own.first
    if there & own.else_:
        return own.else_
    return own.alone if len(there) == 1 else frozenset()
