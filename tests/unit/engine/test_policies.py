"""The settings' policies with real CEL conditions."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.core.model import Action, ToolCall
from agentstate.core.policy import Place
from agentstate.engine.policies import Policies
from agentstate.errors import SettingsError
from agentstate.settings import PolicySettings, Settings

HERE = Place("s")


def policies(*rules: dict[str, Any]) -> Policies:
    return Policies([PolicySettings(**rule) for rule in rules])


def ruled(found: Policies, name: str, arguments: str, place: Place = HERE) -> Action:
    return found.ruling(ToolCall(0, 0, "c", name, arguments), place).action


def test_by_default_dangerous_tools_are_held_and_all_others_pass() -> None:
    found = Policies(Settings().policies)
    for name in ("send_email", "execute_command", "delete_database", "stripe_charge"):
        assert ruled(found, name, "{}") is Action.HOLD
    assert ruled(found, "search", "{}") is Action.ALLOW


def test_condition_sees_arguments_tool_session_and_labels() -> None:
    found = policies(
        {"tools": ["*"], "when": 'tool == "charge" && args.amount > 100 && session == "s" && "prod" in labels'}
    )
    assert ruled(found, "charge", '{"amount": 101}', Place("s", ("prod",))) is Action.HOLD
    assert ruled(found, "charge", '{"amount": 100}', Place("s", ("prod",))) is Action.ALLOW
    assert ruled(found, "charge", '{"amount": 101}', Place("s")) is Action.ALLOW


@pytest.mark.parametrize("arguments", ["{}", '{"amount": "101"}', '{"amount": null}', '{"amount": [1]}'])
def test_condition_that_cannot_be_evaluated_holds_the_call(arguments: str) -> None:
    assert ruled(policies({"tools": ["charge"], "action": "allow", "when": "args.amount < 100"}), "charge", arguments) \
        is Action.HOLD  # fmt: skip


def test_condition_that_is_neither_true_nor_false_holds_the_call() -> None:
    found = policies({"tools": ["charge"], "action": "allow", "when": "args.amount"})
    assert ruled(found, "charge", '{"amount": 1}') is Action.HOLD
    assert "neither true nor false" in found.ruling(ToolCall(0, 0, "c", "charge", '{"amount": 1}'), Place("s")).why


def test_arguments_that_are_nested_very_deep_are_held_unread() -> None:
    found = policies({"tools": ["*"], "action": "allow", "when": "size(args.x) > 0"})
    deep = '{"x": ' + "[" * 600 + "]" * 600 + "}"
    assert ruled(found, "a", '{"x": [[[]]]}') is Action.ALLOW and ruled(found, "a", deep) is Action.HOLD


def test_condition_that_is_no_cel_is_refused_at_the_start_and_named() -> None:
    with pytest.raises(SettingsError, match=r"\[\[policies\]\] 2: when = 'args\.\('"):
        policies({"tools": ["a"]}, {"tools": ["b"], "when": "args.("})
