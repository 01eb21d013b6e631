"""docs/reference/errors.md and the exit codes of docs/reference/cli.md are held to the error tree."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

import pytest

import agentstate
from agentstate.errors import AgentStateError, SessionPaused
from agentstate.server.errors import rendered
from tests.house.pages import REFERENCE, fences, table, text

PAGE = REFERENCE / "errors.md"


def tree(root: type[AgentStateError] = AgentStateError) -> Iterator[type[AgentStateError]]:
    """Every error class of the package."""
    for module in pkgutil.walk_packages(agentstate.__path__, "agentstate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(kind: type[AgentStateError]) -> Iterator[type[AgentStateError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    return (kind for kind in below(root) if kind.__module__.startswith("agentstate."))


ERRORS = list(tree())
ROWS = {row[0].strip("`"): row for row in table(PAGE, "All codes")}


def made(kind: type[AgentStateError]) -> AgentStateError:
    """An error of this class, whatever else its own constructor asks for."""
    error = kind.__new__(kind)
    AgentStateError.__init__(error, "what to do next")
    return error


def test_every_code_is_documented_and_no_other() -> None:
    assert sorted(ROWS) == sorted(kind.code for kind in ERRORS)


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in ERRORS]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_status_headers_and_exit_code_are_as_documented(kind: type[AgentStateError]) -> None:
    _, status, along, exit_code, meaning = ROWS[kind.code]
    if kind.__module__.startswith("agentstate.cli."):
        assert (status, along) == ("", "") and meaning.startswith("Command line only")
        assert exit_code in ("", str(kind.exit_code))
        return
    real_status, headers, _ = rendered(made(kind))
    sent = ", ".join(f"`{name}: {value}`" for name, value in headers if name != "content-type")
    assert (status, along, exit_code) == (str(real_status), sent, str(kind.exit_code))


def test_the_example_is_what_the_proxy_says() -> None:
    message = "session invoice-4711 is paused; set its status to RUNNING to go on"
    [example] = [fence.text for fence in fences(text(PAGE)) if fence.kind == "json"]
    assert json.loads(example) == json.loads(rendered(SessionPaused(message))[2])


def test_every_exit_code_of_the_tree_is_explained() -> None:
    explained = {row[0].strip("`") for row in table(REFERENCE / "cli.md", "Exit codes")}
    assert {str(kind.exit_code) for kind in ERRORS} | {"0", "126", "127", "130"} == explained
