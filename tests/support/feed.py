"""Owns listening to the feed of events in tests, over a real connection. Must not know what should come.

Invariant: every wait is bounded, and one that is in vain says what came instead.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from tests.support.client import Connection
from tests.support.proxy import Proxy


class Feed:
    """``GET /api/events`` as a stream; a context manager. ``events``: those that were read, with their ``id``."""

    def __init__(self, proxy: Proxy, query: str = "", *, last_event_id: str = "", token: str = "") -> None:
        self._connection = Connection(proxy.port)
        headers = {"Authorization": f"Bearer {token or proxy.admin_token}"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        self._connection.request("GET", f"/api/events{query}", headers)
        self.status, self.headers = self._connection.read_head(method="GET")
        self.start = ""
        self._seen = 0
        if self.status == 200:
            opening = self._connection.read_until(b"\n\n").decode()
            self.start = next(line[4:] for line in opening.splitlines() if line.startswith("id: "))

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What has come."""
        return parsed(self._connection.received())

    def until(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The next event of that kind, with these fields, after the one that was found last; waits for it."""
        while True:
            events = self.events
            for place in range(self._seen, len(events)):
                event = events[place]
                if event["kind"] == kind and all(event.get(name) == value for name, value in fields.items()):
                    self._seen = place + 1
                    return event
            assert self._connection._more(), f"the feed ended without {kind} {fields}: {events}"

    def end(self) -> bool:
        """Read on to the end; whether it ended properly."""
        return self._connection.read_body()[1]


def parsed(body: bytes) -> list[dict[str, Any]]:
    """The whole events of a stream: their data, with ``id`` and the ``name`` under which a browser gets them."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            found.append({"id": fields["id"], "name": fields["event"], **json.loads(fields["data"])})
    return found
