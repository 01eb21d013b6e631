"""The scripted upstream sends exactly what its script says, sees exactly what arrived, and notices who leaves."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator

import pytest

from tests.support import chat
from tests.support.client import Client, Connection, chat_headers, render
from tests.support.upstream import BOUND_S, Fin, Gate, Hang, Rst, Upstream, plain, stream


@pytest.fixture
def own_upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def test_default_script_gives_each_call_its_own_sample_in_the_shape_asked(own_upstream: Upstream) -> None:
    client = Client(own_upstream.port)
    first = client.ask(None, "hi")
    second = client.ask(None, "hi", stream=True)
    assert chat.text_of(first.body) == "sample 0"
    assert chat.text_of(second.body) == "sample 1"
    assert second.body.endswith(chat.DONE)
    assert own_upstream.calls == 2


def test_request_is_kept_raw_with_chunked_bodies_decoded(own_upstream: Upstream) -> None:
    body = chat.request("hi")
    raw = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = {"transfer-encoding": "chunked", "X-Odd-Case": "1"}
    with Connection(own_upstream.port) as connection:
        connection.send(render("POST", "/v1/a%2Fb?q=%20", head) + raw)
        assert connection.answer().status == 200
    seen = own_upstream.requests[0]
    assert (seen.method, seen.target) == ("POST", "/v1/a%2Fb?q=%20")
    assert seen.body == body
    assert seen.raw_body == raw
    assert b"X-Odd-Case: 1\r\n" in seen.raw_head


def test_connection_is_used_again_after_a_whole_answer(own_upstream: Upstream) -> None:
    client = Client(own_upstream.port)
    with client.connect() as connection:
        for number in range(3):
            answer = client.ask(None, "hi", on=connection)
            assert chat.text_of(answer.body) == f"sample {number}"


def test_request_sent_ahead_of_the_answer_is_not_lost(own_upstream: Upstream) -> None:
    client = Client(own_upstream.port)
    gate = Gate()
    own_upstream.replies([*stream(b"data: 1\n\n", gate)])
    request = render("POST", "/v1/chat/completions", chat_headers(), chat.request("hi"))
    with client.connect() as connection:
        connection.send(request)
        gate.wait_reached()
        connection.send(request)
        gate.open()
        assert connection.answer().body == b"data: 1\n\n"
        assert chat.text_of(connection.answer().body) == "sample 1"


def test_gate_holds_the_rest_of_an_answer_until_opened(own_upstream: Upstream) -> None:
    gate = Gate()
    own_upstream.replies(stream(b"data: 1\n\n", gate, b"data: 2\n\n"))
    with Client(own_upstream.port).start(None, "hi", stream=True) as connection:
        connection.read_head()
        assert connection.read_until(b"data: 1") == b"data: 1\n\n"
        gate.wait_reached()
        assert connection.silent(0.05)
        gate.open()
        assert connection.read_body() == (b"data: 1\n\ndata: 2\n\n", True)


@pytest.mark.parametrize("end", [Fin(), Rst()], ids=["fin", "rst"])
def test_cut_answer_arrives_incomplete(own_upstream: Upstream, end: Fin | Rst) -> None:
    gate = Gate()
    own_upstream.replies(stream(b"data: 1\n\n", gate, end, finish=False))
    with Client(own_upstream.port).start(None, "hi") as connection:
        connection.read_head()
        connection.read_until(b"data: 1")
        gate.open()
        assert connection.read_body() == (b"data: 1\n\n", False)


def test_lies_about_length_reach_the_client(own_upstream: Upstream) -> None:
    client = Client(own_upstream.port)
    own_upstream.replies([*plain(b"hello", length=9), Fin()], plain(b"hello", length=2))
    assert client.send("GET", "/x").complete is False
    with client.connect() as connection:
        connection.request("GET", "/x", {})
        assert connection.answer(method="GET").body == b"he"


def test_peer_that_leaves_is_noticed_while_the_answer_hangs(own_upstream: Upstream) -> None:
    own_upstream.replies([*stream(b"data: 1\n\n", Hang())])
    connection = Client(own_upstream.port).start(None, "hi")
    connection.read_head()
    connection.read_until(b"data: 1")
    seen = own_upstream.requests[0]
    assert not seen.aborted.is_set()
    connection.reset()
    assert seen.aborted.wait(BOUND_S)
    assert not seen.answered.is_set()


def test_encoded_answer_is_sent_as_scripted(own_upstream: Upstream) -> None:
    packed = gzip.compress(b'{"a":1}')
    own_upstream.replies(plain(packed, headers=[("content-encoding", "gzip")]))
    answer = Client(own_upstream.port).send("GET", "/x")
    assert json.loads(gzip.decompress(answer.body)) == {"a": 1}


def test_many_requests_at_once_are_all_counted(own_upstream: Upstream) -> None:
    gate = Gate()
    own_upstream.script = lambda seen: [gate, *plain(chat.completion(f"n{seen.number}"))]
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(chat.text_of(Client(own_upstream.port).ask(None, "hi").body)))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    own_upstream.wait_calls(5)
    gate.open()
    for thread in threads:
        thread.join(BOUND_S)
    assert sorted(found) == [f"n{number}" for number in range(5)]


def test_fault_in_a_script_fails_the_fixture_that_owns_it() -> None:
    def broken(seen: object) -> list[bytes]:
        raise RuntimeError("script is broken")

    running = Upstream(broken)
    running.__enter__()
    with pytest.raises(ConnectionError):
        Client(running.port).ask(None, "hi")
    with pytest.raises(RuntimeError, match="script is broken"):
        running.close()


def test_expectation_of_a_go_ahead_is_met(own_upstream: Upstream) -> None:
    body = chat.request("hi")
    with Connection(own_upstream.port) as connection:
        connection.request("POST", "/v1/x", {"expect": "100-continue", "content-length": str(len(body))})
        assert connection.read_interim() == 100
        connection.send(body)
        assert connection.answer().status == 200
