"""Owns the Anthropic clients: the vendor's own classes, pointed at the proxy and naming their session.

Must not: change what the vendor's client does otherwise, or need its package before a client class is asked for.
Invariant: a copy made by ``copy()`` or ``with_options()`` belongs to the same session and run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentstate.sdk.client import SessionClient, Vendor, define

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic

MISSING_KEY = "ANTHROPIC_API_KEY-is-not-set"
"""Sent as the API key where there is none, so that the provider itself answers 401 and its message shows the reason."""

# What stands in for an API key: of the environment, of the vendor's keywords, of the headers.
_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
_OTHER_CREDENTIALS = ("auth_token", "credentials", "config", "profile")
_CREDENTIAL_HEADERS = ("authorization", "x-api-key")


def _lacks_key(given: Any, options: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    if given or any(os.environ.get(name) for name in _VARIABLES):
        return False
    if any(options.get(name) is not None for name in _OTHER_CREDENTIALS):
        return False
    return not any(name.lower() in _CREDENTIAL_HEADERS for name in headers)


class _SessionClient(SessionClient):
    # The vendor's client puts /v1 before every path by itself.
    _session_vendor = Vendor("anthropic", MISSING_KEY, _lacks_key, versioned=False)


if TYPE_CHECKING:

    class AgentStateAnthropic(_SessionClient, Anthropic):
        """See ``_DOC``."""

    class AsyncAgentStateAnthropic(_SessionClient, AsyncAnthropic):
        """See ``_DOC``."""


_DOC = """``anthropic.{vendor}`` whose calls are journaled by the proxy under one session.

``session_id``: the durable name of the work, 1 to 256 characters of any script; None takes ``AGENTSTATE_SESSION_ID``.
``step_number``: a hint only, from 0; leave it alone unless the agent counts its own steps.
``base_url``: the proxy's address, with ``/v1`` or without; None takes ``AGENTSTATE_URL``, else
``http://localhost:8080/v1``.
``api_key``: the provider's key; None takes ``ANTHROPIC_API_KEY``, else ``ANTHROPIC_AUTH_TOKEN``. Where there is none,
the placeholder ``ANTHROPIC_API_KEY-is-not-set`` is sent, and the provider answers 401 unless the proxy holds a key of
its own. Credentials that the vendor's client would look for on disk are taken only when named: ``profile=…``.
``require_approval``: hold every request of this client until a person approves it.
``fallback_model``: model names to try in order when the asked one fails, as a list or separated by commas.
Every other keyword is ``anthropic.{vendor}``'s own.

Raises ``ValueError`` or ``TypeError`` for a session id, address or step that cannot be sent.
"""

_VENDOR = {"AgentStateAnthropic": "Anthropic", "AsyncAgentStateAnthropic": "AsyncAnthropic"}


def __getattr__(name: str) -> Any:
    """Define a client class on first use (PEP 562), since only then the vendor's package is needed."""
    if name not in _VENDOR:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, define(name, _SessionClient, _VENDOR[name], _DOC))
