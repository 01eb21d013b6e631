"""Owns keeping requests back while their session is paused, and letting them go on. Must not send anything, nor decide
what a request is answered with.

Invariant: of a session that a person has paused nothing is begun and nothing is sent; who waits for it is judged anew
once it goes on, as if it had asked then; and whoever waits takes nothing from the journal and writes nothing there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agentstate import clock
from agentstate.core import pausing
from agentstate.core.model import SessionStatus
from agentstate.core.pausing import Handling
from agentstate.dialects.base import Dialect
from agentstate.engine.waiters import Waiters
from agentstate.errors import AgentStateError, SessionPaused, ShuttingDown
from agentstate.providers.client import Headers
from agentstate.store.rows import SessionRow

if TYPE_CHECKING:
    from agentstate.core.model import Call
    from agentstate.engine.core import Parts
    from agentstate.engine.request import Answer

_STOPPING = "the proxy is stopping; ask again"


class Pauses:
    """One for each serving process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._waits = parts.settings.pause.requests == "wait"
        self._most = parts.settings.pause.wait_s
        self._waiting = Waiters()

    @property
    def waiting(self) -> int:
        """How many requests wait now."""
        return len(self._waiting)

    def handling(self, key: str) -> Handling:
        """What becomes now of a request of the session with that id."""
        session = self._parts.journal.facts.session(key)
        if session is None:
            return Handling.GO
        return pausing.handling(session.status, session.note, self._waits)

    def waits(self, key: str) -> bool:
        return self.handling(key) is Handling.WAIT

    def check(self, key: str) -> None:
        """Raises ``SessionPaused`` for a session that is paused, by whomever."""
        session = self._parts.journal.facts.session(key)
        if session is not None and pausing.handling(session.status, session.note, self._waits) is not Handling.GO:
            raise refusal(session)

    def check_of_person(self, key: str) -> None:
        """Raises ``SessionPaused`` for a session that a person has paused, whatever becomes of its requests: nothing
        that the proxy itself finds out is put in the place of that."""
        session = self._parts.journal.facts.session(key)
        if session is not None and session.status is SessionStatus.PAUSED and pausing.read(session.note).by:
            raise refusal(session)

    def news(self) -> None:
        """Some session may go on; whoever waits looks again."""
        self._waiting.wake()

    async def over(self, key: str, seconds: float | None = None) -> bool:
        """Wait until requests of a session need not wait any more, at most so long; whether they need not. Raises
        ``ShuttingDown``."""
        until = None if seconds is None else clock.monotonic() + seconds
        while self.waits(key):
            if self._parts.closing:
                raise ShuttingDown(_STOPPING)
            left = None if until is None else until - clock.monotonic()
            if left is not None and left <= 0:
                return False
            await self._waiting.wait(left)
        return True

    async def rested(self, key: str) -> None:
        """Wait until a session goes on. Raises ``SessionPaused`` where it is paused in another way, and after
        ``pause.wait_s``, and ``ShuttingDown``."""
        if not await self.over(key, self._most):
            raise self.too_long(key)
        self.check(key)

    async def rested_once(self, key: str, seconds: float) -> None:
        """The same for who asks again and again: at most so many seconds at a time. How long it has waited is known by
        how long the pause lasts."""
        session = self._parts.journal.facts.session(key)
        at = pausing.read(session.note).at if session is not None else None
        if self._most is not None and at is not None and clock.now() - at >= self._most:
            raise self.too_long(key)
        await self.over(key, seconds)

    async def allowed(self, key: str) -> None:
        """The same for what is passed through: nothing but a person's pause keeps it back."""
        if self.handling(key) is Handling.GO:
            return
        session = self._parts.journal.facts.session(key)
        if session is None or not pausing.read(session.note).by:
            return
        await self.rested(key)

    def too_long(self, key: str) -> SessionPaused:
        """A request has waited as long as the settings let it."""
        session = self._parts.journal.facts.session(key)
        text = refusal(session).message if session is not None else f"session {key} is paused"
        error = SessionPaused(f"{text} (it was waited {self._most:g} s for, pause.wait_s)")
        error.waited = True
        return error


class Rest:
    """A request that waits for its session to go on, and how its client is kept waiting.

    ``headers``: of its answer, where its status must be sent before there is one; ``heartbeat``: what keeps the client
    waiting then; ``again``: judges the request anew; ``fitted``: makes of an answer's body what may follow a heartbeat,
    raising ``AgentStateError`` where nothing can be made of it; ``failed``: the end for a client whose status is out;
    ``None``: its connection must end.
    """

    def __init__(
        self, pauses: Pauses, key: str, headers: Headers, heartbeat: Callable[[], bytes],
        again: Callable[[], Awaitable[Answer | None]], fitted: Callable[[Answer], bytes],
        failed: Callable[[AgentStateError], bytes] | None,
    ) -> None:  # fmt: skip
        self._pauses = pauses
        self._key = key
        most = pauses._most
        self._until = None if most is None else clock.monotonic() + most
        self.headers = headers
        self.heartbeat = heartbeat
        self.again = again
        self.fitted = fitted
        self.failed = failed

    async def over(self, seconds: float) -> bool:
        """Wait at most so long; whether the request may be judged anew. Raises ``SessionPaused`` after
        ``pause.wait_s``, and ``ShuttingDown``."""
        left = seconds if self._until is None else min(seconds, self._until - clock.monotonic())
        if await self._pauses.over(self._key, max(left, 0.0)):
            return True
        if self._until is not None and clock.monotonic() >= self._until:
            raise self._pauses.too_long(self._key)
        return False

    def goes_on_from(self, before: Rest) -> None:
        """The same request waits again: its time counts from the first wait."""
        self._until = before._until


def refusal(session: SessionRow) -> SessionPaused:
    return SessionPaused(f"{pausing.sentence(session.key, session.note)}; set its status to RUNNING to go on")


def heartbeats(dialect: Dialect, call: Call) -> Callable[[], bytes]:
    """What keeps a client waiting for an answer of which nothing is known yet."""
    if not call.shape.stream:
        return lambda: b"\n"
    unseen = dialect.gate(call)
    return lambda: unseen.heartbeat() or getattr(dialect, "early_heartbeat", b"")
