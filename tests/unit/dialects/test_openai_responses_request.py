"""Responses requests: different question, different key; what is volatile is found; bad input is refused plainly."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import fingerprint, mask
from agentstate.core.model import Call
from agentstate.dialects import volatile
from agentstate.dialects.openai_responses import OpenAIResponses
from agentstate.errors import BadRequest, Refused, UpstreamCut
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import Mutant, Path, at, encoded, mutants, removed, replaced

RESPONSES = OpenAIResponses()
# Fields that cannot change the answer: written down here anew, from the documentation of what they do.
DENIED = (
    "stream", "stream_options", "user", "metadata", "client_metadata", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "prompt_cache_options",
)  # fmt: skip
OLD, NEW = "2026-11-30T09:41:05Z", "2027-02-03T22:17:48Z"
TOOLS = [
    {
        "type": "function",
        "name": "weather",
        "description": f"Weather as of {OLD}.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "default": None}}},
        "strict": None,
    },
    {"type": "web_search", "search_context_size": "low"},
]
BODIES: dict[str, dict[str, Any]] = {
    "text": {
        "model": "gpt-5-test",
        "input": "Why is the sky blue?",
        "temperature": 0.5,
        "max_output_tokens": 300,
        "user": "u-1",
        "metadata": {"ticket": "17"},
        "stream": True,
        "store": False,
        "reasoning": {"effort": "low", "summary": None},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"const": None}}, "verbosity": "low"},
        "x_vendor": {"unknown": [1, 2.5, {"deep": "yes"}, None]},
    },
    "tools": {
        "model": "gpt-5-test",
        "instructions": f"You are terse. It is {OLD}.",
        "input": [
            {"role": "developer", "content": f"Today: {OLD}."},
            {"role": "user", "content": [{"type": "input_text", "text": "Two cities?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": "weather", "arguments": '{"c":1}'},
            {"type": "function_call", "id": "fc_2", "call_id": "call_b", "name": "weather", "arguments": '{"c":2}'},
            {"type": "function_call_output", "call_id": "call_a", "output": f"rain at {OLD}"},
            {"type": "function_call_output", "call_id": "call_b", "output": [{"type": "input_text", "text": OLD}]},
            {"type": "message", "id": "msg_1", "role": "assistant",
             "content": [{"type": "output_text", "text": "Rain.", "annotations": []}]},
            {"role": "user", "content": "And again?"},
        ],
        "tools": TOOLS,
        "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"],
    },
    "other calls": {
        "model": "gpt-5-test",
        "input": [
            {"type": "item_reference", "id": "msg_77"},
            {"type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select 1"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
            {"type": "local_shell_call", "id": "ls", "call_id": "c2", "action": {"type": "exec", "command": ["ls"]}},
            {"type": "local_shell_call_output", "id": "c2", "output": "a b"},
            {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}},
            {"type": "shell_call_output", "call_id": "c3",
             "output": [{"stdout": f"at {OLD}", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
            {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "s"},
            {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
            {"type": "computer_call", "call_id": "c4", "action": {"type": "screenshot"}},
            {"type": "computer_call_output", "call_id": "c4", "output": {"type": "computer_screenshot"}},
        ],
        "previous_response_id": "resp_1",
        "conversation": "conv_1",
        "background": True,
    },
}  # fmt: skip


def parsed(body: Any) -> Call:
    raw = body if isinstance(body, bytes) else encoded(body)
    return RESPONSES.parse("POST", "responses", raw)


def key(body: Any) -> bytes:
    return fingerprint.of(parsed(body)).key


# --- the fingerprint --------------------------------------------------------------------------------------------------


def cannot_matter(body: Any, mutant: Mutant) -> str:
    """Why a change may leave the key as it was; empty: it must not."""
    path = mutant.path
    value = at(body, path) if mutant.how != "new field" and mutant.how != "order" else None
    if path and path[0] in DENIED:
        return "a denied field"
    if mutant.how == "order" and path[:-1] == ("tools",):
        return "the order of the tool set"
    if mutant.how == "order" and len(path) == 2 and path[0] == "input" and both_results(body, path[1]):
        return "the order of contiguous tool results"
    if mutant.how == "gone" and value is None and (len(path) <= 3):
        return "null is absent"
    if len(path) == 3 and path[0] == "input" and path[2] == "id" and kind_at(body, path) not in NAMED_BY_ID:
        return "an item's own id"
    if is_call_id(body, path) and isinstance(value, str) and str(body).count(repr(value)) == 1:
        return "an id that nothing else names"
    return ""


NAMED_BY_ID = ("item_reference", "local_shell_call_output", "mcp_approval_request")


def kind_at(body: Any, path: Path) -> Any:
    return body["input"][path[1]].get("type")


def both_results(body: Any, place: Any) -> bool:
    return all(str(item.get("type")).endswith("_output") for item in body["input"][place : place + 2])


def is_call_id(body: Any, path: Path) -> bool:
    return len(path) == 3 and path[0] == "input" and path[2] in ("call_id", "approval_request_id", "id")


@pytest.mark.parametrize("name", BODIES)
def test_any_one_change_of_a_request_changes_the_key_unless_it_cannot_matter(name: str) -> None:
    body = BODIES[name]
    own = key(body)
    kept = [mutant.name for mutant in mutants(body) if not cannot_matter(body, mutant) and key(mutant.body) == own]
    assert kept == []


@pytest.mark.parametrize("name", BODIES)
def test_changes_that_cannot_matter_keep_the_key_of_a_request(name: str) -> None:
    body = BODIES[name]
    own = key(body)
    checked = 0
    for mutant in mutants(body):
        reason = cannot_matter(body, mutant)
        if reason and mutant.how != "gone" and not reason.startswith("an id"):
            assert key(mutant.body) == own, (mutant.name, reason)
            checked += 1
    assert checked or name == "other calls"


@pytest.mark.parametrize("name", DENIED)
@pytest.mark.parametrize("value", [None, "x", {"deep": [1]}, True, 17])
def test_denied_field_of_any_type_keeps_the_key_and_below_the_top_it_counts(name: str, value: Any) -> None:
    body = BODIES["text"]
    assert key(body | {name: value}) == key(body)
    assert key(replaced(body, ("x_vendor", name), value)) != key(body)


@pytest.mark.parametrize("name", ["store", "include", "previous_response_id", "conversation", "background", "prompt"])
def test_field_that_changes_the_answer_or_what_the_provider_keeps_counts(name: str) -> None:
    body = removed(BODIES["text"], ("store",))
    assert key(body | {name: "x"}) != key(body)
    assert key(body | {name: None}) == key(body)


def test_text_is_the_same_question_as_one_message_of_the_user() -> None:
    text = BODIES["text"]
    assert key(text | {"input": [{"role": "user", "content": text["input"]}]}) == key(text)
    call = parsed(text)
    assert [(item.role, item.answers) for item in call.items] == [("user", None)]
    assert call.before == b""


def test_call_ids_are_renamed_by_order_of_appearance() -> None:
    text = json.dumps(BODIES["tools"])
    assert key(text.replace("call_a", "x1").replace("call_b", "x2").encode()) == key(BODIES["tools"])
    swapped = text.replace("call_a", "x").replace("call_b", "call_a").replace("x", "call_b", 1)
    assert key(swapped.encode()) != key(BODIES["tools"])
    text = json.dumps(BODIES["other calls"])
    for old in ("c1", "c2", "c3", "c4", "mcpr_1"):
        assert key(text.replace(f'"{old}"', f'"{old}-other"').encode()) == key(BODIES["other calls"]), old


def test_data_that_a_client_passes_through_on_items_does_not_count() -> None:
    body = BODIES["tools"]
    for place in range(len(body["input"])):
        marked = replaced(body, ("input", place, "internal_chat_message_metadata_passthrough"), {"turn_id": "t"})
        assert key(marked) == key(body)


def test_marks_of_the_prompt_cache_do_not_count() -> None:
    body = BODIES["tools"]
    part = ("input", 1, "content", 0)
    assert key(replaced(body, (*part, "prompt_cache_breakpoint"), {"mode": "explicit"})) == key(body)
    assert key(replaced(body, ("tools", 0, "cache_control"), {"type": "ephemeral"})) == key(body)


def test_order_of_keys_and_spelling_of_json_do_not_count() -> None:
    for body in BODIES.values():
        assert key(json.dumps(dict(reversed(body.items())), indent=2).encode()) == key(body)


def test_pointers_and_background_are_told_in_the_call() -> None:
    call = parsed(BODIES["other calls"])
    assert (call.previous, call.background, call.model) == ("resp_1", True, "gpt-5-test")
    call = parsed(BODIES["tools"] | {"previous_response_id": None, "background": False})
    assert (call.previous, call.background) == ("", False)
    assert key(BODIES["tools"] | {"previous_response_id": "resp_2"}) != key(BODIES["tools"])


def test_stream_and_plain_request_differ_in_shape_alone() -> None:
    one, two = parsed(BODIES["text"] | {"stream": True}), parsed(BODIES["text"] | {"stream": False})
    assert (one.shape.stream, two.shape.stream) == (True, False)
    assert (one.path, fingerprint.of(one)) == (two.path, fingerprint.of(two))


def test_roles_and_answered_calls_of_items() -> None:
    found = [(item.role, item.answers) for item in parsed(BODIES["tools"]).items]
    assert found == [
        ("developer", None), ("user", None), ("", None), ("", None), ("", None),
        ("tool", "call_a"), ("tool", "call_b"), ("assistant", None), ("user", None),
    ]  # fmt: skip
    answers = [item.answers for item in parsed(BODIES["other calls"]).items]
    assert answers == [None, None, "c1", None, "c2", None, "c3", None, None, None, "c4"]


def test_instructions_and_tools_stand_in_the_context_and_only_there() -> None:
    call = parsed(BODIES["tools"])
    assert [(part.role, part.call_ids) for part in call.context] == [("system", ()), ("system", ())]
    assert json.loads(call.context[0].raw) == BODIES["tools"]["instructions"]
    assert json.loads(call.context[1].raw) == TOOLS
    other = parsed(BODIES["tools"] | {"instructions": "else", "tools": []})
    assert call.frame == other.frame
    assert parsed({"model": "m", "tools": None, "instructions": None, "input": "x"}).context == ()


@pytest.mark.parametrize("name", ["tools", "other calls"])
@pytest.mark.parametrize("spaced", [False, True])
def test_body_is_its_items_and_what_is_around_them(name: str, spaced: bool) -> None:
    raw = json.dumps(BODIES[name], indent=2 if spaced else None).encode()
    call = parsed(raw)
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == raw


def test_long_conversation_is_read_fast_and_grows_cheaply() -> None:
    body = copy.deepcopy(BODIES["tools"])
    body["input"] = [{"role": "user", "content": "x" * 400} for _ in range(500)]
    parsed(body)
    spent = []
    for turn in range(20):
        body["input"].append({"role": "user", "content": f"turn {turn}"})
        raw = encoded(body)
        start = time.perf_counter()
        call = parsed(raw)
        spent.append(time.perf_counter() - start)
        assert call.before + call.separator.join(item.raw for item in call.items) + call.after == raw
    assert min(spent) < 0.01  # 200 KB; measured 0.5 ms


# --- input that is wrong or odd ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"null", b'{"input": NaN}', b"\xff{}", b"{" * 60_000,
                                  b'{"input":' + b"[" * 60_000 + b"}"])  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        parsed(body)


@pytest.mark.parametrize("field", ["input", "tools", "instructions", "model", "previous_response_id", "reasoning"])
@pytest.mark.parametrize("value", [None, 7, True, [], {}, [7], ["x"], [[{}]], {"a": None}, [{"role": 3, "type": []}]])
def test_field_of_a_wrong_type_is_left_to_the_provider_and_counts(field: str, value: Any) -> None:
    body = {"model": "m", "input": "x", "tools": [], "instructions": "i", field: value}
    call = parsed(body)
    for item in (*call.context, *call.items):
        RESPONSES.scrubbed(item, True)
    for item in call.items:
        RESPONSES.blanked(item)
    if value not in (None, [], "x"):
        assert key(body) != key({**body, field: [value]})


@pytest.mark.parametrize("body", [
    b'{"model":"m","input":"\\ud800","stream":true,"previous_response_id":"r","background":true}',
    b'{"model":"m","input":[{"role":"user","content":"\\ud800"}],"stream":true,"previous_response_id":"r",'
    b'"background":true}',
    b'{"model":"m","stream":true,"previous_response_id":"r","background":true,"top_p":1e999}',
])  # fmt: skip
def test_what_only_a_lenient_parser_takes_is_known_by_its_bytes(body: bytes) -> None:
    call = parsed(body)
    assert (call.model, call.shape.stream, call.previous, call.background) == ("m", True, "r", True)
    assert key(body) == key(body) != key(body.replace(b'"m"', b'"n"'))


def test_errors_are_in_the_shape_that_openai_clients_read() -> None:
    plain = json.loads(RESPONSES.error(Refused("no more today")))
    assert (plain["error"]["code"], plain["error"]["message"]) == ("refused", "no more today")
    for error, code in ((Refused("no more today"), "invalid_prompt"), (UpstreamCut("cut off"), "server_error")):
        events = RESPONSES.stream_error(error).decode().strip().split("\n\n")
        first, last = (json.loads(event.split("data: ")[1]) for event in events)
        assert (first["type"], first["message"], first["error"]["message"]) == ("error", error.message, error.message)
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["error"] == {"code": code, "message": error.message}


# --- volatile text ----------------------------------------------------------------------------------------------------


def later(value: Any) -> Any:
    """A body as it is asked on another day."""
    return json.loads(json.dumps(value).replace(OLD, NEW))


def matches(one: Any, two: Any, user_text: bool = False) -> bool:
    """Whether two bodies differ in volatile text alone, one to one."""
    was, is_ = (volatile.masked(RESPONSES, parsed(body), user_text) for body in (one, two))
    return was.skeleton == is_.skeleton and mask.renaming(was.literals, is_.literals) is not None


@pytest.mark.parametrize("name", ["tools", "other calls"])
def test_clocks_in_instructions_tools_and_tool_outputs_are_masked(name: str) -> None:
    body = BODIES[name]
    assert key(body) != key(later(body))
    assert matches(body, later(body))


def test_user_text_is_masked_only_where_it_was_declared() -> None:
    for said in (f"It is {OLD}", [{"role": "user", "content": [{"type": "input_text", "text": OLD}]}]):
        body = {"model": "m", "input": said}
        assert not matches(body, later(body))
        assert matches(body, later(body), user_text=True)


def test_what_an_assistant_said_and_a_calls_arguments_are_not_masked() -> None:
    for path in (("input", 3, "arguments"), ("input", 7, "content", 0, "text"), ("input", 2, "encrypted_content")):
        body = replaced(BODIES["tools"], path, OLD)
        assert not matches(body, replaced(body, path, NEW)), path


def test_tools_in_another_order_are_masked_alike() -> None:
    tools = [TOOLS[0], TOOLS[0] | {"name": "other", "description": "As of 2026-10-01T00:00:00Z."}]
    one = BODIES["tools"] | {"tools": tools}
    two = later(BODIES["tools"]) | {"tools": later(tools[::-1])}
    assert matches(one, two)


def test_pointer_ignores_what_a_tool_printed_and_nothing_else() -> None:
    body = BODIES["tools"]
    own = volatile.pointer(RESPONSES, parsed(body))
    assert own is not None
    assert own.ids == ("call_a", "call_b")
    assert volatile.pointer(RESPONSES, parsed(replaced(body, ("input", 5, "output"), "snow"))) == own
    assert volatile.pointer(RESPONSES, parsed(replaced(body, ("input", 4, "id"), "fc_other"))) == own
    for path in (("input", 5, "call_id"), ("input", 3, "arguments"), ("input", 1, "content"), ("instructions",)):
        assert volatile.pointer(RESPONSES, parsed(replaced(body, path, "else"))) != own, path


def test_pointer_never_ignores_whether_a_person_approved() -> None:
    body = BODIES["other calls"]
    own = volatile.pointer(RESPONSES, parsed(body))
    assert own != volatile.pointer(RESPONSES, parsed(replaced(body, ("input", 8, "approve"), False)))


def test_result_without_output_is_no_result_of_a_tool_that_was_run_again() -> None:
    # Which tools a search found decides what the model may call.
    found = {"type": "tool_search_output", "call_id": "c1", "tools": [{"type": "function", "name": "x"}]}
    assert volatile.pointer(RESPONSES, parsed({"model": "m", "input": [found]})) is None


def test_spoken_is_what_the_answer_says() -> None:
    output = [
        {"type": "reasoning", "id": "rs", "encrypted_content": "gA14", "summary": [{"text": "t"}]},
        {"type": "message", "id": "m", "content": [{"type": "output_text", "text": "on the 14th"}]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "mail", "arguments": '{"day":14}'},
    ]  # fmt: skip
    said = volatile.texts(RESPONSES.spoken(encoded({"id": "resp_14", "model": "m-14", "output": output})))
    assert {"on the 14th", '{"day":14}', "mail", "t"} <= set(said)
    assert not {"resp_14", "m-14", "gA14", "rs", "c"} & set(said)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(("message", "function_call")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("type", "id", "call_id", "role", "content", "output", "text", "x")), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(("model", "input", "tools", "instructions", "stream")), _JSON))
@examples(300)
def test_no_valid_json_object_makes_the_reader_fail(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    call = parsed(raw)
    if call.before:
        assert call.before + call.separator.join(item.raw for item in call.items) + call.after == raw
    volatile.masked(RESPONSES, call, True)
    volatile.pointer(RESPONSES, call)
    assert fingerprint.of(call) == fingerprint.of(parsed(raw))
