"""Owns what people do in tests: see what is pending, and decide. Must not reach into the proxy: it asks over HTTP.

Invariant: waiting for an approval is bounded, and ends with what was there instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.client import Answer, ControlPlane, status_of
from tests.support.proxy import Proxy

BOUND_S = 30.0


def pending(proxy: Proxy, count: int = 1, session: str = "") -> list[dict[str, Any]]:
    """What is pending (in one session), once it is that many. The control plane is asked again and again: it has no
    event for it here."""
    until = time.monotonic() + BOUND_S
    found: list[dict[str, Any]] = []
    while time.monotonic() < until:
        found = [one for one in proxy.control.get("/api/approvals/pending") if session in ("", one["session_id"])]
        if len(found) >= count:
            assert len(found) == count, found
            return found
        threading.Event().wait(0.02)
    raise AssertionError(f"{len(found)} approvals are pending, not {count}: {found}")


def decide(proxy: Proxy, approval: dict[str, Any] | str, action: str, **more: Any) -> dict[str, Any]:
    """``more``: ``reason``, ``arguments``."""
    name = approval if isinstance(approval, str) else approval["id"]
    return dict(proxy.control.post(f"/api/approvals/{name}/action", {"action": action, **more}))


class Person:
    """An approver with a token of their own."""

    def __init__(self, proxy: Proxy, name: str, role: str = "approver") -> None:
        token = proxy.control.post("/api/approvers", {"name": name, "role": role})["token"]
        self._control = ControlPlane(proxy.url, token)

    def decide(self, approval: dict[str, Any], action: str, **more: Any) -> dict[str, Any]:
        return dict(self._control.post(f"/api/approvals/{approval['id']}/action", {"action": action, **more}))

    def refused(self, approval: dict[str, Any], action: str, **more: Any) -> int:
        """The status with which the decision is refused."""
        path = f"/api/approvals/{approval['id']}/action"
        return status_of(self._control.post, path, {"action": action, **more})[0]


class Asking:
    """A call that may have to wait, in a thread of its own."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._answers: list[Answer] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Answer]) -> None:
        try:
            self._answers.append(call())
        except BaseException as error:  # noqa: BLE001 - raised in the test's own thread
            self._errors.append(error)

    @property
    def waits(self) -> bool:
        """Whether it has no answer yet."""
        return self._thread.is_alive()

    def answer(self) -> Answer:
        """The answer, once it is there."""
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive(), "the call still waits"
        if self._errors:
            raise self._errors[0]
        return self._answers[0]
