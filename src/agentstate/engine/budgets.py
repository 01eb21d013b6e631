"""Owns the budgets in force: what a call is about to take, beginning it within them, and what people are asked.

Must not rule (``core.budget`` does) nor let a held question go (``waiting`` does). Invariant: with no budget set,
nothing is done; with one, every call that is to be sent passes here before it is, whatever its wire format.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from agentstate import clock
from agentstate.core import budget, policy
from agentstate.core.budget import Amount, Decision, Limit, Ruling, Scope, Unit
from agentstate.core.model import ApprovalKind, Call, OnReject, State
from agentstate.dialects import estimate
from agentstate.engine.repeats import Repeats
from agentstate.engine.waiters import Waiters
from agentstate.errors import BudgetExceeded, ShuttingDown, Unprocessable
from agentstate.providers.provider import Provider
from agentstate.settings import BudgetSettings
from agentstate.store.rows import ApprovalRow, Begun, Message, NewApproval, NewStep, Plan

if TYPE_CHECKING:
    from agentstate.engine.core import Parts
    from agentstate.engine.recorder import Job

log = logging.getLogger("agentstate")
# How long calls in flight, whose reservations stand in the way of another, are waited for before a limit counts as
# reached: about the longest that clients wait without a sign of life.
_PATIENCE_S = 60.0
# Who sets a limit wants to be told of an agent that runs in circles; none that gets on asks the same so often in a row.
REPEATS_WITH_LIMITS = 100


class Budgets:
    """One for each serving process. ``on``: some limit is set; ``repeats``: how often the same may be asked in a row,
    0: always."""

    def __init__(self, parts: Parts, settings: BudgetSettings) -> None:
        self._parts = parts
        self.limits = _limits(settings)
        self._hold = settings.at_limit == "hold"
        repeats = settings.repeats
        if repeats is None:
            repeats = REPEATS_WITH_LIMITS if self.limits else 0
        self.repeats = repeats
        self._repeats = Repeats(parts, repeats)
        self.on = bool(self.limits) or repeats > 0
        self._priced = any(limit.unit is Unit.USD for limit in self.limits)
        self._unpriced: set[tuple[str, str]] = set()
        self._waiting = Waiters()

    def warm(self) -> None:
        """Load the prices that the first call will be measured by."""
        if self._priced:
            self._parts.pricing.warm()

    async def begin(self, job: Job, state: State | None) -> Begun:
        """Begin a job's step, or try it again where it has a ``state``, within the budgets; it may be held then.

        Raises ``BudgetExceeded`` where they have no room and nobody is to be asked, ``ShuttingDown``.
        """
        again = None if state is None or job.again is None else (job.again, state)
        plan = await self._plan(job, True)
        until = clock.monotonic() + _PATIENCE_S
        while True:
            begun = await self._parts.journal.begin_budgeted(job.new, plan, again)
            if isinstance(begun, Begun):
                return begun
            if begun.decision is Decision.OVER:
                raise exceeded(begun, job.place.session)
            if self._parts.closing:
                raise ShuttingDown("the proxy is stopping; ask again")
            left = until - clock.monotonic()
            if left <= 0:
                plan = plan._replace(patient=False)
            else:
                await self._waiting.wait(left)
                self._parts.pauses.check(job.place.session)

    async def begin_quietly(self, session: str, new: NewStep, provider: Provider) -> Begun:
        """Begin a step that a person asks for: where the budgets have no room it is refused, and nobody is asked or
        told. Raises ``BudgetExceeded``."""

        def never(ruling: Ruling, place: int) -> tuple[NewApproval, tuple[Message, ...]]:
            raise AssertionError("nobody is asked")

        call = await self._amount(provider, new.call, new.call.model)
        plan = Plan(self.limits, call, clock.now(), False, never, None, patient=False)
        begun = await self._parts.journal.begin_budgeted(new, plan, None)
        if not isinstance(begun, Begun):
            raise exceeded(begun, session)
        return begun

    async def send(self, job: Job) -> Begun | Ruling:
        """Send a question that was held, if the budgets let it now; else what stands in its way."""
        return await self._parts.journal.send_budgeted(job.live.step, job.new, await self._plan(job, False))

    async def further(self, job: Job, model: str) -> Plan:
        """What a further attempt of a job at its provider of now means for them; ``model``: that is asked."""
        return await self._plan(job, False, model)

    def denies(self, ruling: Ruling) -> bool:
        """Whether a question for which there is no room is refused rather than asked about."""
        return ruling.decision is Decision.OVER and not self._hold

    def settled(self) -> None:
        """A call has ended: who waits for its reservation may look again."""
        self._waiting.wake()
        self._parts.gate.look_at_requests()

    async def _plan(self, job: Job, begins: bool, other: str = "") -> Plan:
        call = await self._amount(job.provider, job.call, other or job.call.model)
        return Plan(
            self.limits,
            call,
            clock.now(),
            self._hold,
            partial(self._question, job),
            partial(self._told, job),
            repeated=self._repeats.noticed(job) if begins else None,
        )

    async def _amount(self, provider: Provider, call: Call, model: str) -> Amount:
        """What a call may take at most."""
        if self._priced and not self._parts.pricing.ready:
            await asyncio.wrap_future(self._parts.pricing.warm())
        size, usd = estimate.of(call), None
        if self._priced:
            usd = self._parts.pricing.estimated(provider, model, size.input, size.output, clock.now())
            if usd is None:
                self._say_unpriced(provider.name, model)
        return Amount(usd or 0.0, 0, size.total)

    def _say_unpriced(self, provider: str, model: str) -> None:
        if (provider, model) not in self._unpriced and len(self._unpriced) < 1000:
            self._unpriced.add((provider, model))
            log.warning(
                "no price is known of %s at %s: budgets in money count its calls as nothing; give it in [[prices]], or "
                "set a budget in tokens or steps",
                model or "a call without a model", provider,
            )  # fmt: skip

    # --- what people are asked and told ---

    def _question(self, job: Job, ruling: Ruling, place: int) -> tuple[NewApproval, tuple[Message, ...]]:
        session, branch = job.place.session, job.new.branch
        text = json.dumps(budget.facts(ruling, job.call.model))
        why = budget.sentence(ruling, session)
        asked = NewApproval(
            clock.approval_id(), ApprovalKind.BUDGET,
            policy.approval_digest(session, branch, 0, (0, place), "", text, budget.RAISE_SCHEMA), text.encode(),
            OnReject.ERROR, place=place, schema=budget.RAISE_SCHEMA.encode(),
            rule=json.dumps({"why": why, "limit": ruling.limit, "most": ruling.most, "spent": ruling.spent}),
        )  # fmt: skip
        facts = {"approval": asked.id, "kind": asked.kind.value} | _figures(ruling) | {"model": job.call.model}
        return asked, self._parts.outbox.messages("approval.required", session, asked.id, facts)

    def _told(self, job: Job, ruling: Ruling) -> tuple[Message, ...]:
        session = job.place.session
        return self._parts.outbox.messages("budget.reached", session, ruling.limit, _figures(ruling))


def exceeded(ruling: Ruling, session: str) -> BudgetExceeded:
    """Why a call is denied, and what next."""
    return BudgetExceeded(
        f"{budget.sentence(ruling, session)}; the call was not sent. Raise budget.{ruling.limit} in the settings, or "
        "end the session",
        detail={"limit": ruling.limit, "most": ruling.most, "spent": ruling.spent, "adds": ruling.adds},
    )


def raised(row: ApprovalRow, arguments: Any) -> str:
    """What an edit of such an approval says, as JSON text. Raises ``Unprocessable``."""
    by = arguments.get(budget.RAISE) if isinstance(arguments, dict) and len(arguments) == 1 else None
    if isinstance(by, bool) or not isinstance(by, int | float) or not 0 < by < float("inf"):
        limit = json.loads(row.rule).get("limit", "the limit")
        raise Unprocessable(
            f'to raise {limit}, send {{"{budget.RAISE}": by how much, a number above 0}}; the approval is still pending'
        )
    return json.dumps({budget.RAISE: by})


def _limits(settings: BudgetSettings) -> tuple[Limit, ...]:
    """Those that are set, in the settings' order."""
    given = (
        (Scope.SESSION, Unit.USD, settings.session_usd), (Scope.SESSION, Unit.STEPS, settings.session_steps),
        (Scope.SESSION, Unit.TOKENS, settings.session_tokens), (Scope.DAY, Unit.USD, settings.day_usd),
        (Scope.DAY, Unit.STEPS, settings.day_steps), (Scope.DAY, Unit.TOKENS, settings.day_tokens),
    )  # fmt: skip
    return tuple(Limit(scope, unit, most) for scope, unit, most in given if most is not None)


def _figures(ruling: Ruling) -> dict[str, str]:
    return {
        "spent": budget.spelled(ruling.limit, ruling.spent),
        "limit": f"{budget.spelled(ruling.limit, ruling.most)} ({ruling.limit})",
    }
