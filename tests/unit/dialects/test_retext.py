"""Another text in the place of what an answer says, in each wire format: nothing else of it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.core.model import Shape
from agentstate.dialects import registry, retext
from agentstate.dialects.base import Dialect
from tests.support.wires import WIRES, Calling, Wire

CALLS = (Calling("call_a", "send_email", {"to": "bob"}), Calling("call_b", "search", {"to": "kim"}))
TEXTS = ["other", "", 'with "quotes", a \\ and\nlines ', "mit Umlauten äöü and 🙂"]


def dialect_of(wire: Wire) -> Dialect:
    found = registry.for_path("POST", registry.normalise(wire.path))
    assert found is not None
    return found


def asked(wire: Wire) -> Any:
    return dialect_of(wire).parse("POST", registry.normalise(wire.path), wire.ask([wire.user("hi")]))


def shapes(wire: Wire) -> list[Shape]:
    return [Shape(True), *([Shape(True, array=True)] if wire.name == "gemini" else [])]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("calls", [(), CALLS], ids=["text", "calls"])
@pytest.mark.parametrize("old", ["before", ""], ids=["said", "silent"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_text_is_replaced_and_calls_stay(wire: Wire, old: str, calls: tuple[Calling, ...], text: str) -> None:
    dialect, call = dialect_of(wire), asked(wire)
    plain = wire.answer(old, *calls)
    made = retext.with_text(dialect.name, plain, text)
    assert retext.text_of(dialect.name, made) == text
    was, is_ = dialect.judge(call, plain), dialect.judge(call, made)
    assert (is_.fault, is_.finish) == (was.fault, was.finish)
    said = [(one.call_id, one.name, json.loads(one.arguments)) for one in was.calls]
    assert [(one.call_id, one.name, json.loads(one.arguments)) for one in is_.calls] == said
    assert len(said) == len(calls)
    assert b"before" not in made


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_edited_answer_says_the_same_in_every_shape(wire: Wire) -> None:
    dialect, call = dialect_of(wire), asked(wire)
    made = retext.with_text(dialect.name, wire.answer("before", *CALLS), "other")
    for shape in shapes(wire):
        streamed = dialect.convert(Shape(), shape, made)
        assert streamed == dialect.convert(Shape(), shape, made)
        gate = dialect.gate(call._replace(shape=shape))
        gate.feed(streamed)
        verdict = gate.finish()
        assert (verdict.fault, [one.name for one in verdict.calls]) == ("", ["send_email", "search"])
        back = dialect.convert(shape, Shape(), streamed)
        assert retext.text_of(dialect.name, back) == "other"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
def test_same_text_changes_no_meaning_and_what_nobody_knows_stays(wire: Wire) -> None:
    plain = wire.answer("before", *CALLS)
    name = dialect_of(wire).name
    assert retext.text_of(name, plain) == "before"
    made = json.loads(retext.with_text(name, plain, "other"))
    assert json.dumps(made).replace("other", "before") == json.dumps(json.loads(plain))


def test_thoughts_and_their_signatures_stay_before_the_text() -> None:
    block = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    plain = json.dumps({"content": [block], "stop_reason": "end_turn"}).encode()
    made = json.loads(retext.with_text("anthropic_messages", plain, "well"))
    assert made["content"] == [block, {"type": "text", "text": "well"}]


def test_several_texts_become_one() -> None:
    called = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    blocks = [{"type": "text", "text": "a", "citations": [1]}, called, {"type": "text", "text": "b"}]
    plain = json.dumps({"content": blocks, "stop_reason": "tool_use"}).encode()
    assert retext.text_of("anthropic_messages", plain) == "ab"
    made = json.loads(retext.with_text("anthropic_messages", plain, "c"))
    assert made["content"] == [{"type": "text", "text": "c", "citations": None}, blocks[1]]


def test_legacy_completion_is_edited_and_what_speaks_of_the_old_text_goes() -> None:
    plain = b'{"id": "cmpl-1", "choices": [{"text": "old", "index": 0, "logprobs": {"tokens": ["old"]}}]}'
    made = retext.with_text("openai_completions", plain, "new")
    assert made == b'{"id": "cmpl-1", "choices": [{"text": "new", "index": 0, "logprobs": null}]}'


@pytest.mark.parametrize(
    ("dialect", "plain", "why"),
    [
        ("openai_chat", {"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}, "2 choices"),
        ("openai_chat", {"choices": [{"message": {"content": None, "audio": {"id": "au_1"}}}]}, "spoken"),
        ("ollama_chat", {"response": "a", "context": [1, 2], "done": True}, "form of its provider's own"),
        ("gemini", {"candidates": []}, "0 choices"),
        ("mcp", {}, "cannot be edited"),
    ],
)
def test_what_cannot_be_edited_says_why(dialect: str, plain: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        retext.with_text(dialect, json.dumps(plain).encode(), "x")
