"""The proxy is killed before, in and after each write of pruning: its journal is sound then, what was to stay is there
byte for byte, and the next start finishes what was begun."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from tests.support.crashing_server import command
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream
from tests.support.waiting import until

OF_PRUNING = (
    "pin",
    "unpin",
    "doom_session",
    "drop_steps",
    "drop_hand_outs",
    "forget_session",
    "drop_superseded",
    "watch_references",
    "sweep_nodes",
    "sweep_blobs",
    "end_watch",
    "give_back",
    "fold_log",
)
# Which write of that name kills: of those made more than once, not the first.
COUNT = {"drop_steps": 2, "sweep_nodes": 2, "sweep_blobs": 2}
# Those that delete are also killed at when all is done but the commit.
_INSIDE = ("doom_session", "drop_steps", "forget_session", "drop_superseded", "sweep_nodes", "sweep_blobs")
CASES = [(name, when) for name in OF_PRUNING for when in ("before", "after")] + [(name, "inside") for name in _INSIDE]


def left(proxy: Proxy) -> list[int]:
    """Rows of sessions that are gone, notes that there is garbage, steps, contents."""
    conn = sqlite3.connect(proxy.database)
    try:
        return [
            conn.execute(f"select count(*) from {what}").fetchone()[0]
            for what in ("doomed", "meta where key = 'garbage'", "step", "blob")
        ]
    finally:
        conn.close()


@pytest.mark.parametrize(("name", "when"), CASES)
def test_proxy_killed_at_a_write_of_pruning_finishes_it_at_the_next_start(tmp_path: Path, name: str, when: str) -> None:
    killed = command(name, COUNT.get(name, 1), when)
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=killed) as proxy:
        whole = [proxy.client.ask("stays", f"stays {number}", run="a").body for number in range(4)]
        for session in ("goes-1", "goes-2"):
            for number in range(20):
                assert proxy.client.ask(session, f"{session} {number}", run="a").status == 200
        proxy.control.post("/api/sessions/stays/reset", {"step_number": 3})
        until(lambda: _nobody_is_connected(proxy), "a socket stays open")
        with contextlib.suppress(OSError):
            proxy.control.post("/api/sessions/stays/pin")
            proxy.control.post("/api/sessions/stays/unpin")
            proxy.control.post("/api/sessions/stays/labels", {"add": ["kept"]})
            proxy.control.post("/api/prune", {"keep": 1, "superseded_days": 0, "vacuum": True})
        assert proxy.wait() == -9, f"no write named {name!r} was made"
        proxy.doctor()
        proxy.restart(command=CLI)
        until(lambda: left(proxy)[:2] == [0, 0], "what was begun is not finished")
        proxy.control.post("/api/sessions/stays/unpin")
        proxy.control.post("/api/prune", {"keep": 1, "superseded_days": 0, "vacuum": True})
        assert [row["id"] for row in proxy.control.get("/api/sessions")] == ["stays"]
        calls = upstream.calls
        again = [proxy.client.ask("stays", f"stays {number}", run="b") for number in range(3)]
        assert [answer.body for answer in again] == whole[:3] and upstream.calls == calls
        assert left(proxy)[2] == 3
        assert proxy.stop() == 0
        assert "Traceback" not in proxy.log
        proxy.doctor()


def _nobody_is_connected(proxy: Proxy) -> bool:
    report = proxy.control.post("/api/prune", {"older_than_days": 0, "dry_run": True})
    return all(row["why"] != "in_use" for row in report["kept"])
