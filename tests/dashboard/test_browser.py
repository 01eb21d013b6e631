"""The frame, the list of sessions and a session's page in a real browser: accessible in both themes, with the keyboard
alone, live, and quiet: no error, no request to anybody else (see ``browser_page``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.conftest import axe, picture, themes
from tests.support import chat
from tests.support.people import decide
from tests.support.proxy import Proxy
from tests.support.story import MODEL, Story
from tests.support.upstream import Gate, stream

SESSION = "/dashboard/sessions/invoice-4711"
PAGES = {
    "sessions": "/dashboard",
    "filtered": "/dashboard?q=nobody",
    "session": SESSION,
    "conversation": SESSION + "?step=3",
    "request": SESSION + "?step=3&tab=request",
    "attempts": "/dashboard/sessions/translate?step=0&tab=attempts",
    "timing": SESSION + "?step=3&tab=timing",
    "raw": SESSION + "?step=3&tab=raw&timeline=1",
    "held": "/dashboard/sessions/mail-12?step=0",
    "hostile": "/dashboard/sessions/hostile?step=0&all=1",
    "failed": "/dashboard/sessions/nightly%20report%2F7?failed=1&step=2",
    "login": "/dashboard/login",
}


def focused(page: Any, property_: str = "id") -> str:
    """What of the element that has the focus."""
    return str(page.evaluate(f"document.activeElement.{property_}"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_in_both_themes_and_every_width(browser_page: Any, name: str) -> None:
    for width in (1440, 900, 360):
        browser_page.set_viewport_size({"width": width, "height": 900})
        browser_page.goto(PAGES[name])
        for theme in themes(browser_page):
            assert axe(browser_page) == [], (width, theme)
            wide = browser_page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} px wide at {width} px"
            picture(browser_page, f"{name}-{width}-{theme}")


def test_nothing_that_means_harm_runs(browser_page: Any) -> None:
    for query in ("", "?step=0", "?step=0&all=1", "?step=0&tab=request", "?step=0&tab=raw"):
        browser_page.goto("/dashboard/sessions/hostile" + query)
        assert browser_page.evaluate("window.harmed") is None


def test_a_theme_is_chosen_and_stays(browser_page: Any) -> None:
    browser_page.emulate_media(color_scheme="light")
    browser_page.get_by_role("button", name="Theme: auto").click()
    browser_page.wait_for_selector("html[data-theme=dark]")
    assert browser_page.evaluate("getComputedStyle(document.body.parentElement).backgroundColor") == "rgb(15, 18, 22)"
    browser_page.goto(SESSION)
    assert browser_page.get_attribute("html", "data-theme") == "dark"


# --- with the keyboard alone ---


def test_the_skip_link_leads_to_the_content(browser_page: Any) -> None:
    browser_page.keyboard.press("Tab")
    assert "Skip to the content" in focused(browser_page, "textContent")
    browser_page.keyboard.press("Enter")
    assert focused(browser_page) == "main"


def test_letters_lead_to_pages_rows_and_back(browser_page: Any) -> None:
    page = browser_page
    page.keyboard.press("/")
    assert focused(page, "name") == "q"
    page.keyboard.press("j")  # while somebody types, a letter is a letter
    assert page.input_value("[name=q]:focus") == "j"
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    first = focused(page)
    page.keyboard.press("j")
    assert first.startswith("row:") and focused(page).startswith("row:") and focused(page) != first
    page.keyboard.press("k")
    assert focused(page) == first
    page.keyboard.press("x")
    assert page.inner_text("[data-count]") == "1 selected"
    assert page.is_disabled("[data-exactly]")
    page.keyboard.press("?")
    page.wait_for_selector("#overlay[open]")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/sessions/**")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/dashboard")


def test_single_letters_can_be_turned_off(browser_page: Any) -> None:
    page = browser_page
    page.keyboard.press("?")
    page.get_by_role("button", name="Turn single letters off").click()
    page.wait_for_selector("html[data-letters=off]")
    page.keyboard.press("j")
    page.keyboard.press("/")
    assert focused(page, "tagName") == "BODY"


def test_the_palette_finds_pages_actions_and_sessions(browser_page: Any) -> None:
    page = browser_page
    page.goto(SESSION)
    page.keyboard.press("Control+k")
    page.keyboard.type("timeline")
    page.keyboard.press("Enter")
    page.wait_for_url("**timeline=1*")
    page.keyboard.press("Control+k")
    assert axe(page) == []
    page.keyboard.type("translate#0")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/sessions/translate?step=0")


def test_the_journal_is_walked_and_a_step_opened_with_arrows(browser_page: Any) -> None:
    page = browser_page
    page.goto(SESSION)
    page.focus("#journal [data-row][tabindex='0']")
    page.keyboard.press("Home")
    assert focused(page) == "run:1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert focused(page) == "step:1"
    page.keyboard.press("End")
    assert focused(page) == "step:7"
    page.keyboard.press("ArrowLeft")
    assert focused(page) == "run:2"
    page.keyboard.press("ArrowLeft")
    assert not page.is_visible("[id='step:7']") and page.is_visible("[id='step:5']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-inside[data-step='5']")
    assert page.url.endswith("?step=5") and focused(page) == "step:5"
    for key, tab in (("2", "request"), ("6", "raw"), ("1", "")):
        page.keyboard.press(key)
        page.wait_for_function("(tab) => (new URLSearchParams(location.search).get('tab') ?? '') === tab", arg=tab)
    page.keyboard.press("]")
    page.wait_for_selector("#panel-inside[data-step='6']")
    page.go_back()
    page.wait_for_selector("#panel-inside[data-step='5']")


def test_failures_are_walked_with_letters(browser_page: Any) -> None:
    page = browser_page
    page.goto("/dashboard/sessions/nightly%20report%2F7")
    page.keyboard.press("n")
    page.wait_for_selector("#panel-inside[data-step='2']")
    page.keyboard.press("f")
    page.wait_for_url("**failed=1*")
    assert page.locator("#journal [data-step]").count() == 1


def test_the_divider_is_moved_with_the_keyboard_and_remembered(browser_page: Any) -> None:
    page = browser_page
    page.goto(SESSION + "?step=3")
    before = page.locator("#panel").bounding_box()["width"]
    page.focus("#divider")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    assert page.locator("#panel").bounding_box()["width"] > before + 50
    page.reload()
    assert page.get_attribute("#divider", "aria-valuenow") == "58"


# --- live ---


def test_a_row_changes_in_place_and_a_new_session_waits_behind_a_pill(browser_page: Any, story: Story) -> None:
    page = browser_page
    story.conversation("growing", 1)
    page.goto("/dashboard")
    page.wait_for_selector("#link-state[data-state=on]")
    row = page.locator("[id='row:growing']")
    story.conversation("growing", 3)
    page.wait_for_function("() => document.getElementById('row:growing').textContent.match(/\\s4\\s/)")
    before = page.locator("tbody tr").count()
    story.conversation("just-begun", 1)
    page.get_by_role("button", name="1 new").click()
    page.wait_for_selector("[id='row:just-begun']")
    assert page.locator("tbody tr").count() == before + 1 and row.count() == 1


def test_steps_appear_while_an_agent_works_and_a_held_call_is_announced(browser_page: Any, story: Story) -> None:
    page = browser_page
    story.conversation("working", 1)
    page.goto("/dashboard/sessions/working")
    page.wait_for_selector("#link-state[data-state=on]")
    story.conversation("working", 3)
    page.wait_for_selector("[id='step:2']")
    approval = story.hold("working-too")
    page.wait_for_function("() => document.getElementById('announce').textContent.includes('held')")
    assert page.title().startswith("(2) ") and page.inner_text("#badge").startswith("2")
    decide(story.proxy, approval, "REJECTED")
    story.waiting[-1].answer()
    page.wait_for_function("() => document.title.startsWith('(1) ')")


def test_a_run_that_is_fast_forwarded_gets_its_ruler_while_one_looks(browser_page: Any, story: Story) -> None:
    page = browser_page
    story.conversation("rulers", 12)
    page.goto("/dashboard/sessions/rulers?step=4")
    page.wait_for_selector("#link-state[data-state=on]")
    page.focus("[id='step:4']")
    story.conversation("rulers", 12, runs=("run-2",), more=1)
    page.wait_for_selector("#journal >> text=fast-forwarded 12 steps")
    page.wait_for_selector("[id='step:12']")
    assert page.locator("#journal [data-step]").count() == 13 and page.locator("#journal [data-ruler]").count() == 2
    assert focused(page) == "step:4"


def test_an_answer_in_flight_streams_into_its_panel(browser_page: Any, story: Story) -> None:
    page, gate = browser_page, Gate()
    pieces = chat.chunks("one two three", name="slow")
    usual = story.upstream.script
    story.upstream.script = lambda seen: (
        stream(*pieces[:3], gate, *pieces[3:]) if b'"slow' in seen.body else usual(seen)
    )
    try:
        with story.proxy.client.start("streaming", "slow question", run="r", stream=True, model=MODEL) as connection:
            gate.wait_reached()
            page.goto("/dashboard/sessions/streaming?step=0")
            page.wait_for_selector(".growing >> text=one two")
            gate.open()
            page.wait_for_selector("#panel-inside:not([data-growing]) >> text=one two three")
            connection.read_head()
            assert connection.read_body()[1]
    finally:
        gate.open()
        story.upstream.script = usual


def test_a_lost_stream_of_events_is_said_and_comes_back(browser: Any, tmp_path: Path) -> None:
    with Proxy(tmp_path / "data") as proxy:
        proxy.keep_port()
        context = browser.new_context(base_url=proxy.url)
        page = context.new_page()
        page.goto(proxy.control.post("/api/logins")["path"])
        page.wait_for_selector("#link-state[data-state=on]")
        proxy.kill()
        page.wait_for_selector("#link-state[data-state=off]")
        assert "paused, retrying" in page.inner_text("#link-words")
        assert page.is_visible("text=No sessions yet")  # what was there stays
        proxy.start()
        page.wait_for_selector("#link-state[data-state=on]", timeout=30_000)
        context.close()


# --- without scripts, in the same browser ---


def test_without_scripts_every_step_and_tab_can_be_reached(browser: Any, story: Story) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=story.proxy.url)
    page = context.new_page()
    page.goto("/dashboard/login")
    page.fill("[name=token]", story.proxy.admin_token)
    page.click("button")
    page.click("a.cover >> text=invoice-4711")
    page.click("[aria-label='Step 3']")
    page.click("text=Attempts")
    assert "tab=attempts" in page.url and page.is_visible("text=openai")
    page.click("text=Failed only")
    assert page.is_visible("text=No step is like that.")
    context.close()
