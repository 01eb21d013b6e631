"""What a card says of a decision is what the engine does with it."""

from __future__ import annotations

import json

import pytest

from agentstate.core.approval import Decision, fits
from agentstate.core.effects import ToolClass
from agentstate.core.model import ApprovalKind, ApprovalState, OnReject, Release
from agentstate.dashboard import approval_words as words
from agentstate.store.rows import ApprovalRow


def row(kind: ApprovalKind = ApprovalKind.CALL, state: ApprovalState = ApprovalState.PENDING,
        on_reject: OnReject = OnReject.MESSAGE, by: str = "", reason: str = "") -> ApprovalRow:  # fmt: skip
    rule = json.dumps({"why": "policy 1 governs it", "limit": "session_usd"})
    tool = "send" if kind not in (ApprovalKind.REQUEST, ApprovalKind.BUDGET) else ""
    return ApprovalRow(
        "apr_1", 1, "s", 1, 0, kind, 0, 0, "c", tool, "{}", "", b"", rule, on_reject, 1, (), state, "", by, reason,
        0.0, None, None,
    )  # fmt: skip


@pytest.mark.parametrize("kind", list(ApprovalKind))
def test_each_kind_offers_exactly_the_decisions_that_fit_it(kind: ApprovalKind) -> None:
    offered = [choice.action for choice in words.choices(row(kind), 0)]
    assert sorted(offered) == sorted(action.value for action in Decision if not fits(kind, action))
    assert all(choice.effect and choice.command.startswith("agentstate ") for choice in words.choices(row(kind), 0))
    assert words.title(row(kind)) and words.risk(row(kind), ToolClass.ONCE)


@pytest.mark.parametrize("kind", list(ApprovalKind))
def test_no_two_choices_of_a_card_have_the_same_letter(kind: ApprovalKind) -> None:
    keys = [choice.key for choice in words.choices(row(kind), 0) if choice.key]
    assert len(keys) == len(set(keys)) and "r" in keys


def test_what_a_rejection_does_is_said_by_the_policys_way_of_rejecting() -> None:
    said = {
        way: next(one.effect for one in words.choices(row(on_reject=way), 0) if one.action == "REJECTED")
        for way in OnReject
    }
    assert "taken out" in said[OnReject.MESSAGE] and "asked once more" in said[OnReject.CONTINUE]
    assert "human_rejection" in said[OnReject.ERROR]


def test_calls_of_the_same_answer_are_said_to_wait_for_each_other() -> None:
    one, two = (words.choices(row(), others)[0].effect for others in (1, 2))
    assert "the other call of the same answer is decided" in one
    assert "the 2 other calls of the same answer are decided" in two


def test_nothing_is_said_to_be_released_before_it_is() -> None:
    decided = row(state=ApprovalState.APPROVED, by="ann")
    assert words.afterwards(decided, Release.HELD, False, 0).startswith("Nothing is released yet")
    assert "another call" in words.afterwards(decided, Release.HELD, False, 1)
    assert "cannot be undone" in words.afterwards(decided, Release.ANSWER, False, 0)
    assert words.outcome(decided) == "Approved by ann"


def test_an_expired_one_says_that_it_counts_as_a_rejection() -> None:
    said = words.outcome(row(state=ApprovalState.EXPIRED, reason="nobody decided in time"))
    assert said == "Expired: nobody decided in time. That counts as a rejection."


def test_whether_an_agent_waits_is_said() -> None:
    assert words.afterwards(row(), Release.HELD, True, 0) == "Its agent waits for it now."
    assert "kept" in words.afterwards(row(), Release.HELD, False, 0)


def test_a_command_line_is_quoted_as_a_shell_takes_it() -> None:
    assert words.command_line("show", "a b; rm -rf /") == "agentstate show 'a b; rm -rf /'"
