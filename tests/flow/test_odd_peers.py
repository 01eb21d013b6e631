"""Peers that are right but unusual: an HTTP/2 offer, an echoed key, packed bodies, ids of any script."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

from tests.support import chat
from tests.support.client import Client, chat_headers, chat_path
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

pytestmark = pytest.mark.usefixtures("no_traceback")


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


def test_offer_of_http2_is_ignored_and_its_body_is_read(upstream: Upstream, client: Client, session: str) -> None:
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA"}
    body = chat.request("hi")
    answer = client.send("POST", chat_path(session), chat_headers(offer), body)
    assert (answer.status, upstream.requests[0].body) == (200, body)


def test_credentials_that_a_provider_repeats_are_kept_nowhere(upstream: Upstream, proxy: Proxy, session: str) -> None:
    key = "sk-test-echoed-4c1d9f20"
    error = json.dumps({"error": {"message": f"Incorrect API key provided: {key}", "type": "x", "code": None}}).encode()
    upstream.replies(plain(error, 401, headers=[("x-echo", f"Bearer {key}")]))
    headers = chat_headers({"Authorization": f"Bearer {key}"})
    answer = proxy.client.send("POST", chat_path(session), headers, chat.request("hi"))
    assert (answer.status, answer.body) == (401, error), "the agent gets what the provider said"
    [step] = proxy.control.session(session)["steps"]
    assert key not in json.dumps(step)
    assert "[credential]" in step["response"] and "[credential]" in step["error"]


def test_run_id_of_any_script_is_answered_and_named_in_the_answer(client: Client, session: str) -> None:
    answer = client.send("POST", f"/s/{session}/r/%D0%B7%D0%B0/v1/chat/completions", chat_headers(), chat.request("hi"))
    assert (answer.status, answer.headers.get("x-agentstate-run")) == (200, "%D0%B7%D0%B0")


def test_payment_required_is_no_history(upstream: Upstream, client: Client, session: str) -> None:
    upstream.replies(plain(b'{"error": {"message": "no credit", "type": "x", "code": null}}', 402))
    assert client.ask(session, "first", run="a").status == 402
    assert client.ask(session, "second", run="a").status == 200
    assert client.ask(session, "first", run="b").status == 200


def test_gzip_of_several_members_arrives_whole(upstream: Upstream, client: Client, session: str) -> None:
    whole = chat.completion("packed twice")
    packed = gzip.compress(whole[:40]) + gzip.compress(whole[40:])
    upstream.replies(plain(packed, headers=[("content-encoding", "gzip")]))
    assert client.ask(session, "hi").body == whole


def test_zstd_is_unpacked_and_a_cut_one_is_no_answer(upstream: Upstream, client: Client, session: str) -> None:
    whole = chat.completion("packed " * 4000)
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(whole)
    upstream.replies(plain(packed, headers=[("content-encoding", "zstd")]))
    assert client.ask(session, "whole").body == whole
    upstream.replies(plain(packed[:-2], headers=[("content-encoding", "zstd")]))
    assert client.ask(session, "cut").status == 503
