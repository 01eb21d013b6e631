"""Owns how a message looks in Slack: an incoming webhook's blocks. Must not send.

Invariant: what an agent or model wrote stands in ``plain_text``, which Slack does not parse, or is escaped; every limit
of Block Kit is kept, whatever the message; buttons that decide are there only where presses can be proved genuine.
"""

from __future__ import annotations

import json
from typing import Any

from agentstate.alerts.message import Message, clipped
from agentstate.alerts.target import Post, Target

# Limits of Block Kit, in characters, as its reference has them; slack-sdk's block classes check the same.
_HEADER, _SECTION, _FIELD, _FIELDS, _URL = 150, 3000, 2000, 10, 3000
_STYLES = {True: {"style": "primary"}, False: {"style": "danger"}, None: {}}


def post(message: Message, target: Target, at: float) -> Post:
    """The message for an incoming webhook. ``at``, when it is sent, is not needed here."""
    fallback = _escaped(f"{message.title}\n{message.text}")
    body = {"text": clipped(fallback, _SECTION), "blocks": blocks(message, target.buttons)} | _NO_PREVIEWS
    return Post(target.url, (("content-type", "application/json"),), json.dumps(body).encode())


# Slack would open the links itself to show what is behind them.
_NO_PREVIEWS = {"unfurl_links": False, "unfurl_media": False}


def blocks(message: Message, buttons: bool) -> list[dict[str, Any]]:
    """Block Kit. ``buttons``: those that decide too, else a link only."""
    made: list[dict[str, Any]] = [
        {"type": "header", "text": _plain(message.title, _HEADER)},
        {"type": "section", "text": _plain(message.text, _SECTION)},
    ]
    if message.fields:
        fields = [_plain(f"{label}\n{value}", _FIELD) for label, value in message.fields[:_FIELDS]]
        made.append({"type": "section", "fields": fields})
    if message.content:
        made.append({"type": "section", "text": _plain(message.content, _SECTION)})
    elements = _buttons(message, buttons)
    if elements:
        made.append({"type": "actions", "elements": elements})
    made.append({"type": "context", "elements": [_plain(f"AgentState · {message.event} · {message.id}", _FIELD)]})
    return made


def _buttons(message: Message, deciding: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {
            "type": "button", "action_id": button.name, "value": message.approval, **_STYLES[button.good],
            "text": _plain(button.label, _HEADER),
        }
        for button in (message.buttons if deciding else ())
    ]  # fmt: skip
    if message.link and len(message.link) <= _URL:
        text = _plain(message.link_label, _HEADER)
        made.append({"type": "button", "action_id": "open", "url": message.link, "text": text})
    return made


def _plain(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": clipped(text, most), "emoji": False}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
