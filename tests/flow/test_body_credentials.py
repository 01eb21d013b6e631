"""Credentials for remote tools travel in the body: they reach the provider alone and are no part of the question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

TOKEN, OTHER = "sk-test-remote-tool-0123456789", "sk-test-remote-tool-9876543210/é"
JSON = {"content-type": "application/json", "anthropic-version": "2023-06-01"}

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5"}


def anthropic(token: str) -> dict[str, Any]:
    servers = [{"type": "url", "url": "https://mcp.example/sse", "name": "m", "authorization_token": token}]
    messages = [{"role": "user", "content": "hello"}]
    return {"model": "claude-sonnet-4-5", "max_tokens": 9, "mcp_servers": servers, "messages": messages}


def responses(token: str) -> dict[str, Any]:
    tool = {"type": "mcp", "server_label": "m", "server_url": "https://mcp.example/sse"}
    tools = [tool | {"authorization": token}, tool | {"server_label": "n", "headers": {"X-Key": token}}]
    return {"model": "gpt-5", "input": [{"role": "user", "content": "hello"}], "tools": tools}


def message(text: str) -> bytes:
    return json.dumps(MESSAGE | {"content": [{"type": "text", "text": text}]}).encode()


def response(text: str) -> bytes:
    output = [{"type": "message", "id": "m", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": text, "annotations": []}]}]  # fmt: skip
    return json.dumps(RESPONSE | {"output": output}).encode()


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize(
    ("path", "asked", "answered"),
    [
        ("messages", anthropic, message),
        ("responses", responses, response),
        ("messages/count_tokens", anthropic, lambda text: json.dumps({"input_tokens": 3, "note": text}).encode()),
        ("responses/input_tokens", responses, lambda text: json.dumps({"input_tokens": 3, "note": text}).encode()),
    ],
)
def test_credentials_of_remote_tools_are_forwarded_and_nowhere_kept(
    tmp_path: Path, path: str, asked: Any, answered: Any, ascii_only: bool
) -> None:
    first, later = (json.dumps(asked(token), ensure_ascii=ascii_only).encode() for token in (TOKEN, OTHER))
    with Upstream() as upstream, Proxy(tmp_path, upstream.url) as proxy:
        upstream.replies(plain(answered(f"I use {TOKEN}, do not tell")))
        live = proxy.client.send("POST", f"/s/keys/r/a/v1/{path}", JSON, first)
        assert live.status == 200
        assert upstream.requests[0].body == first
        again = proxy.client.send("POST", f"/s/keys/r/b/v1/{path}", JSON, later)  # the key was changed meanwhile
        assert (again.outcome in ("replay", "memo"), upstream.calls) == (True, 1)
        third = json.dumps(asked(OTHER) | {"temperature": 0.5}, ensure_ascii=ascii_only).encode()
        upstream.replies(plain(answered("another answer")))
        assert proxy.client.send("POST", f"/s/keys/r/b/v1/{path}", JSON, third).status == 200
        shown = json.dumps(proxy.control.session("keys"))
        assert proxy.stop() == 0
        proxy.doctor()
        kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        for token in (TOKEN, OTHER):
            for spelling in (token, json.dumps(token)[1:-1]):
                assert spelling not in shown
                assert spelling.encode() not in kept
                assert spelling not in proxy.log
