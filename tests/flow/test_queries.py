"""Through a real proxy: a query is part of the question, and no credential in it is kept."""

from __future__ import annotations

import json

import pytest

from tests.support import chat
from tests.support.client import Answer, Client, chat_headers
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

pytestmark = pytest.mark.usefixtures("no_traceback")
PATHS = {
    "v1/chat/completions": {"model": "m", "messages": [chat.user("hi")]},
    "v1/responses": {"model": "m", "input": "hi"},
    "v1/messages": {"model": "m", "max_tokens": 5, "messages": [chat.user("hi")]},
    "v1/embeddings": {"model": "m", "input": "hi"},
    "v1beta/models/m:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    "api/chat": {"model": "m", "stream": False, "messages": [chat.user("hi")]},
}


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


def ask(client: Client, session: str, run: str, path: str, query: str, body: object = None) -> Answer:
    sent = json.dumps(PATHS[path] if body is None else body).encode()
    return client.send("POST", f"/s/{session}/r/{run}/{path}?{query}", chat_headers(), sent)


@pytest.mark.parametrize("path", PATHS)
def test_answer_for_one_tenant_is_never_given_to_another(
    upstream: Upstream, client: Client, proxy: Proxy, session: str, path: str
) -> None:
    ask(client, session, "a", path, "tenant=a&key=sk-test-0123456789")
    ask(client, session, "b", path, "tenant=b&key=sk-test-0123456789")
    assert [seen.target.partition("?")[2].partition("&")[0] for seen in upstream.requests] == ["tenant=a", "tenant=b"]
    assert [step["step_number"] for step in proxy.control.steps(session)] == [0, 1]
    assert b"sk-test-0123456789" not in proxy.stored_bytes()


def test_masked_match_is_found_under_the_same_query_and_only_there(
    upstream: Upstream, client: Client, session: str
) -> None:
    bodies = [{"model": "m", "messages": [chat.system(f"It is {day}."), chat.user("hi")]}
              for day in ("2026-03-01T09:30:00Z", "2026-03-02T10:45:00Z")]  # fmt: skip
    path = "v1/chat/completions"
    for place, (asked, outcome, match) in {
        "one": ("key=sk-test-2&api-version=1", "replay", "masked"),
        "two": ("api-version=2", "diverged", None),
    }.items():
        first = ask(client, f"{session}-{place}", "a", path, "api-version=1&key=sk-test-1", bodies[0])
        again = ask(client, f"{session}-{place}", "b", path, asked, bodies[1])
        assert (again.outcome, again.headers.get("x-agentstate-match")) == (outcome, match)
        assert (again.body == first.body) is (match is not None)
    assert upstream.calls == 3


def test_divergence_by_the_query_alone_is_told_as_such(client: Client, proxy: Proxy, session: str) -> None:
    ask(client, session, "a", "v1/chat/completions", "tenant=a")
    ask(client, session, "b", "v1/chat/completions", "tenant=b")
    found = proxy.control.run(session, "b")["divergence"]
    assert found["nearest"]["diff"] == [
        {"path": "(address)", "recorded": "chat/completions?tenant=a", "asked": "chat/completions?tenant=b",
         "where": "the address", "volatile": False},
    ]  # fmt: skip


def test_journal_with_queries_is_sound(tmp_path_factory: pytest.TempPathFactory, shared_upstream: Upstream) -> None:
    with Proxy(tmp_path_factory.mktemp("sound") / "data", shared_upstream.url) as proxy:
        for path in PATHS:
            ask(proxy.client, "s", "a", path, "tenant=a&x=%2F&key=sk-test-1&$alt=json%3Bx%3Dy")
        assert proxy.stop() == 0
        proxy.doctor()
