"""Tool calls under a claim, and the verbs: what stands is listed and not made again unasked, in forks too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.test_tools import call, end_of, first, proxy, script, server, start, text
from tests.support import chat
from tests.support.client import status_of
from tests.support.doubt import effects_of, question, settle
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

__all__ = ["proxy", "script", "server"]


def fork(proxy: Proxy, session: str, step: int) -> str:
    return str(proxy.control.post(f"/api/sessions/{session}/fork", {"step_number": step})["session"]["id"])


def test_fork_is_given_the_results_of_calls_before_its_point_and_sends_none(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    given = [call(proxy, session, "charge", cents=cents) for cents in (1, 2)]
    name = fork(proxy, session, 1)
    again = call(proxy, name, "charge", cents=1)
    assert (again.outcome, again.body, server.calls) == ("replay", given[0].body, 2)
    assert [(one["step_number"], one["tool"]) for one in effects_of(proxy, name)] == [(0, "charge")]


@pytest.mark.parametrize("action", ["APPROVED", "REJECTED"])
def test_call_that_the_source_made_behind_the_point_is_not_made_by_the_fork_unasked(
    proxy: Proxy, server: Upstream, session: str, action: str
) -> None:
    call(proxy, session, "charge", cents=1)
    call(proxy, session, "charge", cents=2)
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=fork&step_number=1")
    assert [one["arguments"] for one in preview["standing"]] == [{"cents": 2}]
    name = fork(proxy, session, 1)
    with start(proxy, name, "charge", cents=2) as connection:
        [asked] = pending(proxy, session=name)
        assert (asked["kind"], "step 1" in asked["rule"]["why"]) == ("duplicate", True)
        decide(proxy, asked, action)
        told = end_of(connection.answer())["result"]
    assert (server.calls, bool(told.get("isError"))) == ((3, False) if action == "APPROVED" else (2, True))
    keys = [{one["key"] for one in effects_of(proxy, key)} for key in (session, name)]
    assert len(keys[0] & keys[1]) == 1  # that of the call which is shared
    # And so it is the other way round: what the fork made, its source does not make unasked.
    with start(proxy, name, "charge", cents=3) as connection:
        connection.answer()
    with start(proxy, session, "charge", cents=3):
        [asked] = pending(proxy, session=session)
        assert asked["kind"] == "duplicate"
        decide(proxy, asked, "REJECTED")


def test_approval_of_a_call_is_no_leave_for_it_any_more_once_a_person_has_edited_that_call(
    server: Upstream, tmp_path: Path
) -> None:
    """The agent was given the answer, and makes the call only after the edit."""
    proposed = chat.completion("", tool_calls=[chat.tool_call("charge", '{"to": "bob"}')])
    settings = {"mcp.bank.url": server.url.removesuffix("/v1") + "/mcp"}
    policies = '[[policies]]\ntools = ["charge"]\n'
    with (
        Upstream(lambda seen: plain(proposed)) as model,
        Proxy(tmp_path, model.url, settings=settings, file=policies) as proxy,
    ):
        for session, left in (("edited", 1), ("edited-back", 0)):
            asking = Asking(lambda key=session: proxy.client.ask(key, "q", run="a"))  # type: ignore[misc]
            decide(proxy, pending(proxy, session=session)[0], "APPROVED")
            asking.answer()
            edits = ["kim", "bob"] if left == 0 else ["kim"]
            for to in edits:
                path = f"/api/sessions/{session}/steps/0/edit"
                proxy.control.post(path, {"arguments": {"call_1": {"to": to}}})
            with start(proxy, session, "charge", to="bob") as connection:
                if left:
                    [asked] = pending(proxy, session=session)
                    decide(proxy, asked, "REJECTED")
                assert bool(end_of(connection.answer())["result"].get("isError")) is bool(left)
        assert server.calls == 1


def test_call_in_doubt_cannot_be_shared(proxy: Proxy, server: Upstream, session: str) -> None:
    server.script = lambda seen: plain(b"", 502)
    with start(proxy, session, "charge"):
        question(proxy, session)
        status, body = status_of(proxy.control.post, f"/api/sessions/{session}/fork", {"step_number": 1})
        assert (status, b"agentstate settle" in body or b"is held" in body) == (409, True)
    assert fork(proxy, session, 0)


def test_call_in_doubt_is_asked_about_again_once_its_rollback_is_undone_and_is_not_given_up_by_nobody(
    proxy: Proxy, server: Upstream, session: str
) -> None:
    call(proxy, session, "charge", cents=0)
    first(server, plain(b"", 502))
    with start(proxy, session, "charge", cents=1):
        question(proxy, session)
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    proxy.control.post(f"/api/sessions/{session}/rollback", {"step_number": 1})
    assert pending(proxy, 0, session) == []
    proxy.control.post(f"/api/sessions/{session}/rollback", {"branch": old})
    [asked] = pending(proxy, 1, session)
    assert (asked["kind"], asked["step_number"]) == ("doubt", 1)
    with start(proxy, session, "charge", run="b", cents=1) as connection:
        settle(proxy, session, 1, "did_not_run")
        assert not end_of(connection.answer())["result"].get("isError")
    assert server.calls == 3


def test_rollback_lists_what_stands_before_and_after_it_is_done(proxy: Proxy, server: Upstream, session: str) -> None:
    for cents in range(3):
        call(proxy, session, "charge", cents=cents)
    call(proxy, session, "get_balance")
    preview = proxy.control.get(f"/api/sessions/{session}/preview?verb=rollback&step_number=1")
    done = proxy.control.post(f"/api/sessions/{session}/rollback", {"step_number": 1})
    assert preview["standing"] == done["standing"]
    assert [one["step_number"] for one in done["standing"]] == [1, 2]
    old = proxy.control.get(f"/api/sessions/{session}/branches")[0]["id"]
    back = proxy.control.post(f"/api/sessions/{session}/rollback", {"branch": old})
    assert back["standing"] == []
    assert text(call(proxy, session, "charge", run="b", cents=1)) == "done"
    assert server.calls == 4
