"""docs/reference/settings.md is held to the code: the table, the example file, the variables."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agentstate import settings
from agentstate.errors import SettingsError
from tests.house.generated import PARTS, renewed
from tests.house.pages import REFERENCE, fences, names, section, table, text
from tests.house.source import modules

PAGE = REFERENCE / "settings.md"

# Accepted, and read by no code yet; the page must say so of each.


@pytest.mark.parametrize("page", PARTS)
def test_the_generated_tables_are_those_that_the_code_makes(page: str) -> None:
    assert text(REFERENCE / page) == renewed(page), "renew them with: python -m tests.house.generated"


def test_every_setting_has_a_row_with_help() -> None:
    rows = table(PAGE, "All settings")
    assert [row[0].strip("`") for row in rows] == [row[0] for row in settings.reference()]
    assert all(len(row) == 4 and all(row) for row in rows)


def test_the_example_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = [fence.text for fence in fences(section(PAGE, "The file")) if fence.kind == "toml"]
    file = tmp_path / "agentstate.toml"
    file.write_text(example)
    loaded = settings.load(file, environ={})
    for part, given in tomllib.loads(example).items():
        for name, value in given.items():
            if part != "providers":
                assert _plain(getattr(getattr(loaded, part), name)) == value
    assert set(loaded.providers) == {"openai", "anthropic", "gemini", "ollama"}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


def test_the_short_variables_are_those_of_the_code() -> None:
    said = {row[0].strip("`"): row[1].strip("`") for row in table(PAGE, "Variables")}
    assert said == {name: ".".join(keys) for name, keys in settings.SHORT_VARIABLES.items()}


def test_the_variables_that_are_no_settings_are_those_of_the_code() -> None:
    assert set(names(PAGE, "Variables that are no settings")) == set(settings.CLIENT_VARIABLES)


def test_any_other_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"AGENTSTATE_PROT.*AGENTSTATE_PORT"):
        settings.load(environ={"AGENTSTATE_PROT": "1"})


def test_every_setting_can_be_given_as_a_variable() -> None:
    samples = {"text": "x", "whole number": "2048", "number": "1.5", "true or false": "true", "list of texts": "a,b"}
    samples["list of whole numbers"] = "500,503"
    # What stands in a list of tables, as [[alerts]], can be given in the file alone.
    for name, kind, _, _ in (row for row in table(PAGE, "All settings") if not row[0].startswith("`[[")):
        bare = name.strip("`").replace("NAME", "openai")
        if bare.startswith("[["):
            continue  # tables that may stand several times are for the file
        value = {"retry.attempts": "5", "retry.lost_answers": "5"}.get(bare, samples.get(kind.removesuffix(", secret")))
        if kind.startswith(("one of", "list of `")):
            value = next(part.strip("` ") for part in kind.partition(" of ")[2].split(",") if "`" in part)
        assert value is not None, kind
        variable = "AGENTSTATE_" + bare.replace(".", "__").upper()
        environ = {variable: "http://x.test" if bare.endswith(".url") else value}
        if bare.startswith("mcp."):
            environ["AGENTSTATE_MCP__OPENAI__URL"] = "http://x.test"  # without which there is no such server
        found: Any = settings.load(environ=environ)
        for part in bare.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        if kind.startswith("list of"):
            assert len(found) == len(value.split(",")), bare
        else:
            assert found not in (None, ""), bare


def test_every_setting_is_read_by_some_code() -> None:
    read = {
        node.attr
        for module in modules()
        if module.layer != "settings"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
    }
    unread = {name for name, *_ in settings.reference() if re.split(r"[. ]", name)[-1] not in read}
    assert not unread
