"""Compare, without scripts: the pairs and figures of the API, folded where they are the same, differences in full."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from tests.support import chat
from tests.support.story import HOSTILE, Story
from tests.support.web import PageSeen, Web

PATH = "/dashboard/compare"


def tell(story: Story, session: str, odd: int, said: str, turns: int = 6) -> None:
    """A conversation that asks something else in turn ``odd``."""
    messages = [chat.system("You keep the books.")]
    for turn in range(turns):
        messages.append(chat.user(said if turn == odd else f"What of invoice {turn}?"))
        answer = story.ask(session, messages, run="run-1")
        messages.append({"role": "assistant", "content": answer["content"]})


def compared(web: Web, a: str, b: str, **more: Any) -> PageSeen:
    page = web.get(f"{PATH}?{urlencode({'a': a, 'b': b, **more})}")
    assert page.status == 200, page.text
    return page


def context(web: Web, a: str, b: str, **more: Any) -> dict[str, Any]:
    return dict(json.loads(web.get(f"{PATH}.json?{urlencode({'a': a, 'b': b, **more})}").html))


def test_the_first_difference_is_shown_and_what_is_the_same_is_folded(story: Story, web: Web) -> None:
    tell(story, "one", 9, "")
    tell(story, "two", 3, "What of invoice 3, really?")
    page = compared(web, "one", "two")
    assert "3 the same · 3 asked otherwise" in page.text.replace("  ", " ")
    assert "⋯ 3 equal steps" in page.text and "difference 1 of 3" in page.text
    assert "Step 3: asked otherwise" in page.text and "really?" in page.text
    found = context(web, "one", "two")
    assert [(row["index"], row["kind"], row["count"]) for row in found["rows"]] == [
        (0, "same", 3), (3, "request", 1), (4, "request", 1), (5, "request", 1),
    ]  # fmt: skip
    assert found["chosen"]["previous"] is None and found["chosen"]["next"] == 4


def test_the_figures_are_those_of_the_api(story: Story, web: Web) -> None:
    tell(story, "figures-a", 9, "", 3)
    tell(story, "figures-b", 9, "", 5)
    told = story.proxy.control.get("/api/diff?a=figures-a&b=figures-b")
    found = context(web, "figures-a", "figures-b")
    figures = {one["name"]: (one["left"], one["right"]) for one in found["deltas"]}
    left, right = told["a"] if "a" in told else told["left"], told["b"] if "b" in told else told["right"]
    assert figures["steps"] == (left["steps"], right["steps"]) == (3, 5)
    assert figures["cost"] == (left["cost"], right["cost"]) and figures["tokens"] == (left["tokens"], right["tokens"])
    text = compared(web, "figures-a", "figures-b").text
    assert "+2 (+67 %)" in text and "2 only right" in text


def test_every_difference_can_be_reached_one_after_the_other(story: Story, web: Web) -> None:
    tell(story, "walk-a", 9, "")
    tell(story, "walk-b", 4, "What else?")
    page = compared(web, "walk-a", "walk-b")
    seen = []
    while True:
        seen.append(page.text.partition("difference ")[2][:6])
        following = [given["href"] for tag, given in page.tags if given.get("data-key") == "n"]
        if not following:
            break
        page = web.get(following[0])
    assert seen == ["1 of 2", "2 of 2"]
    assert [given["href"] for tag, given in page.tags if given.get("data-key") == "p"]


def test_a_fold_opens_and_an_equal_pair_says_that_it_is_equal(story: Story, web: Web) -> None:
    tell(story, "fold-a", 9, "")
    tell(story, "fold-b", 5, "What else?")
    assert len(context(web, "fold-a", "fold-b")["rows"]) == 2
    assert len(context(web, "fold-a", "fold-b", open=0)["rows"]) == 6
    page = compared(web, "fold-a", "fold-b", pair=1)
    assert "Both sides asked the same, and got the same answer." in page.text


def test_two_runs_and_a_session_with_itself_can_be_compared(story: Story, web: Web) -> None:
    page = compared(web, "invoice-4711#run-1", "invoice-4711#run-2")
    assert "6 the same · 2 only right" in page.text and "Step 6 is on the right alone" in page.text
    assert "no difference" in compared(web, "invoice-4711", "invoice-4711").text


def test_what_agents_were_given_is_compared_where_a_person_changed_it(story: Story, web: Web) -> None:
    for session, decision in (
        ("given-a", {"action": "APPROVED"}),
        ("given-b", {"action": "EDITED", "arguments": {"to": "ben@example.test"}}),
    ):
        approval = story.hold(session, '{"to": "ann@example.test", "subject": "Same"}')
        story.proxy.control.post(f"/api/approvals/{approval['id']}/action", decision)
        story.waiting[-1].answer()
    page = compared(web, "given-a", "given-b")
    assert "another answer to the same request" in page.text and "1 with another answer" in page.text
    assert "Released what the agents were given" in page.text and "ben@example.test" in page.text


def test_a_fork_and_its_parent_are_offered_and_so_are_branches(story: Story, web: Web) -> None:
    tell(story, "parent", 9, "", 3)
    story.proxy.control.post("/api/sessions/parent/fork", {"step_number": 2, "name": "child"})
    story.proxy.control.post("/api/sessions/parent/rollback", {"step_number": 1})
    offered = web.get(f"{PATH}?a=child")
    assert "the session that it was forked from, parent" in offered.text
    assert f"{PATH}?a=parent&b=child" in offered.links
    branches = web.get(f"{PATH}?a=parent")
    [link] = [one for one in branches.links if "%40" in one]
    assert web.get(link).status == 200 and "only left" in web.get(link).text


def test_what_is_not_there_is_said_with_the_form_as_it_was(story: Story, web: Web) -> None:
    page = web.get(f"{PATH}?a=invoice-4711&b=nobody")
    assert page.status == 404 and "there is no session 'nobody'" in page.text
    assert [one.value for one in page.form("/compare").fields] == ["invoice-4711", "nobody"]
    assert "runs run-1 and run-2" in page.text
    late = web.get(f"{PATH}?a=invoice-4711&b=done-1&pair=99")
    assert late.status == 404 and "there is no pair 99" in late.text
    assert web.get(f"{PATH}?a=x&b=y&pair=many").status == 400
    assert "Two journals, side by side." in web.get(PATH).text


def test_what_harms_is_shown_and_does_not(story: Story, web: Web) -> None:
    page = compared(web, "hostile", "done-1")
    assert not [given for tag, given in page.tags if tag in ("iframe", "img") or "onerror" in given]
    assert all("src" in given for tag, given in page.tags if tag == "script") and "\u202e" not in page.html
    tell(story, "harm-2", 0, f"say {HOSTILE} and more", 1)
    page = compared(web, "harm-2", "hostile")
    assert not [given for tag, given in page.tags if tag in ("iframe", "img") or "onerror" in given]


def test_long_equal_text_between_differences_is_left_out_and_counted(story: Story, web: Web) -> None:
    same = "the same words " * 200
    tell(story, "long-a", 0, f"say first {same} last", 1)
    tell(story, "long-b", 0, f"say other {same} end", 1)
    page = compared(web, "long-a", "long-b")
    assert "equal characters" in page.text and page.text.count("the same words") < 100
