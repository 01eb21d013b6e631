"""How commands find a proxy and what they say when the control plane refuses."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from agentstate.cli import control
from agentstate.cli.control import Control, ControlRefused, ProxyUnreachable, address, admin_token, find
from agentstate.errors import Unauthorized
from agentstate.settings import Settings, load
from tests.unit.cli.conftest import TOKEN, FakeProxy


def settings(data: Path, **environ: str) -> Settings:
    return load(environ={"AGENTSTATE_PORT": "0"} | environ)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENTSTATE_DATA", str(tmp_path))
    monkeypatch.delenv("AGENTSTATE_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_lock(data: Path, url: str) -> None:
    (data / "agentstate.db.lock").write_text(json.dumps({"pid": 1, "url": url}))


def test_proxy_at_the_settings_address_is_found_first(data: Path, fake: FakeProxy) -> None:
    write_lock(data, "http://127.0.0.1:9")
    found = find(settings(data, AGENTSTATE_PORT=str(fake.port), AGENTSTATE_ADMIN_TOKEN=TOKEN))
    assert found == f"http://127.0.0.1:{fake.port}"


def test_proxy_that_holds_the_journal_is_found_by_its_lock_file(data: Path, fake: FakeProxy) -> None:
    (data / "admin_token").write_text(TOKEN + "\n")
    write_lock(data, f"http://127.0.0.1:{fake.port}")
    assert find(settings(data)) == f"http://127.0.0.1:{fake.port}"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "url": "http://127.0.0.1:9"}', "\xff"])
def test_lock_file_of_a_dead_proxy_or_none_at_all_finds_nothing(data: Path, text: str) -> None:
    (data / "agentstate.db.lock").write_text(text, "latin-1")
    assert find(settings(data)) is None


def test_another_users_proxy_on_the_usual_port_is_not_ours(data: Path, fake: FakeProxy) -> None:
    (data / "admin_token").write_text("mine")
    assert find(settings(data, AGENTSTATE_PORT=str(fake.port))) is None


def test_journals_own_proxy_is_found_though_another_one_at_the_usual_port_refuses_the_token(
    data: Path, fake: FakeProxy
) -> None:
    theirs = FakeProxy()
    theirs.refuse = True
    try:
        write_lock(data, f"http://127.0.0.1:{fake.port}")
        found = find(settings(data, AGENTSTATE_PORT=str(theirs.port), AGENTSTATE_ADMIN_TOKEN=TOKEN))
        assert found == f"http://127.0.0.1:{fake.port}"
    finally:
        theirs.close()


def test_token_given_on_purpose_and_refused_is_an_error(data: Path, fake: FakeProxy) -> None:
    with pytest.raises(Unauthorized, match="AGENTSTATE_ADMIN_TOKEN"):
        find(settings(data, AGENTSTATE_PORT=str(fake.port), AGENTSTATE_ADMIN_TOKEN="other"))


def test_another_program_on_the_port_is_not_taken_for_a_proxy(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PROBE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert find(settings(data, AGENTSTATE_PORT=str(silent.getsockname()[1]))) is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8123"),
        ("0.0.0.0", "http://127.0.0.1:8123"),
        ("::", "http://[::1]:8123"),
        ("example.com", "http://example.com:8123"),
    ],
)
def test_address_is_one_that_can_be_connected_to(data: Path, host: str, url: str) -> None:
    assert address(settings(data, AGENTSTATE_HOST=host, AGENTSTATE_PORT="8123")) == url


def test_refusal_carries_the_proxys_own_words(fake: FakeProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = Control(f"http://127.0.0.1:{fake.port}", TOKEN)
    monkeypatch.setattr(fake, "answer", lambda *_: (404, {"error": {"message": "no such session"}}))
    with pytest.raises(ControlRefused, match="404: no such session"):
        plane.run("s", "r")
    monkeypatch.setattr(fake, "answer", lambda *_: (500, ["odd"]))
    with pytest.raises(ControlRefused, match="answered 500"):
        plane.run("s", "r")


def test_names_are_encoded_in_the_path(fake: FakeProxy) -> None:
    Control(f"http://127.0.0.1:{fake.port}", TOKEN).end("a/b ü", "run_1", 0)
    assert fake.calls == [("POST", "/api/sessions/a%2Fb%20%C3%BC/runs/run_1/end", {"exit_code": 0})]


def test_proxy_that_does_not_answer_is_named(data: Path) -> None:
    with pytest.raises(ProxyUnreachable, match=r"127\.0\.0\.1:9 does not answer"):
        Control("http://127.0.0.1:9", TOKEN).set_status("s", "COMPLETED")


def test_missing_token_is_empty_and_an_unreadable_one_is_explained(data: Path) -> None:
    assert admin_token(settings(data)) == ""
    (data / "admin_token").mkdir()
    with pytest.raises(Unauthorized, match="cannot be read"):
        admin_token(settings(data))
