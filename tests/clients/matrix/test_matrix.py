"""Agents on real packages are killed before, during and after each of their model calls, and lose nothing.

AGENTSTATE_MATRIX says how much of it is run. ``quick``, the default: one chain of kills a client, under one address form.
``chains``: every kill point, plain and streamed, in three chains, each under another address form. ``full``: every kill
point by itself, plain and streamed, under every address form.
"""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS, Client
from tests.clients.matrix.environments import interpreter, missing
from tests.clients.matrix.model import BEFORE, CALLS, DURING, Model
from tests.clients.matrix.work import FORMS, Work
from tests.support.proxy import Proxy
from tests.support.upstream import Gate

EXTENT = os.environ.get("AGENTSTATE_MATRIX", "quick")
AFTER = "after"
WHEN = (BEFORE, DURING, AFTER)
Kill = tuple[int, str]

UNDISTURBED: tuple[Kill, ...] = ()
# Each life dies one call further on than the one before. The three chains hold each kill point once.
CHAINS: tuple[tuple[Kill, ...], ...] = (
    ((1, BEFORE), (2, DURING), (3, AFTER)),
    ((1, DURING), (2, AFTER), (3, BEFORE)),
    ((1, AFTER), (2, BEFORE), (3, DURING)),
)
ALONE = tuple(((call, when),) for call in range(1, CALLS + 1) for when in WHEN)


def _cases() -> Iterator[tuple[Client, str, str, tuple[Kill, ...]]]:
    """(client, mode, address form, kills) of every test of the extent asked for."""
    for number, client in enumerate(CLIENTS):
        for place, mode in enumerate(client.modes):
            turn = number + place
            if EXTENT == "full":
                yield from ((client, mode, form, kills) for form in FORMS for kills in (UNDISTURBED, *ALONE))
            elif EXTENT == "chains":
                yield client, mode, FORMS[turn % 3], UNDISTURBED
                yield from ((client, mode, FORMS[(turn + at) % 3], chain) for at, chain in enumerate(CHAINS))
            elif len(client.modes) == 1 or turn % 2:
                yield client, mode, FORMS[number % 3], CHAINS[number // 3 % 3]
            if EXTENT == "quick" and (len(client.modes) == 1 or not turn % 2):
                yield client, mode, FORMS[number % 3], UNDISTURBED


def _parameters() -> Iterator[object]:
    for number, (client, mode, form, kills) in enumerate(_cases()):
        name = "-".join((client.name, mode, form, ", ".join(_said(kills)) or "undisturbed"))
        group = pytest.mark.xdist_group(f"matrix-{number // 2 % 2}")
        yield pytest.param(client, mode, form, kills, id=name, marks=group)


def _said(kills: tuple[Kill, ...]) -> tuple[str, ...]:
    return tuple(f"{call} {when}" for call, when in kills)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """The scripted model behind ``proxy``."""
    with Model() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Proxy]:
    """``agentstate serve`` before the scripted model, for every wire format."""
    others = {"AGENTSTATE_ANTHROPIC_URL": model.root, "AGENTSTATE_GEMINI_URL": model.root}
    with Proxy(tmp_path_factory.mktemp("proxy"), f"{model.root}/v1", environment=others) as running:
        yield running


@pytest.mark.parametrize(("client", "mode", "form", "kills"), list(_parameters()))
def test_an_agent_that_is_killed_pays_for_each_call_once_and_ends_as_if_nothing_had_been(
    client: Client, mode: str, form: str, kills: tuple[Kill, ...], model: Model, proxy: Proxy, tmp_path: Path
) -> None:
    if why := missing(client):
        pytest.skip(why)
    failure = ""
    try:
        with Work(client, mode, form, proxy, tmp_path) as work:
            said = _killed_at(work, model, kills)
            _judge(work, model, proxy, said, lives=len(kills) + 1)
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise
    finally:
        results.write(
            results.Outcome(client.name, _version(client), mode, form, _said(kills), model.paid, not failure, failure)
        )


def _killed_at(work: Work, model: Model, kills: tuple[Kill, ...]) -> list[str]:
    """Let an agent live and die at each of the points in turn; what its last life said."""
    gates = {kill: Gate() for kill in kills if kill[1] != AFTER}
    # Told one life ahead: a supervisor begins the next one by itself.
    holds = [call if when == AFTER else None for call, when in kills]
    cut: Kill | None = None
    model.begin(work.session, gates)
    work.hold(next(iter(holds), None))
    try:
        for kill, held_next in zip(kills, [*holds[1:], None], strict=True):
            _begin(work, gates, cut)
            cut = _die(work, model, gates, kill, held_next)
        _begin(work, gates, cut)
        return work.finish()
    finally:
        for gate in gates.values():
            gate.open()


def _begin(work: Work, gates: dict[Kill, Gate], cut: Kill | None) -> None:
    """Begin a life. An answer that was cut goes on only when the new life is about to ask for it again."""
    work.next()
    if cut is not None:
        if cut[0] > 1:
            work.wait("TOOL: ", cut[0] - 1)
        gates[cut].open()


def _die(work: Work, model: Model, gates: dict[Kill, Gate], kill: Kill, held_next: int | None) -> Kill | None:
    """Kill the present life at a point; the point, if the answer there is to stand still until the next life."""
    call, when = kill
    if when == AFTER:
        work.wait(f"HOLDS: {call}")
        model.wait_answered(call)
    else:
        gates[kill].wait_reached()
    work.hold(held_next)
    work.kill()
    if when == BEFORE:
        gates[kill].open()
    return kill if when == DURING else None


def _judge(work: Work, model: Model, proxy: Proxy, said: list[str], lives: int) -> None:
    name = work.session
    weather, email = f"Paris-{name}-1", f"bob-{name}-2"
    answer = f"Answer {name}-3: [get_weather: {weather} done] and [send_email: {email} done]."
    assert said == [f"TOOL: get_weather {weather}", f"TOOL: send_email {email}", f"FINAL: {answer}"]
    assert model.paid == CALLS
    detail = proxy.control.session(name)
    steps = [step for step in detail["steps"] if step["kind"] == "model"]
    assert [step["state"] for step in steps] == ["completed"] * CALLS
    for step, told in zip(steps, (weather, email, answer), strict=True):
        assert told in step["response"]
        runs = [given["run"] for given in step["served"]]
        assert len(set(runs)) == len(runs), f"step {step['step_number']} was delivered twice within a run: {runs}"
    assert len(detail["runs"]) == lives
    last = detail["runs"][-1]["run"]
    assert all(last in [given["run"] for given in step["served"]] for step in steps)


def _version(client: Client) -> str:
    if client.environment:
        (site,) = (interpreter(client).parents[1] / "lib").glob("python*/site-packages")
    else:
        site = Path(sysconfig.get_path("purelib"))
    return next(iter(importlib.metadata.distributions(name=client.package, path=[str(site)]))).version
