"""Owns an agent whose model wants to send a mail, and a proxy that holds it: what tests of the gate begin with.

Must not decide. Invariant: each test has an upstream and a proxy of its own; a proxy that logs a traceback fails it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Connection
from tests.support.people import Asking
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain, stream

TO_BOB = '{"to": "bob@example.com", "body": "hello"}'
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "body": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "send_email", "parameters": SCHEMA}}]


def mailing(seen: Seen) -> Reply:
    """A model that wants to send a mail, and says so first; once it has a result it is done. Alerts are taken."""
    asked = json.loads(seen.body)
    if "messages" not in asked:
        return plain(b"ok")
    said = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
    calls = [] if said else [chat.tool_call("send_email", TO_BOB)]
    text = f"Done: {said[-1]}" if said else "I will write to Bob."
    if asked.get("stream"):
        return stream(*chat.chunks(text, tool_calls=calls))
    return plain(chat.completion(text, tool_calls=calls))


def start(proxy: Proxy, session: str, *, run: str = "r1", stream: bool = False, **headers: str) -> Connection:
    return proxy.client.start(session, "write to Bob", run=run, stream=stream, headers=headers, tools=TOOLS)


def ask(proxy: Proxy, session: str, *, run: str = "r1", stream: bool = False, **headers: str) -> Asking:
    def call() -> Any:
        return proxy.client.ask(session, "write to Bob", run=run, stream=stream, headers=headers, tools=TOOLS)

    return Asking(call)


def calls_of(body: bytes) -> list[tuple[str, str]]:
    """(tool, arguments) of the calls in a plain or streamed answer."""
    if not body.lstrip().startswith(b"data:"):
        message = json.loads(body)["choices"][0]["message"]
        return [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
    found: dict[int, list[str]] = {}
    for line in body.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for call in choice["delta"].get("tool_calls") or ():
                    part = found.setdefault(call["index"], ["", ""])
                    part[0] += call["function"].get("name") or ""
                    part[1] += call["function"].get("arguments") or ""
    return [(name, arguments) for name, arguments in found.values()]


def with_policies(tmp_path: Path, upstream: Upstream, *rules: str) -> Proxy:
    return Proxy(tmp_path, upstream.url, file="\n".join(f"[[policies]]\n{rule}" for rule in rules))


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A test module takes this and ``proxy`` as its own: ``upstream, proxy = mailing.upstream, mailing.proxy``."""
    with Upstream(mailing) as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path, upstream.url) as running:
        yield running
        assert "Traceback" not in running.log
