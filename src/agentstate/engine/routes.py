"""Owns the routes of the settings as the engine uses them. Must not hold rules: ``core.routing`` does.

Invariant: where a call may go is what the settings and its own request say, and nothing else.
"""

from __future__ import annotations

from datetime import UTC, date, datetime

from agentstate import clock
from agentstate.core import routing
from agentstate.core.routing import Candidate, Fault, Planned, Route
from agentstate.providers.provider import Registry
from agentstate.providers.shutdowns import SHUTDOWNS
from agentstate.settings import RouteSettings, Settings

# For a list that a request brings itself; the defaults of ``routes.on``.
_BY_HEADER = frozenset(Fault(name) for name in RouteSettings.model_fields["on"].default)


class Routes:
    """Where else calls may go. ``all``: the settings' routes; ``any``: there are some."""

    def __init__(self, settings: Settings, providers: Registry) -> None:
        self._kinds = providers.kinds
        self.all = [
            Route(part.model, tuple(part.fallback), frozenset(map(Fault, part.on)), part.strict)
            for part in settings.routes
        ]
        self.any = bool(self.all)
        self._ends = SHUTDOWNS | {part.model: part.on for part in settings.shutdowns}

    def planned(self, asked: Candidate, header: str) -> Planned:
        """Where else a call may go; ``header``: what its request says of that itself."""
        return routing.plan(asked, header, self.all, self._kinds, _BY_HEADER)

    def warnings(self) -> list[str]:
        """What will hurt soon."""
        today = datetime.fromtimestamp(clock.now(), tz=UTC).date()
        return routing.warnings(self.all, self._ends, today)

    def shutdown(self, model: str) -> date | None:
        """The day on which its vendor shuts a model down, where that is known."""
        return self._ends.get(model)
