"""docs/reference/translation.md is held to the translator: every row is asked, lost or refused as it says."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agentstate.dialects import translate
from agentstate.dialects.translate_models import DEFAULT_MAX_TOKENS, claude
from agentstate.errors import Untranslatable
from tests.house.pages import REFERENCE, section, table

PAGE = REFERENCE / "translation.md"
SHORT = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic_messages"}
COLUMNS = tuple(SHORT)
# Of each dialect: models that sample, and models that reason.
MODELS = {"chat": ("gpt-4o", "gpt-5.6"), "responses": ("gpt-4o", "gpt-5.6"), "messages": ("qwen3", "claude-opus-5")}
TOOLS: dict[str, Any] = {
    "chat": {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    "responses": {"type": "function", "name": "f", "parameters": {"type": "object"}},
    "messages": {"name": "f", "input_schema": {"type": "object"}},
}


def body(name: str, more: dict[str, Any]) -> bytes:
    """A request in that dialect with these fields."""
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    if name == "responses":
        asked = {"model": "m", "input": "hi"}
    if name == "messages":
        asked["max_tokens"] = 500
    if "tool_choice" in more or "parallel_tool_calls" in more:
        asked["tools"] = [TOOLS[name]]
    return json.dumps(asked | more).encode()


def said(cell: str) -> dict[str, Any] | None:
    """The JSON in a cell; ``None``: there is none."""
    found: dict[str, Any] | None = None if cell == "—" else json.loads(cell.strip("`"))
    return found


ROWS = [
    (source, target, one, other)
    for cells in table(PAGE, "What goes over")
    for place, source in enumerate(COLUMNS)
    for at, target in enumerate(COLUMNS)
    if source != target and (one := said(cells[place])) is not None and (other := said(cells[at])) is not None
]


@pytest.mark.parametrize(("source", "target", "one", "other"), ROWS)
def test_what_goes_over_is_asked_as_the_page_says(
    source: str, target: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """With one of the target's models at least: no model takes everything."""
    got = []
    for model in MODELS[target]:
        found = translate.question(SHORT[source], SHORT[target], body(source, one), model)
        asked = json.loads(found.body)
        for tool in asked.get("tools", ()):  # said or not, it is the same
            if isinstance(tool.get("function"), dict):
                tool["function"].setdefault("strict", False)
        got.append({name: asked.get(name) for name in other} | {"losses": list(found.losses)})
    assert other | {"losses": []} in got


def pairs(froms: str, tos: str) -> list[tuple[str, str]]:
    return [(one, other) for one in froms.split(", ") for other in tos.split(", ") if one != other]


LOSSES = [
    (source, target, loss.strip("`"), example.strip("`"))
    for loss, froms, tos, example in table(PAGE, "What is lost")
    for source, target in pairs(froms, tos)
]


@pytest.mark.parametrize(("source", "target", "loss", "example"), LOSSES)
def test_what_is_lost_is_named_as_the_page_says(source: str, target: str, loss: str, example: str) -> None:
    fields = json.loads(example)
    if source == "chat":
        fields.pop("stop_sequences", None)
    if source == "messages":
        fields.pop("stop", None)
    found = translate.question(SHORT[source], SHORT[target], body(source, fields), MODELS[target][0])
    assert found.losses == (loss,)


def test_the_grave_losses_are_those_that_the_page_calls_so() -> None:
    text = PAGE.read_text("utf-8").partition("are *grave*")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([^`]+)`", text)) == set(translate._GRAVE)


@pytest.mark.parametrize(("reason", "source", "example"), table(PAGE, "What is refused"))
def test_what_is_refused_is_refused_for_that_reason(reason: str, source: str, example: str) -> None:
    for target in COLUMNS:
        if target != source:
            with pytest.raises(Untranslatable, match=re.escape(reason.strip("`"))):
                translate.question(SHORT[source], SHORT[target], body(source, json.loads(example.strip("`"))), "m")


def test_answers_end_in_the_words_of_the_table() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for chat, responses, messages in ([cell.strip("`") for cell in row] for row in table(PAGE, "In answers")):
        message = {"role": "assistant", "content": "x", **({"tool_calls": calls} if chat == "tool_calls" else {})}
        answer = {"id": "1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": chat}]}
        told = {}
        for name in ("responses", "messages"):
            made = translate.answer(SHORT[name], "openai_chat", body(name, {}), json.dumps(answer).encode())
            told[name] = json.loads(made.body)
        reason = (told["responses"]["incomplete_details"] or {}).get("reason")
        assert (reason or told["responses"]["status"], told["messages"]["stop_reason"]) == (responses, messages)


def test_the_limit_that_is_named_for_anthropic_is_the_one_in_the_code() -> None:
    assert f"{DEFAULT_MAX_TOKENS:,}" in section(PAGE, "What goes over")
    assert DEFAULT_MAX_TOKENS * 3600 <= 600 * 128_000 < (DEFAULT_MAX_TOKENS + 1) * 3600  # ten minutes


def test_the_versions_of_claude_that_the_page_names_are_those_in_the_code() -> None:
    def changes(family: str, of: str) -> list[str]:
        """The versions at which something that a family takes changes."""
        versions = [f"{major}.{minor}" for major in (4, 5) for minor in range(9)]
        takes = [getattr(claude(f"claude-{family}-{version.replace('.', '-')}"), of) for version in versions]
        return [version for place, version in enumerate(versions) if place and takes[place] != takes[place - 1]]

    assert changes("sonnet", "sampling") == ["4.7"] and changes("sonnet", "together") == ["4.1"]
    assert changes("sonnet", "forced") == changes("opus", "forced") == ["5.5"]
    assert changes("fable", "forced") == changes("mythos", "forced") == ["5.1"]
    assert changes("sonnet", "structured") == ["4.5"] and changes("opus", "structured") == ["4.1"]
    assert changes("opus", "prefill") == ["4.6"]
    text = section(PAGE, "What is lost")
    for words in (
        "from 4.7 on",
        "from 4.1 on",
        "from 5.5 on",
        "from 5.1 on",
        "before 4.5",
        "(Opus: 4.1)",
        "from 4.6 on",
    ):
        assert words in text
