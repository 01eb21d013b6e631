"""Owns the sentences of the session verbs: what each would do, and the button that says it again. Must not query.

Invariant: a rollback, a fork and an edit are never said to undo anything; what acted and may act again is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.core.effects import ToolClass
from agentstate.core.model import State
from agentstate.dashboard.rendering import dollars
from agentstate.engine.steering import MadeCall, Preview
from agentstate.store.effect_reader import EffectRow


@dataclass(frozen=True, slots=True)
class Acted:
    """A call that did something, or may have, and that nothing undoes."""

    tool: str
    step: int
    how: str


@dataclass(frozen=True, slots=True)
class Effect:
    """What a verb would do, in words. ``button``: what pressing it does; ``able``: it would do something; ``acted``:
    what may act again; ``withdrawn``: how many questions people would be asked no more."""

    sentences: tuple[str, ...]
    acted: tuple[Acted, ...]
    button: str
    able: bool = True
    withdrawn: int = 0


def of_preview(preview: Preview) -> Effect:
    """Raises nothing: every preview can be said."""
    say = {"rollback": _rollback, "fork": _fork, "edit": _edit}[preview.verb]
    sentences, button, able = say(preview)
    withdrawn = len(preview.pending)
    if withdrawn:
        questions = "1 question" if withdrawn == 1 else f"{withdrawn} questions"
        sentences.append(f"{questions} that people are asked about these steps {'is' if withdrawn == 1 else 'are'} "
                         "withdrawn.")  # fmt: skip
    acted = [*(_acted(row) for row in preview.standing), *(_made(call) for call in preview.made)]
    return Effect(tuple(sentences), tuple(sorted(acted, key=lambda one: one.step)), button, able, withdrawn)


def _rollback(preview: Preview) -> tuple[list[str], str, bool]:
    gone, back = preview.superseded, preview.restored
    sentences = []
    if gone:
        sentences.append(f"{_steps(gone)} ({_counted(gone)}{_money(preview)}) will be superseded, not deleted.")
    if back:
        sentences.append(f"{_steps(back)} ({_counted(back)}) will be shown again.")
    sentences.append(_next_run(preview))
    if not gone and not back:
        return [f"Nothing would change: the session goes on from step {preview.step} already."], "Roll back", False
    if not gone:
        return sentences, f"Bring back {_counted(back)}", True
    return sentences, f"Roll back {_counted(gone)}", True


def _fork(preview: Preview) -> tuple[list[str], str, bool]:
    shared = f"the steps below {preview.step}" if preview.step else "no step"
    sentences = [
        f"A new session shares {shared}; nothing of {preview.session} changes.",
        _next_run(preview),
    ]
    if preview.superseded:
        stay = "stays" if len(preview.superseded) == 1 else "stay"
        sentences.append(f"{_steps(preview.superseded)} ({_counted(preview.superseded)}) {stay} with {preview.session} "
                         "alone.")  # fmt: skip
    return sentences, f"Fork at step {preview.step}", True


def _edit(preview: Preview) -> tuple[list[str], str, bool]:
    sentences = [f"From now on step {preview.step} has the answer that you write; the recorded one can still be seen."]
    gone = preview.superseded
    if gone:
        goes, are = ("goes", "it is") if len(gone) == 1 else ("go", "they are")
        sentences.append(f"{_steps(gone)} ({_counted(gone)}{_money(preview)}) {goes} on from the old answer: {are} "
                         "left behind, not deleted, and asked anew where the agent comes there.")  # fmt: skip
    else:
        sentences.append("No recorded step goes on from it.")
    sentences.append(f"{_answers(preview.replays)} still {'replays' if preview.replays == 1 else 'replay'}.")
    return sentences, f"Edit step {preview.step}", True


def _next_run(preview: Preview) -> str:
    if not preview.replays:
        return f"The next run replays nothing and pays from step {preview.step}."
    return f"The next run replays {_answers(preview.replays)} at no cost and pays from step {preview.step}."


def _answers(count: int) -> str:
    return "1 recorded answer" if count == 1 else f"{count:,} recorded answers"


def _money(preview: Preview) -> str:
    if preview.cost is None:
        return ", cost unknown"
    more = f" and {preview.cost_unknown} of unknown cost" if preview.cost_unknown else ""
    return f", {dollars(preview.cost)}{more}"


def _counted(numbers: Sequence[int]) -> str:
    return "1 step" if len(numbers) == 1 else f"{len(numbers):,} steps"


def _steps(numbers: Sequence[int]) -> str:
    """``Step 3``, ``Steps 18–31``, ``Steps 3, 5–9``; what is too scattered, by its ends."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    if len(spans) > 4:
        spans = [[spans[0][0], spans[-1][1]]]
        return f"Steps between {spans[0][0]} and {spans[0][1]}"
    said = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)
    return f"Step {said}" if len(numbers) == 1 else f"Steps {said}"


def _acted(row: EffectRow) -> Acted:
    name = f"{row.server}/{row.tool}" if row.server else row.tool
    how = "may have acted: it is in doubt"
    if row.state is State.COMPLETED:
        how = "acted, and failed" if row.failed else "acted"
    if row.kind != ToolClass.ONCE:
        how += f" ({row.kind}: calling it again does nothing more)"
    return Acted(name, row.number, how)


def _made(call: MadeCall) -> Acted:
    """A call that an agent made by itself, as far as it is known to have."""
    how = "was given to the agent; no result came back"
    if call.seen:
        how = "was made by the agent, and failed" if call.failed else "was made by the agent"
    return Acted(call.tool, call.number, how)
