"""The two matches that are not strict: masked text, and the pointer of echoed call ids."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import mask
from agentstate.core.model import Call
from agentstate.dialects import volatile
from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.base import Dialect
from agentstate.dialects.openai_responses import OpenAIResponses
from tests.unit.core.profile import examples
from tests.unit.dialects.bodies import BODIES, CHAT, at, encoded, mutants, removed, replaced

OLD, NEW = "2026-11-30T09:41:05Z", "2027-02-03T22:17:48Z"
BODY: dict[str, Any] = {
    "model": "gpt-4o-test",
    "messages": [
        {"role": "system", "content": f"You are terse. It is {OLD}."},
        {"role": "user", "content": "What is due?"},
        {"role": "assistant", "content": None, "tool_calls": BODIES["tools"]["messages"][2]["tool_calls"]},
        {"role": "tool", "tool_call_id": "call_a", "content": f"read at {OLD}"},
        {"role": "tool", "tool_call_id": "call_b", "content": [{"type": "text", "text": f"also {OLD}"}]},
    ],
    "tools": BODIES["tools"]["tools"],
}


def parsed(body: Any) -> Call:
    return CHAT.parse("POST", "chat/completions", encoded(body))


def later(body: Any) -> Any:
    """The body as it is asked on another day."""
    return _replace(copy.deepcopy(body))


def _replace(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace(OLD, NEW)
    if isinstance(value, dict):
        return {name: _replace(part) for name, part in value.items()}
    return [_replace(part) for part in value] if isinstance(value, list) else value


def matches(one: Any, two: Any, user_text: bool = False) -> bool:
    """Whether two bodies differ in volatile text alone, one to one."""
    was, is_ = volatile.masked(CHAT, parsed(one), user_text), volatile.masked(CHAT, parsed(two), user_text)
    return was.skeleton == is_.skeleton and mask.renaming(was.literals, is_.literals) is not None


def test_clock_in_system_text_and_tool_results_is_masked() -> None:
    assert parsed(BODY).body != parsed(later(BODY)).body
    assert matches(BODY, later(BODY))
    assert volatile.masked(CHAT, parsed(BODY)).literals == (OLD, OLD, OLD)


def test_developer_text_is_masked() -> None:
    body = replaced(BODY, ("messages", 0, "role"), "developer")
    assert matches(body, later(body))


def test_user_text_is_masked_only_where_that_was_declared() -> None:
    body = replaced(BODY, ("messages", 1, "content"), f"What is due at {OLD}?")
    assert not matches(body, later(body))
    assert matches(body, later(body), user_text=True)


ELSEWHERE = (
    ("model",), ("seed",), ("messages", 0, "name"), ("tools", 0, "function", "description"),
    ("messages", 2, "tool_calls", 0, "function", "arguments"),
)  # fmt: skip


@pytest.mark.parametrize("path", ELSEWHERE)
def test_volatile_text_anywhere_else_is_data(path: Any) -> None:
    body = replaced(BODY, path, f"at {OLD}")
    assert not matches(body, later(body))


def test_answer_of_the_assistant_is_data() -> None:
    body = BODY | {"messages": [*BODY["messages"], {"role": "assistant", "content": f"It was {OLD}"}]}
    assert not matches(body, later(body))


def test_any_other_change_beside_the_clock_is_refused() -> None:
    asked = later(BODY)
    for mutant in mutants(BODY):
        changed = later(mutant.body)
        if parsed(changed).body == parsed(asked).body or "cache_control" in mutant.path:
            continue
        if mutant.how == "gone" and at(BODY, mutant.path) is None:
            continue  # null is absent
        if mutant.path[-1] in ("id", "tool_call_id") or mutant.how == "order":
            continue  # ids and their order have rules of their own, tested with the fingerprint
        assert not matches(BODY, changed), mutant.name


def test_two_ids_that_trade_places_or_fall_together_are_another_question() -> None:
    first, second = "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "9b2d7c10-1c3e-4a55-8f0e-aa01bb02cc03"
    body = replaced(BODY, ("messages", 0, "content"), f"from {first} to {second}")
    for text in (f"from {second} to {first}", f"from {first} to {first}"):
        assert not matches(body, replaced(BODY, ("messages", 0, "content"), text)), text


def test_call_ids_renamed_one_to_one_are_the_same_question() -> None:
    def with_ids(first: str, second: str) -> Any:
        body = replaced(replaced(BODY, ("messages", 2, "tool_calls", 0, "id"), first),
                        ("messages", 2, "tool_calls", 1, "id"), second)  # fmt: skip
        return replaced(replaced(body, ("messages", 3, "tool_call_id"), first),
                        ("messages", 4, "tool_call_id"), second)  # fmt: skip

    assert matches(BODY, later(with_ids("x", "y")))
    assert not matches(BODY, later(with_ids("x", "x")))


def test_masking_leaves_the_call_as_it_was() -> None:
    call = parsed(BODY)
    before = call.body
    volatile.masked(CHAT, call, user_text=True)
    volatile.pointer(CHAT, call)
    assert call.body == before
    assert call.before + call.separator.join(item.raw for item in call.items) + call.after == before


# --- what clients say in the role of a user ---------------------------------------------------------------------------

ANTHROPIC, RESPONSES = AnthropicMessages(), OpenAIResponses()
REMINDER = "<system-reminder>\nToday's date is {}.\n</system-reminder>\n"
CONTEXT = "<environment_context>\n  <cwd>{}</cwd>\n  <current_date>{}</current_date>\n</environment_context>"
AGENT, OTHER = "a20f804dc441f400e", "acb86eafd7cc13b5b"
SHELL = "Chunk ID: {}\nWall time: {} seconds\nProcess exited with code 0\nOutput:\n{}\n"


def anthropic(*texts: str, system: str = "You are terse.", result: str = "") -> Call:
    """A user's message of some text parts; with ``result``, a tool call and what it returned after it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": text} for text in texts]}]
    if result:
        call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "pwd"}}
        returned = {"type": "tool_result", "tool_use_id": "toolu_1", "content": result}
        messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [returned]}]
    body = {"model": "claude-test", "max_tokens": 9, "system": system, "messages": messages}
    return ANTHROPIC.parse("POST", "messages", json.dumps(body).encode())


def responses(*texts: str, system: str = "You are terse.", result: str = "") -> Call:
    """The same question in the other wire format."""
    parts = [{"type": "input_text", "text": text} for text in texts]
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": parts}]
    if result:
        items += [
            {"type": "function_call", "call_id": "call_1", "name": "shell", "arguments": '{"command":"pwd"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": result},
        ]
    body = {"model": "gpt-test", "instructions": system, "input": items}
    return RESPONSES.parse("POST", "responses", json.dumps(body).encode())


BOTH = pytest.mark.parametrize(("dialect", "ask"), [(ANTHROPIC, anthropic), (RESPONSES, responses)])


def renamed(dialect: Dialect, old: Call, new: Call, user_text: bool = False) -> dict[str, str] | None:
    """The renaming under which both calls are the same question."""
    both = volatile.compared(dialect, old, new, user_text)
    return None if both is None else mask.renaming(both[0].literals, both[1].literals)


@BOTH
def test_block_that_a_client_has_generated_is_masked_though_it_is_sent_as_the_user(dialect: Dialect, ask: Any) -> None:
    old, new = (ask(REMINDER.format(day), "What is due?") for day in ("2026-11-30", "2026-12-01"))
    assert renamed(dialect, old, new) == {"2026-11-30": "2026-12-01"}
    old, new = (ask(CONTEXT.format(path, "2026-11-30")) for path in ("/srv/ann/x", "/opt/ben/x"))
    assert renamed(dialect, old, new) == {"<cwd>/srv/ann/x": "<cwd>/opt/ben/x", "2026-11-30": "2026-11-30"}


@BOTH
def test_what_stands_beside_a_generated_block_is_the_users_and_is_looked_at_for_quotes(
    dialect: Dialect, ask: Any
) -> None:
    block = REMINDER.format("2026-11-30")
    assert renamed(dialect, ask(block, "Due 2026-11-30?"), ask(block, "Due 2026-12-01?")) is None
    plain = volatile.masked(dialect, ask(block, "Due 2026-11-30?")).plain
    assert "Due 2026-11-30?" in plain and not any("Today's" in text for text in plain)


NOT_GENERATED = (
    "It is {}.", "<system-reminder>It is {}.", "It is {}.</system-reminder>", "<note>It is {}.</note>",
    "<system-reminder>x</system-reminder> Refund {} <system-reminder>y</system-reminder>",
    "<system-reminder>x</system-reminder> It is {}.", "Due: <system-reminder>It is {}.</system-reminder>",
    "<system-reminder>It is {}.</environment_context>", "<system-reminder foo>It is {}.</system-reminder>",
)  # fmt: skip


@BOTH
@pytest.mark.parametrize("text", NOT_GENERATED)
def test_part_that_is_not_one_whole_generated_block_is_the_users(dialect: Dialect, ask: Any, text: str) -> None:
    old, new = ask(text.format("2026-11-30")), ask(text.format("2026-12-01"))
    assert renamed(dialect, old, new) is None
    assert renamed(dialect, old, new, user_text=True) is not None


@given(st.lists(st.sampled_from(["<system-reminder>", "</system-reminder>", " ", "a", "\n"]), max_size=7))
@examples(300)
def test_generated_block_holds_nothing_outside_of_its_marks(parts: list[str]) -> None:
    text = "".join(parts)
    inside = text.strip().removeprefix("<system-reminder>").removesuffix("</system-reminder>")
    whole = text.strip() == f"<system-reminder>{inside}</system-reminder>" and "system-reminder" not in inside
    assert volatile.is_generated({"type": "text", "text": text}) == whole


@BOTH
def test_what_clients_number_and_measure_is_masked_in_results_and_is_data_in_the_words_of_a_user(
    dialect: Dialect, ask: Any
) -> None:
    old, new = SHELL.format("b94f84", "0.0000", "hello"), SHELL.format("7c1080", "0.0512", "hello")
    assert renamed(dialect, ask("Go.", result=old), ask("Go.", result=new)) is not None
    assert renamed(dialect, ask(old), ask(new)) is None
    assert renamed(dialect, ask("Go.", result=old), ask("Go.", result=new.replace("hello", "hallo"))) is None
    old, new = (f"agentId: {name}, see /tasks/{name}.output" for name in (AGENT, OTHER))
    assert renamed(dialect, ask("Go.", result=old), ask("Go.", result=new)) is not None
    assert renamed(dialect, ask(old), ask(new)) is None


@BOTH
def test_folder_that_system_text_names_is_masked_in_results_and_is_data_in_the_words_of_a_user(
    dialect: Dialect, ask: Any
) -> None:
    def at(path: str, text: str = "Where?", result: str = "{}/a.py") -> Call:
        call: Call = ask(text.format(path), system=f"Working directory: {path}\nBe terse.", result=result.format(path))
        return call

    one, two = "/srv/ann/project", "/opt/ben/project"
    assert renamed(dialect, at(one), at(two)) is not None
    assert renamed(dialect, at(one, "What is in {}?"), at(two, "What is in {}?")) is None
    assert renamed(dialect, at(one), at(two, result="/srv/eve/project/a.py")) is None
    assert renamed(dialect, at(one, result=f"{two}/a.py"), at(two, result=f"{one}/a.py")) is None, "they trade places"
    assert renamed(dialect, at(one, result="{}/a.py"), at(two, result=f"{one}/a.py")) is None, "left where it was"


@BOTH
@pytest.mark.parametrize("text", ["Working directory: {}", "<cwd>{}</cwd>", "in {}/.claude/x", "{}"])
def test_folder_that_only_a_tool_or_a_user_names_is_data(dialect: Dialect, ask: Any, text: str) -> None:
    old, new = text.format("/jobs/alpha"), text.format("/jobs/beta")
    assert renamed(dialect, ask("Go.", result=old), ask("Go.", result=new)) is None
    assert renamed(dialect, ask(old), ask(new)) is None


@BOTH
def test_role_of_a_message_is_no_quote_of_a_folder_that_is_called_like_it(dialect: Dialect, ask: Any) -> None:
    for text, quoted in (("Where?", False), ("user", True), ("Ask the user.", True)):
        old, new = (ask(text, system=f"Working directory: {path}") for path in ("/srv/user/x", "/opt/ben/x"))
        both = volatile.compared(dialect, old, new, False)
        assert both is not None
        told = mask.renaming(both[0].literals, both[1].literals)
        assert told is not None
        assert mask.quotes(both[1].plain, told) == quoted


# --- the pointer ------------------------------------------------------------------------------------------------------


def test_pointer_is_the_request_less_its_tool_results() -> None:
    body = replaced(BODY, ("messages", 3, "content"), "something else altogether")
    found, other = volatile.pointer(CHAT, parsed(BODY)), volatile.pointer(CHAT, parsed(body))
    assert found is not None and found == other
    assert found.ids == ("call_a", "call_b")


def test_request_without_tool_results_points_nowhere() -> None:
    assert volatile.pointer(CHAT, parsed(BODIES["plain"])) is None
    assert volatile.pointer(CHAT, parsed(BODIES["functions"])) is None


COUNTING = (
    ("messages", 0, "content"), ("messages", 1, "content"), ("messages", 3, "tool_call_id"), ("messages", 3, "role"),
    ("messages", 2, "tool_calls", 0, "function", "arguments"), ("tools", 0, "function", "name"),
)  # fmt: skip


@pytest.mark.parametrize("path", COUNTING)
def test_pointer_differs_where_anything_but_a_result_differs(path: Any) -> None:
    other = replaced(BODY, path, at(BODY, path) + "x")
    assert volatile.pointer(CHAT, parsed(other)) != volatile.pointer(CHAT, parsed(BODY))


def test_pointer_differs_where_results_are_missing() -> None:
    assert volatile.pointer(CHAT, parsed(removed(BODY, ("messages", 4)))) != volatile.pointer(CHAT, parsed(BODY))
