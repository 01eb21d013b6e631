"""The pages of approvals in a real browser: by keyboard alone, on a phone, live, in both themes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.engine.links import Links
from tests.dashboard.conftest import axe, picture, themes
from tests.support.client import Answer
from tests.support.mailing import calls_of
from tests.support.story import Story

PATH = "/dashboard/approvals"


def held(story: Story, session: str, **arguments: str) -> dict[str, Any]:
    """A new held call; the approval."""
    given = {"to": "ann@example.test", "subject": "Hello"} | arguments
    return story.hold(session, json.dumps(given))


def answered(story: Story) -> Answer:
    """What the agent of the last held call got."""
    return story.waiting[-1].answer()


def open_card(page: Any, approval: dict[str, Any]) -> None:
    page.goto(f"{PATH}/{approval['id']}")
    page.wait_for_selector("#link-state[data-state=on]")


def test_a_call_is_inspected_edited_and_approved_by_keyboard_alone(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "keys")
    open_card(page, approval)
    page.keyboard.press("e")
    assert "Press e again" in page.text_content("#toasts")
    assert page.evaluate("document.activeElement.id") == "card"
    page.keyboard.press("e")
    page.wait_for_url("**/edit")
    page.focus("[name=argument-1]")
    page.keyboard.press("Control+A")
    page.keyboard.type("Good morning")
    page.wait_for_selector("#check ins:has-text('Good morning')")
    assert page.is_enabled("[data-approve]") and page.is_hidden("[data-check-button]")
    picture(page, "approval-edit")
    page.focus("[data-approve]")
    page.keyboard.press("Enter")
    page.wait_for_selector(".outcome:has-text('Approved with edits by admin')")
    [(tool, arguments)] = calls_of(answered(story).body)
    assert (tool, json.loads(arguments)) == ("send_email", {"to": "ann@example.test", "subject": "Good morning"})


def test_what_does_not_fit_cannot_be_approved_while_it_is_typed(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "typing")
    page.goto(f"{PATH}/{approval['id']}/edit?mode=json")
    page.fill("[name=arguments]", '{"subject": "no address"}')
    page.wait_for_selector("#check .note.failed:has-text(\"'to' is a required property\")")
    assert page.is_disabled("[data-approve]")
    page.fill("[name=arguments]", '{"to": "ben@example.test"}')
    page.wait_for_selector("#check[data-valid=yes]")
    page.click("[data-approve]")
    page.wait_for_selector(".outcome")
    [(_, arguments)] = calls_of(answered(story).body)
    assert json.loads(arguments) == {"to": "ben@example.test"}


def test_a_letter_decides_only_once_the_card_has_the_focus(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "letters")
    open_card(page, approval)
    page.keyboard.press("a")
    assert story.proxy.control.get(f"/api/approvals/{approval['id']}")["status"] == "PENDING"
    page.keyboard.press("a")
    page.wait_for_selector(".outcome:has-text('Approved by admin')")
    assert calls_of(answered(story).body)[0][0] == "send_email"


def test_a_rejection_by_keyboard_asks_for_the_reason(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "refused")
    open_card(page, approval)
    page.focus("#card")
    page.keyboard.press("r")
    page.wait_for_function("() => document.activeElement.name === 'reason'")
    page.keyboard.type("not on a Sunday")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".outcome:has-text('not on a Sunday')")
    assert b"not on a Sunday" in answered(story).body and not calls_of(story.waiting[-1].answer().body)


def test_the_card_turns_when_somebody_else_is_first(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "second")
    open_card(page, approval)
    story.proxy.control.post(f"/api/approvals/{approval['id']}/action", {"action": "APPROVED", "reason": "mine"})
    page.wait_for_selector(".outcome:has-text('Approved by admin')")
    assert not page.query_selector(".decide") and "mine" in page.text_content(".outcome")


def test_a_call_that_is_held_meanwhile_comes_into_the_inbox_and_the_title(story: Story, browser_page: Any) -> None:
    page = browser_page
    held(story, "before")
    page.goto(PATH)
    page.wait_for_selector("#link-state[data-state=on]")
    count = len(page.query_selector_all(".inbox-row"))
    approval = held(story, "meanwhile")
    page.wait_for_selector(f"#row-{approval['id']}")
    assert len(page.query_selector_all(".inbox-row")) == count + 1
    page.wait_for_function(f"() => document.title.startsWith('({count + 1}) ')")


def test_several_are_selected_by_keyboard_and_shown_whole(story: Story, browser_page: Any) -> None:
    page = browser_page
    keys = [held(story, name)["id"] for name in ("many-1", "many-2")]
    page.goto(PATH)
    for key in keys:
        page.focus(f"#row-{key} a")
        page.keyboard.press("x")
    page.click("text=Decide selected…")
    page.wait_for_selector("text=Approve 2")
    assert page.locator(".pairs").count() == 2 and page.locator("text=many-1").count()
    picture(page, "approvals-bulk")
    page.click("text=Approve 2")
    page.wait_for_selector(".note.done:has-text('Approved 2.')")


def test_the_pages_are_accessible_in_both_themes(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "axe")
    decided = held(story, "axe-decided")["id"]
    story.proxy.control.post(f"/api/approvals/{decided}/action", {"action": "EDITED", "arguments": {"to": "x"}})
    token = Links(story.proxy.data, 3600.0).make(approval["id"], "slack-1")
    pages = (
        PATH, f"{PATH}/{decided}", f"{PATH}/{approval['id']}/edit", f"{PATH}/bulk?id={approval['id']}",
        f"{PATH}/decided", f"/approve/{token}",
    )  # fmt: skip
    for path in pages:
        page.goto(path)
        for theme in themes(page):
            assert axe(page) == [], (path, theme)
            picture(page, f"approvals-{pages.index(path)}-{theme}")


def test_a_phone_can_approve(story: Story, browser_page: Any) -> None:
    page, approval = browser_page, held(story, "phone")
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(PATH)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    page.click(f"#row-{approval['id']} a")
    page.wait_for_selector(".decide")
    assert page.evaluate(wide) <= 0
    for target in page.query_selector_all(".decide button, .decide summary, .decide a.button"):
        box = target.bounding_box()
        if box and "copy" not in (target.get_attribute("class") or ""):
            assert box["height"] >= 44, target.inner_text()
    picture(page, "approval-phone")
    page.click(".choice.yes button")
    page.wait_for_selector(".outcome:has-text('Approved by admin')")
    assert calls_of(answered(story).body)[0][0] == "send_email"


@pytest.mark.parametrize("width", [360, 900])
def test_the_page_behind_a_link_works_without_scripts_on_any_screen(story: Story, browser: Any, width: int) -> None:
    approval = held(story, f"link-{width}")
    context = browser.new_context(
        viewport={"width": width, "height": 740}, java_script_enabled=False, base_url=story.proxy.url
    )
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"/approve/{Links(story.proxy.data, 3600.0).make(approval['id'], 'slack-1')}")
    assert all(one.bounding_box()["height"] >= 44 for one in page.query_selector_all("button:visible"))
    page.fill("form >> nth=0 >> [name=reason]", "from my phone")
    page.click("button.no")
    page.wait_for_selector("text=It was rejected by link:slack-1.")
    assert b"from my phone" in answered(story).body
    assert {url.split("/")[3] for url in asked} == {"approve"}
    context.close()
