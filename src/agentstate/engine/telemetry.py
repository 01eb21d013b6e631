"""Owns spans: how a step is told to a collector by OpenTelemetry's conventions for generative AI. Must not see a body.

Its libraries are an extra and are loaded here alone, when an address is set. Invariant: a span is made after its step
is over and is sent in the background: a collector that is slow or down costs no call anything, is told of once, and
holds up a stop for ``FLUSH_S`` at most.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agentstate import __version__, clock
from agentstate.errors import SettingsError

if TYPE_CHECKING:
    from agentstate.engine.insight import Fact

log = logging.getLogger("agentstate")
FLUSH_S = 3.0
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NANO = 1_000_000_000
# Names of the conventions where ours differ; other providers go by their name in the settings.
_PROVIDERS = {"gemini": "gcp.gemini"}
_VENDORS = {"anthropic": "anthropic", "gemini": "gcp.gemini", "ollama": "ollama"}  # by the begin of a dialect's name
_OPERATIONS = {"gemini": "generate_content", "openai_completions": "text_completion"}
_OF_PATHS = {
    "embeddings": "embeddings", "embed": "embeddings", "embedContent": "embeddings", "batchEmbedContents": "embeddings",
}  # fmt: skip


class Telemetry:
    """One for each serving process. Raises ``SettingsError`` where the extra is missing or the address is none."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise SettingsError("telemetry.otlp_url must look like http://host:4318/v1/traces")
        try:
            from opentelemetry import trace
            from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingsError(
                "telemetry.otlp_url is set, but OpenTelemetry is not installed: pip install 'agentstate-proxy[otel]'"
            ) from error
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say again and again is said once
        self._trace = trace
        resource = Resource.create()  # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES among it
        ours = {SERVICE_VERSION: __version__}
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            ours[SERVICE_NAME] = "agentstate"
        resource = resource.merge(Resource(ours))
        self._ids = _ids()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_exporter(url)))
        self._tracer = self._provider.get_tracer("agentstate", __version__)

    def step(self, fact: Fact) -> None:
        """A step is over, or was given again: one span."""
        kind = self._trace.SpanKind
        name, attributes = _named(fact)
        self._ids.trace = int.from_bytes(sha256(_clean(fact.session).encode()).digest()[:16]) or 1
        span = self._tracer.start_span(
            name, self._above(fact.parent), kind.INTERNAL if fact.is_tool else kind.CLIENT,
            {key: _clean(value) for key, value in attributes.items() if value is not None and value != ""},
            start_time=int(fact.began * _NANO),
        )  # fmt: skip
        for tried in fact.tries:
            told = {
                "gen_ai.provider.name": _PROVIDERS.get(tried.provider, tried.provider),
                "gen_ai.request.model": tried.model, "http.response.status_code": tried.status,
                "agentstate.duration_s": tried.seconds, "error.type": tried.error,
            }  # fmt: skip
            kept: dict[str, Any] = {key: _clean(value) for key, value in told.items() if value not in ("", 0)}
            span.add_event("agentstate.attempt", kept, int(tried.began * _NANO))
        if fact.error:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(int((fact.began + fact.seconds) * _NANO))

    def _above(self, parent: str) -> Any:
        """The agent's span, if it has told one, as the context of ours; else an empty one."""
        from opentelemetry.context import Context

        found = _PARENT.fullmatch(parent)
        if found is None:
            return Context()
        trace = self._trace
        place = trace.SpanContext(int(found[1], 16), int(found[2], 16), True, trace.TraceFlags(int(found[3], 16)))
        return trace.set_span_in_context(trace.NonRecordingSpan(place), Context())

    async def close(self) -> None:
        """Send what is there, for ``FLUSH_S`` seconds at most."""
        flushing = threading.Thread(target=self._provider.shutdown, name="agentstate-spans", daemon=True)
        flushing.start()
        await asyncio.to_thread(flushing.join, FLUSH_S)


def _named(fact: Fact) -> tuple[str, dict[str, Any]]:
    """The span's name and attributes. What was not paid now tells no usage: nobody is to count it twice."""
    ours = {
        "gen_ai.conversation.id": fact.session, "error.type": fact.error, "agentstate.outcome": fact.outcome,
        "agentstate.replayed": fact.outcome in ("replay", "memo", "joined"), "agentstate.step": fact.step,
        "agentstate.run": fact.run,
    }  # fmt: skip
    if fact.is_tool:
        found = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": fact.name, **ours}
        return f"execute_tool {fact.name}", found
    if fact.outcome == "held":  # the wait for a person; of the model's part a span of its own tells
        return f"hold {fact.name}".strip(), {"gen_ai.request.model": fact.name, **ours}
    last = re.split("[/:]", fact.path.partition("?")[0])[-1]
    operation = _OF_PATHS.get(last) or _OPERATIONS.get(fact.dialect) or (last if "pure" in fact.dialect else "chat")
    vendor = next((name for start, name in _VENDORS.items() if start in fact.dialect), "openai")
    found = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(fact.provider, fact.provider) or vendor,
        "gen_ai.request.model": fact.name, "gen_ai.response.model": fact.answered,
        "gen_ai.response.finish_reasons": list(fact.finish) or None,
        "gen_ai.usage.input_tokens": fact.tokens.input or None,
        "gen_ai.usage.output_tokens": fact.tokens.output or None,
        "gen_ai.usage.cache_read.input_tokens": fact.tokens.cache_read or None,
        "http.response.status_code": fact.status or None, "agentstate.cost_usd": fact.usd,
        "agentstate.attempts": fact.attempts or None, "agentstate.provider_request_id": fact.request_id, **ours,
    }  # fmt: skip
    return f"{operation} {fact.name}".strip(), found


def _clean(value: Any) -> Any:
    """A text that can be sent: what is no character is not."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _ids() -> Any:
    """Ids of spans by chance; a span without a parent belongs to the one trace of its session, in whatever run."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Ids(IdGenerator):
        trace = 1

        def generate_span_id(self) -> int:
            return clock.span_id()

        def generate_trace_id(self) -> int:
            return self.trace

    return Ids()


def _exporter(url: str) -> Any:
    """The exporter, which says once that spans are lost, and once that they arrive again."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    place = urlsplit(url)
    shown = f"{place.scheme}://{place.hostname}" + (f":{place.port}" if place.port else "")

    class Exporter(SpanExporter):
        lost = False

        def __init__(self) -> None:
            self._inner = OTLPSpanExporter(endpoint=url)

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = self._inner.export(spans)
            lost = result is not SpanExportResult.SUCCESS
            if lost and not self.lost:
                log.warning("spans cannot be sent to %s and are lost until it answers; calls are not affected", shown)
            elif self.lost and not lost:
                log.warning("spans arrive at %s again", shown)
            self.lost = lost
            return result

        def shutdown(self) -> None:
            self._inner.shutdown()  # type: ignore[no-untyped-call]

    return Exporter()
