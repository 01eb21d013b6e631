"""What an agent was not shown, its model is told in later requests: refusals, refused calls beside others, edits. What
the agent asks is journaled and replayed as if that had not been."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import chat
from tests.support.client import Answer
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain, stream
from tests.support.wires import WIRES, Calling, Chat, Message, Wire

_numbers = itertools.count()
CONTINUE = '[[policies]]\ntools = ["send_email"]\non_reject = "continue"'
MAIL = Calling("call_a", "send_email", {"to": "bob@example.com"})
SEARCH = Calling("call_b", "search", {"to": "x"})
OTHER = Calling("call_c", "send_email", {"to": "kim@example.com"})


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("retold"), upstream.url, file=CONTINUE) as running:
        yield running
        assert "Traceback" not in running.log
        assert "cannot be told" not in running.log


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param


@pytest.fixture
def session() -> str:
    return f"retold-{next(_numbers)}"


def named(wire: Wire, call: Calling) -> str:
    """By what a call and its result are told apart in this format."""
    return call.name if wire.name in ("gemini", "ollama") else call.call_id


def send(proxy: Proxy, wire: Wire, session: str, body: bytes, run: str = "r1") -> Answer:
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test-1", "x-api-key": "sk-test-1"}
    found = proxy.client.send("POST", f"/s/{session}/r/{run}{wire.path}", headers, body)
    assert found.status == 200, found.body
    return found


def decided(proxy: Proxy, wire: Wire, session: str, body: bytes, *decisions: dict[str, Any]) -> Answer:
    """An answer with as many held calls as there are decisions, once people have decided."""
    asking = Asking(lambda: send(proxy, wire, session, body))
    for approval, decision in zip(pending(proxy, len(decisions), session), decisions, strict=True):
        decide(proxy, approval, **decision)
    return asking.answer()


def messages(upstream: Upstream, wire: Wire, number: int) -> list[Message]:
    return json.loads(upstream.requests[number].body)[wire.field]


def test_refused_round_stands_before_the_answer_in_what_the_model_is_sent_later(
    proxy: Proxy, upstream: Upstream, wire: Wire, session: str
) -> None:
    upstream.reset()
    upstream.replies(*map(plain, (wire.answer("", MAIL), wire.answer("I shall phone."), wire.answer("Bye."))))
    history = [wire.user("write to Bob")]
    answer = decided(proxy, wire, session, wire.ask(history), {"action": "REJECTED", "reason": "use the phone"})
    history += [*wire.said(answer.body.strip()), wire.user("and now?")]
    last = send(proxy, wire, session, wire.ask(history))
    hidden = messages(upstream, wire, 1)[1:]
    assert wire.called(hidden) == [(named(wire, MAIL), MAIL.arguments)]
    assert "use the phone" in wire.told(hidden)[0][1]
    assert messages(upstream, wire, 2) == [history[0], *hidden, *history[1:]]
    rest = [json.loads(body) for body in (upstream.requests[2].body, wire.ask(history))]
    assert [{**one, wire.field: None} for one in rest] == [{**rest[1], wire.field: None}] * 2
    again = [send(proxy, wire, session, wire.ask(asked), run="r2") for asked in (history[:1], history)]
    assert [one.body.strip() for one in again] == [answer.body.strip(), last.body]
    assert upstream.calls == 3


def test_refused_call_beside_others_stands_in_its_place_with_its_result(
    proxy: Proxy, upstream: Upstream, wire: Wire, session: str
) -> None:
    upstream.reset()
    upstream.replies(
        plain(wire.answer("Three.", MAIL, SEARCH, OTHER)), plain(wire.answer("Done.")), plain(wire.answer("Yes."))
    )
    history = [wire.user("write to both")]
    answer = decided(
        proxy, wire, session, wire.ask(history), {"action": "REJECTED", "reason": "not Bob"}, {"action": "APPROVED"}
    )
    given = wire.said(answer.body.strip())
    assert wire.called(given) == [(named(wire, one), one.arguments) for one in (SEARCH, OTHER)]
    assert b"not Bob" not in answer.body
    history += [*given, *wire.results((SEARCH, "found"), (OTHER, "sent"))]
    done = send(proxy, wire, session, wire.ask(history))
    history += [*wire.said(done.body), wire.user("sure?")]
    send(proxy, wire, session, wire.ask(history))
    for number in (1, 2):
        told = messages(upstream, wire, number)
        assert wire.called(told) == [(named(wire, one), one.arguments) for one in (MAIL, SEARCH, OTHER)]
        results = wire.told(told)
        assert [name for name, _ in results] == [named(wire, one) for one in (MAIL, SEARCH, OTHER)]
        assert "not Bob" in results[0][1]
        assert [text for _, text in results[1:]] == ["found", "sent"]
    assert messages(upstream, wire, 2)[: len(messages(upstream, wire, 1))] == messages(upstream, wire, 1)
    assert upstream.calls == 3


def test_model_is_told_with_the_result_that_a_person_edited_the_call(
    proxy: Proxy, upstream: Upstream, wire: Wire, session: str
) -> None:
    upstream.reset()
    upstream.replies(plain(wire.answer("Hm.", MAIL, SEARCH)), plain(wire.answer("Done.")))
    history = [wire.user("write to Bob")]
    edit = {"action": "EDITED", "arguments": {"to": "kim@example.com"}, "reason": "Kim is in charge"}
    answer = decided(proxy, wire, session, wire.ask(history), edit)
    history += [*wire.said(answer.body.strip()), *wire.results((MAIL, "sent"), (SEARCH, "found"))]
    done = send(proxy, wire, session, wire.ask(history))
    told = messages(upstream, wire, 1)
    assert wire.called(told)[0] == (named(wire, MAIL), {"to": "kim@example.com"})
    [(_, sent), (_, found)] = wire.told(told)
    assert sent.startswith("sent") and "admin changed the arguments" in sent and "Kim is in charge" in sent
    assert found == "found"
    assert len(told) == len(history)
    asked = proxy.control.steps(session)[1]["prompt"]
    assert "changed the arguments" not in (asked if isinstance(asked, str) else json.dumps(asked))
    for asked_again in (history[:1], history):
        again = send(proxy, wire, session, wire.ask(asked_again), run="r2")
    assert again.body == done.body
    assert upstream.calls == 2


def test_answer_that_the_agent_does_not_carry_as_it_was_given_is_sent_as_it_is(
    proxy: Proxy, upstream: Upstream, wire: Wire, session: str
) -> None:
    upstream.reset()
    upstream.replies(*map(plain, (wire.answer("", MAIL), wire.answer("I shall phone."), wire.answer("Bye."))))
    history = [wire.user("write to Bob")]
    decided(proxy, wire, session, wire.ask(history), {"action": "REJECTED", "reason": "no"})
    body = wire.ask([*history, *wire.said(wire.answer("Another text.")), wire.user("and now?")])
    send(proxy, wire, session, body)
    assert upstream.requests[2].body == body


def test_edit_that_was_rolled_back_is_told_to_nobody(
    proxy: Proxy, upstream: Upstream, wire: Wire, session: str
) -> None:
    upstream.reset()
    wanted = Calling("call_a", "send_email", {"to": "kim@example.com"})
    upstream.replies(*map(plain, (wire.answer("", MAIL), wire.answer("", wanted), wire.answer("Done."))))
    history = [wire.user("write to Bob")]
    decided(proxy, wire, session, wire.ask(history), {"action": "EDITED", "arguments": wanted.arguments})
    proxy.control.post(f"/api/sessions/{session}/reset", {"step_number": 0})
    answer = decided(proxy, wire, session, wire.ask(history), {"action": "APPROVED"})
    body = wire.ask([*history, *wire.said(answer.body.strip()), *wire.results((wanted, "sent"))])
    send(proxy, wire, session, body)
    assert upstream.requests[2].body == body


def test_restarted_agent_with_another_clock_in_its_prompt_has_its_model_told_too(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    wire = Chat()
    upstream.reset()
    upstream.replies(*map(plain, (wire.answer("", MAIL), wire.answer("I shall phone."), wire.answer("Bye."))))

    def history(clock: str) -> list[Message]:
        return [{"role": "system", "content": f"It is {clock}."}, wire.user("write to Bob")]

    asked = history("2026-11-30T10:00:00Z")
    answer = decided(proxy, wire, session, wire.ask(asked), {"action": "REJECTED", "reason": "no"})
    later = history("2026-12-01T08:30:00Z")
    again = send(proxy, wire, session, wire.ask(later), run="r2")
    assert (again.body.strip(), upstream.calls) == (answer.body.strip(), 2)
    rest = [*wire.said(answer.body.strip()), wire.user("and now?")]
    send(proxy, wire, session, wire.ask([*later, *rest]), run="r2")
    assert messages(upstream, wire, 2) == [*later, *messages(upstream, wire, 1)[2:], *rest]


@pytest.mark.parametrize("shown", ["", "I will write to Bob."])
def test_streamed_answer_is_refused_in_a_round_unless_a_text_of_it_was_shown(
    proxy: Proxy, upstream: Upstream, session: str, shown: str
) -> None:
    wire = Chat()
    upstream.reset()
    call = chat.tool_call("send_email", json.dumps(MAIL.arguments), call_id="call_a")
    first, second = chat.chunks(shown, tool_calls=[call]), chat.chunks("I shall phone.")
    upstream.replies(stream(*first), *[stream(*second)] * (not shown), plain(wire.answer("Bye.")))
    history = [wire.user("write to Bob")]
    body = json.dumps(json.loads(wire.ask(history)) | {"stream": True}).encode()
    answer = decided(proxy, wire, session, body, {"action": "REJECTED", "reason": "no"})
    text = chat.text_of(answer.body)
    history += [{"role": "assistant", "content": text}, wire.user("and now?")]
    send(proxy, wire, session, wire.ask(history))
    told = wire.called(messages(upstream, wire, upstream.calls - 1))
    if shown:
        assert text.startswith(shown) and text.endswith("The call of send_email was refused by admin: no.")
        assert (told, upstream.calls) == ([], 2)
    else:
        assert answer.body == b"".join(second)
        assert (told, upstream.calls) == ([("call_a", MAIL.arguments)], 3)


ANTHROPIC = [
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_%s","type":"message","role":"assistant",'
    b'"model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"%s"},"usage":{"output_tokens":2}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
]


def anthropic_stream(name: bytes, start: Message, delta: Message, stop: bytes) -> bytes:
    events = [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]
    blocks = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]
    return b"".join([ANTHROPIC[0] % name, *blocks, ANTHROPIC[1] % stop])


def test_stream_whose_opening_was_kept_back_is_heard_by_the_sdk_as_the_answer_to_the_refusal(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    """With pings before it, while a person thinks."""
    anthropic = pytest.importorskip("anthropic", reason="the official SDK is not installed")
    tool = {"type": "tool_use", "id": "call_a", "name": "send_email", "input": {}}
    arguments = {"type": "input_json_delta", "partial_json": json.dumps(MAIL.arguments)}
    proposed = anthropic_stream(b"1", tool, arguments, b"tool_use")
    text = {"type": "text_delta", "text": "I shall phone."}
    said = anthropic_stream(b"2", {"type": "text", "text": ""}, text, b"end_turn")
    upstream.reset()
    upstream.replies(stream(proposed), stream(said))
    client = anthropic.Anthropic(
        base_url=f"{proxy.url}/s/{session}/r/r1", api_key="sk-test-1", timeout=1.5, max_retries=0
    )

    def call() -> Any:
        tools = [{"name": "send_email", "input_schema": {"type": "object"}}]
        asked = [{"role": "user", "content": "write to Bob"}]
        with client.messages.stream(model="m", max_tokens=9, messages=asked, tools=tools) as found:
            return found.get_final_message()

    asking = Asking(call)
    [approval] = pending(proxy, 1, session)
    until = time.monotonic() + 2.0  # longer than the SDK would bear silence
    while time.monotonic() < until:
        assert asking.waits
        threading.Event().wait(0.1)
    decide(proxy, approval, "REJECTED", reason="no")
    message: Any = asking.answer()
    assert (message.id, [block.text for block in message.content]) == ("msg_2", ["I shall phone."])
    told = upstream.requests[1].json()["messages"]
    assert told[1]["content"][0]["input"] == MAIL.arguments
