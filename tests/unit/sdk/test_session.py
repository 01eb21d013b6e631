"""``session()``: every address, header and variable names the same work, and nothing is connected unless asked for."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from urllib.parse import unquote, urlsplit

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentstate
from agentstate.cli.run import environment
from agentstate.errors import AgentStateError, Unauthorized
from agentstate.sdk import http
from agentstate.server.address import read_path
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

TOKEN = "sk-test-admin-token"
PROXY = "http://proxy.test:8080"


def test_every_form_of_the_address_names_session_and_run() -> None:
    with agentstate.session("invoice-42", PROXY) as s:
        assert (s.id, s.run) == ("invoice-42", http.run_id())
        root = f"{PROXY}/s/invoice-42/r/{s.run}"
        assert s.base_url == f"{root}/v1"
        assert s.anthropic_base_url == s.gemini_base_url == root
        assert s.headers == {"x-agent-session-id": "invoice-42", "x-agent-run-id": s.run}


@given(st.text(min_size=1, max_size=256))
def test_the_server_reads_the_session_that_was_named(name: str) -> None:
    try:
        s = agentstate.session(name, PROXY)
    except ValueError:
        assert not name.strip() or re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name)
        return
    for url in (s.base_url, s.anthropic_base_url + "/v1", s.gemini_base_url + "/v1beta"):
        assert url.isascii()
        found = read_path(urlsplit(url).path + "/x")
        assert (found.session, found.run) == (name, s.run)
    assert s.headers.get("x-agent-session-id", name) == name


@pytest.mark.parametrize(
    ("given_url", "root"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("http://h:1/k/a%2Fb/v1", "http://h:1/k/a%2Fb"),
        ("http://h:1/s/job/v1", "http://h:1"),
        ("https://h/prefix", "https://h/prefix"),
    ],
)
def test_the_address_may_be_given_in_every_form_that_the_wrappers_take(given_url: str, root: str) -> None:
    s = agentstate.session("job", given_url)
    assert s.base_url == f"{root}/s/job/r/{s.run}/v1"
    assert s.environ["AGENTSTATE_URL"] == f"{root}/v1"


def test_a_run_in_the_address_is_kept() -> None:
    s = agentstate.session("job", "http://h:1/s/job/r/run_7/v1")
    assert (s.run, s.headers["x-agent-run-id"], s.base_url) == ("run_7", "run_7", "http://h:1/s/job/r/run_7/v1")


def test_session_run_and_address_may_come_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSTATE_SESSION_ID", "from-outside")
    monkeypatch.setenv("AGENTSTATE_RUN_ID", "run-outside")
    monkeypatch.setenv("AGENTSTATE_URL", f"{PROXY}/v1")
    s = agentstate.session()
    assert (s.id, s.run, s.base_url) == ("from-outside", "run-outside", f"{PROXY}/s/from-outside/r/run-outside/v1")


def test_what_cannot_be_sent_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="session_id is empty"):
        agentstate.session("")
    with pytest.raises(ValueError, match="AGENTSTATE_SESSION_ID"):
        agentstate.session()
    with pytest.raises(ValueError, match="base_url must be the proxy's address"):
        agentstate.session("job", "h:1")


def test_a_client_without_a_wrapper_works_within_the_session(server: Upstream) -> None:
    with agentstate.session("invoice-42", server.url) as s:
        client = openai.OpenAI(base_url=s.base_url, api_key="sk-test-0123")
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hello"}])
    assert server.requests[-1].target == f"/s/invoice-42/r/{s.run}/v1/chat/completions"


# --- variables ---


@pytest.mark.parametrize("name", ["invoice-42", "ä b/1"])
def test_the_variables_are_those_of_the_supervisor(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = {
        "OPENAI_CUSTOM_HEADERS": "x-mine: 1\nX-Agent-Session-Id: outer",
        "NO_PROXY": "example.com, localhost",
        "no_proxy": "*",
    }
    for variable, value in outside.items():
        monkeypatch.setenv(variable, value)
    s = agentstate.session(name, PROXY)
    assert s.environ == environment(outside, PROXY, name, s.run)
    assert s.environ["OLLAMA_HOST"] == s.anthropic_base_url


def test_a_child_that_is_given_the_variables_works_in_the_same_session_and_run() -> None:
    s = agentstate.session("invoice-42", PROXY)
    code = "import agentstate; s = agentstate.session(); print(s.id, s.run, s.base_url)"
    said = subprocess.check_output([sys.executable, "-c", code], env=os.environ | s.environ, text=True, timeout=60)
    assert said.split() == [s.id, s.run, s.base_url]


def test_what_is_given_out_can_be_changed_without_harm() -> None:
    s = agentstate.session("job", PROXY)
    s.headers.clear()
    s.environ.clear()
    assert s.headers["x-agent-session-id"] == "job" and s.environ["AGENTSTATE_SESSION_ID"] == "job"


# --- the end ---


def _noted(seen: Seen) -> Reply:
    return plain(b'{"message":"noted"}')


def _statuses(server: Upstream) -> list[tuple[str, str | None, object]]:
    return [(seen.target, seen.headers.get("authorization"), json.loads(seen.body)) for seen in server.requests]


def test_entering_and_leaving_connects_to_nothing(server: Upstream) -> None:
    with agentstate.session("job", server.url):
        pass

    async def work() -> None:
        async with agentstate.session("job", server.url):
            pass

    asyncio.run(work())
    assert server.requests == []


def test_a_clean_end_marks_the_session_only_when_asked_to(server: Upstream) -> None:
    server.reset(_noted)
    with agentstate.session("инвойс/1", f"{server.url.removesuffix('/v1')}/k/key/v1", complete=True, admin_token=TOKEN):
        assert server.requests == []
    [(target, authorization, body)] = _statuses(server)
    assert unquote(target) == "/api/sessions/инвойс/1/status" and "%2F1/status" in target
    assert (authorization, body) == (f"Bearer {TOKEN}", {"status": "COMPLETED"})


def test_a_clean_end_of_an_async_block_does_too(server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    server.reset(_noted)
    monkeypatch.setenv("AGENTSTATE_ADMIN_TOKEN", TOKEN)

    async def work() -> None:
        async with agentstate.session("job", server.url, complete=True) as s:
            assert s.id == "job"

    asyncio.run(work())
    assert _statuses(server) == [("/api/sessions/job/status", f"Bearer {TOKEN}", {"status": "COMPLETED"})]


@pytest.mark.parametrize("complete", [False, True])
def test_a_real_proxy_keeps_the_session_open_or_notes_that_it_is_completed(
    proxy: Proxy, upstream: Upstream, session: str, complete: bool
) -> None:
    name = f"{session}/ende ä"
    token = proxy.admin_token if complete else None
    with agentstate.session(name, proxy.url, complete=complete, admin_token=token) as s:
        client = openai.OpenAI(base_url=s.base_url, api_key="sk-test-0123")
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "hello"}])
    found = {row["id"]: row["status"] for row in proxy.control.get("/api/sessions?limit=1000")}
    assert found[name] == ("COMPLETED" if complete else "RUNNING")
    assert upstream.calls == 1


def test_an_exception_leaves_the_session_open_and_goes_on(server: Upstream) -> None:
    with (
        pytest.raises(RuntimeError, match="crash"),
        agentstate.session("job", server.url, complete=True, admin_token=TOKEN),
    ):
        raise RuntimeError("crash")

    async def work() -> None:
        async with agentstate.session("job", server.url, complete=True, admin_token=TOKEN):
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        asyncio.run(work())
    assert server.requests == []


def test_completing_without_a_token_is_refused_before_the_work_begins() -> None:
    with pytest.raises(ValueError, match="AGENTSTATE_ADMIN_TOKEN"):
        agentstate.session("job", complete=True)


def test_a_session_that_was_never_journaled_needs_no_mark(server: Upstream) -> None:
    server.reset(lambda seen: plain(b'{"error":{"message":"there is no session","code":"not_found"}}', 404))
    with agentstate.session("job", server.url, complete=True, admin_token=TOKEN):
        pass
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, b'{"error":{"code":"unauthorized"}}', Unauthorized, "refuses the admin token"),
        (404, b"<html>no such page</html>", AgentStateError, "is it the proxy's address"),
        (404, b'{"error":"no"}', AgentStateError, "is it the proxy's address"),
        (503, b"", AgentStateError, "answered 503"),
    ],
)
def test_a_mark_that_is_refused_is_told_without_the_token(
    server: Upstream, status: int, body: bytes, kind: type[AgentStateError], said: str
) -> None:
    server.reset(lambda seen: plain(body, status))
    with (
        pytest.raises(kind, match=said) as refused,
        agentstate.session("job", server.url, complete=True, admin_token=TOKEN),
    ):
        pass
    assert "'job'" in str(refused.value) and TOKEN not in str(refused.value)


def test_a_proxy_that_is_gone_is_told_with_what_follows() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(AgentStateError, match=f"the proxy at {url} does not answer.*replayed"),
            agentstate.session("job", url, complete=True, admin_token=TOKEN),
        ):
            pass


def test_the_token_shows_in_no_representation() -> None:
    s = agentstate.session("job", complete=True, admin_token=TOKEN)
    assert repr(s) == f"session('job', run={s.run!r})" and TOKEN not in str(s)
