"""The tools that a request offers, the results that it brings, and the request that goes on from an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Call, OfferedTool, Shape, ToolResult
from agentstate.dialects.openai_follow import CUSTOM_SCHEMA
from tests.support import traffic
from tests.unit.core.profile import examples
from tests.unit.dialects.test_openai_responses_amend import (
    AGENTS,
    APPROVAL,
    COMPUTER,
    CUSTOM,
    MAIL,
    OWN,
    PATCH,
    SEARCH,
    SHELL,
    finished,
    made,
    unlike,
)
from tests.unit.dialects.test_openai_responses_gate import FUNCTION, RESPONSES, TEXT, call_of, recorded, response

PLAIN, STREAM = Shape(), Shape(True)
COMMANDS = AGENTS[5]
SCREEN = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}


def asked(body: dict[str, Any] | bytes) -> Call:
    return RESPONSES.parse("POST", "responses", body if isinstance(body, bytes) else json.dumps(body).encode())


def of_input(*items: dict[str, Any]) -> list[tuple[str, str, bool]]:
    return [tuple(one) for one in RESPONSES.results(asked({"model": "m", "input": list(items)}))]


def output(kind: str, call_id: str, said: Any, **more: Any) -> dict[str, Any]:
    return {"type": f"{kind}_output", "call_id": call_id, "output": said} | more


# --- tools ------------------------------------------------------------------------------------------------------------


def test_tools_that_the_agent_is_to_run_are_offered_with_their_schemas_as_they_are_spelled() -> None:
    schema = '{"type": "object", "properties": {"n": {"type":"number","maximum":1.50}}}'
    body = (
        '{"model":"m","input":"x","tools":[{"type":"web_search"},{"type":"function","name":"a","parameters":SCHEMA},'
        '{"type":"custom","name":"b"},{"type":"mcp","server_label":"s","server_url":"https://mcp.test"},'
        '{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"c","parameters":null}]},'
        '{"type":"local_shell"},{"type":"apply_patch"},{"type":"computer_use_preview"},{"type":"computer"},'
        '{"type":"shell"},{"type":"shell","environment":{"type":"container_auto"}},{"type":"code_interpreter"},'
        '{"type":"tool_search"},{"type":"tool_search","execution":"client","parameters":{"x":1}},7]}'
    ).replace("SCHEMA", schema).encode()  # fmt: skip
    wanted = (("a", schema), ("b", CUSTOM_SCHEMA), ("c", ""), ("local_shell", ""), ("apply_patch", ""),
              ("computer", ""), ("shell", ""), ("tool_search", '{"x":1}'))  # fmt: skip
    assert RESPONSES.offered(asked(body)) == wanted
    odd = body[:-1] + b',"x":"\\ud800","y":1e999}'
    assert [one.name for one in RESPONSES.offered(asked(odd))] == [name for name, _ in wanted]


def test_tools_that_messages_bring_are_offered_after_those_of_the_request() -> None:
    tool = {"type": "function", "name": "late", "parameters": {"type": "object"}}
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [tool]},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "status": "completed", "tools": [tool]},
        {"role": "user", "content": '"tools"'},
    ]
    first = tool | {"name": "first"}
    offered = RESPONSES.offered(asked({"model": "m", "tools": [first], "input": items}))
    assert offered == (OfferedTool("first", '{"type": "object"}'), OfferedTool("late", '{"type": "object"}'))
    assert RESPONSES.offered(asked({"model": "m"})) == ()


def test_recorded_calls_are_of_tools_that_their_requests_offered() -> None:
    traffic.require()
    known = missing = 0
    for _, call, _, _, verdict in finished():
        names = {tool.name for tool in RESPONSES.offered(call)}
        for one in verdict.calls:
            known += one.name in names
            missing += one.name not in names and not call.previous
    assert known > 200
    assert missing <= 3, missing


# --- results ----------------------------------------------------------------------------------------------------------


def test_results_are_those_after_the_last_answer() -> None:
    user = {"role": "user", "content": "x"}
    old = [user, MAIL | {"call_id": "c0"}, output("function_call", "c0", "old"), TEXT]
    new = [OWN[1], MAIL, CUSTOM, output("function_call", "call_1", "one"), output("custom_tool_call", "call_2", "two")]
    assert of_input(*old, *new) == [("call_1", "one", False), ("call_2", "two", False)]
    assert of_input(*old, *new, user) == [("call_1", "one", False), ("call_2", "two", False)]
    assert of_input(*old, *new, TEXT, user) == []
    assert of_input(*old) == []
    assert of_input(user) == []
    assert RESPONSES.results(asked({"model": "m", "input": "x"})) == ()
    assert RESPONSES.results(asked({"model": "m"})) == ()


def test_results_that_stand_right_after_their_calls_are_all_told() -> None:
    side = [MAIL, output("function_call", "call_1", "one"), CUSTOM, output("custom_tool_call", "call_2", "two")]
    assert [call_id for call_id, *_ in of_input(OWN[1], *side)] == ["call_1", "call_2"]


def test_results_to_an_answer_that_the_provider_keeps_are_all_there_are() -> None:
    body = {"model": "m", "previous_response_id": "resp_0", "input": [output("function_call", "c", "x")]}
    assert RESPONSES.results(asked(body)) == (ToolResult("c", "x"),)
    odd = json.dumps(body)[:-1] + ',"x":"\\ud800"}'
    assert RESPONSES.results(asked(odd.encode())) == (ToolResult("c", "x"),)


def test_outputs_of_what_the_provider_ran_are_no_results() -> None:
    ran = OWN[4]
    shell = {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    items = [ran, output("shell_call", "call_9", [shell]), MAIL, output("function_call", "call_1", "one")]
    assert of_input(*items) == [("call_1", "one", False)]
    searched = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": []}
    assert of_input(searched, MAIL, output("function_call", "call_1", "one")) == [("call_1", "one", False)]
    assert of_input({"type": "program_output", "call_id": "p", "result": "x"}) == []


def test_result_is_the_text_or_the_json_that_the_agent_wrote() -> None:
    parts = [{"type": "input_text", "text": "x"}]
    assert of_input(output("function_call", "c", parts)) == [("c", json.dumps(parts), False)]
    assert of_input(output("function_call", "c", None)) == [("c", "", False)]
    assert of_input({"type": "local_shell_call_output", "id": "c", "output": "x"}) == [("c", "x", False)]
    assert of_input(output("computer_call", "c", SCREEN)) == [("c", json.dumps(SCREEN), False)]
    patched = output("apply_patch_call", "c", "no such file", status="failed")
    assert of_input(patched) == [("c", "no such file", True)]
    assert of_input({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}) == [("c", "", False)]
    ran = [{"stdout": "x", "stderr": "y", "outcome": {"type": "timeout"}}]
    assert of_input(output("shell_call", "c", ran)) == [("c", json.dumps(ran), False)]
    approval = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
    assert of_input(approval) == [("a", '{"approve": true}', False)]
    assert of_input(approval | {"approve": False, "reason": "no"}) == [("a", "no", True)]


def test_recorded_results_answer_the_calls_of_recorded_answers() -> None:
    traffic.require()
    told = 0
    for exchange in recorded():
        call = call_of(exchange)
        body = json.loads(exchange.request)
        given = body["input"] if isinstance(body.get("input"), list) else []
        known = {item.get("call_id") for item in given if str(item.get("type")).endswith("_output")}
        results = RESPONSES.results(call)
        assert {one.call_id for one in results} <= known, exchange.id
        last = given[-1] if given else {}
        if last.get("type") in ("function_call_output", "custom_tool_call_output"):
            told += 1
            assert results[-1].call_id == last["call_id"]
            assert results[-1].content in (last["output"], json.dumps(last["output"])) or last["output"] == json.loads(
                results[-1].content
            )
    assert told > 150


# --- going on ---------------------------------------------------------------------------------------------------------


def test_recorded_answers_go_on_with_the_results_of_their_calls_and_every_other_byte_stays() -> None:
    traffic.require()
    went_on = 0
    for name, call, shape, body, verdict in finished():
        if "/compact" in call.path:
            continue
        results = [ToolResult(one.call_id, f"said no to {place}") for place, one in enumerate(verdict.calls)]
        found = RESPONSES.continued(call, shape, body, results)
        again = RESPONSES.parse("POST", "responses", found)
        assert (again.frame, again.shape, again.previous) == (call.frame, call.shape, call.previous), name
        if results:
            went_on += 1
            # The answer's calls may be a continuation of those before: the new results come last.
            assert list(RESPONSES.results(again))[-len(results) :] == results, name
        before, after = json.loads(call.body), json.loads(found)
        plain = json.loads(RESPONSES.convert(shape, PLAIN, body))["output"]
        given = before.pop("input", [])
        grown = after.pop("input")
        assert after == before
        if isinstance(given, list) and not before.get("conversation"):
            assert grown[: len(given)] == given
            kept = [item for item in plain if item in grown[len(given) :]]
            left_out = [item for item in plain if item not in kept]
            assert before.get("store") is False or not left_out
            assert all(item["type"] == "reasoning" and not item.get("encrypted_content") for item in left_out)
            notes = sum(item["type"] == "tool_search_call" and item["execution"] == "client" for item in plain)
            assert len(grown) == len(given) + len(kept) + len(results) + notes
    assert went_on > 120


def test_request_that_goes_on_is_the_very_bytes_but_for_the_end_of_its_input() -> None:
    items = b'[ {"role":"user","content":"x"} ,{"role":"developer","content":1.50}\n ]'
    body = b' {"model":"m", "input" : ' + items + b', "stream":true,"previous_response_id":"resp_0","x":"\\u00e9"} '
    call = asked(body)
    answer = json.dumps(response(output=[OWN[1], TEXT, MAIL])).encode()
    found = RESPONSES.continued(call, PLAIN, answer, [ToolResult("call_1", "no \u00e9")])
    said = b",".join(json.dumps(item).encode() for item in (OWN[1], TEXT, MAIL))
    result = '{"type":"function_call_output","call_id":"call_1","output":"no \u00e9"}'.encode()
    end = items.index(b"\n ]")
    assert found == body.replace(items, items[:end] + b"," + said + b"," + result + items[end:])
    streamed = RESPONSES.continued(call, STREAM, made([OWN[1], TEXT, MAIL], final=False), [ToolResult("call_1", "no")])
    assert json.loads(streamed)["input"][2:5] == [OWN[1], TEXT, MAIL]


@pytest.mark.parametrize(("given", "first"), [
    (b'{"model":"m","input":"say \\u00e9"}', [{"role": "user", "content": "say \u00e9"}]), (b'{"model":"m"}', []),
    (b'{"model":"m","input":null}', []), (b'{"model":"m","input":[]}', []), (b"{}", []),
    (b'{"input":[{"role":"user","content":"\\ud800"}]}', [{"role": "user", "content": "\ud800"}]),
])  # fmt: skip
def test_any_input_can_be_gone_on_from(given: bytes, first: list[Any]) -> None:
    answer = json.dumps(response(output=[MAIL])).encode()
    found = RESPONSES.continued(asked(given), PLAIN, answer, [ToolResult("call_1", "no")])
    assert json.loads(found)["input"] == [*first, MAIL, output("function_call", "call_1", "no")]
    assert {key: part for key, part in json.loads(found).items() if key != "input"} == {
        key: part for key, part in json.loads(given).items() if key != "input"
    }


def test_answer_without_calls_is_gone_on_from_by_itself() -> None:
    answer = json.dumps(response(output=[TEXT])).encode()
    found = RESPONSES.continued(asked(b'{"input":"x"}'), PLAIN, answer, [])
    assert json.loads(found)["input"] == [{"role": "user", "content": "x"}, TEXT]
    none = RESPONSES.continued(asked(b'{"input":["x"]}'), PLAIN, json.dumps(response()).encode(), [])
    assert none == b'{"input":["x"]}'


def test_conversation_that_the_provider_keeps_is_given_the_results_alone() -> None:
    call = asked({"model": "m", "input": "x", "conversation": "conv_1"})
    answer = json.dumps(response(output=[TEXT, MAIL])).encode()
    found = json.loads(RESPONSES.continued(call, PLAIN, answer, [ToolResult("call_1", "no")]))
    assert found == {"model": "m", "conversation": "conv_1", "input": [output("function_call", "call_1", "no")]}


@pytest.mark.parametrize("store", [True, False])
def test_what_the_api_does_not_take_back_is_left_out(store: bool) -> None:
    lost = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]}
    shown = lost | {"content": [{"type": "reasoning_text", "text": "hm"}]}
    items = [lost, OWN[1], shown, MAIL | {"created_by": "someone"}]
    call = asked({"model": "m", "input": [], "store": store})
    answer = json.dumps(response(output=items)).encode()
    found = json.loads(RESPONSES.continued(call, PLAIN, answer, [ToolResult("call_1", "no")]))["input"]
    assert found[:-1] == [*([lost] if store else []), OWN[1], shown, MAIL]


RESULTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (MAIL, output("function_call", "call_1", "no")),
    (CUSTOM, output("custom_tool_call", "call_2", "no")),
    (SHELL, {"type": "local_shell_call_output", "id": "call_3", "output": "no"}),
    (PATCH, {"type": "apply_patch_call_output", "call_id": "call_4", "status": "completed", "output": "no"}),
    (COMMANDS, output("shell_call", "call_6", [
        {"stdout": "no", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}])),
    (APPROVAL, {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "no"}),
    (MAIL | {"caller": {"type": "program", "caller_id": "p1"}},
     output("function_call", "call_1", "no", caller={"type": "program", "caller_id": "p1"})),
    ({"type": "x_new_call", "call_id": "c"}, output("x_new_call", "c", "no")),
]  # fmt: skip


@pytest.mark.parametrize(("item", "wanted"), RESULTS, ids=lambda part: part["type"])
def test_result_takes_the_form_of_its_kind_of_call(item: dict[str, Any], wanted: dict[str, Any]) -> None:
    answer = json.dumps(response(output=[item])).encode()
    call_id = item["id"] if item is APPROVAL else item["call_id"]
    found = RESPONSES.continued(asked(b'{"input":[]}'), PLAIN, answer, [ToolResult(call_id, "no")])
    assert json.loads(found)["input"] == [item, wanted]


def test_result_that_its_kind_has_no_room_for_is_told_in_a_message() -> None:
    answer = json.dumps(response(output=[COMPUTER, SEARCH])).encode()
    results = [ToolResult("call_5", "no: 1"), ToolResult("call_7", "no: 2")]
    found = RESPONSES.continued(asked(b'{"input":[]}'), PLAIN, answer, results)
    screen, tools, first, second = json.loads(found)["input"][2:]
    assert screen["output"]["type"] == "computer_screenshot"
    assert screen["output"]["image_url"].startswith("data:image/png;base64,")
    assert (tools["tools"], tools["execution"], tools["status"]) == ([], "client", "completed")
    assert [first["content"], second["content"]] == ["About call call_5: no: 1", "About call call_7: no: 2"]
    assert list(RESPONSES.results(asked(found))) == results
    taken = [ToolResult("call_5", json.dumps(SCREEN)), ToolResult("call_7", '[{"type":"function","name":"f"}]')]
    found = RESPONSES.continued(asked(b'{"input":[]}'), PLAIN, answer, taken)
    assert [item.get("output") or item["tools"] for item in json.loads(found)["input"][2:]] == [
        SCREEN, [{"type": "function", "name": "f"}],
    ]  # fmt: skip
    assert list(RESPONSES.results(asked(found))) == taken


def test_no_text_approves_what_a_provider_asks_leave_for() -> None:
    answer = json.dumps(response(output=[APPROVAL])).encode()
    for content in ("", "true", '{"approve": true}', "approved"):
        found = RESPONSES.continued(asked(b'{"input":[]}'), PLAIN, answer, [ToolResult("mcpr_1", content)])
        assert json.loads(found)["input"][1]["approve"] is False


def test_results_that_are_not_those_of_the_calls_are_refused() -> None:
    answer = json.dumps(response(output=[MAIL, FUNCTION | {"call_id": "call_9"}])).encode()
    call = asked(b'{"input":[]}')
    with pytest.raises(ValueError, match="no result for the call 'call_9' of mail"):
        RESPONSES.continued(call, PLAIN, answer, [ToolResult("call_1", "x")])
    with pytest.raises(ValueError, match="no call 'other'"):
        RESPONSES.continued(call, PLAIN, answer, [ToolResult(one, "x") for one in ("call_1", "call_9", "other")])


def test_result_that_no_strict_parser_takes_is_brought_as_it_is() -> None:
    answer = json.dumps(response(output=[MAIL, COMMANDS])).encode()
    results = [ToolResult("call_1", "\ud800"), ToolResult("call_6", "\ud800", True)]
    found = RESPONSES.continued(asked(b'{"input":"x"}'), PLAIN, answer, results)
    assert list(RESPONSES.results(asked(found))) == results


_CONTENT = st.text(max_size=20) | st.sampled_from([
    "", "[]", "[1]", '[{"type":"input_text","text":"x"}]', '[{"type":"x"}]', "{", '"x"', "null", json.dumps(SCREEN),
    '[{"stdout":"","stderr":"x","outcome":{"type":"exit","exit_code":1}}]',
    '[{"stdout": "[{}]", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]', "a: b",
])  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([*AGENTS, APPROVAL]), _CONTENT, st.booleans()), max_size=5), st.booleans())
@examples(400)
def test_results_that_a_request_is_made_to_bring_are_those_that_are_read_in_it(
    drawn: list[tuple[dict[str, Any], str, bool]], streamed: bool
) -> None:
    items = unlike([item for item, _, _ in drawn])
    # A kind without a mark for errors tells none; a refusal of a provider's call is always one.
    marked = ("shell_call", "apply_patch_call")
    results = [
        ToolResult(
            item["id"] if item["type"] == APPROVAL["type"] else item["call_id"],
            content,
            (failed and item["type"] in marked) or item["type"] == APPROVAL["type"],
        )
        for item, (_, content, failed) in zip(items, drawn, strict=True)
    ]
    body = made(items) if streamed else json.dumps(response(output=items)).encode()
    found = RESPONSES.continued(asked(b'{"input":"x"}'), Shape(streamed), body, results)
    read = RESPONSES.results(asked(found))
    again = RESPONSES.continued(asked(b'{"input":"x"}'), Shape(streamed), body, read)
    assert json.loads(again) == json.loads(found)
    for item, result, back in zip(items, results, read, strict=True):
        # A shell's output that is structured has its errors in itself.
        assert back == result or (item["type"] == "shell_call" and result.content.startswith("[{"))
