"""Owns the parts of the reference pages that are made from the code: the tables of settings and of command options.

``python -m tests.house.generated`` (or the name of a page) writes them into the pages, between their marks; a test
compares. Must not touch anything outside the marks. Invariant: the same code gives the same text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import typer

from agentstate import settings
from agentstate.cli import main as cli
from tests.house.pages import REFERENCE

MIB = 1024 * 1024
_TYPES = {
    "SecretStr": "text, secret",
    "SecretStr | None": "text, secret",
    "list[SecretStr]": "list of texts, secret",
    "list[str]": "list of texts",
    "list[int]": "list of whole numbers",
    "date": "date",
    "str": "text",
    "int": "whole number",
    "int | None": "whole number",
    "float": "number",
    "float | None": "number",
    "bool": "true or false",
}


def commands() -> Any:
    """The whole command line as its framework sees it: ``params`` and ``commands``."""
    if not any(command.name == "run" for command in cli.app.registered_commands):
        cli._add_commands()
    return typer.main.get_command(cli.app)


def flat() -> dict[str, Any]:
    """Every command by what is typed for it: those of a group as ``alerts list``."""
    found: dict[str, Any] = {}
    for name, command in commands().commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {part}": one for part, one in inner.items()}
    return found


def settings_table() -> str:
    """Every setting: name, type, default, help."""
    lines = ["| setting | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, kind, default, meaning in settings.reference():
        lines.append(f"| `{name}` | {_type(kind)} | {_default(default)} | {meaning} |")
    return "\n".join(lines)


def options_table(command: str) -> str:
    """Every argument and option of a command: spelling, variable, default, help."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for parameter in flat()[command].params:
        spelled = parameter.opts[0] if parameter.opts[0].startswith("-") else (parameter.metavar or parameter.name)
        variable = f" Variable: `{parameter.envvar}`." if parameter.envvar else ""
        default = "required" if parameter.required else _shown(parameter.default)
        lines.append(f"| `{spelled}` | {default} | {_sentence(parameter.help)}{variable} |")
    return "\n".join(lines)


def _shown(default: Any) -> str:
    return "" if default in (None, False, "") else f"`{default}`"


def _sentence(text: str) -> str:
    return text.replace("|", "\\|")


def _type(kind: str) -> str:
    if "Literal[" in kind:
        values = ", ".join(f"`{value}`" if value else "nothing" for value in re.findall(r"'([^']*)'", kind))
        return f"list of {values}" if kind.startswith("list") else f"one of {values}"
    return _TYPES[kind]


def _default(default: str) -> str:
    """A default as it would stand in the file; sizes also in MiB."""
    if default == "":
        return "required"
    value = ast.literal_eval(default)
    if value in (None, "", []):
        return "none"
    shown = str(value) if isinstance(value, str) else json.dumps(value).removesuffix(".0")
    whole_mib = isinstance(value, int) and not isinstance(value, bool) and value >= MIB and value % MIB == 0
    return f"`{shown}`" + (f" ({value // MIB} MiB)" if whole_mib else "")


def _parts() -> dict[str, dict[str, Callable[[], str]]]:
    with_options = [name for name, command in flat().items() if command.params]
    return {
        "settings.md": {"settings": settings_table},
        "cli.md": {f"options of {name}": partial(options_table, name) for name in with_options},
    }


PARTS = _parts()
"""Page → mark → what stands there."""


def renewed(page: str) -> str:
    """The page as the code wants it. Fails when a mark is missing."""
    content = (REFERENCE / page).read_text("utf-8")
    for mark, make in PARTS[page].items():
        start, end = f"<!-- generated: {mark} -->\n\n", f"\n\n<!-- end of {mark} -->"
        before, found, rest = content.partition(start)
        _, closed, after = rest.partition(end)
        assert found and closed, f"{page} has lost its mark {mark!r}"
        content = before + start + make() + end + after
    return content


def main() -> None:
    """Write all generated parts."""
    for page in PARTS:
        path: Path = REFERENCE / page
        path.write_text(renewed(page), "utf-8")


if __name__ == "__main__":
    main()
