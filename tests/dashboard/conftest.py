"""Owns the fixtures of the dashboard's tests: a populated proxy, a browser without scripts, and a real one.

Must not hold what one page alone needs. Invariant: a page of the real browser fails its test if it logs an error,
breaks the policy on content, or asks anything of anybody but the proxy.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import Proxy
from tests.support.story import FILE, Story, provider
from tests.support.upstream import Upstream
from tests.support.web import Web

REQUIRED = os.environ.get("AGENTSTATE_REQUIRE_BROWSER") == "1"  # read before the variables go
CHROMIUM = os.environ.get("AGENTSTATE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A proxy with sessions of every kind, one for a module: tests that change one take a session of their own."""
    with (
        Upstream(provider) as upstream,
        Proxy(tmp_path_factory.mktemp("dashboard") / "data", upstream.url, file=FILE) as proxy,
    ):
        yield Story(proxy, upstream).tell()


@pytest.fixture
def web(story: Story) -> Web:
    """The admin's browser without scripts, logged in."""
    return Web(story.proxy.url).log_in(story.proxy.admin_token)


def person(story: Story, name: str, role: str) -> Web:
    """The browser of a new approver, logged in."""
    token = story.proxy.control.post("/api/approvers", {"name": name, "role": role})["token"]
    return Web(story.proxy.url).log_in(token)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, one for a module: while it is there an event loop runs in this thread, and tests of other modules have
    loops of their own."""
    missing = "" if CHROMIUM else "there is no chromium; name one in AGENTSTATE_CHROMIUM"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "playwright is not installed"
    if missing:
        (pytest.fail if REQUIRED else pytest.skip)(missing)
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


class Watched:
    """Notes what a page must not do."""

    def __init__(self, page: Any, url: str) -> None:
        self.faults: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"an error in the page: {error}"))
        page.on("request", lambda request: self._asked(request, url))

    def _console(self, message: Any) -> None:
        # Chromium tells of what the policy on content forbids as an error, too.
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _asked(self, request: Any, url: str) -> None:
        if not request.url.startswith((url + "/", "data:", "blob:")):
            self.faults.append(f"asked {request.url}")


@pytest.fixture
def browser_page(browser: Any, story: Story) -> Iterator[Any]:
    """A page of a real browser, logged in as admin, 1440 px wide; ``expected`` on it: texts of the console's errors
    that the test provokes (a refused form, a page that is none)."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=story.proxy.url)
    context.set_default_timeout(15_000)
    page = context.new_page()
    page.expected = []
    watched = Watched(page, story.proxy.url)
    path = story.proxy.control.post("/api/logins")["path"]
    page.goto(path)
    page.wait_for_url("**/dashboard")
    yield page
    context.close()
    assert [fault for fault in watched.faults if not any(text in fault for text in page.expected)] == []


def themes(page: Any) -> Iterator[str]:
    """Both themes, one after the other."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        yield theme


def axe(page: Any) -> list[str]:
    """What axe finds wrong with a page, of any weight."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
        for one in found.response["violations"]
    ]


def picture(page: Any, name: str) -> None:
    """A picture of a page for people to look at, in the folder that AGENTSTATE_PICTURES names; else nothing."""
    folder = PICTURES
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


PICTURES = os.environ.get("AGENTSTATE_PICTURES", "")
