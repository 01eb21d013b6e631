"""Bad requests are refused before they cost anything; bad answers are clear errors and are never replayed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Answer, Client, chat_headers, chat_path
from tests.support.proxy import Proxy
from tests.support.upstream import BOUND_S, Fin, Gate, Hang, Reply, Rst, Step, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


def refused(answer: Answer, status: int = 400) -> dict[str, Any]:
    """The error of a request that the proxy itself refused for good."""
    error = answer.error
    assert answer.status == status, (answer.status, error)
    assert answer.headers.get("content-type", "").startswith("application/json")
    assert answer.headers.get("x-should-retry") == "false"
    assert error["type"] == "invalid_request_error"
    assert isinstance(error["code"], str)
    assert len(error["message"]) > 10
    assert "Traceback" not in error["message"]
    return error


def temporary(answer: Answer) -> dict[str, Any]:
    """The error of a fault that may pass, told before any byte of an answer was out."""
    error = answer.error
    assert answer.status == 503, (answer.status, error)
    assert 0 < float(answer.headers.get("retry-after") or 0) <= 60
    assert answer.headers.get("x-should-retry") != "false"
    assert len(error["message"]) > 10
    return error


def failed(answer: Answer) -> dict[str, Any]:
    """The error of an answer that was no answer: a 503, or the error event of a stream that had begun."""
    if answer.status == 503:
        return temporary(answer)
    assert answer.status == 200
    assert answer.complete, "the stream was cut instead of ended with an error event"
    assert b"finish_reason" not in answer.body.replace(b'"finish_reason": null', b"")
    return answer.stream_error


# --- requests -------------------------------------------------------------------------------------------------------

BAD_JSON = {
    "empty": b"",
    "cut": b'{"model": "m", "messages": [',
    "trailing": b'{"model": "m", "messages": []} x',
    "single quotes": b"{'model': 'm'}",
    "not a number": b'{"model": "m", "messages": [], "temperature": NaN}',
    "not utf-8": b'{"model": "m", "messages": [{"role": "user", "content": "\xff\xfe"}]}',
    "control character": b'{"model": "m", "messages": [{"role": "user", "content": "a\nb"}]}',
    "list": b"[]",
    "text": b'"hello"',
    "null": b"null",
    "number": b"12",
    "open brackets": b"[" * 100_000,
    "xml": b"<request/>",
}


@pytest.mark.parametrize("place", ["session", "header"])
@pytest.mark.parametrize("name", BAD_JSON)
def test_malformed_json_is_refused_and_never_sent(
    upstream: Upstream, client: Client, session: str, name: str, place: str
) -> None:
    headers = chat_headers({"x-agent-session-id": session} if place == "header" else {})
    target = chat_path(session if place == "session" else None)
    refused(client.send("POST", target, headers, BAD_JSON[name]))
    assert upstream.calls == 0
    assert client.ask(session, "hi").step == 0, "the refused request took a step"


def test_a_model_with_half_a_character_in_its_name_is_refused(upstream: Upstream, client: Client, session: str) -> None:
    for name, status in ((rb"gpt-\ud800", 400), (rb"gpt-\u00e9", 200)):
        body = b'{"model": "%s", "messages": [{"role": "user", "content": "hi"}]}' % name
        assert client.send("POST", chat_path(session), chat_headers(), body).status == status
    assert upstream.calls == 1


def test_without_a_session_the_provider_judges_the_body(upstream: Upstream, client: Client) -> None:
    upstream.script = lambda seen: plain(b'{"error": {"message": "as the provider says it"}}', 400)
    answer = client.send("POST", "/v1/chat/completions", chat_headers(), BAD_JSON["cut"])
    assert (answer.status, answer.body) == (400, b'{"error": {"message": "as the provider says it"}}')
    assert upstream.requests[0].body == BAD_JSON["cut"]


def test_json_nested_very_deep_does_not_bring_the_proxy_down(upstream: Upstream, client: Client, session: str) -> None:
    body = b'{"model": "m", "messages": [], "x": ' + b"[" * 60_000 + b"]" * 60_000 + b"}"
    refused(client.send("POST", chat_path(session), chat_headers(), body))
    assert upstream.calls == 0
    assert client.ask(session, "hi").status == 200


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800 alone"',
        "1e999",
        "-0.0",
        "123456789012345678901234567890",
        '"\\u0000"',
        '{"a": 1, "a": 2}',
        "[[[[[[]]]]]]",
    ],
)
@pytest.mark.parametrize("place", ["content", "field"])
def test_odd_but_valid_json_is_sent_as_it_is_and_replayed(
    upstream: Upstream, client: Client, session: str, text: str, place: str
) -> None:
    said, more = (text, "1") if place == "content" else ('"hi"', text)
    body = b'{"model":"m","messages":[{"role":"user","content":%s}],"x":%s}' % (said.encode(), more.encode())
    first, again = (client.ask(session, body, run=run) for run in "ab")
    assert (first.status, first.outcome, again.outcome) == (200, "live", "replay")
    assert [seen.body for seen in upstream.requests] == [body]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/x-www-form-urlencoded", b"model=m&messages=hi"),
        ("application/xml", b"<model>m</model>"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\nhi\r\n--x--"),
        ("text/plain", b"hello"),
        (None, b"hello"),
    ],
)
def test_body_that_is_no_json_is_refused_whatever_its_type_says(
    upstream: Upstream, client: Client, session: str, content_type: str | None, body: bytes
) -> None:
    headers = chat_headers()
    del headers["Content-Type"]
    if content_type is not None:
        headers["Content-Type"] = content_type
    refused(client.send("POST", chat_path(session), headers, body))
    assert upstream.calls == 0


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_json_under_a_wrong_content_type_is_refused(
    upstream: Upstream, client: Client, session: str, content_type: str
) -> None:
    headers = chat_headers({"Content-Type": content_type})
    error = refused(client.send("POST", chat_path(session), headers, chat.request("hi")))
    assert "content-type" in error["message"].lower()
    assert upstream.calls == 0


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON", None])
def test_usual_spellings_of_the_content_type_are_taken(
    upstream: Upstream, client: Client, session: str, content_type: str | None
) -> None:
    headers = chat_headers()
    del headers["Content-Type"]
    if content_type is not None:
        headers["Content-Type"] = content_type
    assert client.send("POST", chat_path(session), headers, chat.request("hi")).status == 200
    assert upstream.calls == 1


@pytest.mark.parametrize(
    "target",
    [
        "/s//v1/chat/completions",
        "/s/a%00b/v1/chat/completions",
        "/s/a%0Ab/v1/chat/completions",
        "/s/a%1Bb/v1/chat/completions",
        "/s/a%7Fb/v1/chat/completions",
        "/s/a%C2%85b/v1/chat/completions",
        "/s/%FF%FE/v1/chat/completions",
        f"/s/{'x' * 257}/v1/chat/completions",
        "/s/../v1/chat/completions",
        "/s/%2E/v1/chat/completions",
        "/s/ok/r//v1/chat/completions",
        "/s/ok/r/a%00b/v1/chat/completions",
        f"/s/ok/r/{'x' * 257}/v1/chat/completions",
    ],
)
def test_impossible_ids_in_the_path_are_refused(upstream: Upstream, client: Client, target: str) -> None:
    refused(client.send("POST", target, chat_headers(), chat.request("hi")))
    assert upstream.calls == 0


IMPOSSIBLE = (".", "..", "x" * 257, "a\tb", "a\xc2\x85b", "a\x9fb")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("x-agent-session-id", value) for value in ("", "   ", *IMPOSSIBLE)),
        *(("x-agent-run-id", value) for value in IMPOSSIBLE),  # an empty one is none
    ],
)
def test_impossible_ids_in_a_header_are_refused(
    upstream: Upstream, client: Client, session: str, field: str, value: str
) -> None:
    headers = {"x-agent-session-id": session, "x-agent-run-id": "a", field: value}
    error = refused(client.send("POST", "/v1/chat/completions", chat_headers(headers), chat.request("hi")))
    assert field in error["message"] or "session" in error["message"] or "run" in error["message"]
    assert upstream.calls == 0


def test_longest_id_is_taken(upstream: Upstream, client: Client) -> None:
    name = "y" * 256
    assert client.ask(name, "hi", run=name).status == 200
    assert client.ask(name, "hi", run="b").outcome == "replay"


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "1e3", "0x1", "NaN", "1 2", "9" * 40])
def test_step_header_that_is_no_number_is_refused(upstream: Upstream, client: Client, session: str, value: str) -> None:
    error = refused(client.ask(session, "hi", headers={"x-agent-step-number": value}))
    assert "x-agent-step-number" in error["message"]
    assert upstream.calls == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("x-agent-replay", "sometimes"), ("x-agent-drain", "maybe"), ("x-agent-first-prompt", "perhaps")],
)
def test_header_with_an_unknown_word_is_refused(
    upstream: Upstream, client: Client, session: str, field: str, value: str
) -> None:
    error = refused(client.ask(session, "hi", headers={field: value}))
    assert field in error["message"]
    assert upstream.calls == 0


def test_request_that_is_no_http_ends_that_connection_only(upstream: Upstream, client: Client, session: str) -> None:
    with client.connect() as connection:
        connection.send(b"\x16\x03\x01\x02\x00\x01\x00nonsense\r\n\r\n")
        try:
            assert connection.answer().status == 400
        except ConnectionError:
            assert connection.wait_closed()
    assert client.ask(session, "hi").status == 200
    assert upstream.calls == 1


def test_half_a_request_costs_nothing(upstream: Upstream, client: Client, session: str) -> None:
    body = chat.request("hi")
    with client.connect() as connection:
        headers = chat_headers({"Content-Length": str(len(body))})
        connection.request("POST", chat_path(session), headers, b"")
        connection.send(body[:-1])
    assert client.ask(session, "hi").step == 0
    assert upstream.calls == 1


# --- the provider is not there, or says nothing ----------------------------------------------------------------------


def test_provider_that_is_down_is_a_clear_temporary_error(
    tmp_path_factory: pytest.TempPathFactory, session: str
) -> None:
    with socket.socket() as reserved:  # bound but not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        with Proxy(tmp_path_factory.mktemp("down"), url) as proxy:
            for place in (session, None):
                for streamed in (False, True):
                    error = temporary(proxy.client.ask(place, "hi", stream=streamed))
                    assert error["code"] == "upstream_unreachable"
            assert "Traceback" not in proxy.log
            states = [step["state"] for step in proxy.control.steps(session)]
            assert "completed" not in states


@pytest.fixture(scope="module")
def hasty(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy that waits for nothing long."""
    settings = {"upstream.first_byte_timeout_s": 0.3, "upstream.idle_timeout_s": 0.3}
    with Proxy(tmp_path_factory.mktemp("hasty"), shared_upstream.url, settings=settings) as running:
        yield running
        assert "Traceback" not in running.log


SILENCES: dict[str, Reply] = {
    "before the head": [Hang()],
    "after the head": [*stream(finish=False), Hang()],
    "within a stream": [*stream(*chat.chunks("one two")[:2], finish=False), Hang()],
    "before the last event": [*stream(*chat.chunks("one two")[:-2], finish=False), Hang()],
    "within a plain answer": [*plain(chat.completion()[:40], length=len(chat.completion())), Hang()],
}


@pytest.mark.parametrize("place", ["session", "none"])
@pytest.mark.parametrize("name", SILENCES)
def test_provider_that_falls_silent_is_a_timeout_and_the_next_ask_goes_on(
    upstream: Upstream, hasty: Proxy, session: str, name: str, place: str
) -> None:
    streamed = "plain" not in name
    upstream.replies(SILENCES[name])
    where = session if place == "session" else None
    bad = hasty.client.ask(where, "hi", run="a" if where else None, stream=streamed)
    if where is None and bad.status == 200:
        assert not bad.complete, "a relayed answer that breaks off must not look like a whole one"
    else:
        assert failed(bad)["code"] == "upstream_timeout"
    again = hasty.client.ask(where, "hi", run="a" if where else None, stream=streamed)
    assert (again.status, again.complete) == (200, True)
    assert chat.text_of(again.body) == "sample 1"
    assert upstream.calls == 2


# --- the provider's answer is cut ------------------------------------------------------------------------------------

EVENTS = [
    b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    chat.DONE,
]
WHOLE = b"".join(EVENTS)
FINISH_AT = WHOLE.index(b'"stop"') + len(b'"stop"')


def cut_reply(size: int, ending: str) -> list[Step]:
    """The small stream, cut after ``size`` bytes."""
    head = WHOLE[:size]
    if ending == "closed":
        return stream(head, Fin(), finish=False)
    if ending == "reset":
        return stream(head, Rst(), finish=False)
    if ending == "ended":
        return stream(head)
    return stream(head + b"\n\n" + chat.DONE)


def assert_never_replayed(upstream: Upstream, client: Client, session: str, reply: Reply, *, stream: bool) -> Answer:
    """The reply is an error; the same ask again is live, of the same step; and later runs get only the good answer."""
    upstream.reset()
    upstream.replies(reply)
    bad = client.ask(session, "hi", run="a", stream=stream)
    failed(bad)
    good = client.ask(session, "hi", run="a", stream=stream)
    assert (good.status, good.complete, good.outcome) == (200, True, "live"), good
    assert chat.text_of(good.body) == "sample 1"
    assert upstream.calls == 2
    later = client.ask(session, "hi", run="b", stream=stream)
    assert (later.outcome, later.body) == ("replay", good.body)
    assert upstream.calls == 2
    return bad


@pytest.mark.parametrize("ending", ["closed", "reset", "ended", "done"])
def test_stream_cut_at_any_byte_is_an_error_and_never_replayed(
    upstream: Upstream, client: Client, session: str, ending: str
) -> None:
    faults = []
    for size in range(FINISH_AT):
        try:
            assert_never_replayed(upstream, client, f"{session}-{size}", cut_reply(size, ending), stream=True)
        except AssertionError as fault:
            faults.append((size, str(fault)[:300]))
    assert not faults, f"{len(faults)} of {FINISH_AT} positions, the first: {faults[:3]}"


def test_stream_that_is_finished_but_lacks_done_is_an_answer(upstream: Upstream, client: Client, session: str) -> None:
    upstream.replies(stream(*EVENTS[:-1]))
    first = client.ask(session, "hi", run="a", stream=True)
    assert (first.status, first.complete, first.body) == (200, True, b"".join(EVENTS[:-1]))
    again = client.ask(session, "hi", run="b", stream=True)
    assert (again.outcome, again.body) == ("replay", first.body)


@pytest.mark.parametrize("ending", ["closed", "reset", "ended"])
def test_plain_answer_cut_at_any_byte_is_an_error_and_never_replayed(
    upstream: Upstream, client: Client, session: str, ending: str
) -> None:
    whole = b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'
    faults = []
    for size in range(len(whole)):
        end = {"closed": [Fin()], "reset": [Rst()], "ended": []}[ending]
        length = None if ending == "ended" else len(whole)
        reply = [*plain(whole[:size], length=length), *end]
        try:
            assert_never_replayed(upstream, client, f"{session}-{size}", reply, stream=False)
        except AssertionError as fault:
            faults.append((size, str(fault)[:300]))
    assert not faults, f"{len(faults)} of {len(whole)} positions, the first: {faults[:3]}"


def test_cut_answer_without_a_session_is_told_as_an_error(upstream: Upstream, client: Client) -> None:
    for size in (0, 1, 40, FINISH_AT - 1):
        upstream.replies(cut_reply(size, "closed"))
        answer = client.ask(None, "hi", stream=True)
        assert answer.status == 503 or not answer.complete or answer.stream_error


# --- the provider's answer is none -----------------------------------------------------------------------------------

HTML = b"<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>"
UNFINISHED = [chat.chunk({"role": "assistant"}), chat.chunk({"content": "a"})]
BAD_PLAIN: dict[str, list[Step]] = {
    "html": plain(HTML, content_type="text/html"),
    "html called json": plain(HTML),
    "empty": plain(b""),
    "blank": plain(b"  \n "),
    "text": plain(b"ok", content_type="text/plain"),
    "list": plain(b"[]"),
    "no choices": plain(b"{}"),
    "empty choices": plain(b'{"choices": []}'),
    "null choices": plain(b'{"choices": null}'),
    "no finish reason": plain(b'{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": null}]}'),
    "one of two finished": plain(
        b'{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},'
        b' {"index": 1, "message": {"content": "b"}}]}'
    ),
    "error under 200": plain(b'{"error": {"message": "overloaded", "type": "server_error"}}'),
    "unreadable arguments": plain(chat.completion(None, tool_calls=[chat.tool_call("f", '{"a": ')])),
    "two documents": plain(chat.completion() + chat.completion()),
    "too short a length": plain(chat.completion(), length=60),
    "too long a length": [*plain(chat.completion(), length=len(chat.completion()) + 9), Fin()],
    "no http": [b"SSH-2.0-OpenSSH_9.6\r\n", Fin()],
    "closed at once": [Fin()],
    "reset at once": [Rst()],
    "broken gzip": plain(b"not gzip", headers=[("content-encoding", "gzip")]),
    "broken chunks": [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", Fin()],
}
BAD_STREAM: dict[str, list[Step]] = {
    "html": plain(HTML, content_type="text/html"),
    "html called sse": stream(HTML),
    "empty": stream(),
    "only done": stream(chat.DONE),
    "only comments": stream(b": a\n\n", b": b\n\n"),
    "broken json": stream(*UNFINISHED, b'data: {"choices": [\n\n', chat.DONE),
    "json that is no object": stream(*UNFINISHED, b"data: 12\n\n", chat.DONE),
    "bytes": stream(b"\x00\xff\xfe\x01" * 20),
    "field nobody knows": stream(b"nonsense: 1\n\n", chat.DONE),
    "error event": stream(
        *UNFINISHED, b'event: error\ndata: {"error": {"message": "boom", "type": "server_error"}}\n\n'
    ),
    "error data": stream(*UNFINISHED, b'data: {"error": {"message": "boom"}}\n\n', chat.DONE),
    "unreadable arguments": stream(*chat.chunks("", tool_calls=[chat.tool_call("f", '{"a": ')])),
    "one of two finished": stream(
        chat.chunk({"content": "a"}),
        chat.chunk({"content": "b"}, index=1),
        chat.chunk({}, finish="stop"),
        chat.DONE,
    ),
    "broken gzip": stream(b"not gzip", headers=[("content-encoding", "gzip")]),
    "closed at once": [Fin()],
}


@pytest.mark.parametrize("name", BAD_PLAIN)
def test_plain_answer_that_is_none_is_an_error_and_never_replayed(
    upstream: Upstream, client: Client, session: str, name: str
) -> None:
    bad = assert_never_replayed(upstream, client, session, BAD_PLAIN[name], stream=False)
    assert bad.status == 503
    assert temporary(bad)["code"].startswith("upstream_")


@pytest.mark.parametrize("name", BAD_STREAM)
def test_streamed_answer_that_is_none_is_an_error_and_never_replayed(
    upstream: Upstream, client: Client, session: str, name: str
) -> None:
    reply = BAD_STREAM[name]
    if name.startswith("error"):
        upstream.replies(reply)
        told = client.ask(f"{session}-told", "hi", stream=True)
        assert "boom" in (told.stream_error if told.status == 200 else told.error)["message"]
    assert_never_replayed(upstream, client, session, reply, stream=True)


def test_page_of_a_gateway_with_an_error_status_is_not_replayed(
    upstream: Upstream, client: Client, session: str
) -> None:
    upstream.replies(plain(HTML, 502, content_type="text/html"))
    bad = client.ask(session, "hi", run="a")
    assert bad.status in (502, 503)
    assert client.ask(session, "hi", run="a").status == 200
    assert upstream.calls == 2


@pytest.mark.parametrize("when", ["together", "later"])
def test_what_a_provider_sends_unasked_is_never_taken_for_the_next_answer(
    upstream: Upstream, client: Client, session: str, when: str
) -> None:
    whole, unasked = plain(chat.completion("first")), plain(chat.completion("sent unasked"))
    for number in range(5):
        gate = Gate()
        upstream.reset()
        upstream.replies([b"".join(as_bytes([*whole, *unasked]))] if when == "together" else [*whole, gate, *unasked])
        assert chat.text_of(client.ask(session, f"one {number}").body) == "first"
        gate.open()
        assert upstream.requests[0].answered.wait(BOUND_S)
        assert chat.text_of(client.ask(session, f"two {number}").body) == "sample 1"
        assert upstream.calls == 2


def as_bytes(steps: Reply) -> list[bytes]:
    """The steps of a reply that is nothing but bytes."""
    return [step for step in steps if isinstance(step, bytes)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429, 500, 503, 529])
def test_error_of_the_provider_arrives_as_it_is(upstream: Upstream, client: Client, session: str, status: int) -> None:
    body = json.dumps({"error": {"message": "as is", "type": "t", "param": None, "code": "c"}}, indent=2).encode()
    upstream.replies(plain(body, status, headers=[("retry-after", "7"), ("x-should-retry", "true")]))
    answer = client.ask(session, "hi", stream=True)
    assert (answer.status, answer.body) == (status, body)
    assert answer.headers.get("retry-after") == "7"
    assert answer.headers.get("x-should-retry") == "true"
    assert upstream.calls == 1
