"""Owns time, ids and chance: nothing else in the package reads the clock or rolls dice.

Invariant: tests may replace any of these functions and thereby control all of it.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path


def now() -> float:
    """Wall-clock time, seconds since the epoch."""
    return time.time()


def monotonic() -> float:
    """Seconds on a clock that never goes back; for durations only."""
    return time.monotonic()


def boot_id() -> str:
    """Names this run of the machine; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def run_id() -> str:
    """A new random run id, 96 bits of chance."""
    return "run_" + secrets.token_hex(12)


def call_id() -> str:
    """A new random id for a tool call that was proposed without one."""
    return "call_" + secrets.token_hex(12)


def approval_id() -> str:
    """A new random id for an approval, 96 bits of chance."""
    return "apr_" + secrets.token_hex(12)


def alert_id() -> str:
    """A new random id for a message to people."""
    return "msg_" + secrets.token_hex(12)


def span_id() -> int:
    """A new random id for a span: 64 bits, not zero."""
    return secrets.randbits(64) or 1


def token() -> str:
    """A new secret of 256 bits, URL-safe."""
    return secrets.token_urlsafe(32)


def jitter() -> float:
    """Chance for spreading retries and restarts: uniform in [0, 1)."""
    return secrets.randbits(53) / 2**53
