"""docs/reference/dashboard.md is held to the code: every page it names is one, every page is named, and the keys are
those of the pages."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.routing import Route

from agentstate.core.visible import visible
from agentstate.dashboard import rendering
from agentstate.dashboard.frame import NAV, ROOT
from agentstate.engine.core import Parts
from agentstate.server.api import Api
from agentstate.server.dashboard import Dashboard
from agentstate.settings import Settings
from tests.house.pages import REFERENCE, names, section, table
from tests.house.source import SRC

PAGE = REFERENCE / "dashboard.md"
# Pages that others lead to: parts of a page, and what is said where another page is named.
BESIDE = re.compile(
    r"/(fork|edit|resume|delete|rate|try|rotate|disable|bulk|login|strip|logout|\{id\}|test|csv)$|\.csv$|^/dashboard/settings$"
)
TEMPLATES = SRC / "dashboard" / "templates"


def pages() -> set[str]:
    """The addresses of all pages for people, as routes spell them."""
    parts = Parts(Settings())
    routes = Dashboard(parts, Api(parts, "token").guard)._app.routes
    found = {route.path for route in routes if isinstance(route, Route) and "GET" in (route.methods or ())}
    return {path for path in found if path.startswith(ROOT) and not path.endswith(".json") and "/static/" not in path}


def test_the_documented_pages_are_all_pages() -> None:
    documented, there = set(names(PAGE, "Pages")), pages()
    assert documented <= there
    assert {path for path in there - documented if not BESIDE.search(path)} == set()
    assert {entry.path for entry in NAV} - there <= {ROOT + "/settings"}


def test_every_page_has_its_json() -> None:
    parts = Parts(Settings())
    routes = Dashboard(parts, Api(parts, "token").guard)._app.routes
    found = {route.path for route in routes if isinstance(route, Route)}
    assert {path for path in names(PAGE, "Pages") if path + ".json" not in found} == set()


def test_the_documented_keys_are_the_keys_of_the_pages() -> None:
    said = {key for row in table(PAGE, "Keyboard") for key in re.findall(r"`([^`]+)`", row[0])}
    html = "".join(path.read_text() for path in sorted(TEMPLATES.glob("*.html")) if path.stem in ("base", "session"))
    shown = set(re.findall(r"<kbd>([^<]+)</kbd>", "".join(re.findall(r"<dt>.*?</dt>", html))))
    assert said == shown
    assert {entry.key for entry in NAV} <= said


def test_no_template_marks_anything_as_safe_or_carries_styles_or_scripts() -> None:
    for path in sorted(TEMPLATES.glob("*.html")):
        text = path.read_text()
        if path.name == "approve.html":  # it loads nothing at all: its style stands in it, and in its policy by hash
            text = text.replace("<style>", "")
        assert not re.search(r"\|\s*safe\b|\{%\s*autoescape", text), path.name
        assert not re.search(r"\sstyle=|<style|\son[a-z]+=", text), path.name
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text)), path.name


def test_every_template_can_be_compiled_and_every_file_is_ours() -> None:
    environment = rendering.environment()
    for name in environment.list_templates():
        environment.get_template(name)
    for name, (_, content) in rendering.assets().items():
        text = content.decode()
        assert visible(text) == text or name.endswith((".css", ".js")), name
        # Nothing is fetched from anywhere else.
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


def test_colours_stand_out_on_both_surfaces() -> None:
    css = (SRC / "dashboard" / "static" / "base.css").read_text()
    found = {
        name: (light, dark)
        for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]+), (#[0-9a-f]+)\)", css)
    }
    for name in ("live", "replayed", "held", "failed", "done", "muted", "text"):
        for theme in (0, 1):
            for surface in ("surface", "raised"):
                assert contrast(found[name][theme], found[surface][theme]) >= 5.5, (name, theme, surface)


def contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(char * 2 for char in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_first_load_stays_small() -> None:
    import gzip

    whole = b"".join(content for name, (_, content) in rendering.assets().items())
    assert len(gzip.compress(whole)) <= 200_000
    assert section(PAGE, "Pages") and Path(PAGE).exists()
