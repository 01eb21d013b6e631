"""What passes through the proxy passes unchanged: bodies byte for byte, addresses as spelled, credentials unkept."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import TEST_KEY, Client, chat_headers, chat_path
from tests.support.proxy import Proxy
from tests.support.upstream import BOUND_S, Gate, Hang, Seen, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
OURS = re.compile(r"^x-agent(state)?-")


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


# --- bodies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["session", "none"])
def test_plain_answer_arrives_byte_for_byte(upstream: Upstream, client: Client, session: str, place: str) -> None:
    body = b'\n\n  {"choices":[{"message":{"content":"\\u00e9 \xc3\xa9","role":"assistant"  },"index":0,'
    body += b'"finish_reason":"stop"}],\r\n"odd" : 1.10, "odd": 2e1}  \n'
    upstream.replies(plain(body))
    answer = client.ask(session if place == "session" else None, "hi")
    assert (answer.status, answer.body, answer.complete) == (200, body, True)
    assert upstream.calls == 1


@pytest.mark.parametrize("place", ["session", "none"])
def test_stream_arrives_byte_for_byte(upstream: Upstream, client: Client, session: str, place: str) -> None:
    events = chat.chunks("one two three")
    pieces = [b": keep-alive\n\n", b"\n", events[0], b": OTHER COMMENT\r\n\r\n", *events[1:]]
    upstream.replies(stream(*pieces))
    answer = client.ask(session if place == "session" else None, "hi", stream=True)
    assert (answer.status, answer.body, answer.complete) == (200, b"".join(pieces), True)
    assert answer.headers.get("content-type") == "text/event-stream; charset=utf-8"


def test_stream_that_ends_with_the_connection_arrives_whole(upstream: Upstream, client: Client, session: str) -> None:
    events = chat.chunks("one two")
    upstream.replies(stream(*events, chunked=False))
    answer = client.ask(session, "hi", stream=True)
    assert (answer.body, answer.complete) == (b"".join(events), True)


def test_large_answer_arrives_whole_and_replays_whole(upstream: Upstream, client: Client, session: str) -> None:
    body = chat.completion("x" * 5_000_000)
    upstream.replies(plain(body))
    assert client.ask(session, "hi", run="a").body == body
    assert client.ask(session, "hi", run="b").body == body
    assert upstream.calls == 1


def test_request_body_reaches_the_provider_byte_for_byte(upstream: Upstream, client: Client, session: str) -> None:
    body = b' {"model" : "m","messages":[{"role":"user","content":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}],\n "zz":1.0}\n'
    assert client.ask(session, body).status == 200
    assert client.ask(None, body).status == 200
    assert [seen.body for seen in upstream.requests] == [body, body]
    assert all(seen.headers.all("content-length") == [str(len(body))] for seen in upstream.requests)


def test_chunked_request_reaches_the_provider_whole(upstream: Upstream, client: Client, session: str) -> None:
    body = chat.request("hi")
    pieces = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in (body[:1], body[1:9], body[9:]))
    head = chat_headers({"Transfer-Encoding": "chunked"})
    answer = client.send("POST", chat_path(session), head, pieces + b"0\r\nTrailer: x\r\n\r\n")
    assert answer.status == 200
    assert upstream.requests[0].body == body


def test_client_that_waits_for_a_go_ahead_gets_it(upstream: Upstream, client: Client, session: str) -> None:
    body = chat.request("hi")
    with client.connect() as connection:
        head = chat_headers({"Expect": "100-continue", "Content-Length": str(len(body))})
        connection.request("POST", chat_path(session), head)
        assert connection.read_interim() == 100
        connection.send(body)
        assert connection.answer().status == 200
    assert upstream.requests[0].body == body


def test_several_requests_on_one_connection_are_answered_in_turn(
    upstream: Upstream, client: Client, session: str
) -> None:
    with client.connect() as connection:
        texts = [chat.text_of(client.ask(session, f"q{at}", stream=at % 2 == 1, on=connection).body) for at in range(4)]
    assert texts == [f"sample {at}" for at in range(4)]


@pytest.mark.parametrize("accepts", ["gzip, deflate", "identity", None])
@pytest.mark.parametrize("streamed", [False, True])
def test_packed_answer_is_right_for_the_client(
    upstream: Upstream, client: Client, session: str, accepts: str | None, streamed: bool
) -> None:
    body = b"".join(chat.chunks("one two")) if streamed else chat.completion("one two")
    packed = [("content-encoding", "gzip")]
    upstream.script = lambda seen: (
        stream(gzip.compress(body), headers=packed) if streamed else plain(gzip.compress(body), headers=packed)
    )
    headers = {"Accept-Encoding": accepts} if accepts else {}
    for run in ("a", "b"):
        answer = client.ask(session, "hi", run=run, stream=streamed, headers=headers)
        encoding = answer.headers.get("content-encoding", "identity")
        assert encoding == "identity" or encoding in (accepts or ""), "an encoding that the client did not ask for"
        assert (gzip.decompress(answer.body) if encoding == "gzip" else answer.body) == body
    assert upstream.calls == 1


# --- what is released when ------------------------------------------------------------------------------------------


def test_text_of_a_stream_is_released_while_the_provider_still_speaks(
    upstream: Upstream, client: Client, session: str
) -> None:
    gate = Gate()
    role, first, *rest = chat.chunks("one two")
    upstream.replies(stream(role, first, gate, *rest))
    with client.start(session, "hi", stream=True) as connection:
        status, headers = connection.read_head()
        assert status == 200
        assert headers.get("x-agentstate-outcome") == "live"
        assert connection.read_until(b'"one"') == role + first
        gate.open()
        assert connection.read_body() == (b"".join([role, first, *rest]), True)


def test_tool_call_of_a_stream_is_held_back_until_the_answer_is_whole(
    upstream: Upstream, client: Client, session: str
) -> None:
    gate = Gate()
    events = chat.chunks("let me", tool_calls=[chat.tool_call("rm", '{"path": "/x"}')])
    at = next(place for place, event in enumerate(events) if b'finish_reason": "tool_calls' in event)
    upstream.replies(stream(*events[:at], gate, *events[at:]))
    with client.start(session, "hi", stream=True) as connection:
        connection.read_head()
        connection.read_until(b'" me"')
        gate.wait_reached()
        assert connection.silent(0.1)
        assert b"tool_calls" not in connection.received()
        gate.open()
        assert connection.read_body() == (b"".join(events), True)


def test_finish_of_a_stream_is_held_back_until_the_answer_is_whole(
    upstream: Upstream, client: Client, session: str
) -> None:
    gate = Gate()
    events = chat.chunks("one two")
    at = next(place for place, event in enumerate(events) if b'"finish_reason": "stop"' in event)
    upstream.replies(stream(*events[: at + 1], gate, *events[at + 1 :]))
    with client.start(session, "hi", stream=True) as connection:
        connection.read_head()
        connection.read_until(b'" two"')
        gate.wait_reached()
        assert connection.silent(0.1)
        assert b'"stop"' not in connection.received()
        gate.open()
        assert connection.read_body() == (b"".join(events), True)


# --- header fields --------------------------------------------------------------------------------------------------


def test_hop_by_hop_fields_and_ours_never_reach_the_provider(upstream: Upstream, client: Client, session: str) -> None:
    sent = {
        "Connection": "keep-alive, X-Hop-Secret",
        "Keep-Alive": "timeout=5",
        "X-Hop-Secret": "1",
        "TE": "trailers",
        "Proxy-Authorization": "Basic abc",
        "Proxy-Connection": "keep-alive",
        "x-agent-session-id": session,
        "x-agent-run-id": "a",
        "x-agent-step-number": "0",
        "x-agent-replay": "auto",
        "x-agent-first-prompt": "unique",
        "x-agent-drain": "on",
        "X-AgentState-Anything": "1",
        "x-agent-anything": "1",
    }
    assert client.send("POST", "/v1/chat/completions", chat_headers(sent), chat.request("hi")).status == 200
    seen = upstream.requests[0]
    names = seen.headers.names()
    assert not [name for name in names if OURS.match(name)]
    forbidden = {"keep-alive", "x-hop-secret", "te", "proxy-authorization", "proxy-connection", "transfer-encoding"}
    assert not forbidden & set(names)
    assert "x-hop-secret" not in (seen.headers.get("connection") or "").lower()
    assert seen.headers.all("host") == [f"127.0.0.1:{upstream.port}"]
    assert len(names) == len(set(names)), f"fields were doubled: {names}"


@pytest.mark.parametrize("place", ["session", "none"])
def test_other_request_fields_reach_the_provider_as_sent(
    upstream: Upstream, client: Client, session: str, place: str
) -> None:
    sent = {
        "User-Agent": "OpenAI/Python 3.57.0",
        "Accept": "application/json",
        "OpenAI-Organization": "org-test",
        "OpenAI-Beta": "assistants=v2",
        "x-stainless-retry-count": "0",
        "x-stainless-read-timeout": "600",
        "Idempotency-Key": "k-1",
        "X-Custom": "caf\xc3\xa9",  # UTF-8, seen as Latin-1 by this client
    }
    client.ask(session if place == "session" else None, "hi", headers=sent)
    headers = upstream.requests[0].headers
    assert {name: headers.get(name) for name in sent} == sent
    assert headers.get("authorization") == f"Bearer {TEST_KEY}"
    assert headers.get("content-type") == "application/json"


@pytest.mark.parametrize("streamed", [False, True])
def test_answer_fields_arrive_less_the_hop_by_hop_ones(
    upstream: Upstream, client: Client, session: str, streamed: bool
) -> None:
    fields = [
        ("x-request-id", "req_1"),
        ("openai-processing-ms", "12"),
        ("x-ratelimit-remaining-tokens", "9"),
        ("set-cookie", "a=1; path=/"),
        ("set-cookie", "b=2"),
        ("keep-alive", "timeout=99"),
        ("connection", "X-Hop, keep-alive"),
        ("x-hop", "1"),
        ("x-agentstate-outcome", "replay"),
        ("x-agentstate-made-up", "1"),
    ]
    upstream.replies(stream(*chat.chunks(), headers=fields) if streamed else plain(chat.completion(), headers=fields))
    answer = client.ask(session, "hi", stream=streamed)
    assert answer.headers.get("x-request-id") == "req_1"
    assert answer.headers.get("openai-processing-ms") == "12"
    assert answer.headers.get("x-ratelimit-remaining-tokens") == "9"
    assert answer.headers.all("set-cookie") == ["a=1; path=/", "b=2"]
    assert not {"x-hop", "x-agentstate-made-up"} & set(answer.headers.names())
    assert answer.headers.get("keep-alive") != "timeout=99"
    assert answer.headers.all("x-agentstate-outcome") == ["live"]
    assert len(answer.headers.all("content-length") + answer.headers.all("transfer-encoding")) == 1
    assert len(answer.headers.all("date")) <= 1


def test_every_answer_of_a_session_says_why(upstream: Upstream, client: Client, session: str) -> None:
    live = client.ask(session, "hi", run="a")
    again = client.ask(session, "hi", run="b")
    assert (live.outcome, live.hit, live.step, live.run) == ("live", False, 0, "a")
    assert (again.outcome, again.hit, again.step, again.run) == ("replay", True, 0, "b")
    assert live.headers.get("x-agentstate-model") == again.headers.get("x-agentstate-model") == chat.MODEL


def test_credentials_pass_through_and_are_kept_nowhere(upstream: Upstream, proxy: Proxy, session: str) -> None:
    secrets = {
        "Authorization": "Bearer sk-test-bearer-5f1c2a",
        "api-key": "sk-test-azure-77ab31",
        "x-api-key": "sk-test-anthropic-90cc12",
        "x-goog-api-key": "sk-test-goog-41dd55",
        "Cookie": "token=sk-test-cookie-63ee77",
        "Proxy-Authorization": "Basic sk-test-proxy-15aa00",
    }
    query = "?key=sk-test-query-28bb99&alt=json"
    target = chat_path(session) + query
    for streamed in (False, True):
        body = chat.request(f"hi {streamed}", stream=streamed)
        assert proxy.client.send("POST", target, chat_headers(secrets), body).status == 200
    upstream.replies(plain(b'{"error": {"message": "no", "type": "x", "param": null, "code": null}}', 401))
    assert proxy.client.send("POST", target, chat_headers(secrets), chat.request("refused")).status == 401
    seen = upstream.requests[0]
    assert seen.headers.get("authorization") == secrets["Authorization"]
    assert seen.headers.get("api-key") == secrets["api-key"]
    assert seen.target == "/v1/chat/completions" + query
    shown = json.dumps(proxy.control.session(session)).encode()
    kept = {"journal": proxy.stored_bytes(), "log": proxy.log.encode(), "API": shown}
    values = [*(value.split(" ")[-1].removeprefix("token=") for value in secrets.values()), "sk-test-query-28bb99"]
    assert [(where, value) for where, data in kept.items() for value in values if value.encode() in data] == []
    assert session.encode() in kept["journal"], "the journal was not looked at"


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/x%3AgenerateContent?alt=sse&q=%20",
        "/v1/files/a%2Fb%20c/content?x=%2F&y=+&z",
        "/v1/models/gpt-4o%3Amini",
        "/v1/fine_tuning/jobs?limit=2&after=%E2%82%AC",
    ],
)
@pytest.mark.parametrize("place", ["session", "run", "header", "none"])
def test_unknown_paths_pass_with_their_spelling(
    upstream: Upstream, client: Client, session: str, path: str, place: str
) -> None:
    upstream.replies(plain(b"\x00\xffnot json", content_type="application/octet-stream"))
    prefix = {"session": f"/s/{session}", "run": f"/s/{session}/r/a"}.get(place, "")
    headers = {"x-agent-session-id": session} if place == "header" else {}
    answer = client.send("GET", prefix + path, chat_headers(headers))
    assert (answer.status, answer.body) == (200, b"\x00\xffnot json")
    assert answer.headers.get("content-type") == "application/octet-stream"
    seen = upstream.requests[0]
    assert (seen.method, seen.target, seen.body) == ("GET", path, b"")


@pytest.mark.parametrize("method", ["DELETE", "PUT", "PATCH", "POST"])
def test_other_methods_pass_with_their_bodies(upstream: Upstream, client: Client, session: str, method: str) -> None:
    upstream.replies(plain(b"{}", status=202))
    headers = chat_headers({"Content-Type": "multipart/form-data; boundary=x"})
    answer = client.send(method, f"/s/{session}/v1/files/f1", headers, b"--x\r\n\r\n\x00\x01\r\n--x--")
    assert answer.status == 202
    seen = upstream.requests[0]
    assert (seen.method, seen.target, seen.body) == (method, "/v1/files/f1", b"--x\r\n\r\n\x00\x01\r\n--x--")


def test_three_forms_of_address_name_the_same_session(upstream: Upstream, client: Client, session: str) -> None:
    body = chat.request("hi")
    by_header = {"x-agent-session-id": session, "x-agent-run-id": "a"}
    first = client.send("POST", "/v1/chat/completions", chat_headers(by_header), body)
    second = client.send("POST", f"/s/{session}/v1/chat/completions", chat_headers({"x-agent-run-id": "b"}), body)
    third = client.send("POST", f"/s/{session}/r/c/v1/chat/completions", chat_headers(), body)
    assert [answer.outcome for answer in (first, second, third)] == ["live", "replay", "replay"]
    assert [answer.run for answer in (first, second, third)] == ["a", "b", "c"]
    assert first.body == second.body == third.body
    assert [seen.target for seen in upstream.requests] == ["/v1/chat/completions"]


def test_session_id_is_the_same_spelled_in_the_path_and_in_a_header(upstream: Upstream, client: Client) -> None:
    body = chat.request("hi")
    in_path = client.send("POST", "/s/team%2Fjob%2042/r/a/v1/chat/completions", chat_headers(), body)
    named = {"x-agent-session-id": "team/job 42", "x-agent-run-id": "b"}
    in_header = client.send("POST", "/v1/chat/completions", chat_headers(named), body)
    assert (in_path.outcome, in_header.outcome) == ("live", "replay")
    assert upstream.calls == 1


@pytest.mark.parametrize("prefix", ["", "/v1", "/v1/v1"])
@pytest.mark.parametrize("place", ["session", "run", "header"])
def test_missing_and_doubled_version_are_tolerated(
    upstream: Upstream, client: Client, session: str, prefix: str, place: str
) -> None:
    base = {"session": f"/s/{session}", "run": f"/s/{session}/r/a"}.get(place, "")
    headers = {"x-agent-session-id": session} if place == "header" else {}
    answer = client.send("POST", f"{base}{prefix}/chat/completions", chat_headers(headers), chat.request("hi"))
    assert answer.status == 200
    assert upstream.requests[0].target == "/v1/chat/completions"


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("base", ["/s/{}", "/s/{}/", "/s/{}/v1", "/s/{}/r/a/v1"])
def test_base_of_a_session_answers_a_probe(
    upstream: Upstream, client: Client, session: str, method: str, base: str
) -> None:
    assert client.send(method, base.format(session), chat_headers()).status == 200
    assert upstream.calls == 0


@pytest.mark.parametrize("prefix", ["", "/s/{}", "/s/{}/r/a"])
def test_websocket_upgrade_is_refused_so_that_clients_fall_back(
    upstream: Upstream, client: Client, session: str, prefix: str
) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    answer = client.send("GET", prefix.format(session) + "/v1/responses", chat_headers(headers))
    assert answer.status == 426
    assert upstream.calls == 0
    assert client.ask(session, "hi").status == 200


# --- size -----------------------------------------------------------------------------------------------------------


def test_body_announced_beyond_64_mib_is_refused_before_it_is_sent(
    upstream: Upstream, client: Client, session: str
) -> None:
    with client.connect() as connection:
        connection.request("POST", chat_path(session), chat_headers({"Content-Length": str(64 * 2**20 + 1)}))
        answer = connection.answer()
    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"
    assert upstream.calls == 0


def test_chunked_body_beyond_the_limit_is_refused(tmp_path_factory: pytest.TempPathFactory, session: str) -> None:
    limit = 256 * 1024
    with (
        Upstream() as upstream,
        Proxy(tmp_path_factory.mktemp("small"), upstream.url, settings={"server.max_body_bytes": limit}) as small,
    ):
        within = chat.request("x" * (limit - 1000))
        head = chat_headers({"Transfer-Encoding": "chunked"})
        framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(within), within)
        assert small.client.send("POST", chat_path(session), head, framed).status == 200
        for place in (session, None):
            with small.client.connect() as connection:
                connection.request("POST", chat_path(place), head)
                for _ in range(5):
                    connection.send(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
                answer = connection.answer()
            assert answer.status == 413
            assert answer.error["code"] == "body_too_large"
        assert upstream.calls == 1


# --- no session -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/files", "/s/a/v1/files"])
def test_call_that_a_person_must_approve_and_cannot_is_never_sent(
    upstream: Upstream, client: Client, path: str
) -> None:
    headers = {**dict(chat_headers()), "x-agent-require-approval": "true"}
    answer = client.send("POST", path, headers, b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "approval_unavailable")
    assert ("x-should-retry", "false") in [(name.lower(), value) for name, value in answer.headers]
    assert upstream.calls == 0


def test_without_a_session_nothing_is_journaled_and_nothing_replayed(upstream: Upstream, proxy: Proxy) -> None:
    before = proxy.control.get("/api/sessions")
    answers = [proxy.client.ask(None, "the very same") for _ in range(2)]
    assert [chat.text_of(answer.body) for answer in answers] == ["sample 0", "sample 1"]
    assert proxy.control.get("/api/sessions") == before
    assert all(answer.hit is not True for answer in answers)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("streamed", [False, True])
def test_without_a_session_a_client_that_leaves_aborts_the_provider(
    upstream: Upstream, client: Client, how: str, streamed: bool
) -> None:
    role, first, *_ = chat.chunks("one two")
    upstream.replies(stream(role, first, Hang()) if streamed else [Hang()])
    connection = client.start(None, "hi", stream=streamed)
    seen: Seen = upstream.wait_calls(1)[0]
    if streamed:
        connection.read_head()
        connection.read_until(b'"one"')
    getattr(connection, how)()
    assert seen.aborted.wait(BOUND_S)


@pytest.mark.parametrize(
    ("variable", "base", "asked", "target"),
    [
        ("AGENTSTATE_OPENAI_URL", "/openai/v1", "/v1/chat/completions", "/openai/v1/chat/completions"),
        ("AGENTSTATE_OPENAI_URL", "/v1beta/openai", "/v1/models?x=%2F", "/v1beta/openai/models?x=%2F"),
        ("AGENTSTATE_ANTHROPIC_URL", "/anthropic", "/v1/messages?beta=true", "/anthropic/v1/messages?beta=true"),
    ],
)
def test_path_in_a_providers_address_is_kept(tmp_path: Path, variable: str, base: str, asked: str, target: str) -> None:
    with Upstream() as upstream:
        address = upstream.url.removesuffix("/v1") + base
        with Proxy(tmp_path, upstream.url, environment={variable: address}) as proxy:
            fields = {"content-type": "application/json"}
            for prefix in ("", "/s/one"):
                proxy.client.send("POST", prefix + asked, fields, b'{"model":"m","messages":[],"max_tokens":1}')
        assert [seen.target for seen in upstream.requests] == [target] * 2
