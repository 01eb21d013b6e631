"""There is no way around the gate: failed answers, jobs, what a provider keeps, and other spellings of its paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client import Answer, chat_headers
from tests.support.people import pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain, stream

TO_BOB = '{"to": "bob@example.com"}'
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "send_email", "arguments": TO_BOB,
        "status": "completed"}  # fmt: skip
HARMLESS = CALL | {"id": "fc_2", "call_id": "call_2", "name": "search", "arguments": '{"q": "bees"}'}
TOOLS = [{"type": "function", "name": "send_email", "parameters": {"type": "object"}}]
QUESTION = {"model": "m", "input": "write to Bob", "tools": TOOLS}
SECRET = b"bob@example.com"


@pytest.fixture
def upstream() -> Any:
    with Upstream() as running:
        yield running


@pytest.fixture
def proxy(tmp_path: Path, upstream: Upstream) -> Any:
    with Proxy(tmp_path, upstream.url) as running:
        yield running
        assert "Traceback" not in running.log


def response(status: str, *items: dict[str, Any], name: str = "resp_1") -> dict[str, Any]:
    error = {"code": "server_error", "message": "out of order"} if status == "failed" else None
    return {"id": name, "object": "response", "status": status, "model": "m", "output": list(items), "error": error}


def body_of(status: str, *items: dict[str, Any]) -> bytes:
    return json.dumps(response(status, *items)).encode()


def events(status: str, *items: dict[str, Any], ended: bool = True) -> list[bytes]:
    """A streamed response that says a text first. ``ended``: its calls are finished before the response is."""
    told: list[dict[str, Any]] = [{"type": "response.created", "response": response("in_progress")}]
    told.append({"type": "response.output_text.delta", "output_index": 9, "content_index": 0, "delta": "Well. "})
    for place, item in enumerate(items):
        told.append({"type": "response.output_item.added", "output_index": place, "item": item | {"arguments": ""}})
        told.append({"type": "response.function_call_arguments.delta", "output_index": place, "item_id": item["id"],
                     "delta": item["arguments"]})  # fmt: skip
        if ended:
            told.append({"type": "response.output_item.done", "output_index": place, "item": item})
    told.append({"type": f"response.{status}", "response": response(status, *(items if ended else ()))})
    numbered = [event | {"sequence_number": number} for number, event in enumerate(told)]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered]


def send(proxy: Proxy, path: str, body: Any = None, *, session: str = "s", method: str = "POST", **more: str) -> Answer:
    sent = b"" if body is None else json.dumps(body).encode()
    return proxy.client.send(method, f"/s/{session}/r/r1{path}", chat_headers(more), sent)


# --- answers that failed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("streamed", [False, True])
def test_answer_that_failed_is_given_without_the_calls_that_policies_hold(
    proxy: Proxy, upstream: Upstream, status: str, streamed: bool
) -> None:
    items = (CALL, HARMLESS)
    upstream.script = lambda seen: stream(*events(status, *items)) if streamed else plain(body_of(status, *items))
    answer = send(proxy, "/v1/responses", QUESTION | {"stream": streamed})
    assert answer.status == 200 and answer.complete
    assert SECRET not in answer.body and b'"send_email"' not in answer.body
    assert b"bees" in answer.body and b"was refused" in answer.body
    last = json.loads(answer.body.rstrip().rpartition(b"data: ")[2])
    assert last.get("response", last)["status"] == status
    assert not streamed or answer.body.startswith(b"".join(events(status)[:2]))
    assert pending(proxy, 0) == []
    assert send(proxy, "/v1/responses", QUESTION | {"stream": streamed}).outcome != "replay"
    assert upstream.calls == 2


def test_stream_that_failed_amid_a_held_call_ends_with_an_error_in_its_place(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: stream(*events("failed", CALL, ended=False))
    answer = send(proxy, "/v1/responses", QUESTION | {"stream": True})
    assert b"Well. " in answer.body and b"response.failed" in answer.body and b"out of order" in answer.body
    assert SECRET not in answer.body


def test_failed_answer_with_harmless_calls_keeps_its_bytes(proxy: Proxy, upstream: Upstream) -> None:
    upstream.script = lambda seen: plain(body_of("failed", HARMLESS))
    assert send(proxy, "/v1/responses", QUESTION).body == body_of("failed", HARMLESS)
