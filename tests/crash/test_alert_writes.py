"""The proxy is killed at every write about a message on its way: it arrives all the same, under one id.

Nothing that did not happen is told.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.crashing_server import command
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Reply, Seen, Upstream, model, plain

OF_MESSAGES = ("try_message", "deliver_message", "postpone_message", "bury_message", "revive_message")
WHEN = ("before", "inside", "after")
KEY = "whsec_" + base64.b64encode(b"test key of thirty-two bytes ...").decode()
BOUND_S = 20.0
TAKEN = plain(b"ok")


@pytest.fixture
def receiver() -> Iterator[Upstream]:
    with Upstream(lambda seen: TAKEN) as running:
        yield running


def proxy_with(folder: Path, receiver: Upstream, name: str, when: str) -> Proxy:
    """A proxy that tells the receiver of what happens, and dies at its first write of that name."""
    folder.mkdir(exist_ok=True)
    (folder / "agentstate.toml").write_text(
        f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{receiver.url}/s3cret"\nsecret = "{KEY}"\n'
    )
    return Proxy(folder, receiver.url, command=command(name, 1, when))


def script(*replies: Reply) -> Callable[[Seen], Reply]:
    left = list(replies)
    return lambda seen: left.pop(0) if left else TAKEN


def until(proxy: Proxy, *states: str) -> list[dict[str, Any]]:
    """Wait, bounded, until the messages are in these states, the newest first."""
    deadline = time.monotonic() + BOUND_S
    while True:
        found = list(proxy.control.get("/api/alerts"))
        if [row["state"] for row in found] == list(states):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def fail(proxy: Proxy) -> None:
    """Something to tell; the proxy may die of it."""
    with contextlib.suppress(OSError):
        proxy.control.post("/api/sessions/s/status", {"status": "FAILED"})


def ids(receiver: Upstream) -> list[str]:
    for seen in receiver.requests:
        Webhook(KEY).verify(seen.body, dict(seen.headers))
    return [str(seen.headers.get("webhook-id")) for seen in receiver.requests]


def begin(proxy: Proxy, receiver: Upstream, *replies: Reply) -> None:
    """A session that may fail; from then on the receiver gets messages."""
    proxy.control.post("/api/sessions/s/runs", {"run": "a", "replaces": None, "supervisor_pid": None})
    receiver.reset(script(*replies))


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("name", ["try_message", "deliver_message", "bury_message"])
def test_proxy_killed_while_it_delivers_a_message_delivers_it_under_the_same_id(
    tmp_path: Path, receiver: Upstream, name: str, when: str
) -> None:
    with proxy_with(tmp_path, receiver, name, when) as proxy:
        begin(proxy, receiver, *([plain(b"", 404)] if name == "bury_message" else []))
        fail(proxy)
        assert proxy.wait() == -9
        sent = 0 if name == "try_message" else 1
        assert receiver.calls == sent
        proxy.restart(command=CLI)
        kept = when == "after"
        if name == "bury_message" and kept:
            [row] = until(proxy, "dead")
            assert receiver.calls == 1 and row["error"].endswith("answered 404")
        else:
            [row] = until(proxy, "delivered")
            assert receiver.calls == (1 if name == "try_message" or kept else 2)
        assert set(ids(receiver)) == {row["alert"]}
        assert proxy.stop() == 0
        proxy.doctor()


@pytest.mark.parametrize("when", WHEN)
def test_proxy_killed_as_it_puts_a_message_off_still_has_it(tmp_path: Path, receiver: Upstream, when: str) -> None:
    with proxy_with(tmp_path, receiver, "postpone_message", when) as proxy:
        wait = plain(b"", 503, headers=[("retry-after", "3000")])
        begin(proxy, receiver, wait)
        fail(proxy)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        [row] = until(proxy, "pending" if when == "after" else "delivered")
        assert row["attempts"] == (1 if when == "after" else 2)
        assert ids(receiver) == [row["alert"]] * row["attempts"]
        assert proxy.stop() == 0


@pytest.mark.parametrize("when", WHEN)
def test_proxy_killed_as_it_revives_a_message_has_done_it_whole_or_not_at_all(
    tmp_path: Path, receiver: Upstream, when: str
) -> None:
    with proxy_with(tmp_path, receiver, "revive_message", when) as proxy:
        begin(proxy, receiver, plain(b"", 404))
        fail(proxy)
        [row] = until(proxy, "dead")
        with pytest.raises(OSError, match=r"."):
            proxy.control.post(f"/api/alerts/{row['id']}/retry")
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        until(proxy, "delivered" if when == "after" else "dead")
        assert receiver.calls == (2 if when == "after" else 1)
        assert proxy.stop() == 0


@pytest.mark.parametrize("when", WHEN)
def test_nobody_is_told_of_a_failure_that_was_not_written_and_everybody_of_one_that_was(
    tmp_path: Path, receiver: Upstream, when: str
) -> None:
    with proxy_with(tmp_path, receiver, "set_status", when) as proxy:
        begin(proxy, receiver)
        fail(proxy)
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        failed = proxy.control.session("s")["session"]["status"] == "FAILED"
        assert failed is (when == "after")
        until(proxy, *["delivered"] * failed)
        assert receiver.calls == int(failed)
        assert proxy.stop() == 0


@pytest.mark.parametrize("when", WHEN)
def test_a_divergence_and_the_message_of_it_are_one_fact(tmp_path: Path, receiver: Upstream, when: str) -> None:
    with proxy_with(tmp_path, receiver, "report_divergence", when) as proxy:
        receiver.reset(lambda seen: TAKEN if seen.target.endswith("s3cret") else model(seen))
        for question in ("one", "two"):
            assert proxy.client.ask("s", question, run="a").status == 200
        with pytest.raises(ConnectionError):
            proxy.client.ask("s", "another", run="b")
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        diverged = proxy.control.run("s", "b")["diverged"]
        assert diverged is (when == "after")
        rows = until(proxy, *["delivered"] * diverged)
        assert [(row["event"], row["subject"]) for row in rows] == [("run.diverged", "b")] * diverged
        assert proxy.stop() == 0
