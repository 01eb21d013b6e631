"""MCP servers behind the proxy, scripted byte by byte: what passes, what is held, what is known, what is in doubt."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentstate.core import fingerprint, policy
from agentstate.core.approval import Decision, Vote
from agentstate.core.model import ApprovalKind, OnReject, Release, Shape, State, ToolCall, Verdict
from agentstate.dialects.registry import OPENAI_CHAT
from agentstate.store.journal import Journal
from agentstate.store.rows import Ending, Invoked, NewApproval, NewRunRow, NewStep, Released
from tests.support.client import Answer, Connection
from tests.support.doubt import effects_of, question, settle, until
from tests.support.people import decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Fin, Gate, Reply, Seen, Upstream, plain, stream

KEY = "io.agentstate/idempotency-key"
BOTH = "application/json, text/event-stream"
OK = {"content": [{"type": "text", "text": "done"}], "isError": False}
POLICIES = """
[[policies]]
tools = ["send_*"]
[[policies]]
tools = ["drop_*"]
action = "deny"
[[policies]]
tools = ["soon_*"]
expires_s = 0.3
[tools]
read = ["get_*"]
[[probes]]
tools = ["probed_*"]
url = "{url}/probe/{{key}}"
[[probes]]
tools = ["asked_*"]
tool = "find"
"""


def result(seen: Seen, value: Any = OK) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": seen.json().get("id"), "result": value}).encode()


def answers(seen: Seen) -> Reply:
    return plain(result(seen))


def first(server: Upstream, *replies: Reply) -> None:
    """These replies, one for each request, then the usual ones."""
    left = list(replies)
    server.script = lambda seen: left.pop(0) if left else answers(seen)


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("tools")
    file = folder / "agentstate.toml"
    root = server.url.removesuffix("/v1")
    file.write_text(POLICIES.format(url=root))
    environment = {"AGENTSTATE_CONFIG": str(file), "BANK_TOKEN": "Bearer sk-test-bank"}
    settings = {"mcp.bank.url": f"{root}/mcp?tenant=a", "mcp.bank.headers_env": "authorization=BANK_TOKEN",
                "mcp.gone.url": f"http://127.0.0.1:{free_port()}/mcp"}  # fmt: skip
    with Proxy(folder / "data", settings=settings, environment=environment) as running:
        yield running


@pytest.fixture(autouse=True)
def script(server: Upstream) -> None:
    server.reset(answers)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def body(tool: str, ident: Any = 1, meta: dict[str, Any] | None = None, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, **({"_meta": meta} if meta else {})}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "tools/call", "params": params}).encode()


def path(session: str | None, run: str = "a", name: str = "bank") -> str:
    return f"/s/{session}/r/{run}/mcp/{name}" if session is not None else f"/mcp/{name}"


def headers(**more: str) -> dict[str, str]:
    return {"content-type": "application/json", "accept": BOTH, **more}


def call(proxy: Proxy, session: str | None, tool: str, run: str = "a", name: str = "bank", **more: Any) -> Answer:
    return proxy.client.send("POST", path(session, run, name), headers(), body(tool, **more))


def start(proxy: Proxy, session: str, tool: str, run: str = "a", accept: str = BOTH, **more: Any) -> Connection:
    connection = proxy.client.connect()
    connection.request("POST", path(session, run), headers(accept=accept), body(tool, **more))
    return connection


def text(answer: Answer) -> str:
    return str(answer.json()["result"]["content"][0]["text"])


def events(raw: bytes) -> list[Any]:
    """The messages in a stream."""
    return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]


def end_of(answer: Answer) -> Any:
    """The answer itself, in whichever form it came: what was decided at once did not have to wait in a stream."""
    return answer.json() if answer.headers.get("content-type") == "application/json" else events(answer.body)[-1]


# --- what passes ---


@pytest.mark.parametrize(
    ("method", "content"),
    [
        ("POST", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}),
        ("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ("POST", {"jsonrpc": "2.0", "id": "sampling-1", "result": {"role": "assistant"}}),
        ("DELETE", None),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_everything_but_calls_reaches_the_server_as_it_is(
    proxy: Proxy, server: Upstream, session: str, method: str, content: Any, named: bool
) -> None:
    sent = b"" if content is None else json.dumps(content).encode()
    first(server, plain(b"x", 202, headers=[("mcp-session-id", "m1")]))
    answer = proxy.client.send(
        method, path(session if named else None), headers(**{"mcp-session-id": "m1", "cookie": "a=b"}), sent
    )
    [seen] = server.requests
    assert (answer.status, answer.body, answer.headers.get("mcp-session-id")) == (202, b"x", "m1")
    assert (seen.method, seen.target, seen.body) == (method, "/mcp?tenant=a", sent)
    assert (seen.headers.get("mcp-session-id"), seen.headers.get("authorization")) == ("m1", "Bearer sk-test-bank")
    assert "cookie" not in seen.headers and not any(name.startswith("x-agent") for name in seen.headers.names())


def test_a_stream_of_the_server_passes_as_it_comes_and_is_resumed_by_its_client(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    gate = Gate()
    first(server, stream(b": hi\n\n", gate, b"id: 7\ndata: {}\n\n"))
    with proxy.client.connect() as connection:
        connection.request("GET", path(session), {"accept": "text/event-stream", "last-event-id": "6"})
        assert connection.read_head()[0] == 200
        connection.read_until(b": hi\n\n")
        gate.open()
        assert connection.read_body() == (b": hi\n\nid: 7\ndata: {}\n\n", True)
    assert server.requests[0].headers.get("last-event-id") == "6"


@pytest.mark.parametrize(
    ("target", "status"), [("/mcp", 404), ("/mcp/nobody", 404), ("/mcp/bank/sse", 404), ("/mcp/bank/messages", 404)]
)
def test_an_address_that_is_no_server_is_nowhere_passed_on_to(
    proxy: Proxy, server: Upstream, session: str, target: str, status: int
) -> None:
    answer = proxy.client.send("POST", f"/s/{session}{target}", headers(), body("charge"))
    assert (answer.status, answer.json()["error"]["data"]["code"]) == (status, "not_found")
    assert server.calls == 0


@pytest.mark.parametrize(
    "more",
    [
        {"content-encoding": "gzip"},
        {"content-type": "application/json; charset=utf-7"},
        {"content-type": 'application/json; Charset="UTF-16LE"'},
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_message_that_its_server_would_read_in_another_encoding_is_not_sent(
    proxy: Proxy, server: Upstream, session: str, more: dict[str, str], named: bool
) -> None:
    """In UTF-7 it calls a tool."""
    sent = b'{"jsonrpc":"2.0","id":1,"method":"+AHQAbwBvAGwAcw-/call","params":{"name":"drop_all"}}'
    answer = proxy.client.send("POST", path(session if named else None), headers(**more), sent)
    assert (answer.status, server.calls) == (400, 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"[" + body("charge") + b"]",
        body("charge").replace(b'"id": 1', b'"id": 1, "id": 2'),
        b"",
        b"not json",
        body("charge").replace(b'"id": 1, ', b""),
    ],
)
def test_a_message_that_might_be_a_call_is_refused_and_not_sent(
    proxy: Proxy, server: Upstream, session: str, sent: bytes
) -> None:
    answer = proxy.client.send("POST", path(session), headers(), sent)
    assert (answer.status, answer.json()["error"]["code"]) == (400, -32600)
    assert server.calls == 0


def test_without_a_session_a_call_that_policies_allow_passes_and_any_other_is_refused(
    proxy: Proxy, server: Upstream
) -> None:
    assert text(call(proxy, None, "charge")) == "done"
    assert KEY.encode() not in server.requests[0].body
    for tool in ("send_mail", "drop_table"):
        answer = call(proxy, None, tool)
        assert answer.status == 200 and answer.json()["result"]["isError"] is True
        assert "names no session" in text(answer)
    assert server.calls == 1


def test_a_call_without_a_run_id_is_refused_where_all_runs_have_one_and_its_process_none(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    """The runs here were named by this very process: it is taken for the newest of them."""
    assert call(proxy, session, "charge", run="a").outcome == "live"
    unnamed = proxy.client.send("POST", f"/s/{session}/mcp/bank", headers(), body("charge", n=1))
    assert (unnamed.outcome, unnamed.run) == ("live", "a")


# --- keys and replay ---


def test_a_call_has_its_key_in_meta_and_header_and_is_replayed_under_the_new_id(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    one = call(proxy, session, "charge", ident=1, cents=5)
    again = call(proxy, session, "charge", run="b", ident="x", meta={"progressToken": 1}, cents=5)
    assert (one.outcome, again.outcome, one.step, again.step) == ("live", "replay", 0, 0)
    assert again.json() == one.json() | {"id": "x"}
    [seen] = server.requests
    key = seen.json()["params"]["_meta"][KEY]  # type: ignore[index]
    assert key == seen.headers.get("idempotency-key") == effects_of(proxy, session)[0]["key"]
    assert call(proxy, session, "charge", run="b", cents=5).outcome == "live"
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 2


def roll_back(proxy: Proxy, session: str) -> None:
    proxy.control.post(f"/api/sessions/{session}/reset", {"step_number": 0})


@pytest.mark.parametrize(("action", "sent"), [("APPROVED", 2), ("REUSED", 1), ("REJECTED", 1)])
def test_a_call_that_stands_after_a_rollback_is_not_made_again_unasked(
    proxy: Proxy, server: Upstream, session: str, action: str, sent: int
) -> None:
    first(server, plain(b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"charged"}]}}'))
    call(proxy, session, "charge")
    roll_back(proxy, session)
    with start(proxy, session, "charge", run="b") as connection:
        [asked] = pending(proxy, session=session)
        assert asked["kind"] == "duplicate" and "step 0" in asked["rule"]["why"]
        decide(proxy, asked, action)
        told = end_of(connection.answer())["result"]["content"][0]["text"]
    assert told == {"APPROVED": "done", "REUSED": "charged"}.get(action, told)
    assert ("refused" in told) == (action == "REJECTED")
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == server.calls == sent
    assert len(effects_of(proxy, session)) == 2  # what stands is still shown
    assert text(call(proxy, session, "charge", run="c")) == told


def test_what_may_be_made_twice_is_made_again_after_a_rollback(proxy: Proxy, server: Upstream, session: str) -> None:
    for tool in ("get_balance", "charge"):
        call(proxy, session, tool)
    roll_back(proxy, session)
    assert call(proxy, session, "get_balance", run="b").outcome == "live"
    anew = headers(**{"x-agent-replay": "off"})
    assert proxy.client.send("POST", path(session, "b"), anew, body("charge")).outcome == "live"
    assert call(proxy, session, "charge", run="b", cents=1).outcome == "live"
    assert server.calls == 5


def test_a_rollback_lists_the_effects_that_stand_and_no_others(proxy: Proxy, server: Upstream, session: str) -> None:
    def script(seen: Seen) -> Reply:
        status = 502 if b'"lost"' in seen.body else 403 if b'"refused"' in seen.body else 200
        return plain(result(seen), status)

    server.script = script
    for cents, tool in enumerate(("charge", "charge", "refused", "get_balance", "drop_table", "charge")):
        call(proxy, session, tool, cents=cents)
    for tool, state in (("lost", "in_doubt"), ("send_mail", "held")):
        with start(proxy, session, tool):
            question(proxy, session, state)
    told = proxy.control.post(f"/api/sessions/{session}/reset", {"step_number": 1})
    assert [(one["tool"], one["step_number"], one["state"]) for one in told["standing"]] == [
        ("charge", 1, "done"), ("charge", 5, "done"), ("lost", 6, "in_doubt")
    ]  # fmt: skip
    again = proxy.control.post(f"/api/sessions/{session}/reset", {"step_number": 0})
    assert [(one["tool"], one["arguments"]) for one in again["standing"]] == [("charge", {"cents": 0})]


def test_strict_replay_refuses_a_call_that_is_not_recorded_while_answers_are_unread(
    server: Upstream, tmp_path: Path
) -> None:
    approve_in_answer(tmp_path, "s", {"to": "a"}, "make")
    settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
    with Proxy(tmp_path, settings=settings) as proxy:
        assert call(proxy, "s", "charge", run="model", cents=1).outcome == "live"
        strict = headers(**{"x-agent-replay": "strict"})
        known = proxy.client.send("POST", path("s", "b"), strict, body("charge", cents=1))
        assert known.outcome == "replay"
        refused = proxy.client.send("POST", path("s", "b"), strict, body("charge", cents=2))
        assert refused.json()["error"]["data"]["code"] == "run_diverged" and refused.status == 400
        assert server.calls == 1
        assert proxy.client.send("POST", path("s", "model"), strict, body("charge", cents=2)).outcome == "live"


def test_whoever_waits_with_a_call_that_is_rolled_back_is_told_to_ask_again(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    with start(proxy, session, "send_mail") as connection:
        question(proxy, session, "held")
        roll_back(proxy, session)
        assert end_of(connection.answer())["error"]["data"]["code"] == "step_taken"
    with start(proxy, session, "send_mail", run="b"):
        decide(proxy, pending(proxy, session=session)[0], "APPROVED")
        until(lambda: server.calls == 1, "call")


def test_an_error_of_the_protocol_and_a_failed_tool_are_outcomes_like_any_other(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    first(
        server,
        plain(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}'),
        plain(b'{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}'),
    )
    lives = [[call(proxy, session, tool, run=run).body for tool in ("one", "two")] for run in ("a", "b")]
    assert lives[0] == lives[1]
    assert server.calls == 2
    assert [effect["failed"] for effect in effects_of(proxy, session)] == [True, True]


def test_news_of_a_call_comes_as_it_happens_and_its_end_when_it_is_kept(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    gate = Gate()
    news = b'id: 1\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}\n\n'
    end = b'data: {"jsonrpc":"2.0","id":4,"result":{"content":[]}}\n\n'
    first(server, stream(news, gate, end))
    with start(proxy, session, "charge", ident=4) as connection:
        assert connection.read_head()[1].get("content-type") == "text/event-stream"
        assert connection.read_until(b"}}\n\n") == news
        gate.open()
        rest, whole = connection.read_body()
    assert whole and events(rest)[-1] == {"jsonrpc": "2.0", "id": 4, "result": {"content": []}}
    assert call(proxy, session, "charge", run="b", ident=5).json()["result"] == {"content": []}


def test_a_client_that_takes_no_events_gets_plain_json(proxy: Proxy, server: Upstream, session: str) -> None:
    end = b'data: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n'
    first(server, stream(b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n', end))
    with start(proxy, session, "charge", accept="application/json") as connection:
        answer = connection.answer()
    assert answer.headers.get("content-type") == "application/json"
    assert answer.json()["result"] == {"content": []}


def test_equal_calls_side_by_side_are_two_calls(proxy: Proxy, server: Upstream, session: str) -> None:
    gate = Gate()
    server.script = lambda seen: [*plain(result(seen))[:1], gate, result(seen)]
    with start(proxy, session, "charge") as one, start(proxy, session, "charge", ident=2) as other:
        server.wait_calls(2)
        gate.open()
        assert (one.answer().status, other.answer().status) == (200, 200)
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 2


def give_up(proxy: Proxy, session: str, ident: Any, run: str = "a", **more: str) -> int:
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident, "reason": "timeout"}}
    return proxy.client.send("POST", path(session, run), headers(**more), json.dumps(told).encode()).status


@pytest.mark.parametrize("accept", [BOTH, "application/json"])
def test_a_client_that_gives_a_held_call_up_and_asks_again_waits_with_the_same_question(
    proxy: Proxy, server: Upstream, session: str, accept: str
) -> None:
    """As clients do after a timeout, on a socket that stays open."""
    with start(proxy, session, "send_mail", accept=accept) as first_try:
        asked = pending(proxy, session=session)[0]
        assert give_up(proxy, session, "1") == 200 and give_up(proxy, session, 1, **{"mcp-session-id": "m"}) == 200
        assert give_up(proxy, session, 1) == 202
        assert end_of(first_try.answer())["error"]["data"]["code"] == "refused"
        assert server.calls == 2  # what it does not know goes to the server
        with start(proxy, session, "send_mail", ident=2, accept=accept) as second_try:
            assert pending(proxy, session=session) == [asked]
            decide(proxy, asked, "APPROVED")
            assert end_of(second_try.answer())["id"] == 2
    assert server.calls == 3 and len(effects_of(proxy, session)) == 1


def test_a_client_that_hangs_up_and_asks_again_at_once_waits_with_the_same_question(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    waiting = start(proxy, session, "send_mail")
    asked = pending(proxy, session=session)
    for ident in range(2, 40):
        waiting.close()
        waiting = start(proxy, session, "send_mail", ident=ident)
        waiting.read_head()
        waiting.read_until(b": held: approval")
    assert pending(proxy, session=session) == asked
    decide(proxy, asked[0], "APPROVED")
    assert events(waiting.read_body()[0])[-1]["id"] == 39
    waiting.close()
    assert server.calls == 1


@pytest.mark.parametrize("over", [True, False])
def test_a_call_that_was_sent_and_given_up_goes_on_and_whoever_asks_again_has_its_result(
    proxy: Proxy, server: Upstream, session: str, over: bool
) -> None:
    gate = Gate()
    server.script = lambda seen: stream(b": working\n\n", gate, b"data: " + result(seen) + b"\n\n")
    with start(proxy, session, "charge") as first_try:
        first_try.read_head()
        assert give_up(proxy, session, 1) == 202
        assert events(first_try.read_body()[0])[-1]["error"]["data"]["code"] == "refused"
        if over:
            gate.open()
            until(lambda: effects_of(proxy, session)[0]["state"] == "done", "result")
        with start(proxy, session, "charge", ident=2) as second_try:
            gate.open()
            assert end_of(second_try.answer())["result"] == OK
    assert server.calls == 1
    assert call(proxy, session, "charge", ident=3).outcome == "live"


def test_a_restarted_agent_waits_for_the_call_of_its_earlier_life(proxy: Proxy, server: Upstream, session: str) -> None:
    gate = Gate()
    server.script = lambda seen: [*plain(result(seen))[:1], gate, result(seen)]
    with start(proxy, session, "charge"):
        server.wait_calls(1)
    with start(proxy, session, "charge", run="b", ident=9) as second:
        until(lambda: len(proxy.control.steps(session)[0]["served"]) == 2, "second reader")
        gate.open()
        answer = second.answer()
    assert (answer.outcome, answer.json()["id"], text(answer)) == ("joined", 9, "done")
    assert server.calls == 1


# --- held ---


def test_a_held_call_keeps_its_client_waiting_and_is_made_once_it_is_approved(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    with start(proxy, session, "send_mail", meta={"progressToken": "p"}, to="a") as connection:
        status, head = connection.read_head()
        assert (status, head.get("content-type"), head.get("x-agentstate-outcome")) == (
            200,
            "text/event-stream",
            "held",
        )
        waiting = connection.read_until(b"}}\n\n")
        assert events(waiting)[0]["params"]["progressToken"] == "p"
        asked = question(proxy, session, "held")
        assert server.calls == 0
        decide(proxy, asked["approval"], "APPROVED")
        rest, whole = connection.read_body()
    assert whole and events(rest)[-1]["result"] == OK
    assert call(proxy, session, "send_mail", run="b", to="a").outcome == "replay"
    assert server.calls == 1


def test_a_held_call_of_a_client_that_takes_no_events_gets_blanks_before_its_answer(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    with start(proxy, session, "send_mail", accept="application/json") as connection:
        assert connection.read_head()[0] == 200
        connection.read_until(b" ")
        decide(proxy, question(proxy, session, "held")["approval"], "APPROVED")
        whole, _ = connection.read_body()
    assert json.loads(whole)["result"] == OK


def test_an_edited_call_is_made_with_the_edited_arguments(proxy: Proxy, server: Upstream, session: str) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "string", "x-mcp-header": "To"}}}
    listed = {"tools": [{"name": "send_mail", "inputSchema": schema}]}
    server.script = lambda seen: plain(result(seen, listed if b"tools/list" in seen.body else OK))
    proxy.client.send("POST", path(session), headers(), b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    connection = proxy.client.connect()
    with connection:
        connection.request("POST", path(session), headers(**{"mcp-param-to": "a"}), body("send_mail", to="a"))
        asked = question(proxy, session, "held")
        decide(proxy, asked["approval"], "EDITED", arguments={"to": "b"})
        assert end_of(connection.answer())["result"] == OK
    seen = server.requests[-1]
    assert seen.json()["params"]["arguments"] == {"to": "b"}  # type: ignore[index]
    assert seen.headers.get("mcp-param-to") == "b"
    [effect] = effects_of(proxy, session)
    assert (effect["arguments"], effect["key"]) == ({"to": "b"}, seen.headers.get("idempotency-key"))
    assert effect["key"] != asked["key"]
    assert call(proxy, session, "send_mail", run="b", to="a").outcome == "replay"


@pytest.mark.parametrize("tool", ["send_mail", "soon_mail", "drop_mail"])
def test_a_refused_call_is_never_made_and_says_who_refused_it_and_why(
    proxy: Proxy, server: Upstream, session: str, tool: str
) -> None:
    with start(proxy, session, tool) as connection:
        if tool == "send_mail":
            decide(proxy, question(proxy, session, "held")["approval"], "REJECTED", reason="too late")
        answer = connection.answer()
    told = end_of(answer)
    said = {"send_mail": "by admin: too late", "soon_mail": "in time", "drop_mail": "policy"}[tool]
    assert told["result"]["isError"] is True and said in told["result"]["content"][0]["text"]
    again = call(proxy, session, tool, run="b")
    assert (again.outcome, again.json()["result"]) == ("replay", told["result"])
    assert server.calls == 0


def test_a_request_that_asks_for_approval_is_held(proxy: Proxy, server: Upstream, session: str) -> None:
    with proxy.client.connect() as connection:
        wanted = headers(**{"x-agent-require-approval": "true"})
        connection.request("POST", path(session), wanted, body("charge"))
        decide(proxy, question(proxy, session, "held")["approval"], "APPROVED")
        assert connection.answer().status == 200
    assert server.calls == 1


def approve_in_answer(
    folder: Path, session: str, arguments: dict[str, Any], name: str = "send_mail", given: bool = True
) -> None:
    """A person has approved a call of ``send_mail`` that a model's answer proposes; ``given``: the agent has it."""

    async def scenario() -> None:
        journal = Journal(folder / "agentstate.db")
        journal.open()
        row = await journal.open_session(session)
        await journal.begin_run(NewRunRow(row.id, "model", True, "run-id"))
        run = journal.read.run(row.id, "model")
        assert run is not None
        asked = OPENAI_CHAT.parse("POST", "chat/completions", b'{"model":"m","messages":[]}')
        new = NewStep(row.id, row.head, run.id, "model", "openai", asked, fingerprint.of(asked))
        begun = await journal.begin_step(new)
        spelled = json.dumps(arguments).encode()
        proposed = NewApproval("apr_1", ApprovalKind.CALL, b"d", spelled, OnReject.MESSAGE, name)
        await journal.end_step(
            Ending(row.id, begun.step, 1, State.COMPLETED, 200, b"[]", b"{}", True, Shape(),
                   Verdict(calls=(ToolCall(0, 0, "c1", name, spelled.decode()),)), 0.0,
                   asked=(proposed,))
        )  # fmt: skip
        await journal.decide("apr_1", Vote("admin", Decision.APPROVED), "")
        invoked = Invoked(0, 0, spelled, policy.call_digest(name, spelled.decode()))
        await journal.release(Released(begun.step, Release.ANSWER, invoked=(invoked,) if given else ()))
        journal.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["send_mail", "mcp__bank__send_mail", "bank_send_mail"])
def test_a_call_that_was_approved_in_the_models_answer_is_not_asked_about_again_once(
    server: Upstream, tmp_path: Path, name: str
) -> None:
    approve_in_answer(tmp_path, "s", {"to": "a", "n": 1}, name)
    file = tmp_path / "agentstate.toml"
    file.write_text('[[policies]]\ntools = ["send_*"]\n')
    settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
    with Proxy(tmp_path, settings=settings, environment={"AGENTSTATE_CONFIG": str(file)}) as proxy:
        with start(proxy, "s", "send_mail", to="b", n=1):
            assert question(proxy, "s", "held")["arguments"] == {"to": "b", "n": 1}
        assert server.calls == 0
        made = call(proxy, "s", "send_mail", n=1, to="a")
        assert text(made) == "done"
        [listed] = [one for step in proxy.control.session("s")["steps"] for one in step["calls"]]
        assert listed["tool"] == name and listed["made_at"] == made.step
        with start(proxy, "s", "send_mail", to="a", n=1):
            assert question(proxy, "s", "held")
        assert server.calls == 1
        assert call(proxy, "s", "send_mail", run="b", to="a", n=1).outcome == "replay"


@pytest.mark.parametrize("how", ["of another server", "not given", "rolled back"])
def test_an_approval_in_the_models_answer_that_is_not_of_this_call_lets_nothing_pass(
    server: Upstream, tmp_path: Path, how: str
) -> None:
    name = "mcp__shop__send_mail" if how == "of another server" else "send_mail"
    approve_in_answer(tmp_path, "s", {"to": "a"}, name, how != "not given")
    (tmp_path / "agentstate.toml").write_text('[[policies]]\ntools = ["send_*"]\n')
    settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
    environment = {"AGENTSTATE_CONFIG": str(tmp_path / "agentstate.toml")}
    with Proxy(tmp_path, settings=settings, environment=environment) as proxy:
        if how == "rolled back":
            roll_back(proxy, "s")
        with start(proxy, "s", "send_mail", to="a"):
            assert question(proxy, "s", "held")
    assert server.calls == 0


def test_a_policy_on_the_name_that_a_client_makes_of_a_tool_holds_the_tool(server: Upstream, tmp_path: Path) -> None:
    (tmp_path / "agentstate.toml").write_text('[[policies]]\ntools = ["mcp__bank__charge"]\n')
    settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
    environment = {"AGENTSTATE_CONFIG": str(tmp_path / "agentstate.toml")}
    with Proxy(tmp_path, settings=settings, environment=environment) as proxy:
        with start(proxy, "s", "charge"):
            assert question(proxy, "s", "held")
        assert "refused" in text(call(proxy, None, "charge"))
    assert server.calls == 0


# --- what is known, and what is not ---


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429])
def test_a_call_that_the_server_refuses_did_not_run_and_is_made_when_it_is_asked_for_again(
    proxy: Proxy, server: Upstream, session: str, status: int
) -> None:
    first(server, plain(b'{"no":1}', status, headers=[("www-authenticate", "Bearer")]))
    refused = call(proxy, session, "charge")
    assert (refused.status, refused.body, refused.headers.get("www-authenticate")) == (status, b'{"no":1}', "Bearer")
    assert [effect["state"] for effect in effects_of(proxy, session)] == ["not_done"]
    assert text(call(proxy, session, "charge", run="b")) == "done"
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 1


def test_a_call_that_could_not_be_sent_did_not_run(proxy: Proxy, session: str) -> None:
    answer = call(proxy, session, "charge", name="gone")
    assert (answer.status, answer.json()["error"]["data"]["code"]) == (503, "upstream_unreachable")
    assert [effect["state"] for effect in effects_of(proxy, session)] == ["not_done"]


UNKNOWN: list[Callable[[], Reply]] = [
    lambda: plain(b"oops", 500),
    lambda: plain(b"<html>busy</html>", 503),
    lambda: plain(b"", 202),
    lambda: plain(b"not json"),
    lambda: plain(b'{"jsonrpc":"2.0","id":99,"result":{}}'),
    lambda: [Fin()],
    lambda: [*plain(b'{"jsonrpc', length=500), Fin()],
    lambda: stream(b": nothing\n\n"),
    lambda: stream(b'data: {"jsonrpc":"2.0","id":1,"result":7}\n\n'),
]


@pytest.mark.parametrize("reply", UNKNOWN)
def test_a_call_whose_end_is_not_known_is_in_doubt_until_a_person_says_what_it_came_to(
    proxy: Proxy, server: Upstream, session: str, reply: Callable[[], Reply]
) -> None:
    first(server, reply())
    with start(proxy, session, "charge") as connection:
        asked = question(proxy, session)
        settle(proxy, session, asked["step_number"], "ran", result={"cents": 5})
        answer = connection.answer()
    told = end_of(answer)["result"]
    assert told["structuredContent"] == {"cents": 5} and told["isError"] is False
    assert server.calls == 1
    assert call(proxy, session, "charge", run="b").json()["result"] == told
    assert server.calls == 1


def test_a_call_in_doubt_that_did_not_run_is_sent_again_with_its_key(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    first(server, [Fin()])
    with start(proxy, session, "charge") as connection:
        settle(proxy, session, question(proxy, session)["step_number"], "did_not_run")
        assert end_of(connection.answer())["result"] == OK
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 1
    assert server.calls == 2
    [effect] = effects_of(proxy, session)
    assert (effect["state"], effect["settled"], effect["attempts"]) == ("done", "again", 2)


def test_a_call_in_doubt_that_is_given_up_is_never_sent(proxy: Proxy, server: Upstream, session: str) -> None:
    first(server, [Fin()])
    with start(proxy, session, "charge"):
        asked = question(proxy, session)
    settle(proxy, session, asked["step_number"], "abort", reason="too risky")
    again = call(proxy, session, "charge", run="b")
    assert again.json()["result"]["isError"] is True
    assert "given up by admin: too risky" in text(again)
    assert server.calls == 1
    assert [effect["state"] for effect in effects_of(proxy, session)] == ["given_up"]


def test_the_first_word_about_a_doubt_counts(proxy: Proxy, server: Upstream, session: str) -> None:
    first(server, [Fin()])
    with start(proxy, session, "charge"):
        step = question(proxy, session)["step_number"]
        settle(proxy, session, step, "ran", result="one")
        settle(proxy, session, step, "ran", result="one")
        for outcome, more in (("ran", {"result": "two"}), ("did_not_run", {}), ("abort", {})):
            with pytest.raises(OSError, match="409"):
                settle(proxy, session, step, outcome, **more)
    assert server.calls == 1


def test_a_tool_that_only_reads_is_asked_again_at_once(proxy: Proxy, server: Upstream, session: str) -> None:
    first(server, [Fin()], [Fin()])
    answer = call(proxy, session, "get_mail")
    assert (answer.status, answer.json()["error"]["data"]["code"]) == (503, "upstream_cut")
    assert server.calls == 2
    assert text(call(proxy, session, "get_mail", run="b")) == "done"
    assert len({seen.headers.get("idempotency-key") for seen in server.requests}) == 1


def test_a_call_in_doubt_is_not_made_again_because_its_server_calls_it_harmless_now(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    listed = {"tools": [{"name": "wipe", "annotations": {"readOnlyHint": True}}]}
    server.script = lambda seen: plain(result(seen, listed)) if b"tools/list" in seen.body else plain(b"", 500)
    with start(proxy, session, "wipe"):
        question(proxy, session)
    sent = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    assert proxy.client.send("POST", path(session), headers(), sent).status == 200
    with start(proxy, session, "wipe", run="b") as connection:
        settle(proxy, session, 0, "abort")
        assert "given up" in end_of(connection.answer())["result"]["content"][0]["text"]
    assert [seen.json()["method"] for seen in server.requests] == ["tools/call", "tools/list"]


def test_a_stream_that_breaks_off_is_resumed_where_its_server_offers_that(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    end = b'id: 3\ndata: {"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n\n'
    first(server, stream(b"id: 2\nretry: 10\ndata: \n\n"), stream(end))
    with start(proxy, session, "charge") as connection:
        assert end_of(connection.answer())["result"] == {"content": []}
    sent, resumed = server.requests
    assert (resumed.method, resumed.headers.get("last-event-id"), resumed.body) == ("GET", "2", b"")
    assert "idempotency-key" in sent.headers and "idempotency-key" not in resumed.headers
    assert [effect["state"] for effect in effects_of(proxy, session)] == ["done"]


@pytest.mark.parametrize(
    ("reply", "state", "settled", "sent"),
    [
        (lambda: plain(b'{"cents":5}'), "done", "ran", 1),
        (lambda: plain(b"", 404), "done", "again", 2),
        (lambda: plain(b"", 500), "in_doubt", None, 1),
        (lambda: [Fin()], "in_doubt", None, 1),
    ],
)
def test_a_probe_says_what_became_of_a_call_or_a_person_is_asked(
    proxy: Proxy, server: Upstream, session: str, reply: Callable[[], Reply], state: str, settled: str | None, sent: int
) -> None:
    sendings: list[Seen] = []

    def script(seen: Seen) -> Reply:
        if seen.target.startswith("/probe/"):
            assert seen.target == f"/probe/{sendings[0].headers.get('idempotency-key')}"
            return reply()
        sendings.append(seen)
        return [Fin()] if len(sendings) == 1 else answers(seen)

    server.script = script
    with start(proxy, session, "probed_charge") as connection:
        if settled is None:
            question(proxy, session)
        else:
            assert connection.answer().status == 200
    [effect] = effects_of(proxy, session)
    assert (effect["state"], effect["settled"], len(sendings)) == (state, settled, sent)


@pytest.mark.parametrize(
    ("found", "settled"), [({"ran": True, "result": "ok"}, "ran"), ({"ran": False}, "again"), ({}, None)]
)
def test_a_tool_of_the_server_may_be_the_probe(
    proxy: Proxy, server: Upstream, session: str, found: dict[str, Any], settled: str | None
) -> None:
    asked: list[dict[str, Any]] = []

    def script(seen: Seen) -> Reply:
        params: Any = seen.json()["params"]
        if params["name"] == "find":
            asked.append(params["arguments"])
            return plain(result(seen, {"content": [], "structuredContent": found}))
        return answers(seen) if asked else [Fin()]

    server.script = script
    with start(proxy, session, "asked_charge", cents=5) as connection:
        if settled is None:
            question(proxy, session)
        else:
            assert connection.answer().status == 200
    [effect] = effects_of(proxy, session)
    assert effect["settled"] == settled
    assert asked == [{"key": effect["key"], "tool": "asked_charge", "arguments": {"cents": 5}}]


def test_nothing_of_a_credential_is_in_the_journal(proxy: Proxy, server: Upstream, session: str) -> None:
    repeats = {"content": [{"type": "text", "text": "you are sk-test-agents-own and sk-test-bank"}]}
    server.script = lambda seen: plain(result(seen, repeats))
    sent = headers(**{"x-api-key": "sk-test-agents-own"})
    assert proxy.client.send("POST", path(session), sent, body("charge")).status == 200
    first(server, plain(b'{"error":"sk-test-agents-own and sk-test-bank are unknown"}', 403))
    assert proxy.client.send("POST", path(session), sent, body("refused")).status == 403
    meta = {"auth": {"api_key": "sk-test-in-meta"}, "note": "sk-test-said"}
    said = {"content": [{"type": "text", "text": "you sent sk-test-in-meta"}]}
    first(server, plain(json.dumps({"jsonrpc": "2.0", "id": 1, "result": said}).encode()))
    assert b"sk-test-in-meta" in call(proxy, session, "charge", meta=meta, cents=1).body
    assert server.requests[-1].json()["params"]["_meta"]["auth"] == meta["auth"]  # type: ignore[index]
    # Contents are compressed in the file; the session's own page has them all.
    stored = proxy.stored_bytes() + json.dumps(proxy.control.session(session)).encode()
    for secret in (b"sk-test-agents-own", b"sk-test-bank", b"sk-test-in-meta"):
        assert secret not in stored
    assert b"sk-test-said" in stored
    assert call(proxy, session, "charge", run="b", meta=meta, cents=1).outcome == "replay"


def test_a_credential_that_a_server_over_stdio_repeats_is_not_in_the_journal(proxy: Proxy, session: str) -> None:
    sent = body("charge", meta={"auth": {"api_key": "sk-test-over-stdio"}}).decode()
    who = {"process": "p", "sending": "1", "message": sent}
    at = path(session, name="files")
    claim = proxy.client.send("POST", f"{at}/claim", headers(), json.dumps(who).encode()).json()
    told = {"result": {"content": [{"type": "text", "text": "you sent sk-test-over-stdio, sk-test-not-this"}]}}
    report = who | {"step": claim["step"], "attempt": claim["attempt"], "outcome": told}
    for _ in range(2):  # a report that is repeated says the same
        assert proxy.client.send("POST", f"{at}/result", headers(), json.dumps(report).encode()).status == 200
    stored = proxy.stored_bytes() + json.dumps(proxy.control.session(session)).encode()
    assert b"sk-test-over-stdio" not in stored and b"sk-test-not-this" in stored


def test_the_journal_of_all_this_is_sound(proxy: Proxy, tmp_path: Path) -> None:
    assert "Traceback" not in proxy.log
    proxy.doctor()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_calls_a_tool_as_soon_as_it_is_listed_has_its_hints_known(
    proxy: Proxy, server: Upstream, session: str, streamed: bool
) -> None:
    """The server has not ended the stream of its list yet."""
    tool, gate = f"look_{streamed}", Gate()
    listed = {"tools": [{"name": tool, "annotations": {"readOnlyHint": True}}]}

    def script(seen: Seen) -> Reply:
        if b"tools/list" not in seen.body:
            return answers(seen)
        told = result(seen, listed)
        return stream(b"data: " + told + b"\n\n", gate) if streamed else plain(told)

    server.script = script
    with proxy.client.connect() as connection:
        connection.request("POST", path(session), headers(), b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
        connection.read_head()
        connection.read_until(b'"readOnlyHint": true')
        assert call(proxy, session, tool).outcome == "live"
        gate.open()
    assert [effect["class"] for effect in effects_of(proxy, session)] == ["read"]
