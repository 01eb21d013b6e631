"""docs/reference/http-api.md is held to the code: routes, journaled paths, and answers of a real proxy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route

from agentstate.core.model import RunState, SessionStatus, State
from agentstate.dialects import registry
from agentstate.engine.core import Parts
from agentstate.server.address import read_path
from agentstate.server.api import Api
from agentstate.settings import Settings
from tests.house.pages import REFERENCE, fences, headings, names, section, table
from tests.support.doubt import question
from tests.support.proxy import Proxy

pytestmark = pytest.mark.xdist_group("house-http-api")

PAGE = REFERENCE / "http-api.md"
ROUTE = re.compile(r"(GET|POST) (/\S+)")
SESSION = "invoice-4711"


def documented() -> list[str]:
    """The routes that have a section, in the page's order."""
    return [title for title in headings(PAGE) if ROUTE.fullmatch(title)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Each route's own example, asked in the page's order of a proxy that holds the session of the examples."""
    with Proxy(tmp_path_factory.mktemp("api") / "data", arguments=["--simulate"]) as proxy:
        for run, question in (("run-1", "Which tasks?"), ("run-1", "And then?"), ("run-2", "Which tasks?")):
            assert proxy.client.ask(SESSION, question, run=run, model="gpt-4o-mini").status == 200
        _leave_in_doubt(proxy)
        yield {title: _asked(proxy, title) for title in documented()}


def _leave_in_doubt(proxy: Proxy) -> None:
    """A function is claimed by a process that is never heard of again, and asked for by the next one."""
    for run in ("run-1", "run-2"):
        asked = {"arguments": {"charge": "ch_1"}, "class": "once", "process": f"of {run}", "sending": "1"}
        with proxy.client.connect() as connection:
            target = f"/s/{SESSION}/r/{run}/tools/stripe_refund/claim"
            connection.request("POST", target, {"content-type": "application/json"}, json.dumps(asked).encode())
            if run == "run-1":
                assert json.loads(connection.answer().body)["state"] == "claimed"
            else:
                question(proxy, SESSION)


def _asked(proxy: Proxy, title: str) -> Any:
    example = next(fence.text for fence in fences(section(PAGE, title)) if fence.kind == "http")
    first, _, body = example.partition("\n")
    method, path = first.split()
    return proxy.control.get(path) if method == "GET" else proxy.control.post(path, json.loads(body))


def test_the_documented_routes_are_all_routes() -> None:
    app = Api(Parts(Settings()), "token").app()
    routes = {
        f"{method} {re.sub(r':(?:path|int)', '', route.path)}"
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or ()) - {"HEAD"}
    }
    assert routes - {"GET /{rest}"} == set(documented())  # the one left out answers 404 for all other addresses


@pytest.mark.parametrize("title", documented())
def test_an_example_has_the_shape_of_the_real_answer(answers: dict[str, Any], title: str) -> None:
    example = next(fence.text for fence in fences(section(PAGE, title)) if fence.kind == "json")
    assert _shape(json.loads(example), answers[title], title) == []


@pytest.mark.parametrize("title", documented())
def test_an_example_asks_the_route_under_whose_title_it_stands(title: str) -> None:
    example = next(fence.text for fence in fences(section(PAGE, title)) if fence.kind == "http")
    pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(title))
    assert re.fullmatch(pattern, example.split("\n", 1)[0].partition("?")[0])


def _shape(example: Any, real: Any, where: str) -> list[str]:
    """Where the two differ in names or types; what is null on one side may be anything on the other."""
    if isinstance(example, dict) and isinstance(real, dict):
        if where.endswith(".usage"):
            return []  # the provider's own object
        if set(example) != set(real):
            return [f"{where}: {sorted(set(example) ^ set(real))}"]
        return [fault for key in example for fault in _shape(example[key], real[key], f"{where}.{key}")]
    if isinstance(example, list) and isinstance(real, list):
        return _shape(example[0], real[0], f"{where}[0]") if example and real else []
    if example is None or real is None or type(example) is type(real):
        return []
    return [f"{where}: {example!r} in the example, {real!r} in truth"]


@pytest.mark.parametrize(
    ("title", "path"),
    [
        ("Session", ("session",)),
        ("Step", ("steps", 0)),
        ("Given to", ("steps", 0, "served", 0)),
        ("Run", ("runs", 0)),
    ],
)
def test_the_documented_fields_are_all_fields(answers: dict[str, Any], title: str, path: tuple[Any, ...]) -> None:
    found = answers["GET /api/sessions/{id}"]
    for key in path:
        found = found[key]
    assert list(found) == [row[0].strip("`") for row in table(PAGE, title)]


@pytest.mark.parametrize(
    ("title", "field", "states"),
    [("Session", "status", SessionStatus), ("Step", "state", State), ("Run", "state", RunState)],
)
def test_the_documented_states_are_all_states(title: str, field: str, states: Any) -> None:
    meaning = next(row[1] for row in table(PAGE, title) if row[0] == f"`{field}`")
    assert set(re.findall(r"`(\w+)`", meaning)) == {state.value for state in states}


def test_every_status_that_can_be_set_is_explained() -> None:
    assert set(names(PAGE, "POST /api/sessions/{id}/status")) >= {status.value for status in SessionStatus}


def test_the_documented_journaled_calls_are_all_that_are_journaled() -> None:
    known = {f"POST {path}": dialect.name for path, dialect in registry._BY_PATH.items()}
    known |= {f"POST models/MODEL:{name}": dialect.name for name, dialect in registry._OF_GEMINI.items()}
    said = {row[0].strip("`"): re.findall(r"`(\w+)`", row[2])[0] for row in table(PAGE, "What is journaled")}
    assert said == known
    assert all(registry.for_path("GET", path) is None for path in registry._BY_PATH)


def test_the_documented_address_is_read_as_documented() -> None:
    [example] = [fence.text.strip() for fence in fences(section(PAGE, "Addresses"))]
    found = read_path(example)
    assert (found.key, found.session, found.run, found.path) == ("KEY", "SESSION", "RUN", "/v1/chat/completions")
    assert read_path("/s/ledger%2F7").session == "ledger/7"
