"""The admin token opens the control plane, agent keys the agent plane, and neither the other."""

from __future__ import annotations

import socket
import stat
import time
from pathlib import Path
from typing import Any, cast

import pytest

from agentstate import settings
from agentstate.core.approval import Person, Role
from agentstate.errors import Forbidden, SettingsError, TooManyRequests, Unauthorized
from agentstate.server import app, auth

TOKEN = "a-token-of-more-than-16-characters"


def made(**server: Any) -> settings.Settings:
    """Settings with these of the server."""
    return settings.load(flags={"server": server}, environ={})


@pytest.fixture(autouse=True)
def _no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_the_first_start_makes_a_token_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    token = auth.admin_token(made(), folder)
    file = folder / auth.TOKEN_FILE
    assert len(token) >= 40
    assert file.read_text().strip() == token
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_later_starts_keep_the_token(tmp_path: Path) -> None:
    assert auth.admin_token(made(), tmp_path) == auth.admin_token(made(), tmp_path)


def test_two_folders_have_two_tokens(tmp_path: Path) -> None:
    assert auth.admin_token(made(), tmp_path / "a") != auth.admin_token(made(), tmp_path / "b")


def test_a_token_file_left_empty_by_a_crash_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / auth.TOKEN_FILE).write_text("\n")
    token = auth.admin_token(made(), tmp_path)
    assert len(token) >= 40 and (tmp_path / auth.TOKEN_FILE).read_text().strip() == token


def test_a_token_of_the_settings_wins_and_writes_no_file(tmp_path: Path) -> None:
    assert auth.admin_token(made(admin_token=f" {TOKEN} "), tmp_path) == TOKEN
    assert not (tmp_path / auth.TOKEN_FILE).exists()


@pytest.mark.parametrize("token", ["", "short", "fifteen-letters"])
def test_a_token_that_is_easily_guessed_is_refused(token: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at least 16"):
        auth.admin_token(made(admin_token=token), tmp_path)


class NoApprovers:
    """A journal without approvers."""

    def approver_by_token(self, digest: bytes) -> None:
        return None


async def called(given: str, peer: str = "127.0.0.1", authority: auth.Authority | None = None) -> Person:
    return await (authority or auth.Authority(TOKEN, made())).caller(cast(Any, NoApprovers()), given, peer)


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN} "])
async def test_the_admin_token_is_taken_as_a_bearer_token(given: str) -> None:
    assert await called(given) == Person("admin", Role.ADMIN)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
        f"Bearer{TOKEN}",
    ],
)
async def test_anything_else_is_no_admin_token(given: str) -> None:
    with pytest.raises(Unauthorized) as refusal:
        await called(given)
    assert TOKEN not in refusal.value.message
    assert "AGENTSTATE_ADMIN_TOKEN" in refusal.value.message


async def test_an_agents_key_is_refused_even_where_it_is_the_admin_token() -> None:
    authority = auth.Authority(TOKEN, made(agent_keys=["sk-test-key", TOKEN]))
    for key in ("sk-test-key", TOKEN):
        with pytest.raises(Forbidden, match="agents never decide"):
            await called(f"Bearer {key}", authority=authority)


async def test_wrong_tokens_are_counted_for_each_address_alone() -> None:
    authority = auth.Authority(TOKEN, made())
    for at in range(auth.MOST_FAILURES):
        with pytest.raises(Unauthorized):
            await called(f"Bearer sk-test-{at}", "192.0.2.1", authority)
    with pytest.raises(TooManyRequests) as refusal:
        await called("Bearer sk-test-more", "192.0.2.1", authority)
    assert 0 < (refusal.value.retry_after or 0) <= 60
    with pytest.raises(Unauthorized):
        await called("Bearer sk-test-more", "192.0.2.2", authority)
    with pytest.raises(Unauthorized):
        await called("", "192.0.2.1", authority)  # a request without a token is no guess


async def test_the_wait_for_wrong_tokens_is_over_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = auth.Authority(TOKEN, made())
    for at in range(auth.MOST_FAILURES):
        with pytest.raises(Unauthorized):
            await called(f"Bearer sk-test-{at}", authority=authority)
    later = time.time() + 61
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(Unauthorized):
        await called("Bearer sk-test-more", authority=authority)


def test_an_admin_token_that_is_an_agents_key_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="agents would be admins"):
        auth.admin_token(made(admin_token=TOKEN, agent_keys=[TOKEN]), tmp_path)


def test_without_agent_keys_no_key_is_asked_for() -> None:
    auth.check_agent("", ())
    auth.check_agent("whatever", ())


def test_any_of_the_agent_keys_opens_the_agent_plane() -> None:
    for key in ("one", "two"):
        auth.check_agent(key, ("one", "two"))


@pytest.mark.parametrize("given", ["", "three", "one ", "ONE", TOKEN])
def test_anything_else_is_no_agent_key(given: str) -> None:
    with pytest.raises(Unauthorized, match="x-agentstate-key"):
        auth.check_agent(given, ("one", "two"))


def test_every_key_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(auth, "same", lambda given, wanted: compared.append(wanted) or given == wanted)
    auth.check_agent("one", ("one", "two", "three"))
    assert compared == ["one", "two", "three"]


def test_texts_that_no_encoding_carries_are_compared_without_a_fault() -> None:
    assert not auth.same("\ud800", "a")
    assert auth.same("\ud800é", "\ud800é")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "Localhost"])
def test_loopback_needs_no_agent_keys(host: str) -> None:
    auth.check_binding(made(host=host))


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "", "0", "192.168.1.5", "fe80::1", "example.test", "localhost.example.test", "::ffff:0.0.0.0"],
)
def test_beyond_loopback_agent_keys_or_open_eyes_are_needed(host: str) -> None:
    with pytest.raises(SettingsError, match=r"agent_keys.*--open"):
        auth.check_binding(made(host=host))
    auth.check_binding(made(host=host, agent_keys=["sk-test-key"]))
    auth.check_binding(made(host=host, open=True))


def test_a_name_that_leads_beyond_loopback_is_refused_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", elsewhere)
    with pytest.raises(SettingsError, match=r"192\.0\.2\.7 without agent keys"):
        app.listen(made(host="localhost", port=0))
