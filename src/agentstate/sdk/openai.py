"""Owns the OpenAI clients: the vendor's own classes, pointed at the proxy and naming their session.

Must not: change what the vendor's client does otherwise, or need its package before a client class is asked for.
Invariant: a copy made by ``copy()`` or ``with_options()`` belongs to the same session and run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentstate.sdk import http
from agentstate.sdk.client import SessionClient, Vendor, define

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

# Credentials that replace an API key; with one of these there is nothing to fill in.
_OTHER_CREDENTIALS = ("admin_api_key", "workload_identity", "provider")


def _lacks_key(given: Any, options: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    if given or os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_ADMIN_KEY"):
        return False
    return not any(options.get(name) for name in _OTHER_CREDENTIALS)


class _SessionClient(SessionClient):
    _session_vendor = Vendor("openai", http.MISSING_KEY, _lacks_key)


if TYPE_CHECKING:

    class AgentStateOpenAI(_SessionClient, OpenAI):
        """See ``_DOC``."""

    class AsyncAgentStateOpenAI(_SessionClient, AsyncOpenAI):
        """See ``_DOC``."""


_DOC = """``openai.{vendor}`` whose calls are journaled by the proxy under one session.

``session_id``: the durable name of the work, 1 to 256 characters of any script; None takes ``AGENTSTATE_SESSION_ID``.
``step_number``: a hint only, from 0; leave it alone unless the agent counts its own steps.
``base_url``: the proxy's address; None takes ``AGENTSTATE_URL``, else ``http://localhost:8080/v1``.
``api_key``: the provider's key; None takes ``OPENAI_API_KEY``. Where there is none, the placeholder
``OPENAI_API_KEY-is-not-set`` is sent, and the provider answers 401 unless the proxy holds a key of its own.
``require_approval``: hold every request of this client until a person approves it.
``fallback_model``: model names to try in order when the asked one fails, as a list or separated by commas.
Every other keyword is ``openai.{vendor}``'s own.

Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
"""

_VENDOR = {"AgentStateOpenAI": "OpenAI", "AsyncAgentStateOpenAI": "AsyncOpenAI"}


def __getattr__(name: str) -> Any:
    """Define a client class on first use (PEP 562), since only then the vendor's package is needed."""
    if name not in _VENDOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, define(name, _SessionClient, _VENDOR[name], _DOC))
