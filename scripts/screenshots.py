"""Owns the pictures in ``docs/images``: ``make screenshots`` takes them anew.

A proxy with a past of a month and a present of some minutes is served on a free port, and a browser looks at it. Must
not touch a journal of anybody's. Invariant: nothing is asked of the outside, and what is started ends with this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts import past
from scripts.provider import DOWN, Provider
from scripts.story import Teller, says

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_BYTES = 200_000
WIDTH, HEIGHT = 1280, 800
DAYS = 30
SETTINGS = f"""
[[routes]]
model = "{DOWN}"
fallback = ["gpt-5.4", "anthropic/claude-sonnet-5-5"]
[retry]
attempts = 1
[[policies]]
tools = ["send_email"]
action = "hold"
[[policies]]
tools = ["refund_payment"]
when = "args.amount > 100"
action = "hold"
[budget]
day_usd = 5.0
session_usd = 0.5
"""
# What is pictured: a name, an address, and what to wait for.
PICTURES = {
    "sessions": ("/dashboard", "table"),
    "session": ("/dashboard/sessions/invoice-4711?step=6", "#main"),
    "approvals": ("/dashboard/approvals", "#main"),
    "compare": ("/dashboard/compare?a=invoice-4711&b=invoice-brief", "#main"),
    "spend": ("/dashboard/spend", ".ch-days"),
}


def main() -> int:
    """0: all were taken; 2: something that is needed is missing."""
    chromium = os.environ.get("AGENTSTATE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("pictures need chromium: install it, or name it in AGENTSTATE_CHROMIUM", file=sys.stderr)
        return 2
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Provider(says) as provider:
        data = Path(folder)
        (data / "agentstate.toml").write_text(SETTINGS)
        past.write(data / "agentstate.db", DAYS, time.time() - 600)
        with served(data, provider.url) as url:
            teller = Teller(url, (data / "admin_token").read_text().strip())
            teller.tell()
            taken(url, teller, chromium)
    return 0


@contextmanager
def served(data: Path, upstream: str) -> Iterator[str]:
    """A proxy on that data folder; its address. It is ended by its own handle."""
    names = ("OPENAI", "ANTHROPIC", "GEMINI", "OLLAMA")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTSTATE_")}
    environment = kept | {f"AGENTSTATE_{name}_URL": upstream for name in names}
    environment |= {"AGENTSTATE_DATA": str(data), "HOME": str(data), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "agentstate", "serve", "--port", "0"]
    with (data / "stderr.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=data, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "listening on " not in line:
            raise RuntimeError(f"the proxy did not start:\n{(data / 'stderr.log').read_text()}")
        yield line.rpartition("listening on ")[2].strip().rstrip("/")
    finally:
        process.kill()  # agents of the story wait for ever: nothing is to be finished
        process.wait(30)


def taken(url: str, teller: Teller, chromium: str) -> None:
    """Take every picture in both themes."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(base_url=url, viewport={"width": WIDTH, "height": HEIGHT})
        page = context.new_page()
        page.goto(teller.control("POST", "/api/logins")["path"])
        page.wait_for_url("**/dashboard")
        for name, (path, there) in PICTURES.items():
            for theme in ("light", "dark"):
                _picture(page, name, path, there, theme)
        browser.close()


def _picture(page: Any, name: str, path: str, there: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)
    answer = page.goto(path)
    if answer.status != 200:
        raise RuntimeError(f"{path} is answered {answer.status}")
    page.locator(there).first.wait_for()
    page.locator("#link-state[data-state=on]").wait_for()
    file = IMAGES / f"{name}-{theme}.png"
    page.screenshot(path=str(file))
    size = file.stat().st_size
    if size > MOST_BYTES:
        raise RuntimeError(f"{file.name} has {size:,} bytes, more than {MOST_BYTES:,}: show less in it")
    print(f"{file.relative_to(IMAGES.parents[1])}: {size:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
