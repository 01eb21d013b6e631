"""A known client's own session becomes one of ours; nothing else does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentstate import settings
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request
from agentstate.errors import BadRequest
from agentstate.server import hints
from agentstate.server.address import Address, read_request
from agentstate.server.hints import KNOWN, NAMES, hinted
from tests.house.pages import REFERENCE, table
from tests.support import traffic

PAGE = REFERENCE / "headers.md"
UUID = "d698ea60-79a2-4e62-90a3-2dd7051b1075"
CLAUDE = {"x-claude-code-session-id": UUID, "user-agent": "claude-cli/2.1.332 (external, sdk-cli)", "x-app": "cli"}
CODEX = {"session-id": UUID, "originator": "codex_exec", "user-agent": "codex_exec/0.171.0 (Debian 12.0.0; x86_64)"}
OPENCODE = {"x-session-id": "ses_dd55", "x-session-affinity": "ses_dd55", "user-agent": "opencode/1.18.33 ai-sdk/4"}
# With OpenAI's responses opencode sends what Codex sends, and says that it is another.
OPENCODE_RESPONSES = OPENCODE | {"session-id": "ses_dd55", "originator": "opencode"}


def heard(address: Address | None = None, known: frozenset[str] = NAMES, **headers: str) -> Request:
    """A chat request with these headers, _ for -, as the server reads it."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return read_request(
        "POST", address or Address("/v1/chat/completions"), "", raw, b"{}", Connection(None, None), known
    )


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        (CLAUDE, f"claude-code-{UUID}"),
        ({"x-claude-code-session-id": UUID}, f"claude-code-{UUID}"),
        (CODEX, f"codex-{UUID}"),
        (CODEX | {"originator": "codex_cli_rs", "user-agent": "other/1"}, f"codex-{UUID}"),
        ({"session-id": UUID, "user-agent": "Codex_vscode/0.171.0"}, f"codex-{UUID}"),
        (OPENCODE, "opencode-ses_dd55"),
        (OPENCODE_RESPONSES, "opencode-ses_dd55"),
        ({"x-session-affinity": "ses_1", "user-agent": "opencode/1.18.33"}, "opencode-ses_1"),
        (CLAUDE | {"x-claude-code-session-id": f" {UUID} "}, f"claude-code-{UUID}"),
    ],
)
def test_a_known_clients_session_is_one_of_ours(headers: dict[str, str], session: str) -> None:
    assert hinted(headers) == session


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"session-id": UUID},
        {"session-id": UUID, "originator": "opencode", "user-agent": "opencode/1.18.33"},
        {"session-id": UUID, "originator": "my-codex", "user-agent": "curl/8"},
        {"thread-id": UUID, "x-client-request-id": UUID, "originator": "codex_exec"},
        {"x-session-id": "ses_1", "x-session-affinity": "ses_1", "user-agent": "OpenAI/Python 3.57.0"},
        {"x-session-id": "ses_1", "user-agent": "opencode-like/1"},
        {"user-agent": "claude-cli/2.1.332"},
        {"x-claude-code-agent-id": "a20f804dc441f400e", "user-agent": "claude-cli/2.1.332"},
        {"x-claude-code-session-id": ""},
        {"x-claude-code-session-id": "a\tb"},
        {"x-claude-code-session-id": "a" * 250},
    ],
)
def test_what_no_known_client_says_is_no_session(headers: dict[str, str]) -> None:
    assert hinted(headers) == ""


def test_a_sub_agent_belongs_to_the_session_of_the_one_that_started_it() -> None:
    assert hinted(CLAUDE | {"x-claude-code-agent-id": "a20f804dc441f400e"}) == hinted(CLAUDE)


def test_the_same_id_of_two_clients_is_two_sessions() -> None:
    found = [hinted(CLAUDE), hinted(CODEX), hinted({"x-session-id": UUID, "user-agent": "opencode/1"})]
    assert len(set(found)) == 3 and all(session.endswith(UUID) for session in found)


def test_an_address_or_a_header_of_ours_wins_over_a_hint() -> None:
    mine = {"x_claude_code_session_id": UUID}
    assert heard(**mine).session == f"claude-code-{UUID}"
    assert heard(**mine, x_agent_session_id="invoice-42").session == "invoice-42"
    assert heard(Address("/v1/messages", "invoice-42"), **mine).session == "invoice-42"


def test_an_empty_session_header_of_ours_stays_a_mistake() -> None:
    with pytest.raises(BadRequest, match="session id is empty"):
        heard(x_claude_code_session_id=UUID, x_agent_session_id="")


def test_an_id_that_cannot_be_one_of_ours_is_not_refused() -> None:
    assert heard(x_claude_code_session_id="a" * 300).session == ""


def test_the_clients_own_header_goes_on_to_the_provider() -> None:
    assert heard(x_claude_code_session_id=UUID).headers == [("x-claude-code-session-id", UUID)]


@pytest.mark.parametrize("client", KNOWN, ids=lambda client: client.name)
def test_each_client_can_be_switched_off_by_its_setting(client: hints.KnownClient) -> None:
    headers = {"claude-code": CLAUDE, "codex": CODEX, "opencode": OPENCODE}[client.name]
    variable = f"AGENTSTATE_HINTS__{client.name.upper().replace('-', '_')}"
    off = hints.enabled(settings.load(environ={variable: "false"}).hints)
    assert off == NAMES - {client.name}
    assert hinted(headers) and not hinted(headers, off)
    said = {name.replace("-", "_"): value for name, value in headers.items()}
    # Asked by turns, since what was heard once is remembered.
    found = [heard(known=known, **said).session for known in (NAMES, off, NAMES)]
    assert found == [hinted(headers), "", hinted(headers)]


def test_every_known_client_is_a_setting_that_is_on_and_no_other_is() -> None:
    fields = settings.HintSettings.model_fields
    assert {name.replace("_", "-") for name in fields} == NAMES == hints.enabled(settings.load(environ={}).hints)


def test_every_header_that_may_be_a_hint_is_documented() -> None:
    rows = {row[1].strip("`").removesuffix("-ID"): " ".join(row) for row in table(PAGE, "Sessions of known clients")}
    assert set(rows) == NAMES
    for client in KNOWN:
        for said in (*client.headers, *(part for sign in client.signs for part in sign)):
            assert f"`{said}`" in rows[client.name], said


def _recorded(start: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(recording, headers by lower-case name) of every recorded call of the clients whose name begins so. A call is a
    POST: what a client sends only to see whether anything is there says nothing of a session."""
    traffic.require()
    files = sorted((traffic.FOLDER / "clients").glob(f"{start}*.jsonl"))
    assert files
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            if row["method"] == "POST":
                yield file.name, {name.lower(): value for name, value in row["headers"]}


@pytest.mark.parametrize("client", sorted(NAMES))
def test_every_recorded_request_of_a_known_client_names_its_session(client: str) -> None:
    by_recording: dict[str, set[str]] = {}
    for recording, headers in _recorded(client):
        by_recording.setdefault(recording, set()).add(hinted(headers))
    for recording, sessions in by_recording.items():
        assert len(sessions) == 1, f"{recording}: {sessions}"
        assert sessions.pop().startswith(f"{client}-")
    first, second = (by_recording_of(client, run) for run in ("run1", "run2"))
    assert first != second


def by_recording_of(client: str, run: str) -> set[str]:
    """The sessions of one recorded process."""
    return {hinted(headers) for name, headers in _recorded(client) if name == f"{client}.{run}.jsonl"}


def test_no_recorded_request_of_another_client_names_a_session() -> None:
    for recording, headers in _recorded(""):
        if not recording.startswith(tuple(NAMES)):
            assert hinted(headers) == "", recording
