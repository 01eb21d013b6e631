"""Owns how a message looks to a program: JSON, signed by the Standard Webhooks scheme. Must not send.

Invariant: the id is that of the message, whichever try this is, so that a receiver can tell what it has had; with a
secret the signature covers id, time and body.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

from agentstate.alerts.message import Message
from agentstate.alerts.target import Post, Target


def post(message: Message, target: Target, at: float) -> Post:
    """The message as ``{"type", "timestamp", "data"}``. ``at``: when it is sent, seconds since the epoch, which the
    signature holds; ``timestamp`` says when it happened."""
    happened = datetime.fromtimestamp(message.at, tz=UTC).isoformat().replace("+00:00", "Z")
    told = {"title": message.title, "text": message.text, "link": message.link or None}
    body = json.dumps({"type": message.event, "timestamp": happened, "data": told | dict(message.data)})
    headers = [
        ("content-type", "application/json"),
        ("webhook-id", message.id),
        ("webhook-timestamp", str(math.floor(at))),
    ]
    if target.secret:
        from standardwebhooks import Webhook  # loaded only where a target signs

        signature = Webhook(target.secret).sign(message.id, datetime.fromtimestamp(math.floor(at), tz=UTC), body)
        headers.append(("webhook-signature", signature))
    return Post(target.url, tuple(headers), body.encode())
