"""Owns finding the credentials of a request, which are taken out of what is kept. Must not touch what is sent.

Invariant: no credential that a request carries, in its headers, its query or its body, is stored, whoever repeats it.
"""

from __future__ import annotations

from functools import lru_cache

from agentstate.core.model import Call
from agentstate.dialects import query as query_of
from agentstate.dialects.concealing import SHORTEST_SECRET
from agentstate.dialects.credentials import HEADERS
from agentstate.providers.client import Headers, Question


def secrets_of(question: Question, call: Call) -> list[bytes]:
    """The credentials that a request carries, as a provider might repeat them."""
    return [*credentials(question.headers, question.query), *call.secrets]


def credentials(headers: Headers, query: str = "") -> list[bytes]:
    """Those in headers and query."""
    found = [*_of_headers(tuple(headers)), *query_of.credentials(query)]
    return [value.encode() for value in found if len(value) >= SHORTEST_SECRET]


@lru_cache(256)  # a client says much the same with each request
def _of_headers(headers: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    values = [value for name, value in headers if name.lower() in HEADERS]
    return tuple(part for value in values for part in (value, value.partition(" ")[2]))
