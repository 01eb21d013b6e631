"""Owns a counter of effects in a process of its own: what tools did, under which key, and points at which they wait.

Neither the agent nor the proxy nor the tool can take back what it counted. Must not judge. Invariant: an effect is
counted before its caller hears of it; the process ends when the test that started it does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

BOUND_S = 30.0


def ask(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the counter, from whichever process."""
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url + path, data=data, headers={"content-type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(call, timeout=2 * BOUND_S) as reply:
        return json.loads(reply.read())


def effect(url: str, name: str, key: str | None, **arguments: Any) -> int:
    """Do something to the world: between two points at which the test may have it wait. How often it was done."""
    ask(url, "/point", {"name": f"before {name}"})
    times = ask(url, "/effect", {"name": name, "key": key, "arguments": arguments})
    ask(url, "/point", {"name": f"after {name}"})
    return int(times)


class EffectsCounter:
    """The process. ``url``: its address."""

    def __enter__(self) -> EffectsCounter:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.effects"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        assert self.url, "the counter did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(BOUND_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def arm(self, point: str) -> None:
        """Let whoever comes to the point next wait there."""
        ask(self.url, "/arm", {"name": point})

    def open(self, point: str) -> None:
        """Let those who wait there go on, and all who come."""
        ask(self.url, "/open", {"name": point})

    def wait_reached(self, point: str) -> None:
        """Until somebody waits at the point."""
        assert ask(self.url, "/reached", {"name": point}), f"nobody came to {point!r}"

    def reset(self) -> None:
        """Nothing was done, and nobody is to wait anywhere."""
        ask(self.url, "/reset", {})

    @property
    def busy(self) -> bool:
        """Whether somebody waits at a point."""
        return bool(ask(self.url, "/busy"))

    @property
    def effects(self) -> list[dict[str, Any]]:
        """All of them, in order."""
        return list(ask(self.url, "/effects"))

    def count(self, name: str | None = None) -> int:
        return sum(name is None or one["name"] == name for one in self.effects)

    @property
    def keys(self) -> set[str | None]:
        return {one["key"] for one in self.effects}


class _State:
    def __init__(self) -> None:
        self.news = threading.Condition()
        self.effects: list[dict[str, Any]] = []
        self.armed: set[str] = set()
        self.waiting: Counter[str] = Counter()

    def point(self, name: str) -> bool:
        with self.news:
            self.waiting[name] += 1
            self.news.notify_all()
            self.news.wait_for(lambda: name not in self.armed, 2 * BOUND_S)
            self.waiting[name] -= 1
        return True

    def reached(self, name: str) -> bool:
        with self.news:
            return self.news.wait_for(lambda: self.waiting[name] > 0, BOUND_S)

    def act(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/point":
            return self.point(body["name"])
        if path == "/reached":
            return self.reached(body["name"])
        with self.news:
            if path == "/effect":
                self.effects.append(body)
                return sum(one["name"] == body["name"] for one in self.effects)
            if path == "/arm":
                self.armed.add(body["name"])
            elif path == "/open":
                self.armed.discard(body["name"])
            elif path == "/busy":
                return self.waiting.total() > 0
            elif path == "/reset":
                self.effects.clear()
                self.armed.clear()
            self.news.notify_all()
            return self.effects


def main() -> None:
    """Serve until the end of stdin."""
    state = _State()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/find/"):  # a probe: whether anything was done under a key
                found = [one for one in state.effects if one["key"] == self.path.removeprefix("/find/")]
                self._answer(200 if found else 404, {"charged": found[0]["arguments"]} if found else None)
                return
            self._answer(200, state.act(self.path, {}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self._answer(200, state.act(self.path, body))

        def _answer(self, status: int, value: Any) -> None:
            data = json.dumps(value).encode()
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # whoever asked was killed

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="effects", daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
