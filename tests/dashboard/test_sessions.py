"""The page of all sessions without scripts: what it shows, what it filters, what is done to several at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import person
from tests.support.proxy import OtherProcess, Proxy
from tests.support.story import Story
from tests.support.web import PageSeen, Web


def rows(page: PageSeen) -> list[str]:
    """The sessions that a page lists, in its order."""
    return [given["id"].removeprefix("row:") for tag, given in page.tags if tag == "tr" and "data-row" in given]


def context(web: Web, path: str) -> dict[str, Any]:
    """What a page shows, as JSON."""
    address, _, query = path.partition("?")
    return dict(json.loads(web.get(f"{address}.json?{query}").html))


def test_a_row_says_what_the_api_says_of_its_session(story: Story, web: Web) -> None:
    by_id = {row["id"]: row for row in context(web, "/dashboard")["sessions"]}
    row, said = by_id["invoice-4711"], story.proxy.control.session("invoice-4711")
    assert (row["steps"], row["runs"]) == (8, 2) == (said["session"]["steps"], said["session"]["runs"])
    assert row["paid"] == pytest.approx(said["session"]["cost"])
    assert row["saved"] == pytest.approx(sum(run["saved"] for run in said["runs"]))
    assert row["labels"] == ["billing", "prod"] and row["model"] == "gpt-4o-mini"
    assert row["ticks"] == ["replayed"] * 6 + ["paid"] * 2
    assert row["tokens"] == sum(step["usage"]["total_tokens"] for step in said["steps"])


def test_each_session_is_in_the_state_that_it_is_in(web: Web) -> None:
    found = {row["id"]: row["state"] for row in context(web, "/dashboard")["sessions"]}
    assert {key: found[key] for key in ("mail-12", "done-1", "nightly report/7", "invoice-4711")} == {
        "mail-12": "held", "done-1": "done", "nightly report/7": "failed", "invoice-4711": "live",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "there"),
    [
        ("q=voice-47", {"invoice-4711"}),
        ("q=VOICE-47", {"invoice-4711"}),
        ("q=bill", {"invoice-4711"}),
        ("q=gpt-4o-down", {"translate"}),
        ("q=%25", set()),
        ("label=prod", {"invoice-4711"}),
        ("label=pro", set()),
        ("model=gpt-4o-down", {"translate"}),
        ("state=held", {"mail-12"}),
        ("state=done,failed", {"done-1", "nightly report/7"}),
        ("status=COMPLETED", {"done-1"}),
        ("status=completed&q=invoice", set()),
        ("until=2020-01-01", set()),
        ("state=paused&since=24h", set()),
    ],
)
def test_a_filter_leaves_the_same_sessions_on_the_page_in_the_api_and_on_the_command_line(
    story: Story, web: Web, query: str, there: set[str]
) -> None:
    told = {"invoice-4711", "done-1", "translate", "nightly report/7", "mail-12", "hostile"}
    assert set(rows(web.get(f"/dashboard?{query}"))) & told == there
    assert {row["id"] for row in story.proxy.control.get(f"/api/sessions?{query}")} & told == there
    if "state=" not in query:
        flags = [part.partition("=") for part in query.replace("%25", "%").split("&")]
        names = {"q": "--search"}
        given = [text for name, _, value in flags for text in (names.get(name, f"--{name}"), value)]
        listed = json.loads(story.proxy.cli("sessions", "--json", *given).stdout)
        assert {row["id"] for row in listed} & told == there


@pytest.mark.parametrize("query", ["state=broken", "status=BROKEN", "since=yesterday", "until=2026-13-45"])
def test_a_filter_that_is_none_is_refused_in_words(story: Story, web: Web, query: str) -> None:
    page = web.get(f"/dashboard?{query}")
    assert page.status == 400 and f"{query.partition('=')[0]} is" in page.text


def test_a_filter_that_leaves_nothing_is_named_and_can_be_cleared(web: Web) -> None:
    page = web.get("/dashboard?q=nobody&state=paused")
    assert "No session is like that" in page.text and "clear search: nobody" in page.text
    assert "/dashboard?state=paused" in page.links and "/dashboard?q=nobody" in page.links


def test_a_chip_adds_its_state_to_the_filter_and_takes_it_out(web: Web) -> None:
    page = web.get("/dashboard?state=held&q=m")
    assert "/dashboard?q=m&state=held%2Cfailed" in page.links and "/dashboard?q=m" in page.links


def test_an_empty_journal_says_where_to_point_an_agent(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data") as proxy:
        page = Web(proxy.url).log_in(proxy.admin_token).get("/dashboard")
        assert "No sessions yet. Point your agent here" in page.text
        assert f"OPENAI_BASE_URL={proxy.url}/s/my-agent/v1" in page.text and "agentstate demo" in page.text


def test_pages_lead_on_without_losing_or_repeating_a_session(tmp_path: Path) -> None:
    with Proxy(tmp_path / "data", arguments=["--simulate"]) as proxy:
        for number in range(53):
            assert proxy.client.ask(f"s-{number:02d}", "hello", run="r").status == 200
        web = Web(proxy.url).log_in(proxy.admin_token)
        first = web.get("/dashboard?q=s-")
        [older] = [link for link in first.links if "after=" in link]
        second = web.get(older)
        assert (len(rows(first)), len(rows(second))) == (50, 3)
        assert sorted(rows(first) + rows(second)) == [f"s-{number:02d}" for number in range(53)]
        assert not any("after=" in link for link in second.links) and "/dashboard?q=s-" in second.links


def test_a_row_can_be_fetched_by_itself(web: Web) -> None:
    page = web.get("/dashboard?fragment=row&id=nightly+report%2F7")
    assert rows(page) == ["nightly report/7"] and "<html" not in page.html
    assert web.get("/dashboard?fragment=row&id=nobody").status == 404


# --- several at once ---


def act(web: Web, verb: str, keys: list[str], **more: Any) -> PageSeen:
    """Tick these sessions on the page and press a button."""
    return web.submit(web.get("/dashboard").form("/bulk"), verb, id=keys, **more)


def status(story: Story, key: str) -> str:
    return str(story.proxy.control.session(key)["session"]["status"])


def test_several_sessions_are_paused_and_resumed(story: Story, web: Web) -> None:
    for key in ("several-1", "several-2"):
        story.conversation(key, 1)
    page = web.follow(act(web, "pause", ["several-1", "several-2"]))
    assert "2 sessions were paused" in page.text
    assert [status(story, key) for key in ("several-1", "several-2")] == ["PAUSED", "PAUSED"]
    assert "2 sessions were paused" not in web.get("/dashboard").text  # said once
    assert "1 session was resumed" in web.follow(act(web, "resume", ["several-1"])).text
    assert [status(story, key) for key in ("several-1", "several-2")] == ["RUNNING", "PAUSED"]


def test_what_could_not_be_done_to_some_is_said_beside_what_was(story: Story, web: Web) -> None:
    story.conversation("mixed-1", 1)
    page = web.follow(act(web, "pause", ["mixed-1", "done-1"]))
    assert "1 session was paused; not 1: session done-1 is COMPLETED" in page.text
    refused = act(web, "pause", ["done-1"])
    assert refused.status == 400 and "session done-1 is COMPLETED" in refused.text
    assert "invoice-4711" in rows(refused)  # the list stays


def test_exactly_two_sessions_are_compared(web: Web) -> None:
    assert act(web, "compare", ["done-1", "translate"]).location == "/dashboard/compare?a=translate&b=done-1"
    for keys in (["done-1"], ["done-1", "translate", "hostile"]):
        refused = act(web, "compare", keys)
        assert refused.status == 400 and "tick exactly two" in refused.text
    assert "tick 1 to 500 sessions first" in act(web, "compare", []).text


def test_ticked_sessions_are_led_to_the_page_of_exports(web: Web) -> None:
    assert act(web, "export", ["done-1", "nightly report/7"]).location == (
        "/dashboard/datasets?session=done-1&session=nightly+report%2F7"
    )


def test_sessions_are_deleted_only_when_somebody_says_so_twice(story: Story, web: Web) -> None:
    with OtherProcess(story.proxy.port) as agent:  # of an agent that lives on, nothing is deleted
        assert agent.ask("to-delete", "hello", run="r").startswith("200")
    sure = act(web, "delete", ["to-delete"])
    assert sure.status == 200 and "Delete 1 session?" in sure.text and "agentstate delete to-delete" in sure.text
    assert "to-delete" in rows(web.get("/dashboard"))
    assert "1 session was deleted" in web.follow(web.submit(sure.form("/bulk"), "yes")).text
    assert "to-delete" not in rows(web.get("/dashboard"))


def test_a_session_whose_agent_lives_is_not_deleted_and_the_page_says_why(story: Story, web: Web) -> None:
    refused = web.submit(act(web, "delete", ["mail-12"]).form("/bulk"), "yes")
    assert refused.status == 400 and "session 'mail-12' stays: " in refused.text
    assert "mail-12" in rows(web.get("/dashboard"))


def test_who_is_no_admin_sees_no_buttons_and_may_not_press_them(story: Story) -> None:
    for role in ("viewer", "approver"):
        web = person(story, f"only-{role}", role)
        page = web.get("/dashboard")
        assert "invoice-4711" in rows(page) and not any(form.action == "/dashboard/bulk" for form in page.forms)
        token = next(given["content"] for tag, given in page.tags if tag == "meta" and given.get("name") == "csrf")
        refused = web.send("POST", "/dashboard/bulk", f"csrf={token}&verb=pause&id=invoice-4711")
        assert refused.status == 403 and "asks for the role admin" in refused.text
    assert status(story, "invoice-4711") == "RUNNING"


def test_a_verb_that_is_none_is_refused(web: Web) -> None:
    token = next(given["content"] for tag, given in web.get("/dashboard").tags if given.get("name") == "csrf")
    refused = web.send("POST", "/dashboard/bulk", f"csrf={token}&verb=explode&id=done-1")
    assert refused.status == 400 and re.search("verb is 'explode'", refused.text)
