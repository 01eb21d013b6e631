"""Owns how errors of ours become HTTP answers. Must not invent errors.

Invariant: no traceback reaches a client; a refusal tells SDKs not to retry, a temporary fault tells them when to.
"""

from __future__ import annotations

import math

from agentstate.dialects import registry
from agentstate.errors import AgentStateError
from agentstate.providers.client import Headers

_MOST_RETRY_AFTER = 60  # above that several SDKs stop or ignore it


def rendered(error: AgentStateError, path: str = "") -> tuple[int, Headers, bytes]:
    """(status, headers, body) of an error, as the clients of that normalised path understand it; OpenAI style where
    that is not known."""
    headers: Headers = [("content-type", "application/json")]
    if error.retry_after is not None:
        headers.append(("retry-after", str(min(_MOST_RETRY_AFTER, max(1, math.ceil(error.retry_after))))))
    else:
        headers.append(("x-should-retry", "false"))
    return error.status, headers, registry.error_body(path, error)
