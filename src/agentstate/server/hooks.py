"""Owns what Slack and Discord send when somebody presses a button. Must not decide: the person whose user id came does.

Invariant: nothing of a body is believed before its signature over the raw bytes is right, not older than five minutes,
and not seen before; who is no approver is told so privately, and nothing changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from hashlib import sha256
from http.client import HTTPException
from typing import Any, Literal
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentstate import clock
from agentstate.core.approval import Decision, Person
from agentstate.core.model import ApprovalState
from agentstate.engine.approvals import Approvals
from agentstate.engine.core import Parts
from agentstate.errors import AgentStateError, BadRequest, Forbidden, NotFound, Unauthorized
from agentstate.server.routing import error_answer, json_answer, raw_body

log = logging.getLogger("agentstate")
WINDOW_S = 300
_MOST_SEEN = 20_000  # presses within that; about 3 MB
ANSWERS = ("https://hooks.slack.com/", "https://hooks.slack-gov.com/")  # where Slack takes what is said to a press
_ANSWER_S = 5
_ACTIONS = {
    "approve": Decision.APPROVED,
    "reject": Decision.REJECTED,
    # Of a call in doubt.
    "ran": Decision.REUSED,
    "resend": Decision.APPROVED,
    "abort": Decision.REJECTED,
}
_PING, _PRESS = 1, 3  # kinds of what Discord sends
_PONG, _SAY, _CHANGE = 1, 4, 7  # and of what it is told
_PRIVATELY = 64


class Once:
    """What was signed, for as long as its signature is good: it is heard once. After a restart nothing is known of it
    any more; a decision is made once all the same, as the journal has it."""

    def __init__(self, most: int = _MOST_SEEN) -> None:
        self._most = most
        self._seen: dict[bytes, float] = {}  # by when it may be forgotten, oldest first

    def check(self, at: str, body: bytes) -> None:
        """Note what was signed, which is the time ``at`` and the body. Raises ``Unauthorized`` for what was noted."""
        now = clock.monotonic()
        while self._seen and (len(self._seen) >= self._most or next(iter(self._seen.values())) <= now):
            del self._seen[next(iter(self._seen))]
        key = sha256(at.strip().encode() + b"\0" + body).digest()
        if key in self._seen:
            raise Unauthorized("this very press was heard already; press the button again")
        self._seen[key] = now + 2 * WINDOW_S  # what a fast clock signed is good for as much longer


class Hooks:
    """The routes under ``/hooks``; those without a key in the settings answer 404."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._approvals = Approvals(parts)
        self._heard = {"slack": Once(), "discord": Once()}
        secret = parts.settings.approvals.slack_signing_secret
        self._slack_secret = secret.get_secret_value().strip() if secret is not None else ""
        self._discord_key = bytes.fromhex(parts.settings.approvals.discord_public_key)
        self.routes = [
            Route("/hooks/slack", self._slack, methods=["POST"]),
            Route("/hooks/discord", self._discord, methods=["POST"]),
        ]

    # --- Slack ---

    async def _slack(self, request: Request) -> Response:
        try:
            if not self._slack_secret:
                raise NotFound("no Slack buttons are set up; see approvals.slack_signing_secret")
            body = await raw_body(request)
            if not slack_signed(self._slack_secret, body, request.headers):
                raise Unauthorized("the signature is not Slack's, or too old")
            self._heard["slack"].check(request.headers.get("x-slack-request-timestamp", ""), body)
            payload = _object(parse_qs(body.decode(), keep_blank_values=True).get("payload", [""])[0])
        except AgentStateError as error:
            return error_answer(error)
        presses = payload.get("actions") if payload.get("type") == "block_actions" else None
        presses = [one for one in presses if isinstance(one, dict)] if isinstance(presses, list) else []
        press = next((one for one in presses if one.get("action_id") in _ACTIONS), None)
        if press is None:
            return Response(status_code=200)  # another button of the same app: a link, for one
        user = _object_in(payload, "user").get("id")
        done, said = await self._pressed("slack", user, str(press.get("value")), _ACTIONS[press["action_id"]])
        told = {"replace_original": True} if done else {"replace_original": False, "response_type": "ephemeral"}
        message = {**told, "text": said}
        where = payload.get("response_url")
        if isinstance(where, str) and where.startswith(ANSWERS):
            self._parts.tasks.start("tell Slack", _tell_slack(where, message))
        return json_answer(message)

    # --- Discord ---

    async def _discord(self, request: Request) -> Response:
        try:
            if not self._discord_key:
                raise NotFound("no Discord buttons are set up; see approvals.discord_public_key")
            body = await raw_body(request)
            if not discord_signed(self._discord_key, body, request.headers):
                raise Unauthorized("the signature is not Discord's, or too old")
            self._heard["discord"].check(request.headers.get("x-signature-timestamp", ""), body)
            payload = _object(body.decode("utf-8", "replace"))
        except AgentStateError as error:
            return error_answer(error)
        if payload.get("type") == _PING:
            return json_answer({"type": _PONG})
        name, _, key = str(_object_in(payload, "data").get("custom_id")).partition(":")
        if payload.get("type") != _PRESS or name not in _ACTIONS:
            return error_answer(BadRequest("only the buttons that decide are known here"))
        member = _object_in(payload, "member") or payload
        done, said = await self._pressed("discord", _object_in(member, "user").get("id"), key, _ACTIONS[name])
        if done:
            return json_answer({"type": _CHANGE, "data": {"content": said, "embeds": [], "components": []}})
        return json_answer({"type": _SAY, "data": {"content": said, "flags": _PRIVATELY}})

    # --- both ---

    async def _pressed(
        self, place: Literal["slack", "discord"], user: Any, key: str, decision: Decision
    ) -> tuple[bool, str]:
        """(whether everybody may hear it, what is said)."""
        try:
            row = self._parts.journal.read.approver_by_chat(place, user) if isinstance(user, str) else None
            if row is None:
                raise Forbidden(
                    "You are not an approver here. An admin can add you: agentstate approvers add NAME --role approver "
                    f"--{place} {user}"
                )
            found = await self._approvals.decide(key, decision.value, Person(row.name, row.role))
        except AgentStateError as error:
            return False, error.message
        what = f"{found.tool or 'The request'} in session {found.session}, step {found.number}"
        if found.state is ApprovalState.PENDING:
            return False, f"Counted. {what} waits for others: {found.quorum} people must say the same."
        return True, f"{what}: {found.state.value} by {found.decided_by}."


def slack_signed(secret: str, body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether Slack signed these very bytes within the last five minutes."""
    from slack_sdk.signature import Clock, SignatureVerifier

    class Ours(Clock):
        def now(self) -> float:
            return clock.now()

    try:
        return bool(SignatureVerifier(secret, Ours()).is_valid_request(body, dict(headers)))
    except (ValueError, TypeError):
        return False  # a time that is no number, a body or signature that is no text


def discord_signed(key: bytes, body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether the owner of the key signed these very bytes within the last five minutes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    at = headers.get("x-signature-timestamp", "")
    try:
        if not at.isascii() or abs(clock.now() - int(at)) > WINDOW_S:
            return False
        signature = bytes.fromhex(headers.get("x-signature-ed25519", ""))
        Ed25519PublicKey.from_public_bytes(key).verify(signature, at.encode() + body)
    except (InvalidSignature, ValueError):
        return False
    return True


async def _tell_slack(where: str, message: dict[str, Any]) -> None:
    """Best effort: the decision is made, whether or not Slack shows it."""
    from slack_sdk.webhook import WebhookClient

    try:
        answer = await asyncio.to_thread(WebhookClient(where, timeout=_ANSWER_S).send_dict, message)
    except (OSError, ValueError, HTTPException) as error:
        log.warning("Slack could not be told of a decision: %s", type(error).__name__)
        return
    if answer.status_code != 200:
        log.warning("Slack could not be told of a decision: HTTP %d", answer.status_code)


def _object(text: str) -> dict[str, Any]:
    """Raises ``BadRequest``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest("the body holds no JSON object")
    return value


def _object_in(value: dict[str, Any], name: str) -> dict[str, Any]:
    inside = value.get(name)
    return inside if isinstance(inside, dict) else {}
