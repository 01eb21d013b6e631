"""Owns finding the credentials of a request, which are taken out of what is kept. Must not touch what is sent.

Invariant: no credential that a request carries, in its headers, its query or its body, is stored, whoever repeats it.
"""

from __future__ import annotations

from urllib.parse import parse_qsl

from agentstate.core.model import Call
from agentstate.dialects.concealing import SHORTEST_SECRET
from agentstate.providers.client import Headers, Question

_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})
_KEY_PARAMETERS = frozenset({"key", "api_key", "api-key", "token", "access_token"})


def secrets_of(question: Question, call: Call) -> list[bytes]:
    """The credentials that a request carries, as a provider might repeat them."""
    return [*credentials(question.headers, question.query), *call.secrets]


def credentials(headers: Headers, query: str = "") -> list[bytes]:
    """Those in headers and query."""
    found = []
    for name, value in headers:
        if name.lower() in _CREDENTIALS:
            found += [value, value.partition(" ")[2]]
    found += [value for name, value in parse_qsl(query) if name.lower() in _KEY_PARAMETERS]
    return [value.encode() for value in found if len(value) >= SHORTEST_SECRET]
