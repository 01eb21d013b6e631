"""The package's front door: light, lazy and complete."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import agentstate

ROOT = Path(__file__).parents[3]


def _python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    ).stdout


def test_import_loads_no_framework_and_nothing_of_weight() -> None:
    code = "import sys; before = set(sys.modules); import agentstate; print(*sorted(set(sys.modules) - before))"
    loaded = {name.split(".")[0] for name in _python(code).split()}
    assert "agentstate" in loaded
    heavy = {"anthropic", "openai", "langchain_openai", "crewai", "pydantic", "aiohttp", "httpx", "httpx2", "starlette"}
    assert not loaded & heavy
    assert not any(name.startswith("agentstate.") for name in _python(code).split())


def test_import_takes_less_than_fifty_milliseconds() -> None:
    code = "import time; t = time.perf_counter(); import agentstate; print(time.perf_counter() - t)"
    best = min(float(_python(code)) for _ in range(5))
    assert best < 0.050


def test_naming_a_wrapper_that_needs_no_framework_loads_none() -> None:
    code = (
        "import sys; from agentstate import session, wrap_langchain, wrap_crewai; wrap_crewai('s')\n"
        "with session('s') as s:\n    s.environ\n"
        "print(*sys.modules)"
    )
    loaded = set(_python(code).split())
    assert not loaded & {"anthropic", "openai", "langchain_openai", "langchain_core", "crewai", "pydantic"}
    assert not loaded & {"asyncio", "ssl", "urllib.request"}


def test_every_public_name_is_there_and_listed() -> None:
    for name in agentstate.__all__:
        assert getattr(agentstate, name) is not None
        assert name in dir(agentstate)


def test_every_public_callable_explains_itself() -> None:
    for name in agentstate.__all__:
        value = getattr(agentstate, name)
        if callable(value):
            text = inspect.getdoc(value)
            assert text, name
            if name != "tool_key":  # it takes nothing, and says what it gives
                assert "session_id" in text or "session" in inspect.signature(value).parameters, name
                assert "Raises" in text, name


def test_a_wrong_name_is_answered_with_the_right_ones() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'wrap_lanchain'.*wrap_langchain"):
        _ = agentstate.wrap_lanchain  # type: ignore[attr-defined]


def test_the_version_is_the_packages() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert agentstate.__version__ == declared


def test_the_package_is_marked_as_typed() -> None:
    assert (Path(agentstate.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("AgentStateOpenAI", "openai"),
        ("AsyncAgentStateOpenAI", "openai"),
        ("AgentStateAnthropic", "anthropic"),
        ("AsyncAgentStateAnthropic", "anthropic"),
    ],
)
def test_a_missing_vendor_package_is_named_with_the_way_to_install_it(name: str, vendor: str) -> None:
    code = (
        f"import sys; sys.modules[{vendor!r}] = None\n"
        f"try:\n    from agentstate import {name}\n"
        "except ImportError as error:\n    print(error)"
    )
    said = _python(code)
    assert said.startswith(f"{name} needs the {vendor} package: ")
    assert f"pip install 'agentstate-proxy[{vendor}]'" in said
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras[vendor][0].startswith(vendor)
