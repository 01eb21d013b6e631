"""Owns the parts of a serving process and their life. Must not hold business rules.

Invariant: what is opened here is closed here, in the opposite order, and a stop loses nothing that was received.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from agentstate.core import replay
from agentstate.core.branching import lineage
from agentstate.core.model import Entry, State
from agentstate.engine import doubts
from agentstate.engine.approvals import Approvals
from agentstate.engine.breakers import Breakers
from agentstate.engine.budgets import Budgets
from agentstate.engine.delivery import Delivery
from agentstate.engine.events import Events
from agentstate.engine.foresight import Foresight
from agentstate.engine.gate import Gate
from agentstate.engine.insight import Insight
from agentstate.engine.links import Links
from agentstate.engine.outbox import Outbox
from agentstate.engine.overlay import Overlays
from agentstate.engine.pausing import Pauses
from agentstate.engine.policies import Policies
from agentstate.engine.presence import Presence
from agentstate.engine.queues import queues
from agentstate.engine.retention import Retention
from agentstate.engine.routes import Routes
from agentstate.engine.state import Floating
from agentstate.engine.tasks import Tasks
from agentstate.errors import ShuttingDown
from agentstate.providers.client import Client, SimulatedClient
from agentstate.providers.mcp import Servers
from agentstate.providers.pricing import Pricing
from agentstate.providers.provider import Provider, Registry
from agentstate.settings import Settings, data_folder, store_path
from agentstate.store.branches import EDIT, RevisionRow
from agentstate.store.journal import Journal
from agentstate.store.rows import SessionRow

log = logging.getLogger("agentstate")
_MOST_HEADS = 20_000

Shown = tuple[tuple[int, int], ...]


class Head(NamedTuple):
    """What a branch shows. ``opening``: the fingerprint of its first step; ``shared``: the part of it that is another
    session's, from which this one was forked, with ``floor``, the number below which steps are that session's.

    ``edits``: by step, the edit of its answer that is given; ``left``: recorded steps that go on from what an edit
    replaced; ``barred``: those of them of which a request does not show it, as it only names what the provider holds.
    """

    shown: Shown
    opening: bytes | None
    shared: Shown = ()
    floor: int = 0
    edits: Mapping[int, RevisionRow] = {}
    left: frozenset[int] = frozenset()
    barred: frozenset[int] = frozenset()

    def usable(self, entries: list[Entry]) -> list[Entry]:
        """The recorded steps that may answer on this branch: none that went on from what an edit replaced, and of
        another session only what is done, since a further attempt would be written there: an error that a run was given
        already is asked anew as a step of its own. An edited answer is not the one of which runs died."""
        return [
            entry if entry.step not in self.edits else dataclasses.replace(entry, broken=False) for entry in entries
            if entry.step not in self.barred
            and (entry.number >= self.floor or entry.state is State.COMPLETED
                 or (replay.is_history(entry) and not entry.mine))
        ]  # fmt: skip

    def unanswered(self, entries: list[Entry]) -> bool:
        """Whether another session's part of the branch holds a step that came to no answer."""
        return any(entry.number < self.floor and entry.state is not State.COMPLETED for entry in entries)


class Parts:
    """Everything a verb needs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.insight = Insight(settings)
        self.journal = Journal(store_path(settings), settings.store.busy_s)
        self.events = Events()
        self.journal.tell(self.events.publish)
        self.providers = Registry(settings.providers)
        self.mcp_servers = Servers(settings.mcp)
        self.pricing = Pricing(settings.prices)
        self.presence = Presence()
        self.floating = Floating()
        self.pauses = Pauses(self)
        self.tasks = Tasks()
        self.followers = Tasks()  # of jobs at providers; they may go on for hours, and a stop does not wait for them
        self.standing: set[asyncio.Timeout] = set()  # of streams that have no end of their own: a stop ends them
        self.closing = False
        self._stopping = asyncio.Event()
        self.outbox = Outbox(settings.alerts, settings.approvals)
        self.links = Links(data_folder(), settings.approvals.link_expires_s)
        self.delivery = Delivery(self)
        self.overlays = Overlays(self)
        self.routes = Routes(settings, self.providers)
        self.foresight = Foresight(self)
        self.breakers = Breakers(settings.breaker, self.journal, self.outbox)
        self.queues = queues(settings.providers, settings.upstream.queue_wait_s)
        self.bounded = bool(self.queues) or settings.retry.attempt_timeout_s is not None
        self.gate = Gate(self, Policies(settings.policies))
        self.budgets = Budgets(self, settings.budget)
        self.retention = Retention(self)
        self.uncounting: set[str] = set()  # providers that have refused to be asked for the usage of streams
        self._heads: dict[int, Head] = {}

    @cached_property
    def client(self) -> Client:
        """Who makes attempts. It is loaded when first needed, so that a start need not wait for it; see ``warm``."""
        return SimulatedClient(self.settings.simulate) if self.settings.simulate.enabled else self.http

    @cached_property
    def http(self) -> Client:
        """Who makes attempts over the network, at tools even where models are simulated."""
        from agentstate.providers.http import HttpClient

        return HttpClient(self.settings.upstream)

    def warm(self) -> None:
        """Load what the first call will need. For a thread."""
        if not self.settings.simulate.enabled:
            importlib.import_module("agentstate.providers.http")

    def open(self) -> None:
        self.journal.open()
        self.breakers.load()
        for warning in self.routes.warnings():
            log.warning("%s", warning)
        self.budgets.warm()

    def reached_at(self, url: str) -> None:
        """The proxy is about to serve at this address: others find it, and people are told from now on."""
        self.journal.lock.tell(url)
        self.delivery.start(url)
        self.followers.start("expire approvals", Approvals(self).expire())
        self.followers.start("ask about calls in doubt", doubts.ask_left(self))
        self.followers.start("measure the event loop", self.insight.metrics.beat())
        self.retention.start()

    async def drain(self, grace_s: float) -> None:
        """Begin no call any more, and let those in flight end within the grace time, in seconds. What does not end is
        marked interrupted, and its readers are told to ask again."""
        self.closing = True
        for stream in self.standing:
            stream.reschedule(0)
        self._stopping.set()
        self.gate.close()
        self.budgets.settled()
        for queue in self.queues.values():
            queue.close()
        late = await self.tasks.finish(grace_s)
        if late:
            log.warning("%d calls were still in flight; they are marked interrupted", late)

    async def rest(self, seconds: float) -> None:
        """Wait so long before something is tried again. Raises ``ShuttingDown`` as soon as the proxy stops."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
        raise ShuttingDown("the proxy is stopping; ask again")

    async def close(self) -> None:
        """Stop; see ``drain``."""
        await self.drain(1.0)
        await self.followers.finish(0)
        await self.delivery.stop()
        for made in ("client", "http"):
            if made in self.__dict__:
                await self.__dict__[made].close()
        await self.insight.close()
        self.journal.close()

    def counts(self, provider: Provider) -> bool:
        """Whether a provider may be asked for the usage of streams whose agents do not ask for it."""
        return provider.usage_in_streams and provider.name not in self.uncounting

    def head(self, session: SessionRow) -> tuple[Shown, bytes | None]:
        """The branches that a session shows, and the fingerprint of its first step if it has one."""
        known = self.view(session)
        return known.shown, known.opening

    def view(self, session: SessionRow) -> Head:
        """What a session's branch shows, and what a person edited of it."""
        known = self._heads.get(session.head)
        if known is None:
            known = self._read_head(session)
            # Branches never change, but for an opening that is still missing.
            if known.opening is not None:
                if len(self._heads) > _MOST_HEADS:
                    self._heads.clear()
                self._heads[session.head] = known
        return known

    def _read_head(self, session: SessionRow) -> Head:
        read = self.journal.read
        rows = read.branches(session.id)
        shown = lineage({key: row.branch for key, row in rows.items()}, session.head)
        shared = tuple(part for part in shown if rows[part[0]].session != session.id)
        found = Head(shown, rows[session.head].opening, shared, shared[0][1] if shared else 0)
        if all(rows[branch].reason != EDIT for branch, _ in shown):
            return found
        edits = read.revisions(shown)
        left = [row for row in read.left_behind(shown)]
        return found._replace(
            edits=edits,
            left=frozenset(row.step for row in left),
            barred=frozenset(row.step for row in left if row.held),
        )
