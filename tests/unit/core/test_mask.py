"""Which texts count as volatile, which renamings are harmless, and which answers speak of what has changed."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core import mask
from tests.unit.core.profile import examples

UUIDS = ("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "9b2d7c10-1c3e-4a55-8f0e-aa01bb02cc03")

VOLATILE_TEXT = {
    "uuid": UUIDS[0],
    "date": "2026-11-30",
    "stamp": "2026-11-30T09:41:05Z",
    "stamp with fraction and zone": "2026-11-30 09:41:05.123+02:00",
    "day in words": "Mon, Nov 30, 2026",
    "day in words, British": "30 November 2026",
    "month": "November 2026",
    "slashed": "11/30/2026",
    "clock": "09:41:05",
    "clock with half": "9:41 PM",
    "temporary file": "/tmp/tmpab12cd34",
    "folder of work": "Working directory: /srv/ann/project",
    "folder of work in marks": "<cwd>/srv/ann/project",
    "home": "/srv/ann/.claude/",
    "home of another client": "/boxes/.codex/",
    "agent": "agentId: a20f804dc441f400e",
    "agent in a path": "x/tasks/a20f804dc441f400e",
    "duration": "<duration_ms>182</duration_ms>",
}


@pytest.mark.parametrize("name", VOLATILE_TEXT)
def test_volatile_text_is_masked_and_kept_as_a_literal(name: str) -> None:
    text = f"Report of {VOLATILE_TEXT[name]}, for you"
    shown, literals = mask.scrub(text)
    assert VOLATILE_TEXT[name] not in shown
    assert "\x00" in shown and shown.startswith("Report of ") and shown.endswith(", for you")
    assert "".join(literals) and all(literal in text for literal in literals)


@pytest.mark.parametrize("text", [
    "order 4711", "1700000000", "3.14", "10:30", "the score was 3:2", "version 1.2.3", "10.0.0.1", "/etc/passwd",
    "42 apples", "chapter 7", "a ratio of 16:9", "2026", "1/2", "deadbeef", "reports/draft-2",
    "/srv/ann/project", "Working directory: /", "Working directory: project", "a20f804dc441f400e", "/tasks/a20f",
    "agentId: b20f804dc441f400e", "order Chunk ID: b94f84", "Chunk ID: b94f84 of many", "Chunk ID: b94f8",
    "a list:\nChunk ID: b94f84\nWall time: 5 seconds", "Wall time: 5 seconds", "in a Wall time: 0.1 seconds",
    "duration_ms 182", "see ~/.claude/ and x/.claude/", "/srv/ann/.config/",
])  # fmt: skip
def test_what_may_be_data_is_not_masked(text: str) -> None:
    assert mask.scrub(text) == (text, ())


@given(st.text(max_size=40), st.text(max_size=40))
@examples(300)
def test_skeletons_of_different_texts_without_volatile_parts_differ(first: str, second: str) -> None:
    one, two = mask.scrub(first), mask.scrub(second)
    assert (one == two) == (first == second)


@given(st.lists(st.sampled_from(tuple(VOLATILE_TEXT.values())), min_size=1, max_size=4))
@examples(100)
def test_text_is_its_skeleton_with_its_literals_in_order(parts: list[str]) -> None:
    text = " and then ".join(parts)
    shown, literals = mask.scrub(text)
    rest = text
    for literal in literals:
        assert literal in rest
        rest = rest[rest.index(literal) + len(literal) :]
    assert shown.count("\x00") == 2 * len(literals)


# --- renaming ---------------------------------------------------------------------------------------------------------


def test_renaming_is_one_to_one() -> None:
    a, b = UUIDS
    assert mask.renaming([a, a], [b, b]) == {a: b}
    assert mask.renaming([a, b], [b, a]) is None, "ids that change places are another question"
    assert mask.renaming([], []) == {}
    assert mask.renaming([a, a], [b, a]) is None, "one literal became two"
    assert mask.renaming([a, b], [b, b]) is None, "two literals became one"
    assert mask.renaming([a], [a, b]) is None
    assert mask.renaming([a, b], [a]) is None


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("wxyz"), max_size=6))
@examples(300)
def test_renaming_maps_place_by_place_or_not_at_all(old: list[str], new: list[str]) -> None:
    found = mask.renaming(old, new)
    pairs = set(zip(old, new, strict=False))
    bijective = len(old) == len(new) and len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    assert (found is not None) == bijective
    if found is not None:
        assert [found[literal] for literal in old] == new


def test_dates_keep_their_order() -> None:
    due, today = "2026-03-14", "2026-03-13"
    assert mask.renaming([due, today], [due, "2026-03-12"]) is not None
    assert mask.renaming([due, today], [due, "2026-03-15"]) is None
    assert mask.renaming([due, today], [due, due]) is None


# --- where an agent is ------------------------------------------------------------------------------------------------

WORK, HOME, ELSEWHERE = "/srv/ann/project", "/srv/ann", "/opt/ben/project"


def moved(text: str, other: str, was: tuple[str, ...] = (WORK,), is_: tuple[str, ...] = (ELSEWHERE,)) -> bool:
    """Whether two texts are the same but for the folders of their agents."""
    one, two = mask.scrub(text, was), mask.scrub(other, is_)
    return one[0] == two[0] and mask.renaming(one[1], two[1]) is not None


def test_folders_are_learned_from_where_a_client_names_them() -> None:
    text = f"Primary working directory: {WORK}\n<cwd>{ELSEWHERE}</cwd> `{HOME}/.claude/x` <root>/srv/x</root> /opt/data"
    assert mask.folders_in(mask.scrub(text)[1]) == (ELSEWHERE, HOME, WORK)
    assert mask.folders_in(["/tmp/tmpab12cd34", "2026-11-30", UUIDS[0], "agentId: a20f804dc441f400e"]) == ()


def test_folder_is_data_where_no_client_speaks_unless_it_was_learned() -> None:
    for text in ("Working directory: {}", "<cwd>{}</cwd>", "{}/.claude/x"):
        assert mask.scrub(text.format(WORK), named=False) == (text.format(WORK), ())
        assert mask.scrub(text.format(WORK), (WORK,), named=False)[1] == (WORK,)


@pytest.mark.parametrize("text", [
    "in {}", "{}/src/a.py", "`{}`", "PATH={}/bin:/bin", "<root>{}</root>", "{}.", "({})", "file://{}/x",
])  # fmt: skip
def test_folder_that_was_learned_is_masked_wherever_it_stands(text: str) -> None:
    assert moved(text.format(WORK), text.format(ELSEWHERE))
    assert not moved(text.format(WORK), text.format("/srv/eve/project")), "nobody has named that folder"


def test_folder_is_masked_with_dashes_for_slashes_too_and_is_renamed_with_itself() -> None:
    text = "{home}/.claude/projects/{dashed}/memory in {work}"
    old = text.format(home=HOME, dashed="-srv-ann-project", work=WORK)
    folders = ((HOME, WORK), ("/opt/ben", ELSEWHERE))
    assert moved(old, text.format(home="/opt/ben", dashed="-opt-ben-project", work=ELSEWHERE), *folders)
    assert not moved(old, text.format(home="/opt/ben", dashed="-opt-ben", work=ELSEWHERE), *folders)


@pytest.mark.parametrize("text", [
    "{}2", "{}-old", "{}_old", "{}.bak", "x{}", "~{}", "..{}", "/mnt{}",
])  # fmt: skip
def test_another_folder_whose_name_holds_a_learned_one_is_data(text: str) -> None:
    assert not moved(text.format(WORK), text.format(ELSEWHERE))


def test_two_folders_that_trade_places_or_fall_together_are_another_question() -> None:
    both = (WORK, ELSEWHERE)
    assert not moved(f"from {WORK} to {ELSEWHERE}", f"from {ELSEWHERE} to {WORK}", both, both)
    assert not moved(f"from {WORK} to {ELSEWHERE}", f"from {WORK} to {WORK}", both, both)
    third = "/srv/eve/project"
    assert not moved(f"{WORK} {HOME}", f"{HOME} {third}", (WORK, HOME), (HOME, third)), "one has become the other"
    labelled = f"Working directory: {WORK}", f"<cwd>{ELSEWHERE}</cwd>", f"working directory: {WORK}"
    assert mask.renaming([labelled[0]], [labelled[2]]) is None, "the words before it are no name"
    old, new = f"Working directory: {WORK} <cwd>{WORK}", f"Working directory: {ELSEWHERE} <cwd>{third}"
    assert not moved(old, new, (), ()), "one folder has become two"


_NAMES = st.text("ab-_.", min_size=1, max_size=4).filter(lambda name: name[-1] != "." and name[0] not in ".-")
_PATHS = st.lists(_NAMES, min_size=2, max_size=3).map(lambda names: "/" + "/".join(names))


@given(_PATHS, _PATHS, st.sampled_from(["at {}", "{}/x", "{}: no", "-{}", "{}b", "{} and {}", "a{}"]))
@examples(300)
def test_texts_that_are_masked_alike_are_the_same_text_with_another_folder(was: str, is_: str, text: str) -> None:
    old, new = text.format(was, was), text.format(is_, is_)
    if moved(old, new, (was,), (is_,)):
        assert old.replace(was, is_) == new
    literals = mask.scrub(old, (was,))[1]
    assert set(literals) <= {was}


@pytest.mark.parametrize("spelling", [WORK, "-srv-ann-project", "the folder ann", "Ann's home", "/srv/ann", "ANN"])
def test_answer_that_names_an_old_folder_or_a_part_of_it_is_found(spelling: str) -> None:
    for literal in (WORK, f"Working directory: {WORK}", f"<cwd>{WORK}", f"{HOME}/.claude/"):
        new = literal.replace("/srv/ann", "/opt/ben")
        if "project" in spelling and "project" not in literal:
            continue
        assert mask.quotes([f"It is {spelling}."], {literal: new})
        assert not mask.quotes([f"It is {spelling}."], {literal: literal})
    assert not mask.quotes(["The project is on srv."], {WORK: ELSEWHERE}), "that has not changed, or tells nothing"


# --- what clients number and measure ----------------------------------------------------------------------------------

AGENTS = ("a20f804dc441f400e", "acb86eafd7cc13b5b", "aba8adb115d20f00d")
SHELL = "Chunk ID: {}\nWall time: {} seconds\nProcess exited with code 0\nOutput:\nhello\n"


def same(old: str, new: str) -> dict[str, str] | None:
    """The renaming under which one text is the other."""
    one, two = mask.scrub(old), mask.scrub(new)
    return mask.renaming(one[1], two[1]) if one[0] == two[0] else None


def test_chunk_and_duration_of_a_command_are_masked_and_its_output_is_not() -> None:
    old = SHELL.format("b94f84", "0.0000")
    assert same(old, SHELL.format("7c1080", "0.0512"))
    assert same(old, SHELL.format("7c1080", "0.0512").replace("hello", "hallo")) is None
    assert same(old, SHELL.format("7c1080", "0.0512").replace("code 0", "code 1")) is None


def test_agents_keep_their_names_apart() -> None:
    text = "agentId: {} (to: '{}') <task-id>{}</task-id> /tasks/{}.output"
    old = text.format(*[AGENTS[0]] * 4)
    assert same(old, text.format(*[AGENTS[1]] * 4))
    assert same(old, text.format(AGENTS[1], AGENTS[1], AGENTS[1], AGENTS[2])) is None
    two = "agentId: {} agentId: {}"
    assert same(two.format(*AGENTS[:2]), two.format(AGENTS[1], AGENTS[0])) is None


def test_durations_need_not_be_one_to_one() -> None:
    old, new = "Wall time: 0.0000 seconds", "Wall time: 0.0512 seconds"
    assert mask.renaming([old, old], [old, new]) == {old: new}
    assert mask.renaming([old, new], [new, old]) is not None
    assert mask.renaming([old], ["<duration_ms>51</duration_ms>"]) is None, "another unit"


def test_answer_that_quotes_an_agent_a_chunk_or_a_duration_is_found() -> None:
    agent = {f"agentId: {AGENTS[0]}": f"agentId: {AGENTS[1]}"}
    assert mask.quotes([f'{{"to": "{AGENTS[0]}"}}'], agent)
    assert mask.quotes([AGENTS[0].upper()], agent)
    assert not mask.quotes([AGENTS[1], "the agent"], agent)
    assert mask.quotes(["see chunk b94f84"], {"Chunk ID: b94f84": "Chunk ID: 7c1080"})
    for took in ("0.0512", "0.051 s", "0.05 seconds", "51 ms", "51.2ms", "51.2 milliseconds"):
        assert mask.quotes([f"it took {took}"], {"Wall time: 0.0512 seconds": "Wall time: 0.0600 seconds"}), took
    for took in ("12.35 s", "12 seconds", "12.3 seconds", "12s"):
        assert mask.quotes([f"it took {took}"], {"Wall time: 12.3456 seconds": "Wall time: 0.0600 seconds"}), took
    for took in ("1820 ms", "1.82 s", "2 seconds", "1820"):
        assert mask.quotes([f"it took {took}"], {"<duration_ms>1820</duration_ms>": "<duration_ms>99</duration_ms>"})
    assert not mask.quotes(["12 apples, 5 pears"], {"Wall time: 12.3456 seconds": "Wall time: 5.0000 seconds"})


# --- what an answer says ----------------------------------------------------------------------------------------------

DAY, NEXT = date(2026, 11, 30), date(2027, 2, 3)
QUOTED = (
    "2026-11-30", "November 30", "Nov 30", "30 November", "30. November", "30th of November", "Monday", "11/30/2026",
    "30.11.2026", "11/30", "20261130", "nov 30", "NOVEMBER 30", "2026/11/30", "30/11/2026",
)  # fmt: skip
QUOTED_CLOCKS = ("21:05", "9:05 pm", "9:05pm", "09:05 PM", "2105", "9:05 p.m.")


@pytest.mark.parametrize("spelling", QUOTED)
@pytest.mark.parametrize("literal", ["2026-11-30", "Mon, Nov 30, 2026", "30 November 2026", "2026-11-30T08:00:00Z"])
def test_answer_that_names_the_old_day_in_any_spelling_is_found(literal: str, spelling: str) -> None:
    assert mask.quotes([f"As of {spelling}, nothing."], {literal: "2027-02-03"})
    assert not mask.quotes([f"As of {spelling}, nothing."], {literal: literal})


@pytest.mark.parametrize("spelling", QUOTED_CLOCKS)
@pytest.mark.parametrize("literal", ["21:05:33", "9:05 PM", "2026-11-30T21:05:33Z"])
def test_answer_that_names_the_old_clock_in_any_spelling_is_found(literal: str, spelling: str) -> None:
    assert mask.quotes([f"It is {spelling} now."], {literal: "07:44:01"})


def test_answer_that_names_the_old_id_or_path_is_found() -> None:
    old, new = UUIDS
    assert mask.quotes([f"done with {old}"], {old: new})
    assert mask.quotes(["x", f"done with {old.replace('-', '')}"], {old: new})
    assert mask.quotes([f"done with {old.upper()}"], {old: new})
    assert not mask.quotes(["done", new], {old: new})
    assert mask.quotes(["see /tmp/tmpab12cd34/x"], {"/tmp/tmpab12cd34": "/tmp/tmpzz99yy88"})


def test_answer_that_speaks_of_nothing_that_changed_is_free() -> None:
    assert not mask.quotes(["All is well in March."], {"2026-03-14": "2026-03-15"}), "the month has not changed"
    assert not mask.quotes(["All is well."], {"2026-11-30": "2027-02-03"})
    assert not mask.quotes([], {"2026-11-30": "2027-02-03"})
    assert not mask.quotes(["2026-11-30"], {})


def told(day: date) -> set[str]:
    return {f"{day:%B} {day.day}", f"{day.day} {day:%B}", f"{day:%d/%m/%Y}", day.isoformat(), f"{day:%A}"}


@given(st.dates(date(2001, 1, 1), date(2090, 1, 1)).filter(lambda day: day.day > 12), st.integers(1, 400))
@examples(60)
def test_any_day_is_found_in_the_usual_spellings(day: date, later: int) -> None:
    new = day + timedelta(days=later)
    for spelling in told(day):
        found = mask.quotes([f"on {spelling}."], {day.isoformat(): new.isoformat()})
        assert found == (spelling not in told(new)), spelling
