"""Buttons in Slack and Discord: signed, timely, pressed by somebody who is an approver, and once."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agentstate.errors import Unauthorized
from agentstate.server import hooks
from tests.support.approvals import Held, prepared
from tests.support.client import Answer
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

SECRET = "sk-test-slack-signing-secret"
KEY = Ed25519PrivateKey.from_private_bytes(b"7" * 32)
_numbers = itertools.count()  # no two presses are equal, as in real life


@pytest.fixture
def ids(tmp_path: Path) -> list[str]:
    return prepared(tmp_path, [Held(), Held()], [Held(approvers=("bob",)), Held(quorum=2)])


@pytest.fixture
def proxy(tmp_path: Path, ids: list[str]) -> Iterator[Proxy]:
    public = KEY.public_key().public_bytes_raw().hex()
    chats = {"approvals.slack_signing_secret": SECRET, "approvals.discord_public_key": public}
    with Proxy(tmp_path, settings=chats) as running:
        for name, role in (("ann", "approver"), ("bob", "approver"), ("vera", "viewer")):
            ours = {"name": name, "role": role, "slack": f"U{name}", "discord": f"1{len(name)}{name}"}
            running.control.post("/api/approvers", ours)
        yield running


def press(action: str, value: str, user: str = "Uann", **more: Any) -> bytes:
    told = {"type": "block_actions", "user": {"id": user}, "actions": [{"action_id": action, "value": value}], **more}
    told |= {"trigger_id": f"trigger-{next(_numbers)}"}
    return urlencode({"payload": json.dumps(told)}).encode()


def slack(proxy: Proxy, body: bytes, *, age: float = 0, secret: str = SECRET, **more: str) -> Answer:
    at = str(int(time.time() - age))
    signature = "v0=" + hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    signed = {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": signature}
    headers = {"Content-Type": "application/x-www-form-urlencoded", **signed}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return proxy.client.send("POST", "/hooks/slack", headers, body)


def click(custom_id: str, user: str = "13ann", **more: Any) -> bytes:
    told = {"type": 3, "id": str(next(_numbers)), "data": {"custom_id": custom_id}, "member": {"user": {"id": user}}}
    return json.dumps({**told, **more}).encode()


def discord(proxy: Proxy, body: bytes, *, age: float = 0, key: Ed25519PrivateKey = KEY, **more: str) -> Answer:
    at = str(int(time.time() - age))
    headers = {"X-Signature-Timestamp": at, "X-Signature-Ed25519": key.sign(at.encode() + body).hex()}
    headers |= {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in more.items()}}
    return proxy.client.send("POST", "/hooks/discord", headers, body)


def state(proxy: Proxy, key: str) -> tuple[str, str | None]:
    view = proxy.control.get(f"/api/approvals/{key}")
    return view["status"], view["decided_by"]


def decided(proxy: Proxy) -> int:
    return sum(row["action"] == "approval.decided" for row in proxy.control.get("/api/audit?limit=1000"))


def test_a_press_decides_in_the_name_of_the_approver_and_again_changes_nothing(proxy: Proxy, ids: list[str]) -> None:
    for _ in range(3):
        answer = slack(proxy, press("approve", ids[0]))
        assert answer.status == 200 and "approved by ann" in json.loads(answer.body)["text"]
    for _ in range(3):
        answer = discord(proxy, click(f"reject:{ids[1]}"))
        assert json.loads(answer.body)["type"] == 7 and "rejected by ann" in json.loads(answer.body)["data"]["content"]
    assert [state(proxy, key) for key in ids[:2]] == [("APPROVED", "ann"), ("REJECTED", "ann")]
    assert decided(proxy) == 2
    late = json.loads(slack(proxy, press("reject", ids[0], "Ubob")).body)
    assert late["response_type"] == "ephemeral" and "approved already by ann" in late["text"]


@pytest.mark.parametrize("user", ["Ueve", "", "ann", None, 7])
def test_who_is_no_approver_is_refused_privately(proxy: Proxy, ids: list[str], user: Any) -> None:
    said = json.loads(slack(proxy, press("approve", ids[0], user)).body)
    assert said["response_type"] == "ephemeral" and not said["replace_original"] and "not an approver" in said["text"]
    said = json.loads(discord(proxy, click(f"approve:{ids[0]}", user)).body)
    assert said["type"] == 4 and said["data"]["flags"] == 64 and "not an approver" in said["data"]["content"]
    assert state(proxy, ids[0]) == ("PENDING", None)


def test_viewers_disabled_and_unnamed_approvers_are_refused_privately(proxy: Proxy, ids: list[str]) -> None:
    assert "may not decide" in json.loads(slack(proxy, press("approve", ids[0], "Uvera")).body)["text"]
    assert "asks for bob" in json.loads(slack(proxy, press("approve", ids[2])).body)["text"]
    proxy.control.post("/api/approvers/ann/disable")
    assert "not an approver" in json.loads(slack(proxy, press("approve", ids[0])).body)["text"]
    assert [state(proxy, key)[0] for key in ids] == ["PENDING"] * 4


def test_two_of_two_are_two_users(proxy: Proxy, ids: list[str]) -> None:
    assert "Counted" in json.loads(slack(proxy, press("approve", ids[3])).body)["text"]
    assert "Counted" in json.loads(discord(proxy, click(f"approve:{ids[3]}")).body)["data"]["content"]
    assert state(proxy, ids[3])[0] == "PENDING" and decided(proxy) == 1
    slack(proxy, press("approve", ids[3], "Ubob"))
    assert state(proxy, ids[3]) == ("APPROVED", "bob")


@pytest.mark.parametrize("age", [301, -330, 400, 86400])
def test_what_was_signed_more_than_five_minutes_ago_is_refused(proxy: Proxy, ids: list[str], age: float) -> None:
    assert slack(proxy, press("approve", ids[0]), age=age).status == 401
    assert discord(proxy, click(f"approve:{ids[0]}"), age=age).status == 401
    assert state(proxy, ids[0])[0] == "PENDING"


def test_what_was_heard_already_is_refused_and_decides_nothing(proxy: Proxy, ids: list[str]) -> None:
    at = str(int(time.time()))
    body = press("approve", ids[3])
    good = "v0=" + hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    signed = {"X_Slack_Signature": good, "X_Slack_Request_Timestamp": at}
    assert [slack(proxy, body, **signed).status for _ in range(3)] == [200, 401, 401]
    assert b"heard already" in slack(proxy, body, **signed).body
    body = click(f"approve:{ids[0]}")
    good = KEY.sign(at.encode() + body).hex()
    for status, spelled in ((200, good), (401, good), (401, good.upper())):
        answer = discord(proxy, body, X_Signature_Ed25519=spelled, X_Signature_Timestamp=at)
        assert answer.status == status
    assert decided(proxy) == 2


def test_presses_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(hooks.clock, "monotonic", lambda: now)
    once = hooks.Once(most=3)
    for name in (b"a", b"b", b"c"):
        once.check("1", name)
        with pytest.raises(Unauthorized):
            once.check("1", name)
    once.check("2", b"c")
    assert len(once._seen) == 3
    with pytest.raises(Unauthorized):
        once.check("1", b"c")
    now = 2 * hooks.WINDOW_S
    once.check("1", b"c")
    assert len(once._seen) == 1


def test_a_signature_is_of_the_very_bytes_and_by_the_right_key(proxy: Proxy, ids: list[str]) -> None:
    body = press("approve", ids[0])
    assert slack(proxy, body, secret="sk-test-other").status == 401
    for name in ("X_Slack_Signature", "X_Slack_Request_Timestamp"):
        for wrong in ("", "v0=00", "é", "1e3", "-1", "v1=" + "0" * 64):
            assert slack(proxy, body, **{name: wrong}).status == 401
    at = str(int(time.time()))
    good = "v0=" + hmac.new(SECRET.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
    changed = slack(proxy, body + b"&x=1", X_Slack_Signature=good, X_Slack_Request_Timestamp=at)
    assert changed.status == 401
    body = click(f"approve:{ids[0]}")
    assert discord(proxy, body, key=Ed25519PrivateKey.generate()).status == 401
    for name in ("X_Signature_Ed25519", "X_Signature_Timestamp"):
        for wrong in ("", "00", "zz", "é", "9" * 30):
            assert discord(proxy, body, **{name: wrong}).status == 401
    assert state(proxy, ids[0])[0] == "PENDING"


def test_discord_is_answered_when_it_asks_whether_we_are_there(proxy: Proxy) -> None:
    assert json.loads(discord(proxy, b'{"type":1}').body) == {"type": 1}
    assert proxy.client.send("POST", "/hooks/discord", {}, b'{"type":1}').status == 401


def test_odd_bodies_that_are_signed_decide_nothing(proxy: Proxy, ids: list[str]) -> None:
    for body in (b"", b"payload=", b"payload=[]", b"payload={", b"\xff"):
        assert slack(proxy, body).status in (400, 401), body
    for action, value in (("open", ids[0]), ("approve_all", ids[0])):
        assert slack(proxy, press(action, value)).status == 200
    assert "no approval" in json.loads(slack(proxy, press("approve", "apr_lost")).body)["text"]
    assert slack(proxy, press("approve", ids[0], type="view_submission")).status == 200
    for raw in (b"", b"[]", b"\xff", b'{"type":3}', b'{"type":3,"data":{"custom_id":"edit:x"}}', b'{"type":2}'):
        assert discord(proxy, raw).status == 400, raw
    assert state(proxy, ids[0])[0] == "PENDING" and "Traceback" not in proxy.log


def test_without_keys_in_the_settings_there_are_no_buttons(tmp_path: Path) -> None:
    with Proxy(tmp_path / "other") as proxy:
        assert slack(proxy, press("approve", "x")).status == 404
        assert discord(proxy, click("approve:x")).status == 404


def test_a_public_key_that_is_none_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="discord_public_key"):
        Proxy(tmp_path / "other", settings={"approvals.discord_public_key": "abc"}).start()


async def test_slack_is_told_where_it_wants_to_hear_it(upstream: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    upstream.replies(plain(b"ok"), plain(b"no", 500))
    await hooks._tell_slack(f"{upstream.url}/actions/x", {"text": "approved"})
    assert json.loads(upstream.requests[0].body) == {"text": "approved"} and not caplog.records
    await hooks._tell_slack(f"{upstream.url}/actions/x", {"text": "approved"})
    await hooks._tell_slack("http://127.0.0.1:1/", {"text": "approved"})
    assert sum(record.name == "agentstate" for record in caplog.records) == 2
