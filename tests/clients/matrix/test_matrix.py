"""Agents on real packages are killed before, during and after each of their model calls, and lose nothing.

AGENTSTATE_MATRIX says how much of it is run. ``quick``, the default: one chain of kills a client, under one form of
address. ``chains``: every kill point, plain and streamed, in three chains, each under another form of address.
``full``: every kill point by itself, plain and streamed, under every form of address.
"""

from __future__ import annotations

import importlib.metadata
import os
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.clients.lives import BOUND_S
from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS, PLAIN, Client
from tests.clients.matrix.environments import interpreter, missing
from tests.clients.matrix.model import BEFORE, CALLS, DURING, Model
from tests.clients.matrix.results import Outcome
from tests.clients.matrix.work import FORMS, PATH, Work
from tests.support.proxy import Proxy
from tests.support.upstream import Gate

EXTENT = os.environ.get("AGENTSTATE_MATRIX", "quick")
assert EXTENT in ("quick", "chains", "full"), f"AGENTSTATE_MATRIX is {EXTENT!r}; use quick, chains or full"
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
            elif client.quick:  # undisturbed in one mode, killed in the other
                if turn % 2 or len(client.modes) == 1:
                    yield client, mode, FORMS[number % 3], CHAINS[number // 3 % 3]
                if not turn % 2 or len(client.modes) == 1:
                    yield client, mode, FORMS[number % 3], UNDISTURBED


def _parameters() -> Iterator[object]:
    for client, mode, form, kills in _cases():
        name = "-".join((client.name, mode, form, ", ".join(_said(kills)) or "undisturbed"))
        # Each worker has a proxy of its own: few groups, of clients that are as slow as those of the others.
        group = pytest.mark.xdist_group(f"matrix-{CLIENTS.index(client) % 4}")
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
    with Proxy(
        tmp_path_factory.mktemp("proxy"), f"{model.root}/v1", environment=others, file="policies = []\n"
    ) as running:
        yield running


@pytest.mark.parametrize(("client", "mode", "form", "kills"), list(_parameters()))
def test_an_agent_that_is_killed_pays_for_each_call_once_and_ends_as_if_nothing_had_been(
    client: Client, mode: str, form: str, kills: tuple[Kill, ...], model: Model, proxy: Proxy, tmp_path: Path
) -> None:
    if why := missing(client):
        pytest.skip(why)
    failure = ""
    work = Work(client, mode, form, proxy, tmp_path)
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
        results.write(Outcome(client.name, _version(client), mode, form, _said(kills), paid, not failure, failure))


@pytest.mark.xdist_group("matrix-0")
def test_without_the_proxy_the_same_kill_is_paid_for_again(model: Model, tmp_path: Path) -> None:
    straight = SimpleNamespace(url=model.root)
    with Work(CLIENTS[0], PLAIN, PATH, straight, tmp_path) as work:
        said = _killed_at(work, model, ((1, AFTER),))
    assert model.paid == CALLS + 1
    assert said[0] == f"TOOL: get_weather Paris-{work.session}-2"


def _killed_at(work: Work, model: Model, kills: tuple[Kill, ...]) -> list[str]:
    """Let an agent live and die at each of the points in turn; what its last life said."""
    gates = {kill: Gate() for kill in kills if kill[1] != AFTER}
    # Told one life ahead: a supervisor begins the next one by itself.
    holds = [call if when == AFTER else None for call, when in kills]
    cut: Kill | None = None
    model.begin(work.session, gates)
    work.hold(next(iter(holds), None))
    try:
        for kill, held_next in zip(kills, [*holds, None][1:], strict=True):
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
        _wait_reached(work, gates[kill])
    work.hold(held_next)
    work.kill()
    if when == BEFORE:
        gates[kill].open()
    return kill if when == DURING else None


def _wait_reached(work: Work, gate: Gate) -> None:
    """Block until an answer stands at the gate. Fails with what the agent said if it ends before."""
    deadline = time.monotonic() + BOUND_S
    while True:
        try:
            return gate.wait_reached(0.2)
        except AssertionError:
            assert work.alive and time.monotonic() < deadline, f"the model was not asked:\n{work.report()}"


def _judge(work: Work, model: Model, proxy: Proxy, said: list[str], lives: int) -> None:
    name = work.session
    weather, email = f"Paris-{name}-1", f"bob-{name}-2"
    answer = f"Answer {name}-3: [get_weather: {weather} done] and [send_email: {email} done]."
    assert said == [f"TOOL: get_weather {weather}", f"TOOL: send_email {email}", f"FINAL: {answer}"]
    assert (model.paid, model.odd) == (CALLS, [])
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
