"""The shim before a server over stdio, with a proxy and a server that are scripted: which lines reach whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from tests.support.doubt import until
from tests.unit.sdk.test_tool import CLAIMED, proxy

BOUND_S = 15.0
# Prints to stderr what it is sent, split as by the official package, and answers as the test has it.
SERVER = """
import io, json, sys
sys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
for line in sys.stdin:
    print(line, end="", file=sys.stderr, flush=True)
    try:
        message = json.loads(line)
    except ValueError:
        continue
    if message.get("method") == "tools/call":
        {answer}
"""
ECHO = 'print(json.dumps({"id": message["id"], "result": {"content": [message["params"]["name"]]}}), flush=True)'


class Wrapped:
    """The shim's process. ``seen``: the lines that its server was sent, once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._said: Queue[bytes] = Queue()
        self.seen: list[str] = []
        self._readers = [Thread(target=self._read_out, daemon=True), Thread(target=self._read_err, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        self.seen += [line.decode().rstrip("\n") for line in self._process.stderr]

    def say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        return json.loads(self._said.get(timeout=BOUND_S))

    def end(self) -> list[Any]:
        """What it says until its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(BOUND_S)
        for reader in self._readers:
            reader.join(BOUND_S)
        return [json.loads(self._said.get()) for _ in range(self._said.qsize())]


@contextmanager
def wrapped(url: str, answer: str = ECHO) -> Iterator[Wrapped]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTATE_")}
    environ |= {"AGENTSTATE_URL": url, "AGENTSTATE_SESSION_ID": "s"}
    command = [sys.executable, "-m", "agentstate.sdk.stdio", "bank", "--", sys.executable, "-c"]
    process = subprocess.Popen(
        [*command, SERVER.replace("{answer}", answer)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ,
    )  # fmt: skip
    shim = Wrapped(process)
    try:
        yield shim
    finally:
        process.kill()
        process.wait(BOUND_S)


def call(ident: Any = 1, name: str = "charge", **more: Any) -> bytes:
    params = {"name": name, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params, **more}).encode()


@pytest.mark.parametrize(
    "line",
    [
        b'{"method":"x","params":[\r' + call() + b"\r]}",
        b'{"method":"ping","id":1,"Method":"tools/call","params":{"name":"charge"}}',
        b"[" + call() + b"]",
        call(None),
        b'{"method":"ping","method":"tools/call","id":1,"params":{"name":"charge"}}',
    ],
)
def test_a_line_that_a_server_may_take_for_a_call_does_not_reach_it(line: bytes) -> None:
    with proxy() as (url, asked), wrapped(url) as shim:
        shim.say(line)
        assert shim.hear()["error"]["code"] in (-32600, -32700)
        shim.say(b'{"method":"last"}\r')
        shim.end()
    assert asked == [] and shim.seen == ['{"method":"last"}']


def test_two_calls_at_a_time_under_one_id_are_one_call_and_an_error() -> None:
    later = 'print(json.dumps({"method": "called"}), flush=True); ' + (
        'print(json.dumps({"id": 1, "result": {"content": [sys.stdin.readline()]}}), flush=True)'
    )
    with proxy(CLAIMED, {"state": "done"}) as (url, asked), wrapped(url, later) as shim:
        shim.say(call(name="charge"))
        shim.say(call(name="refund"))
        told = [shim.hear(), shim.hear()]
        assert {"method": "called"} in told
        assert [(one["id"], one["error"]["code"]) for one in told if "error" in one] == [(None, -32600)]
        shim.say(b'{"method":"go"}')
        assert shim.hear()["result"]["content"] == ['{"method":"go"}\n']
        shim.end()
    assert [path.rpartition("/")[2] for path, _ in asked] == ["claim", "result"]


def test_an_answer_that_is_nested_too_deeply_to_be_kept_is_not_told_and_the_shim_goes_on() -> None:
    deep = """print('{"method": "called"}', flush=True)
        print('{"id": 1, "result": {"content": ' + "[" * 200000 + "]" * 200000 + "}}", flush=True)
        sys.exit()"""
    with proxy(CLAIMED) as (url, asked), wrapped(url, deep) as shim:
        shim.say(call())
        assert shim.hear() == {"method": "called"}
        left = shim.end()
    assert [one["error"]["message"] for one in left] == ["the server ended before it answered"]
    assert "outcome" not in asked[-1][1] and any("nested too deeply" in line for line in shim.seen)


def test_a_report_brings_the_call_along_where_it_may_hold_credentials() -> None:
    meta = {"name": "charge", "arguments": {}, "_meta": {"api_key": "sk-test-meta"}}
    with proxy(CLAIMED, {"state": "done"}, CLAIMED, {"state": "done"}) as (url, asked), wrapped(url) as shim:
        for ident, more in ((1, {}), (2, {"params": meta})):
            shim.say(call(ident, **more))
            assert shim.hear()["id"] == ident
        shim.end()
    assert ["sk-test-meta" in json.dumps(body) for path, body in asked if path.endswith("result")] == [False, True]


def test_wrapping_a_server_without_a_session_says_how_to_name_one() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTATE_")}
    command = [sys.executable, "-m", "agentstate", "mcp", "wrap", "--server", "bank", "--", "true"]
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=BOUND_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2 and "--session SESSION" in done.stderr


def give_up(ident: Any = 1) -> bytes:
    return json.dumps({"method": "notifications/cancelled", "params": {"requestId": ident}}).encode()


LATER = (
    'print(json.dumps({"method": "called"}), flush=True); sys.stdin.readline(); '
    'print(json.dumps({"id": message["id"], "result": {"content": []}}), flush=True); '
    'print(json.dumps({"method": "done"}), flush=True)'
)


@pytest.mark.parametrize("over", [True, False])
def test_a_call_that_was_sent_and_given_up_goes_on_and_whoever_asks_again_has_its_result(over: bool) -> None:
    with proxy(CLAIMED, {"state": "done"}) as (url, asked), wrapped(url, LATER) as shim:
        shim.say(call(1))
        assert shim.hear() == {"method": "called"}
        shim.say(give_up(1))
        if over:
            shim.say(b'{"method":"go"}')
            assert shim.hear() == {"method": "done"}
            shim.say(call(2))
        else:
            shim.say(call(2))
            shim.say(b'{"method":"go"}')
        answer = shim.hear()
        assert (answer["id"], answer["result"]) == (2, {"content": []})
        shim.end()
    assert [path.rpartition("/")[2] for path, _ in asked] == ["claim", "result"]
    assert len([line for line in shim.seen if "tools/call" in line]) == 1
    assert not any("cancelled" in line for line in shim.seen)


def test_a_held_call_that_was_given_up_is_not_made_unless_it_is_asked_for_again() -> None:
    held = {"state": "held", "approval": "apr_1", "why": ""}
    with proxy(*[held] * 50, CLAIMED, {"state": "done"}) as (url, asked), wrapped(url) as shim:
        shim.say(call(1, name="charge"))
        shim.say(give_up(1))
        until(lambda: bool(asked) and asked[-1][0].endswith("/result"), "word that the call was not made")
        shim.say(b'{"method":"last"}')
        left = shim.end()
    assert asked[-1][1]["made"] is False and left == [] and shim.seen == ['{"method":"last"}']
    assert len({body["sending"] for _, body in asked}) == 1
