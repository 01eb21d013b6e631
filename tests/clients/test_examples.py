"""Every example is started, killed at its first tool call and started again, before the simulator.

Where an example asks in a format that the simulator does not speak, a scripted model stands in for it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import vendors
from tests.clients.lives import OTHER, TEST_KEY, Life, environment, other_python, python
from tests.support.proxy import ROOT, Proxy
from tests.support.upstream import Upstream, plain

pytestmark = pytest.mark.xdist_group("clients-examples")

EXAMPLES = ROOT / "examples"
MODEL = "gpt-4o-mini-t4"  # the simulator calls four tools, then answers: five calls
QUIET = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
FIRST_TOOL = {
    "plain_openai.py": "weather(",
    "langchain_agent.py": "exchange_rate(",
    "crewai_agent.py": "search_flights(",
    "any_language.sh": "disk_use(",
    "openai_node.mjs": "open_tickets(",
}
OF_ITS_OWN = ("anthropic_agent.py", "fallback_agent.py", "tool_agent.py")  # with a test of its own


def _command(name: str, folder: Path, session: str) -> list[str]:
    """How an example is started; skips the test where what it needs is not installed."""
    script = EXAMPLES / name
    if name == "crewai_agent.py":
        return other_python(script, session, needs="crewai")
    if name.endswith(".sh"):
        if shutil.which("curl") is None:
            pytest.skip("curl is not installed here")
        return ["sh", str(script), session]
    if name.endswith(".mjs"):
        node = shutil.which("node")
        if node is None or not (OTHER / "node_modules" / "openai").is_dir():
            pytest.skip(f"openai-node is not installed in {OTHER.name}: `make test-clients` installs it")
        # Modules are looked for beside the script, so the script is put beside the modules.
        copy = folder / name
        if not copy.exists():
            shutil.copy(script, copy)
            (folder / "node_modules").symlink_to(OTHER / "node_modules")
        return [node, str(copy), session]
    return python(script, session)


def _start(lives: list[Life], name: str, folder: Path, proxy: Proxy, session: str, **more: str) -> Life:
    command = _command(name, folder, session)
    told = {"MODEL": MODEL, "HOME": str(folder), "ANTHROPIC_API_KEY": TEST_KEY, **QUIET, **more}
    variables = environment(proxy.url, **told)
    life = Life(command, variables)
    lives.append(life)
    return life


@pytest.fixture(scope="module")
def vendor() -> Iterator[Upstream]:
    """The scripted model."""
    with Upstream(vendors.answer) as running:
        yield running


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory, vendor: Upstream) -> Iterator[Proxy]:
    """``agentstate serve`` before the scripted model."""
    with Proxy(tmp_path_factory.mktemp("scripted"), vendor.url) as running:
        yield running


def test_the_anthropic_example_killed_at_its_first_tool_call_pays_each_call_once(
    lives: list[Life], scripted: Proxy, vendor: Upstream, tmp_path: Path
) -> None:
    session = f"example-{uuid.uuid4().hex[:8]}"
    first = _start(lives, "anthropic_agent.py", tmp_path, scripted, session)
    first.wait_line("read_clause(")
    first.kill()
    second = _start(lives, "anthropic_agent.py", tmp_path, scripted, session).output()
    assert second[0].startswith("read_clause(") and second[1].startswith("remark(")
    assert "after 2 tool results" in second[-1]
    assert vendor.calls == len(scripted.control.steps(session)) == 3


def test_the_functions_of_the_tool_example_are_not_called_by_its_next_life(
    lives: list[Life], simulator: Proxy, tmp_path: Path
) -> None:
    session = f"example-{uuid.uuid4().hex[:8]}"
    first = _start(lives, "tool_agent.py", tmp_path, simulator, session, MODEL="gpt-4o-mini")
    first.wait_line("transfer gave")
    first.kill()
    called = [line for line in first.report().splitlines() if "is called" in line]
    assert [line.partition("(")[0] for line in called] == ["read_balance", "transfer"] and "key_" in called[1]

    second = _start(lives, "tool_agent.py", tmp_path, simulator, session, MODEL="gpt-4o-mini").output()
    assert [line.partition(":")[0] for line in second[:2]] == ["read_balance gave", "transfer gave"]
    assert not any("is called" in line for line in second)
    assert "after 2 tool results" in second[2]


def test_the_fallback_example_is_answered_by_a_provider_of_another_format_live_and_replayed(
    lives: list[Life], vendor: Upstream, tmp_path: Path
) -> None:
    session = f"example-{uuid.uuid4().hex[:8]}"
    file = f'[providers.backup]\nurl = "{vendor.url}"\ndialects = ["anthropic"]\n'
    down = plain(b'{"error":{"message":"overloaded"}}', 503)
    more = {"MODEL": "gpt-down", "INSTEAD": "backup/claude-test"}
    before = vendor.calls
    with Upstream(lambda seen: down) as asked, Proxy(tmp_path / "proxy", asked.url, file=file) as proxy:
        first = _start(lives, "fallback_agent.py", tmp_path, proxy, session, **more)
        first.wait_line("answered by")
        first.kill()
        second = _start(lives, "fallback_agent.py", tmp_path, proxy, session, **more).output()
        assert len(second) == len(proxy.control.steps(session)) == vendor.calls - before == 3
        for line in second:
            assert line.startswith("answered by claude-test, backup/claude-test; because=")
        said = next(line for line in first.report().splitlines() if line.startswith("answered by"))
        assert second[0] == said


@pytest.mark.parametrize("name", sorted(set(FIRST_TOOL) - set(OF_ITS_OWN)))
def test_an_example_killed_at_its_first_tool_call_pays_each_call_once(
    lives: list[Life], simulator: Proxy, tmp_path: Path, name: str
) -> None:
    session = f"example-{uuid.uuid4().hex[:8]}"
    first = _start(lives, name, tmp_path, simulator, session)
    first.wait_line(FIRST_TOOL[name])
    first.kill()

    second = _start(lives, name, tmp_path, simulator, session).output()
    assert sum(FIRST_TOOL[name] in line for line in second) >= 2
    assert "after 4 tool results" in second[-1]

    told = simulator.control.session(session)
    runs = [simulator.control.run(session, run["run"]) for run in told["runs"]]
    assert len(runs) == 2
    assert sum(run["live"] for run in runs) == len(told["steps"]) == 5
    assert sum(run["replayed"] + run["joined"] for run in runs) >= 1


def test_every_example_is_tried_and_says_how_to_start_it() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert found == {*FIRST_TOOL, *OF_ITS_OWN}
    for name in found:
        head = (EXAMPLES / name).read_text()[:1200]
        assert f"examples/{name}" in head and "agentstate serve --simulate" in head, name
