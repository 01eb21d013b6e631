"""The page of one session without scripts: its head, its journal, the panel of a step, and texts that mean harm."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.dashboard.conftest import person
from tests.dashboard.test_sessions import context
from tests.support import chat
from tests.support.people import decide
from tests.support.story import HOSTILE, TOOLS, Story
from tests.support.web import PageSeen, Web

AT = "/dashboard/sessions/"
SLASHED = AT + "nightly%20report%2F7"


def numbers(page: PageSeen) -> list[int]:
    """The steps that a page lists, in its order."""
    return [
        int(given["data-step"])
        for tag, given in page.tags
        if tag == "div" and "data-row" in given and "data-step" in given
    ]


def plain(page: PageSeen) -> str:
    """The text of a page without blanks: coloured bodies stand in pieces."""
    return page.text.replace(" ", "")


def test_the_head_says_what_the_api_says(story: Story, web: Web) -> None:
    head, said = context(web, AT + "invoice-4711")["head"], story.proxy.control.session("invoice-4711")
    assert (head["steps"], head["runs"], head["models"]) == (8, 2, ["gpt-4o-mini"])
    assert head["paid"] == pytest.approx(said["session"]["cost"])
    assert head["saved"] == pytest.approx(sum(run["saved"] for run in said["runs"]))


def test_an_id_with_a_slash_has_its_own_page(web: Web) -> None:
    page = web.get(SLASHED)
    assert page.status == 200 and "nightly report/7" in page.text
    assert web.get(AT + "nightly%20report/7").status == 404
    assert json.loads(web.get(SLASHED + ".json").html)["head"]["id"] == "nightly report/7"


def test_an_id_that_ends_like_the_address_of_json_has_a_page_too(story: Story, web: Web) -> None:
    story.conversation("notes.json", 1)
    [link] = {link for link in web.get("/dashboard?q=notes").links if link.startswith(AT)}
    assert link == AT + "notes%2Ejson" and "<html" in web.get(link).html
    assert json.loads(web.get(link + ".json").html)["head"]["id"] == "notes.json"


def test_a_page_of_many_long_messages_lays_out_some_and_shows_the_rest_plain(story: Story, web: Web) -> None:
    long = [{"role": "user", "content": "**b** " * 9000}] * 30
    assert story.proxy.client.ask("long-messages", long).status == 200
    page = web.get(AT + "long-messages?step=0")
    assert page.status == 200 and 20 < page.html.count('<pre class="plain">') < 30 and "<strong>b</strong>" in page.html


def test_a_session_that_is_none_is_said_in_words(web: Web) -> None:
    page = web.get(AT + "nobody")
    assert page.status == 404 and "there is no session 'nobody'" in page.text


def test_a_ruler_says_that_a_run_was_fast_forwarded_for_nothing(web: Web) -> None:
    page = web.get(AT + "invoice-4711")
    assert numbers(page) == list(range(8))
    assert re.search(r"run 1 .*? run 2 run-2 ⟲ fast-forwarded 6 steps in [\d.]+ ms, \$0\.00", page.text)
    assert page.text.index("fast-forwarded") > page.text.index("number 5")


def test_a_ruler_says_how_the_run_before_ended(story: Story, web: Web) -> None:
    control = story.proxy.control
    for run, replaces in (("life-1", None), ("life-2", "life-1")):
        control.post("/api/sessions/crashed/runs", {"run": run, "replaces": replaces, "supervisor_pid": None})
        story.ask("crashed", [chat.user("first")], run=run)
        if replaces is None:
            control.post(f"/api/sessions/crashed/runs/{run}/end", {"exit_code": 137})
    text = web.get(AT + "crashed").text
    assert re.search(r"run 1 ended, exit 137, \d\d:\d\d:\d\d run 2 life-2 ⟲ fast-forwarded 1 step in", text)


def test_who_paid_a_step_and_who_was_given_it_again_stands_beside_it(web: Web) -> None:
    journal = context(web, AT + "invoice-4711")["journal"]
    assert journal["gutter"] == ["run-1", "run-2"]
    steps = [entry for entry in journal["entries"] if "gutter" in entry]
    assert [step["gutter"] for step in steps] == [["paid", "replayed"]] * 6 + [["", "paid"]] * 2
    assert [step["state"] for step in steps] == ["replayed"] * 6 + ["done"] * 2


def test_pages_of_a_long_journal_hold_200_steps_and_lead_on(story: Story, web: Web) -> None:
    with story.proxy.client.connect() as connection:
        for number in range(205):
            answer = story.proxy.client.ask("long", f"question {number}", run="r", model="gpt-4o-mini", on=connection)
            assert answer.status == 200
    newest = web.get(AT + "long")
    assert numbers(newest) == list(range(5, 205))
    assert AT + "long?from=0" in newest.links
    first = web.get(AT + "long?from=0")
    assert numbers(first) == list(range(200)) and AT + "long?from=200" in first.links
    assert numbers(web.get(AT + "long?from=200")) == list(range(200, 205))
    # A step that is chosen is on the page that opens.
    assert 3 in numbers(web.get(AT + "long?step=3"))


@pytest.mark.parametrize(
    ("query", "there"),
    [("failed=1", [2]), ("find=invoice+is+number+1", [1]), ("find=NOBODY+said+this", []), ("find=overloaded", [2])],
)
def test_filters_leave_the_steps_that_they_name(web: Web, query: str, there: list[int]) -> None:
    page = web.get(f"{SLASHED}?{query}")
    assert numbers(page) == there
    assert f"{len(there)} of 3 steps" in page.text


def test_a_text_is_found_where_it_is_said_first_and_not_in_every_step_that_repeats_it(web: Web) -> None:
    assert numbers(web.get(AT + "invoice-4711?find=is+number+2")) == [2]


def test_tools_only_leaves_the_steps_that_call_tools(story: Story, web: Web) -> None:
    call = chat.user('call search {"to": "the archive"}')
    story.ask("calling", [chat.user("hello")], run="r")
    story.ask("calling", [chat.user("hello"), call], run="r", tools=TOOLS)
    page = web.get(AT + "calling?tools=1")
    assert numbers(page) == [1] and "search(to=the archive)" in page.text


def test_a_step_is_shown_in_six_tabs(story: Story, web: Web) -> None:
    said = story.proxy.control.steps("invoice-4711")[2]
    at = AT + "invoice-4711?step=2"
    conversation = web.get(at)
    assert "5 earlier messages" in conversation.text
    assert conversation.text.count("Which invoice is number 2, and is it paid?") >= 2  # asked, answered
    assert "Which invoice is number 1" in web.get(at + "&all=1").text
    request = web.get(at + "&tab=request")
    assert '"model":"gpt-4o-mini"' in plain(request) and "Copy as curl" in request.text
    assert '"completion_tokens":210' in plain(web.get(at + "&tab=response"))
    attempts = web.get(at + "&tab=attempts")
    assert "openai" in attempts.text and "200" in attempts.text
    timing = web.get(at + "&tab=timing")
    assert "run-2" in timing.text and "from the journal" in timing.text
    raw = context(web, at + "&tab=raw")["step"]
    assert raw["request"]["text"] == said["prompt"] and raw["given"]["text"] == said["response"]
    assert ["content-type", "application/json"] in raw["head"]


def test_a_request_to_copy_holds_no_key(story: Story, web: Web) -> None:
    step = context(web, AT + "invoice-4711?step=1&tab=request")["step"]
    assert "$OPENAI_API_KEY" in step["curl"] and "sk-test" not in web.get(AT + "invoice-4711?step=1&tab=request").html
    assert "sk-test" not in web.get(AT + "invoice-4711?step=1&tab=raw").html


def test_a_fallback_is_told_with_what_failed_before(web: Web) -> None:
    assert "fallback to openai/gpt-4o-mini" in web.get(AT + "translate").html
    text = web.get(AT + "translate?step=0&tab=attempts").text
    assert "500" in text and "openai/gpt-4o-mini" in text


def test_a_failed_step_says_why(web: Web) -> None:
    page = web.get(SLASHED + "?step=2")
    assert "✕ failed" in page.text and "overloaded" in page.text


def test_a_held_step_leads_to_its_approval_and_says_that_nothing_was_given(story: Story, web: Web) -> None:
    page = web.get(AT + "mail-12?step=0")
    [approval] = [one for one in story.proxy.control.get("/api/approvals/pending") if one["session_id"] == "mail-12"]
    assert "1 call waits for you: send_email" in page.text and f"/dashboard/approvals/{approval['id']}" in page.links
    assert "The agent was given nothing of this yet" in page.text


def test_an_edited_call_is_shown_as_it_was_given_and_as_it_came(story: Story, web: Web) -> None:
    approval = story.hold("edited-1", '{"to": "bob@example.test", "subject": "No"}')
    decide(story.proxy, approval, "EDITED", arguments={"to": "bob@example.test", "subject": "Yes"})
    story.waiting[-1].answer()
    page = web.get(AT + "edited-1?step=0")
    assert "What the agent was given" in page.text and "What the provider sent" in page.text
    assert '"Yes"' in page.text and '"No"' in page.text
    assert '\\"Yes\\"' in plain(web.get(AT + "edited-1?step=0&tab=response"))


def test_a_paused_session_says_by_whom_and_why(story: Story, web: Web) -> None:
    story.conversation("paused-1", 1)
    story.proxy.control.post("/api/sessions/paused-1/pause", {"reason": "the invoices look wrong"})
    page = web.get(AT + "paused-1")
    assert "Paused by admin: the invoices look wrong" in page.text
    assert AT + "paused-1/resume" in page.links and AT + "paused-1/pause" not in page.links


def test_what_a_run_asked_beside_the_journal_is_said_above_it(story: Story, web: Web) -> None:
    story.conversation("strayed", 2)
    story.ask("strayed", [chat.user("Something else altogether")], run="run-2")
    page = web.get(AT + "strayed")
    assert "Divergence: run run-2 asks what the journal does not hold" in page.text
    assert "/dashboard/compare?a=strayed%23run-1&b=strayed%23run-2" in page.links


def test_who_may_not_do_a_thing_sees_no_way_to_it(story: Story) -> None:
    for role, there in (("viewer", []), ("approver", ["rate"])):
        page = person(story, f"session-{role}", role).get(AT + "invoice-4711?step=1")
        verbs = {link.removeprefix(AT + "invoice-4711/").partition("?")[0] for link in page.links if "4711/" in link}
        assert sorted(verbs) == there


@pytest.mark.parametrize("query", ["step=x", "step=-1", "from=1e9", "step=99999999999999999999"])
def test_a_number_that_is_none_is_refused(web: Web, query: str) -> None:
    page = web.get(f"{AT}invoice-4711?{query}")
    assert page.status == 400 and "must be a whole number" in page.text


def test_a_step_that_is_none_is_said_in_words(web: Web) -> None:
    page = web.get(AT + "invoice-4711?step=800")
    assert page.status == 404 and "has no step 800; it has the steps 0 to 7" in page.text


def test_texts_that_mean_harm_are_texts(web: Web) -> None:
    for query in ("", "?step=0", "?step=0&all=1", "?step=0&tab=request", "?step=0&tab=response", "?step=0&tab=raw"):
        page = web.get(AT + "hostile" + query)
        assert page.status == 200
        for tag, given in page.tags:
            assert tag not in ("iframe", "object", "embed", "style") and not (tag == "script" and "src" not in given)
            assert not any(name.startswith("on") or name == "style" for name in given)
            if tag == "img":
                raise AssertionError("an image would be fetched")
            if tag == "a":
                assert not given.get("href", "").lower().startswith(("javascript:", "data:"))
        assert "\u202e" not in page.html and "\u200b" not in page.html
    page = web.get(AT + "hostile?step=0")
    assert "‹U+202E›" in page.text and "(evil.example)" in page.text
    [link] = {given["rel"] for tag, given in page.tags if tag == "a" and "evil.example" in given.get("href", "")}
    assert link == "noopener noreferrer nofollow"
    assert "<script>window.harmed = 1</script>" in page.text  # as the text that it is


def test_a_body_that_is_large_is_cut_until_all_of_it_is_asked_for(story: Story, web: Web) -> None:
    large = "A" * 1_200_000
    answer: Any = story.ask("large", [chat.user(large)], run="r")
    assert answer is not None
    at = AT + "large?step=0&tab=request"
    page = web.get(at)
    assert len(page.html) < 1_100_000 and "Show all 1.2 MB" in page.text
    assert large in web.get(at + "&all=1").html
    assert len(web.get(AT + "large?step=0").html) < 200_000


def test_the_hostile_text_is_not_changed_in_the_journal(story: Story) -> None:
    [step] = story.proxy.control.steps("hostile")
    assert json.loads(step["prompt"])["messages"][0]["content"] == HOSTILE


def test_a_fork_shows_what_it_shares_and_its_source_where_it_was_forked(story: Story, web: Web) -> None:
    story.conversation("source", 4)
    story.proxy.control.post("/api/sessions/source/fork", {"step_number": 2, "name": "branch-off"})
    page = web.get(AT + "branch-off")
    assert numbers(page) == [0, 1] and page.text.count("shared") == 2
    assert "Forked from source before step 2" in page.text and AT + "source?step=2" in page.links
    assert "Which invoice is number 1" in web.get(AT + "branch-off?step=1").text
    assert web.get(AT + "source").text.count("forked before this step: branch-off") == 1


def test_an_edited_answer_stands_in_the_place_of_the_recorded_one_beside_it(story: Story, web: Web) -> None:
    story.conversation("amended", 3)
    said = {"text": "Number 1 is not paid.", "reason": "it was wrong"}
    story.proxy.control.post("/api/sessions/amended/steps/1/edit", said)
    entries = context(web, AT + "amended")["journal"]["entries"]
    steps = {entry["number"]: entry for entry in entries if "gutter" in entry}
    assert steps[1]["edited"] and steps[1]["summary"] == "Number 1 is not paid." and not steps[0]["edited"]
    page = web.get(AT + "amended?step=1")
    assert "As edited by admin: it was wrong" in page.text and "What the provider sent" in page.text
    assert "Number 1 is not paid." in page.text and "You asked: Which invoice is number 1" in page.text


def test_steps_that_a_rollback_left_behind_are_shown_as_such(story: Story, web: Web) -> None:
    story.conversation("rolled", 4)
    story.proxy.control.post("/api/sessions/rolled/reset", {"step_number": 2})
    entries = context(web, AT + "rolled")["journal"]["entries"]
    assert [entry["superseded"] for entry in entries if "gutter" in entry] == [False, False, True, True]
    assert "superseded" in web.get(AT + "rolled?step=3").text
