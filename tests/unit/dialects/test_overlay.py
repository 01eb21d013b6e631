"""What the model is told of calls is put into requests of every wire format, in the shapes that clients really send."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from agentstate.core import fingerprint
from agentstate.core.model import Call, Shape, ToolCall, ToolResult
from agentstate.dialects import registry
from agentstate.dialects.base import Dialect
from agentstate.dialects.overlay import Fate, listed_raws, placed, same
from agentstate.dialects.preamble import says
from agentstate.engine.overlay import FORMS
from tests.support import traffic
from tests.support.traffic import Exchange

NOTE = "Note: Ann changed it."
REFUSED = "It was refused by Ann."


class Carried:
    """An answer, and a later request that carries it from the message ``start`` on."""

    def __init__(self, dialect: Dialect, asked: Call, later: Call, answer: bytes) -> None:
        self.dialect, self.later, self.start = dialect, later, len(asked.items)
        self.form = FORMS[dialect.name]
        self.plain = dialect.convert(asked.shape, Shape(), answer)
        self.calls = dialect.judge(asked, self.plain).calls
        self.heard = self.form.heard(self.form.said(self.plain))
        self.raws = listed_raws(later.body, self.form.field)
        self.end = self.form.end(later.items, self.start, [call_id for call_id, _ in self.heard.calls if call_id])

    @property
    def is_recognised(self) -> bool:
        return self.end > self.start and same(self.form.heard(self.raws[self.start : self.end]), self.heard)


def parsed(exchange: Exchange) -> tuple[Dialect, Call] | None:
    path, _, query = exchange.path.partition("?")
    normal = registry.normalise(path)
    dialect = registry.for_path("POST", normal)
    if exchange.status != 200 or not exchange.request or dialect is None or dialect.name not in FORMS:
        return None
    call = dialect.parse("POST", normal, exchange.request, query)
    return (dialect, call) if call.items else None


def carried(exchanges: Sequence[Exchange]) -> Iterator[Carried]:
    known = [(exchange, found) for exchange in exchanges if (found := parsed(exchange)) is not None]
    for place, (exchange, (dialect, call)) in enumerate(known):
        tip, count = fingerprint.of(call).tip, len(call.items)
        for _, (other, later) in known[place + 1 :]:
            if other is dialect and len(later.items) > count and fingerprint.of(later).chain[count - 1] == tip:
                yield Carried(dialect, call, later, exchange.response)
                break


def of_clients() -> Iterator[tuple[str, Carried]]:
    for name, (first, _) in traffic.double_runs().items():
        yield from ((name, one) for one in carried(traffic.client_all(first)))


def test_answers_that_recorded_clients_carry_are_recognised() -> None:
    """All but those whose clients write another text, or make up ids, in the place of what they were given."""
    traffic.require()
    missed = {name for name, one in of_clients() if not one.is_recognised}
    assert len({name for name, _ in of_clients()} - missed) > 40
    assert all(name.startswith(("smolagents", "pydantic-ai-no-call-ids")) for name in missed), missed


def with_calls(dialect: str) -> list[Carried]:
    traffic.require()
    found = [one for _, one in of_clients() if one.dialect.name == dialect and one.is_recognised and one.calls]
    services = {"openai_chat": ("openai", ""), "openai_responses": ("openai", "responses"),
                "anthropic_messages": ("anthropic", "messages"), "gemini": ("gemini", "generateContent")}  # fmt: skip
    service, api = services[dialect]
    for trajectory in traffic.provider_calls(service, api) if api else traffic.provider_chat(service):
        found += [one for one in carried(trajectory.exchanges) if one.is_recognised and one.calls]
    return [one for one in found if all(call.choice == 0 for call in one.calls)]


def fates_of(one: Carried, note: str, refused: ToolCall | None = None) -> list[Fate]:
    pieces = one.form.pieces(one.plain)
    assert len(pieces) == len(one.calls)
    fates = [Fate(call, raw, note=note) for call, raw in zip(one.calls, pieces, strict=True)]
    if refused is not None:
        call_id = refused.call_id
        raw = pieces[-1].replace(one.calls[-1].call_id.encode(), call_id.encode()) if call_id else pieces[-1]
        fates.insert(len(fates) // 2, Fate(refused, raw, ToolResult(call_id, REFUSED, True)))
    return fates


def told(one: Carried, fates: list[Fate]) -> bytes:
    return placed(one.later.body, one.form.field, one.form.told(one.raws, one.start, one.end, fates))


DIALECTS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_note_is_in_the_results_of_recorded_requests_and_every_other_byte_stays(dialect: str) -> None:
    traffic.require()
    noted = 0
    for one in with_calls(dialect):
        changed = told(one, fates_of(one, NOTE))
        noted += changed.count(NOTE.encode())
        assert told(one, fates_of(one, "")) == one.later.body
        after = listed_raws(changed, one.form.field)
        assert after[: one.end] == one.raws[: one.end] or dialect == "openai_responses"
        before = one.dialect.parse("POST", one.later.path, one.later.body)
        again = one.dialect.parse("POST", one.later.path, changed)
        assert (again.frame, again.context) == (before.frame, before.context)
    assert noted > 10


@pytest.mark.parametrize("dialect", DIALECTS)
def test_refused_call_has_its_place_and_its_result_in_recorded_requests(dialect: str) -> None:
    traffic.require()
    tried = 0
    for one in with_calls(dialect):
        last = one.calls[-1]
        refused = ToolCall(0, 99, "call_refused_1" if last.call_id else "", last.name, last.arguments)
        changed = told(one, fates_of(one, "", refused))
        raws = listed_raws(changed, one.form.field)
        end = one.form.end(one.dialect.parse("POST", one.later.path, changed).items, one.start, ["call_refused_1"])
        called = one.form.heard(raws[one.start : end]).calls
        assert len(called) == len(one.calls) + 1
        assert {digest for _, digest in called} == {digest for _, digest in one.heard.calls}
        assert changed.count(REFUSED.encode()) == 1
        tried += 1
    assert tried > 10


def test_bodies_with_what_the_model_is_told_are_what_sdks_take_for_valid() -> None:
    pydantic = pytest.importorskip("pydantic")
    openai_chat = pytest.importorskip("openai.types.chat")
    responses = pytest.importorskip("openai.types.responses.response_input_param")
    anthropic = pytest.importorskip("anthropic.types")
    forms = {
        "openai_chat": list[openai_chat.ChatCompletionMessageParam],
        "openai_responses": list[responses.ResponseInputItemParam],
        "anthropic_messages": list[anthropic.MessageParam],
    }
    for dialect, form in forms.items():
        adapter = pydantic.TypeAdapter(form)
        valid = 0
        for one in itertools.islice(with_calls(dialect), 12):
            try:
                adapter.validate_json(json.dumps(json.loads(one.later.body)[one.form.field]))
            except pydantic.ValidationError:
                continue  # nor is what the client itself sent
            last = one.calls[-1]
            refused = ToolCall(0, 99, "call_refused_1", last.name, last.arguments)
            for fates in (fates_of(one, NOTE), fates_of(one, NOTE, refused)):
                body = json.loads(told(one, fates))
                adapter.validate_json(json.dumps(body[one.form.field]))
                valid += 1
        assert valid > 4


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def _delta(**fields: Any) -> bytes:
    return _event(choices=[{"delta": fields, "finish_reason": None}])


@pytest.mark.parametrize(
    ("dialect", "piece", "said"),
    [
        ("openai_chat", _delta(role="assistant", content="", refusal=None), False),
        ("openai_chat", _delta(content="H"), True),
        ("openai_chat", _delta(reasoning_content="h"), True),
        ("openai_chat", b": keep-alive\n\n", False),
        ("openai_chat", b"data: {cut", True),
        ("openai_chat", _event(error="x"), True),
        ("anthropic_messages", b"event: message_start\n" + _event(type="message_start") + _event(type="ping"), False),
        ("anthropic_messages", _event(type="content_block_start"), True),
        ("openai_responses", b"event: response.created\n" + _event(type="response.created"), False),
        ("openai_responses", _event(type="response.output_item.added"), True),
        ("gemini", _event(candidates=[]), True),
    ],
)
def test_piece_of_a_stream_says_something_once_there_is_more_than_its_opening(
    dialect: str, piece: bytes, said: bool
) -> None:
    assert says(dialect, piece) is said
