"""Through a real proxy: what a provider is sent of a request that carries the keys of every vendor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import Client
from tests.support.proxy import Proxy
from tests.support.upstream import Seen, Upstream, plain

pytestmark = pytest.mark.usefixtures("no_traceback")
KEYS = {
    "Authorization": "Bearer sk-test-openai",
    "api-key": "sk-test-azure",
    "x-api-key": "sk-test-anthropic",
    "x-goog-api-key": "sk-test-google",
    "Cookie": "login=sk-test-cookie",
}
JSON = {"content-type": "application/json"}
MODELS = {"contents": [{"parts": [{"text": "hi"}]}]}
OPENAI, ANTHROPIC, GEMINI = ["api-key", "authorization"], ["x-api-key"], ["x-goog-api-key"]
# A call of each dialect, and calls that are passed through: method, path, body, what of KEYS goes on.
# ``/api`` without a session is the proxy's own.
CALLS = [
    ("POST", "/v1/chat/completions", {"model": "m", "messages": [chat.user("hi")]}, OPENAI),
    ("POST", "/v1/responses", {"model": "m", "input": "hi"}, OPENAI),
    ("POST", "/v1/completions", {"model": "m", "prompt": "hi"}, OPENAI),
    ("POST", "/v1/embeddings", {"model": "m", "input": "hi"}, OPENAI),
    ("POST", "/v1/messages", {"model": "m", "max_tokens": 5, "messages": [chat.user("hi")]}, ANTHROPIC),
    ("POST", "/v1/messages/count_tokens", {"model": "m", "messages": [chat.user("hi")]}, ANTHROPIC),
    ("POST", "/v1beta/models/m:generateContent", MODELS, GEMINI),
    ("POST", "/v1/models/m:countTokens", MODELS, GEMINI),
    ("POST", "/api/chat", {"model": "m", "messages": [chat.user("hi")]}, OPENAI),
    ("POST", "/api/embed", {"model": "m", "input": "hi"}, OPENAI),
    ("GET", "/v1/messages/batches", None, ANTHROPIC),
    ("GET", "/v1beta/files", None, GEMINI),
    ("GET", "/v1/tunedModels", None, GEMINI),
    ("GET", "/api/tags", None, OPENAI),
    ("GET", "/v1/models", None, GEMINI),  # x-goog-api-key says so
    ("POST", "/v1/images/generations", {"model": "m"}, GEMINI),
]


@pytest.fixture
def client(proxy: Proxy) -> Client:
    return proxy.client


def call(client: Client, place: str, method: str, path: str, body: object, headers: dict[str, str] = KEYS) -> None:
    client.send(method, place + path, JSON | headers, b"" if body is None else json.dumps(body).encode())


def credentials(seen: Seen) -> list[str]:
    """The names of the credentials that arrived, each as it was sent."""
    lower = {name.lower(): value for name, value in KEYS.items()}
    found = sorted(name.lower() for name in seen.headers.names() if name.lower() in lower)
    assert all(seen.headers.all(name) == [lower[name]] for name in found)
    return found


@pytest.mark.parametrize(
    ("placed", "method", "path", "body", "kept"),
    [(placed, *each) for each in CALLS for placed in (True, False) if placed or not each[1].startswith("/api")],
)
def test_provider_is_sent_the_credentials_of_its_own_dialect_only(
    upstream: Upstream,
    client: Client,
    session: str,
    placed: bool,
    method: str,
    path: str,
    body: object,
    kept: list[str],
) -> None:
    call(client, f"/s/{session}" if placed else "", method, path, body)
    assert [credentials(seen) for seen in upstream.requests] == [kept]


def test_list_of_models_goes_to_anthropic_without_the_bearer_of_another(
    upstream: Upstream, client: Client, session: str
) -> None:
    keys = {name: KEYS[name] for name in ("Authorization", "x-api-key")} | {"anthropic-version": "2023-06-01"}
    for agent in ("my-agent/1", "claude-cli/2.1.332 (external, sdk-cli)"):
        call(client, f"/s/{session}", "GET", "/v1/models", None, keys | {"user-agent": agent})
    assert [credentials(seen) for seen in upstream.requests] == [["x-api-key"], ["authorization", "x-api-key"]]


def test_only_credential_of_a_gateway_passes(upstream: Upstream, client: Client, session: str) -> None:
    method, path, body, _ = CALLS[0]
    call(client, f"/s/{session}", method, path, body, {"x-api-key": KEYS["x-api-key"]})
    assert [credentials(seen) for seen in upstream.requests] == [["x-api-key"]]


@pytest.fixture(scope="module")
def with_keys(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy that has a key of its own for every provider."""
    kinds = ("openai", "anthropic", "gemini", "ollama")
    data: Path = tmp_path_factory.mktemp("keys") / "data"
    settings = {f"providers.{kind}.key_env": "OUR_KEY" for kind in kinds}
    with Proxy(data, shared_upstream.url, settings=settings, environment={"OUR_KEY": "sk-test-ours"}) as running:
        yield running


@pytest.mark.parametrize(
    ("placed", "method", "path", "body", "kept"),
    [(placed, *each) for each in CALLS for placed in (True, False) if placed or not each[1].startswith("/api")],
)
def test_none_of_the_agents_credentials_goes_on_where_the_proxy_has_a_key(
    upstream: Upstream,
    with_keys: Proxy,
    session: str,
    placed: bool,
    method: str,
    path: str,
    body: object,
    kept: list[str],
) -> None:
    query = "?a=1&key=sk-test-query&access_token=sk-test-query"
    call(with_keys.client, f"/s/{session}" if placed else "", method, path + query, body)
    (seen,) = upstream.requests
    values = seen.raw_head.decode("latin-1")
    assert seen.target.endswith("?a=1")
    assert values.count("sk-test-") == values.count("sk-test-ours") == 1
    assert seen.headers.get(kept[-1]) in ("sk-test-ours", "Bearer sk-test-ours")


def test_poll_of_a_job_carries_what_its_provider_may_see(upstream: Upstream, client: Client, session: str) -> None:
    queued = b'{"id":"resp_1","object":"response","status":"queued","output":[]}'
    upstream.replies(plain(queued), plain(queued))
    call(client, f"/s/{session}", "POST", "/v1/responses", {"model": "m", "input": "hi", "background": True})
    call(client, f"/s/{session}", "GET", "/v1/responses/resp_1", None)
    assert [credentials(seen) for seen in upstream.requests[:2]] == [OPENAI, OPENAI]
