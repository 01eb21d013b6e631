"""Agents from npm and coding CLIs are killed before, during and after each of their model calls, and lose nothing.

How much of it is run says AGENTSTATE_MATRIX, as for the Python packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.lives import BOUND_S
from tests.clients.matrix import node_environments, results
from tests.clients.matrix.clients import STREAM
from tests.clients.matrix.model import CALLS
from tests.clients.matrix.node_clients import NODE_CLIENTS, NodeClient
from tests.clients.matrix.node_environments import missing, version
from tests.clients.matrix.node_model import CodingModel
from tests.clients.matrix.node_work import NodeWork, end_tree
from tests.clients.matrix.results import Outcome
from tests.clients.matrix.test_matrix import ALONE, CHAINS, EXTENT, UNDISTURBED, Kill, _killed_at, _said
from tests.clients.matrix.work import FORMS, PATH
from tests.support.proxy import Proxy

# One row of each coding CLI.
CODING = {client.environment: client for client in NODE_CLIENTS if client.coding}


def _cases() -> Iterator[tuple[NodeClient, str, str, tuple[Kill, ...]]]:
    """(client, mode, address form, kills) of every test of the extent asked for."""
    for number, client in enumerate(NODE_CLIENTS):
        for place, mode in enumerate(client.modes):
            turn = number + place
            if EXTENT == "full":
                yield from ((client, mode, form, kills) for form in FORMS for kills in (UNDISTURBED, *ALONE))
            elif EXTENT == "chains":
                yield client, mode, FORMS[turn % 3], UNDISTURBED
                yield from ((client, mode, FORMS[(turn + at) % 3], chain) for at, chain in enumerate(CHAINS))
            elif len(client.modes) == 1 or turn % 2:
                yield client, mode, FORMS[number % 3], CHAINS[turn % 3]


def _parameters() -> Iterator[object]:
    for client, mode, form, kills in _cases():
        name = "-".join((client.name, mode, form, ", ".join(_said(kills)) or "undisturbed"))
        yield pytest.param(client, mode, form, kills, id=name, marks=pytest.mark.xdist_group("node-matrix"))


@pytest.fixture(scope="module")
def model() -> Iterator[CodingModel]:
    """The scripted model behind ``proxy``."""
    with CodingModel() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, model: CodingModel) -> Iterator[Proxy]:
    """``agentstate serve`` before the scripted model, for every wire format."""
    others = {"AGENTSTATE_ANTHROPIC_URL": model.root}
    with Proxy(
        tmp_path_factory.mktemp("proxy"), f"{model.root}/v1", environment=others, file="policies = []\n"
    ) as running:
        yield running


@pytest.mark.parametrize(("client", "mode", "form", "kills"), list(_parameters()))
def test_a_client_from_npm_that_is_killed_pays_for_each_call_once_and_ends_as_if_nothing_had_been(
    client: NodeClient,
    mode: str,
    form: str,
    kills: tuple[Kill, ...],
    model: CodingModel,
    proxy: Proxy,
    tmp_path: Path,
) -> None:
    if why := missing(client):
        pytest.skip(why)
    failure = ""
    work = NodeWork(client, mode, form, proxy, tmp_path)
    try:
        with work:
            said = _killed_at(work, model, kills)
            _judge(work, model, proxy, said, lives=len(kills) + 1)
    except BaseException as error:
        first = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        failure = first.replace(work.session, "SESSION")
        raise
    finally:
        paid = model.paid if work.lives else 0
        results.write(Outcome(client.name, version(client), mode, form, _said(kills), paid, not failure, failure))


@pytest.mark.xdist_group("node-matrix")
@pytest.mark.parametrize("client", CODING.values(), ids=CODING)
def test_a_coding_cli_that_finds_its_home_as_it_left_it_is_recovered_too(
    client: NodeClient, model: CodingModel, proxy: Proxy, tmp_path: Path
) -> None:
    if why := missing(client):
        pytest.skip(why)
    kills = CHAINS[1]
    with NodeWork(client, STREAM, PATH, proxy, tmp_path) as work:
        work.keep = True
        said = _killed_at(work, model, kills)
        _judge(work, model, proxy, said, lives=len(kills) + 1)


def _judge(work: NodeWork, model: CodingModel, proxy: Proxy, said: list[str], lives: int) -> None:
    name = work.session
    weather, email = f"Paris-{name}-1", f"bob-{name}-2"
    answer = f"Answer {name}-3: [get_weather: {weather} done] and [send_email: {email} done]."
    detail = proxy.control.session(name)
    told = _told(detail)
    assert said == [f"TOOL: get_weather {weather}", f"TOOL: send_email {email}", f"FINAL: {answer}"], told
    assert (model.paid, model.odd) == (CALLS, []), told
    assert model.beside <= work.client.side_calls, told
    models = [step for step in detail["steps"] if step["kind"] == "model"]
    steps = [step for step in models if f"{name}-beside-" not in (step["response"] or "")]
    assert [step["state"] for step in steps] == ["completed"] * CALLS, told
    for step, literal in zip(steps, (weather, email, answer), strict=True):
        assert literal in step["response"]
    for step in models:
        runs = [given["run"] for given in step["served"]]
        assert len(set(runs)) == len(runs), f"step {step['step_number']} was delivered twice within a run: {runs}"
    assert len(detail["runs"]) == lives
    last = detail["runs"][-1]["run"]
    assert all(last in [given["run"] for given in step["served"]] for step in steps)


def _told(detail: dict[str, Any]) -> str:
    """What the journal says of a session: each life's divergence, each step's state and outcomes, in equal words for
    equal behaviour."""
    lives = {run["run"]: f"life {number}" for number, run in enumerate(detail["runs"], 1)}
    diverged = [f"{lives[run['run']]} {_divergence(run['divergence'])}" for run in detail["runs"] if run["diverged"]]
    steps = [
        f"step {step['step_number']} {step['state']}: "
        + ", ".join(f"{given['outcome']} to {lives[given['run']]}" for given in step["served"])
        for step in detail["steps"]
    ]
    return "\n".join([*(diverged or ["no life diverged"]), *steps])


def _divergence(report: dict[str, Any]) -> str:
    nearest = report.get("nearest") or {}
    places = [row["path"] for row in nearest.get("diff", [])]
    why = report.get("refused") or f"could be declared harmless by {' or '.join(report.get('declare', ['nothing']))}"
    return f"diverged from step {nearest.get('step_number')} at {', '.join(places)}; {why}"


def test_every_folder_pins_the_package_that_is_tested() -> None:
    for client in NODE_CLIENTS:
        pins = dict(pin.rsplit("@", 1) for pin in client.requirements)
        assert client.package in pins, client.name
        assert all(version.replace(".", "").isdigit() for version in pins.values()), client.name


def test_a_client_whose_pin_has_changed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = NODE_CLIENTS[0]
    monkeypatch.setattr(node_environments, "FOLDER", tmp_path)
    monkeypatch.setattr(node_environments.shutil, "which", lambda name: f"/usr/bin/{name}")
    place = tmp_path / client.environment
    place.mkdir()
    (place / ".ready-for").write_text("openai@1.0.0")
    assert f"node_environments {client.environment}" in missing(client)
    (place / ".ready-for").write_text("\n".join(node_environments.wanted()[client.environment]))
    assert missing(client) == ""


def test_an_unknown_folder_is_refused_with_the_names_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert node_environments.main(["nonsense"]) == 2
    assert NODE_CLIENTS[0].environment in capsys.readouterr().err


@pytest.mark.parametrize(("tool", "field"), [("Bash", "command"), ("bash", "command"), ("exec_command", "cmd")])
def test_a_coding_cli_is_asked_for_commands_in_its_own_shell(model: CodingModel, tool: str, field: str) -> None:
    model.begin("a")
    said = _post(model, {"model": "m", "tools": [{"name": tool}, {"name": "other"}]})
    (block,) = said["content"]
    assert (block["name"], block["input"][field]) == (tool, "./tools get_weather Paris-a-1")
    assert (model.paid, model.beside) == (1, 0)


def test_a_call_that_offers_no_tools_is_answered_with_a_text_and_counted_apart(model: CodingModel) -> None:
    model.begin("a")
    texts = [_post(model, {"model": "m"})["content"][0]["text"] for _ in range(2)]
    assert texts == ["Aside a-beside-1", "Aside a-beside-2"]
    assert (model.paid, model.beside) == (0, 2)


def _post(model: CodingModel, body: dict[str, Any]) -> dict[str, Any]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"{model.root}/v1/messages", json.dumps(body).encode())
    with opener.open(request, timeout=BOUND_S) as answer:
        return dict(json.loads(answer.read()))


def test_a_life_is_ended_with_processes_that_have_left_its_session() -> None:
    child = "import time; print('ready', flush=True); time.sleep(30); print('outlived', flush=True)"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True, check=False)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        assert life.stdout.readline() == b"ready\n"
        end_tree(life.pid)
        assert life.wait(BOUND_S) < 0
        # The child holds the other end of the pipe for as long as it lives.
        assert life.stdout.read() == b""
