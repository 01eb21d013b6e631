"""The log of a real proxy at its most talkative: a line a step, and neither bodies nor credentials in any."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import chat
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Rst, Seen, Upstream, plain, stream

BOUND_S = 20.0
SECRETS = {
    "header": "sk-test-in-a-header", "query": "in-the-query-7f3a91", "body": "sk-test-in-a-body",
    "key": "own-key-of-the-proxy-5521", "cookie": "cookie-of-the-agent-812", "hook": "T000-address-of-the-hook",
}  # fmt: skip
PROMPT, ANSWER = "the prompt that nobody may read", "the answer that nobody may read"


def answers(seen: Seen) -> Reply:
    """Whatever came is said back, in errors above all."""
    said = seen.raw_head.decode("latin-1") + seen.body.decode()
    if "mcp" in seen.target:
        return plain(json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": said}}).encode())
    if "refuse" in said:
        return plain(json.dumps({"error": {"message": said}}).encode(), 401, headers=[("x-request-id", "req_1")])
    if "page" in said:
        return plain(b"<html>" + said.encode(), 502, content_type="text/html")
    if "invalid" in said:
        return plain(said.encode())
    if "cut" in said:
        return [b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + said.encode(), Rst()]
    if "mail" in said:
        return plain(chat.completion(None, tool_calls=[chat.tool_call("send_email", json.dumps({"to": PROMPT}))]))
    if '"stream": true' in said:
        return stream(*chat.chunks(ANSWER, name="s"))
    return plain(chat.completion(ANSWER))


@pytest.fixture(scope="module")
def model() -> Iterator[Upstream]:
    with Upstream(answers) as running:
        yield running


def proxy_of(model: Upstream, folder: Path, **settings: str) -> Proxy:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        nobody = sock.getsockname()[1]
    file = f"""
[[alerts]]
kind = "webhook"
url = "http://127.0.0.1:{nobody}/{SECRETS["hook"]}"
[mcp.bank]
url = "{model.url.removesuffix("/v1")}/mcp"
headers_env = ["authorization=OF_BANK"]
"""
    given = {
        "log.level": "debug",
        "log.steps": "all",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return Proxy(folder, model.url, settings=given, file=file, environment={"OF_BANK": f"Bearer {SECRETS['key']}"})


def provoke(proxy: Proxy, run: str) -> None:
    """Everything that is logged about: answers, refusals, cuts, nonsense, divergence, tools, holds, a bad request."""
    headers = {
        "authorization": f"Bearer {SECRETS['header']}", "cookie": SECRETS["cookie"], "x-api-key": SECRETS["header"]
    }  # fmt: skip
    path = f"/s/talk/r/{run}/v1/chat/completions?key={SECRETS['query']}&token={SECRETS['query']}"
    for text in ("hello", "refuse", "page", "invalid", "cut", "stream"):
        body = chat.request(
            f"{PROMPT} {text} {SECRETS['body']} of {run if text == 'hello' else ''}", stream=text == "stream"
        )
        proxy.client.send("POST", path, {**headers, "content-type": "application/json"}, body)
        proxy.client.send("POST", path.partition("v1/")[0] + "v1/chat/completions", headers, body[:-1])
        proxy.client.send("POST", f"/v1/chat/completions?key={SECRETS['query']}", headers, body)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"to": PROMPT}}}
    kind = {"content-type": "application/json", "accept": "application/json"}
    proxy.client.send("POST", f"/s/talk/r/{run}/mcp/bank", {**headers, **kind}, json.dumps(call).encode())
    proxy.client.send("GET", "/api/sessions", headers)
    proxy.client.send("GET", f"/api/sessions?token={SECRETS['query']}", {"host": "evil.test", **headers})


@pytest.mark.parametrize("kind", ["text", "json"])
def test_no_line_holds_a_body_or_a_credential(model: Upstream, tmp_path: Path, kind: str) -> None:
    with proxy_of(model, tmp_path / "data", log_format=kind) as proxy:
        admin = proxy.admin_token
        for run in ("a", "b"):
            provoke(proxy, run)
        asking = Asking(lambda: proxy.client.ask("mails", f"mail {PROMPT}", run="a"))
        decide(proxy, pending(proxy)[0], "APPROVED", reason="because")
        assert asking.answer().status == 200
        assert proxy.stop() == 0
        log = proxy.log
    assert "Traceback" not in log
    for where, text in {**SECRETS, "prompt": PROMPT, "answer": ANSWER, "admin": admin}.items():
        assert text not in log, where
    for told in ("live", "replay", "http_401", "diverged", "upstream_cut", "held"):
        assert told in log, log
    if kind == "json":
        lines = [json.loads(line) for line in log.splitlines()]
        assert all({"at", "level", "message"} <= set(line) for line in lines)


def lines_of(proxy: Proxy, count: int) -> list[dict[str, Any]]:
    """The lines about steps, once there are so many."""
    until = time.monotonic() + BOUND_S
    while True:
        found = [json.loads(line) for line in proxy.log.splitlines() if line.endswith("}")]
        steps = [line for line in found if line["message"] == "step"]
        if len(steps) >= count:
            return steps
        assert time.monotonic() < until, proxy.log
        time.sleep(0.01)


def test_a_line_tells_what_an_operator_asks_of_a_step(model: Upstream, tmp_path: Path) -> None:
    with proxy_of(model, tmp_path / "data", log_format="json") as proxy:
        proxy.client.ask("s", "hello", run="a")
        proxy.client.ask("s", "hello", run="b")
        proxy.client.ask("s", "refuse", run="b")
        live, replay, failed = lines_of(proxy, 3)
    told = {key: live[key] for key in live if key not in ("at", "ms")}
    assert told == {
        "level": "info", "message": "step", "session": "s", "run": "a", "step": 0, "outcome": "live",
        "model": chat.MODEL, "provider": "openai", "status": 200, "tokens_in": 7, "tokens_out": 5, "cost_usd": None,
    }  # fmt: skip
    assert live["ms"] > 0
    assert (replay["outcome"], replay["run"], replay["step"]) == ("replay", "b", 0) and "cost_usd" not in replay
    assert (failed["error"], failed["status"], failed["request_id"]) == ("http_401", 401, "req_1")


@pytest.mark.parametrize(
    ("steps", "outcomes"),
    [("none", []), ("failed", ["http_401"]), ("live", ["", "http_401"]), ("all", ["", "http_401", ""])],
)
def test_only_those_steps_get_a_line_that_are_asked_for(
    model: Upstream, tmp_path: Path, steps: str, outcomes: list[str]
) -> None:
    with proxy_of(model, tmp_path / "data", log_format="json", log_steps=steps) as proxy:
        proxy.client.ask("s", "hello", run="a")
        proxy.client.ask("s", "refuse", run="a")
        proxy.client.ask("s", "hello", run="b")
        lines_of(proxy, len(outcomes))
        assert proxy.stop() == 0
        assert [line.get("error", "") for line in lines_of(proxy, len(outcomes))] == outcomes


def test_a_session_cannot_write_a_line_of_its_own(model: Upstream, tmp_path: Path) -> None:
    with proxy_of(model, tmp_path / "data", log_format="text") as proxy:
        evil = "/s/x%0A2026-01-01T00:00:00.000Z%20error%20all%20is%20lost/r/a/v1/chat/completions"
        proxy.client.send("POST", evil, {"content-type": "application/json"}, chat.request("hello"))
        assert proxy.stop() == 0
        assert all(" error " not in line[:34] for line in proxy.log.splitlines())
