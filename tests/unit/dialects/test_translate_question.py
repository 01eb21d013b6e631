"""A question goes over to another dialect with what it means; what cannot go is named, or the question refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentstate.dialects import translate
from agentstate.dialects.registry import BY_NAME, for_path
from agentstate.dialects.translate_models import DEFAULT_MAX_TOKENS
from agentstate.errors import Untranslatable
from tests.unit.dialects.translating import CHAT, MESSAGES, NAMES, PAIRS, RESPONSES, Body, ask, simple

SCHEMA = {
    "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False,
}  # fmt: skip
CHAT_TOOL = {"type": "function", "function": {"name": "look_up", "description": "Find.", "parameters": SCHEMA}}
ITEM_TOOL = {"type": "function", "name": "look_up", "description": "Find.", "parameters": SCHEMA, "strict": False}
BLOCK_TOOL = {"name": "look_up", "description": "Find.", "input_schema": SCHEMA}
TOOLS: dict[str, Body] = {CHAT: CHAT_TOOL, RESPONSES: ITEM_TOOL, MESSAGES: BLOCK_TOOL}
PNG = base64.b64encode(b"\x89PNG").decode()
PDF = base64.b64encode(b"%PDF-1.7").decode()
CALL = {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": '{"q":"x"}'}}


def user(text: str) -> Body:
    return {"role": "user", "content": text}


def chat_of(*messages: Body, **more: Any) -> Body:
    return {"model": "m", "messages": list(messages), **more}


# --- the face ---------------------------------------------------------------------------------------------------------


def test_translation_goes_between_three_dialects_and_from_none_to_itself() -> None:
    assert {(one, other) for one in BY_NAME for other in BY_NAME if translate.translatable(one, other)} == set(PAIRS)
    with pytest.raises(Untranslatable, match="no translation from gemini"):
        translate.question("gemini", CHAT, b"{}", "m")


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_question_is_asked_plainly_of_the_candidates_model_at_the_targets_path(source: str, target: str) -> None:
    options = {} if source == MESSAGES else {"stream_options": {"include_obfuscation": False}}
    asked = json.dumps(simple(source, stream=True, **options)).encode()
    found = translate.question(source, target, asked, "candidate-1")
    body = json.loads(found.body)
    assert body["model"] == "candidate-1" and "stream" not in body and "stream_options" not in body
    dialect = for_path("POST", found.path)
    assert dialect is not None and dialect.name == target
    call = dialect.parse("POST", found.path, found.body)
    assert (call.model, call.shape.stream, len(call.items)) == ("candidate-1", False, 1)
    assert found.losses == ()


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"messages": 3}', b'{"messages":["x"]}', b'{"a": 1e999}', b"\xff{}"])
def test_what_is_no_question_is_refused_and_never_guessed_at(body: bytes) -> None:
    for source, target in PAIRS:
        with pytest.raises(Untranslatable):
            translate.question(source, target, body, "m")


def test_large_numbers_keep_their_value() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body, _ = ask(CHAT, MESSAGES, chat_of(user("hi"), tools=[tool]))
    assert body["tools"][0]["input_schema"] == schema


# --- limits and sampling ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "asked", "limit", "losses"),
    [
        ("claude-sonnet-5-5", None, DEFAULT_MAX_TOKENS, ()),
        ("claude-3-haiku-20240307", None, 4096, ()),
        ("llama3.2", None, DEFAULT_MAX_TOKENS, ()),
        ("claude-sonnet-5-5", 50, 50, ()),
        ("claude-3-5-sonnet-20241022", 20_000, 8192, ("max_tokens (lowered to 8192)",)),
    ],
)
def test_anthropic_is_told_a_limit_that_the_model_takes(
    model: str, asked: int | None, limit: int, losses: tuple[str, ...]
) -> None:
    body, lost = ask(CHAT, MESSAGES, chat_of(user("hi"), max_completion_tokens=asked), model)
    assert (body["max_tokens"], lost) == (limit, losses)


@pytest.mark.parametrize(
    ("target", "model", "field", "limit"),
    [
        (CHAT, "gpt-5", "max_completion_tokens", 32_000),
        (CHAT, "gpt-4o", "max_tokens", 16_384),  # which refuses more
        (CHAT, "mistral-large", "max_tokens", 32_000),
        (RESPONSES, "gpt-5", "max_output_tokens", 32_000),
        (RESPONSES, "gpt-4o", "max_output_tokens", 16_384),
    ],
)
def test_openai_is_told_the_limit_in_the_field_that_the_model_knows(
    target: str, model: str, field: str, limit: int
) -> None:
    body, losses = ask(MESSAGES, target, simple(MESSAGES, max_tokens=32_000), model)
    assert {name: said for name, said in body.items() if "tokens" in name} == {field: limit}
    assert losses == (() if limit == 32_000 else (f"max_tokens (lowered to {limit})",))


def test_a_limit_below_the_least_of_responses_is_raised() -> None:
    body, losses = ask(CHAT, RESPONSES, chat_of(user("hi"), max_tokens=5))
    assert body["max_output_tokens"] == 16 and losses == ("max_tokens (raised to 16)",)


@pytest.mark.parametrize(
    ("target", "model", "said", "losses"),
    [
        (MESSAGES, "claude-sonnet-4-5", {"temperature": 0.2}, ("top_p",)),  # which takes one of the two
        (MESSAGES, "claude-3-haiku-20240307", {"temperature": 0.2, "top_p": 0.9}, ()),
        (MESSAGES, "claude-opus-5", {}, ("temperature", "top_p")),
        (MESSAGES, "qwen3", {"temperature": 0.2, "top_p": 0.9}, ()),
        (RESPONSES, "gpt-4.1", {"temperature": 0.2, "top_p": 0.9}, ()),
        (RESPONSES, "o3", {}, ("temperature", "top_p")),
    ],
)
def test_sampling_goes_to_models_that_take_it(target: str, model: str, said: Body, losses: tuple[str, ...]) -> None:
    body, lost = ask(CHAT, target, chat_of(user("hi"), temperature=0.2, top_p=0.9), model)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == said
    assert lost == losses


def test_a_temperature_beyond_anthropics_range_is_lowered() -> None:
    body, losses = ask(CHAT, MESSAGES, chat_of(user("hi"), temperature=1.6))
    assert body["temperature"] == 1 and losses == ("temperature (lowered to 1)",)


def test_stop_sequences_go_over_where_they_are_taken() -> None:
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), stop="END"))[0]["stop_sequences"] == ["END"]
    body, losses = ask(CHAT, MESSAGES, chat_of(user("hi"), stop=["END", "\n"]))
    assert body["stop_sequences"] == ["END"] and losses == ("stop (blanks only)",)
    five = simple(MESSAGES, stop_sequences=list("abcde"))
    body, losses = ask(MESSAGES, CHAT, five)
    assert body["stop"] == list("abcd") and losses == ("stop (4 of them)",)
    for target, model in ((CHAT, "gpt-5"), (RESPONSES, "gpt-4o")):
        body, losses = ask(MESSAGES, target, five, model)
        assert "stop" not in body and losses == ("stop",)


def test_what_only_one_dialect_can_say_is_a_loss_unless_it_says_nothing() -> None:
    said = {"seed": 7, "logprobs": True, "top_logprobs": 2, "presence_penalty": 0.1, "frequency_penalty": 0.1,
            "logit_bias": {"1": 1}, "prediction": {"type": "content", "content": "x"}, "store": True}  # fmt: skip
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), **said))[1] == tuple(sorted(said))
    nothing = {"seed": None, "logprobs": False, "presence_penalty": 0, "logit_bias": {}, "store": False, "n": 1}
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), **nothing))[1] == ()
    assert ask(MESSAGES, CHAT, simple(MESSAGES, top_k=5, inference_geo="eu"))[1] == ("inference_geo", "top_k")
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), something_new={"a": 1}))[1] == ("something_new",)


def test_the_user_goes_over_under_its_name_in_the_dialect() -> None:
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), user="u-1"))[0]["metadata"] == {"user_id": "u-1"}
    body, losses = ask(RESPONSES, MESSAGES, simple(RESPONSES, safety_identifier="s-1", metadata={"a": "b"}))
    assert body["metadata"] == {"user_id": "s-1"} and losses == ("metadata",)
    assert ask(MESSAGES, CHAT, simple(MESSAGES, metadata={"user_id": "u-1"}))[0]["user"] == "u-1"
    body, losses = ask(MESSAGES, CHAT, simple(MESSAGES, metadata={"user_id": "u" * 65}))
    assert "user" not in body and losses == ("metadata.user_id",)


def test_service_tiers_that_both_have_go_over() -> None:
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), service_tier="default"))[0]["service_tier"] == "standard_only"
    assert ask(MESSAGES, CHAT, simple(MESSAGES, service_tier="standard_only"))[0]["service_tier"] == "default"
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), service_tier="auto"))[1] == ()
    assert ask(CHAT, MESSAGES, chat_of(user("hi"), service_tier="flex"))[1] == ("service_tier",)
    assert ask(CHAT, RESPONSES, chat_of(user("hi"), service_tier="flex"))[0]["service_tier"] == "flex"


def test_what_openais_dialects_share_goes_over_as_it_is() -> None:
    said = {"prompt_cache_key": "k", "safety_identifier": "s", "user": "u", "verbosity": "low"}
    body, losses = ask(CHAT, RESPONSES, chat_of(user("hi"), metadata={"a": "b"}, **said))
    assert body["text"] == {"verbosity": "low"} and body["metadata"] == {"a": "b"} and losses == ()
    assert {name: body[name] for name in ("prompt_cache_key", "safety_identifier", "user")} == {
        "prompt_cache_key": "k", "safety_identifier": "s", "user": "u",
    }  # fmt: skip
    body, losses = ask(RESPONSES, CHAT, simple(RESPONSES, metadata={"a": "b"}, text={"verbosity": "low"}))
    assert body["verbosity"] == "low" and losses == ("metadata",)


def test_an_answer_to_a_translated_question_is_not_stored() -> None:
    for source in (CHAT, MESSAGES):
        assert ask(source, RESPONSES, simple(source))[0]["store"] is False


# --- thinking ---------------------------------------------------------------------------------------------------------

LOOKED_UP = [
    user("hi"),
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "found"},
]
OFF = "reasoning_effort (no thinking after calls of another provider)"


@pytest.mark.parametrize(
    ("model", "effort", "said", "losses"),
    [
        ("claude-opus-5", "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, ()),
        ("claude-opus-5", "minimal", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
         ("reasoning_effort (minimal as low)",)),
        ("claude-opus-4-6", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
         ("reasoning_effort (xhigh as high)",)),
        ("claude-opus-4-5", "medium", {"output_config": {"effort": "medium"}}, ()),
        ("claude-haiku-4-5", "medium", {"thinking": {"type": "enabled", "budget_tokens": 10_000}}, ()),
        ("claude-3-haiku-20240307", "medium", {}, ("reasoning_effort",)),
        ("qwen3", "medium", {}, ("reasoning_effort",)),
        ("claude-opus-5", "none", {"thinking": {"type": "disabled"}}, ()),
        ("claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}, ()),
        ("claude-fable-5", "none", {}, ()),  # cannot be kept from it
        ("claude-opus-4-6", "none", {}, ()),  # does not think unasked
        ("claude-opus-5", None, {}, ()),
    ],
)  # fmt: skip
def test_an_effort_becomes_thinking_in_the_way_the_model_knows(
    model: str, effort: str | None, said: Body, losses: tuple[str, ...]
) -> None:
    body, lost = ask(CHAT, MESSAGES, chat_of(user("hi"), reasoning_effort=effort), model)
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == said
    assert lost == losses


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "losses"),
    [
        ("claude-opus-5", "high", {"type": "disabled"}, (OFF,)),
        ("claude-opus-5", None, {"type": "disabled"}, ()),  # it would think unasked
        ("claude-sonnet-5-5", "high", {"type": "between_tools"}, (OFF,)),
        ("claude-opus-4-6", "high", None, (OFF,)),
        ("claude-haiku-4-5", "high", None, (OFF,)),
    ],
)
def test_thinking_is_off_where_another_providers_answers_have_called_tools(
    model: str, effort: str | None, thinking: Body | None, losses: tuple[str, ...]
) -> None:
    body, lost = ask(CHAT, MESSAGES, chat_of(*LOOKED_UP, reasoning_effort=effort, tools=[CHAT_TOOL]), model)
    assert (body.get("thinking"), lost) == (thinking, losses)


@pytest.mark.parametrize(
    ("said", "model", "effort", "losses"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2_048}}, "gpt-5", "low", ()),
        ({"thinking": {"type": "enabled", "budget_tokens": 10_000}}, "gpt-5", "medium", ()),
        ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, "gpt-5", "high", ()),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "gpt-5", "low", ()),
        ({"thinking": {"type": "adaptive"}}, "gpt-5", None, ()),
        ({"output_config": {"effort": "max"}}, "gpt-5", "high", ("reasoning_effort (max as high)",)),
        ({"thinking": {"type": "disabled"}}, "gpt-5.2", "none", ()),
        ({"thinking": {"type": "disabled"}}, "gpt-5", "minimal", ("reasoning_effort (none as minimal)",)),
        ({"thinking": {"type": "disabled"}}, "gpt-4o", None, ()),
        ({"thinking": {"type": "enabled", "budget_tokens": 2_048}}, "gpt-4o", None, ("reasoning_effort",)),
    ],
)
def test_thinking_becomes_an_effort_that_the_model_takes(
    said: Body, model: str, effort: str | None, losses: tuple[str, ...]
) -> None:
    body, lost = ask(MESSAGES, CHAT, simple(MESSAGES, **said), model)
    assert (body.get("reasoning_effort"), lost) == (effort, losses)
    body, lost = ask(MESSAGES, RESPONSES, simple(MESSAGES, **said), model)
    assert (body.get("reasoning"), lost) == ({"effort": effort} if effort else None, losses)


def test_foreign_thinking_never_goes_over() -> None:
    blocks = [
        {"type": "thinking", "thinking": "secret thought", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2Vj"},
        {"type": "text", "text": "hello"},
    ]
    asked = simple(MESSAGES, messages=[user("a"), {"role": "assistant", "content": blocks}, user("b")])
    for target in (CHAT, RESPONSES):
        body, losses = ask(MESSAGES, target, asked)
        assert losses == ("thinking (foreign signature)",)
        assert not any(word in json.dumps(body) for word in ("secret", "c2ln", "c2Vj", "thinking", "reasoning"))
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2Vj"}
    asked = simple(RESPONSES, input=[user("a"), reasoning, {"role": "assistant", "content": "hello"}, user("b")])
    for target in (CHAT, MESSAGES):
        body, losses = ask(RESPONSES, target, asked)
        assert losses == ("thinking (foreign signature)",) and "c2Vj" not in json.dumps(body)
    before = {"role": "assistant", "content": "hello", "reasoning_content": "secret thought"}
    body, losses = ask(CHAT, MESSAGES, chat_of(user("a"), before, user("b")))
    assert losses == ("thinking (foreign signature)",) and "secret" not in json.dumps(body)


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_tool_is_the_same_tool_in_every_dialect(source: str, target: str) -> None:
    body, losses = ask(source, target, simple(source, tools=[TOOLS[source]]))
    wanted = TOOLS[target]
    if (source, target) == (RESPONSES, CHAT):
        wanted = {**CHAT_TOOL, "function": {**CHAT_TOOL["function"], "strict": False}}
    assert body["tools"] == [wanted] and losses == ()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_strict_tool_stays_strict(source: str, target: str) -> None:
    def strict(dialect: str) -> Body:
        if dialect == CHAT:
            return {**CHAT_TOOL, "function": {**CHAT_TOOL["function"], "strict": True}}
        return {**TOOLS[dialect], "strict": True}

    body, losses = ask(source, target, simple(source, tools=[strict(source)]))
    assert body["tools"] == [strict(target)] and losses == ()


def test_a_tool_is_strict_only_where_the_target_would_take_its_schema_so() -> None:
    open_ = {"type": "object", "properties": {"q": {"type": "string"}}}
    body, losses = ask(MESSAGES, CHAT, simple(MESSAGES, tools=[{**BLOCK_TOOL, "input_schema": open_, "strict": True}]))
    assert body["tools"][0]["function"]["strict"] is False and losses == ("tools.strict",)
    bounded = {**SCHEMA, "properties": {"q": {"type": "integer", "minimum": 1}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": bounded, "strict": True}}
    body, losses = ask(CHAT, MESSAGES, chat_of(user("hi"), tools=[tool]))
    assert "strict" not in body["tools"][0] and body["tools"][0]["input_schema"] == bounded
    assert losses == ("tools.strict",) and translate.loses_tools_or_structure(losses)


CHOICES: list[dict[str, Any]] = [
    {CHAT: "auto", RESPONSES: "auto", MESSAGES: {"type": "auto"}},
    {CHAT: "none", RESPONSES: "none", MESSAGES: {"type": "none"}},
    {CHAT: "required", RESPONSES: "required", MESSAGES: {"type": "any"}},
    {
        CHAT: {"type": "function", "function": {"name": "look_up"}},
        RESPONSES: {"type": "function", "name": "look_up"},
        MESSAGES: {"type": "tool", "name": "look_up"},
    },
]


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_choice_of_tools_is_the_same_choice(source: str, target: str, choice: dict[str, Any]) -> None:
    body, losses = ask(source, target, simple(source, tools=[TOOLS[source]], tool_choice=choice[source]))
    assert body["tool_choice"] == choice[target] and losses == ()


def test_a_choice_among_some_tools_offers_anthropic_those_alone() -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": SCHEMA}}
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look_up"}}]}
    asked = chat_of(user("hi"), tools=[CHAT_TOOL, other],
                    tool_choice={"type": "allowed_tools", "allowed_tools": allowed})  # fmt: skip
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["tools"] == [BLOCK_TOOL] and body["tool_choice"] == {"type": "any"} and losses == ()
    body, _ = ask(CHAT, RESPONSES, asked)
    wanted = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look_up"}]}
    assert body["tool_choice"] == wanted and len(body["tools"]) == 2
    assert ask(RESPONSES, CHAT, body | {"tools": [ITEM_TOOL]})[0]["tool_choice"]["allowed_tools"] == allowed


@pytest.mark.parametrize("parallel", [True, False])
def test_whether_calls_may_be_parallel_goes_over_turned_round(parallel: bool) -> None:
    asked = chat_of(user("hi"), tools=[CHAT_TOOL], parallel_tool_calls=parallel)
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": not parallel} and losses == ()
    assert ask(MESSAGES, CHAT, body)[0]["parallel_tool_calls"] is parallel
    assert ask(MESSAGES, RESPONSES, body)[0]["parallel_tool_calls"] is parallel
    assert ask(CHAT, RESPONSES, asked)[0]["parallel_tool_calls"] is parallel


def test_without_tools_nothing_is_said_of_their_choice() -> None:
    asked = chat_of(user("hi"), parallel_tool_calls=False, tool_choice="none")
    assert "tool_choice" not in ask(CHAT, MESSAGES, asked)[0]
    assert "parallel_tool_calls" not in ask(CHAT, RESPONSES, asked)[0]


def test_a_model_that_takes_no_forced_choice_is_left_to_choose() -> None:
    asked = chat_of(user("hi"), tools=[CHAT_TOOL], tool_choice="required")
    body, losses = ask(CHAT, MESSAGES, asked, "claude-sonnet-5-5")
    assert body["tool_choice"] == {"type": "auto"} and losses == ("tool_choice (forced)",)
    assert translate.loses_tools_or_structure(losses)


def test_tools_that_a_provider_runs_are_a_loss_beside_others_and_refused_alone() -> None:
    for source, kind in ((RESPONSES, "web_search"), (MESSAGES, "web_search_20250305"), (RESPONSES, "mcp")):
        target = CHAT
        body, losses = ask(source, target, simple(source, tools=[TOOLS[source], {"type": kind, "name": "w"}]))
        assert len(body["tools"]) == 1 and losses == (f"tools ({kind})",)
        assert translate.loses_tools_or_structure(losses)
        with pytest.raises(Untranslatable, match=kind):
            ask(source, target, simple(source, tools=[{"type": kind}]))


@pytest.mark.parametrize(
    ("source", "body", "why"),
    [
        (CHAT, {"n": 2}, "n > 1"),
        (CHAT, {"modalities": ["text", "audio"], "audio": {"voice": "x"}}, "audio"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input_audio"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, "file"),
        (CHAT, {"web_search_options": {}}, "web_search_options"),
        (CHAT, {"messages": [{"role": "critic", "content": "x"}]}, "role 'critic'"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
        (RESPONSES, {"conversation": "conv_1"}, "conversation"),
        (RESPONSES, {"prompt": {"id": "p"}}, "prompt"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        (RESPONSES, {"tools": [{"type": "local_shell"}]}, "local_shell"),
        (RESPONSES, {"tools": [ITEM_TOOL, {"type": "computer_use_preview"}]}, "computer_use_preview"),
        (RESPONSES, {"tool_choice": {"type": "web_search"}}, "web_search"),
        (RESPONSES, {"input": [{"type": "computer_call_output"}]}, "computer_call_output"),
        (RESPONSES, {"input": [user("x") | {"content": [{"type": "input_image", "file_id": "f"}]}]}, "file"),
        (MESSAGES, {"container": "c"}, "container"),
        (MESSAGES, {"thread": {"previous_message_id": "m"}}, "thread"),
        (MESSAGES, {"max_tokens": 0}, "max_tokens"),
        (MESSAGES, {"tools": [BLOCK_TOOL, {"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"),
        (MESSAGES, {"messages": []}, "no messages"),
        (MESSAGES, {"messages": [user("x") | {"content": [{"type": "container_upload"}]}]}, "container_upload"),
        (MESSAGES, {"messages": [user("x") | {"content": [{"type": "image", "source": {"type": "file"}}]}]}, "file"),
    ],
)
def test_what_would_not_mean_the_same_is_refused_with_the_reason(source: str, body: Body, why: str) -> None:
    for target in NAMES:
        if target != source:
            with pytest.raises(Untranslatable, match=why):
                ask(source, target, simple(source) | body)


# --- structured output ------------------------------------------------------------------------------------------------

FORMATS: dict[str, Body] = {
    CHAT: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
        }
    },
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_an_answer_by_a_schema_is_asked_for_in_every_dialect(source: str, target: str) -> None:
    body, losses = ask(source, target, simple(source) | FORMATS[source])
    [field] = FORMATS[target]
    assert body[field] == FORMATS[target][field]
    assert losses == (("response_format.name",) if target == MESSAGES else ())
    assert not translate.loses_tools_or_structure(losses)


def test_anthropic_gets_the_part_of_a_schema_that_it_takes() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1},
            "when": {"type": "string", "format": "date"},
            "minimum": {"oneOf": [{"type": "string", "format": "odd"}, {"type": "null"}]},
        },
        "additionalProperties": True,
    }
    asked = chat_of(user("hi"), response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "when": {"type": "string", "format": "date"},
            "minimum": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "additionalProperties": False,
    }
    assert [loss for loss in losses if "schema" in loss] == [
        "response_format.schema (additionalProperties)",
        "response_format.schema (format)",
        "response_format.schema (minimum)",
    ]
    assert translate.loses_tools_or_structure(losses)


def test_structure_that_the_target_does_not_have_is_a_grave_loss() -> None:
    body, losses = ask(CHAT, MESSAGES, chat_of(user("hi"), response_format={"type": "json_object"}))
    assert "output_config" not in body and losses == ("response_format (json_object)",)
    assert translate.loses_tools_or_structure(losses)
    body, losses = ask(CHAT, MESSAGES, simple(CHAT) | FORMATS[CHAT], "claude-3-haiku-20240307")
    assert "output_config" not in body and translate.loses_tools_or_structure(losses)
    assert ask(CHAT, RESPONSES, chat_of(user("hi"), response_format={"type": "json_object"}))[0]["text"] == {
        "format": {"type": "json_object"}
    }


def test_losses_of_other_things_are_not_grave() -> None:
    harmless = ("cache_control", "thinking (foreign signature)", "temperature", "response_format.name", "seed")
    assert not translate.loses_tools_or_structure(harmless)


# --- conversations ----------------------------------------------------------------------------------------------------


def test_results_stand_first_in_the_message_right_after_their_calls_in_their_order() -> None:
    second = {**CALL, "id": "call_2"}
    body, losses = ask(
        CHAT,
        MESSAGES,
        chat_of(
            user("go"),
            {"role": "assistant", "content": "on it", "tool_calls": [CALL, second]},
            {"role": "tool", "tool_call_id": "call_2", "content": "two"},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "one"}]},
            user("and now?"),
            tools=[CHAT_TOOL],
        ),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "two"},
        {"type": "text", "text": "and now?"},
    ]
    assert losses == ()


def test_a_message_with_results_and_more_becomes_results_and_then_the_message() -> None:
    content = [
        {"type": "text", "text": "look:"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True},
    ]
    asked = simple(
        MESSAGES,
        messages=[
            user("go"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
            {"role": "user", "content": content},
        ],
    )
    body, losses = ask(MESSAGES, CHAT, asked)
    assert body["messages"][2:] == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "no such file"},
        user("look:"),
    ]
    assert losses == ("tool_result.is_error",)
    items = ask(MESSAGES, RESPONSES, asked)[0]["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user", "function_call", "function_call_output", "user",
    ]  # fmt: skip


def test_items_of_a_response_that_follow_each_other_are_one_answer() -> None:
    items = [
        user("go"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "on it"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": ""},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call_output", "call_id": "call_1", "output": "one"},
    ]
    body, losses = ask(RESPONSES, CHAT, simple(RESPONSES, input=items))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [message["tool_call_id"] for message in body["messages"][2:]] == ["call_1", "call_2"]
    assert body["messages"][1]["content"] == "on it" and losses == ()
    body, _ = ask(RESPONSES, MESSAGES, simple(RESPONSES, input=items))
    assert [block["input"] for block in body["messages"][1]["content"][1:]] == [{"a": 1}, {}]


def test_system_and_developer_texts_lead_and_later_ones_are_moved_with_a_loss() -> None:
    asked = chat_of({"role": "system", "content": "one"}, {"role": "developer", "content": "two"}, user("hi"))
    body, losses = ask(CHAT, MESSAGES, asked)
    assert [block["text"] for block in body["system"]] == ["one", "two"] and losses == ()
    assert ask(CHAT, RESPONSES, asked)[0]["instructions"] == "one\n\ntwo"
    asked["messages"] += [{"role": "assistant", "content": "x"}, {"role": "system", "content": "three"}, user("y")]
    body, losses = ask(CHAT, MESSAGES, asked)
    assert [block["text"] for block in body["system"]] == ["one", "two", "three"]
    assert losses == ("system messages (moved to the front)",)
    items = ask(CHAT, RESPONSES, asked)[0]["input"]
    assert [item["role"] for item in items] == ["user", "assistant", "system", "user"]


def test_system_blocks_are_one_text_elsewhere_without_the_billing_line() -> None:
    blocks = [{"type": "text", "text": text} for text in ("x-anthropic-billing-header: cch=1;", "one", "two")]
    body, losses = ask(MESSAGES, CHAT, simple(MESSAGES, system=blocks))
    assert body["messages"][0] == {"role": "system", "content": "one\n\ntwo"}
    assert losses == ("system (billing line)",)


def test_cache_marks_are_a_loss_wherever_they_stand() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    for asked in (
        simple(MESSAGES, **mark),
        simple(MESSAGES, tools=[BLOCK_TOOL | mark]),
        simple(MESSAGES, system=[{"type": "text", "text": "x"} | mark]),
        simple(MESSAGES, messages=[{"role": "user", "content": [{"type": "text", "text": "x"} | mark]}]),
    ):
        for target in (CHAT, RESPONSES):
            body, losses = ask(MESSAGES, target, asked)
            assert losses == ("cache_control",) and "cache_control" not in json.dumps(body)


def test_no_message_is_empty_and_roles_alternate() -> None:
    body, losses = ask(
        CHAT,
        MESSAGES,
        chat_of(
            {"role": "assistant", "content": "welcome"},
            user("a"),
            user(" \n"),
            {"role": "assistant", "content": ""},
            user("b"),
        ),
    )
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("user", "(continue)"),
        ("assistant", "welcome"),
        ("user", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    ]
    assert losses == ("messages (the user begins)",)


def test_a_question_of_system_text_alone_is_said_as_the_user() -> None:
    body, losses = ask(CHAT, MESSAGES, chat_of({"role": "system", "content": "say hi"}))
    assert body["messages"] == [user("say hi")] and "system" not in body
    assert losses == ("system messages (said as the user)",)


def test_an_answer_that_stands_last_is_a_beginning_where_the_model_takes_one() -> None:
    asked = chat_of(user("hi"), {"role": "assistant", "content": "The answer is "})
    body, losses = ask(CHAT, MESSAGES, asked, "claude-sonnet-4-5")
    assert body["messages"][-1] == {"role": "assistant", "content": "The answer is"} and losses == ()
    body, losses = ask(CHAT, MESSAGES, asked, "claude-opus-5")
    assert body["messages"][-1] == user("(continue)") and losses == ("messages (the user ends)",)


@pytest.mark.parametrize("name", ["call:1/ä", "x" * 70, ""])
def test_ids_of_calls_become_what_every_provider_takes_on_both_sides(name: str) -> None:
    asked = chat_of(
        user("go"),
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": name}]},
        {"role": "tool", "tool_call_id": name, "content": "x"},
    )
    use = ask(CHAT, MESSAGES, asked)[0]["messages"]
    sent = use[1]["content"][0]["id"]
    assert sent == use[2]["content"][0]["tool_use_id"] and sent.replace("_", "").isalnum() and len(sent) <= 40
    items = ask(CHAT, RESPONSES, asked)[0]["input"]
    assert items[1]["call_id"] == items[2]["call_id"] == sent


def test_calls_of_two_answers_that_share_an_id_are_told_apart() -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "call_0"}]}
    results = [{"role": "tool", "tool_call_id": "call_0", "content": text} for text in ("first", "second")]
    body, _ = ask(CHAT, MESSAGES, chat_of(user("go"), answer, results[0], answer, results[1]))
    uses = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    assert [block.get("id") or block["tool_use_id"] for block in uses] == ["call_0", "call_0", "call_0_2", "call_0_2"]
    assert [block["content"] for block in uses if block["type"] == "tool_result"] == ["first", "second"]


def test_results_under_ids_that_no_call_has_belong_to_the_calls_that_miss_theirs() -> None:
    answer = {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in ("call_2", "made_up")]
    body, _ = ask(CHAT, MESSAGES, chat_of(user("go"), answer, *results, user("and?")))
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": "made_up"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "call_2"},
        {"type": "text", "text": "and?"},
    ]
    one_too_many = [*results, {"role": "tool", "tool_call_id": "third", "content": "third"}]
    body, _ = ask(CHAT, MESSAGES, chat_of(user("go"), answer, *one_too_many))
    ids = [block["tool_use_id"] for block in body["messages"][2]["content"]]
    assert ids == ["call_2", "made_up", "third"]  # nobody can tell whose they are


def test_a_history_of_calls_without_tools_defines_them_for_anthropic_and_lets_none_be_called() -> None:
    body, losses = ask(CHAT, MESSAGES, chat_of(*LOOKED_UP))
    assert body["tools"] == [{"name": "look_up", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"} and losses == ()


def test_arguments_that_are_no_object_are_kept_as_text() -> None:
    broken = {**CALL, "function": {"name": "look_up", "arguments": '{"q":'}}
    asked = chat_of(user("go"), {"role": "assistant", "tool_calls": [broken]}, LOOKED_UP[2])
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["messages"][1]["content"][0]["input"] == {"arguments": '{"q":'}
    assert losses == ("tool_calls.arguments (not a JSON object)",)


def test_a_tool_of_free_text_takes_an_object_with_one_text_elsewhere() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    tool = {"type": "custom", "custom": {"name": "patch", "format": {"type": "grammar", "grammar": {}}}}
    asked = chat_of(user("go"), {"role": "assistant", "tool_calls": [call]}, LOOKED_UP[2], tools=[tool])
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["messages"][1]["content"][0]["input"] == {"input": "*** Begin"} and losses == ("tools.format",)
    assert body["tools"][0]["input_schema"]["required"] == ["input"]
    items = ask(CHAT, RESPONSES, asked)[0]["input"]
    assert [item.get("type") for item in items[1:]] == ["custom_tool_call", "custom_tool_call_output"]


def test_legacy_functions_are_tools_one_call_at_a_time() -> None:
    asked = chat_of(
        user("go"),
        {"role": "assistant", "content": None, "function_call": {"name": "look_up", "arguments": "{}"}},
        {"role": "function", "name": "look_up", "content": "found"},
        functions=[{"name": "look_up", "description": "Find.", "parameters": SCHEMA}],
        function_call={"name": "look_up"},
    )
    body, losses = ask(CHAT, MESSAGES, asked)
    assert body["tools"] == [BLOCK_TOOL] and losses == ()
    assert body["tool_choice"] == {"type": "tool", "name": "look_up", "disable_parallel_tool_use": True}
    assert body["messages"][1]["content"][0]["id"] == body["messages"][2]["content"][0]["tool_use_id"]


# --- images and files -------------------------------------------------------------------------------------------------

IMAGES: list[dict[str, Body]] = [
    {
        CHAT: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        RESPONSES: {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        MESSAGES: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
    },
    {
        CHAT: {"type": "image_url", "image_url": {"url": "https://a.test/x.png"}},
        RESPONSES: {"type": "input_image", "image_url": "https://a.test/x.png", "detail": "auto"},
        MESSAGES: {"type": "image", "source": {"type": "url", "url": "https://a.test/x.png"}},
    },
    {
        CHAT: {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        RESPONSES: {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        MESSAGES: {
            "type": "document", "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        },
    },
]  # fmt: skip


@pytest.mark.parametrize("part", IMAGES)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_images_and_documents_go_over(source: str, target: str, part: dict[str, Body]) -> None:
    field = "input" if source == RESPONSES else "messages"
    text = {"type": "input_text" if source == RESPONSES else "text", "text": "see"}
    asked = simple(source) | {field: [{"role": "user", "content": [text, part[source]]}]}
    body, losses = ask(source, target, asked)
    field = "input" if target == RESPONSES else "messages"
    assert body[field][0]["content"][1] == part[target] and losses == ()


def test_what_a_result_shows_is_sent_after_it_where_a_result_is_text_only() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [IMAGES[0][MESSAGES]]}
    asked = simple(
        MESSAGES,
        messages=[
            user("go"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]},
            {"role": "user", "content": [result]},
        ],
    )
    body, losses = ask(MESSAGES, CHAT, asked)
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "toolu_1", "content": ""}
    assert body["messages"][3]["content"][1] == IMAGES[0][CHAT]
    assert losses == ("tool_result.content (images and files sent after it)",)
    body, losses = ask(MESSAGES, RESPONSES, asked)
    assert body["input"][2]["output"] == [IMAGES[0][RESPONSES]] and losses == ()


def test_a_document_of_text_is_text_where_only_pdf_is_a_document() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "the text"}
    document = {"type": "document", "title": "notes", "source": source, "citations": {"enabled": True}}
    asked = simple(MESSAGES, messages=[{"role": "user", "content": [document]}])
    body, losses = ask(MESSAGES, CHAT, asked)
    assert body["messages"] == [user("notes\n\nthe text")] and losses == ("citations",)


def test_a_document_by_url_goes_only_where_there_are_such() -> None:
    document = {"type": "document", "source": {"type": "url", "url": "https://a.test/x.pdf"}}
    asked = simple(MESSAGES, messages=[{"role": "user", "content": [document]}])
    assert ask(MESSAGES, RESPONSES, asked)[0]["input"][0]["content"][0]["file_url"] == "https://a.test/x.pdf"
    with pytest.raises(Untranslatable, match="URL"):
        ask(MESSAGES, CHAT, asked)


@pytest.mark.parametrize("url", ["data:image/tiff;base64,AA==", "data:text/plain,hi"])
def test_an_image_that_anthropic_does_not_take_is_refused(url: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(Untranslatable):
        ask(CHAT, MESSAGES, chat_of({"role": "user", "content": [part]}))
