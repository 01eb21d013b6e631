"""Owns the routes of exports and of what people say of sessions and steps. Must not hold rules: each route parses,
calls one verb, renders.

Invariant: an export is streamed as it is read, no faster than it is taken, and of constant size in memory; whoever
leaves in the middle ends the reading. An export that fails is cut off, never ended as if it were whole. A start of the
server does not wait for what only exports need.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentstate.core.approval import Role
from agentstate.engine import rating
from agentstate.engine.core import Parts
from agentstate.errors import BadRequest
from agentstate.server.routing import Guard, body_of, json_answer, label_names, person_of, text_of, whole
from agentstate.server.views import rating_view
from agentstate.store.reader import Reader

if TYPE_CHECKING:
    from agentstate.core.dataset_filter import Filters, Format
    from agentstate.engine.exporting import Report

MOST_PREVIEW = 20


class ExportRoutes:
    """To be put before the routes of single sessions, whose ids may hold slashes."""

    def __init__(self, parts: Parts, guard: Guard) -> None:
        self._parts = parts
        self._reading = guard.reading
        at = "/api/sessions/{id:path}"
        self.routes = [
            Route("/api/export/dataset", guard(self._dataset), methods=["GET"]),
            Route("/api/export/report", guard(self._report), methods=["GET"]),
            Route(at + "/export", guard(self._session), methods=["GET"]),
            Route(at + "/steps/{number:int}/rating", guard(self._rate, Role.APPROVER), methods=["POST"]),
            Route(at + "/steps/{number:int}/labels", guard(self._label, Role.APPROVER), methods=["POST"]),
            Route(at + "/rating", guard(self._rate, Role.APPROVER), methods=["POST"]),
        ]

    async def _dataset(self, request: Request) -> Response:
        from agentstate.core.dataset_filter import parsed

        filters, form = parsed(request.query_params.multi_items())
        return await self._file(filters, form, "dataset")

    async def _session(self, request: Request) -> Response:
        from agentstate.core.dataset_filter import parsed

        key = request.path_params["id"]
        filters, form = parsed([*request.query_params.multi_items(), ("session", key)])
        if filters.sessions != (key,):
            raise BadRequest("the session stands in the path; leave the parameter session out")
        return await self._file(filters, form, key)

    async def _file(self, filters: Filters, form: Format, name: str) -> Response:
        stream = _Stream(self._parts, filters, form)
        first = await stream.next()  # what is wrong with the request is told before the answer begins
        suffix = "parquet" if form == "parquet" else "jsonl"
        kind = "application/vnd.apache.parquet" if form == "parquet" else "application/jsonl"
        shown = quote(f"{name}.{form}.{suffix}", safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{shown}", "cache-control": "no-store"}
        return StreamingResponse(stream.rest(first), 200, headers, kind)

    async def _report(self, request: Request) -> Response:
        from agentstate.core.dataset_filter import parsed
        from agentstate.engine.exporting import report

        query = [item for item in request.query_params.multi_items() if item[0] != "preview"]
        filters, form = parsed(query)
        preview = whole(request, "preview", 3, 0, MOST_PREVIEW)
        patterns = self._parts.settings.export.redact
        found = await self._reading(lambda reader: report(reader, filters, form, preview, patterns))
        return json_answer(report_view(found, form))

    async def _rate(self, request: Request) -> Response:
        body = await body_of(request)
        key, number = request.path_params["id"], request.path_params.get("number")
        verdict, note = text_of(body, "rating"), text_of(body, "note", "")
        row = await rating.rate(self._parts, key, number, verdict, note, person_of(request))
        where = {} if number is None else {"step_number": number}
        return json_answer({"id": key, **where, "rating": rating_view(row)})

    async def _label(self, request: Request) -> Response:
        body = await body_of(request)
        key, number = request.path_params["id"], request.path_params["number"]
        names = await rating.label_step(
            self._parts, key, number, label_names(body.get("add")), label_names(body.get("remove")), person_of(request)
        )
        return json_answer({"id": key, "step_number": number, "labels": list(names)})


class _Stream:
    """The pieces of an export, each read in a thread while nobody else waits for the next."""

    def __init__(self, parts: Parts, filters: Filters, form: Format) -> None:
        self._lock = threading.Lock()
        self._left = False
        self._made = self._pieces(parts, filters, form)

    def _pieces(self, parts: Parts, filters: Filters, form: Format) -> Iterator[bytes]:
        from agentstate.engine.exporting import Export
        from agentstate.engine.shards import streamed

        reader = Reader(parts.journal.path, parts.settings.store.busy_s)
        try:
            export = Export(reader, filters, form, parts.settings.export.redact)
            yield from streamed(export, form)
        finally:
            reader.close()

    async def next(self) -> bytes | None:
        """The next piece; ``None``: that was all."""
        try:
            return await asyncio.to_thread(self._next)
        except BaseException:
            self._left = True
            raise

    def _next(self) -> bytes | None:
        with self._lock:
            return None if self._left else next(self._made, None)

    async def rest(self, piece: bytes | None) -> AsyncIterator[bytes]:
        try:
            while piece is not None:
                yield piece
                piece = await self.next()
        finally:
            # Whoever left may have done so while a thread reads.
            self._left = True
            await asyncio.shield(asyncio.to_thread(self._close))

    def _close(self) -> None:
        with self._lock:
            self._made.close()  # type: ignore[attr-defined]


def report_view(found: Report, form: Format) -> dict[str, Any]:
    """What an export comes to."""
    from agentstate.engine.shards import told

    return {"format": form, **told(found, form), "preview": found.preview}
