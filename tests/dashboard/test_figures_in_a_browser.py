"""The pages of providers, money, data sets and settings in a real browser: no fault of access, no error, the keyboard,
every width, and what scripts add."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.dashboard.conftest import axe, picture, themes
from tests.support.story import Story

PAGES = {
    "providers": "/dashboard/providers?model=gpt-4.1*&fallback=gpt-4o",
    "spend": "/dashboard/spend?range=all&by=session",
    "datasets": "/dashboard/datasets",
    "policies": "/dashboard/settings/policies",
    "notifiers": "/dashboard/settings/notifiers",
    "people": "/dashboard/settings/people",
    "disable": "/dashboard/settings/people/zoe-of-the-browser/disable",
    "retention": "/dashboard/settings/retention?keep=2",
    "audit": "/dashboard/settings/audit?check=1",
    "look": "/dashboard/settings/look",
    "about": "/dashboard/settings/about",
}


def expect(found: Any) -> Any:
    """What is waited for of an element; loaded only where there is a browser."""
    from playwright.sync_api import expect as wait

    return wait(found)


@pytest.fixture(scope="module", autouse=True)
def somebody(story: Story) -> None:
    """An approver to look at."""
    story.proxy.control.post("/api/approvers", {"name": "zoe-of-the-browser", "role": "viewer"})


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_fault_of_access_in_either_theme_and_fits_every_width(name: str, browser_page: Any) -> None:
    for theme in themes(browser_page):
        for width in (1440, 900, 360):
            browser_page.set_viewport_size({"width": width, "height": 900})
            answer = browser_page.goto(PAGES[name])
            assert answer.status == 200
            wider = browser_page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wider <= 0, f"{width} px: {wider} px too wide"
            picture(browser_page, f"{name}-{width}-{theme}")
        browser_page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
        for width in (360, 1440):
            browser_page.set_viewport_size({"width": width, "height": 900})
            assert axe(browser_page) == []


def test_pages_are_reached_and_left_by_the_keyboard_alone(browser_page: Any) -> None:
    page = browser_page
    for key, path in (("p", "providers"), ("$", "spend"), ("d", "datasets"), (",", "settings/policies")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/dashboard/{path}")
    page.keyboard.press("3")
    page.wait_for_url("**/dashboard/settings/people")
    page.goto("/dashboard/spend?range=all")
    page.keyboard.press("3")
    page.wait_for_url("**by=session**")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.evaluate("document.activeElement.closest('tr').querySelector('th').innerText")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dashboard/sessions/**")
    assert second in page.inner_text("h1")


def test_a_dialog_opens_over_the_page_and_gives_the_focus_back(browser_page: Any) -> None:
    page = browser_page
    page.goto("/dashboard/settings/people")
    link = page.locator("tr", has_text="zoe-of-the-browser").get_by_role("link", name="Disable")
    link.focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Disable zoe-of-the-browser").wait_for()
    assert page.locator("dialog[open]").count() == 1 and page.url.endswith("/settings/people")
    assert axe(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    assert page.evaluate("document.activeElement.getAttribute('href')").endswith("zoe-of-the-browser/disable")


def test_a_data_set_is_counted_again_as_filters_change(browser_page: Any) -> None:
    page = browser_page
    page.goto("/dashboard/datasets")
    before = page.inner_text("#report .big-line")
    page.get_by_label("Models like").fill("no-such-model*")
    expect(page.locator("#report .big-line")).to_contain_text("0 lines ok")
    assert "model=no-such-model" in page.url, "the view is an address"
    assert page.get_by_text("There is nothing to download under these filters.").is_visible()
    page.get_by_label("Models like").fill("")
    expect(page.locator("#report .big-line")).to_have_text(before)
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download openai").click()
    assert len(saved.value.path().read_text().splitlines()) == int(re.findall(r"[\d,]+", before)[0].replace(",", ""))


def test_a_token_is_sent_by_the_button_and_counts(browser_page: Any) -> None:
    page = browser_page
    page.goto("/dashboard/providers")
    card = page.locator("section.provider", has=page.get_by_role("heading", name="openai"))
    calls = card.locator("tr", has_text="gpt-4o-mini").locator("td").nth(3)
    before = int(calls.inner_text().replace(",", ""))
    card.get_by_role("combobox", name="Model").fill("gpt-4o-mini")
    card.get_by_role("button", name="Send 1 token").click()
    page.get_by_text("openai/gpt-4o-mini answered in").wait_for()
    assert int(calls.inner_text().replace(",", "")) == before + 1


def test_policies_are_tried_without_leaving_what_was_typed(browser_page: Any) -> None:
    page = browser_page
    page.goto("/dashboard/settings/policies")
    page.get_by_role("textbox", name="Policies").fill('[[policies]]\ntools = ["*"]\naction = "deny"\n')
    page.get_by_role("button", name="Try on the last").click()
    page.get_by_text("Would have held").wait_for()
    assert 'action = "deny"' in page.get_by_role("textbox", name="Policies").input_value()
    assert axe(page) == []
