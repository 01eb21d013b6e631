"""Anthropic requests: different question, different key; the same question in another spelling, the same key."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint
from agentstate.core.model import Call, Shape
from agentstate.dialects import volatile
from agentstate.dialects.anthropic_answer import anthropic_error
from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.errors import (
    AgentStateError,
    BadRequest,
    BodyTooLarge,
    NotFound,
    Refused,
    RunDiverged,
    StoreError,
    Unauthorized,
    UpstreamTimeout,
)
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import Mutant, Path, at, encoded, mutants, removed, replaced, walk

MESSAGES = AnthropicMessages()
# Fields that cannot change the answer: written down here anew, from the documentation of what they do.
DENIED = ("stream", "metadata", "user_profile_id", "cache_control", "diagnostics", "service_tier")
MARK = {"type": "ephemeral"}


def parsed(body: Any) -> Call:
    raw = body if isinstance(body, bytes) else encoded(body)
    return MESSAGES.parse("POST", "messages", raw, "beta=true")


def key(body: Any) -> bytes:
    return fingerprint.of(parsed(body)).key


def _tool(name: str, **more: Any) -> dict[str, Any]:
    properties = {
        "city": {"type": "string", "enum": ["Oslo", "Rome"], "default": None},
        "cache_control": {"type": "null"},
    }
    schema = {"type": "object", "properties": properties, "required": ["city"]}
    return {"name": name, "description": f"Does {name}.", "input_schema": schema} | more


def _use(call_id: str, **value: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": value}


def _result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content} | more


def _user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text} | more


def asking(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "claude-test", "max_tokens": 300, "messages": list(messages)} | more


BODIES: dict[str, dict[str, Any]] = {
    "plain": asking(
        {"role": "user", "content": "Why is it blue?"}, {"role": "system", "content": "Be terse."},
        system="You are kind.", temperature=0.7, top_k=5, stop_sequences=["END", "\n\n"], stream=True,
        metadata={"user_id": "u-1"}, service_tier="auto", x_vendor={"unknown": [1, 2.5, {"deep": None}], "none": []},
    ),
    "tools": asking(
        _user(_text("Weather in two cities?", cache_control=MARK)),
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            _use("toolu_a", city="Oslo", cache_control=None), _use("toolu_b", city="Rome"),
        ]},
        _user(_result("toolu_a", "rain")), _user(_result("toolu_b", [_text("sun")], is_error=False)),
        {"role": "assistant", "content": [_use("toolu_c", n=18446744073709551617), _use("toolu_d")]},
        _user(_result("toolu_c", [_text("1", citations=None),
                                  {"type": "image", "source": {"type": "base64", "data": "AA"}}]),
              _result("toolu_d", None), _text("And now?")),
        system=[_text("You are kind."), _text("Be brief.", cache_control=MARK)],
        tools=[_tool("weather"), _tool("mail", cache_control=MARK),
               {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 9},
        context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
    ),
    "server tools": asking(
        _user({"type": "document", "source": {"type": "content", "content": [_text("page", cache_control=MARK)]},
               "title": "T", "citations": {"enabled": True}}),
        {"role": "assistant", "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "x"}},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {},
             "caller": {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}},
        ]},
        _user(_result("toolu_1", "rain")),
        mcp_servers=[{"type": "url", "url": "https://mcp.example.test", "name": "m"}], container="container_1",
    ),
}  # fmt: skip


# --- what matters -----------------------------------------------------------------------------------------------------


def cannot_matter(body: Any, mutant: Mutant) -> str:
    """Why a change may leave the key as it was; empty: it must not."""
    path = mutant.path
    if path and path[0] in DENIED:
        return "a denied field"
    if mutant.how == "order" and path[:-1] == ("tools",):
        return "the order of the tool set"
    if mutant.how == "order" and len(path) == 2 and path[0] == "messages" and _both_results(body, path[1]):
        return "the order of contiguous messages that are one tool result each"
    if mutant.how == "gone" and at(body, path) is None and _on_own_level(path):
        return "null is absent"
    if "cache_control" in path and _on_own_level(path[: path.index("cache_control") + 1]):
        return "a mark of the prompt cache"
    if _is_call_id(path) and _named(body, at(body, path)) == 1:
        return "an id that nothing else names"
    return ""


def _both_results(body: Any, place: Any) -> bool:
    pair = [message["content"] for message in body["messages"][place : place + 2]]
    return all(isinstance(content, list) and [part["type"] for part in content] == ["tool_result"] for content in pair)


def _on_own_level(path: Path) -> bool:
    """Whether a field is one of the request, a message, a content block or a tool: not of a user's data or schema."""
    names = [name for name in path if isinstance(name, str)]
    return names[:-1] in (
        [], ["messages"], ["messages", "content"], ["messages", "content", "content"], ["tools"], ["system"],
        ["messages", "content", "source", "content"],
    )  # fmt: skip


def _is_call_id(path: Path) -> bool:
    return path[:1] == ("messages",) and path[-1] in ("id", "tool_use_id", "tool_id")


def _named(body: Any, call_id: Any) -> int:
    return sum(1 for path, value in walk(body) if _is_call_id(path) and value == call_id)


@pytest.mark.parametrize("name", BODIES)
def test_every_change_in_one_place_changes_the_key_unless_it_cannot_matter(name: str) -> None:
    body = BODIES[name]
    original = key(body)
    count = 0
    for mutant in mutants(body):
        if not mutant.path or ("x_new" in mutant.path and mutant.path[0] in DENIED):
            continue
        reason = cannot_matter(body, mutant)
        assert (key(mutant.body) == original) == bool(reason), f"{mutant.name}: {reason or 'the key is the same'}"
        count += 1
    assert count > 60


# The other spelling of each.
SPELLINGS: dict[str, tuple[Any, Any]] = {
    "a string is one text block": (asking({"role": "user", "content": "a"}), asking(_user(_text("a")))),
    "a result's string is one block": (asking(_user(_result("t", "a"))), asking(_user(_result("t", [_text("a")])))),
    "system text is one block": (asking(_user(), system="a"), asking(_user(), system=[_text("a", cache_control=MARK)])),
    "no system": (asking(_user(), system=None, tools=None), asking(_user())),
    "a mark on a result's text": (
        asking(_user(_result("t", [_text("a", cache_control=MARK)]))), asking(_user(_result("t", "a"))),
    ),
    "a stream": (asking(_user(), stream=True), asking(_user())),
    "ids": (
        asking({"role": "assistant", "content": [_use("a"), _use("b")]}, _user(_result("b", "2"), _result("a", "1"))),
        asking({"role": "assistant", "content": [_use("x"), _use("a")]}, _user(_result("a", "2"), _result("x", "1"))),
    ),
    "billing hash": (
        asking(_user(), system=[_text("x-anthropic-billing-header: cc_version=2.1.113.b14; cch=0b6c7;"), _text("Hi.")]),
        asking(_user(), system=[_text("x-anthropic-billing-header: cc_version=2.1.113.b14; cch=d456a;"), _text("Hi.")]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_same_question_in_another_spelling_has_the_same_key(name: str) -> None:
    one, two = SPELLINGS[name]
    assert key(one) == key(two)
    assert key(json.dumps(one, indent=1, sort_keys=True).encode()) == key(two)


OTHERS: dict[str, tuple[Any, Any]] = {
    "results that change places": (
        asking({"role": "assistant", "content": [_use("a"), _use("b")]}, _user(_result("a", "1"), _result("b", "2"))),
        asking({"role": "assistant", "content": [_use("a"), _use("b")]}, _user(_result("b", "1"), _result("a", "2"))),
    ),
    "two texts are not one": (asking(_user(_text("a"), _text("b"))), asking(_user(_text("ab")))),
    "system is not a tool": (asking(_user(), system=[]), asking(_user(), tools=[])),
    "another version bills": (
        asking(_user(), system="x-anthropic-billing-header: cc_version=2.1; cch=0b6c7;"),
        asking(_user(), system="x-anthropic-billing-header: cc_version=2.2; cch=0b6c7;"),
    ),
    "a hash elsewhere is data": (asking(_user(), system="cch=0b6c7;"), asking(_user(), system="cch=0b6c8;")),
    "messages that are none": (asking(), {"model": "claude-test", "max_tokens": 300, "messages": "a"}),
    "null in a tool's input": (
        asking({"role": "assistant", "content": [_use("a", x=None)]}),
        asking({"role": "assistant", "content": [_use("a")]}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_question_has_another_key(name: str) -> None:
    one, two = OTHERS[name]
    assert key(one) != key(two)


def test_stream_and_plain_question_differ_in_shape_alone() -> None:
    one, two = parsed(asking(_user(), stream=True)), parsed(asking(_user(), stream=False))
    assert (one.shape, two.shape) == (Shape(stream=True), Shape())
    assert (one.frame, one.items, one.context, one.path) == (two.frame, two.items, two.context, two.path)


def test_beta_in_the_query_does_not_count() -> None:
    body = encoded(BODIES["tools"])
    calls = [MESSAGES.parse("POST", "messages", body, query) for query in ("", "beta=true")]
    assert fingerprint.of(calls[0]) == fingerprint.of(calls[1])


# --- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("indent", [None, 2])
def test_parts_are_the_very_bytes_of_the_body(name: str, indent: int | None) -> None:
    raw = json.dumps(BODIES[name], indent=indent).encode()
    call = parsed(raw)
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == raw
    assert [json.loads(item.raw) for item in call.items] == BODIES[name]["messages"]
    assert [item.role for item in call.items] == [message["role"] for message in BODIES[name]["messages"]]
    assert call.model == "claude-test"


def test_system_text_and_tools_stand_in_the_context() -> None:
    body = BODIES["tools"]
    call = parsed(body)
    assert [json.loads(item.raw) for item in call.context] == [body["system"], body["tools"]]
    assert {(item.role, item.call_ids, item.answers) for item in call.context} == {("system", (), None)}
    other = parsed(body | {"system": "x", "tools": []})
    assert (other.frame, other.items) == (call.frame, call.items)
    assert all(one.digest != two.digest for one, two in zip(call.context, other.context, strict=True))


def test_message_that_is_one_result_answers_its_call_and_others_answer_none() -> None:
    items = parsed(BODIES["tools"]).items
    assert [item.answers for item in items] == [None, None, "toolu_a", "toolu_b", None, None]
    assert [item.call_ids for item in items] == [
        (), ("toolu_a", "toolu_b"), ("toolu_a",), ("toolu_b",), ("toolu_c", "toolu_d"), ("toolu_c", "toolu_d"),
    ]  # fmt: skip


# --- volatile text ----------------------------------------------------------------------------------------------------

MONDAY, TUESDAY = "Mon Nov 30 2026", "Tue Dec 1 2026"


def _dated(day: str, **where: bool) -> dict[str, Any]:
    """A request that speaks of the day in the named places."""
    said = {
        name: f"Today is {day}." if where.get(name) else "Nothing."
        for name in ("system", "tool", "schema", "result", "user")
    }
    tool = _tool("mail", description=said["tool"])
    tool["input_schema"]["properties"]["city"]["description"] = said["schema"]
    return asking(
        {"role": "system", "content": said["system"]}, _user(_text(said["user"])),
        {"role": "assistant", "content": [_use("toolu_a")]}, _user(_result("toolu_a", said["result"]), _text("Go on.")),
        system=[_text(said["system"])], tools=[_tool("weather"), tool],
    )  # fmt: skip


@pytest.mark.parametrize("place", ["system", "tool", "schema", "result"])
def test_day_in_system_text_a_tool_or_a_result_is_masked(place: str) -> None:
    one, two = (volatile.masked(MESSAGES, parsed(_dated(day, **{place: True}))) for day in (MONDAY, TUESDAY))
    assert one.skeleton == two.skeleton
    assert set(one.literals) == {MONDAY} and set(two.literals) == {TUESDAY}
    assert "Go on." in one.plain and not any(MONDAY in text for text in one.plain)


def test_day_in_user_text_is_masked_only_where_that_was_declared() -> None:
    one, two = (parsed(_dated(day, user=True)) for day in (MONDAY, TUESDAY))
    assert volatile.masked(MESSAGES, one).skeleton != volatile.masked(MESSAGES, two).skeleton
    assert any(MONDAY in text for text in volatile.masked(MESSAGES, one).plain)
    assert volatile.masked(MESSAGES, one, True).skeleton == volatile.masked(MESSAGES, two, True).skeleton
    assert volatile.masked(MESSAGES, one, True).literals == (MONDAY,)


def test_order_of_the_tools_does_not_change_what_is_masked_in_them() -> None:
    body = _dated(MONDAY, tool=True)
    body["tools"][0]["description"] = f"Since {TUESDAY}."
    other = body | {"tools": body["tools"][::-1]}
    assert volatile.masked(MESSAGES, parsed(body)) == volatile.masked(MESSAGES, parsed(other))
    assert set(volatile.masked(MESSAGES, parsed(body)).literals) == {MONDAY, TUESDAY}


def test_what_a_schema_allows_is_never_masked() -> None:
    tools = [_tool("mail", input_schema={"properties": {"day": {"enum": [MONDAY]}, "description": {"const": MONDAY}}})]
    found = MESSAGES.scrubbed(parsed(asking(_user(), tools=tools)).context[0], user_text=True)
    assert found.literals == ()


def test_assistant_and_calls_are_never_masked() -> None:
    spoken = asking({"role": "assistant", "content": [_text(MONDAY), _use("toolu_a", day=MONDAY)]})
    found = MESSAGES.scrubbed(parsed(spoken).items[0], user_text=True)
    assert found.literals == ()
    assert found.plain.count(MONDAY) == 2


def test_call_ids_and_cache_marks_do_not_change_what_is_masked() -> None:
    one, two = _dated(MONDAY, result=True), copy.deepcopy(_dated(MONDAY, result=True))
    two["messages"][2]["content"][0]["id"] = two["messages"][3]["content"][0]["tool_use_id"] = "toolu_z"
    two["messages"][3]["content"][0]["cache_control"] = MARK
    found = [volatile.masked(MESSAGES, parsed(body)) for body in (one, two)]
    assert found[0].skeleton == found[1].skeleton
    assert found[0].literals == found[1].literals == (MONDAY,)


def test_pointer_is_the_request_less_the_content_of_its_results_and_names_all_their_ids() -> None:
    def asked(one: Any, two: Any, text: str = "go on", **more: Any) -> volatile.Pointer | None:
        results = (_result("a", one, **more), _result("b", two), _text(text))
        return volatile.pointer(
            MESSAGES, parsed(asking({"role": "assistant", "content": [_use("a"), _use("b")]}, _user(*results)))
        )

    found = asked("1", "2")
    assert found is not None and found.ids == ("a", "b")
    assert found == asked([_text("other")], None)
    assert found != asked("1", "2", "stop")
    assert found != asked("1", "2", is_error=True)
    assert volatile.pointer(MESSAGES, parsed(BODIES["plain"])) is None


def test_pointer_takes_call_ids_as_they_are() -> None:
    bodies = [asking({"role": "assistant", "content": [_use(name)]}, _user(_result(name, "x"))) for name in ("a", "b")]
    one, two = (volatile.pointer(MESSAGES, parsed(body)) for body in bodies)
    assert one != two


def test_spoken_is_what_was_said_less_ids_and_signatures() -> None:
    content = [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, _text("hi"), _use("toolu_a", to="x")]
    answer = encoded({"id": "msg_1", "model": "claude-test", "content": content, "usage": {"input_tokens": 1}})
    assert MESSAGES.spoken(answer) == [
        {"type": "thinking", "thinking": "hm"}, _text("hi"),
        {"type": "tool_use", "name": "weather", "input": {"to": "x"}},
    ]  # fmt: skip


# --- bad input --------------------------------------------------------------------------------------------------------

BAD = (b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b'{"a":NaN}', b'{"a":1}x', b"[" * 60_000, b'{"a":' * 60_000)


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_json_object_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parsed(body)


ODD = (
    b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}],"stream":true}',
    b'{"model":"m","messages":[],"temperature":1e999,"stream":true}',
    b'{"model":"m","system":"\\udfff","messages":[],"stream":true}',
)


@pytest.mark.parametrize("body", ODD)
def test_json_that_only_a_lenient_parser_takes_is_a_question_of_its_own(body: bytes) -> None:
    call = parsed(body)
    assert (call.body, call.model, call.shape, call.items) == (body, "m", Shape(stream=True), ())
    assert key(body) == key(body) != key(body + b" ")


STRANGE = (
    {}, {"messages": None}, {"messages": 7}, {"messages": ["a"]}, {"messages": [{}]},
    {"messages": [{"role": 7, "content": 7}]},
    {"messages": [_user(7, None, ["x"], {"type": 7, "id": 7}, {"type": ["tool_result"], "content": "a"})]},
    {"messages": [_user({"type": "tool_result", "content": 7}), _user({"type": {"a": 1}})]},
    {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 7}]}]},
    {"system": 7, "tools": 7, "messages": [{"role": "user", "content": "a"}]},
    {"system": [7, {"text": 7}], "tools": [7, {"name": 7, "input_schema": 7}], "messages": [{"role": "user"}]},
    {"system": {"a": 1}, "tools": [{"text": "a"}], "model": 7, "stream": "yes", "thread": 7, "messages": [{"a": None}]},
    {"messages": [_user({"type": "document", "source": {"content": [7]}, "caller": {"tool_id": 7}})]},
)  # fmt: skip


@pytest.mark.parametrize("body", STRANGE)
def test_strange_types_are_left_to_the_provider_and_count(body: dict[str, Any]) -> None:
    call = parsed(body)
    assert call.body == encoded(body)
    for item in (*call.context, *call.items):
        assert isinstance(MESSAGES.scrubbed(item, user_text=True).digest, bytes)
    for item in call.items:
        assert isinstance(MESSAGES.blanked(item).digest, bytes)
    assert key(body | {"x_new": 1}) != key(body)


def test_deep_nesting_is_a_question_or_a_bad_request_and_no_crash() -> None:
    for depth in (50, 200, 600, 2000):
        for opened, closed in (('{"type":"tool_result","content":[', "]}"), ("[", "]"), ('{"source":', "}")):
            inner = opened * depth + "1" + closed * depth
            body = f'{{"messages":[{{"role":"user","content":[{inner}]}}]}}'.encode()
            try:
                assert parsed(body).body == body
            except BadRequest as error:
                assert "too deep" in error.message


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "content", "text", "id", "tool_use_id", "source", "caller", "x")), inner
        )
    ),
    max_leaves=12,
)


@examples(150)
@given(
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(("user", "assistant", "system")), "content": _json}), min_size=1
    )
)
def test_any_messages_are_read_and_put_together_again(messages: list[Any]) -> None:
    raw = encoded(asking(*messages))
    call = parsed(raw)
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == raw
    assert key(raw) == key(json.dumps(asking(*messages), indent=1).encode())
    for item in call.items:
        assert MESSAGES.scrubbed(item, user_text=False).digest
        assert set(MESSAGES.blanked(item).ids) <= set(item.call_ids)


# --- errors of ours ---------------------------------------------------------------------------------------------------

ERRORS: tuple[tuple[AgentStateError, str], ...] = (
    (BadRequest("x"), "invalid_request_error"), (BodyTooLarge("x"), "request_too_large"),
    (Unauthorized("x"), "authentication_error"), (NotFound("x"), "not_found_error"),
    (Refused("x"), "invalid_request_error"),
    (StoreError("x"), "api_error"), (UpstreamTimeout("x"), "api_error"),
)  # fmt: skip


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_error_of_ours_has_the_shape_that_anthropic_clients_read(error: AgentStateError, kind: str) -> None:
    shown = {"type": "error", "error": {"type": kind, "message": "x", "code": error.code}}
    assert json.loads(MESSAGES.error(error)) == shown
    streamed = MESSAGES.stream_error(error)
    assert streamed.startswith(b"event: error\ndata: {") and streamed.endswith(b"}\n\n")
    assert json.loads(streamed.split(b"data: ")[1]) == shown


def test_error_of_ours_keeps_its_detail() -> None:
    error = RunDiverged("x", detail={"nearest": {"step_number": 3}})
    assert json.loads(anthropic_error(error))["error"]["agentstate"] == {"nearest": {"step_number": 3}}


def test_dialect_tells_streams_from_other_answers_by_their_beginning() -> None:
    call = parsed(asking(_user(), stream=True))
    assert [MESSAGES.is_stream(call, start) for start in (b"event: x", b"data: x", b": x", b"{", b"[", b"<")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert MESSAGES.content_type(Shape(stream=True)).startswith("text/event-stream")
    assert MESSAGES.content_type(Shape()) == "application/json"
    assert (MESSAGES.name, MESSAGES.provider) == ("anthropic_messages", "anthropic")


def test_item_of_a_removed_or_replaced_block_is_another_one() -> None:
    body = BODIES["tools"]
    others = [
        removed(body, ("messages", 1, "content", 0)),
        replaced(body, ("messages", 1, "content", 0, "signature"), "bmV1"),
    ]
    digests = {parsed(found).items[1].digest for found in (body, *others)}
    assert len(digests) == 3
