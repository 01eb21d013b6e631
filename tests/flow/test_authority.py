"""Who may read, decide and change, over real HTTP: roles, agents' keys, wrong tokens, decisions at the same moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.approvals import Held, prepared
from tests.support.client import Answer
from tests.support.proxy import Proxy

KEY = "sk-test-agent-key"
JSON = {"Content-Type": "application/json"}


def call(proxy: Proxy, method: str, path: str, token: str = "", body: Any = None, **headers: str) -> Answer:
    """One call of the control plane with any token."""
    fields = {**JSON, **({"Authorization": f"Bearer {token}"} if token else {})}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    return proxy.client.send(method, path, fields, b"" if body is None else json.dumps(body).encode())


def said(answer: Answer) -> Any:
    return json.loads(answer.body)


def decide(proxy: Proxy, key: str, token: str, action: str = "APPROVED", **more: Any) -> Answer:
    return call(proxy, "POST", f"/api/approvals/{key}/action", token, {"action": action, **more})


def audit(proxy: Proxy, action: str = "") -> list[dict[str, Any]]:
    entries = said(call(proxy, "GET", "/api/audit?limit=1000", proxy.admin_token))
    return [entry for entry in entries if not action or entry["action"] == action]


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    two = Held("delete_database", {"name": "prod"}, quorum=2)
    return prepared(
        tmp_path, [Held()], [Held(), two], [Held("wire", "not json", schema=None)], [Held(approvers=("bob",))]
    )


@pytest.fixture
def proxy(tmp_path: Path, ids: list[str]) -> Iterator[Proxy]:
    with Proxy(tmp_path, settings={"server.agent_keys": KEY}) as running:
        yield running


@pytest.fixture
def people(proxy: Proxy) -> dict[str, str]:
    """The token of each: a viewer, two approvers, an admin."""
    roles = {"vera": "viewer", "ann": "approver", "bob": "approver", "root": "admin"}
    tokens = {}
    for name, role in roles.items():
        answer = call(proxy, "POST", "/api/approvers", proxy.admin_token, {"name": name, "role": role})
        assert answer.status == 200, answer.body
        tokens[name] = said(answer)["token"]
    return tokens


def test_pending_approvals_are_a_plain_array_with_the_first_versions_names(proxy: Proxy, ids: list[str]) -> None:
    page = said(call(proxy, "GET", "/api/approvals/pending", proxy.admin_token))
    assert [one["id"] for one in page] == ids
    first = page[0]
    assert (first["session_id"], first["step_number"], first["tool_name"]) == ("s", 0, "send_email")
    assert first["status"] == "PENDING" and json.loads(first["prompt"])["model"] == "gpt-test"
    assert first["arguments"] == {"to": "ann@example.test"} and first["schema"]["required"] == ["to"]
    assert page[3]["arguments"] is None and page[3]["arguments_text"] == "not json"
    assert (page[2]["quorum"], page[2]["votes"], page[2]["place"]) == (2, [], 1)


def test_lists_are_paged_and_filtered(proxy: Proxy, ids: list[str]) -> None:
    answer = call(proxy, "GET", "/api/approvals?limit=2", proxy.admin_token)
    link = answer.headers.get("link") or ""
    rest = said(call(proxy, "GET", link.partition("<")[2].partition(">")[0], proxy.admin_token))
    assert [one["id"] for one in said(answer)] + [one["id"] for one in rest] == ids[:4]
    assert said(call(proxy, "GET", "/api/approvals?state=approved", proxy.admin_token)) == []
    assert said(call(proxy, "GET", "/api/approvals?session=other", proxy.admin_token)) == []
    assert call(proxy, "GET", "/api/approvals?state=lost", proxy.admin_token).status == 400
    assert call(proxy, "GET", "/api/approvals?after=lost", proxy.admin_token).status == 404
    assert call(proxy, "GET", "/api/approvals/lost", proxy.admin_token).status == 404


def test_a_role_reads_decides_or_does_everything(proxy: Proxy, ids: list[str], people: dict[str, str]) -> None:
    changes = [("/api/sessions/s/status", {"status": "PAUSED"}), ("/api/sessions/s/labels", {"add": ["vip"]})]
    changes += [("/api/approvers", {"name": "eve", "role": "admin"}), ("/api/sessions/s/reset", {"step_number": 4})]
    for name in ("vera", "ann"):
        for path in (
            "/api/sessions",
            "/api/sessions/s",
            "/api/approvals/pending",
            f"/api/approvals/{ids[0]}",
            "/api/audit",
        ):
            assert call(proxy, "GET", path, people[name]).status == 200, (name, path)
        for path, body in changes:
            assert call(proxy, "POST", path, people[name], body).status == 403, (name, path)
        assert call(proxy, "GET", "/api/approvers", people[name]).status == 403
    assert decide(proxy, ids[0], people["vera"]).status == 403
    assert said(call(proxy, "GET", f"/api/approvals/{ids[0]}", people["vera"]))["status"] == "PENDING"
    assert decide(proxy, ids[0], people["ann"]).status == 200
    for path, body in changes:
        assert call(proxy, "POST", path, people["root"], body).status == 200, path
    assert [entry["actor"] for entry in audit(proxy, "session.labelled")] == ["root"]


def test_an_agents_key_never_opens_the_control_plane(proxy: Proxy, ids: list[str]) -> None:
    for headers in ({"token": KEY}, {"x_agentstate_key": KEY}, {}):
        answer = call(proxy, "POST", f"/api/approvals/{ids[0]}/action", body={"action": "APPROVED"}, **headers)
        assert answer.status in (401, 403), headers
        assert call(proxy, "GET", "/api/approvals/pending", **headers).status in (401, 403)
    assert call(proxy, "POST", f"/k/{KEY}/api/approvals/{ids[0]}/action", body={"action": "APPROVED"}).status >= 400
    assert said(call(proxy, "GET", f"/api/approvals/{ids[0]}", proxy.admin_token))["status"] == "PENDING"


def test_a_decision_is_kept_with_who_and_why_and_the_same_again_changes_nothing(
    proxy: Proxy, ids: list[str], people: dict[str, str]
) -> None:
    answer = decide(proxy, ids[0], people["ann"], reason="known address")
    assert answer.status == 200
    view = said(answer)["approval"]
    assert (view["status"], view["decided_by"], view["reason"]) == ("APPROVED", "ann", "known address")
    assert decide(proxy, ids[0], people["bob"]).status == 200
    late = decide(proxy, ids[0], people["bob"], "REJECTED")
    assert late.status == 409 and "approved already by ann" in late.error["message"]
    assert [entry["actor"] for entry in audit(proxy, "approval.decided")] == ["ann"]


def test_an_edit_that_does_not_fit_is_422_and_still_pending(
    proxy: Proxy, ids: list[str], people: dict[str, str]
) -> None:
    wrong: list[dict[str, Any]] = [{"arguments": {"amount": 5}}, {"arguments": {"to": "x", "amount": 101}}]
    wrong += [{"arguments": [1]}, {"arguments": "{}"}, {}]
    for more in wrong:
        answer = decide(proxy, ids[0], people["ann"], "EDITED", **more)
        assert answer.status == 422, more
        assert said(call(proxy, "GET", f"/api/approvals/{ids[0]}", people["ann"]))["status"] == "PENDING"
    edited = {"to": "bob@example.test", "amount": 99}
    view = said(decide(proxy, ids[0], people["ann"], "EDITED", arguments=edited))["approval"]
    assert (view["status"], view["effective"], view["arguments"]) == ("EDITED", edited, {"to": "ann@example.test"})


def test_bad_decisions_are_refused_with_what_to_do(proxy: Proxy, ids: list[str], people: dict[str, str]) -> None:
    token = people["ann"]
    assert decide(proxy, ids[0], token, "MAYBE").status == 400
    assert decide(proxy, ids[0], token, reason="x" * 2001).status == 400
    assert decide(proxy, ids[0], token, digest="00").status == 409
    assert decide(proxy, ids[0], token, "REUSED").status == 422
    assert call(proxy, "POST", f"/api/approvals/{ids[0]}/action", token, {"action": 1}).status == 400
    assert decide(proxy, "apr_lost", token).status == 404
    digest = said(call(proxy, "GET", f"/api/approvals/{ids[0]}", token))["digest"]
    assert decide(proxy, ids[0], token, digest=digest).status == 200


def test_two_of_two_are_two_people(proxy: Proxy, ids: list[str], people: dict[str, str]) -> None:
    for _ in range(2):
        view = said(decide(proxy, ids[2], people["ann"]))["approval"]
        assert view["status"] == "PENDING" and [vote["approver"] for vote in view["votes"]] == ["ann"]
    assert len(audit(proxy, "approval.decided")) == 1
    assert said(decide(proxy, ids[2], people["bob"]))["approval"]["status"] == "APPROVED"


def test_who_is_not_among_the_named_approvers_cannot_decide(
    proxy: Proxy, ids: list[str], people: dict[str, str]
) -> None:
    assert decide(proxy, ids[4], people["ann"]).status == 403
    assert decide(proxy, ids[4], proxy.admin_token).status == 403
    assert decide(proxy, ids[4], people["bob"]).status == 200


def test_fifty_decisions_at_once_have_one_winner_and_one_entry(
    proxy: Proxy, ids: list[str], people: dict[str, str]
) -> None:
    def one(at: int) -> tuple[int, str]:
        action = "APPROVED" if at % 2 else "REJECTED"
        return decide(proxy, ids[0], people[("ann", "bob")[at // 2 % 2]], action).status, action

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(50)))
    winner = said(call(proxy, "GET", f"/api/approvals/{ids[0]}", people["ann"]))["status"]
    assert {action for status, action in answers if status == 200} == {winner}
    assert {status for status, action in answers if action != winner} == {409}
    assert len(audit(proxy, "approval.decided")) == 1
    proxy.stop()
    assert "sound" in proxy.doctor()


def test_a_disabled_approver_and_a_rotated_token_open_nothing(proxy: Proxy, people: dict[str, str]) -> None:
    renewed = said(call(proxy, "POST", "/api/approvers/ann/rotate", proxy.admin_token))["token"]
    assert call(proxy, "GET", "/api/sessions", people["ann"]).status == 401
    assert call(proxy, "GET", "/api/sessions", renewed).status == 200
    assert call(proxy, "POST", "/api/approvers/ann/disable", proxy.admin_token).status == 200
    assert call(proxy, "GET", "/api/sessions", renewed).status == 401
    for verb in ("disable", "rotate"):
        assert call(proxy, "POST", f"/api/approvers/ann/{verb}", proxy.admin_token).status == 404
    again = call(proxy, "POST", "/api/approvers", proxy.admin_token, {"name": "ann", "role": "approver"})
    assert again.status == 409
    listed = {row["name"]: row for row in said(call(proxy, "GET", "/api/approvers", proxy.admin_token))}
    assert listed["ann"]["disabled_at"] and not listed["bob"]["disabled_at"]
    acts = [entry["action"] for entry in audit(proxy) if entry["subject"] == "ann"]
    assert acts == ["approver.added", "approver.rotated", "approver.disabled"]
    kept = proxy.stored_bytes()
    assert not any(token.encode() in kept for token in (*people.values(), renewed, proxy.admin_token))


@pytest.mark.parametrize(
    "body",
    [
        {"role": "approver"}, {"name": "x"}, {"name": "admin", "role": "viewer"}, {"name": "link:x", "role": "viewer"},
        {"name": "x", "role": "king"}, {"name": "x", "role": "viewer", "slack": "a b"}, {"name": 1, "role": "viewer"},
    ],
)  # fmt: skip
def test_an_approver_that_cannot_be_is_refused(proxy: Proxy, body: dict[str, Any]) -> None:
    assert call(proxy, "POST", "/api/approvers", proxy.admin_token, body).status == 400


def test_one_chat_user_is_one_approver(proxy: Proxy) -> None:
    first = {"name": "x", "role": "approver", "slack": "U1"}
    assert call(proxy, "POST", "/api/approvers", proxy.admin_token, first).status == 200
    assert call(proxy, "POST", "/api/approvers", proxy.admin_token, {**first, "name": "y"}).status == 400


def test_wrong_tokens_are_limited_and_never_logged(proxy: Proxy, people: dict[str, str]) -> None:
    wrong = [f"sk-test-guess-{at}" for at in range(10)]
    assert {call(proxy, "GET", "/api/sessions", token).status for token in wrong} == {401}
    answer = call(proxy, "GET", "/api/sessions", "sk-test-guess-11")
    assert answer.status == 429 and 0 < int(answer.headers.get("retry-after") or 0) <= 60
    # What is made by chance cannot be guessed, and who guesses must not keep people from deciding.
    assert call(proxy, "GET", "/api/sessions", people["ann"]).status == 200
    assert call(proxy, "GET", "/api/sessions", proxy.admin_token).status == 200
    assert call(proxy, "GET", "/healthz").status == 200
    assert "sk-test-guess" not in proxy.log


def test_a_token_that_somebody_chose_waits_like_any_other(tmp_path: Path) -> None:
    chosen = "sk-test-chosen-by-somebody"
    with Proxy(tmp_path / "other", settings={"server.admin_token": chosen}) as proxy:
        assert call(proxy, "GET", "/api/sessions", chosen).status == 200
        for at in range(10):
            assert call(proxy, "GET", "/api/sessions", f"sk-test-{at}").status == 401
        assert call(proxy, "GET", "/api/sessions", chosen).status == 429


def test_labels_come_and_go(proxy: Proxy) -> None:
    path, token = "/api/sessions/s/labels", proxy.admin_token
    assert said(call(proxy, "POST", path, token, {"add": ["vip", "eu"]})) == {"id": "s", "labels": ["eu", "vip"]}
    assert said(call(proxy, "POST", path, token, {"add": ["us"], "remove": ["eu", "none"]}))["labels"] == ["us", "vip"]
    assert said(call(proxy, "GET", path, token))["labels"] == ["us", "vip"]
    for body in ({"add": "vip"}, {"add": [""]}, {"add": ["a\nb"]}, {"remove": [1]}, {"add": ["x" * 101]}):
        assert call(proxy, "POST", path, token, body).status == 400, body
    assert call(proxy, "GET", "/api/sessions/none/labels", token).status == 404


def test_the_admin_token_cannot_be_an_agents_key(tmp_path: Path) -> None:
    same = {"server.admin_token": "sk-test-one-and-the-same", "server.agent_keys": "sk-test-one-and-the-same"}
    with pytest.raises(AssertionError, match="agents would be admins"):
        Proxy(tmp_path / "other", settings=same).start()


def test_half_a_character_is_refused_in_words_wherever_it_is_sent(proxy: Proxy, ids: list[str]) -> None:
    bodies = {
        "/api/sessions/s/labels": {"add": ["\ud800"]},
        "/api/sessions/s/rating": {"rating": "good", "note": "\ud800"},
        "/api/sessions/s/pause": {"reason": "\ud800"},
        "/api/sessions/s/pin": {"reason": "\ud800"},
        "/api/sessions/s/fork": {"step_number": 0, "name": "\ud800"},
        f"/api/approvals/{ids[0]}/action": {"action": "REJECTED", "reason": "\ud800"},
    }
    for path, body in bodies.items():
        answer = call(proxy, "POST", path, proxy.admin_token, body)
        assert answer.status == 400 and b"half a character" in answer.body, (path, answer.status, answer.body)
    for name in ("%ff", "%ed%a0%80"):
        answer = call(proxy, "GET", f"/dashboard/sessions/{name}", proxy.admin_token)
        assert answer.status == 404 and b"not UTF-8" in answer.body, (name, answer.status)
    assert "Traceback" not in proxy.log
