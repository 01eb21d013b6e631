"""How things stand, as the control plane and the command line tell it: providers, settings, policies, who asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import chat
from tests.support.client import ControlPlane, status_of
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain
from tests.support.web import Web

SECRET = "hooks-secret-4711"
FILE = """
[[alerts]]
kind = "webhook"
name = "ops"
url = "http://127.0.0.1:9/{secret}"
secret = "whsec_{secret}"
[[policies]]
tools = ["send_*"]
[[routes]]
model = "routed"
fallback = ["anthropic/claude-sonnet-5-5"]
"""


def answers(seen: Seen) -> Reply:
    body = seen.json()
    if body["model"] == "broken":
        return plain(b'{"error":{"message":"down"}}', 503)
    if body.get("tools"):
        return plain(chat.completion(None, tool_calls=[chat.tool_call("delete_file", '{"path": "/tmp/x"}')]))
    return plain(chat.completion("a text"))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    file = FILE.format(secret=SECRET)
    with Upstream(answers) as upstream, Proxy(tmp_path / "data", upstream.url, file=file) as running:
        yield running


def test_providers_show_what_the_last_day_says_of_them(proxy: Proxy) -> None:
    proxy.client.ask("s", "one", run="a", model="fine")
    proxy.client.ask("s", "two", run="a", model="broken")
    found = proxy.control.get("/api/providers")
    [openai] = [one for one in found["providers"] if one["name"] == "openai"]
    models = {one["model"]: one for one in openai["models"]}
    assert (models["fine"]["calls"], models["fine"]["failing"], models["fine"]["last_failure"]) == (1, 0.0, None)
    assert (models["broken"]["failed"], models["broken"]["last_failure"]["status"]) == (1, 503)
    assert sum(slot["answered"] for slot in models["fine"]["strip"]) == 1
    [route] = found["routes"]
    assert [one["model"] for one in route["candidates"]] == ["routed", "claude-sonnet-5-5"]
    assert (openai["key"], openai["untestable"]) == ("agents", None)  # it is on this host
    assert json.loads(proxy.cli("providers", "--json").stdout)["routes"] == found["routes"]
    assert "broken" in proxy.cli("providers").stdout


def test_settings_show_what_was_set_and_no_secret(proxy: Proxy) -> None:
    found = proxy.control.get("/api/settings")
    assert {"alerts", "policies", "routes", "retry.attempts"} <= set(found["set"])
    assert found["settings"]["retry"]["attempts"] == 1
    assert found["settings"]["server"]["admin_token"] is None
    shown = proxy.cli("settings", "--all").stdout
    assert "retry.attempts = 1" in shown and "breaker.failures" in shown
    assert "breaker.failures" not in proxy.cli("settings").stdout
    for told in (json.dumps(found), shown):
        assert SECRET not in told


def test_policies_are_listed_and_others_are_tried_on_the_last_calls(proxy: Proxy) -> None:
    tools = [{"type": "function", "function": {"name": "delete_file", "parameters": {"type": "object"}}}]
    for number in range(3):
        proxy.client.ask("s", f"question {number}", run="a", tools=tools)
    [policy] = proxy.control.get("/api/policies")
    assert (policy["number"], policy["tools"], policy["action"]) == (1, ["send_*"], "hold")
    found = proxy.control.post("/api/policies/rehearse")
    assert (found["looked"], found["allowed"], found["held"], found["whole"]) == (3, 3, 0, True)
    others = {"policies": [{"tools": ["delete_*"], "action": "deny"}], "last": 2}
    found = proxy.control.post("/api/policies/rehearse", others)
    assert (found["looked"], found["denied"]) == (2, 2)
    assert [one["step_number"] for one in found["kept"]] == [2, 1]
    assert found["kept"][0]["arguments_text"] == '{"path": "/tmp/x"}'
    assert proxy.control.get("/api/approvals") == []
    assert "send_*" in proxy.cli("policy", "list").stdout


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"last": 0}, 400),
        ({"last": "all"}, 400),
        ({"policies": {}}, 400),
        ({"policies": [{"tools": []}]}, 422),
        ({"policies": [{"tools": ["x"], "when": "args.("}]}, 422),
        ({"policies": [{"tools": ["x"], "action": "explode"}]}, 422),
        ({"policies": [{"tools": ["x"], "when": "a" + ".b" * 100_000}]}, 422),  # reading it would end the process
    ],
)
def test_what_is_no_policy_is_refused(proxy: Proxy, body: dict[str, object], status: int) -> None:
    assert status_of(proxy.control.post, "/api/policies/rehearse", body)[0] == status


def test_a_condition_of_their_own_is_tried_for_admins_only(proxy: Proxy) -> None:
    token = proxy.control.post("/api/approvers", {"name": "olga", "role": "approver"})["token"]
    endless = "true"
    for at in range(8):  # of which the library does each, and meanwhile nothing else runs
        endless = f"[{','.join(['1'] * 60)}].all(x{at}, {endless})"
    olga = ControlPlane(proxy.url, token)
    body = {"policies": [{"tools": ["x"], "when": endless}]}
    assert status_of(olga.post, "/api/policies/rehearse", body)[0] == 403
    text = f'[[policies]]\ntools = ["x"]\nwhen = "{endless}"\n'
    web = Web(proxy.url).log_in(token)
    page = web.submit(web.get("/dashboard/settings/policies").form("/policies/try"), policies=text)
    assert page.status == 403 and "admins only" in page.text
    assert olga.post("/api/policies/rehearse", {"policies": [{"tools": ["x"]}]})["looked"] >= 0


def test_everybody_can_ask_who_they_are(proxy: Proxy) -> None:
    assert proxy.control.get("/api/whoami") == {"name": "admin", "role": "admin"}
    token = proxy.control.post("/api/approvers", {"name": "vera", "role": "viewer"})["token"]
    assert ControlPlane(proxy.url, token).get("/api/whoami") == {"name": "vera", "role": "viewer"}
    assert proxy.cli("whoami").stdout.strip() == "admin, admin"
