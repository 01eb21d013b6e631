"""docs/reference/http-api.md is held to the code: routes, journaled paths, and answers of a real proxy."""

from __future__ import annotations

import json
import re
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from agentstate.core.model import ApprovalKind, ApprovalState, Release, RunState, SessionStatus, State
from agentstate.dialects import registry
from agentstate.engine.core import Parts
from agentstate.server.address import read_path
from agentstate.server.api import Api
from agentstate.settings import Settings
from agentstate.store import changes
from tests.house.pages import REFERENCE, fences, headings, names, section, table
from tests.support.approvals import Held, prepared
from tests.support.doubt import question
from tests.support.people import Asking, decide, pending
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream, plain

pytestmark = pytest.mark.xdist_group("house-http-api")

PAGE = REFERENCE / "http-api.md"
ROUTE = re.compile(r"(GET|POST|DELETE) (/\S+)")
SESSION = "invoice-4711"
LONG = ("GET /api/settings.settings", "GET /api/openapi.json.")


def documented() -> list[str]:
    """The routes that have a section, in the page's order."""
    return [title for title in headings(PAGE) if ROUTE.fullmatch(title)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Each route's own example, asked in the page's order of a proxy that holds the session of the examples."""
    folder = tmp_path_factory.mktemp("api") / "data"
    prepared(folder, [Held(key="apr_5d1c8e0b7a42f39c60d8e1b2")], session="mail-12")
    with Upstream(lambda seen: plain(b"", 404)) as refusing:
        (folder / "agentstate.toml").write_text(f'[[alerts]]\nkind = "webhook"\nname = "ops"\nurl = "{refusing.url}"\n')
        yield from _answers(folder)


def _answers(folder: Path) -> Iterator[dict[str, Any]]:
    with Proxy(folder, arguments=["--simulate"]) as proxy:
        for run, question in (("run-1", "Which tasks?"), ("run-1", "And then?"), ("run-2", "Which tasks?")):
            assert proxy.client.ask(SESSION, question, run=run, model="gpt-4o-mini").status == 200
        assert proxy.client.ask("old-17", "Which tasks?", run="run-1", model="gpt-4o-mini").status == 200
        proxy.control.post(f"/api/sessions/{SESSION}/status", {"status": "FAILED"})
        deadline = time.monotonic() + 20
        while not proxy.control.get("/api/alerts?state=dead"):
            assert time.monotonic() < deadline, "the message to a target that refuses it did not die"
            time.sleep(0.01)
        _leave_in_doubt(proxy)
        found = {title: _asked(proxy, title) for title in documented()}
        yield found | {"held": _held(proxy)}


def _held(proxy: Proxy) -> Any:
    """A session whose one step has an approval and a tool call."""
    tools = [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}]
    waiting = Asking(lambda: proxy.client.ask("mails", "Write.", run="run-1", model="gpt-4o-mini", tools=tools))
    decide(proxy, pending(proxy)[0], "APPROVED")
    waiting.answer()
    return proxy.control.session("mails")


def pages() -> set[str]:
    """The documented routes that are not JSON: what people, chats and Prometheus use, and files."""
    files = {name for name in names(PAGE, "Exports") if name.startswith("GET ")}
    told = {names(PAGE, "Measurements")[0], names(PAGE, "Events")[0]}
    return {*names(PAGE, "The page and the buttons"), *told, *files}


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
    if method == "DELETE":
        return _deleted(proxy, path)
    return proxy.control.get(path) if method == "GET" else proxy.control.post(path, json.loads(body or "{}"))


def _deleted(proxy: Proxy, path: str) -> Any:
    """A session is in use until the proxy has seen that its agent's socket is closed."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return proxy.control.delete(path)
        except urllib.error.HTTPError as refusal:
            assert refusal.code == 409 and time.monotonic() < deadline, refusal.read()
            time.sleep(0.01)


def test_the_documented_routes_are_all_routes() -> None:
    app = Api(Parts(Settings()), "token").app()
    routes = {
        f"{method} {re.sub(':(?:path|int)', '', route.path)}"
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or ()) - {"HEAD"}
    }
    # The one left out answers 404 for all other addresses.
    assert routes - {"GET /{rest}"} == {*documented(), *pages()}


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
        if where.endswith(".usage") or where.startswith(LONG):
            return []  # the provider's own object, or what is too long to be shown whole
        if where.endswith((".parts", ".left_out", ".losses", ".redacted")):
            return []  # counts under names that depend on what is counted
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
        ("Tool call", ("steps", 0, "calls", 0)),
        ("Asked about a step", ("steps", 0, "approvals", 0)),
        ("Given to", ("steps", 0, "served", 0)),
        ("Run", ("runs", 0)),
    ],
)
def test_the_documented_fields_are_all_fields(answers: dict[str, Any], title: str, path: tuple[Any, ...]) -> None:
    found = answers["held"]
    for key in path:
        found = found[key]
    assert list(found) == [row[0].strip("`") for row in table(PAGE, title)]


def test_the_documented_fields_of_a_message_are_all_fields(answers: dict[str, Any]) -> None:
    *_, message = answers["GET /api/alerts"]
    assert list(message) == [row[0].strip("`") for row in table(PAGE, "Message")]


@pytest.mark.parametrize(
    ("title", "route"),
    [("Approval", "GET /api/approvals/{id}"), ("Approver", "GET /api/approvers"), ("Entry", "GET /api/audit")],
)
def test_the_documented_fields_of_authority_are_all_fields(answers: dict[str, Any], title: str, route: str) -> None:
    found = answers[route]
    assert list(found[0] if isinstance(found, list) else found) == [row[0].strip("`") for row in table(PAGE, title)]


@pytest.mark.parametrize(
    ("title", "field", "states"),
    [
        ("Session", "status", SessionStatus),
        ("Step", "state", State),
        ("Run", "state", RunState),
        ("Asked about a step", "kind", ApprovalKind),
        ("Asked about a step", "status", ApprovalState),
    ],
)
def test_the_documented_states_are_all_states(title: str, field: str, states: Any) -> None:
    meaning = next(row[1] for row in table(PAGE, title) if row[0] == f"`{field}`")
    known = {state.value.upper() if states is ApprovalState else state.value for state in states}
    assert set(re.findall(r"`(\w+)`", meaning)) - {"release"} == known


def test_the_documented_releases_are_all_releases() -> None:
    assert names(PAGE, "Release") == [release.value for release in Release]


def test_the_documented_states_of_approvals_are_all_states() -> None:
    meaning = next(row[1] for row in table(PAGE, "Approval") if row[0] == "`status`")
    assert set(re.findall(r"`(\w+)`", meaning)) == {state.value.upper() for state in ApprovalState}


def test_the_documented_kinds_of_events_are_all_kinds() -> None:
    assert sorted(names(PAGE, "Kinds of events")) == sorted(changes.ALL)


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
