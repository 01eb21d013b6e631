"""Owns asking what a call in doubt came to, where the settings say whom to ask. Must not ask people, nor decide.

Invariant: whatever goes wrong, or cannot be understood, finds nothing out: then a person is asked.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from agentstate.core import effects
from agentstate.core.effects import Found
from agentstate.dialects import mcp, sse
from agentstate.engine.headers import forwarded_to
from agentstate.engine.request import Request
from agentstate.errors import AgentStateError
from agentstate.providers.client import Question, Reply
from agentstate.providers.provider import Provider
from agentstate.settings import ProbeSettings
from agentstate.store.effect_reader import EffectRow

if TYPE_CHECKING:
    from agentstate.engine.core import Parts

log = logging.getLogger("agentstate")
_MOST = 1024 * 1024  # bytes of an answer


class Probes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def ask(self, request: Request, effect: EffectRow) -> Found:
        """What a probe finds out about a call. ``request``: with which it was asked for again."""
        probes = self._parts.settings.probes
        place = effects.first_matching(effect.tool, [probe.tools for probe in probes])
        if place is None:
            return Found()
        probe = probes[place]
        try:
            async with asyncio.timeout(probe.timeout_s):
                if probe.url:
                    return await self._address(probe, effect)
                if probe.tool and effect.server in self._parts.mcp_servers:
                    return await self._tool(probe, request, effect)
        except (AgentStateError, TimeoutError, ValueError) as error:
            log.warning("the probe of %s found nothing out (%s): a person is asked", effect.tool, error)
        return Found()

    async def _address(self, probe: ProbeSettings, effect: EffectRow) -> Found:
        url = urlsplit(probe.url.replace("{key}", quote(effect.key, safe="")))
        provider = Provider("probe", url._replace(query="").geturl(), "", ("probe",))
        question = Question("GET", "", url.query, [("accept", "application/json")], b"")
        async with self._parts.http.attempt(provider, question) as reply:
            body = await _whole(reply)
            return effects.found_by_status(reply.status, _value(body) if reply.status == 200 else None)

    async def _tool(self, probe: ProbeSettings, request: Request, effect: EffectRow) -> Found:
        """Ask a tool of the same server, as a call of its own that is not journaled: it only reads."""
        server = self._parts.mcp_servers.find(effect.server)
        given = json.loads(request.body) if request.body else {}
        meta = (given.get("params") or {}).get("_meta") or {}
        meta = {name: value for name, value in meta.items() if name != "progressToken"}
        arguments = {"key": effect.key, "tool": effect.tool, "arguments": json.loads(effect.arguments)}
        params = {"name": probe.tool, "arguments": arguments, "_meta": meta}
        ident = f"probe-{effect.key}"
        body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": mcp.CALL, "params": params}).encode()
        question = forwarded_to(request, server, body, ("mcp-param-", "mcp-name"), [("mcp-name", probe.tool)])
        async with self._parts.http.attempt(server.provider, question) as reply:
            answer = await _whole(reply)
        streamed = any(name.lower() == "content-type" and "event-stream" in value for name, value in reply.headers)
        messages = [data for event in sse.events(answer) if (data := sse.data_of(event))] if streamed else [answer]
        for message in messages:
            if (outcome := mcp.outcome_of(message, ident)) is not None:
                return effects.found_by_tool(mcp.structured(outcome))
        return Found()


async def _whole(reply: Reply) -> bytes:
    body = b""
    async for chunk in reply.chunks:
        body += chunk
        if len(body) > _MOST:
            raise ValueError("its answer is too large")
    return body


def _value(body: bytes) -> Any:
    """A body as JSON, or as the text that it is."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace") or None
