"""The two matches that are not strict: masked text, and the pointer of echoed call ids."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from agentstate.core import mask
from agentstate.core.model import Call
from agentstate.dialects import volatile
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
