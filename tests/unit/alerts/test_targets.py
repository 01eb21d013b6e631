"""Targets are checked when the proxy starts, and their addresses are secrets."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import SecretStr

from agentstate.alerts.target import said_by, targets
from agentstate.errors import SettingsError
from agentstate.settings import AlertSettings, ApprovalSettings

URL = "https://user:pa55word@hooks.example.test:8443/services/T0KEN/B0X?key=sesame-street"
KEY = "whsec_" + base64.b64encode(b"test key of thirty-two bytes ...").decode()


def made(*given: dict[str, Any], approvals: dict[str, Any] | None = None) -> Any:
    return targets([AlertSettings(**{"kind": "slack", "url": URL} | one) for one in given],
                   ApprovalSettings(**approvals or {}))  # fmt: skip


def test_a_target_without_a_name_is_called_after_its_kind_and_place() -> None:
    assert list(made({}, {"name": "ops"}, {"kind": "webhook"})) == ["slack-1", "ops", "webhook-3"]


def test_a_target_shows_scheme_and_host_and_nothing_else_of_its_address() -> None:
    target = made({"kind": "webhook", "secret": KEY})["webhook-1"]
    assert target.shown == "https://hooks.example.test"
    for hidden in ("pa55word", "T0KEN", "sesame", KEY):
        assert hidden not in repr(target)
    assert made({"url": "http://[::1]:9/x"})["slack-1"].shown == "http://[::1]"


@pytest.mark.parametrize("given", [
    {"url": "ftp://hooks.example.test/T0KEN"}, {"url": "T0KEN"}, {"url": "https:///T0KEN"}, {"url": ""},
    {"url": "https://h.test/T0KEN#x"}, {"url": "https://h.test/T0KEN x"}, {"url": "https://h.test:x/T0KEN"},
    {"url": "https://h.test/T0KEN\r\nhost: y"}, {"url": "https://h.test/T0KEN/ö"},
    {"name": "a\nb"}, {"name": "x" * 65}, {"name": " ops"},
    {"secret": KEY}, {"kind": "webhook", "secret": "whsec_"}, {"kind": "webhook", "secret": "whsec_T0KEN!é"},
])  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_at_the_start_without_being_shown(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"^\[\[alerts\]\] 2: ") as refusal:
        made({"name": "fine"}, given)
    assert "T0KEN" not in refusal.value.message


def test_two_targets_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="'slack-2'"):
        made({"name": "slack-2"}, {})


@pytest.mark.parametrize(("kind", "approvals", "buttons"), [
    ("slack", {}, False), ("slack", {"slack_signing_secret": SecretStr("test-secret")}, True),
    ("slack", {"discord_public_key": "ab"}, False), ("discord", {}, False),
    ("discord", {"discord_public_key": "ab"}, True), ("discord", {"slack_signing_secret": SecretStr("x")}, False),
    ("webhook", {"discord_public_key": "ab", "slack_signing_secret": SecretStr("x")}, False),
])  # fmt: skip
def test_buttons_need_what_proves_their_presses(kind: str, approvals: dict[str, Any], buttons: bool) -> None:
    assert made({"kind": kind}, approvals=approvals)[f"{kind}-1"].buttons is buttons


@pytest.mark.parametrize(("body", "said"), [
    (b"invalid_blocks", "invalid_blocks"),
    (b'{"message": "Unknown Webhook",\n "code": 10015}', '{"message": "Unknown Webhook", "code": 10015}'),
    (b"Cannot POST /services/T0KEN/B0X", ""),
    (b"no such channel: t0ken", ""),
    (b"bad key sesame-street", ""),
    (b"user: pa55word", ""),
    (b"<html>nope</html>", ""),
    (b"x" * 201, ""),
    ("naïve".encode(), ""),
    (b"a\x00b", ""),
    (b"", ""),
])  # fmt: skip
def test_what_a_target_answers_is_shown_only_if_it_is_short_and_repeats_nothing_of_the_address(
    body: bytes, said: str
) -> None:
    assert said_by(made({})["slack-1"], body) == said
