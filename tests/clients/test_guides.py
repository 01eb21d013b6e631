"""The guides are held to the code: every snippet of a tested guide is run, before the simulator or a scripted model.

Guides of clients that are not installed here hold recorded facts; of those, form and completeness are held.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentstate import settings
from tests.clients import vendors
from tests.clients.lives import OTHER, TEST_KEY, Life, environment, other_python, python
from tests.support.proxy import ROOT, Proxy
from tests.support.upstream import Upstream

pytestmark = pytest.mark.xdist_group("clients-guides")

GUIDES = ROOT / "docs" / "guides"
NAMES = (
    "any-language.md", "anthropic.md", "crewai.md", "langchain.md", "node.md", "openai-agents.md", "openai.md",
    "pydantic-ai.md",
)  # fmt: skip
# They ask in formats that the simulator does not speak.
BEFORE_A_SCRIPT = ("anthropic.md", "openai-agents.md", "pydantic-ai.md")
# Their set-up was recorded; nothing of theirs is installed for these tests.
RECORDED = (
    "agno.md", "autogen.md", "claude-code.md", "codex.md", "google-genai.md", "litellm.md", "llama-index.md",
    "opencode.md", "smolagents.md", "strands.md", "vercel-ai-sdk.md",
)  # fmt: skip
ALL = (*NAMES, *RECORDED)
# They are about the proxy and no client; what they show is tried where the thing itself is tested.
OF_THE_PROXY = (
    "alerts.md", "approvals.md", "comparing.md", "costs.md", "datasets.md", "fallback.md", "gate.md", "operations.md",
    "pausing.md", "retention.md", "steering.md", "tools.md",
)  # fmt: skip
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)  # within a list too
ADDRESS = "http://localhost:8080"
RUNNABLE = ("python", "sh", "js")
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}  # fmt: skip


def _snippets(kinds: tuple[str, ...]) -> list[tuple[str, int, str, str]]:
    """(guide, number within it, language, text) of the fenced blocks of these languages."""
    return [
        (name, number, found[1], found[2])
        for name in NAMES
        for number, found in enumerate(FENCE.finditer((GUIDES / name).read_text()))
        if found[1] in kinds
    ]


SNIPPETS = _snippets(RUNNABLE)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """``agentstate serve`` before a scripted model that speaks every vendor's format."""
    with (
        Upstream(vendors.answer) as model,
        Proxy(tmp_path_factory.mktemp("scripted"), model.url) as running,
    ):
        yield running


def _command(guide: str, language: str, script: Path) -> list[str]:
    if language == "python":
        return other_python(script, needs="crewai") if guide == "crewai.md" else python(script)
    if language == "js":
        node = shutil.which("node")
        if node is None or not (OTHER / "node_modules" / "openai").is_dir():
            pytest.skip(f"openai-node is not installed in {OTHER.name}: `make test-clients` installs it")
        (script.parent / "node_modules").symlink_to(OTHER / "node_modules")
        return [node, str(script)]
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed here")
    return ["sh", "-eu", str(script)]


@pytest.mark.parametrize(
    ("guide", "number", "language", "text"), SNIPPETS, ids=[f"{row[0]}-{row[1]}-{row[2]}" for row in SNIPPETS]
)
def test_a_snippet_does_what_its_guide_says(
    lives: list[Life],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    guide: str,
    number: int,
    language: str,
    text: str,
) -> None:
    proxy: Proxy = request.getfixturevalue("scripted" if guide in BEFORE_A_SCRIPT else "simulator")
    suffix = {"python": ".py", "js": ".mjs", "sh": ".sh"}[language]
    script = tmp_path / f"snippet{number}{suffix}"
    script.write_text(text.replace(ADDRESS, proxy.url))
    before = _completed(proxy)
    variables = environment(proxy.url, HOME=str(tmp_path), ANTHROPIC_API_KEY=TEST_KEY, **QUIET)
    life = Life(_command(guide, language, script), variables, tmp_path)
    lives.append(life)
    life.output()
    after = _completed(proxy)
    named = [session for session in after if session in text]
    assert named, f"the snippet names none of the sessions {sorted(after)}"
    # Told again in another snippet of the guide, a session's first question is answered from its journal.
    assert any(after[session] > before.get(session, 0) or session in before for session in named)


def _completed(proxy: Proxy) -> dict[str, int]:
    """Completed steps by session."""
    return {
        row["id"]: sum(step["state"] == "completed" for step in proxy.control.steps(row["id"]))
        for row in proxy.control.get("/api/sessions?limit=1000")
    }


def test_every_guide_is_either_run_or_recorded() -> None:
    assert {path.name for path in GUIDES.iterdir()} == {*ALL, *OF_THE_PROXY}
    assert len(ALL) == len(set(ALL))


def test_every_guide_is_there_short_and_tells_the_same_four_things() -> None:
    for name in ALL:
        text = (GUIDES / name).read_text()
        titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert titles[0] == "In 30 seconds"
        assert {"How a restart is known", "What to watch for"} <= set(titles), name
        assert "Your tools run again" in text or "Your own tools run again" in text, name
        assert "not after the process" in text, name
        assert len(text.splitlines()) <= 120, name


def test_every_fenced_block_is_run_or_is_a_console() -> None:
    for name in NAMES:
        kinds = [found[1] for found in FENCE.finditer((GUIDES / name).read_text())]
        assert set(kinds) <= {*RUNNABLE, "console"}, name
        assert set(kinds) & set(RUNNABLE), f"{name} has no snippet that is run"


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_guide_says_so_with_the_release_and_its_snippets_can_be_read(name: str) -> None:
    text = (GUIDES / name).read_text()
    first = text.partition("## In 30 seconds")[2].partition("\n## ")[0]
    assert re.search(r"The set-up\W+is as recorded with .*\d+\.\d+\.\d+", " ".join(first.split())), name
    assert "agentstate run --session" in text, name
    for kind, snippet in FENCE.findall(text):
        assert kind in ("python", "js", "console"), name
        if kind == "python":
            compile(snippet, name, "exec")
            assert "agentstate.session(" in snippet, name


@pytest.mark.parametrize("name", OF_THE_PROXY)
def test_the_settings_of_a_guide_are_taken_its_python_can_be_read_and_its_commands_exist(
    name: str, tmp_path: Path
) -> None:
    commands = set(re.findall(r"^## (\S+)", (GUIDES / "../reference/cli.md").read_text(), re.MULTILINE))
    found = [(kind, textwrap.dedent(snippet)) for kind, snippet in INDENTED.findall((GUIDES / name).read_text())]
    file = tmp_path / "agentstate.toml"
    for kind, snippet in found:
        if kind == "toml":
            file.write_text(snippet)
            settings.load(file, environ={})
        elif kind == "python":
            compile(snippet, name, "exec")
        elif kind == "console":
            for command in re.findall(r"^\$ agentstate ([a-z]\S*)", snippet, re.MULTILINE):
                assert command in commands, f"{name} names the command {command!r}"
    assert {"toml", "python", "console"} & {kind for kind, _ in found}


def test_links_between_guides_lead_somewhere() -> None:
    for name in (*ALL, *OF_THE_PROXY):
        for target in re.findall(r"\]\(([^)#:]+)\)", (GUIDES / name).read_text()):
            assert (GUIDES / target).resolve().exists(), f"{name} links to {target}"
