"""Owns sending one message to one target over HTTP, once. Must not retry, store or read the journal.

Invariant: redirects are not followed; a target that is slow, silent or floods costs a bounded time and memory; nothing
that is returned or logged shows more of a target's address than scheme and host.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple
from urllib.parse import urlsplit

from agentstate import clock
from agentstate.alerts import discord, message, slack, webhook
from agentstate.alerts.message import Message
from agentstate.alerts.target import Post, Target, said_by
from agentstate.errors import ShuttingDown, UpstreamFault, UpstreamInvalid, UpstreamTimeout, UpstreamUnreachable
from agentstate.providers.client import Client, Question
from agentstate.providers.provider import Provider
from agentstate.settings import UpstreamSettings

log = logging.getLogger("agentstate")
TOGETHER = 8  # most messages on their way at a time, one for each target
WHOLE_S = 30.0  # from the look-up of the host's name to the answer's end
_CONNECT_S, _SILENCE_S = 10.0, 15.0
_MOST_ANSWER = 4096  # bytes that are read of an answer

_POSTS: dict[str, Callable[[Message, Target, float], Post]] = {
    "slack": slack.post,
    "discord": discord.post,
    "webhook": webhook.post,
}


class Sent(NamedTuple):
    """How a try ended. ``status``: 0 where no answer came; ``error``: in words, empty where it was taken."""

    status: int
    retry_after: str = ""
    error: str = ""


class Unsendable(Exception):
    """The message could not be written for its target: a fault of ours, which no further try mends."""


class Sender:
    """Connections to targets."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(TOGETHER)

    @cached_property
    def _client(self) -> Client:
        from agentstate.providers.http import HttpClient  # loaded when there is something to send

        limits = UpstreamSettings(
            connect_timeout_s=_CONNECT_S, first_byte_timeout_s=_SILENCE_S, idle_timeout_s=_SILENCE_S,
            connections=TOGETHER, queue_wait_s=WHOLE_S,
        )  # fmt: skip
        return HttpClient(limits)

    async def close(self) -> None:
        if "_client" in self.__dict__:
            await self._client.close()

    async def send(self, target: Target, said: Message) -> Sent:
        """One try. Raises ``Unsendable``, and ``ShuttingDown`` after ``close``."""
        try:
            post = _POSTS[target.kind](said, target, clock.now())
        except Exception as error:  # whatever a message holds, those behind it must not wait for it
            log.exception("message %s cannot be written for %s", said.id, target.name)
            raise Unsendable(f"it cannot be written for {target.kind} ({type(error).__name__})") from error
        async with self._turns:
            try:
                async with asyncio.timeout(WHOLE_S):
                    return await self._once(target, post)
            except TimeoutError:
                return Sent(0, "", f"{target.shown} did not answer within {WHOLE_S:g} s")
            except UpstreamFault as fault:
                return Sent(0, "", f"{target.shown} {_explained(fault)}")

    async def _once(self, target: Target, post: Post) -> Sent:
        url = urlsplit(post.url)
        # All of the path belongs to the place: nothing of it is a version that may be another there.
        place = Provider(target.name, f"{url.scheme}://{url.netloc}{url.path}", "", ())
        headers = [("user-agent", "AgentState"), ("accept", "*/*"), *post.headers]
        async with self._client.attempt(place, Question("POST", "", url.query, headers, post.body)) as reply:
            wait = next((value for name, value in reply.headers if name.lower() == "retry-after"), "")
            if 200 <= reply.status < 300:
                return Sent(reply.status)
            body = b""
            try:
                async for piece in reply.chunks:
                    body += piece
                    if len(body) >= _MOST_ANSWER:
                        break
            except UpstreamFault:
                body = b""  # the status has said what matters
            return Sent(reply.status, wait, _refusal(target, reply.status, body[:_MOST_ANSWER]))


def _refusal(target: Target, status: int, body: bytes) -> str:
    if 300 <= status < 400:
        return f"{target.shown} answered {status}, a redirect, which is not followed: set the address it leads to"
    said = said_by(target, body)
    return f"{target.shown} answered {status}" + (f": {said}" if said else "")


def _explained(fault: UpstreamFault) -> str:
    """A fault of the connection, less the words that are about providers."""
    if isinstance(fault, UpstreamUnreachable):
        cause = fault.__cause__
        number = getattr(cause, "errno", None) or 0
        # Below zero they are those of a look-up of a name, and above it event loops add words of their own.
        reason = os.strerror(number) if number > 0 else getattr(cause, "strerror", None)
        return f"cannot be reached ({reason})" if reason else "cannot be reached"
    if isinstance(fault, UpstreamTimeout):
        return "did not answer in time"
    if isinstance(fault, UpstreamInvalid):
        return "sent what is not HTTP"
    return "closed the connection before its answer"


async def trial(sender: Sender, target: Target) -> Sent:
    """Send a message that says nothing but that it arrived."""
    said = message.compose(message.test(clock.alert_id(), clock.now()))
    try:
        return await sender.send(target, said)
    except Unsendable as error:
        return Sent(0, "", str(error))
    except ShuttingDown as error:
        return Sent(0, "", error.message)
