"""What a message says, and what it never says."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from agentstate.alerts import message
from agentstate.alerts.message import CONTENT, LABELS, Alert, compose, visible
from agentstate.settings import AlertSettings

EVENTS = get_args(get_args(AlertSettings.model_fields["on"].annotation)[0])
FACTS: dict[str, dict[str, Any]] = {
    "approval.required": {"approval": "apr_1", "tool": "send_email", "kind": "call"},
    "session.failed": {"run": "run-1", "exit_code": 1},
    "run.diverged": {"run": "run-1", "policy": "pause"},
    "call.in_doubt": {"approval": "apr_2", "tool": "stripe_charge"},
    "budget.reached": {"spent": "$5.00", "limit": "$5.00"},
    "provider.down": {"provider": "openai"},
    "session.paused": {"by": "ana", "reason": "it spends too much"},
    "session.resumed": {"by": "ana"},
}


def alert(event: str, **facts: Any) -> Alert:
    return Alert("msg_1", event, 1000.0, "invoice-4711", "apr_1", "http://proxy.test/approve/x", FACTS[event] | facts)


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_of_the_settings_has_words_of_its_own(event: str) -> None:
    said = compose(alert(event))
    assert said.title and said.text and not said.title.startswith("Alert:")
    assert ("Session", "invoice-4711") in said.fields
    shown = {value for _, value in said.fields}
    for name, value in FACTS[event].items():
        assert name in ("approval", "kind") or str(value) in shown
    assert said.data["session"] == "invoice-4711" and FACTS[event].items() <= said.data.items()


@pytest.mark.parametrize("kind", ["call", "request", "duplicate", "doubt", "budget"])
def test_each_kind_of_question_has_words_of_its_own(kind: str) -> None:
    texts = {
        one: compose(alert("approval.required", kind=one)).text
        for one in ("call", "request", "duplicate", "doubt", "budget")
    }
    assert len(set(texts.values())) == 5
    assert texts[kind]


@pytest.mark.parametrize("event", EVENTS)
def test_content_is_told_only_where_the_target_shows_it(event: str) -> None:
    secret = dict.fromkeys(CONTENT, "a prompt nobody may see")
    hidden, shown = compose(alert(event, **secret)), compose(alert(event, **secret), show_content=True)
    assert "a prompt" not in repr(hidden)
    assert shown.content == "a prompt nobody may see" and shown.data["arguments"] == shown.content


def test_a_fact_that_the_page_of_facts_does_not_know_is_told_to_nobody() -> None:
    assert "leak" not in repr(compose(alert("session.failed", prompt="leak"), show_content=True))
    assert not set(LABELS) & set(CONTENT)


@pytest.mark.parametrize(("event", "kind", "approval"), [
    ("approval.required", "call", "apr_1"), ("approval.required", "request", "apr_1"),
    ("approval.required", "doubt", "apr_1"), ("session.failed", "", ""), ("call.in_doubt", "doubt", "apr_1"),
])  # fmt: skip
def test_only_what_buttons_can_decide_is_offered_for_decision(event: str, kind: str, approval: str) -> None:
    said = compose(alert(event, kind=kind))
    assert said.approval == approval and bool(said.buttons) == bool(approval)


def test_a_call_in_doubt_has_buttons_that_cannot_be_taken_for_an_approval() -> None:
    held, doubt = compose(alert("approval.required")), compose(alert("call.in_doubt"))
    assert [button.name for button in held.buttons] == ["approve", "reject"]
    assert [button.name for button in doubt.buttons] == ["ran", "resend", "abort"]
    assert not {button.label for button in held.buttons} & {button.label for button in doubt.buttons}


@pytest.mark.parametrize("state", ["approved", "edited", "reused", "rejected", "expired"])
def test_an_approval_that_is_decided_by_now_offers_no_decision_and_says_so(state: str) -> None:
    for event in ("approval.required", "call.in_doubt"):
        said = compose(alert(event, state=state, decided_by="ada"))
        assert said.approval == "" and state in said.text and ("Decided by", "ada") in said.fields
        assert said.title.startswith("Nothing to decide")


HOSTILE = [
    ("pay\u202egpj.exe", "pay[U+202E]gpj.exe"),
    ("de\u200blete", "de[U+200B]lete"),
    ("a\u2066b\u2069", "a[U+2066]b[U+2069]"),
    ("line\nbreak\r", "line[U+000A]break[U+000D]"),
    ("\x1b[31mred", "[U+001B][31mred"),
    ("tag\U000e0041", "tag[U+E0041]"),
    ("fill\u3164er\u2800", "fill[U+3164]er[U+2800]"),
    ("v\ufe0f", "v[U+FE0F]"),
    ("no\u00a0break", "no[U+00A0]break"),
    ("half\ud800", "half[U+D800]"),
    ("größe 数 ok", "größe 数 ok"),
]


@pytest.mark.parametrize(("name", "shown"), HOSTILE)
def test_characters_that_hide_or_reorder_text_are_spelled_out(name: str, shown: str) -> None:
    assert visible(name) == shown
    said = compose(alert("approval.required", tool=name))
    assert said.title == f"Approval required: {shown}" and ("Tool", shown) in said.fields


def test_arguments_keep_their_lines_and_nothing_else_that_is_invisible() -> None:
    said = compose(alert("approval.required", arguments='{\n\t"to": "x\u202ey\x00"}'), show_content=True)
    assert said.content == '{\n\t"to": "x[U+202E]y[U+0000]"}'


def test_a_test_message_says_that_it_is_one() -> None:
    said = compose(message.test("msg_9", 5.0))
    assert (said.id, said.title, said.approval, said.link) == ("msg_9", "Test message", "", "")
