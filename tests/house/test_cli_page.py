"""docs/reference/cli.md, and every command line in the documentation, is held to the program's own commands."""

from __future__ import annotations

import re
import shlex

import pytest

from agentstate.cli.run import environment
from tests.house.generated import flat
from tests.house.pages import REFERENCE, ROOT, fences, headings, pages, prose, section, table, text

PAGE = REFERENCE / "cli.md"
KNOWN = flat()


def test_the_documented_commands_are_all_commands() -> None:
    assert [name for name in headings(PAGE) if name in KNOWN] == [name for name in headings(PAGE) if name.islower()]
    assert set(KNOWN) == set(_listed())


def _listed() -> list[str]:
    head = text(PAGE).partition("## Exit codes")[0]
    return re.findall(r"^\| \[`([\w ]+)`\]", head, re.MULTILINE)


def test_a_command_without_a_table_has_no_options() -> None:
    for name, command in KNOWN.items():
        assert bool(command.params) == (f"<!-- generated: options of {name} -->" in text(PAGE))


def test_the_variables_that_run_sets_are_those_documented() -> None:
    rows = section(PAGE, "run").partition("| variable | value |\n")[2].splitlines()
    documented = {name for row in rows if row.startswith("|") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert documented == set(environment({}, "http://127.0.0.1:8080", "s", "r"))


def command_lines() -> list[tuple[str, str]]:
    """(page, line) of every call of the program in the documentation, fenced or in code marks."""
    found = []
    for page in pages():
        fenced = [line for fence in fences(text(page)) for line in fence.text.splitlines()]
        marked = re.findall(r"`(agentstate [a-z][^`]*)`", prose(page))
        lines = [*(line.removeprefix("$ ").split("  #")[0].strip() for line in fenced), *marked]
        found += [(page.name, line) for line in lines if re.match(r"agentstate [a-z-]", line)]
    return found


@pytest.mark.parametrize(("page", "line"), sorted(set(command_lines())))
def test_a_command_line_in_the_documentation_is_one_that_the_program_takes(page: str, line: str) -> None:
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    if words[0] in ("--version", "--help"):
        return
    name = " ".join(words[:2]) if " ".join(words[:2]) in KNOWN else words[0]
    assert name in KNOWN or (len(words) == 1 and any(known.startswith(f"{name} ") for known in KNOWN)), line
    params = KNOWN[name].params if name in KNOWN else []  # of a group as a whole
    options = {spelled for parameter in params for spelled in parameter.opts} | {"-h", "--help"}
    given = words[1 : words.index("--")] if "--" in words else words[1:]
    assert {word.partition("=")[0] for word in given if word.startswith("-")} <= options, line


def test_every_make_target_in_the_documentation_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = {name for page in pages() for name in re.findall(r"(?:^\$ |`)make ([a-z-]+)", text(page), re.MULTILINE)}
    assert said and said <= targets


def test_the_exit_codes_have_a_table() -> None:
    assert table(PAGE, "Exit codes")
