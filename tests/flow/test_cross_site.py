"""A page in the user's browser reaches the port, and approves and spends nothing: over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.approvals import Held, prepared
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

EVIL = {"Origin": "http://evil.test", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    return prepared(tmp_path, [Held()])


@pytest.fixture
def served(tmp_path: Path, ids: list[str], upstream: Upstream) -> Iterator[Proxy]:
    ours = {"AGENTSTATE_PROVIDERS__OPENAI__KEY_ENV": "OUR_KEY", "OUR_KEY": "sk-test-ours"}
    with Proxy(tmp_path, upstream.url, environment=ours) as running:
        yield running


def approve(proxy: Proxy, key: str, **headers: str) -> int:
    fields = {"Authorization": f"Bearer {proxy.admin_token}", "Content-Type": "application/json", **headers}
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    body = json.dumps({"action": "APPROVED"}).encode()
    return proxy.client.send("POST", f"/api/approvals/{key}/action", fields, body).status


def test_no_page_of_another_site_approves_even_with_the_right_token(served: Proxy, ids: list[str]) -> None:
    assert approve(served, ids[0], **{name.replace("-", "_"): value for name, value in EVIL.items()}) == 403
    rebound = f"evil.test:{served.port}"
    assert approve(served, ids[0], Host=rebound, Origin=f"http://{rebound}", Sec_Fetch_Site="same-origin") == 403
    assert approve(served, ids[0], Host=rebound) == 403
    assert served.control.get(f"/api/approvals/{ids[0]}")["status"] == "PENDING"
    own = f"127.0.0.1:{served.port}"
    assert approve(served, ids[0], Host=own, Origin=f"http://{own}", Sec_Fetch_Site="same-origin") == 200


def test_a_rebound_name_reads_nothing_of_the_control_plane(served: Proxy) -> None:
    headers = {"Host": "evil.test", "Authorization": f"Bearer {served.admin_token}"}
    for path in ("/api/sessions", "/api/approvals/pending", "/approve/x"):
        assert served.client.send("GET", path, headers).status == 403
    assert served.client.send("GET", "/healthz", {"Host": "10.1.2.3:8080"}).status == 200


def test_no_page_of_another_site_spends_our_money(served: Proxy, upstream: Upstream) -> None:
    body = chat.request("hi")
    for kind in ("text/plain", "application/json", "application/x-www-form-urlencoded"):
        answer = served.client.send("POST", "/s/x/v1/chat/completions", {**EVIL, "Content-Type": kind}, body)
        assert answer.status == 403 and answer.error["code"] == "forbidden"
    asked_first = {**EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert served.client.send("OPTIONS", "/v1/chat/completions", asked_first).status == 403
    assert upstream.calls == 0


def test_agents_behind_odd_names_are_served(served: Proxy, upstream: Upstream) -> None:
    assert served.client.ask("x", "hi", headers={"Host": "odd.internal:99"}).status == 200
    assert upstream.calls == 1


def test_no_page_of_another_site_calls_a_tool(tmp_path: Path, upstream: Upstream) -> None:
    (tmp_path / "agentstate.toml").write_text(f'[mcp.bank]\nurl = "{upstream.url}"\n')
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"charge"}}'
    claim = b'{"arguments":{},"process":"p","sending":"1"}'
    with Proxy(tmp_path) as proxy:
        rebound = {"Host": "evil.test", "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
        for headers in ({**EVIL, "Content-Type": "application/json"}, rebound):
            for path, sent in (("/s/x/mcp/bank", body), ("/mcp/bank", body), ("/s/x/tools/charge/claim", claim)):
                assert proxy.client.send("POST", path, headers, sent).status == 403
        assert upstream.calls == 0
        assert proxy.control.get("/api/sessions") == []
