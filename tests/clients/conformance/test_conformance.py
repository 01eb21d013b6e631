"""A conformance tool that others wrote reports the same of a provider and of that provider through the proxy.

The tool checks answers and every event of a stream against the published schemas. The providers are two mocks, also
written elsewhere; neither is free of faults, and what the tool finds wrong with them is to be found through the proxy
too. Then the mocks are told to break their answers.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conformance import environment, reports
from tests.clients.conformance.mocks import SUITES, AIMock, Fault, LLMock, Mock
from tests.clients.conformance.reports import Report
from tests.support.proxy import Proxy, clean_environment

TESTER = Path(__file__).with_name("tester.py")
BOUND_S = 240.0  # for all suites; a case has a bound of its own
NO_SESSION, SESSION = "without a session", "with a session"
NOWHERE: tuple[str, ...] = ()
INSIDE = (SESSION,)
SLOW = "slow answers"
EVERYWHERE = (NO_SESSION, SESSION)


@dataclass(frozen=True)
class Disturbance:
    """Faults that the mock works into its answers. ``refused``: the addresses at which the proxy has to refuse an
    answer that they hit, ``why``, and ``suites`` that are hit so; all else is reported as it is of the mock."""

    name: str
    mock: str
    faults: tuple[Fault, ...]
    refused: tuple[str, ...] = NOWHERE
    why: str = ""
    suites: tuple[str, ...] = SUITES


_UNFINISHED = "an answer that is not finished is no answer: a session's agent is told so in its own wire format"
_NOTHING_OUT = "while nothing has gone out, a socket that closed can be told with a status and a reason"
_BROKEN = "an answer that cannot be read is not journaled, and so not given to a session's agent"


def _status(status: int, **more: object) -> Disturbance:
    return Disturbance(f"status {status}", "llmock", ({"type": "fail", "status": status, **more},))


def _stream(kind: str, after: int, **more: object) -> tuple[Fault, ...]:
    return ({"type": "stream_fault", "kind": kind, "after_chunks": after, **more},)


DISTURBANCES = (
    _status(400, message="This model's maximum context length is 9 tokens.", code="context_length_exceeded"),
    _status(401),
    _status(404),
    _status(429, retry_after=2),
    _status(500),
    _status(503, retry_after=1),
    _status(529),
    Disturbance("stream cut off", "llmock", _stream("disconnect", 2), INSIDE, _UNFINISHED),
    Disturbance("stream cut off before its first event", "llmock", _stream("disconnect", 0), EVERYWHERE, _NOTHING_OUT),
    Disturbance("stream that ends early", "llmock", _stream("truncate", 2), INSIDE, _UNFINISHED),
    Disturbance("stream that ends early, later", "llmock", _stream("truncate", 4), INSIDE, _UNFINISHED),
    Disturbance("event that is no JSON", "llmock", _stream("malformed", 2), INSIDE, _BROKEN),
    Disturbance(
        SLOW,
        "llmock",
        (
            {"type": "delay", "seconds": 0.02},
            {"type": "slow_first_token", "seconds": 0.1},
            *_stream("stall", 2, stall_seconds=0.1),
        ),
    ),
    Disturbance("tool that was not offered", "llmock", ({"type": "tool_fault", "kind": "unknown_tool"},)),
    Disturbance(
        "tool arguments that are no JSON",
        "llmock",
        ({"type": "tool_fault", "kind": "malformed_arguments"},),
        INSIDE,
        "a tool call whose arguments do not parse is not finished",
        ("openai-chat", "open-responses"),  # where arguments are text; elsewhere the mock makes an empty object of them
    ),
    Disturbance(
        "answers that are too long", "llmock", ({"type": "reply", "text": "Cut sh", "finish_reason": "length"},)
    ),
    Disturbance(
        "answers that are filtered", "llmock", ({"type": "reply", "text": "", "finish_reason": "content_filter"},)
    ),
    Disturbance("dropped requests", "aimock", ({"dropRate": 1},)),
    Disturbance("rate limit", "aimock", ({"rateLimitRate": 1},)),
    Disturbance("answers that are no JSON", "aimock", ({"malformedRate": 1},), INSIDE, _BROKEN),
    Disturbance("closed connections", "aimock", ({"disconnectRate": 1},), EVERYWHERE, _NOTHING_OUT),
)


# With the usage of streams asked for, providers put `"usage": null` into each of their chunks.
FILE = "policies = []\n[providers.openai]\nusage_in_streams = false\n"


class Bench:
    """A mock and a proxy before it, and the tool to hold against either."""

    def __init__(self, mock: Mock, proxy: Proxy) -> None:
        self.mock = mock
        self.proxy = proxy
        self.undisturbed = self.report(mock.direct)
        self._direct: dict[str, tuple[Report, list[dict[str, Any]]]] = {}

    def address(self, prefix: str) -> dict[str, str]:
        """The address of each suite at the proxy, below ``prefix``."""
        return {s: self.proxy.url + prefix + ("" if s.startswith("google") else "/v1") for s in SUITES}

    def raw(self, addresses: dict[str, str]) -> Report:
        """The tool's report, as it came; the tool is a process of its own."""
        done = subprocess.run(
            [str(environment.interpreter()), str(TESTER), json.dumps(addresses)],
            cwd=self.proxy.data,
            env=clean_environment(self.proxy.data),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return dict(json.loads(done.stdout))

    def report(self, addresses: dict[str, str]) -> Report:
        """The tool's report less what is volatile."""
        return reports.steady(self.raw(addresses))

    def disturbed(self, prefix: str, faults: Sequence[Fault] = ()) -> tuple[Report, list[dict[str, Any]]]:
        """The report through the proxy while the mock works these faults in, and what the mock was asked meanwhile."""
        self.mock.begin(faults)
        report = self.report(self.address(prefix))
        return report, self.mock.asked()

    def directly(self, name: str, faults: Sequence[Fault] = ()) -> tuple[Report, list[dict[str, Any]]]:
        """The same of the mock itself; once for each ``name``."""
        if name not in self._direct:
            self.mock.begin(faults)
            report = self.report(self.mock.direct)
            self._direct[name] = report, self.mock.asked()
        return self._direct[name]


def _bench(kind: type[Mock], why: str, folder: Path) -> Iterator[Bench]:
    if why:
        pytest.skip(why)
    with (
        kind(folder / "mock") as mock,
        Proxy(folder / "proxy", environment=mock.providers, file=FILE) as proxy,
    ):
        yield Bench(mock, proxy)
        assert "Traceback" not in proxy.log
        proxy.doctor()


@pytest.fixture(scope="module")
def llmock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench of the mock that breaks any answer on demand."""
    yield from _bench(LLMock, environment.missing(), tmp_path_factory.mktemp("llmock"))


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The bench of the mock that knows more wire formats."""
    why = environment.missing() or environment.missing_node()
    yield from _bench(AIMock, why, tmp_path_factory.mktemp("aimock"))


def _of(mock: str, *values: object, name: str = "") -> Any:
    """A case of a mock; all of its cases run in one worker, before one proxy."""
    return pytest.param(mock, *values, id=f"{mock}-{name}" if name else mock, marks=pytest.mark.xdist_group(mock))


MOCKS = [_of("llmock"), _of("aimock")]
# What a second life asks again: a refusal by an endpoint without steps, and one that was the last thing to happen.
ASKED_AGAIN = {
    "llmock": ["/v1/embeddings", "/gemini/v1beta/models/gemini-2.5-flash:generateContent"],
    "aimock": ["/v1/embeddings"],
}
# Providers that speak the chat format each in its own way, and where the mock has them.
KIN = {
    "ai21": "/ai21/v1",
    "groq": "/groq/openai/v1",
    "mistral": "/mistral/v1",
    "perplexity": "/perplexity/v1",
    "together": "/together/v1",
    "xai": "/xai/v1",
}


def _assert_same(expected: Report, found: Report, meant: Sequence[tuple[str, str]] = ()) -> None:
    """Fails with the differences alone: they are what there is to read."""
    if shown := reports.differences(expected, found, meant):
        pytest.fail(shown, pytrace=False)


@pytest.mark.parametrize("mock", MOCKS)
def test_the_tool_finds_the_same_twice_and_skips_nothing(mock: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(mock)
    _assert_same(bench.undisturbed, bench.report(bench.mock.direct))
    found = [reports.one(bench.undisturbed, *case)["status"] for case in reports.cases(bench.undisturbed)]
    assert len(found) == 53, "another tool than the one that is pinned"
    assert set(found) == {"passed", "failed"}


@pytest.mark.parametrize("mock", MOCKS)
def test_reports_are_the_same_without_a_session(mock: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(mock)
    _, asked_directly = bench.directly("undisturbed")
    found, asked = bench.disturbed("")
    _assert_same(bench.undisturbed, found)
    assert asked == asked_directly


@pytest.mark.parametrize("prefix", ["/s/plain", "/s/named/r/first"])
@pytest.mark.parametrize("mock", MOCKS)
def test_reports_are_the_same_with_a_session(mock: str, prefix: str, request: pytest.FixtureRequest) -> None:
    bench: Bench = request.getfixturevalue(mock)
    _, asked_directly = bench.directly("undisturbed")
    found, asked = bench.disturbed(prefix)
    _assert_same(bench.undisturbed, found)
    repeated = next(at for at, one in enumerate(asked_directly) if one in asked_directly[:at])
    assert asked_directly[repeated]["path"] == "/v1/embeddings"  # a text that was embedded before is not paid again
    assert asked == asked_directly[:repeated] + asked_directly[repeated + 1 :]


@pytest.mark.parametrize("mock", MOCKS)
@pytest.mark.parametrize(
    "lives",
    [("/s/told/r/one", "/s/told/r/two"), ("/s/untold", "/s/untold")],
    ids=["told by its run", "told by its process"],
)
def test_a_second_life_gets_the_report_of_the_first_to_the_last_id(
    mock: str, lives: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    bench: Bench = request.getfixturevalue(mock)
    before = bench.raw(bench.address(lives[0]))
    bench.mock.begin(())
    after = bench.raw(bench.address(lives[1]))
    asked = bench.mock.asked()
    for report in (before, after):
        for case in [case for cases in report.values() for case in cases]:
            del case["duration_ms"]
    passed_through = [case for case in reports.cases(before) if not reports.is_step(*case)]
    _assert_same(before, after, meant=passed_through)
    _assert_same(reports.steady(before), reports.steady(after))
    again = [one["path"] for one in asked if not one["path"].partition("?")[0].endswith(("/interactions", "/compact"))]
    assert again == ASKED_AGAIN[mock]
    assert {one["status"] for one in asked if one["path"] in again} <= {400, 422}


@pytest.mark.xdist_group("llmock")
@pytest.mark.parametrize("kin", KIN)
def test_reports_on_those_who_speak_the_chat_format_their_own_way_are_the_same(
    kin: str, llmock: Bench, tmp_path: Path
) -> None:
    suite = "openai-chat"
    llmock.mock.begin(())
    provider = llmock.mock.root + KIN[kin]
    direct = llmock.report({suite: provider})
    asked = llmock.mock.asked()
    with Proxy(tmp_path / "data", environment={"AGENTSTATE_OPENAI_URL": provider}, file=FILE) as proxy:
        for address in ("/v1", "/s/one/v1"):
            llmock.mock.begin(())
            _assert_same(direct, llmock.report({suite: proxy.url + address}))
            assert llmock.mock.asked() == asked


@pytest.mark.parametrize("address", EVERYWHERE)
@pytest.mark.parametrize(("mock", "disturbance"), [_of(one.mock, one, name=one.name) for one in DISTURBANCES])
def test_a_disturbed_provider_gets_the_same_report_or_is_refused(
    mock: str, disturbance: Disturbance, address: str, request: pytest.FixtureRequest
) -> None:
    bench: Bench = request.getfixturevalue(mock)
    whole = bench.undisturbed
    direct, _ = bench.directly(disturbance.name, disturbance.faults)
    session = f"/s/{disturbance.name.replace(' ', '-').replace(',', '')}"
    found, _ = bench.disturbed(session if address == SESSION else "", disturbance.faults)
    hit = [case for case in reports.cases(direct) if reports.one(direct, *case) != reports.one(whole, *case)]
    assert hit or disturbance.name == SLOW, "the mock did not do it"
    refused: list[tuple[str, str]] = []
    if address in disturbance.refused:
        also = NO_SESSION in disturbance.refused  # what is no step is treated as if there were no session
        refused = [case for case in hit if case[0] in disturbance.suites and (also or reports.is_step(*case))]
        assert refused
    _assert_same(direct, found, refused)
    wrong = {case: reports.not_refused(reports.one(whole, *case), reports.one(found, *case)) for case in refused}
    assert {case: fault for case, fault in wrong.items() if fault} == {}, disturbance.why


# --- the comparison itself ---


@pytest.mark.xdist_group("llmock")
def test_another_word_status_or_id_makes_another_report(llmock: Bench) -> None:
    for suite, case in reports.cases(llmock.undisturbed):
        expected = {suite: [reports.one(llmock.undisturbed, suite, case)]}
        for name, value in (("status", "odd"), ("errors", ["odd"]), ("answer", {"odd": 1}), ("events", [{"odd": 1}])):
            shown = reports.differences(expected, {suite: [expected[suite][0] | {name: value}]})
            assert shown.startswith(f"{suite}: {case}\n--- directly\n+++ through the proxy\n")
            assert "odd" in shown or shown.endswith(" more lines")


def test_ids_that_were_the_same_one_have_to_stay_the_same_one() -> None:
    def report(*ids: str) -> Report:
        return reports.steady({"chat": [{"id": "a", "answer": [f"call_{one * 16}" for one in ids], "events": None}]})

    _assert_same(report("a", "b", "a"), report("x", "y", "x"))
    assert reports.differences(report("a", "b", "a"), report("x", "y", "y")) != ""


def test_an_answer_that_was_not_refused_is_told_from_one_that_was() -> None:
    said = [{"type": "message", "data": {"n": n}} for n in range(3)]
    error = {"type": "error", "data": {"error": {"code": "upstream_cut"}}}
    whole = {"events": said}

    def wrong(events: list[Any] | None, answer: Any = None, status: str = "failed", told: str = "HTTP 503 (…)") -> str:
        return reports.not_refused(whole, {"events": events, "answer": answer, "status": status, "errors": [told]})

    assert wrong([*said[:2], error]) == wrong([error]) == wrong(None, error["data"]) == wrong([], error["data"]) == ""
    assert wrong([*said[:2], error, {"type": "response.failed", "data": {}}]) == ""
    assert "took it for an answer" in wrong([*said[:2], error], status="passed")
    assert "nothing says why" in wrong(said[:2])
    assert "nothing says why" in wrong(None, {"error": {"code": "other"}})
    assert "not a 503" in wrong(None, error["data"], told="HTTP 500 (…)")
    assert "went on" in wrong([*said[:2], error, said[2]])
    assert "not what the provider said" in wrong([said[1], error])
