"""Owns which known clients name their own session in a header, and what session of ours that is.

Must not look into a prompt, or guess: a client is known by what it sends with every request, or it is not known.
Invariant: one session of the client is one session of ours, and two clients never share one.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from agentstate.engine.sessions import MOST_ID
from agentstate.settings import HintSettings


@dataclass(frozen=True, slots=True)
class KnownClient:
    """``name``: begins the session's id; with _ for - it is the setting. ``headers``: where the client's session id
    stands, the first one that is there counts. ``signs``: headers (lower case) and how the value of one of them begins
    (lower case too); none where the session's header is the client's alone."""

    name: str
    headers: tuple[str, ...]
    signs: tuple[tuple[str, str], ...] = ()


# As recorded with Claude Code 2.1.332 and 2.1.197, Codex 0.171.0, opencode 1.18.33. Claude Code's sub-agents carry
# x-claude-code-agent-id besides and belong to the session of the one that started them. opencode sends `session-id`
# too, with an originator of its own, so that header alone is no sign of Codex.
KNOWN = (
    KnownClient("claude-code", ("x-claude-code-session-id",)),
    KnownClient("codex", ("session-id",), (("originator", "codex"), ("user-agent", "codex"))),
    KnownClient("opencode", ("x-session-id", "x-session-affinity"), (("user-agent", "opencode/"),)),
)
NAMES = frozenset(client.name for client in KNOWN)


def enabled(settings: HintSettings) -> frozenset[str]:
    """The names of the clients whose own sessions are taken over."""
    chosen = {"claude-code": settings.claude_code, "codex": settings.codex, "opencode": settings.opencode}
    return frozenset(name for name, wanted in chosen.items() if wanted)


def hinted(headers: Mapping[str, str], wanted: Container[str] = NAMES) -> str:
    """The session that a known client's own headers name, ``<client>-<its id>``; empty where none does.

    ``headers``: names in lower case. ``wanted``: the names of the clients that count. An id that cannot be one of ours
    is none: the request then belongs to no session, as it would have without a hint.
    """
    for client in KNOWN:
        if client.name not in wanted or not _is_from(client, headers):
            continue
        for name in client.headers:
            value = headers.get(name, "").strip()
            session = f"{client.name}-{value}"
            if value and value.isprintable() and len(session) <= MOST_ID:
                return session
    return ""


def _is_from(client: KnownClient, headers: Mapping[str, str]) -> bool:
    return not client.signs or any(headers.get(name, "").lower().startswith(start) for name, start in client.signs)
