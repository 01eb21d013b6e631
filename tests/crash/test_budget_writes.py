"""The proxy is killed before, in and after what it writes of budgets: what is reserved by no call is reserved no more,
nothing is sent beyond a limit, and nothing is asked twice."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashing_server import command
from tests.support.people import Asking, decide, pending
from tests.support.proxy import CLI, Proxy
from tests.support.upstream import Upstream

OF_BUDGETS = ("begin_budgeted", "send_budgeted")
WHEN = pytest.mark.parametrize("when", ["before", "inside", "after"])
PRICES = '[[prices]]\nmodel = "*"\ninput = 0.0\noutput = 2000.0\n'


@contextlib.contextmanager
def dying(tmp_path: Path, name: str, count: int, when: str, limits: str) -> Iterator[tuple[Proxy, Upstream]]:
    file = f"{PRICES}[budget]\n{limits}\n"
    killed = command(name, count, when)
    with Upstream() as upstream, Proxy(tmp_path, upstream.url, command=killed, file=file) as proxy:
        yield proxy, upstream
        assert "Traceback" not in proxy.log
        assert proxy.stop() == 0
        proxy.doctor()


def ask(proxy: Proxy, text: str, run: str = "r1") -> Any:
    return proxy.client.ask("s", text, run=run, max_tokens=5)


def lost(proxy: Proxy, text: str) -> None:
    """A call over which the proxy dies."""
    with contextlib.suppress(AssertionError, OSError):
        ask(proxy, text)
    assert proxy.wait() == -9


def reservations(proxy: Proxy) -> int:
    conn = sqlite3.connect(proxy.database)
    try:
        return int(conn.execute("select count(*) from reservation").fetchone()[0])
    finally:
        conn.close()


@WHEN
def test_proxy_killed_between_reserving_and_settling_reserves_nothing_after_its_start(
    tmp_path: Path, when: str
) -> None:
    # Each call costs a cent; there is room for three.
    with dying(tmp_path, "end_step", 2, when, 'session_usd = 0.035\nat_limit = "deny"') as (proxy, upstream):
        assert ask(proxy, "q0").status == 200
        lost(proxy, "q1")
        proxy.restart(command=CLI)
        assert reservations(proxy) == 0
        again = ask(proxy, "q1", run="r2")
        assert again.status == 200
        assert upstream.calls == (2 if when == "after" else 3)
        assert ask(proxy, "q2", run="r2").status == 200
        assert ask(proxy, "q3", run="r2").error["code"] == "budget_exceeded"
        assert reservations(proxy) == 0


@WHEN
def test_proxy_killed_as_it_begins_a_call_counts_it_once(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "begin_budgeted", 2, when, 'session_steps = 2\nat_limit = "deny"') as (proxy, upstream):
        assert ask(proxy, "q0").status == 200
        lost(proxy, "q1")
        assert upstream.calls == 1
        proxy.restart(command=CLI)
        assert ask(proxy, "q1", run="r2").status == 200
        assert ask(proxy, "q2", run="r2").error["code"] == "budget_exceeded"
        assert upstream.calls == 2


@WHEN
def test_proxy_killed_as_it_asks_about_a_limit_has_sent_nothing_and_asks_once(tmp_path: Path, when: str) -> None:
    with dying(tmp_path, "begin_budgeted", 2, when, "session_steps = 1") as (proxy, upstream):
        assert ask(proxy, "q0").status == 200
        lost(proxy, "q1")
        proxy.restart(command=CLI)
        waiting = Asking(lambda: ask(proxy, "q1", run="r2"))
        [question] = pending(proxy)
        assert upstream.calls == 1
        decide(proxy, question, "APPROVED")
        assert waiting.answer().status == 200
        assert upstream.calls == 2


@WHEN
def test_proxy_killed_as_it_sends_what_was_let_through_sends_it_once(tmp_path: Path, when: str) -> None:
    # The first one finds no room and asks; the second one comes after the decision.
    with dying(tmp_path, "send_budgeted", 2, when, "session_steps = 1") as (proxy, upstream):
        assert ask(proxy, "q0").status == 200
        waiting = Asking(lambda: ask(proxy, "q1"))
        [question] = pending(proxy)
        with contextlib.suppress(AssertionError, OSError):
            decide(proxy, question, "APPROVED")
            waiting.answer()
        assert proxy.wait() == -9
        proxy.restart(command=CLI)
        assert ask(proxy, "q1", run="r2").status == 200
        assert pending(proxy, 0) == []
        assert upstream.calls == 2
