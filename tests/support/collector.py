"""Owns a receiver of OTLP over HTTP on loopback, which keeps the spans that it is sent. Must not judge them.

Invariant: a span is in ``spans`` before its sender is answered.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.upstream import Reply, Seen, Upstream, plain

BOUND_S = 20.0


@dataclass
class Span:
    """One span as it arrived; ids in hex, times in nanoseconds."""

    name: str
    trace: str
    parent: str
    kind: int
    begin: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    resource: dict[str, Any] = field(default_factory=dict)


class Collector:
    """``url``: for ``telemetry.otlp_url``. ``reply``: what senders are answered, in the place of 200."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw = b""
        self.reply: Callable[[], Reply] = lambda: plain(b"", content_type="application/x-protobuf")
        self._arrived = threading.Condition()
        self._server = Upstream(self._take)

    def __enter__(self) -> Collector:
        self._server.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._server.__exit__(*details)

    @property
    def url(self) -> str:
        return self._server.url.removesuffix("/v1") + "/v1/traces"

    def _take(self, seen: Seen) -> Reply:
        body = gzip.decompress(seen.body) if seen.headers.get("content-encoding") == "gzip" else seen.body
        self.raw += seen.raw_head + body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            of = _values(resource.resource.attributes)
            with self._arrived:
                self.spans += [_span(one, of) for scope in resource.scope_spans for one in scope.spans]
                self._arrived.notify_all()
        return self.reply()

    def wait(self, count: int, name: str = "") -> list[Span]:
        """The spans whose name begins so, once there are that many."""
        until = time.monotonic() + BOUND_S
        with self._arrived:
            while len(found := [span for span in self.spans if span.name.startswith(name)]) < count:
                left = until - time.monotonic()
                assert left > 0, f"{len(found)} spans arrived, not {count}: {[span.name for span in self.spans]}"
                self._arrived.wait(left)
        return found


def _span(one: Any, resource: dict[str, Any]) -> Span:
    return Span(
        one.name, one.trace_id.hex(), one.parent_span_id.hex(), one.kind, one.start_time_unix_nano,
        one.end_time_unix_nano, one.status.code == 2, _values(one.attributes),
        [(event.name, _values(event.attributes)) for event in one.events], resource,
    )  # fmt: skip


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
