"""The dialogs of the session verbs as plain pages: each says what it would do, does it by a form, keeps refusals."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import person
from tests.support import chat
from tests.support.approvals import Held, prepared
from tests.support.proxy import Proxy
from tests.support.story import MODEL, TOOLS, Story
from tests.support.web import PageSeen, Web

AT = "/dashboard/sessions"


def talk(story: Story, session: str, turns: int = 4) -> None:
    story.conversation(session, turns)


def chosen(page: PageSeen) -> list[str]:
    """The numbers of the steps that the list offers."""
    return [given["value"] for tag, given in page.tags if given.get("type") == "radio" and given.get("name") == "step"]


def outcomes(story: Story, session: str, turns: int, run: str) -> list[str]:
    """How a new run of the same agent is answered, turn by turn."""
    messages = [chat.system("You keep the books. Answer in one line.")]
    found = []
    for turn in range(turns):
        messages.append(chat.user(f"Which invoice is number {turn}, and is it paid?"))
        answer = story.proxy.client.ask(session, messages, run=run, model=MODEL)
        found.append(answer.outcome or "")
        messages.append({"role": "assistant", "content": json.loads(answer.body)["choices"][0]["message"]["content"]})
    return found


def post(page: PageSeen) -> Any:
    """The form that does it."""
    return next(form for form in page.forms if form.method == "post" and form.action.startswith(AT))


# --- rollback ---


def test_a_rollback_is_chosen_from_a_list_stated_and_done(story: Story, web: Web) -> None:
    talk(story, "back")
    page = web.get(f"{AT}/back/rollback?step=2")
    assert page.status == 200 and chosen(page) == ["0", "1", "2", "3"]
    assert "Steps 2–3 (2 steps, $" in page.text and "will be superseded, not deleted." in page.text
    assert "The next run replays 2 recorded answers at no cost and pays from step 2." in page.text
    assert "Roll back 2 steps" in page.text and "agentstate rollback back 2" in page.text
    done = web.submit(post(page))
    assert (done.status, done.location) == (303, f"{AT}/back")
    assert "session back goes on from step 2" in web.follow(done).text
    assert outcomes(story, "back", 4, "run-2") == ["replay", "replay", "live", "live"]


def test_without_a_step_nothing_is_offered_but_the_list(story: Story, web: Web) -> None:
    talk(story, "listed", 2)
    page = web.get(f"{AT}/listed/rollback")
    assert "Choose a step to see what would happen." in page.text
    assert not [form for form in page.forms if form.method == "post" and form.action.startswith(AT)]


def test_calls_that_acted_are_named_before_a_rollback(story: Story, web: Web) -> None:
    messages = [chat.user("Look it up."), chat.user('call search {"to": "invoices"}')]
    made = story.ask("acted", messages, run="run-1", tools=TOOLS)
    call = made["tool_calls"][0]
    messages += [made, {"role": "tool", "tool_call_id": call["id"], "content": "found it"}]
    story.ask("acted", messages, run="run-1", tools=TOOLS)
    text = web.get(f"{AT}/acted/rollback?step=0").text
    assert "These tools already acted and may act again:" in text
    assert "search (step 0) was made by the agent" in text


def test_a_rollback_can_be_undone_by_going_back_to_the_branch(story: Story, web: Web) -> None:
    talk(story, "undone")
    web.submit(post(web.get(f"{AT}/undone/rollback?step=1")))
    branches = story.proxy.control.get("/api/sessions/undone/branches")
    first = next(one["branch"] if "branch" in one else one["id"] for one in branches if not one["head"])
    page = web.get(f"{AT}/undone/rollback?branch={first}")
    assert "Steps 1–3 (3 steps) will be shown again." in page.text and "Bring back 3 steps" in page.text
    assert web.submit(post(page)).status == 303
    assert outcomes(story, "undone", 4, "run-2") == ["replay"] * 4


def test_a_refusal_stays_in_the_dialog(story: Story, web: Web) -> None:
    talk(story, "refused", 2)
    page = web.get(f"{AT}/refused/rollback?step=99")
    assert "step_number is 99" in page.text and chosen(page)
    assert not [form for form in page.forms if form.method == "post" and form.action.startswith(AT)]
    late = web.submit(post(web.get(f"{AT}/refused/rollback?step=1")), step="77")
    assert late.status == 400 and "step_number is 77" in late.text and "Roll back 1 step" in late.text
    assert web.get(f"{AT}/nobody/rollback?step=1").status == 404
    assert web.get(f"{AT}/refused/rollback?step=-1").status == 400


# --- fork ---


def test_a_fork_takes_its_name_and_shares_what_is_before_its_point(story: Story, web: Web) -> None:
    talk(story, "source")
    page = web.get(f"{AT}/source/fork?step=3")
    assert "A new session shares the steps below 3; nothing of source changes." in page.text
    done = web.submit(post(page), name="copy/1")
    assert done.location == f"{AT}/copy%2F1"
    assert outcomes(story, "copy%2F1", 4, "run-1") == ["replay", "replay", "replay", "live"]
    taken = web.submit(post(page), name="copy/1")
    assert taken.status == 409 and "already" in taken.text
    assert next(one.value for one in post(taken).fields if one.name == "name") == "copy/1"


def test_a_fork_can_edit_its_last_shared_answer_first(story: Story, web: Web) -> None:
    talk(story, "first")
    done = web.submit(post(web.get(f"{AT}/first/fork?step=1")), name="first-edited", edit_first="1")
    assert done.location == f"{AT}/first-edited/edit?step=1"
    page = web.get(done.location)
    assert "Edit the response of step 1" in page.text
    assert "You asked: Which invoice is number 1" in unescape(page.html)


# --- edit ---


def test_an_edited_answer_is_what_the_next_run_gets(story: Story, web: Web) -> None:
    talk(story, "edited", 3)
    page = web.get(f"{AT}/edited/edit?step=1")
    assert "From now on step 1 has the answer that you write" in page.text
    form = post(page)
    checked = web.submit(form, "check", text="Number 1 is\r\npaid.")
    assert checked.status == 200 and "What changes" in checked.text and "paid." in checked.text
    done = web.submit(post(checked), "edit", reason="it was wrong")
    assert (done.status, done.location) == (303, f"{AT}/edited?step=1")
    again = web.get(f"{AT}/edited/edit?step=1")
    assert "All 2 versions of this response" in again.text and "it was wrong" in again.text
    messages = [chat.system("You keep the books. Answer in one line.")]
    for turn in range(2):
        messages.append(chat.user(f"Which invoice is number {turn}, and is it paid?"))
        answer = story.proxy.client.ask("edited", messages, run="run-2", model=MODEL)
        said = json.loads(answer.body)["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": said})
    assert (answer.outcome, said) == ("edited", "Number 1 is\npaid.")


def test_arguments_of_a_call_are_edited_and_checked(story: Story, web: Web) -> None:
    messages = [chat.user("Look it up."), chat.user('call search {"to": "invoices"}')]
    story.ask("arguments", messages, run="run-1", tools=TOOLS)
    form = post(web.get(f"{AT}/arguments/edit?step=0"))
    name = next(one.name for one in form.fields if one.name.startswith("arguments-"))
    for typed, said in (("{", "not JSON"), ('{"to": 5}', "do not fit the schema"), ("[]", "JSON object")):
        page = web.submit(form, "edit", **{name: typed, "reason": "kept"})
        assert page.status == 422 and said in page.text
        assert next(one.value for one in post(page).fields if one.name == name) == typed and "kept" in page.text
    assert web.submit(form, "edit", **{name: '{"to": "receipts"}'}).status == 303
    answer = story.proxy.client.ask("arguments", messages, run="run-2", model=MODEL, tools=TOOLS)
    call = json.loads(answer.body)["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"to": "receipts"}


def test_what_cannot_be_edited_says_why(story: Story, web: Web) -> None:
    page = web.get(f"{AT}/nightly%20report%2F7/edit?step=2")
    assert "only a complete answer can be edited" in page.text
    assert "Edit a response" in web.get(f"{AT}/invoice-4711/edit").text


# --- one thing ---


def test_a_session_is_paused_with_a_reason_and_resumed(story: Story, web: Web) -> None:
    talk(story, "paused", 1)
    done = web.submit(post(web.get(f"{AT}/paused/pause")), note="look at it first")
    assert done.location == f"{AT}/paused"
    found = story.proxy.control.get("/api/sessions/paused")["session"]
    assert (found["status"], found["note"]["by"]) == ("PAUSED", "admin")
    page = web.get(f"{AT}/paused/resume")
    assert "Paused by admin: look at it first." in page.text
    assert web.submit(post(page)).status == 303
    assert story.proxy.control.get("/api/sessions/paused")["session"]["status"] == "RUNNING"
    assert not [form for form in web.get(f"{AT}/paused/resume").forms if form.action.endswith("/resume")]


def test_a_session_that_is_over_is_not_paused(story: Story, web: Web) -> None:
    page = web.get(f"{AT}/done-1/pause")
    assert "there is nothing to pause" in page.text
    assert not [form for form in page.forms if form.action.endswith("/pause")]


def test_a_session_is_deleted_for_good_and_says_so_before(tmp_path: Path) -> None:
    [key] = prepared(tmp_path, [Held()], session="gone/now")
    with Proxy(tmp_path) as proxy:
        web = Web(proxy.url).log_in(proxy.admin_token)
        page = web.get(f"{AT}/gone%2Fnow/delete")
        assert "1 step and 1 run go for good" in page.text and "Delete 1 step for good" in page.text
        kept = web.submit(post(page))
        assert kept.status == 409 and "stays: " in kept.text and post(kept)
        proxy.control.post(f"/api/approvals/{key}/action", {"action": "REJECTED", "reason": "no"})
        done = web.submit(post(page))
        assert done.location == "/dashboard", done.text
        assert "Session gone/now is deleted." in web.follow(done).text
        assert web.get(f"{AT}/gone%2Fnow/delete").status == 404


def test_a_session_that_a_fork_shares_says_that_it_stays(story: Story, web: Web) -> None:
    talk(story, "shared", 2)
    web.submit(post(web.get(f"{AT}/shared/fork?step=1")), name="sharing")
    page = web.get(f"{AT}/shared/delete")
    assert "it shares its steps with sharing" in page.text
    assert not [form for form in page.forms if form.action.endswith("/delete")]


def test_sessions_and_steps_are_rated(story: Story, web: Web) -> None:
    talk(story, "rated", 2)
    assert web.submit(post(web.get(f"{AT}/rated/rate")), rating="bad", note="too slow").status == 303
    done = web.submit(post(web.get(f"{AT}/rated/rate?step=1")), rating="good")
    assert done.location == f"{AT}/rated?step=1"
    found = story.proxy.control.get("/api/sessions/rated")
    assert found["session"]["rating"]["rating"] == "bad" and found["steps"][1]["rating"]["rating"] == "good"
    assert "too slow" in web.get(f"{AT}/rated/rate").text
    assert web.submit(post(web.get(f"{AT}/rated/rate")), rating="excellent").status == 400


# --- another model ---


def test_a_step_is_tried_with_another_model_and_both_answers_stand_side_by_side(story: Story, web: Web) -> None:
    talk(story, "tried", 2)
    page = web.get(f"{AT}/tried/try?step=1")
    assert "instead of gpt-4o-mini" in page.text and "No agent is given the answer" in page.text
    refused = web.submit(post(page), model=" ")
    assert refused.status == 400 and "say which model" in refused.text
    done = web.submit(post(page), model="gpt-4o", provider_key="sk-test-only-now")
    assert done.status == 303, done.text
    assert story.upstream.requests[-1].json()["model"] == "gpt-4o"
    shown = web.get(done.location)
    assert "recorded" in shown.text and "the model" in shown.text and "gpt-4o-mini" in shown.text
    assert "sk-test-only-now" not in shown.html and b"sk-test-only-now" not in story.proxy.stored_bytes()
    assert "sk-test-only-now" not in story.proxy.log


# --- who may ---


@pytest.mark.parametrize("verb", ["rollback", "fork", "edit", "pause", "resume", "delete", "rate", "try"])
def test_only_who_may_do_it_reaches_a_dialog(story: Story, web: Web, verb: str) -> None:
    other = person(story, f"ann-{verb}", "viewer")
    assert other.get(f"{AT}/invoice-4711/{verb}?step=1").status == 403
    path = f"{AT}/invoice-4711/{verb}"
    assert web.send("POST", path, "csrf=x&step=1").status == 403
    stranger = Web(story.proxy.url).send("POST", path, "step=1")
    assert stranger.status == 303 and stranger.location.startswith("/dashboard/login")
    assert json.loads(web.get(f"{AT}/invoice-4711/{verb}.json?step=1").html)["session"] == "invoice-4711"
