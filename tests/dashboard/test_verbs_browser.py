"""The dialogs of verbs and Compare in a real browser: over their page, by keyboard alone, in both themes."""

from __future__ import annotations

from typing import Any

from tests.dashboard.conftest import axe, picture, themes
from tests.support.story import Story

AT = "/dashboard/sessions"


def ready(page: Any, path: str) -> None:
    page.goto(path)
    page.wait_for_selector("#link-state[data-state=on]")


def test_a_rollback_is_chosen_previewed_and_done_by_keyboard_alone(story: Story, browser_page: Any) -> None:
    page = browser_page
    story.conversation("keyed", 5)
    ready(page, f"{AT}/keyed")
    page.focus("a[data-dialog][href*='/rollback']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] [data-step-list]")
    page.focus("dialog [name=step][value='3']")
    page.keyboard.press("Space")
    page.wait_for_selector("dialog :text('Roll back 2 steps')")
    assert page.evaluate("document.activeElement.value") == "3"
    page.keyboard.press("ArrowUp")
    page.wait_for_selector("dialog :text('Roll back 3 steps')")
    assert "agentstate rollback keyed 2" in page.text_content("dialog .command")
    picture(page, "dialog-rollback")
    page.focus("dialog.sheet button.primary")
    page.keyboard.press("Enter")
    page.wait_for_selector(".note.done:has-text('goes on from step 2')")
    shown = story.proxy.control.get("/api/sessions/keyed")["steps"]
    assert [step["step_number"] for step in shown if not step["superseded"]] == [0, 1]


def test_escape_closes_a_dialog_and_the_focus_returns_to_what_opened_it(story: Story, browser_page: Any) -> None:
    page = browser_page
    ready(page, f"{AT}/invoice-4711")
    page.focus("a[data-dialog][href*='/fork']")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] [data-step-list]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    assert "/fork" in page.evaluate("document.activeElement.getAttribute('href')")


def test_a_refusal_stays_in_the_open_dialog_with_what_was_typed(story: Story, browser_page: Any) -> None:
    page = browser_page
    page.expected = ["409"]
    story.conversation("twice", 2)
    ready(page, f"{AT}/twice")
    page.click("a[data-dialog][href*='/fork']")
    page.wait_for_selector("dialog [name=step]")
    page.check("dialog [name=step][value='1']")
    page.fill("dialog [name=name]", "done-1")
    page.click("dialog.sheet button.primary")
    page.wait_for_selector("dialog [role=alert]:has-text('already')")
    assert page.input_value("dialog [name=name]") == "done-1"
    page.fill("dialog [name=name]", "twice-forked")
    page.click("dialog.sheet button.primary")
    page.wait_for_url("**/sessions/twice-forked")


def test_a_response_is_edited_with_its_difference_before_it_is_done(story: Story, browser_page: Any) -> None:
    page = browser_page
    story.conversation("written", 2)
    ready(page, f"{AT}/written?step=1")
    page.click("a[data-dialog][href*='/edit']")
    page.wait_for_selector("dialog textarea[name=text]")
    page.fill("dialog textarea[name=text]", "It is paid.")
    page.click("dialog button:has-text('Show what changes')")
    page.wait_for_selector("dialog .diff ins:has-text('It is paid.')")
    assert axe(page) == []
    picture(page, "dialog-edit")
    page.click("dialog.sheet button.primary")
    page.wait_for_selector(".note.done:has-text('Step 1 has the answer that you wrote.')")


def test_differences_are_walked_through_by_letters(story: Story, browser_page: Any) -> None:
    page = browser_page
    ready(page, "/dashboard/compare?a=invoice-4711&b=done-1")
    assert "difference 1 of 6" in page.text_content("#pair")
    page.keyboard.press("n")
    page.wait_for_selector("#pair:has-text('difference 2 of 6')")
    page.keyboard.press("p")
    page.wait_for_selector("#pair:has-text('difference 1 of 6')")
    picture(page, "compare")


def test_the_pages_are_accessible_in_both_themes(story: Story, browser_page: Any) -> None:
    page = browser_page
    paths = (
        "/dashboard/compare", "/dashboard/compare?a=invoice-4711&b=translate", f"{AT}/invoice-4711/rollback?step=2",
        f"{AT}/invoice-4711/fork?step=2", f"{AT}/invoice-4711/edit?step=2", f"{AT}/invoice-4711/pause",
        f"{AT}/invoice-4711/rate?step=1", f"{AT}/invoice-4711/delete", f"{AT}/invoice-4711/try?step=1",
    )  # fmt: skip
    for path in paths:
        page.goto(path)
        for theme in themes(page):
            assert axe(page) == [], (path, theme)


def test_nothing_is_wider_than_a_phone(story: Story, browser_page: Any) -> None:
    page = browser_page
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    for path in ("/dashboard/compare?a=invoice-4711&b=translate", f"{AT}/invoice-4711/rollback?step=2",
                 f"{AT}/invoice-4711/edit?step=2"):  # fmt: skip
        page.goto(path)
        assert page.evaluate(wide) <= 0, path
