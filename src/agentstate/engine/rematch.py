"""Owns looking for a recorded step that a request matches though its fingerprint differs, and reporting when none does.

Must not loosen the rules of core.mask and core.divergence. Invariant: a match is used only if it is the only one, at
the expected place, and the recorded answer does not speak of what has changed.
"""

from __future__ import annotations

import fnmatch
import json
import logging
from collections.abc import Sequence
from typing import Any

from agentstate.core import divergence, fingerprint, mask
from agentstate.core.divergence import Diverged, Unread
from agentstate.core.model import Call, Fingerprint, Match
from agentstate.dialects import registry, volatile
from agentstate.engine.core import Parts
from agentstate.errors import AgentStateError
from agentstate.store.rows import RunRow, SessionRow

log = logging.getLogger("agentstate")
_MOST_CALLS = 8 * 1024 * 1024  # bytes of recorded requests kept parsed
_MOST_RUNS = 1000
_NEAR = 64  # unread steps that are compared for the report


class Rematch:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._calls: dict[int, Call] = {}
        self._calls_size = 0
        self._renamed: dict[int, dict[str, str]] = {}

    def find(self, session: SessionRow, run: int, call: Call, unread: Sequence[Unread]) -> tuple[int, Match] | None:
        """The unread step that the call matches in all but volatile text, or by the call ids that it echoes."""
        replay = self._parts.settings.replay
        if call.pure or not call.items or not (replay.masked or replay.pointer != "off"):
            return None
        candidates = [(step.step, self.recorded(step.step)) for step in divergence.window(unread)]
        if replay.masked:
            renamings = [(step, self._renaming(step, run, old, call)) for step, old in candidates]
            found = divergence.only([(step, Match.MASKED) for step, renamed in renamings if renamed is not None])
            if found is not None:
                self._keep_renaming(run, dict(renamings)[found[0]] or {})
                return found
        if replay.pointer != "off":
            dialect = registry.BY_NAME[call.dialect]
            asked = volatile.pointer(dialect, call)
            if asked is not None and self._may_point(session, asked.ids):
                same = [
                    (step, Match.POINTER)
                    for step, old in candidates
                    if (old.dialect, old.model) == (call.dialect, call.model)
                    and volatile.pointer(dialect, old) == asked
                ]
                return divergence.only(same)
        return None

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

    def _keep_renaming(self, run: int, renamed: dict[str, str]) -> None:
        if len(self._renamed) > _MOST_RUNS:
            self._renamed.clear()
        self._renamed.setdefault(run, {}).update(renamed)

    def _renaming(self, step: int, run: int, old: Call, call: Call) -> dict[str, str] | None:
        """The renaming under which the recorded call is this one; ``None``: there is none that may be used."""
        user_text = self._parts.settings.replay.masked_user_text
        both = volatile.compared(registry.BY_NAME[call.dialect], old, call, user_text)
        if both is None:
            return None
        was, is_ = both
        # One renaming holds for a whole run.
        before = self._renamed.get(run, {})
        renamed = mask.renaming([*before, *was.literals], [*before.values(), *is_.literals])
        if renamed is None:
            return None
        # What is not masked may speak of it too: "on the 14th" means something else once today is another day.
        plain = is_.plain
        back = {is_: was for was, is_ in renamed.items()}
        told = mask.quotes([*self._answer_texts(step), *plain], renamed) or mask.quotes(plain, back)
        return None if told else renamed

    def _answer_texts(self, step: int) -> list[str]:
        """The recorded answer as a reader sees it, whatever pieces it was streamed in."""
        answer = self._parts.journal.read.answer(step)
        dialect = registry.BY_NAME[answer.dialect]
        plain = dialect.convert(answer.shape, type(answer.shape)(), answer.body)
        return volatile.texts(dialect.spoken(plain))

    def _may_point(self, session: SessionRow, ids: tuple[str, ...]) -> bool:
        """Whether all ids were handed out by this session's journal, each once, for tools that may be called again."""
        owners = self._parts.journal.read.call_owners(session.id, ids)
        if {owner[1] for owner in owners} != set(ids) or len(owners) != len(set(ids)):
            return False
        if self._parts.settings.replay.pointer == "on":
            return True
        return not any(self.acts(name) for _, _, name in owners)

    def acts(self, tool: str) -> bool:
        """Whether a tool may have acted on the world: neither ``read`` nor ``idempotent`` in the settings."""
        tools = self._parts.settings.tools
        return not any(fnmatch.fnmatchcase(tool, pattern) for pattern in (*tools.read, *tools.idempotent))

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
            report["nearest"] = {"step_number": number, "diff": _diff(self.recorded(nearest).body, call.body)}
        return report


def sentence(report: dict[str, Any]) -> str:
    """The report as one line for a person."""
    text = f"run {report['run']} asks what the journal does not hold while {report['unread_count']} steps are unread"
    nearest = report.get("nearest")
    if nearest:
        first = nearest["diff"][0] if nearest["diff"] else None
        where = f", first difference at {first['path']}" if first else ""
        text += f"; nearest is step {nearest['step_number']}{where}"
    if report["effects"]:
        text += f"; tools that may have acted lie ahead: {', '.join(report['effects'][:5])}"
    return text


def _diff(recorded: bytes, asked: bytes) -> list[dict[str, Any]]:
    try:
        return divergence.diff(json.loads(recorded), json.loads(asked))
    except ValueError:
        return []
