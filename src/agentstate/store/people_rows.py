"""Owns the rows of people and of what they did: approvers, and the audit log. Data only.

Invariant: a row never holds a token, only its hash.
"""

from __future__ import annotations

from typing import NamedTuple

from agentstate.core.approval import Role


class ApproverRow(NamedTuple):
    """Somebody who may use the control plane. ``token``: the sha256 of theirs; ``slack``, ``discord``: their user id
    there, empty: none."""

    name: str
    role: Role
    token: bytes
    slack: str
    discord: str
    created_at: float
    disabled_at: float | None


class AuditRow(NamedTuple):
    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: str
    previous: bytes
    hash: bytes
