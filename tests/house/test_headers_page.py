"""docs/reference/headers.md is held to the code: every header and every value in it, and no other."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from agentstate.core.model import Match, Outcome, ReplayMode
from agentstate.core.runs import Evidence
from agentstate.dialects import credentials
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request, Told
from agentstate.errors import AgentStateError, BadRequest, SessionPaused
from agentstate.server.address import Address, read_request
from agentstate.server.errors import rendered
from tests.house.pages import REFERENCE, names, section, table
from tests.house.source import SRC, modules, strings

PAGE = REFERENCE / "headers.md"
OURS = re.compile(r"x-agent(?:state)?-[a-z]+(?:-[a-z]+)*")


SOCKET = Connection(None, None)


def read(*headers: tuple[str, str]) -> Request:
    """A chat request with these headers as the server reads it."""
    raw = [(name.encode(), value.encode()) for name, value in headers]
    return read_request("POST", Address("/v1/chat/completions"), "", raw, b"{}", SOCKET)


def spoken() -> set[str]:
    """Every header name of ours that stands as such in the code."""
    return {value for module in modules(SRC) for value in strings(module) if OURS.fullmatch(value)}


def test_every_header_of_ours_is_documented_and_no_other() -> None:
    documented = set(names(PAGE, "What an agent sends")) | set(names(PAGE, "What an answer carries"))
    assert documented == spoken()


# What a header's documented value is seen in: (header, value, the request's field, what it is then).
READ: list[tuple[str, str, str, Any]] = [
    ("x-agent-session-id", "invoice 4711", "session", "invoice 4711"),
    ("x-agent-run-id", "run-1", "run", "run-1"),
    ("x-agent-step-number", "3", "hint", 3),
    ("x-agent-replay", "auto", "mode", ReplayMode.AUTO),
    ("x-agent-replay", "strict", "mode", ReplayMode.STRICT),
    ("x-agent-replay", "off", "mode", ReplayMode.OFF),
    ("x-agent-first-prompt", "unique", "unique_first", True),
    ("x-agent-drain", "on", "drain", True),
    ("x-agent-drain", "off", "drain", False),
    ("x-agent-require-approval", "on", "needs_approval", True),
    ("x-agent-require-approval", "off", "needs_approval", False),
    ("x-agent-fallback-model", "gpt-4o-mini, anthropic/claude", "fallback", "gpt-4o-mini, anthropic/claude"),
    ("x-agent-fallback-model", "none", "fallback", "none"),
    ("x-stainless-retry-count", "2", "retry", 2),
    ("x-stainless-retry-count", "0", "retry", 0),
]


def test_no_header_of_ours_reaches_a_provider() -> None:
    samples = {header: value for header, value, _, _ in READ}
    for name in names(PAGE, "What an agent sends"):
        assert read((name, samples.get(name, "x")), ("x-other", "1")).headers == [("x-other", "1")]
    assert read(("X-AgentState-Anything", "1"), ("x-other", "1")).headers == [("x-other", "1")]


@pytest.mark.parametrize(("header", "value", "field", "wanted"), READ)
def test_a_documented_value_is_understood(header: str, value: str, field: str, wanted: Any) -> None:
    assert getattr(read((header, value)), field) == wanted


def test_every_header_that_is_said_to_count_does_count() -> None:
    elsewhere = {"x-agentstate-key"}  # the server checks it
    counted = {row[0] for row in READ if row[0].startswith("x-agent")}
    assert counted | elsewhere == set(names(PAGE, "What an agent sends"))


def test_the_documented_values_are_all_values() -> None:
    values = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table(PAGE, "What an agent sends")}
    assert values["x-agent-replay"] == {mode.value for mode in ReplayMode}
    for name in values["x-agent-drain"]:
        assert read(("x-agent-drain", name)).drain is not None
    for header in ("x-agent-replay", "x-agent-first-prompt", "x-agent-drain", "x-agent-require-approval"):
        with pytest.raises(BadRequest, match=header):
            read((header, "perhaps"))


def test_the_standard_headers_that_count_are_those_the_code_looks_at() -> None:
    tree = ast.parse((SRC / "server" / "address.py").read_text())
    looked_up = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "plain"
    }
    assert looked_up == {"x-stainless-retry-count", "idempotency-key"}
    assert looked_up <= set(names(PAGE, "Other headers that are looked at"))


def test_an_answer_carries_the_documented_headers_and_no_other() -> None:
    told = Told(Outcome.REPLAY, 0, "run-1", "gpt-4o-mini", Match.MASKED, True, True, Evidence.FIRST.value, "a/b")
    assert [name for name, _ in told.headers()] and {name for name, _ in told.headers()} == set(
        names(PAGE, "What an answer carries")
    )


def test_outcomes_matches_and_evidence_are_all_documented() -> None:
    assert set(names(PAGE, "Outcomes")) == {outcome.value for outcome in Outcome}
    assert set(names(PAGE, "Evidence")) == {evidence.value for evidence in Evidence}
    matches = next(row[2] for row in table(PAGE, "What an answer carries") if "match" in row[0])
    assert set(re.findall(r"`(\w+)`", matches)) == {match.value for match in Match} - {Match.STRICT.value}


def test_refusals_and_faults_carry_the_documented_headers() -> None:
    sent = {
        name
        for error in (AgentStateError("x"), SessionPaused("x"))
        for name, _ in rendered(error)[1]
        if name != "content-type"
    }
    assert sent | {"link"} == set(names(PAGE, "Refusals and faults"))


def test_the_credentials_that_each_kind_of_provider_is_sent_are_as_listed() -> None:
    rows = {
        row[0].strip("`"): [set(re.findall(r"`([^`]+)`", cell)) for cell in row[1:]]
        for row in table(PAGE, "Credentials")
    }
    assert rows == {kind: [own.first, own.else_, own.alone] for kind, own in credentials.OWN.items()}
    prose = section(PAGE, "Credentials")
    assert all(f"`{name}`" in prose for name in credentials.HEADERS)
    agents = prose.partition("begins with")[2].partition("both")[0]
    assert tuple(name.lower() for name in re.findall(r"`([^`]+)`", agents)) == credentials._OF_ANTHROPIC


def test_a_reserved_outcome_is_given_by_no_code() -> None:
    given = {
        node.attr
        for module in modules(SRC)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Outcome"
    }
    reserved = {row[0].strip("`").upper() for row in table(PAGE, "Outcomes") if row[1].startswith("reserved")}
    assert reserved == {outcome.name for outcome in Outcome} - given


def test_what_is_never_stored_and_never_replayed_is_as_documented() -> None:
    from agentstate.engine import headers

    kept = section(PAGE, "What is kept of a provider's headers")
    for name in headers.NEVER_STORED | set(headers.MOMENT):
        assert f"`{name}`" in kept, name
