"""Two runs of real clients differ in nothing but what the client makes up: the second is replayed from the first.

Where a client really asks something else, the report of the divergence says where, and how to declare it harmless.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support import traffic
from tests.support.client import Answer, Client
from tests.support.proxy import Proxy
from tests.support.traffic import Exchange
from tests.support.upstream import Reply, Upstream, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
_numbers = itertools.count()

# Three spellings of the day of the recordings and of the next one: another month, and another day of the week.
NEXT_DAY = {b"2026-11-30": b"2026-12-01", b"Mon Nov 30 2026": b"Tue Dec 01 2026", b"November 2026": b"December 2026"}
# Clients that tell the model which day it is.
DATED = (
    "agno-datetime-in-context", "claude-code", "claude-code-2.1.197", "codex", "codex-openai-provider", "opencode",
    "opencode-anthropic", "opencode-compat",
)  # fmt: skip
MOVED = "run3-other-home-and-cwd"
PROMPT = b"Check the weather in Paris"
DECLARED = "replay.masked_user_text"

# What the second run really asks anew, and why that is right.
ASKS_ANEW: dict[str, str] = {
    "crewai-memory": "its prompts hold what the first run has left on the disk",
}


def reply_of(exchange: Exchange) -> Reply:
    fields = [(name, value) for name, value in exchange.response_headers if name.lower() != "content-type"]
    if exchange.streamed:
        kind = exchange.content_type or "text/event-stream"
        return stream(exchange.response, status=exchange.status, headers=fields, content_type=kind)
    return plain(exchange.response, exchange.status, headers=fields, content_type=exchange.content_type)


def ask(client: Client, session: str, run: str, exchange: Exchange) -> Answer:
    prefix = f"/s/{session}/r/{run}"
    dropped = ("content-length", "host", "connection", "accept-encoding")
    fields = {name: value for name, value in exchange.request_headers if name.lower() not in dropped}
    return client.send(exchange.method, prefix + exchange.path, fields, exchange.request)


def play(upstream: Upstream, client: Client, session: str, run: str, exchanges: Sequence[Exchange]) -> list[Answer]:
    answers = []
    for exchange in exchanges:
        upstream.script = lambda seen, exchange=exchange: reply_of(exchange)
        answers.append(ask(client, session, run, exchange))
    return answers


def paid_by_second(
    upstream: Upstream, proxy: Proxy, first: Sequence[Exchange], second: Sequence[Exchange], session: str
) -> list[str]:
    """The places of the requests of the second run for which a provider was asked."""
    upstream.reset()
    for exchange, answer in zip(first, play(upstream, proxy.client, session, "one", first), strict=True):
        # A probe of the bare address and the offer of a WebSocket are answered here.
        assert exchange.method != "POST" or is_relayed(exchange, answer), exchange.id
    answers = play(upstream, proxy.client, session, "two", second)
    return [
        f"{place} {exchange.method} {exchange.path}: {answer.status} {answer.outcome}"
        for place, (exchange, answer) in enumerate(zip(second, answers, strict=True))
        if answer.outcome not in ("replay", "memo") and is_model_call(exchange)
    ]


def is_relayed(exchange: Exchange, answer: Answer) -> bool:
    """Whether the recorded bytes came through, but for ids of tool calls where the provider had given none."""
    if answer.status != exchange.status or "no-call-ids" not in exchange.id:
        return (answer.status, answer.body) == (exchange.status, exchange.response)
    return without_call_ids(answer.body) == without_call_ids(exchange.response)


def without_call_ids(body: bytes) -> Any:
    whole = json.loads(body)
    for choice in whole.get("choices", ()):
        for call in choice["message"].get("tool_calls") or ():
            call.pop("id", None)
    return whole


def session_id() -> str:
    return f"double-{next(_numbers)}"


def edited(exchanges: Sequence[Exchange], changes: dict[bytes, bytes]) -> list[Exchange]:
    """The exchanges with other words in their requests."""
    found = []
    for exchange in exchanges:
        request = exchange.request
        for old, new in changes.items():
            request = request.replace(old, new)
        found.append(replace(exchange, request=request))
    assert [exchange.request for exchange in found] != [exchange.request for exchange in exchanges]
    return found


def report_of(proxy: Proxy, session: str) -> dict[str, Any]:
    """The report of the second run's divergence, as the control plane tells it."""
    assert proxy.control.run(session, "two")["diverged"] is True
    (run,) = [run for run in proxy.control.session(session)["runs"] if run["run"] == "two"]
    report: dict[str, Any] = run["divergence"]
    return report


def is_model_call(exchange: Exchange) -> bool:
    """Lists of models, probes and upgrades are no steps; an error of the first run is history only if it went on."""
    return exchange.method == "POST" and exchange.status < 400


PAIRS = traffic.double_runs()


@pytest.fixture(scope="module")
def lenient(shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy whose operator has declared that dates and ids in user text are harmless."""
    folder = tmp_path_factory.mktemp("lenient") / "data"
    with Proxy(folder, shared_upstream.url, settings={DECLARED: "true"}, file="policies = []\n") as running:
        yield running


@pytest.mark.parametrize("name", [name for name in PAIRS if name not in ASKS_ANEW])
def test_second_run_of_a_client_is_replayed_from_the_first(upstream: Upstream, proxy: Proxy, name: str) -> None:
    traffic.require()
    one, two = (traffic.client_all(file) for file in PAIRS[name])
    assert paid_by_second(upstream, proxy, one, two, session_id()) == []


@pytest.mark.parametrize("name", DATED)
def test_second_run_on_the_next_day_is_replayed_from_the_first(upstream: Upstream, proxy: Proxy, name: str) -> None:
    traffic.require()
    one, two = (traffic.client_all(file) for file in PAIRS[name])
    assert paid_by_second(upstream, proxy, one, edited(two, NEXT_DAY), session_id()) == []


@pytest.mark.parametrize("name", [f"{name} {MOVED}" for name in DATED if f"{name} {MOVED}" in PAIRS])
def test_second_run_on_the_next_day_in_another_place_is_replayed_from_the_first(
    upstream: Upstream, proxy: Proxy, name: str
) -> None:
    traffic.require()
    one, two = (traffic.client_all(file) for file in PAIRS[name])
    assert paid_by_second(upstream, proxy, one, edited(two, NEXT_DAY), session_id()) == []


@pytest.mark.parametrize("name", ASKS_ANEW)
def test_what_a_client_really_asks_anew_is_paid_and_the_report_says_where(
    upstream: Upstream, proxy: Proxy, name: str
) -> None:
    traffic.require()
    one, two = (traffic.client_all(file) for file in PAIRS[name])
    session = session_id()
    assert paid_by_second(upstream, proxy, one, two, session), f"{name} is replayed now: {ASKS_ANEW[name]}"
    report = report_of(proxy, session)
    assert report["nearest"]["diff"][0]["where"].startswith("the user's text"), report
    assert "declare" not in report, report


def two_days(name: str) -> tuple[list[Exchange], list[Exchange]]:
    """The two runs of a client on two days, where its user, too, says which day it is."""
    days = {PROMPT: b"It is 2026-11-30. " + PROMPT}
    one, two = (edited(traffic.client_all(file), days) for file in PAIRS[name])
    return one, edited(two, NEXT_DAY)


@pytest.mark.parametrize("name", ["claude-code", "codex", "opencode-compat"])
def test_day_in_the_words_of_a_user_is_reported_with_the_setting_that_declares_it_harmless(
    upstream: Upstream, proxy: Proxy, lenient: Proxy, name: str
) -> None:
    traffic.require()
    one, two = two_days(name)
    session = session_id()
    assert paid_by_second(upstream, proxy, one, two, session)
    report = report_of(proxy, session)
    first, *others = report["nearest"]["diff"]
    assert first["where"].startswith("the user's text (message ")
    assert "2026-11-30" in first["recorded"] and "2026-12-01" in first["asked"]
    assert (first["volatile"], [row["volatile"] for row in others]) == (False, [True] * len(others))
    assert report["declare"][0] == f"{DECLARED} = true"
    assert paid_by_second(upstream, lenient, one, two, session) == []


def test_refusal_of_a_divergence_holds_the_report_and_names_the_setting(upstream: Upstream, proxy: Proxy) -> None:
    traffic.require()
    one, two = two_days("claude-code")
    session = session_id()
    upstream.reset()
    play(upstream, proxy.client, session, "one", one)
    (refused,) = play(upstream, proxy.client, session, "two", two[:1])
    assert refused.status == 400
    error = refused.json()["error"]
    assert error["code"] == "run_diverged"
    assert error["agentstate"] == report_of(proxy, session)
    assert f"say so with {DECLARED} = true" in error["message"]
    assert "the user's text (message 1)" in error["message"]


CHANGES = {
    "the field max_tokens": ("claude-code", b'"max_tokens": 128000', b'"max_tokens": 4096'),
    "the description of the tool Bash": ("claude-code", b"Executes a bash command", b"Runs a bash command"),
    "the system text": ("claude-code", b"using your own judgment", b"using their judgment"),
    "what the model said before (message 3)": ("claude-code", b"echo hello", b"echo hallo"),
    "the system text (message 1)": ("codex", b"a terminal-based coding assistant", b"a coding assistant"),
    "what a tool returned (message 6)": ("codex", b"Output:\\nhello", b"Output:\\nhallo"),
    "a tool call of the model (message 5)": ("codex", b"echo hello", b"echo hallo"),
}


@pytest.mark.parametrize("where", CHANGES)
def test_report_says_in_words_where_a_run_differs_and_leaves_out_what_never_counts(
    upstream: Upstream, proxy: Proxy, where: str
) -> None:
    traffic.require()
    name, old, new = CHANGES[where]
    one, two = (traffic.client_all(file) for file in PAIRS[name])
    session = session_id()
    assert paid_by_second(upstream, proxy, one, edited(two, {old: new}), session)
    report = report_of(proxy, session)
    first, *others = report["nearest"]["diff"]
    assert (first["where"], first["volatile"]) == (where, False)
    # Session ids, ids of items and other metadata differ too.
    assert all(row["volatile"] for row in others), others
    tools = ['tools.read = ["exec_command"]', 'replay.pointer = "on"']
    assert report.get("declare", []) == (tools if where.startswith("what a tool returned") else [])


def test_agent_that_has_moved_is_not_given_an_answer_that_speaks_of_where_it_was(
    upstream: Upstream, proxy: Proxy
) -> None:
    traffic.require()
    one, two = (traffic.client_all(file) for file in PAIRS[f"opencode-anthropic {MOVED}"])
    place = re.search(rb"Working directory: ([/\w]+)", one[-1].request)
    assert place is not None
    told = [replace(found, response=found.response.replace(b"Done:", b"Done in " + place[1] + b":")) for found in one]
    assert [found.response for found in told] != [found.response for found in one]
    session = session_id()
    paid = paid_by_second(upstream, proxy, told, two, session)
    assert [line.split()[0] for line in paid] == [str(len(two) - 1)]
    assert report_of(proxy, session)["refused"] == "the recorded answer speaks of what has changed"
