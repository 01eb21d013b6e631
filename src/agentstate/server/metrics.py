"""Owns how what is counted is written for Prometheus. Must not count.

Invariant: the numbers are read when somebody asks and in a thread of its own, so that a look costs the calls that are
under way nothing; the library is loaded with the first look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate import __version__
from agentstate.core.durations import Durations
from agentstate.core.model import BreakerState
from agentstate.engine.core import Parts
from agentstate.engine.metrics import OTHER
from agentstate.errors import AgentStateError
from agentstate.server.routing import Guard
from agentstate.store.reader import Reader

log = logging.getLogger("agentstate")

_CLASSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")


def metrics_route(parts: Parts, guard: Guard) -> Route:
    """``GET /metrics``: behind a person's token, unless the settings open it."""
    exposition = Exposition(parts)
    shown = exposition.answer if parts.settings.metrics.open else guard(exposition.answer)
    return Route("/metrics", shown, methods=["GET"])


class Exposition:
    """One for each serving process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._registry: Any = None

    async def answer(self, request: Request) -> Response:
        self._parts.insight.metrics.fold()
        body, kind = await asyncio.to_thread(self._written, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": kind})

    def _written(self, accept: str) -> tuple[bytes, str]:
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            self._registry = self._made()
        encoder, kind = choose_encoder(accept)
        return encoder(self._registry), kind

    def _made(self) -> Any:
        """A registry of our own: nothing of other parts of the process is in it."""
        from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_Collector(self._parts))
        return registry


class _Collector:
    """Yields families of the library."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def describe(self) -> list[Any]:
        return []  # nothing is read before somebody asks

    def collect(self) -> Iterator[Any]:
        yield _gauge("agentstate_info", "The version that serves.", ("version",), [((__version__,), 1)])
        yield from self._of_requests()
        yield from self._of_models()
        yield from self._of_now()
        yield from self._of_journal()
        yield self._of_breakers()

    def _of_breakers(self) -> Any:
        known = self._parts.insight.metrics.models
        rows: dict[tuple[str, str], float] = {}
        for held in self._parts.breakers.shown():
            key = (held.candidate.provider, held.candidate.model)
            key = key if key in known else (key[0], OTHER)  # as of the other figures: agents may say any name
            rows[key] = max(rows.get(key, 0.0), float(held.breaker.state is not BreakerState.CLOSED))
        return _gauge(
            "agentstate_breaker_open", "Models that are left alone, or tried again.", ("provider", "model"),
            rows.items(),
        )  # fmt: skip

    def _of_requests(self) -> Iterator[Any]:
        metrics = self._parts.insight.metrics
        yield _counter(
            "agentstate_requests", "Answers given, by wire format and outcome.", ("dialect", "outcome"),
            list(metrics.requests.items()),
        )  # fmt: skip
        errors = [((code,), count) for code, count in list(metrics.errors.items())]
        yield _counter("agentstate_errors", "Requests answered by an error of the proxy's own.", ("code",), errors)
        yield _histogram("agentstate_added_latency_seconds", "Live answers, less the provider's part.", metrics.added)
        yield _histogram("agentstate_replay_duration_seconds", "Recorded answers of models.", metrics.replays)
        yield _counter("agentstate_saved_cost_usd", "What replays would have cost.", (), [((), metrics.saved)])
        yield _counter("agentstate_unpriced_replays", "Replays of unknown cost.", (), [((), metrics.unpriced)])
        yield _histogram("agentstate_event_loop_lag_seconds", "How late the event loop is.", metrics.lag)

    def _of_models(self) -> Iterator[Any]:
        models = list(self._parts.insight.metrics.models.items())
        labels = ("provider", "model")
        statuses = [
            ((*key, name), count)
            for key, row in models
            for name, count in zip(_CLASSES, row.statuses, strict=True)
            if count
        ]
        yield _counter("agentstate_attempts", "Attempts at providers, by status.", (*labels, "status"), statuses)
        wholes = [(key, row.whole) for key, row in models]
        yield _histograms("agentstate_attempt_duration_seconds", "Attempts, to the last byte.", labels, wholes)
        firsts = [(key, row.first) for key, row in models]
        yield _histograms("agentstate_attempt_first_byte_seconds", "Attempts, to the first byte.", labels, firsts)
        tokens = [
            ((*key, kind), count)
            for key, row in models
            for kind, count in (("input", row.read), ("output", row.written), ("cached", row.stored))
        ]
        yield _counter("agentstate_tokens", "Tokens paid; input has cached in it.", (*labels, "kind"), tokens)
        costs = [(key, row.usd) for key, row in models]
        yield _counter("agentstate_cost_usd", "Cost of answers whose price is known.", labels, costs)
        unpriced = [(key, row.unpriced) for key, row in models]
        yield _counter("agentstate_unpriced_answers", "Answers with usage of unknown price.", labels, unpriced)

    def _of_now(self) -> Iterator[Any]:
        floating = self._parts.floating
        live, held = len(floating.live), len(floating.holding)
        yield _gauge("agentstate_steps_in_flight", "Steps that are being answered.", (), [((), live)])
        yield _gauge("agentstate_recordings_held", "Answers that wait for a decision here.", (), [((), held)])
        yield _gauge("agentstate_connections", "Open sockets.", (), [((), len(self._parts.presence))])

    def _of_journal(self) -> Iterator[Any]:
        journal = self._parts.journal
        commits, fsyncs = journal.durations
        yield _histogram("agentstate_journal_commit_seconds", "Commits of the journal, one in eight.", commits)
        yield _histogram("agentstate_journal_fsync_seconds", "Times it was put on disk.", fsyncs)
        whole, wal = journal.sizes
        yield _gauge("agentstate_journal_bytes", "Size of the journal's file.", (), [((), whole)])
        yield _gauge("agentstate_journal_wal_bytes", "Size of its write-ahead log.", (), [((), wal)])
        try:
            states, messages = self._counted()
        except AgentStateError as error:
            log.warning("the journal could not be read for /metrics: %s", error)
            return
        pending = states.pop("pending", 0)
        yield _gauge("agentstate_approvals_pending", "Approvals that wait for a person.", (), [((), pending)])
        decided = [((state,), count) for state, count in states.items()]
        yield _counter("agentstate_approvals_decided", "Approvals decided, of the journal.", ("state",), decided)
        waiting = [((state,), count) for state, count in messages.items()]
        yield _gauge("agentstate_outbox_messages", "Messages to people, not delivered.", ("state",), waiting)

    def _counted(self) -> tuple[dict[str, int], dict[str, int]]:
        reader = Reader(self._parts.journal.path, self._parts.settings.store.busy_s)
        try:
            return reader.approval_states(), reader.waiting_messages()
        finally:
            reader.close()


def _counter(name: str, told: str, labels: tuple[str, ...], values: Any) -> Any:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, told, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _gauge(name: str, told: str, labels: tuple[str, ...], values: Any) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, told, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _histogram(name: str, told: str, durations: Durations) -> Any:
    return _histograms(name, told, (), [((), durations)])


def _histograms(
    name: str, told: str, labels: tuple[str, ...], values: Sequence[tuple[tuple[str, ...], Durations]]
) -> Any:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, told, labels=labels)
    for key, durations in values:
        buckets, total = durations.cumulative()
        family.add_metric(key, [(_spelled(bound), count) for bound, count in buckets], total)
    return family


def _spelled(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
