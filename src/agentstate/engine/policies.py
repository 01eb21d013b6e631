"""Owns the policies in force: the settings' rules, their conditions compiled. Must not hold a call back itself.

Invariant: a condition that cannot be evaluated, or says neither true nor false, is a fault of the policy, never a
reason to let a call pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from agentstate.core import policy
from agentstate.core.approval import Person, Role, reaches
from agentstate.core.model import Action, OnReject, ToolCall
from agentstate.core.policy import ConditionFault, Place, Rule, Ruling
from agentstate.errors import Forbidden, SettingsError
from agentstate.settings import PolicySettings

_DEEPEST = 500


class Policies:
    """``ruling`` on one call."""

    def __init__(self, settings: Sequence[PolicySettings]) -> None:
        """Raises ``SettingsError`` for a condition that is no CEL."""
        self.rules = tuple(_rule(number, given) for number, given in enumerate(settings, 1))
        self._settings = settings
        # Whether some refusal is to be told to the model, which cannot be done once an answer has begun to speak.
        self.tells = any(rule.on_reject is OnReject.CONTINUE for rule in self.rules if rule.action is not Action.ALLOW)
        self.labelled = any(rule.labels or "labels" in rule.when for rule in self.rules)
        if any(rule.when for rule in self.rules):
            _ = self._conditions  # a fault in them must show at the start

    def ruling(self, call: ToolCall, place: Place) -> Ruling:
        return policy.rule_on(call, place, self.rules, self._holds)

    def may_hold(self, tool: str, place: Place) -> bool:
        """Whether some call of the tool could be held or denied here, whatever its arguments."""
        return any(rule.action is not Action.ALLOW and policy.governs(rule, tool, place) for rule in self.rules)

    @cached_property
    def _conditions(self) -> dict[str, Any]:
        import cel  # loaded only where a policy has a condition

        found: dict[str, Any] = {}
        for rule in self.rules:
            if rule.when:
                try:
                    found[rule.when] = cel.compile(rule.when)
                except ValueError as error:
                    raise SettingsError(
                        f"[[policies]] {rule.number}: when = {rule.when!r} is not a CEL condition: {error}"
                    ) from error
        return found

    def _holds(self, condition: str, tool: str, arguments: dict[str, Any], place: Place) -> bool:
        if _is_deep(arguments):
            raise ConditionFault(f"the arguments are nested more than {_DEEPEST} levels deep")
        values = {"tool": tool, "args": arguments, "session": place.session, "labels": list(place.labels)}
        try:
            result = self._conditions[condition].execute(values)
        except Exception as error:  # whatever the library raises, the condition was not evaluated
            raise ConditionFault(_sentence(error)) from error
        if not isinstance(result, bool):
            raise ConditionFault(f"it gives {type(result).__name__}, neither true nor false")
        return result


def check_tried(tried: Sequence[PolicySettings], in_force: Sequence[PolicySettings], person: Person) -> None:
    """Before a person's policies are tried: a condition can ask for work without end, and nothing else runs meanwhile,
    so those that are not in force are for admins, who could set them. Raises ``Forbidden``."""
    if not reaches(person.role, Role.ADMIN) and {one.when for one in tried} - {one.when for one in in_force} - {""}:
        raise Forbidden(
            f"{person.name} is a {person.role}; a condition (when) that is not in force can be tried by admins only"
        )


def _is_deep(value: Any) -> bool:
    """Whether it is nested deeper than the library's own stack is sure to hold: beyond that the process would end."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            part for one in level if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]  # fmt: skip
        if not level:
            return False
    return True


def _sentence(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"the arguments have no {error.args[0]!r}"
    return (str(error).split(". ")[0] or type(error).__name__)[:200]


def _rule(number: int, given: PolicySettings) -> Rule:
    return Rule(
        tuple(given.tools),
        Action(given.action),
        given.when,
        tuple(given.sessions),
        tuple(given.labels),
        OnReject(given.on_reject),
        given.expires_s,
        given.quorum,
        tuple(given.approvers),
        number,
    )
