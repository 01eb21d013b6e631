"""``agentstate alerts`` and the routes beside it, with a real proxy and without one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate import clock, settings
from agentstate.alerts import webhook
from agentstate.alerts.message import Alert, compose
from agentstate.alerts.target import targets
from tests.house.pages import ROOT, fences
from tests.support.client import status_of
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

BOUND_S = 20.0
GUIDE = ROOT / "docs" / "guides" / "alerts.md"


@pytest.fixture
def receiver() -> Iterator[Upstream]:
    with Upstream(lambda seen: plain(b"ok")) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, receiver: Upstream) -> Iterator[Proxy]:
    """A proxy with a target that takes everything, one that refuses, and one whose kind shows in its name."""
    receiver.script = lambda seen: plain(b"no_service" if "gone" in seen.target else b"ok",
                                         404 if "gone" in seen.target else 200)  # fmt: skip
    (tmp_path / "agentstate.toml").write_text(
        f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{receiver.url}/s3cret"\n'
        f'[[alerts]]\nkind = "slack"\nname = "gone"\nurl = "{receiver.url}/gone-s3cret"\n'
        f'[[alerts]]\nkind = "discord"\nurl = "{receiver.url}/s3cret"\non = ["provider.down"]\n'
    )
    with Proxy(tmp_path, receiver.url) as running:
        yield running


def fail(proxy: Proxy, session: str) -> None:
    proxy.control.post(f"/api/sessions/{session}/runs", {"run": "a", "replaces": None, "supervisor_pid": None})
    proxy.control.post(f"/api/sessions/{session}/status", {"status": "FAILED"})


def until(proxy: Proxy, states: dict[str, int]) -> list[dict[str, Any]]:
    """Wait, bounded, until so many messages are in each state."""
    deadline = time.monotonic() + BOUND_S
    while True:
        found = list(proxy.control.get("/api/alerts"))
        names = [row["state"] for row in found]
        if {name: names.count(name) for name in set(names)} == states:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_messages_are_listed_by_state_and_page_after_page(proxy: Proxy) -> None:
    for number in range(3):
        fail(proxy, f"s{number}")
    rows = until(proxy, {"delivered": 3, "dead": 3})
    assert [row["id"] for row in rows] == [6, 5, 4, 3, 2, 1]
    dead = proxy.control.get("/api/alerts?state=dead&limit=2")
    assert [(row["target"], row["error"]) for row in dead] == [
        ("gone", "http://127.0.0.1 answered 404: no_service")
    ] * 2
    [last] = proxy.control.get(f"/api/alerts?state=dead&limit=2&after={dead[-1]['id']}")
    assert last["session"] == "s0" and last["dead_at"] and last["next_at"] is None
    assert status_of(proxy.control.get, "/api/alerts?state=lost")[0] == 400
    listed = proxy.cli("alerts", "list", "--state", "dead").stdout
    assert listed.count("session.failed") == 3 and "404" in listed
    assert json.loads(proxy.cli("alerts", "list", "--json").stdout) == proxy.control.get("/api/alerts")
    assert "s3cret" not in listed + proxy.log + json.dumps(rows)


def test_a_dead_message_is_sent_again_on_demand(proxy: Proxy, receiver: Upstream) -> None:
    fail(proxy, "s")
    rows = until(proxy, {"delivered": 1, "dead": 1})
    [dead] = [row for row in rows if row["state"] == "dead"]
    receiver.script = lambda seen: plain(b"ok")
    assert proxy.cli("alerts", "retry", str(dead["id"])).stdout == f"message {dead['id']} is on its way\n"
    until(proxy, {"delivered": 2})
    assert status_of(proxy.control.post, f"/api/alerts/{dead['id']}/retry")[0] == 409
    assert status_of(proxy.control.post, "/api/alerts/99/retry")[0] == 404


def test_a_dead_message_that_is_revived_without_a_proxy_is_sent_by_the_next_one(
    proxy: Proxy, receiver: Upstream
) -> None:
    fail(proxy, "s")
    until(proxy, {"delivered": 1, "dead": 1})
    assert proxy.stop() == 0
    receiver.script = lambda seen: plain(b"ok")
    calls = receiver.calls
    assert "is sent when one does" in proxy.cli("alerts", "retry", "2").stdout
    assert receiver.calls == calls
    refused = proxy.cli("alerts", "retry", "1", check=False)
    assert refused.returncode == 1 and "message 1 is delivered" in refused.stderr
    proxy.start()
    until(proxy, {"delivered": 2})


def test_targets_are_tried_with_one_line_for_each_and_an_exit_code(proxy: Proxy, receiver: Upstream) -> None:
    tried = proxy.cli("alerts", "test", check=False)
    assert tried.returncode == 1
    assert tried.stdout.splitlines() == [
        "ops (webhook, http://127.0.0.1): delivered",
        "gone (slack, http://127.0.0.1): http://127.0.0.1 answered 404: no_service",
        "discord-3 (discord, http://127.0.0.1): delivered",
    ]
    assert proxy.cli("alerts", "test", "ops").stdout == "ops (webhook, http://127.0.0.1): delivered\n"
    unknown = proxy.cli("alerts", "test", "nobody", check=False)
    assert unknown.returncode == 1 and "ops, gone, discord-3" in unknown.stderr
    assert receiver.calls == 4
    answered = proxy.control.post("/api/alerts/test", {"name": "gone"})
    assert answered == [
        {"target": "gone", "kind": "slack", "address": "http://127.0.0.1", "delivered": False, "status_code": 404,
         "error": "http://127.0.0.1 answered 404: no_service"}
    ]  # fmt: skip
    assert len(proxy.control.post("/api/alerts/test")) == 3
    assert status_of(proxy.control.post, "/api/alerts/test", {"name": 3})[0] == 400
    assert proxy.control.get("/api/alerts") == []


def test_the_routes_ask_for_the_admin_token(proxy: Proxy) -> None:
    for method, path in (("GET", "/api/alerts"), ("POST", "/api/alerts/test"), ("POST", "/api/alerts/1/retry")):
        assert proxy.client.send(method, path).status == 401


def test_the_guide_shows_settings_that_load_and_code_that_verifies(tmp_path: Path, capsys: Any) -> None:
    shown = {fence.kind: fence.text for fence in fences(GUIDE.read_text())}
    file = tmp_path / "agentstate.toml"
    file.write_text(shown["toml"])
    loaded = settings.load(file, environ={})
    found = targets(loaded.alerts, loaded.approvals)
    assert list(found) == ["slack-1", "discord-2", "ops"]
    given = Alert("msg_1", "approval.required", clock.now(), "s", "apr_1", "https://x.test/1", {"tool": "send_email"})
    post = webhook.post(compose(given), found["ops"], clock.now())
    exec(shown["python"], {"body": post.body, "headers": dict(post.headers)})
    assert capsys.readouterr().out == "send_email https://x.test/1\n"


def test_a_wrong_target_ends_the_start_with_a_line_that_does_not_show_it(tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_text('[[alerts]]\nkind = "slack"\nurl = "s3cret"\n')
    done = Proxy(tmp_path).cli("serve", "--port", "0", check=False)
    assert done.returncode == 2 and "[[alerts]] 1: url must look like" in done.stderr and "s3cret" not in done.stderr
