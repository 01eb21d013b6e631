"""Owns how a message looks in Discord: an embed of an incoming webhook, and components below it. Must not send.

Invariant: what an agent or model wrote stands in code marks or is escaped, and mentions nobody; every limit of embeds
is kept, whatever the message; buttons that decide are there only where presses can be proved genuine.
"""

from __future__ import annotations

import ipaddress
import json
import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from agentstate.alerts.message import TEST, Message, clipped
from agentstate.alerts.target import Post, Target

# Limits of an embed, in characters; 6000 in all, which these keep together: 256 + 400 + 2500 + 600 + 10 * 220 + 40.
_TITLE, _TEXT, _CONTENT, _LINK, _VALUE, _FIELDS, _URL = 256, 400, 2500, 600, 200, 10, 512
_ROW, _BUTTON, _GREY, _GREEN, _RED, _TO_LINK = 1, 2, 2, 3, 4, 5
_COLOURS = {TEST: 0x5865F2, "approval.required": 0xFAA61A}
_ALARM = 0xED4245
_MARKUP = re.compile(r"([\\*_~`|>\[\]()#<@\-]|(?<=:)/(?=/))")  # the last: an address would become a link


def post(message: Message, target: Target, at: float) -> Post:
    """The message for an incoming webhook. ``at``, when it is sent, is not needed here."""
    body: dict[str, Any] = {"embeds": [embed(message)], "allowed_mentions": {"parse": []}}
    url = target.url
    components = _components(message, target.buttons)
    if components:
        body["components"] = [{"type": _ROW, "components": components}]
        url += ("&" if urlsplit(url).query else "?") + "with_components=true"
    return Post(url, (("content-type", "application/json"),), json.dumps(body).encode())


def embed(message: Message) -> dict[str, Any]:
    text = clipped(_escaped(message.text), _TEXT)
    if message.content:
        text += f"\n```\n{_coded(clipped(message.content, _CONTENT))}\n```"
    if message.link and len(message.link) <= _LINK - len(message.link_label) - 5:
        text += f"\n[{message.link_label}]({message.link})"
    fields = [
        {"name": label, "value": f"`{_coded(clipped(value, _VALUE))}`", "inline": True}
        for label, value in message.fields[:_FIELDS]
    ]
    return {
        "title": clipped(_escaped(clipped(message.title, _TITLE // 2)), _TITLE),
        "description": text,
        "color": _COLOURS.get(message.event, _ALARM),
        "fields": fields,
        "footer": {"text": f"AgentState · {message.event}"},
        "timestamp": datetime.fromtimestamp(message.at, tz=UTC).isoformat(),
    }


def _components(message: Message, deciding: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for name, label, good in message.buttons if deciding else ():
        style = _GREY if good is None else (_GREEN if good else _RED)
        made.append({"type": _BUTTON, "style": style, "label": label, "custom_id": f"{name}:{message.approval}"})
    if message.link and len(message.link) <= _URL and not _only_here(message.link):
        made.append({"type": _BUTTON, "style": _TO_LINK, "label": message.link_label, "url": message.link})
    return made


def _only_here(link: str) -> bool:
    """Whether it leads nowhere but on the proxy's own machine: no button for it, the text holds it."""
    host = urlsplit(link).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def _coded(text: str) -> str:
    """For code marks, in which nothing but their own end is parsed."""
    return text.replace("`", "ˋ") or " "
