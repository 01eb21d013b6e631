"""A new run is fast-forwarded, nothing is served twice within a run, nothing is paid twice across runs.

The upstream gives every call a sample of its own, so who got what, and what was paid, is always visible.
"""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.support import chat
from tests.support.client import TEST_KEY, Answer, Client, Connection, ControlPlane, chat_headers, chat_path, status_of
from tests.support.proxy import OtherProcess, Proxy
from tests.support.upstream import BOUND_S, Gate, Reply, Seen, Upstream, model, plain, stream

pytestmark = pytest.mark.usefixtures("no_traceback")
PAID = ("live", "diverged")
FREE = ("replay", "joined", "memo")


class Auditor(Client):
    """A client that keeps every whole answer, so that what the headers say can be held against the upstream's count."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.answers: list[Answer] = []
        self.unread = 0  # paid calls whose answer the test threw away
        self.silent = 0  # calls that reached the upstream outside any session

    def send(self, *arguments: Any, **named: Any) -> Answer:
        answer = super().send(*arguments, **named)
        self.answers.append(answer)
        return answer

    def take(self, connection: Connection) -> Answer:
        """The whole answer of a started call."""
        with connection:
            answer = connection.answer()
        self.answers.append(answer)
        return answer

    def audit(self, upstream: Upstream) -> None:
        """What was paid by the headers is what the upstream counted."""
        paid = sum(answer.outcome in PAID for answer in self.answers)
        told = [(answer.status, answer.outcome, answer.step) for answer in self.answers]
        assert upstream.calls == paid + self.unread + self.silent, (upstream.calls, told)
        for answer in self.answers:
            if answer.outcome is not None:
                assert answer.outcome in (*PAID, *FREE), answer.outcome
                assert answer.hit is (answer.outcome in FREE), (answer.outcome, answer.hit)


@pytest.fixture
def client(upstream: Upstream, proxy: Proxy) -> Iterator[Auditor]:
    auditor = Auditor(proxy.port)
    yield auditor
    auditor.audit(upstream)


@pytest.fixture
def control(proxy: Proxy) -> ControlPlane:
    return proxy.control


def texts(answers: list[Answer]) -> list[str]:
    assert [answer.status for answer in answers] == [200] * len(answers), [answer.body for answer in answers]
    return [chat.text_of(answer.body) for answer in answers]


def together(count: int, call: Callable[[int], Answer]) -> list[Answer]:
    """The answers of so many calls made at once, in the order of their numbers."""
    found: dict[int, Answer] = {}
    threads = [threading.Thread(target=lambda at=at: found.update({at: call(at)})) for at in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert len(found) == count, f"only {sorted(found)} of {count} calls were answered"
    return [found[at] for at in range(count)]


def refusal(answer: Answer, code: str) -> dict[str, Any]:
    """The error of a call that the proxy refused for good."""
    error = answer.error
    assert (answer.status, error["code"]) == (400, code)
    assert error["type"] == "invalid_request_error"
    assert answer.headers.get("x-should-retry") == "false"
    return error


# --- a new run, occurrences -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_new_run_is_fast_forwarded_and_goes_on_live(client: Auditor, session: str, streamed: bool) -> None:
    first = [client.ask(session, f"q{at}", run="a", stream=streamed) for at in range(3)]
    second = [client.ask(session, f"q{at}", run="b", stream=streamed) for at in range(4)]
    assert [answer.outcome for answer in first] == ["live"] * 3
    assert [answer.outcome for answer in second] == ["replay"] * 3 + ["live"]
    assert [answer.body for answer in second[:3]] == [answer.body for answer in first]
    assert [answer.step for answer in first + second] == [0, 1, 2, 0, 1, 2, 3]
    assert {answer.run for answer in second} == {"b"}


def test_replayed_answer_has_the_recorded_header_fields(upstream: Upstream, client: Auditor, session: str) -> None:
    upstream.replies(plain(chat.completion(), headers=[("x-request-id", "req_7"), ("openai-version", "2020-10-01")]))
    live = client.ask(session, "hi", run="a")
    again = client.ask(session, "hi", run="b")
    for name in ("content-type", "x-request-id", "openai-version"):
        assert again.headers.get(name) == live.headers.get(name) is not None


def test_same_prompt_thrice_is_three_samples_and_a_new_run_gets_them_in_order(client: Auditor, session: str) -> None:
    first = texts([client.ask(session, "roll a die", run="a") for _ in range(3)])
    assert len(set(first)) == 3
    second = [client.ask(session, "roll a die", run="b") for _ in range(4)]
    assert texts(second)[:3] == first
    assert [answer.outcome for answer in second] == ["replay"] * 3 + ["live"]
    assert texts(second)[3] not in first


def test_third_run_is_given_what_both_runs_before_it_paid_for(client: Auditor, session: str) -> None:
    client.ask(session, "one", run="a")
    client.ask(session, "one", run="b")
    client.ask(session, "two", run="b")
    third = [client.ask(session, question, run="c") for question in ("one", "two", "three")]
    assert [answer.outcome for answer in third] == ["replay", "replay", "live"]


def test_five_parallel_equal_calls_are_five_samples_and_a_new_run_gets_the_same_five(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    gate = Gate()
    upstream.script = lambda seen: [gate, *model(seen)]

    opener = threading.Thread(target=lambda: (upstream.wait_calls(5), gate.open()))
    opener.start()
    first = together(5, lambda _: client.ask(session, "sample me", run="a"))
    opener.join(BOUND_S)
    assert len(set(texts(first))) == 5
    again = together(5, lambda _: client.ask(session, "sample me", run="b"))
    assert sorted(texts(again)) == sorted(texts(first))
    assert {answer.outcome for answer in again} == {"replay"}


def test_other_sessions_are_never_served_from(client: Auditor, session: str) -> None:
    client.ask(session, "hi", run="a")
    other = client.ask(f"{session}-other", "hi", run="b")
    assert other.outcome == "live"


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"model": "gpt-4o-mini"},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "none"},
        {"max_tokens": 5},
        {"seed": 1},
        {"response_format": {"type": "json_object"}},
        {"n": 1},
        {"field_of_tomorrow": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_anything_that_can_change_the_answer_is_another_question(
    client: Auditor, session: str, change: dict[str, Any]
) -> None:
    client.ask(session, "hi", run="a")
    other = client.ask(session, "hi", run="b", **change)
    assert other.outcome in PAID


def test_what_cannot_change_the_answer_is_the_same_question(client: Auditor, session: str) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {"a": 1, "b": 2}}} for name in "fg"]
    more = {"tools": tools, "user": "u1", "metadata": {"trace": "1"}, "store": None}
    first = client.ask(session, [chat.system("s"), chat.user("hi")], run="a", **more)
    turned = [{"function": {"parameters": {"b": 2, "a": 1}, "name": name}, "type": "function"} for name in "gf"]
    body = json.dumps(
        {
            "tools": turned,
            "metadata": {"trace": "2"},
            "user": "u2",
            "prompt_cache_key": "k",
            "messages": [{"content": "s", "role": "system"}, {"content": "hi", "role": "user", "name": None}],
            "model": chat.MODEL,
        },
        indent=2,
    ).encode()
    again = client.ask(session, body, run="b")
    assert (again.outcome, again.body) == ("replay", first.body)


def test_replay_can_be_switched_off_for_one_call(client: Auditor, session: str) -> None:
    client.ask(session, "hi", run="a")
    fresh = client.ask(session, "hi", run="b", headers={"x-agent-replay": "off"})
    assert fresh.outcome == "live"


def test_recorded_answers_outlive_an_orderly_stop_and_a_kill(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, session: str
) -> None:
    with Proxy(tmp_path_factory.mktemp("restarted"), upstream.url) as proxy:
        live = proxy.client.ask(session, "hi", run="a")
        assert proxy.stop() == 0
        proxy.start()
        second = proxy.client.ask(session, "hi", run="b")
        proxy.restart()
        third = proxy.client.ask(session, "hi", run="c")
        assert live.body == second.body == third.body
        assert (second.outcome, third.outcome) == ("replay", "replay")
        assert upstream.calls == 1


# --- the frontier: joins, orphans, drains ---------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_proven_retry_joins_the_call_in_flight(
    upstream: Upstream, client: Auditor, session: str, streamed: bool
) -> None:
    gate = Gate()
    upstream.script = lambda seen: gated(seen, gate)
    first = client.start(session, "hi", run="a", stream=streamed, headers={"x-stainless-retry-count": "0"})
    gate_reached(upstream, gate)
    retry = client.start(session, "hi", run="a", stream=streamed, headers={"x-stainless-retry-count": "1"})
    assert retry.silent(0.1)
    gate.open()
    bodies = [client.take(connection) for connection in (first, retry)]
    assert bodies[0].body == bodies[1].body
    assert sorted(str(answer.outcome) for answer in bodies) == ["joined", "live"]
    assert upstream.calls == 1


def gated(seen: Seen, gate: Gate) -> Reply:
    """The default sample, held before its first byte."""
    return [gate, *model(seen)]


def gate_reached(upstream: Upstream, gate: Gate, calls: int = 1) -> None:
    upstream.wait_calls(calls)
    gate.wait_reached()


def test_same_idempotency_key_joins_and_another_key_is_another_call(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    gate = Gate()
    upstream.script = lambda seen: gated(seen, gate)
    first = client.start(session, "hi", run="a", headers={"Idempotency-Key": "k1"})
    gate_reached(upstream, gate)
    same = client.start(session, "hi", run="a", headers={"Idempotency-Key": "k1"})
    other = client.start(session, "hi", run="a", headers={"Idempotency-Key": "k2"})
    upstream.wait_calls(2)
    gate.open()
    answers = [client.take(connection) for connection in (first, same, other)]
    assert answers[0].body == answers[1].body != answers[2].body
    assert upstream.calls == 2


def test_retry_after_completion_gets_the_one_recording_and_is_paid_when_there_are_two(
    client: Auditor, session: str
) -> None:
    retry = {"x-stainless-retry-count": "1"}
    first = client.ask(session, "hi", run="a")
    again = client.ask(session, "hi", run="a", headers=retry)
    assert again.body == first.body
    assert again.outcome in FREE
    client.ask(session, "hi", run="a")
    third = client.ask(session, "hi", run="a", headers=retry)
    assert third.outcome == "live"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("run", ["a", "b"], ids=["same-run", "new-run"])
def test_call_whose_client_left_mid_stream_is_taken_up_by_the_same_question(
    upstream: Upstream, client: Auditor, session: str, run: str, how: str
) -> None:
    gate = Gate()
    events = chat.chunks("one two three")
    upstream.replies(stream(*events[:2], gate, *events[2:]))
    orphaned = client.start(session, "hi", run="a", stream=True)
    orphaned.read_head()
    orphaned.read_until(b'"one"')
    client.unread += 1
    getattr(orphaned, how)()
    again = client.start(session, "hi", run=run, stream=True)
    assert again.read_head()[0] == 200
    assert again.read_until(b'"one"') == b"".join(events[:2])
    gate.open()
    with again:
        assert again.read_body() == (b"".join(events), True)
    assert upstream.calls == 1
    assert not upstream.requests[0].aborted.is_set()


def test_call_whose_client_left_before_any_byte_is_taken_up_by_the_same_question(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    gate = Gate()
    upstream.script = lambda seen: gated(seen, gate)
    orphaned = client.start(session, "hi", run="a")
    gate_reached(upstream, gate)
    client.unread += 1
    orphaned.reset()
    again = client.start(session, "hi", run="a")
    assert again.silent(0.1)
    gate.open()
    answer = client.take(again)
    assert (answer.status, chat.text_of(answer.body), answer.hit) == (200, "sample 0", True)
    assert upstream.calls == 1


def test_answer_is_drained_and_recorded_after_its_client_left(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    gate = Gate()
    events = chat.chunks("one two three")
    upstream.replies(stream(*events[:2], gate, *events[2:]))
    orphaned = client.start(session, "hi", run="a", stream=True)
    orphaned.read_head()
    orphaned.read_until(b'"one"')
    client.unread += 1
    orphaned.reset()
    gate.open()
    assert upstream.requests[0].answered.wait(BOUND_S)
    wait_state(control, session, 0, "completed")
    again = client.ask(session, "hi", run="b", stream=True)
    assert (again.outcome, again.body) == ("replay", b"".join(events))


def wait_state(control: ControlPlane, session: str, step: int, state: str) -> None:
    """Wait, bounded, until the journal shows the step in this state."""
    waited = threading.Event()
    seen = ""
    for _ in range(400):
        seen = control.steps(session)[step]["state"]
        if seen == state:
            return
        waited.wait(0.05)
    raise AssertionError(f"step {step} is {seen}, not {state}")


def test_drain_can_be_switched_off_so_that_leaving_aborts_the_provider(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    gate = Gate()
    events = chat.chunks("one two three")
    upstream.replies(stream(*events[:2], gate, *events[2:]))
    leaving = client.start(session, "hi", run="a", stream=True, headers={"x-agent-drain": "off"})
    leaving.read_head()
    leaving.read_until(b'"one"')
    client.unread += 1
    leaving.close()
    assert upstream.requests[0].aborted.wait(BOUND_S)
    wait_state(control, session, 0, "failed")
    again = client.ask(session, "hi", run="a", stream=True)
    assert (again.outcome, again.step) == ("live", 0)


def test_client_that_closes_right_after_the_last_event_was_served_whole(client: Auditor, session: str) -> None:
    """Several SDKs close at ``[DONE]``: the same question asked again is then a new sample, not an orphan."""
    closing = client.start(session, "hi", run="a", stream=True)
    closing.read_head()
    closing.read_until(chat.DONE)
    client.unread += 1
    closing.close()
    again = client.ask(session, "hi", run="a", stream=True)
    assert (again.outcome, chat.text_of(again.body)) == ("live", "sample 1")


def test_orphan_is_taken_up_once_only(upstream: Upstream, client: Auditor, session: str) -> None:
    gate = Gate()
    upstream.replies([gate, *plain(chat.completion("orphan"))])
    orphaned = client.start(session, "hi", run="a")
    gate_reached(upstream, gate)
    client.unread += 1
    orphaned.reset()
    gate.open()
    assert upstream.requests[0].answered.wait(BOUND_S)
    answers = [client.ask(session, "hi", run="a") for _ in range(2)]
    assert texts(answers) == ["orphan", "sample 1"]


# --- errors ---------------------------------------------------------------------------------------------------------

TOO_LONG = json.dumps(
    {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "param": None,
            "code": "context_length_exceeded",
        }
    },
    indent=3,
).encode()


def test_error_that_the_run_survived_is_part_of_its_history(upstream: Upstream, client: Auditor, session: str) -> None:
    upstream.replies(plain(TOO_LONG, 400))
    first = [client.ask(session, "long", run="a"), client.ask(session, "short", run="a")]
    second = [client.ask(session, "long", run="b"), client.ask(session, "short", run="b")]
    assert [(answer.status, answer.body) for answer in second] == [(answer.status, answer.body) for answer in first]
    assert [answer.outcome for answer in second] == ["replay", "replay"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 429, 500, 503, 529])
def test_error_that_is_the_last_thing_known_is_asked_anew(
    upstream: Upstream, client: Auditor, session: str, status: int
) -> None:
    upstream.replies(model(Seen(0, b"")), plain(TOO_LONG, status))
    client.ask(session, "one", run="a")
    assert client.ask(session, "two", run="a").status == status
    second = [client.ask(session, question, run="b") for question in ("one", "two")]
    assert [(answer.status, answer.outcome) for answer in second] == [(200, "replay"), (200, "live")]


@pytest.mark.parametrize("status", [401, 403, 429])
def test_error_of_the_key_or_the_rate_never_replays_in_a_later_run(
    upstream: Upstream, client: Auditor, session: str, status: int
) -> None:
    upstream.replies(plain(TOO_LONG, status))
    assert client.ask(session, "one", run="a").status == status
    client.ask(session, "two", run="a")
    again = client.ask(session, "one", run="b")
    assert (again.status, again.hit) == (200, False)


def test_passing_error_asked_again_in_the_same_run_is_the_same_step(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    upstream.replies(plain(TOO_LONG, 503))
    assert client.ask(session, "one", run="a").status == 503
    again = client.ask(session, "one", run="a", headers={"x-stainless-retry-count": "1"})
    assert (again.status, again.step, again.outcome) == (200, 0, "live")
    assert client.ask(session, "one", run="b").outcome == "replay"


# --- which run ------------------------------------------------------------------------------------------------------


def test_run_beside_one_whose_call_is_in_flight_is_a_sibling_and_is_not_served_its_steps(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    first = client.ask(session, "one", run="a")
    gate = Gate()
    upstream.script = lambda seen: gated(seen, gate) if b'"two"' in seen.body else model(seen)
    working = client.start(session, "two", run="a")
    gate_reached(upstream, gate, calls=2)
    beside = client.ask(session, "one", run="b")
    assert beside.outcome == "live"
    assert beside.body != first.body
    gate.open()
    client.take(working)


def test_run_beside_one_whose_process_holds_a_socket_is_a_sibling(
    upstream: Upstream, proxy: Proxy, client: Auditor, session: str
) -> None:
    with OtherProcess(proxy.port) as other:
        assert other.ask(session, "one", run="a").startswith("200")
        client.unread += 1
        beside = client.ask(session, "one", run="b")
        assert (beside.outcome, chat.text_of(beside.body)) == ("live", "sample 1")
    later = [client.ask(session, "one", run="c") for _ in range(2)]
    assert [(answer.outcome, chat.text_of(answer.body)) for answer in later] == [
        ("replay", "sample 0"),
        ("replay", "sample 1"),
    ]


def test_process_that_begins_a_new_run_by_itself_is_no_sibling_of_its_own(client: Auditor, session: str) -> None:
    with client.connect() as kept_open:
        first = client.ask(session, "one", run="a", on=kept_open)
        again = client.ask(session, "one", run="b")
        assert (again.outcome, again.body) == ("replay", first.body)


def test_other_process_without_a_run_id_is_a_new_run(
    upstream: Upstream, proxy: Proxy, client: Auditor, session: str
) -> None:
    with OtherProcess(proxy.port) as other:
        assert other.ask(session, "one").startswith("200")
        client.unread += 1
    again = client.ask(session, "one")
    assert (again.outcome, chat.text_of(again.body)) == ("replay", "sample 0")
    assert client.ask(session, "one").outcome == "live"


def test_fenced_run_is_refused_and_the_one_that_replaced_it_is_served(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    with client.connect() as kept_open:
        first = client.ask(session, "one", run="a", on=kept_open)
        registered = control.post(f"/api/sessions/{session}/runs", {"run": "b", "replaces": "a"})
        assert registered["run"] == "b"
        assert registered["fenced"] == ["a"]
        again = client.ask(session, "one", run="b")
        assert (again.outcome, again.body) == ("replay", first.body)
        late = client.ask(session, "two", run="a", on=kept_open)
        error = refusal(late, "run_fenced")
        assert "a" in error["message"]
    assert upstream.calls == 1


def test_supervised_run_tells_what_it_was_given_and_what_it_paid(
    client: Auditor, control: ControlPlane, session: str
) -> None:
    control.post(f"/api/sessions/{session}/runs", {"run": "a", "replaces": None, "supervisor_pid": None})
    client.ask(session, "one", run="a")
    control.post(f"/api/sessions/{session}/runs/a/end", {"exit_code": 137})
    control.post(f"/api/sessions/{session}/runs", {"run": "b", "replaces": "a"})
    client.ask(session, "one", run="b")
    client.ask(session, "two", run="b")
    found = control.run(session, "b")
    assert (found["run"], found["replayed"], found["live"], found["diverged"]) == ("b", 1, 1, False)
    assert control.run(session, "a")["live"] == 1


def test_session_that_was_completed_is_not_replayed_into(client: Auditor, control: ControlPlane, session: str) -> None:
    client.ask(session, "report", run="a")
    control.post(f"/api/sessions/{session}/status", {"status": "COMPLETED"})
    assert client.ask(session, "report", run="b").outcome == "live"
    assert client.ask(session, "report", run="c").outcome == "replay", "the new generation replays like any other"
    assert len(control.steps(session)) >= 1


def test_repeat_without_any_evidence_is_a_new_sample(client: Auditor, session: str) -> None:
    assert texts([client.ask(session, "poll") for _ in range(3)]) == ["sample 0", "sample 1", "sample 2"]


def test_constant_step_number_is_no_evidence(client: Auditor, session: str) -> None:
    zero = {"x-agent-step-number": "0"}
    answers = [client.ask(session, question, headers=zero) for question in ("one", "two", "one", "two")]
    assert texts(answers) == [f"sample {at}" for at in range(4)]
    assert [answer.step for answer in answers] == [0, 1, 2, 3]


def test_step_number_that_goes_back_is_a_new_run(client: Auditor, session: str) -> None:
    questions = ["one", "two", "three"]
    first = [client.ask(session, text, headers={"x-agent-step-number": str(at)}) for at, text in enumerate(questions)]
    again = [client.ask(session, text, headers={"x-agent-step-number": str(at)}) for at, text in enumerate(questions)]
    assert texts(again) == texts(first)
    assert [answer.outcome for answer in again] == ["replay"] * 3
    assert {answer.run for answer in again}.isdisjoint({answer.run for answer in first})


def test_step_number_never_makes_other_content_match(client: Auditor, session: str) -> None:
    client.ask(session, "one", run="a", headers={"x-agent-step-number": "0"})
    client.ask(session, "two", run="a", headers={"x-agent-step-number": "1"})
    other = client.ask(session, "another", run="b", headers={"x-agent-step-number": "1"})
    assert other.outcome in PAID
    assert client.ask(session, "two", run="c", headers={"x-agent-step-number": "1"}).outcome == "replay"


def test_cut_call_is_evidence_of_one_restart(upstream: Upstream, client: Auditor, session: str) -> None:
    gate = Gate()
    first = client.ask(session, "one")
    upstream.script = lambda seen: gated(seen, gate)
    dying = client.start(session, "two")
    gate_reached(upstream, gate, calls=2)
    client.unread += 1
    dying.reset()
    gate.open()
    assert upstream.requests[1].answered.wait(BOUND_S)
    upstream.script = model
    again = [client.ask(session, "one"), client.ask(session, "two")]
    assert (again[0].outcome, again[0].body) == ("replay", first.body)
    assert (again[1].hit, chat.text_of(again[1].body)) == (True, "sample 1")
    assert client.ask(session, "one").outcome == "live", "one cut call proves one restart only"


def test_first_prompt_declared_unique_is_evidence(client: Auditor, session: str) -> None:
    unique = {"x-agent-first-prompt": "unique"}
    first = [client.ask(session, question, headers=unique) for question in ("one", "two")]
    again = [client.ask(session, question, headers=unique) for question in ("one", "two")]
    assert texts(again) == texts(first)


# --- pure endpoints -------------------------------------------------------------------------------------------------


def test_embeddings_are_paid_once_and_shift_nothing(upstream: Upstream, client: Auditor, session: str) -> None:
    vectors = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AAAA"}],"model":"e"}'
    upstream.script = lambda seen: plain(vectors) if "embeddings" in seen.target else model(seen)
    body = json.dumps({"model": "e", "input": "text", "encoding_format": "base64"}).encode()

    def embed(run: str) -> Answer:
        return client.send("POST", chat_path(session, run, "/v1/embeddings"), chat_headers(), body)

    first = [embed("a"), client.ask(session, "hi", run="a"), embed("a"), embed("a")]
    second = [embed("b"), client.ask(session, "hi", run="b"), embed("b")]
    assert [answer.outcome for answer in first] == ["live", "live", "memo", "memo"]
    assert [answer.outcome for answer in second] == ["memo", "replay", "memo"]
    assert {answer.body for answer in first[2:] + second[2:]} == {vectors}


def test_model_list_passes_through_and_is_no_step(upstream: Upstream, client: Auditor, session: str) -> None:
    upstream.script = lambda seen: plain(b'{"object":"list","data":[]}') if seen.method == "GET" else model(seen)
    for _ in range(2):
        answer = Client(client.port).send("GET", f"/s/{session}/v1/models", chat_headers())
        assert answer.status == 200
        client.silent += 1
    assert client.ask(session, "hi", run="a").step == 0


# --- shape ----------------------------------------------------------------------------------------------------------

CALLS = [chat.tool_call("f", '{"a": 1}', call_id="call_a"), chat.tool_call("g", '{"b": [2]}', call_id="call_b")]
ANSWERS: dict[str, dict[str, Any]] = {
    "text": {"text": "one two three"},
    "tools": {"text": None, "tool_calls": CALLS},
    "both": {"text": "let me", "tool_calls": CALLS[:1]},
}


def sdk(proxy: Proxy, session: str, run: str) -> openai.OpenAI:
    base = f"{proxy.url}/s/{session}/r/{run}/v1"
    return openai.OpenAI(base_url=base, api_key=TEST_KEY, max_retries=0, timeout=BOUND_S)


def comparable(message: Any) -> dict[str, Any]:
    """What an agent sees of a message, whichever way it came."""
    calls = message.tool_calls or []
    return {
        "role": message.role,
        "content": message.content or None,
        "refusal": message.refusal,
        "calls": [(call.id, call.function.name, call.function.arguments) for call in calls],
    }


def ask_sdk(proxy: Proxy, session: str, run: str, streamed: bool) -> Any:
    with sdk(proxy, session, run) as agent:
        messages: list[Any] = [chat.user("hi")]
        if not streamed:
            return agent.chat.completions.create(model=chat.MODEL, messages=messages)
        with agent.chat.completions.stream(model=chat.MODEL, messages=messages) as events:
            return events.get_final_completion()


@pytest.mark.parametrize("recorded", [False, True], ids=["plain-recorded", "stream-recorded"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answer_is_the_same_object_in_whichever_shape_it_is_asked_for(
    upstream: Upstream, proxy: Proxy, session: str, name: str, recorded: bool
) -> None:
    wanted = ANSWERS[name]
    streamed = stream(*chat.chunks(wanted["text"] or "", tool_calls=wanted.get("tool_calls", ())))
    upstream.replies(streamed if recorded else plain(chat.completion(**wanted)))
    first = ask_sdk(proxy, session, "a", recorded)
    other = ask_sdk(proxy, session, "b", not recorded)
    assert upstream.calls == 1
    assert comparable(other.choices[0].message) == comparable(first.choices[0].message)
    for field in ("id", "model", "created"):
        assert getattr(other, field) == getattr(first, field)
    assert other.choices[0].finish_reason == first.choices[0].finish_reason


def test_usage_chunk_is_there_exactly_where_it_was_asked_for(
    upstream: Upstream, proxy: Proxy, client: Auditor, session: str
) -> None:
    upstream.replies(plain(chat.completion("one two")))
    first = client.ask(session, "hi", run="a")
    without = client.ask(session, "hi", run="b", stream=True)
    with_usage = client.ask(session, "hi", run="c", stream=True, stream_options={"include_usage": True})
    assert b'"prompt_tokens"' not in without.body
    assert with_usage.body.count(b'"prompt_tokens"') == 1
    assert texts([first, without, with_usage]) == ["one two"] * 3
    assert with_usage.headers.get("content-type", "").startswith("text/event-stream")
    assert with_usage.body.endswith(chat.DONE)


# --- volatile text --------------------------------------------------------------------------------------------------

OLD = "Today is 2026-11-29 08:15:00. Trace 0b0b1111-2222-4333-8444-555566667777."
NEW = "Today is 2026-11-30 21:40:59. Trace 9f9f1111-2222-4333-8444-555566667777."


def test_clock_and_uuid_in_the_system_prompt_do_not_hinder_the_replay(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    first = [
        client.ask(session, [chat.system(OLD), chat.user("hi")], run="a"),
        client.ask(session, [chat.system(OLD), chat.user("hi"), chat.user("more")], run="a"),
    ]
    again = [
        client.ask(session, [chat.system(NEW), chat.user("hi")], run="b"),
        client.ask(session, [chat.system(NEW), chat.user("hi"), chat.user("more")], run="b"),
    ]
    assert texts(again) == texts(first)
    assert {answer.outcome for answer in again} == {"replay"}
    live = client.ask(session, [chat.system(NEW), chat.user("hi"), chat.user("and more")], run="b")
    assert live.outcome == "live"
    assert NEW.encode() in upstream.requests[-1].body, "what is forwarded is never masked"


def test_uuid_in_user_text_is_another_question(client: Auditor, session: str) -> None:
    client.ask(session, f"Refund order {OLD[-37:-1]}", run="a")
    other = client.ask(session, f"Refund order {NEW[-37:-1]}", run="b")
    assert other.outcome in PAID


def test_recorded_answer_that_quotes_the_old_clock_is_not_replayed(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    upstream.replies(plain(chat.completion("It is 2026-11-29.")))
    client.ask(session, [chat.system(OLD), chat.user("what day is it?")], run="a")
    other = client.ask(session, [chat.system(NEW), chat.user("what day is it?")], run="b")
    assert other.outcome in PAID


# --- divergence -----------------------------------------------------------------------------------------------------


def record_three(upstream: Upstream, client: Auditor, session: str, *, effect: bool = False) -> list[Answer]:
    """Run ``a``: three steps, the second one with a tool call if ``effect``."""
    if effect:
        call = chat.tool_call("charge_card", '{"usd": 5}')
        upstream.replies(model(Seen(0, b"")), plain(chat.completion(None, tool_calls=[call])))
    return [client.ask(session, f"q{at}", run="a") for at in range(3)]


def test_divergence_forks_where_no_effect_lies_ahead_and_is_reported(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    record_three(upstream, client, session)
    assert client.ask(session, "q0", run="b").outcome == "replay"
    other = client.ask(session, "Q one", run="b")
    assert other.outcome == "diverged"
    assert client.ask(session, "q2", run="b").outcome == "replay", "what the change did not touch still replays"
    assert control.run(session, "b")["diverged"] is True
    assert control.run(session, "a")["diverged"] is False


def test_divergence_pauses_where_an_effect_lies_ahead_and_goes_on_when_told(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    record_three(upstream, client, session, effect=True)
    client.ask(session, "q0", run="b")
    calls = upstream.calls
    refusal(client.ask(session, "Q one", run="b"), "run_diverged")
    refusal(client.ask(session, "Q one", run="b"), "session_paused")
    assert upstream.calls == calls
    assert control.session(session)["session"]["status"] == "PAUSED"
    control.post(f"/api/sessions/{session}/status", {"status": "RUNNING"})
    assert client.ask(session, "Q one", run="b").outcome in PAID
    assert upstream.calls == calls + 1


def test_strict_replay_refuses_a_divergence_and_says_what_differs(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    record_three(upstream, client, session)
    strict = {"x-agent-replay": "strict"}
    assert client.ask(session, "q0", run="b", headers=strict).outcome == "replay"
    calls = upstream.calls
    answer = client.ask(session, "Q one", run="b", headers=strict)
    refusal(answer, "run_diverged")
    told = json.dumps(answer.json())
    assert "Q one" in told
    assert "q1" in told
    assert upstream.calls == calls


def test_reaching_the_end_of_the_recording_is_no_divergence(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    record_three(upstream, client, session)
    for at in range(3):
        assert client.ask(session, f"q{at}", run="b", headers={"x-agent-replay": "strict"}).outcome == "replay"
    assert client.ask(session, "q3", run="b", headers={"x-agent-replay": "strict"}).outcome == "live"
    assert control.run(session, "b")["diverged"] is False


# --- control --------------------------------------------------------------------------------------------------------


def test_reset_supersedes_that_step_and_the_later_ones_and_keeps_them(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    first = record_three(upstream, client, session)
    control.post(f"/api/sessions/{session}/status", {"status": "FAILED"})
    control.post(f"/api/sessions/{session}/reset", {"step_number": 1})
    assert control.session(session)["session"]["status"] == "RUNNING"
    again = [client.ask(session, f"q{at}", run="b") for at in range(3)]
    assert [answer.outcome for answer in again] == ["replay", "live", "live"]
    assert texts(again)[0] == texts(first)[0]
    assert set(texts(again)[1:]).isdisjoint(texts(first))
    third = [client.ask(session, f"q{at}", run="c") for at in range(3)]
    assert texts(third) == texts(again), "later runs follow what was recorded after the rollback"


def test_paused_session_answers_nothing_live_until_it_runs_again(
    upstream: Upstream, client: Auditor, control: ControlPlane, session: str
) -> None:
    client.ask(session, "one", run="a")
    control.post(f"/api/sessions/{session}/status", {"status": "PAUSED"})
    refusal(client.ask(session, "two", run="a"), "session_paused")
    assert upstream.calls == 1
    control.post(f"/api/sessions/{session}/status", {"status": "RUNNING"})
    assert client.ask(session, "two", run="a").outcome == "live"


def test_control_plane_refuses_what_it_should(proxy: Proxy, client: Auditor, session: str) -> None:
    client.ask(session, "one", run="a")
    control = proxy.control
    for token in ("", "wrong", TEST_KEY):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ControlPlane(proxy.url, token).get("/api/sessions")
        assert refused.value.code == 401
    assert status_of(control.get, "/api/sessions/there-is-none")[0] == 404
    for body in ({"status": "SLEEPING"}, {"status": 1}, {"status": None}):
        assert status_of(control.post, f"/api/sessions/{session}/status", body)[0] in (400, 422)
    for body in ({"step_number": -1}, {"step_number": "x"}, {"step_number": 1.5}):
        assert status_of(control.post, f"/api/sessions/{session}/reset", body)[0] in (400, 422)
    assert control.session(session)["session"]["status"] == "RUNNING"


def test_journal_shows_what_was_asked_and_answered(client: Auditor, control: ControlPlane, session: str) -> None:
    answer = client.ask(session, "one", run="a")
    client.ask(session, "two", run="a", stream=True)
    found = control.session(session)
    assert found["session"]["id"] == session
    assert {"status", "created_at", "updated_at"} <= set(found["session"])
    assert [step["step_number"] for step in found["steps"]] == [0, 1]
    plain_step, streamed_step = found["steps"]
    assert json.loads(plain_step["response"]) == answer.json()
    assert "one" in plain_step["prompt"]
    assert (plain_step["stream"], streamed_step["stream"]) == (False, True)
    assert plain_step["request_hash"] != streamed_step["request_hash"]
    assert {"token_cost", "latency", "created_at", "kind", "model", "run"} <= set(plain_step)
    assert session in [listed["id"] for listed in control.get("/api/sessions")]


# --- order ----------------------------------------------------------------------------------------------------------


def test_fan_in_sees_the_recorded_order_of_completion(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, session: str
) -> None:
    gates = {"slow": Gate(), "quick": Gate()}
    upstream.script = lambda seen: gated(seen, gates["slow" if b'"slow"' in seen.body else "quick"])
    data = tmp_path_factory.mktemp("order")
    with Proxy(data, upstream.url, settings={"replay.order_wait_s": 10}) as proxy:
        slow = proxy.client.start(session, "slow", run="a")
        upstream.wait_calls(1)
        quick = proxy.client.start(session, "quick", run="a")
        upstream.wait_calls(2)
        for name, connection in (("quick", quick), ("slow", slow)):
            gates[name].open()
            with connection:
                assert connection.answer().status == 200
        slow = proxy.client.start(session, "slow", run="b")
        assert slow.silent(0.2), "the answer that came second must not come first"
        assert proxy.client.ask(session, "quick", run="b").outcome == "replay"
        with slow:
            assert slow.answer().outcome == "replay"
    assert upstream.calls == 2


def test_call_without_an_id_gets_one_that_stays(upstream: Upstream, client: Auditor, session: str) -> None:
    """Clients loop over such calls, refuse them, or make up an id that is another one in their next life."""
    call = {"id": "", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    for stream_, run in ((False, "a"), (True, "c")):
        reply = (
            stream(*chat.chunks("", tool_calls=[call])) if stream_ else plain(chat.completion(None, tool_calls=[call]))
        )
        upstream.replies(reply)
        live = client.ask(f"{session}-{run}", "hi", run=run, stream=stream_)
        again = client.ask(f"{session}-{run}", "hi", run=run + "2", stream=stream_)
        assert b'"id":"call_' in live.body.replace(b'"id": "', b'"id":"')
        assert (again.outcome, again.body) == ("replay", live.body)


def test_lives_with_names_of_their_own_that_each_get_one_call_further_pay_once(
    upstream: Upstream, client: Auditor, session: str
) -> None:
    """What is recorded comes from several lives then, each with another id in its system text."""
    paid = []
    for life in range(1, 6):
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": f"Session {life:08}-1111-4111-8111-111111111111."},
            {"role": "user", "content": "go"},
        ]
        for call in range(life):
            answer = client.ask(session, messages, run=f"life-{life}")
            messages += [json.loads(answer.body)["choices"][0]["message"], {"role": "user", "content": f"next {call}"}]
        paid.append(upstream.calls)
    assert paid == [1, 2, 3, 4, 5]
