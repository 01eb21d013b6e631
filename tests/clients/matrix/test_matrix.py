"""Agents on real packages are killed before, during and after each of their model calls, and lose nothing.

By default the kills are chained in one session, under one address form a client. With AGENTSTATE_MATRIX=full every
kill point stands by itself, under every address form.
"""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS, GEMINI, Client
from tests.clients.matrix.environments import interpreter, missing
from tests.clients.matrix.model import BEFORE, CALLS, DURING, Model
from tests.clients.matrix.work import FORMS, Work
from tests.support.proxy import Proxy
from tests.support.upstream import Gate

FULL = os.environ.get("AGENTSTATE_MATRIX") == "full"
AFTER = "after"
WHEN = (BEFORE, DURING, AFTER)
Kill = tuple[int, str]

UNDISTURBED: tuple[Kill, ...] = ()
# Each life dies one call further on than the one before, each in another way.
CHAIN: tuple[Kill, ...] = ((1, BEFORE), (2, DURING), (3, AFTER))


def _rows() -> Iterator[object]:
    """(client, mode, address form, kills) of every test of the form asked for."""
    modes = [(client, mode) for client in CLIENTS for mode in client.modes]
    alone = [((call, when),) for call in range(1, CALLS + 1) for when in WHEN]
    for number, (client, mode) in enumerate(modes):
        for form in FORMS if FULL else (FORMS[number % len(FORMS)],):
            for kills in (UNDISTURBED, *alone) if FULL else (UNDISTURBED, CHAIN):
                said = ", ".join(_said(kills)) or "undisturbed"
                yield pytest.param(
                    client, mode, form, kills,
                    id=f"{client.name}-{mode}-{form}-{said}",
                    marks=pytest.mark.xdist_group(f"matrix-{number % 2}"),
                )  # fmt: skip


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
    with Proxy(
        tmp_path_factory.mktemp("proxy"), f"{model.root}/v1", environment={"AGENTSTATE_ANTHROPIC_URL": model.root}
    ) as running:
        yield running


@pytest.mark.parametrize(("client", "mode", "form", "kills"), list(_rows()))
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
    model.begin(work.session, gates)
    try:
        for place, (call, when) in enumerate(kills):
            work.hold(call if when == AFTER else None)
            work.next()
            earlier = gates.get(kills[place - 1]) if place else None
            if earlier is not None and not earlier._opened.done():
                _open_once_asked_again(work, earlier, kills[place - 1][0])
            if when == AFTER:
                work.wait("HOLDS: ")
                model.wait_answered(call)
                work.hold(None)
            else:
                gates[call, when].wait_reached()
            work.kill()
            if when == BEFORE:
                gates[call, when].open()
        work.next()
        if kills and kills[-1][1] == DURING:
            _open_once_asked_again(work, gates[kills[-1]], kills[-1][0])
        return work.finish()
    finally:
        for gate in gates.values():
            gate.open()


def _open_once_asked_again(work: Work, gate: Gate, call: int) -> None:
    """Let the cut call's answer go on only when the new life has reached that call, so that it has to join it."""
    if call > 1:
        work.wait("TOOL: ", _tools_before(work, call))
    gate.open()


def _tools_before(work: Work, call: int) -> int:
    return call - 1


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
