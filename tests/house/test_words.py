"""One vocabulary: no public name uses a word that the project does not use for its things."""

from __future__ import annotations

import re

import agentstate
from agentstate import settings
from tests.house.generated import flat
from tests.house.pages import REFERENCE, headings, names
from tests.house.test_errors_page import ERRORS

# What the project's words are never called. Names of two words are matched in every spelling.
NEVER = (
    "client-app", "thread", "conversation", "workflow", "incarnation", "cache", "log", "cassette", "turn", "event",
    "call", "trace", "interaction", "retry", "buffer", "cache-key", "index", "cache-hit", "warm-up", "pending",
    "miss", "guardrail", "block", "review", "schema", "backend", "deployment", "health", "spend", "reset",
    "time-travel", "callback",
)  # fmt: skip

# Public names that hold such a word all the same, and why.
RETRY = settings.RetrySettings.model_fields
ALLOWED = {
    "x-agentstate-cache-hit": "a header of the first version, kept for its users",
    "POST /api/sessions/{id}/reset": "a route of the first version, kept for its users; the verb is rollback",
    "POST /api/alerts/{number}/retry": "a message is tried again, which is what a retry is",
    "alerts retry": "the same on the command line",
    "GET /api/approvals/pending": "a route of the first version, kept for its users",
    **{f"retry.{name}": "it says when a failed attempt is tried again, which is what a retry is" for name in RETRY},
    "[[prices]] cache_read": "the provider's own cache, as every price list calls it",
    "[[prices]] cache_write": "the same",
    "log.level": "the program's own log, not the journal",
    "log.format": "the same",
    "log.steps": "the same",
    "x-should-retry": "a header that SDKs define",
    "retry-after": "a header that HTTP defines",
}


def public_names() -> set[str]:
    """Routes, headers, settings, commands and their options, error codes, Python names."""
    options = {
        spelled
        for command in flat().values()
        for parameter in command.params
        for spelled in parameter.opts
        if spelled.startswith("-")
    }
    headers = REFERENCE / "headers.md"
    return {
        *(title for title in headings(REFERENCE / "http-api.md") if title.startswith(("GET ", "POST "))),
        *names(headers, "What an agent sends"),
        *names(headers, "What an answer carries"),
        *names(headers, "Refusals and faults"),
        *(row[0] for row in settings.reference()),
        *settings.SHORT_VARIABLES,
        *settings.CLIENT_VARIABLES,
        *flat(),
        *options,
        *(kind.code for kind in ERRORS),
        *agentstate.__all__,
    }


def words_of(name: str) -> str:
    """The words of a name in lower case, with - between them and at both ends."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name)
    return "-" + "-".join(re.findall(r"[a-z]+", apart.lower())) + "-"


def test_no_public_name_uses_a_word_that_the_project_does_not_use() -> None:
    wrong = {name for name in public_names() if any(f"-{word}-" in words_of(name) for word in NEVER)}
    assert wrong == set(ALLOWED)


def test_the_rule_reads_names_of_every_spelling() -> None:
    for name in ("cacheHit", "AGENTSTATE_CACHE_HIT", "--cache-hit", "replay.cache_hit", "/api/cache/hit"):
        assert "-cache-hit-" in words_of(name)
    assert "-log-" not in words_of("catalog.logic")
