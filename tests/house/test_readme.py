"""The README's snippets do what it says: those that print something are run, the others only read."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentstate
from agentstate.server.address import read_path
from tests.house.pages import ROOT, Fence, fences, text
from tests.support.proxy import Proxy, clean_environment

pytestmark = pytest.mark.xdist_group("house-readme")

README = ROOT / "README.md"
ADDRESS = "http://localhost:8080"
FENCES = fences(text(README))
PYTHON = [fence.text for fence in FENCES if fence.kind == "python"]
SHELL = [fence.text for fence in FENCES if fence.kind == "sh"]


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("readme") / "data", arguments=["--simulate"]) as running:
        yield running


def run(command: list[str], proxy: Proxy, folder: Path) -> str:
    """What a program prints that finds the proxy where the README says it is, but on the port it has here."""
    environment = clean_environment(folder, {"AGENTSTATE_URL": f"{proxy.url}/v1", "OPENAI_API_KEY": "sk-test-readme"})
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", [code for code in PYTHON if "print(" in code])
def test_a_python_snippet_runs_and_is_journaled(code: str, simulator: Proxy, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(code)
    assert run([sys.executable, str(script)], simulator, tmp_path).strip()
    [session] = re.findall(r'(?:AgentStateOpenAI|wrap_\w+|with session)\("([\w-]+)"\)', code)
    assert simulator.control.steps(session)[-1]["state"] == "completed"


@pytest.mark.parametrize("code", PYTHON)
def test_a_python_snippet_imports_names_that_are_public(code: str) -> None:
    ours = [
        node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom) and node.module == "agentstate"
    ]
    assert ours and {alias.name for node in ours for alias in node.names} <= set(agentstate.__all__)


@pytest.mark.parametrize("code", SHELL)
def test_a_shell_snippet_runs_and_is_journaled(code: str, simulator: Proxy, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    script = tmp_path / "snippet.sh"
    script.write_text(code.replace(ADDRESS, simulator.url))
    assert '"choices"' in run(["sh", "-eu", str(script)], simulator, tmp_path)
    assert simulator.control.steps("night-report")[0]["state"] == "completed"


def addresses() -> list[str]:
    """The paths of all addresses of the proxy in the documentation's fenced blocks."""
    found = {path for fence in FENCES for path in re.findall(re.escape(ADDRESS) + r"(/[^\s\"'`]+)", fence.text)}
    return sorted(found)


@pytest.mark.parametrize("path", addresses())
def test_an_address_in_the_readme_names_session_and_run(path: str) -> None:
    found = read_path(re.sub(r"\$\{.*?\}|\$\$", "1", path))
    assert found.session and found.run and found.path.startswith("/v1")


def test_the_examples_it_points_to_are_there() -> None:
    assert len([path for path in (ROOT / "examples").iterdir() if path.is_file()]) >= 3
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_every_kind_of_block_is_checked() -> None:
    assert {fence.kind for fence in FENCES} == {"python", "sh", "js", "console", "text"}
    assert isinstance(FENCES[0], Fence) and len(PYTHON) >= 3 and len(SHELL) == 1


def test_every_picture_is_there_in_both_themes_and_small() -> None:
    named = set(re.findall(r"docs/images/([\w-]+)-(light|dark)\.png", text(README)))
    assert {name for name, theme in named if theme == "dark"} >= {"session", "approvals", "compare", "spend"}
    for name in {name for name, _ in named}:
        for theme in ("light", "dark"):
            picture = ROOT / "docs" / "images" / f"{name}-{theme}.png"
            assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size <= 200_000
