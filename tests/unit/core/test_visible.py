"""A person who decides sees every character of what they decide on."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.visible import laid_out, visible


@pytest.mark.parametrize(
    "hidden",
    ["\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u00a0", "\u2028", "\x1b", "\x7f", "\r", "\u3164",
     "\ufe0f", "\U000e0041", "\u2800", "\ud800", "\ue000", "\u061c", "\u0000"],
)  # fmt: skip
def test_what_cannot_be_seen_is_named(hidden: str) -> None:
    assert visible(f"a{hidden}b") == f"a‹U+{ord(hidden):04X}›b"


def test_what_can_be_seen_stays_as_it_is() -> None:
    for text in ("plain", "two\nlines\tand a tab", "Zürich 東京 Привет 🙂", ""):
        assert visible(text) == text


@given(st.text())
def test_no_format_character_is_left(text: str) -> None:
    assert all(char.isprintable() or char in "\n\t" for char in visible(text))


def test_arguments_are_laid_out_with_their_letters() -> None:
    text, note = laid_out(json.dumps({"to": "Zoë", "amount": 12.5, "n": 10**30}))
    assert (text, note) == ('{\n  "to": "Zoë",\n  "amount": 12.5,\n  "n": ' + str(10**30) + "\n}", "")


def test_an_escaped_character_that_cannot_be_seen_is_named_as_well() -> None:
    assert "‹U+202E›" in laid_out(r'{"file": "gpj.\u202eexe"}')[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"to": "a", "to": "b"}', "twice"),
        ('{"x": {"to": 1, "to": 1}}', "twice"),
        ('{"amount": 1.00000000000000000001}', "digits"),
        ('{"amount": 1e400}', "too large"),
        ('{"amount": 1e-99999999999999999999}', "number"),
        ('{"amount": NaN}', "NaN"),
        ("not json", "not JSON"),
        ("", "none"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_cannot_be_laid_out_without_loss_is_shown_to_the_letter(text: str, why: str) -> None:
    shown, note = laid_out(text)
    assert shown == text and why in note
