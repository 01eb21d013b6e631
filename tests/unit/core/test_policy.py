"""Which policy governs a call: the most specific, then the most restrictive; what is not understood is held."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import Action, OnReject, ToolCall
from agentstate.core.policy import (
    ConditionFault,
    Place,
    Rule,
    approval_digest,
    arguments_of,
    call_digest,
    governs,
    rule_on,
)

HERE = Place("s1")
ALLOW, HOLD, DENY = Action.ALLOW, Action.HOLD, Action.DENY


def call(name: str = "send_email", arguments: str = "{}") -> ToolCall:
    return ToolCall(0, 0, "c1", name, arguments)


def large(condition: str, tool: str, arguments: dict[str, Any], place: Place) -> bool:
    """The only condition of these tests: ``large``, that the amount is above 100; ``broken`` fails."""
    if condition == "broken":
        raise ConditionFault("no such name")
    return bool(arguments.get("amount", 0) > 100)


def ruled(rules: list[Rule], asked: ToolCall | None = None, place: Place = HERE) -> Action:
    return rule_on(asked or call(), place, rules, large).action


def test_call_that_no_policy_names_is_allowed() -> None:
    assert ruled([Rule(("stripe_*",), DENY)]) is ALLOW
    assert ruled([]) is ALLOW


@pytest.mark.parametrize("order", [1, -1])
def test_exact_name_wins_over_a_pattern_and_a_longer_pattern_over_a_shorter(order: int) -> None:
    exact = [Rule(("*",), DENY), Rule(("send_*",), HOLD), Rule(("send_email",), ALLOW)]
    assert ruled(exact[::order]) is ALLOW
    assert ruled(exact[:2][::order]) is HOLD


@pytest.mark.parametrize("order", [1, -1])
def test_among_equally_specific_policies_the_most_restrictive_wins(order: int) -> None:
    rules = [Rule(("send_email",), ALLOW), Rule(("send_email",), DENY), Rule(("send_email",), HOLD)]
    assert ruled(rules[::order]) is DENY


@pytest.mark.parametrize("order", [1, -1])
def test_condition_makes_a_policy_more_specific_where_it_holds(order: int) -> None:
    rules = [Rule(("charge",), HOLD), Rule(("charge",), ALLOW, when="large")]
    assert ruled(rules[::order], call("charge", '{"amount": 101}')) is ALLOW
    assert ruled(rules[::order], call("charge", '{"amount": 100}')) is HOLD


def test_session_and_label_patterns_narrow_a_policy() -> None:
    rules = [Rule(("*",), HOLD), Rule(("*",), ALLOW, sessions=("dev-*",)), Rule(("*",), DENY, labels=("prod",))]
    assert ruled(rules) is HOLD
    assert ruled(rules, place=Place("dev-1")) is ALLOW
    assert ruled(rules, place=Place("x", ("prod",))) is DENY
    assert ruled(rules, place=Place("dev-1", ("prod",))) is DENY


def test_condition_that_fails_never_lets_a_call_pass() -> None:
    assert ruled([Rule(("*",), ALLOW, when="broken")]) is HOLD
    assert ruled([Rule(("*",), DENY, when="broken")]) is DENY
    assert "no such name" in rule_on(call(), HERE, [Rule(("*",), ALLOW, when="broken")], large).why


UNREADABLE = ['{"amount": ', "[1]", '"text"', "7", "{" * 100_000]


@pytest.mark.parametrize("arguments", UNREADABLE)
def test_arguments_that_cannot_be_understood_are_held_where_a_policy_could_hold_the_tool(arguments: str) -> None:
    read = call("read", arguments)
    assert ruled([Rule(("read",), HOLD)], read) is HOLD
    assert ruled([Rule(("read",), DENY)], read) is DENY
    assert ruled([Rule(("read",), ALLOW, when="large")], read) is HOLD
    assert ruled([Rule(("read",), ALLOW), Rule(("*",), HOLD)], read) is HOLD
    assert ruled([Rule(("Read",), HOLD, when="large")], read) is HOLD


@pytest.mark.parametrize("arguments", [*UNREADABLE, "null"])
def test_arguments_of_a_tool_that_no_policy_could_hold_pass_whatever_they_are(arguments: str) -> None:
    assert ruled([Rule(("other",), DENY)], call("read", arguments)) is ALLOW
    assert ruled([Rule(("read",), ALLOW), Rule(("other",), HOLD)], call("read", arguments)) is ALLOW
    assert ruled([Rule(("read",), HOLD, sessions=("t*",))], call("read", arguments)) is ALLOW


def test_empty_arguments_and_null_are_none_and_a_call_without_a_name_is_held() -> None:
    assert arguments_of("  ") == arguments_of("null") == ({}, "")
    assert ruled([Rule(("other",), HOLD)], call("read", "")) is ALLOW
    for nameless in ("", " ", "\u200b"):
        assert ruled([Rule(("*",), ALLOW)], call(nameless)) is HOLD
        assert ruled([Rule(("other",), HOLD)], call(nameless)) is HOLD


@pytest.mark.parametrize("name", [
    "Send_Email", " send_email\n", "functions.send_email", "mail:send_email", "a/b.send_email", "send_email\u200b",
    "se\u00adnd_email", "\uff53end_email", "functions.Send_Email.", "send_email\ufe0f",
])  # fmt: skip
def test_policy_that_holds_or_denies_matches_a_respelled_name_and_one_that_allows_does_not(name: str) -> None:
    assert ruled([Rule(("send_email",), HOLD)], call(name)) is HOLD
    assert ruled([Rule(("send_*",), DENY)], call(name)) is DENY
    assert ruled([Rule(("SEND_EMAIL",), HOLD)], call(name)) is HOLD
    assert ruled([Rule(("*",), HOLD), Rule(("send_email",), ALLOW)], call(name)) is HOLD
    assert ruled([Rule(("*",), ALLOW), Rule(("send_email",), HOLD)], call(name)) is HOLD
    assert ruled([Rule(("send_email",), ALLOW, when="large")], call(name, "[]")) is ALLOW
    assert ruled([Rule(("send_emails", "mail"), HOLD)], call(name)) is ALLOW
    assert governs(Rule(("send_email",), HOLD), name, HERE)


def test_exception_to_a_policy_is_not_undone_by_other_spellings_of_the_same_name() -> None:
    rules = [Rule(("Charge.All",), HOLD), Rule(("Charge.All",), ALLOW, when="large")]
    assert ruled(rules, call("Charge.All", '{"amount": 101}')) is ALLOW
    assert ruled([Rule(("[s]end_email",), HOLD)], call("send_email")) is HOLD


def test_every_name_that_a_client_may_make_of_a_call_is_ruled_on() -> None:
    pieces = ToolCall(0, 0, "c1", "search_mail", "{}", ("search_", "mail"))
    assert ruled([Rule(("mail",), DENY)], pieces) is DENY
    assert ruled([Rule(("search_mail",), ALLOW), Rule(("Mail",), HOLD)], pieces) is HOLD
    assert ruled([Rule(("email",), DENY)], pieces) is ALLOW
    assert ruled([Rule(("mail",), ALLOW), Rule(("search_*",), HOLD)], pieces) is HOLD


def test_ruling_carries_how_a_refusal_is_told() -> None:
    told = rule_on(call(), HERE, [Rule(("*",), HOLD, on_reject=OnReject.ERROR)], large)
    assert told.on_reject is OnReject.ERROR
    assert rule_on(call(), HERE, [], large).on_reject is OnReject.MESSAGE


RULES = st.builds(
    Rule,
    st.lists(st.sampled_from(["*", "send_*", "send_email", "read", "?ead"]), min_size=1, max_size=2).map(tuple),
    st.sampled_from(list(Action)),
    when=st.sampled_from(["", "large", "broken"]),
    sessions=st.sampled_from([(), ("s*",), ("t*",)]),
)


@given(st.lists(RULES, max_size=6), st.sampled_from(["send_email", "read"]), st.sampled_from(["{}", '{"amount": 500}']))
def test_order_of_the_policies_never_matters(rules: list[Rule], name: str, arguments: str) -> None:
    asked = call(name, arguments)
    assert ruled(rules, asked) is ruled(rules[::-1], asked)


def test_without_any_policy_there_is_no_gate() -> None:
    assert ruled([], call("", "{")) is ALLOW


@given(st.lists(RULES, min_size=1, max_size=6), st.sampled_from(["send_email", "read"]), st.sampled_from(["{", "[]"]))
def test_arguments_that_cannot_be_understood_are_never_treated_milder(
    rules: list[Rule], name: str, arguments: str
) -> None:
    strict = [rule for rule in rules if (rule.action is not ALLOW or rule.when) and governs(rule, name, HERE)]
    assert (ruled(rules, call(name, arguments)) is ALLOW) is (not strict)


PREFIXES = st.sampled_from(["", " ", "functions.", "a:", "x/y.", "\u200b", "\ufeff"])
SUFFIXES = st.sampled_from(["", " ", "\n", "\u200d", "\ufe0f", "."])
STRICT = RULES.filter(lambda rule: rule.action is not ALLOW)
ORDER = [ALLOW, HOLD, DENY]


@st.composite
def respellings(draw: st.DrawFn) -> str:
    def letter(one: str) -> str:
        return draw(st.sampled_from([one, one.upper(), chr(ord(one) + 0xFEE0), one + "\u200c"]))

    return draw(PREFIXES) + "".join(letter(one) for one in "send_email") + draw(SUFFIXES)


@given(st.lists(STRICT, max_size=5), respellings(), st.sampled_from(["{}", '{"amount": 500}', "{"]), st.booleans())
def test_no_respelling_is_treated_milder_than_the_plain_name(
    rules: list[Rule], name: str, arguments: str, allowed: bool
) -> None:
    given_ = [*rules, Rule(("send_email",), ALLOW)] if allowed else rules
    plain, respelled = ruled(given_, call(arguments=arguments)), ruled(given_, call(name, arguments))
    assert ORDER.index(respelled) >= ORDER.index(plain)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.booleans())
def test_digest_of_a_call_depends_on_its_value_and_not_on_its_spelling(value: dict[str, Any], spaced: bool) -> None:
    one = json.dumps(value)
    other = json.dumps(dict(reversed(value.items())), indent=2 if spaced else None, ensure_ascii=False)
    assert call_digest("t", one) == call_digest("t", other)
    assert call_digest("t", one) != call_digest("u", one)
    assert call_digest("t", json.dumps({**value, "more": 1})) != call_digest("t", one)


def test_what_a_decision_is_bound_to_changes_with_each_part() -> None:
    base: list[Any] = ["s", 1, 2, (0, 0), "t", "{}", "{}"]
    seen = {approval_digest(*base)}
    for place, other in enumerate(["x", 9, 9, (0, 1), "u", "{ }", ""]):
        seen.add(approval_digest(*base[:place], other, *base[place + 1 :]))
    assert len(seen) == 8
