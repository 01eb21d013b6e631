"""Every example is started, killed at its first tool call and started again, before the simulator."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from tests.clients.lives import OTHER, Life, environment, other_python, python
from tests.support.proxy import ROOT, Proxy

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


def _start(lives: list[Life], name: str, folder: Path, proxy: Proxy, session: str) -> Life:
    command = _command(name, folder, session)
    life = Life(command, environment(proxy.url, MODEL=MODEL, HOME=str(folder), **QUIET))
    lives.append(life)
    return life


@pytest.mark.parametrize("name", sorted(FIRST_TOOL))
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
    assert found == set(FIRST_TOOL)
    for name in found:
        head = (EXAMPLES / name).read_text()[:1200]
        assert f"examples/{name}" in head and "agentstate serve --simulate" in head, name
