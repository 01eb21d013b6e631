"""Answers that hold calls in an unusual way are held like any other, and given or refused without a failure of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.dialects import sse
from agentstate.dialects.openai_responses import OpenAIResponses
from tests.support import chat
from tests.support.client import Connection, chat_headers, chat_path, status_of
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain, stream

TO_BOB = '{"to": "bob@example.com"}'
IMPATIENT = {"x-stainless-read-timeout": "0.9"}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path, upstream.url) as running:
        yield running
        assert "Traceback" not in running.log


def start(proxy: Proxy, session: str, run: str, path: str, body: Any) -> Connection:
    connection = proxy.client.connect()
    connection.request("POST", chat_path(session, run, path), chat_headers(IMPATIENT), json.dumps(body).encode())
    return connection


def test_stream_of_a_response_that_was_held_as_one_body_is_kept_waiting_by_comments(
    proxy: Proxy, upstream: Upstream
) -> None:
    item = {"type": "function_call", "id": "fc", "call_id": "c", "name": "send_email", "arguments": TO_BOB}
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item]}
    upstream.script = lambda seen: plain(json.dumps(body).encode())
    asked = {"model": "m", "input": "x"}
    with start(proxy, "s", "r1", "/v1/responses", asked):
        [approval] = pending(proxy)
        proxy.kill()
    proxy.restart()
    with start(proxy, "s", "r2", "/v1/responses", {**asked, "stream": True}) as streaming:
        assert streaming.read_head()[0] == 200
        streaming.read_until(sse.KEEP_ALIVE * 2)
        assert streaming.received().replace(sse.KEEP_ALIVE, b"") == b""
        decide(proxy, approval, "APPROVED")
        given, whole = streaming.read_body()
    dialect = OpenAIResponses()
    gate = dialect.gate(dialect.parse("POST", "responses", b'{"stream": true, "input": "x"}'))
    gate.feed(given)
    verdict = gate.finish()
    assert whole and verdict.fault == ""
    assert [(call.name, call.arguments) for call in verdict.calls] == [("send_email", TO_BOB)]
    assert upstream.calls == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_call_in_a_legacy_completion_is_held_and_its_refusal_is_an_error(
    proxy: Proxy, upstream: Upstream, streamed: bool
) -> None:
    calls = [chat.tool_call("send_email", TO_BOB)]
    upstream.script = lambda seen: (
        stream(*chat.chunks("a", tool_calls=calls)) if streamed else plain(chat.completion("a", tool_calls=calls))
    )
    body = json.dumps({"model": "m", "prompt": "x", "stream": streamed}).encode()

    def asked(run: str) -> Asking:
        path = chat_path("s", run, "/v1/completions")
        return Asking(lambda: proxy.client.send("POST", path, chat_headers(), body))

    asking = asked("r1")
    [approval] = pending(proxy)
    edit = {"action": "EDITED", "arguments": {"to": "eve@example.com"}}
    status, told = status_of(proxy.control.post, f"/api/approvals/{approval['id']}/action", edit)
    assert status == 422 and b"cannot be given with other arguments" in told
    decide(proxy, approval, "REJECTED", reason="no")
    answer = asking.answer()
    assert b"bob@" not in answer.body
    error = answer.stream_error if streamed else answer.error
    assert error["code"] == "human_rejection" and "no" in error["message"]
    again = asked("r2").answer()
    assert b"bob@" not in again.body and b"human_rejection" in again.body
    assert upstream.calls == 1


def test_call_with_a_new_id_under_the_index_of_a_harmless_one_is_held(proxy: Proxy, upstream: Upstream) -> None:
    def piece(name: str, call_id: str, arguments: str) -> bytes:
        call = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        return b"data: " + json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode() + b"\n\n"

    end = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    events = [
        piece("search", "a", "{}"),
        piece("send_email", "b", TO_BOB),
        b"data: " + json.dumps(end).encode() + b"\n\n",
        chat.DONE,
    ]
    upstream.script = lambda seen: stream(*events)
    asking = Asking(lambda: proxy.client.ask("s", "x", run="r1", stream=True))
    [approval] = pending(proxy)
    assert (approval["tool_name"], approval["session_id"]) == ("send_email", "s")
    decide(proxy, approval, "REJECTED", reason="no")
    body = asking.answer().body
    assert b"bob@" not in body and b"search" in body and b"refused by admin: no" in body
