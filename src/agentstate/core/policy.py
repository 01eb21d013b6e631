"""Owns which policy governs a tool call, and what it says. Must not read settings nor evaluate conditions itself.

Invariant: where there are policies, a call without a name is held, and so is one of which a policy speaks and that
cannot be understood: arguments that do not parse, a condition that fails. The most specific rule wins, among equals the
most restrictive; neither an error nor another spelling of a tool's name ever makes a ruling milder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from operator import itemgetter
from typing import Any, NamedTuple

from agentstate.core.model import Action, OnReject, ToolCall
from agentstate.core.naming import folded, spellings

_STRICTNESS = {Action.ALLOW: 0, Action.HOLD: 1, Action.DENY: 2}
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Rule:
    """One policy. ``tools``, ``sessions``, ``labels``: patterns with ``*``, ``?`` and ``[…]``, any of which must match;
    the last two empty: every session. ``when``: a condition on the arguments, empty: always. ``expires_s``: how long
    an approval may be waited for, ``None``: for ever. ``quorum``: how many people must agree; ``approvers``: who may
    decide, by name or role, empty: everybody who may approve. ``number``: its place in the settings, from 1."""

    tools: tuple[str, ...]
    action: Action
    when: str = ""
    sessions: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    on_reject: OnReject = OnReject.MESSAGE
    expires_s: float | None = None
    quorum: int = 1
    approvers: tuple[str, ...] = ()
    number: int = 0


class Place(NamedTuple):
    """Where a call is proposed: the session's id and labels."""

    session: str
    labels: tuple[str, ...] = ()


class Ruling(NamedTuple):
    """What governs a call. ``rule``: ``None`` where none matches; ``why``: a sentence for people."""

    action: Action
    rule: Rule | None
    why: str

    @property
    def on_reject(self) -> OnReject:
        return self.rule.on_reject if self.rule is not None else OnReject.MESSAGE


# (condition, tool, arguments, place) -> whether it holds; raises anything where it cannot be told.
Condition = Callable[[str, str, dict[str, Any], Place], bool]


class ConditionFault(Exception):
    """A condition could not be evaluated; the message says why."""


def rule_on(call: ToolCall, place: Place, rules: Sequence[Rule], holds: Condition) -> Ruling:
    """The ruling on one complete call. Pure where ``holds`` is. Without any rule there is no gate: all pass.

    Rules that name the tool to the letter count by how specific they are. One that holds or denies counts too where it
    names another spelling of the tool, or a name that a client may make of the call: the strictest of all that is said.
    """
    if not rules:
        return Ruling(Action.ALLOW, None, "there are no policies")
    arguments, fault = arguments_of(call.arguments)
    nameless = not spellings(call.name)
    if nameless:
        fault = fault or "the call names no tool"
    best: tuple[tuple[int, ...], Ruling] | None = None
    alike: tuple[tuple[int, ...], Ruling] | None = None
    speaks = nameless  # whether what cannot be understood is held
    for rule in rules:
        if not _applies(rule, place):
            continue
        named = _named(call.name, rule.tools)
        other = None if named is not None else _named_alike((call.name, *call.also), rule)
        if named is None and other is None:
            continue
        speaks = speaks or rule.action is not Action.ALLOW or bool(rule.when)
        ruling = _said(rule, call.name, arguments, fault, place, holds)
        if ruling is None:
            continue
        if named is not None:
            rank = (*_specificity(rule, named), _STRICTNESS[ruling.action], -rule.number)
            best = max(best or (rank, ruling), (rank, ruling), key=itemgetter(0))
        elif other is not None:
            rank = (_STRICTNESS[ruling.action], *_specificity(rule, other), -rule.number)
            alike = max(alike or (rank, ruling), (rank, ruling), key=itemgetter(0))
    found = best[1] if best is not None else Ruling(Action.ALLOW, None, "no policy names it")
    if alike is not None and _STRICTNESS[alike[1].action] > _STRICTNESS[found.action]:
        found = alike[1]
    if fault and speaks and found.action is Action.ALLOW:
        return Ruling(Action.HOLD, found.rule, fault)
    return found


def _said(
    rule: Rule, name: str, arguments: dict[str, Any], fault: str, place: Place, holds: Condition
) -> Ruling | None:
    """What a rule that names a call says of it; ``None``: its condition does not hold."""
    action, why = rule.action, _why(rule, name)
    if rule.when and fault:
        # It may hold or not: the rule counts, and lets nothing pass.
        action = max(action, Action.HOLD, key=_STRICTNESS.__getitem__)
        why = f"{why}, and its condition cannot be told: {fault}"
    elif rule.when:
        try:
            if not holds(rule.when, name, arguments, place):
                return None
        except ConditionFault as error:
            action = max(action, Action.HOLD, key=_STRICTNESS.__getitem__)
            why = f"{why}, whose condition failed: {error}"
    return Ruling(action, rule, why)


def governs(rule: Rule, name: str, place: Place) -> bool:
    """Whether a rule speaks of a tool here, its condition aside."""
    named = _named(name, rule.tools) is not None or _named_alike((name,), rule) is not None
    return named and _applies(rule, place)


def _named(name: str, patterns: Sequence[str]) -> tuple[int, int] | None:
    """How closely the best of the patterns names a tool: (whether exactly, literal characters)."""
    found = [
        (int(not _WILD & set(pattern)), sum(char not in _WILD for char in pattern))
        for pattern in patterns
        if fnmatchcase(name, pattern)
    ]
    return max(found, default=None)


def _named_alike(names: Sequence[str], rule: Rule) -> tuple[int, int] | None:
    """How closely a rule that holds or denies names a tool in any spelling of any of its names."""
    if rule.action is Action.ALLOW:
        return None
    patterns = {*rule.tools, *(folded(pattern) for pattern in rule.tools)}
    found = [_named(spelling, sorted(patterns)) for name in names for spelling in spellings(name)]
    return max((named for named in found if named is not None), default=None)


def _applies(rule: Rule, place: Place) -> bool:
    if rule.sessions and not any(fnmatchcase(place.session, pattern) for pattern in rule.sessions):
        return False
    return not rule.labels or any(fnmatchcase(label, pattern) for label in place.labels for pattern in rule.labels)


def _specificity(rule: Rule, named: tuple[int, int]) -> tuple[int, ...]:
    """Larger is more specific: an exact name before a pattern, a longer pattern before a shorter one; then what is
    asked of the arguments, then of the session."""
    return (*named, int(bool(rule.when)), int(bool(rule.sessions)) + int(bool(rule.labels)))


def _why(rule: Rule, name: str) -> str:
    about = f"policy {rule.number}" if rule.number else "the default policy"
    condition = f" when {rule.when}" if rule.when else ""
    return f"{about} ({rule.action.value} {', '.join(rule.tools)}{condition}) governs {name or 'it'}"


def arguments_of(text: str) -> tuple[dict[str, Any], str]:
    """(arguments, why they cannot be understood). Empty text and ``null`` are no arguments."""
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "its arguments are not JSON"
    if value is None:
        return {}, ""
    if not isinstance(value, dict):
        return {}, "its arguments are not a JSON object"
    return value, ""


def call_digest(name: str, arguments: str) -> bytes:
    """Equal exactly for calls of the same tool with equal arguments, whatever their spelling."""
    value, fault = arguments_of(arguments)
    spelled = arguments if fault else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(b"agentstate/call/1\0" + name.encode("utf-8", "surrogatepass") + b"\0"
                  + spelled.encode("utf-8", "surrogatepass")).digest()  # fmt: skip


def approval_digest(session: str, branch: int, step: int, place: tuple[int, int], name: str, arguments: str,
                    schema: str) -> bytes:  # fmt: skip
    """What a decision is bound to: anything that differs later is another question."""
    whole = json.dumps([session, branch, step, *place, name, arguments, schema], ensure_ascii=True)
    return sha256(b"agentstate/approval/1\0" + whole.encode()).digest()
