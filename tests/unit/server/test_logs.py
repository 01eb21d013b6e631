"""Lines of the log: one an event, whatever a name in it holds, and no credential in any."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from agentstate import settings
from agentstate.server import logs


def record(message: str, *arguments: Any, fields: dict[str, Any] | None = None, error: Any = None) -> logging.LogRecord:
    made = logging.LogRecord("agentstate", logging.WARNING, "file", 1, message, arguments, error)
    if fields is not None:
        made.fields = fields
    return made


def test_a_line_of_text_tells_fields_behind_the_message() -> None:
    fields = {"session": "a session", "step": 3, "ms": 12.5, "cost_usd": None, "model": "openai/gpt-4o"}
    line = logs.Text([]).format(record("step", fields=fields))
    assert line.endswith('warning step session="a session" step=3 ms=12.5 cost_usd=- model=openai/gpt-4o')


def test_a_line_of_json_is_one_object() -> None:
    line = logs.Json([]).format(record("session %s went", "x", fields={"step": 3}))
    found = json.loads(line)
    assert (found["message"], found["level"], found["step"]) == ("session x went", "warning", 3)


@pytest.mark.parametrize("kind", [logs.Text, logs.Json])
def test_a_name_cannot_begin_a_line_of_its_own(kind: type[logs.Text]) -> None:
    evil = "x\n2026-01-01 error all is lost\r\u2028\u202e\x1b[31m"
    line = kind([]).format(record("session %s went", evil, fields={"run": evil}))
    assert len(line.splitlines()) == 1 and "\x1b" not in line and "\u202e" not in line


@pytest.mark.parametrize("kind", [logs.Text, logs.Json])
@pytest.mark.parametrize(
    "text",
    [
        "sk-test-0123456789abcdef", "Bearer abcdefgh12345", "bearer abcdefgh12345", "/x?key=abcdefgh12345&y=1",
        "api_key=abcdefgh12345", "xoxb-12345-abcdef", "whsec_c2stdGVzdC1vbmx5", "AIza-abcdefghijkl",
        "the-word-of-the-settings",
    ],
)  # fmt: skip
def test_what_is_or_looks_secret_is_hidden_wherever_it_stands(kind: type[logs.Text], text: str) -> None:
    try:
        raise ValueError(f"it was {text}")
    except ValueError:
        error = sys.exc_info()
    line = kind(["the-word-of-the-settings"]).format(record("said %s", text, fields={"model": text}, error=error))
    value = text.partition("=")[2].partition("&")[0] or text.rpartition(" ")[2]
    assert value not in line and line.count("[hidden]") >= 3
    assert "Traceback" in line and "ValueError" in line


def test_every_secret_of_the_settings_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_OPENAI", "key-of-the-provider")
    monkeypatch.setenv("OF_BANK", "Bearer key-of-the-server")
    given = {
        "server": {"admin_token": "token-of-the-admin", "agent_keys": ["key-of-the-agents"]},
        "providers": {"openai": {"url": "https://x.test", "key_env": "OF_OPENAI"}},
        "mcp": {"bank": {"url": "https://x.test", "headers_env": ["authorization=OF_BANK"]}},
        "alerts": [{"kind": "webhook", "url": "https://x.test/address-of-the-hook", "secret": "whsec_of_the_hook"}],
    }
    known = logs.secrets_of(settings.Settings(**given))  # type: ignore[arg-type]
    assert {
        "key-of-the-provider", "key-of-the-server", "token-of-the-admin", "key-of-the-agents",
        "https://x.test/address-of-the-hook", "whsec_of_the_hook",
    } <= set(known)  # fmt: skip


def test_libraries_are_not_heard_below_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    root, ours = logging.getLogger(), logging.getLogger("agentstate")
    before = (root.handlers, root.level, ours.level)
    try:
        logs.set_up(settings.Settings(log=settings.LogSettings(level="debug")))  # type: ignore[call-arg]
        assert ours.isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("slack_sdk").isEnabledFor(logging.INFO)
        assert not logging.getLogger("asyncio").isEnabledFor(logging.INFO)
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        ours.setLevel(before[2])
