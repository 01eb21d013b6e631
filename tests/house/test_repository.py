"""What is in the repository speaks of the project alone, and its pages lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import agentstate
from tests.house.pages import ROOT, anchors, headings, pages, prose

SKIPPED = {".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "dist", "results"}
MOST_BYTES = 4 * 1024 * 1024

# Put together here, so that this file does not hold them either.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("anaconda", "org"),
        ("ghcr", "io"),
    )
]
# Folders that belong to a person or a machine, not to a program.
SOMEBODYS_FOLDER = re.compile(r"(?<![\w.}$/-])/(?:" + "|".join(("home/\\w", "Users/\\w", "root/", "wor" + "k/")) + ")")


def files() -> list[Path]:
    """Every file of the repository, the ones not committed yet included; without git, what is there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listed.returncode == 0:
        found = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    else:
        found = [
            path
            for path in ROOT.rglob("*")
            if not any(part in SKIPPED or part.startswith(".venv") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in found if path.is_file() and path.stat().st_size < MOST_BYTES]


FILES = files()


def texts() -> list[tuple[Path, str]]:
    """(path, text) of every file that is text."""
    return [(path, path.read_bytes().decode("utf-8", "replace")) for path in FILES]


def test_the_repository_was_found() -> None:
    assert {"pyproject.toml", "README.md", "Makefile"} <= {path.name for path in FILES if path.parent == ROOT}
    assert len(FILES) > 100


@pytest.mark.parametrize("host", HOSTS)
def test_no_file_names_the_host_of_a_package_registry(host: str) -> None:
    pattern = re.compile(rf"(?<![\w-]){re.escape(host)}\b")
    assert [str(path.relative_to(ROOT)) for path, content in texts() if pattern.search(content)] == []


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    found = {
        str(path.relative_to(ROOT)): sorted({hit[0] for hit in SOMEBODYS_FOLDER.finditer(content)})
        for path, content in texts()
        if SOMEBODYS_FOLDER.search(content)
    }
    assert found == {}


def test_no_file_holds_a_key_that_could_be_real() -> None:
    pattern = re.compile(
        r"\b(?:sk-(?!test)(?:ant-|proj-)?[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16})\b"
    )
    assert [str(path.relative_to(ROOT)) for path, content in texts() if pattern.search(content)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, fragment = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{page.name} links to {target}"
        if fragment:
            assert fragment in anchors(there), f"{page.name} links to {target}; there are {sorted(anchors(there))}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_has_one_title_and_no_two_sections_of_the_same_name(page: Path) -> None:
    assert len(re.findall(r"^# ", prose(page), re.MULTILINE)) == 1
    if page.name != "CHANGELOG.md":  # each version there has the same sections
        titles = headings(page)
        assert sorted(set(titles)) == sorted(titles)


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        if page.name != "README.md":
            assert f"]({page.relative_to(ROOT / 'docs')})" in index, page.name


def test_the_version_is_said_once_and_the_change_log_knows_it() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == agentstate.__version__
    assert re.search(rf"^## \[{re.escape(agentstate.__version__)}\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_run_of_continuous_integration_uses_targets_that_exist() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
    said = set(re.findall(r"^\s*make (\S+)", script.read_text(), re.MULTILINE))
    assert {"check", "test"} <= said
