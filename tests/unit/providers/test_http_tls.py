"""Providers behind TLS: whom they must prove to be, and what is said of those that do not."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import pytest

from agentstate.errors import UpstreamUnreachable
from agentstate.providers.http import HttpClient
from tests.unit.providers.peer import OK, Peer, Talk, client_of, question, steady


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) of this test's own authority, for localhost and 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    paths = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", "/CN=scripted", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-out", str(paths[0]), "-keyout", str(paths[1]),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return paths


@pytest.fixture
def server_side(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """What the peer speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client takes the test's authority for one."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))


async def body_of(client: HttpClient, peer: Peer, host: str) -> bytes:
    async with client.attempt(peer.provider(scheme="https", host=host), question()) as reply:
        return b"".join([chunk async for chunk in reply.chunks])


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_provider_with_a_good_certificate_is_asked_on_one_connection(
    host: str, server_side: ssl.SSLContext
) -> None:
    spoken: list[str | None] = []

    async def script(talk: Talk) -> None:
        spoken.append(talk.writer.get_extra_info("ssl_object").selected_alpn_protocol())
        await steady(talk)

    async with Peer(script, tls=server_side) as peer, client_of() as client:
        assert [await body_of(client, peer, host) for _ in range(3)] == [b"ok"] * 3
        assert (peer.connections, spoken) == (1, ["http/1.1"])


@pytest.mark.usefixtures("trusted")
async def test_large_bodies_pass_through_tls_both_ways(server_side: ssl.SSLContext) -> None:
    size = 6 * 2**20

    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, b"y" * size)
        await talk.gone()

    async with Peer(script, tls=server_side) as peer, client_of() as client:
        provider = peer.provider(scheme="https", host="localhost")
        async with client.attempt(provider, question(b"x" * size)) as reply:
            assert b"".join([chunk async for chunk in reply.chunks]) == b"y" * size
        assert len(peer.questions[0]) > size


@pytest.mark.usefixtures("trusted")
async def test_connection_that_a_provider_closed_is_not_reused_behind_tls(server_side: ssl.SSLContext) -> None:
    async def script(talk: Talk) -> None:
        await talk.question()
        await talk.send(OK)

    async with Peer(script, steady, tls=server_side) as peer, client_of() as client:
        for at in range(2):
            assert await body_of(client, peer, "localhost") == b"ok"
            while not at and any(wire.ready() for wire in client._wires):
                await asyncio.sleep(0.001)
        assert (peer.connections, len(peer.questions)) == (2, 2)


async def test_certificate_that_nobody_vouches_for_makes_the_provider_unreachable(server_side: ssl.SSLContext) -> None:
    async with Peer(steady, tls=server_side) as peer, client_of() as client:
        with pytest.raises(UpstreamUnreachable, match=r"cannot be reached \(.*certificate verify failed.*\); check"):
            await body_of(client, peer, "localhost")
        assert (peer.questions, client._free) == ([], client.settings.connections)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("host", ["127.0.0.2", "other.test"])
async def test_certificate_of_another_host_makes_the_provider_unreachable(
    host: str, server_side: ssl.SSLContext
) -> None:
    at = "127.0.0.2" if host == "127.0.0.2" else "127.0.0.1"  # the latter's address stands in the certificate
    async with Peer(steady, tls=server_side, host=at) as peer, client_of() as client:
        client._addresses["other.test", peer.port] = (asyncio.get_running_loop().time() + 60, [at])
        with pytest.raises(UpstreamUnreachable, match=r"cannot be reached \(.*certificate verify failed.*\); check"):
            await body_of(client, peer, host)
        assert peer.questions == []


async def test_provider_that_speaks_no_tls_is_unreachable() -> None:
    async def script(talk: Talk) -> None:
        await talk.send(b"HTTP/1.1 400 Plain\r\ncontent-length: 0\r\n\r\n")
        await talk.gone()

    async with Peer(script) as peer, client_of() as client:
        with pytest.raises(UpstreamUnreachable, match=r"^provider scripted cannot be reached \(.+\); check"):
            await body_of(client, peer, "localhost")


async def test_connection_that_does_not_come_about_is_timed_out() -> None:
    async def script(talk: Talk) -> None:
        await talk.gone()

    async with Peer(script) as peer, client_of(connect_timeout_s=0.1) as client:
        with pytest.raises(UpstreamUnreachable, match=r"^provider scripted could not be reached in time; check"):
            await body_of(client, peer, "127.0.0.1")
        assert client._free == client.settings.connections


@pytest.mark.usefixtures("trusted")
async def test_address_that_does_not_answer_keeps_the_next_one_waiting_for_a_moment_only(
    server_side: ssl.SSLContext,
) -> None:
    async with Peer(steady, tls=server_side) as peer, client_of() as client:
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.2", peer.port)
        async with silent:
            until = asyncio.get_running_loop().time() + 60
            client._addresses["localhost", peer.port] = (until, ["127.0.0.2", "127.0.0.1"])
            assert await body_of(client, peer, "localhost") == b"ok"
            assert len(client._wires) == 1, "the slow connection was left open"
