"""What reaches a provider: the address as spelled, the fields as given, the body whole; and no message shows the
address's user."""

from __future__ import annotations

import asyncio
import base64

import pytest

from agentstate.errors import UpstreamFault, UpstreamInvalid, UpstreamUnreachable
from agentstate.providers.provider import Provider
from agentstate.providers.wire import Exchange, Loss, Wire
from tests.unit.providers.peer import BOUND_S, Peer, Talk, answers, ask, client_of, question, steady


@pytest.mark.parametrize(
    "path, query, target",
    [
        ("/v1/models/a%2Fb%20c", "", "/v1/models/a%2Fb%20c"),
        ("/v1/x", "q=%20&y=+&z=a%2fb&&=", "/v1/x?q=%20&y=+&z=a%2fb&&="),
        ("/v1/../x//y/./z", "", "/v1/../x//y/./z"),
        ("/v1beta/models/m:generate", "alt=sse", "/v1beta/models/m:generate?alt=sse"),
    ],
)
async def test_address_is_sent_as_it_is_spelled(path: str, query: str, target: str) -> None:
    async with Peer(steady) as peer, client_of() as client:
        await ask(client, peer, path=path, query=query)
    assert peer.questions[0].split(b"\r\n")[0] == f"POST {target} HTTP/1.1".encode()


async def test_fields_are_sent_as_given_and_in_order() -> None:
    given = [("X-One", "1"), ("accept", "a"), ("X-One", "2"), ("Empty", ""), ("x-utf", "é漢")]
    async with Peer(steady) as peer, client_of() as client:
        await ask(client, peer, headers=given, body=b"body")
    head, _, body = peer.questions[0].partition(b"\r\n\r\n")
    fields = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")[1:]]
    assert fields == [("Host", f"127.0.0.1:{peer.port}"), *given, ("Content-Length", "4")]
    assert body == b"body"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"])
async def test_length_is_announced_for_a_body_and_for_methods_that_usually_have_one(method: str) -> None:
    async with Peer(steady, steady) as peer, client_of() as client:
        await ask(client, peer, method=method, body=b"")
        await ask(client, peer, method=method, body=b"four")
    bare, full = (raw.partition(b"\r\n\r\n")[0].lower() for raw in peer.questions)
    assert (b"content-length: 0" in bare) == (method not in ("GET", "HEAD", "OPTIONS"))
    assert b"content-length: 4" in full
    assert b"transfer-encoding" not in bare + full


async def test_large_body_arrives_whole_and_once() -> None:
    body = bytes(range(256)) * 40_000
    async with Peer(steady) as peer, client_of() as client:
        assert (await ask(client, peer, body=body))[2] == b"ok"
        assert (await ask(client, peer, body=b"small"))[2] == b"ok"
    assert peer.questions[0].partition(b"\r\n\r\n")[2] == body
    assert (len(peer.questions), peer.connections) == (2, 1)


async def test_user_of_the_address_becomes_credentials() -> None:
    async with Peer(steady) as peer, client_of() as client:
        provider = peer.provider(user="sk-test-user:p%40ss@")
        async with client.attempt(provider, question()) as reply:
            assert reply.status == 200
    wanted = b"Authorization: Basic " + base64.b64encode(b"sk-test-user:p@ss")
    assert wanted in peer.questions[0].split(b"\r\n")
    assert f"Host: 127.0.0.1:{peer.port}".encode() in peer.questions[0].split(b"\r\n")


async def test_user_of_the_address_and_credentials_of_the_agent_are_not_mixed() -> None:
    async with Peer(steady) as peer, client_of() as client:
        provider = peer.provider(user="sk-test-user:sk-test-pass@")
        with pytest.raises(UpstreamInvalid) as caught:
            async with client.attempt(provider, question(headers=[("authorization", "Bearer sk-test-agent")])):
                raise AssertionError("it was sent")
    assert "sk-test" not in str(caught.value)
    assert peer.connections == 0


@pytest.mark.parametrize("script", [answers(b""), answers(b"nonsense"), answers(b"HTTP/1.1 999 X\r\n\r\n")])
async def test_no_message_shows_the_user_of_the_address(script: object) -> None:
    async with Peer(script) as peer, client_of() as client:  # type: ignore[arg-type]
        provider = peer.provider(user="sk-test-user:sk-test-pass@")
        with pytest.raises(UpstreamFault) as caught:
            async with client.attempt(provider, question()):
                raise AssertionError("this is no answer")
    fault: BaseException | None = caught.value
    while fault is not None:
        assert "sk-test" not in repr(fault)
        fault = fault.__cause__


async def test_unreachable_provider_is_named_without_the_user_of_its_address() -> None:
    async with Peer(steady) as peer:
        port = peer.port
    async with client_of() as client:
        provider = Provider("scripted", f"http://sk-test-user:x@127.0.0.1:{port}", "/v1", ("openai",))
        with pytest.raises(UpstreamUnreachable) as caught:
            async with client.attempt(provider, question()):
                raise AssertionError("nobody is there")
    assert "sk-test" not in str(caught.value)
    assert str(caught.value).startswith("provider scripted cannot be reached (")
    assert str(caught.value).endswith("); check providers.scripted.url")


@pytest.mark.parametrize(
    "headers, query",
    [
        ([("x-a", "1\r\nx-forged: 1")], ""),
        ([("x-a", "1\nx-forged: 1")], ""),
        ([("x-a\r\nx-forged", "1")], ""),
        ([("x-a", "1\r")], ""),
        ([("x-a", "\0")], ""),
        ([], "a b"),
        ([], "a\r\nx-forged: 1"),
    ],
)
async def test_what_would_be_read_as_another_field_is_not_sent(headers: list[tuple[str, str]], query: str) -> None:
    async with Peer(steady) as peer, client_of() as client:
        with pytest.raises(UpstreamInvalid, match=r"^provider scripted was not asked: "):
            await ask(client, peer, headers=headers, query=query)
        assert peer.connections == 0
        assert (await ask(client, peer))[0] == 200


@pytest.mark.parametrize("root", ["http://127.0.0.1:99999", "http://a..b", "http://" + "x" * 70 + ".test"])
async def test_address_that_is_none_is_called_unreachable(root: str) -> None:
    async with client_of() as client:
        with pytest.raises(UpstreamUnreachable, match=r"; check providers\.odd\.url$"):
            async with client.attempt(Provider("odd", root, "/v1", ("openai",)), question()):
                raise AssertionError("that is no address")


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with Peer(steady) as peer, client_of() as client:
        assert (await ask(client, peer))[0] == 200


async def test_provider_at_an_ipv6_address_is_asked_with_brackets_in_its_host() -> None:
    async with Peer(steady, host="::1") as peer, client_of() as client:
        assert (await ask(client, peer))[0] == 200
    assert f"Host: [::1]:{peer.port}".encode() in peer.questions[0].split(b"\r\n")


@pytest.mark.parametrize("ending", ["stays", "closes", "resets"])
async def test_answer_that_comes_before_the_body_was_read_is_given(ending: str) -> None:
    early = b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge"

    async def script(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        talk.writer.transport.pause_reading()
        await talk.send(early)
        if ending == "resets":
            talk.reset()
        elif ending == "stays":
            talk.writer.transport.resume_reading()
            await talk.gone()

    async with Peer(script, steady) as peer, client_of() as client:
        status, _, body = await ask(client, peer, body=b"x" * 30_000_000)
        assert (status, body) == (413, b"large")
        assert (await ask(client, peer))[2] == b"ok"
        assert peer.connections == 2, "a connection on which half a question is waiting carried another"


async def test_answer_that_lies_in_the_socket_when_writing_fails_is_given() -> None:
    """A loop that has not come to reading yet finds the reset first, while it writes the rest of the question."""

    async def script(talk: Talk) -> None:
        await talk.reader.readuntil(b"\r\n\r\n")
        talk.writer.transport.pause_reading()
        [wire] = client._wires
        assert wire._transport is not None
        wire._transport.pause_reading()
        await talk.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 5\r\n\r\nlarge")
        talk.reset()

    async with Peer(script) as peer, client_of() as client:
        status, _, body = await ask(client, peer, body=b"x" * 30_000_000)
    assert (status, body) == (413, b"large")


class Recorder(asyncio.Transport):
    """A transport that keeps what is done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True


def never(loss: Loss, reason: str, begun: bool) -> UpstreamFault:
    raise AssertionError(f"{loss}: {reason}")


async def test_provider_that_answers_before_it_is_asked_is_heard() -> None:
    freed: list[bool] = []
    transport, wire = Recorder(), Wire("", lambda wire, reusable: freed.append(reusable), lambda wire: None)
    wire.connection_made(transport)
    wire.data_received(b"HTTP/1.1 503 Full\r\nconnection: close\r\n")
    wire.data_received(b"content-length: 4\r\n\r\nfull")
    exchange = Exchange(never, bodiless=False)
    wire.ask(exchange, b"question", b"", 1.0, 1.0)
    async with asyncio.timeout(BOUND_S):
        await exchange.begun()
        assert (exchange.status, [chunk async for chunk in exchange]) == (503, [b"full"])
    assert (transport.written, transport.aborted, freed) == (b"question", True, [False])
    wire.connection_lost(None)


async def test_provider_that_says_very_much_before_it_is_asked_is_not_listened_to() -> None:
    transport, wire = Recorder(), Wire("", lambda wire, reusable: None, lambda wire: None)
    wire.connection_made(transport)
    for _ in range(2):
        wire.data_received(b"x" * 40_000)
    assert transport.aborted
    wire.connection_lost(None)
