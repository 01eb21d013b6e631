"""Owns how lines of the log look, and what may not stand in one. Must not decide what is logged.

Invariant: one event is one line (a traceback follows its own), whatever a name in it holds; nothing that is known or
looks to be a credential is written, wherever it came from.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any

from agentstate.settings import Settings, secret_values

_SHORTEST = 8  # characters of a secret that is looked for
_HIDDEN = "[hidden]"
# Credentials that are not ours to know: by their vendors' prefixes, and by what stands before them.
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|AIza|ghp|gho|github_pat|xox[abp]|whsec)[-_][\w-]{6,}|\bAIza[\w-]{20,}"
    r"|(?i:(?<=\bbearer )|(?<=\bbasic )|(?<=\bkey=)|(?<=\btoken=)|(?<=\bsecret=)|(?<=api_key=)|(?<=api-key: ))"
    r"[^\s&'\"]+"
)
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[\w.:/@+-]+")


def set_up(settings: Settings) -> None:
    """Everything that is logged in this process goes to stderr, as the settings say. For the start."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((Json if settings.log.format == "json" else Text)(secrets_of(settings)))
    root = logging.getLogger()
    root.handlers = [handler]
    # Libraries say at lower levels whom they speak to and what they send.
    root.setLevel(logging.WARNING)
    logging.getLogger("agentstate").setLevel(settings.log.level.upper())
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def secrets_of(settings: Settings) -> list[str]:
    """Everything that the settings keep secret, with the keys that they name."""
    found = secret_values(settings)
    names = [provider.key_env for provider in settings.providers.values()]
    names += [pair.partition("=")[2] for server in settings.mcp.values() for pair in server.headers_env]
    values = [os.environ.get(name, "") for name in names if name]
    found += [part for value in values for part in (value, value.partition(" ")[2])]
    return sorted({text for text in found if len(text) >= _SHORTEST}, key=len, reverse=True)


class _Lines(logging.Formatter):
    """``secrets``: texts that are never written."""

    def __init__(self, secrets: list[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def concealed(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return _LOOKS_SECRET.sub(_HIDDEN, text)

    def message_of(self, record: logging.LogRecord) -> str:
        return _UNSEEN.sub(_spelled, self.concealed(record.getMessage()))

    def fields_of(self, record: logging.LogRecord) -> dict[str, Any]:
        fields: dict[str, Any] = getattr(record, "fields", {})
        return {
            name: _UNSEEN.sub(_spelled, self.concealed(value)) if isinstance(value, str) else value
            for name, value in fields.items()
        }

    def traceback_of(self, record: logging.LogRecord) -> str:
        return self.concealed(self.formatException(record.exc_info)) if record.exc_info else ""


class Text(_Lines):
    """Lines for people."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        told = [f"{name}={_shown(value)}" for name, value in self.fields_of(record).items()]
        line = " ".join([at, f"{record.levelname.lower():7}", self.message_of(record), *told])
        trace = self.traceback_of(record)
        return f"{line}\n{trace}" if trace else line


class Json(_Lines):
    """One JSON object a line; a traceback is a field of it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created, 3), "level": record.levelname.lower(), "message": self.message_of(record),
            **self.fields_of(record),
        }  # fmt: skip
        if trace := self.traceback_of(record):
            line["exception"] = trace
        return json.dumps(line)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=False)
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _spelled(found: re.Match[str]) -> str:
    return f"[U+{ord(found[0]):04X}]"
