"""Owns bringing the outbox to its targets, and what people do with it: try a target, revive a dead message. Must not
make messages.

Invariant: a message is marked delivered only after its target's answer, so it is sent at least once, always under the
same id; each target gets its messages in the order in which they were written, and waits for no other target; what is
not delivered is tried again or visibly dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any

from agentstate import clock
from agentstate.alerts import message
from agentstate.alerts.message import Alert, Message
from agentstate.alerts.target import Target
from agentstate.core import delivery
from agentstate.core.delivery import Fate
from agentstate.engine.sender import Sender, Sent, Unsendable, trial
from agentstate.engine.tasks import Tasks
from agentstate.errors import AgentStateError, Conflict, NotFound, ShuttingDown, StoreCorrupt
from agentstate.store.rows import OutboxRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
FAREWELL_S = 2.0  # how long a stop waits for messages that are on their way
_LOOK_S = 60.0  # longest sleep while a message is due later: the wall clock may be set meanwhile
_FAULT_S = 5.0  # between looks at a journal that cannot be used
_SOON_S = 60.0  # a message that is due within this keeps a lingering proxy up


class Delivery:
    """One for each serving process. ``start`` and ``stop`` frame its work; ``retry`` and ``test`` are for people."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tasks = Tasks()
        self._wakes: dict[str, asyncio.Event] = {}
        self._due: dict[str, float] = {}  # when the next message of a target is sent, where there is one
        self._stopping = False
        self.sender = Sender()
        self.address = ""

    @property
    def targets(self) -> dict[str, Target]:
        return self._parts.outbox.targets

    @property
    def busy(self) -> bool:
        """Whether a message is on its way, or soon will be."""
        return any(due - clock.now() < _SOON_S for due in self._due.values())

    def start(self, address: str) -> None:
        """Deliver what is in the outbox, and what comes. ``address``: where this proxy is reached, for links."""
        self.address = self._parts.settings.approvals.public_url or address
        self._parts.journal.posted = self.wake
        lost = set(self._parts.journal.read.waiting_targets()) - set(self.targets)
        for name in [*self.targets, *sorted(lost)]:
            self._wakes[name] = asyncio.Event()
            self._tasks.start(f"alerts to {name}", self._serve(name))

    def wake(self) -> None:
        """A message may be due."""
        for event in self._wakes.values():
            event.set()

    async def stop(self) -> None:
        """End: what is on its way gets a moment, what is not delivered stays in the outbox."""
        self._stopping = True
        self.wake()
        await self._tasks.finish(FAREWELL_S)
        await self.sender.close()

    async def _serve(self, name: str) -> None:
        """Deliver a target's messages, one after the other."""
        wake = self._wakes[name]
        while not self._stopping:
            wake.clear()
            try:
                wait = await self._next(name)
            except ShuttingDown:
                return
            except AgentStateError as error:  # the journal: the message is still in it
                log.warning("alerts to %s have to wait: %s", name, error)
                wait = _FAULT_S
            if wait is None:
                await wake.wait()
            elif wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(wait, _LOOK_S)):
                        await wake.wait()

    async def _next(self, name: str) -> float | None:
        """Send a target's next message, if it is due. How many seconds to wait for the next one, at most; ``None``:
        until there is one."""
        row = self._parts.journal.read.next_message(name)
        if row is None:
            self._due.pop(name, None)
            return None
        self._due[name] = row.next_at
        target = self.targets.get(name)
        if target is None:
            await self._bury(row, "the settings have no such target any more; give it back its name, or let it be")
            return 0.0
        if (wait := row.next_at - clock.now()) > 0:
            return wait
        await self._send(row, target)
        return 0.0

    async def _send(self, row: OutboxRow, target: Target) -> None:
        journal = self._parts.journal
        attempt = await journal.try_message(row.id)
        if not attempt:
            return
        try:
            sent = await self.sender.send(target, self._said(row, target))
        except Unsendable as error:
            await self._bury(row, str(error))
            return
        follows = delivery.after(sent.status, sent.retry_after, attempt, clock.now(), clock.jitter())
        if follows.fate is Fate.DELIVERED:
            await journal.deliver_message(row.id)
        elif follows.fate is Fate.AGAIN:
            await journal.postpone_message(row.id, clock.now() + follows.wait_s, sent.error)
        else:
            tried = "" if attempt < delivery.MOST_ATTEMPTS else f"; tried {attempt} times"
            await self._bury(row, sent.error + tried)

    async def _bury(self, row: OutboxRow, error: str) -> None:
        await self._parts.journal.bury_message(row.id, error)
        log.warning(
            "message %s (%s) is not delivered to %s: %s. `agentstate alerts retry %d` sends it again",
            row.alert, row.event, row.target, error, row.id,
        )  # fmt: skip

    def _said(self, row: OutboxRow, target: Target) -> Message:
        """What the message says. Raises ``Unsendable``."""
        try:
            return message.compose(self._alert(row, target), target.show_content)
        except StoreCorrupt as error:
            raise Unsendable(error.message) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            log.exception("message %s says nothing that can be read", row.alert)
            raise Unsendable(f"its facts cannot be read ({type(error).__name__})") from error

    def _alert(self, row: OutboxRow, target: Target) -> Alert:
        """The facts, with what is known of the approval by now."""
        facts: dict[str, Any] = json.loads(row.payload)
        link = ""
        if (key := facts.get("approval")) and (approval := self._parts.journal.read.approval(str(key))) is not None:
            link = self._parts.links.url(self.address, approval.id, target.name)
            facts |= {"state": approval.state.value, "decided_by": approval.decided_by}
            if target.show_content:
                facts["arguments"] = approval.arguments
        return Alert(row.alert, row.event, row.created_at, row.session, row.subject, link, facts)

    # --- for people ---

    async def retry(self, key: int) -> OutboxRow:
        """A dead message is due again, at once and with all its tries. Raises ``NotFound``, ``Conflict``."""
        read = self._parts.journal.read
        row = read.message(key)
        if row is None:
            raise NotFound(f"there is no message {key}; `agentstate alerts list` shows those there are")
        if row.target not in self.targets:
            raise Conflict(f"message {key} is for the target {row.target!r}, which the settings do not have")
        if not await self._parts.journal.revive_message(key):
            raise Conflict(f"message {key} is {row.state}; only dead ones can be revived")
        return read.message(key) or row

    async def test(self, name: str = "") -> list[tuple[Target, Sent]]:
        """Send a message that only tries the target, or all of them where none is named. Raises ``NotFound``."""
        chosen = chosen_targets(self.targets, name)
        return list(zip(chosen, await asyncio.gather(*(trial(self.sender, one) for one in chosen)), strict=True))


def chosen_targets(targets: dict[str, Target], name: str) -> list[Target]:
    """The target of that name, or all where none is named. Raises ``NotFound``."""
    if name and name not in targets:
        known = f"the settings have {', '.join(targets)}" if targets else "the settings have no [[alerts]]"
        raise NotFound(f"there is no target {name[:80]!r}; {known}")
    return [targets[name]] if name else list(targets.values())
