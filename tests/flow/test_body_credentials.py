"""Credentials for remote tools travel in the body: they reach the provider alone and are no part of the question."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

TOKEN, OTHER = "sk-test-remote-tool-0123456789", "sk-test-remote-tool-9876543210/é"
SECRETS = (TOKEN, OTHER, "9876543210")
JSON = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
MESSAGES = [{"role": "user", "content": "hello"}]
CONTENTS = [{"role": "user", "parts": [{"text": "hello"}]}]
REMOTE = {"type": "mcp", "server_label": "m", "server_url": "https://mcp.example/sse"}
Asked = Callable[[str], dict[str, Any]]


# --- what is answered -------------------------------------------------------------------------------------------------


def chat(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "chat.completion", "model": "gpt-5", "choices": [choice]}).encode()


def completion(text: str) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    return json.dumps({"id": "c", "object": "text_completion", "model": "m", "choices": [choice]}).encode()


def response(text: str) -> bytes:
    output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": text, "annotations": []}]}]  # fmt: skip
    whole = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5", "output": output}
    return json.dumps(whole).encode()


def message(text: str) -> bytes:
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
             "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
             "content": [{"type": "text", "text": text}]}  # fmt: skip
    return json.dumps(whole).encode()


def candidate(text: str) -> bytes:
    content = {"role": "model", "parts": [{"text": text}]}
    return json.dumps({"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}]}).encode()


def line(text: str) -> bytes:
    said = {"role": "assistant", "content": text}
    return json.dumps({"model": "m", "message": said, "done": True, "done_reason": "stop"}).encode()


def count(text: str) -> bytes:
    return json.dumps({"input_tokens": 3, "totalTokens": 3, "data": [], "note": text}).encode()


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a credential stands in a body, and how such a request is answered."""

    name: str
    path: str
    asked: Asked
    answered: Callable[[str], bytes]


CHAT = "v1/chat/completions"
RESPONSES, ANTHROPIC = "v1/responses", "v1/messages"
GEMINI = "v1beta/models/gemini-2.5-flash:generateContent"


def of_chat(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": MESSAGES, **more}


def of_responses(**more: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": MESSAGES, **more}


def of_anthropic(**more: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": MESSAGES, **more}


def server(token: str) -> dict[str, Any]:
    return {"type": "url", "url": "https://mcp.example/sse", "name": "m", "authorization_token": token}


def transport(token: str, name: str = "streamableHttpTransport") -> dict[str, Any]:
    return {"name": "m", name: {"url": "https://mcp.example", "headers": {"Authorization": f"Bearer {token}"}}}


def keyed(token: str) -> dict[str, Any]:
    return {"googleMaps": {"authConfig": {"apiKeyConfig": {"apiKeyString": token}}}}


def added(token: str) -> list[dict[str, Any]]:
    return [*MESSAGES, {"type": "additional_tools", "role": "developer", "tools": [REMOTE | {"authorization": token}]}]


def source(token: str) -> dict[str, Any]:
    how = {"type": "api_key", "key": token}
    return {"type": "azure_search", "parameters": {"endpoint": "https://search.example", "authentication": how}}


PLACES = [
    Place("server", ANTHROPIC, lambda t: of_anthropic(mcp_servers=[server(t)]), message),
    Place("counted server", "v1/messages/count_tokens", lambda t: of_anthropic(mcp_servers=[server(t)]), count),
    Place("metadata", ANTHROPIC, lambda t: of_anthropic(metadata={"api_key": t}), message),
    Place("authorization", RESPONSES, lambda t: of_responses(tools=[REMOTE | {"authorization": t}]), response),
    Place("headers", RESPONSES, lambda t: of_responses(tools=[REMOTE | {"headers": {"X-Key": t}}]), response),
    Place("added tools", RESPONSES, lambda t: of_responses(input=added(t)), response),
    Place("chosen tool", RESPONSES, lambda t: of_responses(tool_choice=REMOTE | {"headers": {"x": f"Bearer {t}"}}),
          response),
    Place("query of an address", RESPONSES,
          lambda t: of_responses(tools=[REMOTE | {"server_url": f"https://mcp.example/sse?a=b&api_key={t[:30]}"}]),
          response),
    Place("user of an address", RESPONSES,
          lambda t: of_responses(tools=[REMOTE | {"server_url": f"https://me:{t[:30]}@mcp.example/sse"}]), response),
    Place("secrets of a container", RESPONSES,
          lambda t: of_responses(tools=[{"type": "code_interpreter", "container": {"type": "auto", "network_policy": {
              "domain_secrets": [{"domain": "x.example", "name": "KEY", "value": t}]}}}]), response),
    Place("counted authorization", "v1/responses/input_tokens",
          lambda t: of_responses(tools=[REMOTE | {"authorization": t}]), count),
    Place("counted added tools", "v1/responses/input_tokens", lambda t: of_responses(input=added(t)), count),
    Place("repeated by the user", RESPONSES,
          lambda t: of_responses(tools=[REMOTE | {"token": t}], input=[{"role": "user", "content": f"use {t}"}]),
          response),
    Place("tool of chat", CHAT, lambda t: of_chat(tools=[REMOTE | {"authorization": t}]), chat),
    Place("headers of chat", CHAT, lambda t: of_chat(tools=[{"type": "mcp", "mcp": {"headers": {"key": t}}}]), chat),
    Place("tools of a message", CHAT,
          lambda t: of_chat(messages=[*MESSAGES, {"role": "system", "tools": [REMOTE | {"authorization": t}]}]), chat),
    Place("data source", CHAT, lambda t: of_chat(data_sources=[source(t)]), chat),
    Place("key of a gateway", CHAT, lambda t: of_chat(api_key=t, extra_headers={"x-api-key": t}), chat),
    Place("key of completions", "v1/completions", lambda t: {"model": "m", "prompt": "hi", "api_key": t}, completion),
    Place("key of embeddings", "v1/embeddings", lambda t: {"model": "m", "input": "hello", "api_key": t}, count),
    Place("transport", GEMINI, lambda t: {"contents": CONTENTS, "tools": [{"mcpServers": [transport(t)]}]}, candidate),
    Place("snake transport", GEMINI, lambda t: {
        "contents": CONTENTS, "tools": [{"mcp_servers": [transport(t, "streamable_http_transport")]}]}, candidate),
    Place("key of maps", GEMINI, lambda t: {"contents": CONTENTS, "tools": [keyed(t)]}, candidate),
    Place("counted transport", "v1beta/models/gemini-2.5-flash:countTokens",
          lambda t: {"generateContentRequest": {"contents": [], "tools": [{"mcpServers": [transport(t)]}]}}, count),
    Place("headers of Ollama", "api/chat", lambda t: {
        "model": "m", "stream": False, "messages": MESSAGES, "tools": [REMOTE | {"headers": {"cookie": t}}]}, line),
]  # fmt: skip
OPAQUE = ("server", "counted server", "authorization", "added tools", "tool of chat", "key of completions",
          "key of embeddings", "transport", "counted transport", "headers of Ollama")  # fmt: skip


def lasting(proxy: Proxy, session: str, folder: Path) -> str:
    """All that is kept, told and logged when the proxy has ended, with what it has shown of a session before."""
    shown = json.dumps(proxy.control.session(session), ensure_ascii=False)
    assert proxy.stop() == 0
    proxy.doctor()
    kept = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    return shown + kept.decode("latin-1") + kept.decode("utf-8", "replace") + proxy.log


def leaks(kept: str, secrets: tuple[str, ...] = SECRETS) -> list[str]:
    return [way for secret in secrets for way in {secret, json.dumps(secret)[1:-1]} if way in kept]


def ask(proxy: Proxy, upstream: Upstream, run: str, path: str, body: bytes, answer: bytes) -> str:
    """Ask; the outcome. What reached the provider, if anything did, is what was sent."""
    calls = upstream.calls
    upstream.replies(plain(answer))
    got = proxy.client.send("POST", f"/s/keys/r/{run}/{path}", JSON, body)
    assert got.status == 200, (path, got.body)
    if upstream.calls > calls:
        assert upstream.requests[-1].body == body
    return got.outcome


@pytest.mark.parametrize("ascii_only", [True, False])
def test_credentials_of_remote_tools_are_forwarded_and_nowhere_kept(tmp_path: Path, ascii_only: bool) -> None:
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        for place in PLACES:
            body, later, third = (
                json.dumps(asked, ensure_ascii=ascii_only).encode()
                for asked in (place.asked(TOKEN), place.asked(OTHER), place.asked(OTHER) | {"name": place.name})
            )
            mine = f"{place.name.replace(' ', '-')}"
            said = place.answered(f"I use {TOKEN}, do not tell")
            assert ask(proxy, upstream, f"{mine}-a", place.path, body, said) in ("live", "diverged"), place.name
            # The key was changed meanwhile.
            again = ask(proxy, upstream, f"{mine}-b", place.path, later, place.answered("new"))
            assert again in ("replay", "memo"), place.name
            assert ask(proxy, upstream, f"{mine}-b", place.path, third, place.answered("new")) in ("live", "diverged")
        assert leaks(lasting(proxy, "keys", tmp_path)) == []


@pytest.mark.parametrize("odd", ['"\\ud800"', "1e999", "123456789012345678901234567890"])
def test_credentials_in_bodies_that_only_a_lenient_parser_takes_are_nowhere_kept(tmp_path: Path, odd: str) -> None:
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        for place in (place for place in PLACES if place.name in OPAQUE):
            mine = place.name.replace(" ", "-")
            body, later = (
                (json.dumps(place.asked(token))[:-1] + f', "odd": {odd}}}').encode() for token in (TOKEN, OTHER)
            )
            said = place.answered(f"I use {TOKEN}, do not tell")
            assert ask(proxy, upstream, f"{mine}-a", place.path, body, said) in ("live", "diverged"), place.name
            again = ask(proxy, upstream, f"{mine}-b", place.path, later, place.answered("new"))
            assert again in ("replay", "memo"), place.name
        assert leaks(lasting(proxy, "keys", tmp_path)) == []


def listed(token: str) -> bytes:
    return json.dumps(of_chat(tools=[REMOTE | {"headers": [f"Authorization: Bearer {token}"]}])).encode()


def deep(token: str) -> bytes:
    hidden: Any = {"authorization": token}
    for _ in range(120):
        hidden = {"more": hidden}
    return json.dumps(of_chat(tools=[REMOTE | hidden])).encode()


def twice(token: str) -> bytes:
    return json.dumps(of_chat(tools=[REMOTE | {"authorization": token}]))[:-1].encode() + b', "tools": []}'


def wide(token: str) -> bytes:
    return b"\xfe\xff" + json.dumps(of_chat(api_key=token)).encode("utf-16-be")


def escaped(token: str) -> bytes:
    return json.dumps(of_chat(tools=[REMOTE | {"authorization": token}])).replace("author", "\\u0061uthor").encode()


@pytest.mark.parametrize("spelled", [listed, deep, twice, wide, escaped])
def test_body_whose_credentials_are_hard_to_find_is_answered_replayed_and_not_kept_as_it_came(
    tmp_path: Path, spelled: Callable[[str], bytes]
) -> None:
    body = spelled(TOKEN)
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        assert ask(proxy, upstream, "a", CHAT, body, chat("done")) == "live"
        assert ask(proxy, upstream, "b", CHAT, body, chat("new")) == "replay"
        kept = lasting(proxy, "keys", tmp_path)
        assert leaks(kept) == [] and leaks(kept, ("\0".join(TOKEN),)) == []
        if spelled in (listed, deep, wide):
            assert "agentstate_withheld" in kept


def test_key_in_the_query_is_forwarded_and_nowhere_kept(tmp_path: Path) -> None:
    body = json.dumps({"contents": CONTENTS}).encode()
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        assert ask(proxy, upstream, "a", f"{GEMINI}?key={TOKEN}", body, candidate(TOKEN)) == "live"
        assert upstream.requests[0].target.endswith(f"?key={TOKEN}")
        assert ask(proxy, upstream, "b", f"{GEMINI}?key={TOKEN[::-1]}", body, candidate("new")) == "replay"
        assert leaks(lasting(proxy, "keys", tmp_path), (TOKEN, TOKEN[::-1])) == []


def test_header_of_a_remote_tool_that_is_no_credential_counts(tmp_path: Path) -> None:
    first, second = (
        json.dumps(of_responses(tools=[REMOTE | {"headers": {"X-Region": region, "X-Key": TOKEN}}])).encode()
        for region in ("eu", "us")
    )
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        assert ask(proxy, upstream, "a", RESPONSES, first, response("one")) == "live"
        assert ask(proxy, upstream, "b", RESPONSES, second, response("two")) == "diverged"
        assert ask(proxy, upstream, "c", RESPONSES, first, response("three")) == "replay"
        assert upstream.calls == 2
