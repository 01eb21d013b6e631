"""docs/reference/replay.md is held to the code where it names values: evidence, fields, statuses, policies, masks."""

from __future__ import annotations

import re

import pytest

from agentstate.core import mask, replay
from agentstate.core.divergence import Policy, window
from agentstate.core.runs import Evidence
from agentstate.dialects import openai_chat, pure, query
from agentstate.engine.state import FRESH_S
from agentstate.settings import ReplaySettings
from tests.house.pages import REFERENCE, names, section, table

PAGE = REFERENCE / "replay.md"
CODE = re.compile(r"`([^`]+)`")


def test_the_evidence_is_listed_in_the_order_in_which_it_is_looked_at() -> None:
    listed = [row[0].strip("`") for row in table(PAGE, "Which run is it")]
    order = [evidence.value for evidence in Evidence]
    assert listed == [value for value in order if value in listed]
    # The three others are no proof: the first run, a registered one, and an unnamed one among named ones.
    assert {Evidence(value) for value in order} - {Evidence(value) for value in listed} == {
        Evidence.FIRST,
        Evidence.SUPERVISOR,
        Evidence.NONE,
    }


def test_the_fields_that_do_not_count_are_those_on_the_deny_lists() -> None:
    chat, _, others = section(PAGE, "Which question is it").partition("in embeddings")
    assert set(CODE.findall(chat)) == openai_chat.DENIED
    assert set(CODE.findall(others.partition(";")[0])) == pure.DENIED


def test_the_parameters_of_the_query_that_do_not_count_are_as_listed() -> None:
    rows = [(set(CODE.findall(row[0])), row[1]) for row in table(PAGE, "The query")]
    assert {of.lower(): named for named, of in rows[:-1]} == query.HARMLESS
    assert rows[-1][0] == query.CREDENTIALS
    suspects = section(PAGE, "The query").partition("only named like one")[2].partition(")")[0]
    assert set(CODE.findall(suspects)) == set(query._SUSPECT.pattern.split("|"))


def test_the_statuses_that_are_tried_again_and_those_that_are_never_history_are_as_written() -> None:
    again = section(PAGE, "The same run asks again").partition("in passing (status")[2].partition(", or no answer")[0]
    assert {int(status) for status in re.findall(r"\d+", again)} == replay.TRANSIENT - {0}
    never = section(PAGE, "An earlier run's step").partition("The statuses")[2].partition("failures without")[0]
    assert {int(status) for status in re.findall(r"\d+", never)} == replay.NEVER_HISTORY - {0}
    assert {0} <= replay.TRANSIENT and {0} <= replay.NEVER_HISTORY


def test_every_kind_of_volatile_text_is_listed_with_examples_that_are_masked_as_such() -> None:
    rows = {row[0].strip("`"): CODE.findall(row[1]) for row in table(PAGE, "Almost the same question")}
    assert set(rows) == set(mask.VOLATILE.groupindex)
    for kind, examples in rows.items():
        for example in examples:
            assert mask.scrub(example) == (f"\x00{kind}\x00", (example,))


def test_every_policy_is_explained() -> None:
    assert [row[0].strip("`") for row in table(PAGE, "Divergence")] == [policy.value for policy in Policy]
    assert "`fork`" in table(PAGE, "Divergence")[0][1] and ReplaySettings().on_divergence == Policy.AUTO  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Almost the same question", f"({window.__defaults__[0]} at most)"),  # type: ignore[index]
        ("An earlier run's step", "after which two runs ended"),
        ("Finished sessions", "(seven days)"),
        ("The same run asks again", f"{FRESH_S:.0f} seconds"),
    ],
)
def test_a_figure_in_the_text_is_the_one_in_the_code(title: str, words: str) -> None:
    assert words in " ".join(section(PAGE, title).split())
    assert replay.DEADLY == 2
    assert ReplaySettings().replay_within_s == 7 * 86400  # type: ignore[call-arg]


def test_every_setting_that_the_page_names_exists() -> None:
    from agentstate.settings import reference

    known = {row[0] for row in reference()}
    named = {name for name in CODE.findall(PAGE.read_text()) if re.fullmatch(r"(replay|tools|server)\.\w+", name)}
    assert named and named <= known
    assert {f"replay.{name}" for name in ReplaySettings.model_fields} - named == {
        "replay.on_divergence",  # its values stand in the table
        "replay.first_prompt",  # has no effect yet, says the page of settings
    }
    assert names(PAGE, "Divergence")
