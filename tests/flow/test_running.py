"""How the proxy runs, over the API and on the command line: a test call, budgets, the audit log's seal, diagnostics,
policies tried on the last calls."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.support import chat
from tests.support.approvals import Held, prepared
from tests.support.client import ControlPlane, status_of
from tests.support.people import Person
from tests.support.proxy import Proxy
from tests.support.upstream import Reply, Seen, Upstream, plain

OWN = "sk-test-of-the-proxys-own-000000"
TWO = """
[providers.openai]
url = "{openai}"
[providers.other]
url = "{other}"
key_env = "OTHER_KEY"
[providers.far]
url = "https://api.example.invalid/v1"
[providers.keyless]
url = "https://api.example.invalid/v1"
key_env = "NOBODY_SET_THIS"
"""


def priced(seen: Seen) -> Reply:
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    body = {**json.loads(chat.completion("Yes")), "usage": usage, "model": seen.json()["model"]}
    return plain(json.dumps(body).encode())


def test_a_test_call_is_journaled_priced_and_sent_to_the_provider_that_was_named(tmp_path: Path) -> None:
    with Upstream(priced) as openai, Upstream(priced) as other:
        file = TWO.format(openai=openai.url, other=other.url)
        with Proxy(tmp_path / "data", file=file, environment={"OTHER_KEY": OWN}) as proxy:
            found = proxy.control.post("/api/providers/other/test", {"model": "gpt-4o"})
            [seen] = other.requests
            assert openai.requests == []
            assert seen.headers.get("authorization") == f"Bearer {OWN}"
            assert seen.json()["max_tokens"] == 1
            assert found["answered"] and found["tokens"] == 11
            assert (found["session_id"], found["step_number"]) == ("test-other", 0)
            [step] = proxy.control.steps("test-other")
            assert (step["provider"], step["state"], step["token_cost"]) == ("other", "completed", found["cost"])
            again = proxy.control.post("/api/providers/other/test", {"model": "gpt-4o"})
            assert again["step_number"] == 1 and len(other.requests) == 2, "a test is never answered from the journal"
            assert proxy.cli("test", "openai", "gpt-4o").stdout.startswith("answered in ")
            assert OWN.encode() not in proxy.stored_bytes()
            proxy.doctor()


def test_a_provider_without_a_key_of_the_proxys_own_is_sent_nothing_and_the_refusal_says_why(tmp_path: Path) -> None:
    with Upstream(priced) as openai:
        file = TWO.format(openai=openai.url, other=openai.url)
        with Proxy(tmp_path / "data", file=file) as proxy:
            for name, said in (("far", "key_env"), ("keyless", "NOBODY_SET_THIS"), ("other", "OTHER_KEY")):
                status, body = status_of(proxy.control.post, f"/api/providers/{name}/test", {"model": "gpt-4o"})
                assert status == 409 and said in str(body), name
            assert status_of(proxy.control.post, "/api/providers/nobody/test", {"model": "gpt-4o"})[0] == 404
            assert status_of(proxy.control.post, "/api/providers/openai/test", {"model": ""})[0] == 400
            viewer = ControlPlane(proxy.url, Person(proxy, "vera", "viewer")._control.token)
            assert status_of(viewer.post, "/api/providers/openai/test", {"model": "gpt-4o"})[0] == 403
            assert openai.requests == [] and proxy.control.get("/api/sessions") == []


def test_a_provider_that_refuses_is_told_and_no_other_is_asked(tmp_path: Path) -> None:
    def busy(seen: Seen) -> Reply:
        return plain(b'{"error": {"message": "no such model", "code": "model_not_found"}}', 404)

    with Upstream(busy) as openai, Upstream(priced) as other:
        file = TWO.format(openai=openai.url, other=other.url)
        file += '[[routes]]\nmodel = "*"\nfallback = ["other/gpt-4o"]\non = ["model_gone"]\n'
        with Proxy(tmp_path / "data", file=file, environment={"OTHER_KEY": OWN}) as proxy:
            found = proxy.control.post("/api/providers/openai/test", {"model": "gpt-nine"})
            assert not found["answered"] and found["status_code"] == 404 and "no such model" in found["error"]
            assert other.requests == []
            done = proxy.cli("test", "openai", "gpt-nine", check=False)
            assert done.returncode == 1 and "not answered (404)" in done.stdout


def test_budgets_are_shown_as_they_are_used(tmp_path: Path) -> None:
    settings = {"budget.day_steps": 10, "budget.session_steps": 4, "budget.at_limit": "deny"}
    with Proxy(tmp_path / "data", arguments=["--simulate"], settings=settings) as proxy:
        for number in range(3):
            assert proxy.client.ask("busy", f"q{number}", run="r").status == 200
        assert proxy.client.ask("calm", "q", run="r").status == 200
        found = proxy.control.get("/api/budgets")
        assert [(one["limit"], one["session_id"], one["used"], one["most"]) for one in found["limits"]] == [
            ("session_steps", "busy", 3, 4), ("session_steps", "calm", 1, 4), ("day_steps", None, 4, 10),
        ] or [(one["limit"], one["session_id"], one["used"], one["most"]) for one in found["limits"]] == [
            ("day_steps", None, 4, 10), ("session_steps", "busy", 3, 4), ("session_steps", "calm", 1, 4),
        ]  # fmt: skip
        assert (found["at_limit"], found["repeats"]) == ("deny", 100)
        shown = proxy.cli("budgets").stdout
        assert "busy" in shown and "the call is refused" in shown
        assert proxy.client.ask("busy", "q3", run="r").status == 200
        assert proxy.client.ask("busy", "q4", run="r").status == 400
        assert proxy.control.get("/api/budgets")["limits"][1]["used"] == 4


def test_an_audit_log_that_was_changed_behind_the_proxys_back_is_found(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", arguments=["--simulate"]) as proxy:
        assert proxy.control.get("/api/audit/check") == {"sound": True, "entries": 0, "seal": None, "faults": []}
        for name in ("ana", "ben", "cai"):
            proxy.control.post("/api/approvers", {"name": name, "role": "viewer"})
        found = proxy.control.get("/api/audit/check")
        assert found["sound"] and found["entries"] == 3
        assert found["seal"] == proxy.control.get("/api/audit")[-1]["hash"]
        proxy.stop()
        with sqlite3.connect(proxy.database) as conn:
            conn.execute("drop trigger audit_stays")
            conn.execute("update audit set actor = 'nobody' where id = 2")
        conn.close()
        proxy.start()
        found = proxy.control.get("/api/audit/check")
        assert not found["sound"] and found["faults"][0]["where"] == "audit entry 2"


def test_diagnostics_hold_no_secret_no_body_and_no_name_that_an_agent_chose(tmp_path: Path) -> None:
    secrets = ["sk-test-agent-key-1234567890", "hook-path-secret", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0", "query-secret"]
    file = f"""
[server]
agent_keys = ["{secrets[0]}"]
[[alerts]]
kind = "webhook"
url = "https://hooks.example.invalid/{secrets[1]}"
secret = "{secrets[2]}"
[[probes]]
tools = ["pay"]
url = "https://probe.example.invalid/{{key}}?token={secrets[3]}"
"""
    with Proxy(tmp_path / "data", arguments=["--simulate"], file=file) as proxy:
        headers = {"x-agentstate-key": secrets[0]}
        answer = proxy.client.ask("secret-project", "a private question", run="r", model="gpt-4o", headers=headers)
        assert answer.status == 200
        text = proxy.cli("diagnostics").stdout
        for word in (*secrets, "secret-project", "private question", proxy.admin_token, str(tmp_path)):
            assert word not in text
        found: dict[str, Any] = json.loads(text)
        assert found["settings"]["server"]["agent_keys"] == ["(set)"]
        assert found["settings"]["alerts"][0]["url"] == "(set)"
        assert found["settings"]["probes"][0]["url"] == "https://probe.example.invalid"
        assert found["store"]["rows"]["step"] == 1 and found["calls"]["calls"] == 1
        assert {"msgspec", "starlette"} <= {one["name"] for one in found["libraries"]}
        viewer = Person(proxy, "vera", "viewer")._control
        assert status_of(viewer.get, "/api/diagnostics")[0] == 403


def test_policies_are_tried_on_the_last_calls_of_all_sessions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepared(data, [Held("send_email"), Held("pay", {"to": "x", "amount": 7})], session="one")
    prepared(data, [Held("pay", {"to": "y", "amount": 70})], session="two")
    rules = tmp_path / "stricter.toml"
    rules.write_text('[[policies]]\ntools = ["pay"]\nwhen = "args.amount > 10"\naction = "deny"\n')
    with Proxy(data, arguments=["--simulate"]) as proxy:
        found = json.loads(proxy.cli("policy", "last", "--policies", str(rules), "--json").stdout)
        assert found["counts"] == {"deny": 1, "allow": 2} and found["looked"] == 3
        held = json.loads(proxy.cli("policy", "last", "--json").stdout)
        assert held["counts"] == {"hold": 1, "allow": 2}, "the default policy holds mails"
        one = json.loads(proxy.cli("policy", "last", "--calls", "1", "--policies", str(rules), "--json").stdout)
        assert one["counts"] == {"deny": 1} and one["whole"], "the newest call comes first"
        shown = proxy.cli("policy", "last", "--policies", str(rules)).stdout
        assert "1 denied, 2 pass" in shown and "two" in shown
        rules.write_text("[server]\nport = 1\n")
        assert "only [[policies]]" in proxy.cli("policy", "last", "--policies", str(rules), check=False).stderr


def test_a_name_that_a_spreadsheet_would_calculate_stays_a_name(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", arguments=["--simulate"]) as proxy:
        for name in ("=1+1", "a,b", 'quote"d'):
            assert proxy.client.ask(name, "q", run="r").status == 200
        text = proxy.cli("stats", "--by", "session", "--csv").stdout
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["session"] for row in rows] == ["'=1+1", "a,b", 'quote"d']
        assert sum(int(row["calls"]) for row in rows) == proxy.control.get("/api/stats")["total"]["calls"]
        assert status_of(proxy.control.get, "/api/stats?format=xml")[0] == 400
