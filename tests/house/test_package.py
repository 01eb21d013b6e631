"""The public names are those documented, and importing them loads nothing of weight."""

from __future__ import annotations

import subprocess
import sys

import pytest

import agentstate
from tests.house.pages import ROOT, table

HEAVY = {
    "crewai", "genai_prices", "httpx", "langchain_core", "langchain_openai", "msgspec", "openai", "pydantic",
    "pydantic_settings", "rich", "sqlite3", "starlette", "typer", "uvicorn", "zstandard",
}  # fmt: skip
ALSO = {"asyncio", "http.client", "importlib.metadata", "ssl", "tomllib"}  # of the standard library, and slow to load


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after this code, and not without it."""
    script = f"import sys\nbefore = set(sys.modules)\n{code}\nafter = set(sys.modules)\nprint(*sorted(after - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_documented_names_are_the_public_names() -> None:
    rows = table(ROOT / "docs" / "README.md", "The Python package")
    assert sorted(row[0].strip("`") for row in rows) == sorted(agentstate.__all__)


@pytest.mark.parametrize("name", sorted(agentstate.__all__))
def test_every_public_name_can_be_had_and_explains_itself(name: str) -> None:
    value = getattr(agentstate, name)
    assert name == "__version__" or value.__doc__
    assert name in dir(agentstate)


def test_importing_the_package_loads_its_own_file_alone() -> None:
    loaded = loaded_by("import agentstate")
    assert {name for name in loaded if name.partition(".")[0] == "agentstate"} == {"agentstate"}
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert not loaded & ALSO


@pytest.mark.parametrize(
    ("name", "home"), [("wrap_langchain", "agentstate.sdk.langchain"), ("wrap_crewai", "agentstate.sdk.crewai")]
)
def test_a_wrapper_that_gives_keywords_loads_no_framework(name: str, home: str) -> None:
    loaded = loaded_by(f"from agentstate import {name}\n{name}('a-session')")
    ours = {part for part in loaded if part.startswith("agentstate.")}
    assert ours <= {"agentstate.errors", "agentstate.sdk", "agentstate.sdk.http", home}
    assert not {part.partition(".")[0] for part in loaded} & HEAVY


def test_help_of_the_command_line_starts_without_server_and_frameworks() -> None:
    loaded = loaded_by(
        "sys.argv = ['agentstate', '--version']\n"
        "from agentstate.cli.main import main\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n    main()"
    )
    assert not {part.partition(".")[0] for part in loaded} & {
        "httptools",
        "uvicorn",
        "starlette",
        "openai",
        "genai_prices",
    }
