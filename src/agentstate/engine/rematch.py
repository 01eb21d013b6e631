"""Owns looking for a recorded step that a request matches though its fingerprint differs, and reporting when none does.

Must not loosen the rules of core.mask and core.divergence. Invariant: a match is used only if it is the only one, at
the expected place, and the recorded answer does not speak of what has changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from agentstate.core import divergence, fingerprint, mask
from agentstate.core.divergence import Diverged, Unread
from agentstate.core.model import Call, Fingerprint, Match
from agentstate.dialects import registry, volatile
from agentstate.dialects.base import Dialect
from agentstate.engine import revised
from agentstate.engine.core import Parts
from agentstate.engine.invocations import acts
from agentstate.errors import AgentStateError
from agentstate.store.rows import RunRow, SessionRow

log = logging.getLogger("agentstate")
_MOST_CALLS = 8 * 1024 * 1024  # bytes of recorded requests kept parsed
_MOST_RUNS = 1000
_NEAR = 64  # unread steps that are compared for the report
_MOST_DIFFERENCES = 20  # told in a report
_MOST_TRIED = 200  # differences of which each is looked at alone: does it count?
_FEWEST_TRIED = 8
_MOST_TRIED_BYTES = 4 * 1024 * 1024  # of requests, to find out: below 100 ms


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why a recorded step may not answer a request; empty: they differ in more than volatile text."""

    why: str = ""


class _Difference(Enum):
    NONE = 0  # cannot change the answer
    VOLATILE = 1
    OTHER = 2


class Rematch:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._calls: dict[int, Call] = {}
        self._calls_size = 0
        self._renamed: dict[tuple[int, int], dict[str, str]] = {}
        self._authors: dict[int, int] = {}  # of the steps that are compared now: the run that recorded each
        self._sessions: dict[int, int] = {}  # by run
        self._run = 0  # whose request is compared now

    def find(self, session: SessionRow, run: int, call: Call, unread: Sequence[Unread]) -> tuple[int, Match] | None:
        """The unread step that the call matches in all but volatile text, or by the call ids that it echoes."""
        if len(self._sessions) > _MOST_RUNS:
            self._sessions.clear()
        self._sessions[run] = session.id
        self._run = run
        replay = self._parts.settings.replay
        if call.pure or not call.items or not (replay.masked or replay.pointer != "off"):
            return None
        self._authors = {step.step: step.author for step in divergence.window(unread)}
        candidates = [(step.step, self.recorded(step.step)) for step in divergence.window(unread)]
        if replay.masked:
            compared = [(step, self._renaming(step, run, old, call)) for step, old in candidates]
            renamings = {step: renamed for step, renamed in compared if isinstance(renamed, dict)}
            found = divergence.only([(step, Match.MASKED) for step in renamings])
            if found is not None:
                self._keep_renaming((run, self._authors[found[0]]), renamings[found[0]])
                return found
        if replay.pointer != "off":
            asked = volatile.pointer(registry.BY_NAME[call.dialect], call)
            if asked is not None and self._may_point(session.id, asked.ids):
                return divergence.only([(step, Match.POINTER) for step in self._pointed(candidates, call, asked)])
        return None

    def _pointed(self, candidates: Sequence[tuple[int, Call]], call: Call, asked: volatile.Pointer) -> list[int]:
        dialect = registry.BY_NAME[call.dialect]
        return [
            step
            for step, old in candidates
            if (old.dialect, old.model) == (call.dialect, call.model) and volatile.pointer(dialect, old) == asked
        ]

    def recorded(self, step: int) -> Call:
        """A recorded request, read again."""
        known = self._calls.get(step)
        if known is None:
            dialect, method, path, body = self._parts.journal.read.request(step)
            known = registry.BY_NAME[dialect].parse(method, path, body)
            if self._calls_size + len(body) > _MOST_CALLS:
                self._calls.clear()
                self._calls_size = 0
            self._calls[step] = known
            self._calls_size += len(body)
        return known

    def _keep_renaming(self, run: tuple[int, int], renamed: dict[str, str]) -> None:
        if len(self._renamed) > _MOST_RUNS:
            self._renamed.clear()
        self._renamed.setdefault(run, {}).update(renamed)

    def _renaming(
        self, step: int, run: int, old: Call, call: Call, user_text: bool | None = None
    ) -> dict[str, str] | _Refused:
        """The renaming under which the recorded call is this one; else why there is none that may be used."""
        if user_text is None:
            user_text = self._parts.settings.replay.masked_user_text
        both = volatile.compared(registry.BY_NAME[call.dialect], old, call, user_text)
        if both is None:
            return _Refused()
        was, is_ = both
        # One renaming holds for a whole run, of what one earlier life recorded: each life had names of its own.
        before = self._renamed.get((run, self._authors.get(step, 0)), {})
        renamed = mask.renaming([*before, *was.literals], [*before.values(), *is_.literals])
        if renamed is None:
            return _Refused("names have changed, but not one to one, or dates have not kept their order")
        # What is not masked may speak of it too: "on the 14th" means something else once today is another day.
        plain = is_.plain
        back = {is_: was for was, is_ in renamed.items()}
        if mask.quotes(self._answer_texts(step), renamed):
            return _Refused("the recorded answer speaks of what has changed")
        if mask.quotes(plain, renamed) or mask.quotes(plain, back):
            return _Refused("text that is not masked, as of a user or a model, speaks of what has changed")
        return renamed

    def _answer_texts(self, step: int) -> list[str]:
        """The recorded answer as a reader sees it, whatever pieces it was streamed in."""
        session = self._sessions.get(self._run)
        row = None if session is None else self._parts.journal.facts.session_of(session)
        answer = revised.answer(self._parts, row, step)
        dialect = registry.BY_NAME[answer.dialect]
        plain = dialect.convert(answer.shape, type(answer.shape)(), answer.body)
        return volatile.texts(dialect.spoken(plain))

    def _may_point(self, session: int, ids: tuple[str, ...]) -> bool:
        """Whether all ids were handed out by this session's journal, each once, for tools that may be called again."""
        owners = self._owners(session, ids)
        if self._parts.settings.replay.pointer == "on":
            return bool(owners)
        return bool(owners) and not any(self.acts(name) for name in owners)

    def _owners(self, session: int, ids: tuple[str, ...]) -> list[str]:
        """The tools for which this session's journal has handed out the ids; none, unless it has all of them, once."""
        row = self._parts.journal.facts.session_of(session)
        shared = self._parts.view(row).shared if row is not None else ()
        owners = self._parts.journal.read.call_owners(session, ids, shared)
        if {owner[1] for owner in owners} != set(ids) or len(owners) != len(set(ids)):
            return []
        return [name for _, _, name in owners]

    def acts(self, tool: str) -> bool:
        """Whether a tool may have acted on the world."""
        return acts(self._parts.settings.tools, tool)

    def with_effects(self, unread: Sequence[Unread]) -> list[Unread]:
        """The steps with the tools of their answers that may have acted."""
        names = self._parts.journal.read.tool_names(step.step for step in unread)
        return [
            Unread(
                step.step,
                step.number,
                step.started,
                step.finished,
                step.tip,
                tuple(name for name in names.get(step.step, ()) if self.acts(name)),
            )
            for step in unread
        ]

    def report(self, run: RunRow, call: Call, asked: Fingerprint, found: Diverged) -> dict[str, Any]:
        """What diverged and how: the nearest recorded step by content, a field diff, what was not read."""
        near = [step for step in found.unread[:_NEAR]]
        chains = []
        for step in near:
            try:
                chains.append((step.step, fingerprint.of(self.recorded(step.step)).chain))
            except AgentStateError as error:
                log.warning("step %d cannot be compared: %s", step.number, error)
        nearest = divergence.nearest(asked.chain, chains)
        report: dict[str, Any] = {
            "policy": found.policy.value,
            "run": run.name,
            "unread": [step.number for step in found.unread[:100]],
            "unread_count": len(found.unread),
            "effects": list(found.effects[:20]),
        }
        if nearest is not None:
            number = next(step.number for step in near if step.step == nearest)
            report["nearest"] = {
                "step_number": number,
                "diff": _differences(self.recorded(nearest), call, self._parts.settings.replay.masked_user_text),
            }
        try:
            report |= self._harmless(run, call, found.unread)
        except AgentStateError as error:
            log.warning("run %s: what would make its divergence harmless cannot be told: %s", run.name, error)
        return report

    def _harmless(self, run: RunRow, call: Call, unread: Sequence[Unread]) -> dict[str, Any]:
        """Settings by each of which the operator could have declared the differences harmless, and what stands against
        a masked match though all that differs is volatile."""
        if call.pure or not call.items:
            return {}
        replay = self._parts.settings.replay
        candidates = [(step.step, self.recorded(step.step)) for step in divergence.window(unread)]
        declared = []
        refused: list[str] = []
        for user_text in (False, True):
            compared = [self._renaming(step, run.id, old, call, user_text) for step, old in candidates]
            refused += [found.why for found in compared if isinstance(found, _Refused) and found.why]
            if sum(isinstance(found, dict) for found in compared) == 1:
                needed = ["replay.masked = true"] if not replay.masked else []
                needed += ["replay.masked_user_text = true"] if user_text and not replay.masked_user_text else []
                declared += [" and ".join(needed)] if needed else []
                break
        asked = volatile.pointer(registry.BY_NAME[call.dialect], call)
        session = self._sessions.get(run.id)
        if (
            session is not None
            and asked is not None
            and replay.pointer != "on"
            and len(self._pointed(candidates, call, asked)) == 1
        ):
            owners = self._owners(session, asked.ids)
            acting = sorted({name for name in owners if self.acts(name)})
            if acting and replay.pointer == "auto":
                declared.append(f"tools.read = {json.dumps(acting)}")
            declared += ['replay.pointer = "on"'] if owners else []
        told: dict[str, Any] = {"declare": declared} if declared else {}
        if refused and not declared:
            told["refused"] = refused[0]
        return told


def sentence(report: dict[str, Any]) -> str:
    """The report as one line for a person."""
    text = f"run {report['run']} asks what the journal does not hold while {report['unread_count']} steps are unread"
    nearest = report.get("nearest")
    if nearest:
        first = nearest["diff"][0] if nearest["diff"] else None
        where = f", first difference in {first['where']}, at {first['path']}" if first else ""
        text += f"; nearest is step {nearest['step_number']}{where}"
    if "declare" in report:
        text += f"; if the differences are harmless, say so with {' or '.join(report['declare'])}"
    if "refused" in report:
        text += f"; only volatile text differs, but {report['refused']}"
    if report["effects"]:
        text += f"; tools that may have acted lie ahead: {', '.join(report['effects'][:5])}"
    return text


def _differences(recorded: Call, asked: Call, user_text: bool) -> list[dict[str, Any]]:
    """Where two requests differ, less where it cannot change the answer, as rows of a report: first what is no volatile
    text."""
    address = _differences_of_address(recorded, asked)
    dialect = registry.BY_NAME[recorded.dialect]
    try:
        old, new = json.loads(recorded.body), json.loads(asked.body)
        was = dialect.parse(recorded.method, recorded.path, json.dumps(old).encode())
    except (ValueError, AgentStateError):  # what only a lenient parser takes may not be written anew, as 1e999
        return address
    if address and old == new:
        return address
    leaves = divergence.leaves(old, new, _MOST_TRIED)
    tried = leaves[: max(_FEWEST_TRIED, _MOST_TRIED_BYTES // (len(recorded.body) + 1))]
    judged = []
    for leaf in tried:
        variant = json.dumps(divergence.with_leaf(old, leaf.path, leaf.asked)).encode()
        judged.append((leaf, _judged(dialect, was, variant, user_text)))
    counting = [(leaf, judgement) for leaf, judgement in judged if judgement is not _Difference.NONE]
    if not counting:
        counting = [(leaf, _Difference.OTHER) for leaf in leaves[len(tried) :] or leaves]
    rows = [
        leaf.shown()
        | {"where": divergence.place_in_words(leaf.path, old, new), "volatile": judgement is _Difference.VOLATILE}
        for leaf, judgement in counting
    ]
    return [*address, *sorted(rows, key=lambda row: bool(row["volatile"]))][:_MOST_DIFFERENCES]


def _differences_of_address(recorded: Call, asked: Call) -> list[dict[str, Any]]:
    """The same for what counts of the address."""
    if recorded.path == asked.path:
        return []
    return [
        {"path": "(address)", "recorded": recorded.path, "asked": asked.path, "where": "the address", "volatile": False}
    ]


def _judged(dialect: Dialect, was: Call, variant: bytes, user_text: bool) -> _Difference:
    """What a request is that differs from a recorded one in one place."""
    try:
        is_ = dialect.parse(was.method, was.path, variant)
    except AgentStateError:
        return _Difference.OTHER
    if fingerprint.of(was).key == fingerprint.of(is_).key:
        return _Difference.NONE
    alike = volatile.compared(dialect, was, is_, user_text) is not None
    return _Difference.VOLATILE if alike else _Difference.OTHER
