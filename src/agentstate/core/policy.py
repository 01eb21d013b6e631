"""Owns which policy governs a tool call, and what it says. Must not read settings nor evaluate conditions itself.

Invariant: where there are policies, whatever cannot be understood is held: arguments that do not parse, a condition
that fails, a call without a name. The most specific rule wins, among equals the most restrictive; no error makes a rule
milder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, NamedTuple

from agentstate.core.model import Action, OnReject, ToolCall

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
    """The ruling on one complete call. Pure where ``holds`` is. Without any rule there is no gate: all pass."""
    if not rules:
        return Ruling(Action.ALLOW, None, "there are no policies")
    arguments, fault = arguments_of(call.arguments)
    if not call.name:
        fault = fault or "the call names no tool"
    best: tuple[tuple[int, ...], Ruling] | None = None
    for rule in rules:
        named = _named(call.name, rule.tools)
        if named is None or not _applies(rule, place):
            continue
        action, why = rule.action, _why(rule, call.name)
        if rule.when and fault:
            # It may hold or not: the rule counts, and lets nothing pass.
            action = max(action, Action.HOLD, key=_STRICTNESS.__getitem__)
            why = f"{why}, and its condition cannot be told: {fault}"
        elif rule.when:
            try:
                if not holds(rule.when, call.name, arguments, place):
                    continue
            except ConditionFault as error:
                action = max(action, Action.HOLD, key=_STRICTNESS.__getitem__)
                why = f"{why}, whose condition failed: {error}"
        rank = (*_specificity(rule, named), _STRICTNESS[action], -rule.number)
        if best is None or rank > best[0]:
            best = rank, Ruling(action, rule, why)
    ruling = best[1] if best is not None else Ruling(Action.ALLOW, None, "no policy names it")
    if fault and ruling.action is Action.ALLOW:
        return Ruling(Action.HOLD, ruling.rule, fault)
    return ruling


def governs(rule: Rule, name: str, place: Place) -> bool:
    """Whether a rule speaks of a tool here, its condition aside."""
    return _named(name, rule.tools) is not None and _applies(rule, place)


def _named(name: str, patterns: Sequence[str]) -> tuple[int, int] | None:
    """How closely the best of the patterns names a tool: (whether exactly, literal characters)."""
    found = [
        (int(not _WILD & set(pattern)), sum(char not in _WILD for char in pattern))
        for pattern in patterns
        if fnmatchcase(name, pattern)
    ]
    return max(found, default=None)


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
    """(arguments, why they cannot be understood). Empty text is no arguments."""
    if not text.strip():
        return {}, ""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "its arguments are not JSON"
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
