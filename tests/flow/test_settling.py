"""People say what became of a call in doubt: on the command line, by a link, by buttons; nothing else passes for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.flow import test_approval_commands, test_approve_page, test_hooks
from tests.support.doubt import question
from tests.support.people import decide, pending
from tests.support.proxy import Proxy

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    public = test_hooks.KEY.public_key().public_bytes_raw().hex()
    chats = {"approvals.slack_signing_secret": test_hooks.SECRET, "approvals.discord_public_key": public}
    with Proxy(tmp_path_factory.mktemp("settling"), settings=chats) as running:
        ours = {"name": "ann", "role": "approver", "slack": "Uann", "discord": "13ann"}
        running.control.post("/api/approvers", ours)
        yield running


def claim(proxy: Proxy, session: str, run: str) -> dict[str, Any]:
    asked = {"arguments": {"cents": 5}, "class": "once", "process": f"of {run}", "sending": "1"}
    target = f"/s/{session}/r/{run}/tools/charge/claim"
    return dict(proxy.client.send("POST", target, JSON, json.dumps(asked).encode()).json())


def in_doubt(proxy: Proxy, session: str) -> str:
    """The question about a function that a process claimed and was never heard of again."""
    assert claim(proxy, session, "a")["state"] == "claimed"
    asked = {"arguments": {"cents": 5}, "class": "once", "process": "of b", "sending": "1"}
    with proxy.client.connect() as connection:
        connection.request("POST", f"/s/{session}/r/b/tools/charge/claim", JSON, json.dumps(asked).encode())
        return str(question(proxy, session)["approval"])


def outcome(proxy: Proxy, session: str) -> Any:
    """What the next process is told: leave, or what the call came to."""
    told = claim(proxy, session, "b")
    return "leave" if told["state"] == "claimed" else told["outcome"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ran", "--result", '{"charged": 5}'], {"result": {"charged": 5}}),
        (["ran", "--result", "charged five"], {"result": "charged five"}),
        (["ran"], {"result": None}),
        (["did-not-run"], "leave"),
        (["abort", "--reason", "too risky"], None),
    ],
)
def test_the_command_line_settles_a_call_in_doubt(proxy: Proxy, session: str, words: list[str], told: Any) -> None:
    key = in_doubt(proxy, session)
    assert key in test_approval_commands.run(proxy, "approvals")
    for yes_or_no in (["approve", key], ["reject", key, "--reason", "no"]):
        assert "agentstate settle" in test_approval_commands.run(proxy, *yes_or_no, code=1)
    assert "by admin" in test_approval_commands.run(proxy, "settle", key, *words)
    found = outcome(proxy, session)
    assert found == told if told is not None else "too risky" in found["refused"]


def test_the_command_line_takes_no_outcome_that_does_not_fit(proxy: Proxy, session: str) -> None:
    key = in_doubt(proxy, session)
    for words, code in ((["perhaps"], 2), (["reuse"], 1), (["abort", "--result", "1"], 1)):
        test_approval_commands.run(proxy, "settle", key, *words, code=code)
    assert [one["id"] for one in pending(proxy, session=session)] == [key]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"action": "REUSED", "result": '{"charged": 5}'}, {"result": {"charged": 5}}),
        ({"action": "REUSED", "result": " "}, {"result": None}),
        ({"action": "APPROVED"}, "leave"),
        ({"action": "REJECTED"}, None),
    ],
)
def test_the_page_behind_a_link_settles_a_call_in_doubt(
    proxy: Proxy, session: str, fields: dict[str, str], told: Any
) -> None:
    link = test_approve_page.link(proxy, in_doubt(proxy, session))
    shown = test_approve_page.get(proxy, link)
    assert b"It did not run: send it again" in shown.body and b">Approve<" not in shown.body
    seen = {"digest": test_approve_page.digest(shown), "reason": ""}
    assert test_approve_page.post(proxy, link, {**seen, **fields}).status == 303
    found = outcome(proxy, session)
    assert found == told if told is not None else "given up by link:" in found["refused"]


@pytest.mark.parametrize(("button", "told"), [("ran", {"result": None}), ("resend", "leave"), ("abort", None)])
@pytest.mark.parametrize("place", ["slack", "discord"])
def test_buttons_settle_a_call_in_doubt(proxy: Proxy, session: str, place: str, button: str, told: Any) -> None:
    key = in_doubt(proxy, session)
    if place == "slack":
        said = test_hooks.slack(proxy, test_hooks.press(button, key)).body
    else:
        said = test_hooks.discord(proxy, test_hooks.click(f"{button}:{key}")).body
    assert b"by ann" in said
    found = outcome(proxy, session)
    assert found == told if told is not None else "given up by ann" in found["refused"]


def test_an_edit_settles_nothing(proxy: Proxy, session: str) -> None:
    key = in_doubt(proxy, session)
    with pytest.raises(Exception, match="422"):
        decide(proxy, key, "EDITED", arguments={"cents": 1})
    assert [one["id"] for one in pending(proxy, session=session)] == [key]
