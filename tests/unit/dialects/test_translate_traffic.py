"""Recorded traffic goes over in every direction: questions are valid ones, answers the same that were recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from agentstate.core.model import Shape
from agentstate.dialects import translate
from agentstate.dialects.registry import BY_NAME, for_path, normalise
from agentstate.errors import Untranslatable
from tests.support import traffic
from tests.support.traffic import Exchange
from tests.unit.dialects.test_translate_roundtrip import check
from tests.unit.dialects.translating import CHAT, MESSAGES, PAIRS, RESPONSES, Body, simple

SERVICES = {
    CHAT: ("chat.completions", ("openai", "azure", "groq", "mistral", "openrouter", "xai", "deepseek", "ollama")),
    RESPONSES: ("responses", ("openai", "azure", "xai", "deepseek")),
    MESSAGES: ("messages", ("anthropic",)),
}
MODELS = {
    CHAT: ("gpt-4o", "gpt-5"),
    RESPONSES: ("gpt-5",),
    MESSAGES: ("claude-sonnet-5-5", "claude-haiku-4-5", "claude-opus-5"),
}


@cache
def recorded(dialect: str) -> tuple[Exchange, ...]:
    """Successful exchanges of a dialect: those of services, then those of agent clients."""
    traffic.require()
    api, services = SERVICES[dialect]
    found = [
        exchange
        for service in services
        for trajectory in traffic.provider_calls(service, api)
        for exchange in trajectory.exchanges
    ]
    for name, _ in traffic.double_runs().values():
        found += traffic.client_all(name)
    kept = {exchange.id: exchange for exchange in found if exchange.status == 200 and exchange.method == "POST"}
    of_this = []
    for exchange in kept.values():
        known = for_path("POST", normalise(exchange.path.partition("?")[0]))
        if known is not None and known.name == dialect:
            of_this.append(exchange)
    assert len(of_this) > 100
    return tuple(of_this)


def translated(source: str, target: str) -> Iterator[tuple[Exchange, str, Body]]:
    """What could be asked of each model of the target's."""
    for exchange in recorded(source):
        for model in MODELS[target]:
            try:
                found = translate.question(source, target, exchange.request, model)
            except Untranslatable as refused:
                assert refused.message
                continue
            yield exchange, model, json.loads(found.body)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_questions_are_ones_by_the_types_of_the_targets_sdk(source: str, target: str) -> None:
    count = 0
    for place, (exchange, model, body) in enumerate(translated(source, target)):
        assert body["model"] == model
        if place % 7 == 0:  # the types are checked of some: each takes milliseconds
            try:
                check(target, body)
            except (AssertionError, ValueError) as wrong:
                raise AssertionError(f"{exchange.id} for {model}: {str(wrong)[:600]}") from None
        count += 1
    assert count > len(recorded(source)) * len(MODELS[target]) // 2  # most can go over


@pytest.mark.parametrize("source", [CHAT, RESPONSES])
def test_recorded_questions_keep_the_rules_of_order_of_anthropic(source: str) -> None:
    for exchange, _, body in translated(source, MESSAGES):
        messages = body["messages"]
        assert messages[0]["role"] == "user", exchange.id
        ids: set[str] = set()
        for place, message in enumerate(messages):
            assert place == 0 or message["role"] != messages[place - 1]["role"], exchange.id
            blocks = message["content"]
            assert blocks, exchange.id
            blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
            kinds = [block["type"] == "tool_result" for block in blocks]
            assert kinds == sorted(kinds, reverse=True), exchange.id  # results first
            assert all(block["text"].strip() for block in blocks if block["type"] == "text"), exchange.id
            called = {block["id"] for block in blocks if block["type"] == "tool_use"}
            assert not called & ids, exchange.id
            ids |= called
            answered = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
            assert answered <= ids, exchange.id


@pytest.mark.parametrize("source", [RESPONSES, MESSAGES])
def test_recorded_questions_keep_the_rules_of_order_of_chat(source: str) -> None:
    for exchange, _, body in translated(source, CHAT):
        open_: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in open_, exchange.id
                open_.discard(message["tool_call_id"])
            else:
                assert message.get("content") or message.get("tool_calls"), exchange.id
                open_ = {call["id"] for call in message.get("tool_calls") or ()}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_recorded_answers_say_the_same_to_an_agent_of_another_dialect(source: str, target: str) -> None:
    known, other = BY_NAME[source], BY_NAME[target]
    count = 0
    for exchange in recorded(target):
        call = other.parse("POST", "x", exchange.request)
        stream, plain = Shape(stream=exchange.streamed), Shape()
        body = other.convert(stream, plain, exchange.response)
        if b'"response.compaction"' in body:
            continue
        was = other.judge(call, body)
        if was.fault or was.failed or "queued" in was.finish:
            continue
        asked = json.dumps(simple(source)).encode()
        try:
            found = translate.answer(source, target, asked, body)
        except Untranslatable as refused:
            assert any(
                word in refused.message for word in ("choices", "audio", "tool_search", "shell", "computer")
            ) or ("call" in refused.message), exchange.id
            continue
        now = known.judge(known.parse("POST", "x", asked), found.body)
        assert (now.fault, now.model) == ("", was.model), exchange.id
        assert [one.name for one in now.calls] == [one.name for one in was.calls], exchange.id
        back = known.convert(Shape(stream=True, usage=source == CHAT), plain, known.convert(
            plain, Shape(stream=True, usage=source == CHAT), found.body))  # fmt: skip
        assert texts(source, json.loads(back)) == texts(target, json.loads(body)), exchange.id
        count += 1
    assert count > 60


def texts(dialect: str, body: Body) -> str:
    """All that an answer says in words."""
    if dialect == MESSAGES:
        parts = [block.get("text", "") for block in body["content"] if block["type"] == "text"]
    elif dialect == CHAT:
        message = body["choices"][0].get("message") or {}
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if part["type"] == "text")
        parts = [content if isinstance(content, str) else json.dumps(content), message.get("refusal") or ""]
    else:
        inner = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
        parts = [part.get("text") or part.get("refusal") or "" for part in inner]
    return "".join(parts)
