"""Owns what the pages under Settings show: policies, targets of alerts, people, the audit log, what runs here.

Must not change anything. Invariant: no token, no key and no address of a target beyond scheme and host is in any
context; a policy's number is its place in the settings, as the journal's approvals name it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from agentstate.core import toml
from agentstate.core.model import Action
from agentstate.core.visible import visible
from agentstate.engine.about import Library, counted, libraries, sizes, versions
from agentstate.engine.core import Parts
from agentstate.engine.rehearsal import Rehearsal, Seen
from agentstate.settings import PolicySettings
from agentstate.store import audit
from agentstate.store.people_rows import AuditRow
from agentstate.store.reader import Reader

_MOST_ARGUMENTS = 300  # characters of a call's arguments in a list
_MESSAGES = 20
_MOST_FAULTS = 50


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    number: int
    tools: tuple[str, ...]
    action: str
    when: str
    sessions: tuple[str, ...]
    labels: tuple[str, ...]
    on_reject: str
    expires_s: float | None
    approvers: tuple[str, ...]
    quorum: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What the last calls would meet. ``held``, ``denied``, ``allowed``: under the policies that were tried; ``was_…``:
    under those in force; ``calls``: those that would be held or denied, newest first; ``rules``: (number, what it
    does, calls), 0: no policy names them."""

    looked: int
    unread: int
    whole: bool
    held: int
    denied: int
    allowed: int
    was_held: int
    was_denied: int
    was_allowed: int
    rules: tuple[RuleCount, ...]
    calls: tuple[CallMet, ...]


@dataclass(frozen=True, slots=True)
class RuleCount:
    number: int
    action: str
    calls: int


@dataclass(frozen=True, slots=True)
class CallMet:
    session: str
    step: int
    tool: str
    arguments: str
    action: str
    why: str


@dataclass(frozen=True, slots=True)
class PoliciesPage:
    """``text``: the policies as TOML, to change and try; ``last``: how many calls are looked at."""

    policies: tuple[PolicyFigures, ...]
    text: str
    last: int
    tried: Tried | None


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """``buttons``: decisions can be made there; ``signed``: a key of ours signs what it is sent."""

    name: str
    kind: str
    address: str
    on: tuple[str, ...]
    shows_content: bool
    buttons: bool
    signed: bool


@dataclass(frozen=True, slots=True)
class MessageFigures:
    id: int
    state: str
    target: str
    event: str
    session: str
    created_at: float
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class TrialFigures:
    """How a target took a test message. ``error``: empty where it took it."""

    name: str
    status: int
    error: str


@dataclass(frozen=True, slots=True)
class NotifiersPage:
    targets: tuple[TargetFigures, ...]
    messages: tuple[MessageFigures, ...]
    trials: tuple[TrialFigures, ...]


@dataclass(frozen=True, slots=True)
class PersonFigures:
    name: str
    role: str
    slack: str
    discord: str
    created_at: float
    disabled_at: float | None


@dataclass(frozen=True, slots=True)
class PeoplePage:
    """``token``: of ``made``, shown this once; empty: none was made."""

    people: tuple[PersonFigures, ...]
    made: str = ""
    token: str = ""


@dataclass(frozen=True, slots=True)
class PersonDialog:
    """``verb``: ``rotate`` or ``disable``; ``shell_name``: the name as a command line takes it."""

    name: str
    role: str
    verb: str
    shell_name: str


@dataclass(frozen=True, slots=True)
class EntryFigures:
    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: str
    seal: str


@dataclass(frozen=True, slots=True)
class AuditPage:
    """``entries``: newest first; ``older``: entries below this number are on the next page, 0: there are none;
    ``checked``: the whole log was checked, and ``faults`` is what is wrong with it; ``last``, ``seal``: of its end."""

    entries: tuple[EntryFigures, ...]
    older: int
    before: int
    last: int
    seal: str
    checked: bool
    faults: tuple[str, ...]
    more_faults: bool


@dataclass(frozen=True, slots=True)
class AboutPage:
    """``journal``: its file's name; ``sizes``: bytes of its files; ``rows``: of its main tables."""

    agentstate: str
    python: str
    sqlite: str
    system: str
    journal: str
    sizes: dict[str, int]
    rows: dict[str, int]
    libraries: tuple[LibraryFigures, ...]


@dataclass(frozen=True, slots=True)
class LibraryFigures:
    name: str
    version: str
    licence: str


# --- policies ---


def policies_page(
    given: Sequence[PolicySettings], last: int, text: str = "", tried: Tried | None = None
) -> PoliciesPage:
    """``text``: what somebody typed, else the policies in force."""
    rules = tuple(
        PolicyFigures(
            number, tuple(one.tools), one.action, one.when, tuple(one.sessions), tuple(one.labels), one.on_reject,
            one.expires_s, tuple(one.approvers), one.quorum,
        )
        for number, one in enumerate(given, 1)
    )  # fmt: skip
    return PoliciesPage(rules, text or policies_toml(given), last, tried)


def policies_toml(given: Sequence[PolicySettings]) -> str:
    """Policies as a settings file has them; what is as it is anyway is left out."""
    default = PolicySettings(tools=["x"])  # type: ignore[call-arg]
    tables = []
    for one in given:
        values = {
            name: value
            for name, value in one.model_dump().items()
            if name in ("tools", "action") or value != getattr(default, name)
        }
        tables.append(toml.table("policies", values, many=True))
    return "\n".join(tables)


def tried_of(new: Rehearsal, old: Rehearsal) -> Tried:
    """``new``: under the policies that are tried; ``old``: under those in force, of the same calls."""
    rules = tuple(
        RuleCount(number, action.value, calls) for (number, action), calls in sorted(new.by_rule.items()) if number
    )
    return Tried(
        new.looked, new.unread, new.whole,
        new.counts.get(Action.HOLD, 0), new.counts.get(Action.DENY, 0), new.counts.get(Action.ALLOW, 0),
        old.counts.get(Action.HOLD, 0), old.counts.get(Action.DENY, 0), old.counts.get(Action.ALLOW, 0),
        rules, tuple(call_met(one) for one in new.kept),
    )  # fmt: skip


def call_met(seen: Seen) -> CallMet:
    met = seen.met
    assert met.call is not None and met.ruling is not None
    text = met.call.arguments
    shown = text if len(text) <= _MOST_ARGUMENTS else f"{text[:_MOST_ARGUMENTS]}…"
    return CallMet(seen.session, met.number, met.call.name, visible(shown), met.ruling.action.value, met.ruling.why)


# --- notifiers ---


def notifiers_page(parts: Parts, reader: Reader, trials: tuple[TrialFigures, ...] = ()) -> NotifiersPage:
    found = tuple(
        TargetFigures(
            one.name, one.kind, one.shown, one.on, one.show_content, one.buttons, bool(one.secret)
        )
        for one in parts.delivery.targets.values()
    )  # fmt: skip
    messages = tuple(
        MessageFigures(row.id, row.state, row.target, row.event, row.session, row.created_at, row.attempts, row.error)
        for row in reader.messages("", _MESSAGES)
    )
    return NotifiersPage(found, messages, trials)


# --- people ---


def people_page(reader: Reader, made: str = "", token: str = "") -> PeoplePage:
    people = tuple(
        PersonFigures(row.name, row.role.value, row.slack, row.discord, row.created_at, row.disabled_at)
        for row in reader.approvers()
    )
    return PeoplePage(tuple(sorted(people, key=lambda one: (one.disabled_at is not None, one.name))), made, token)


# --- the audit log ---


def audit_page(reader: Reader, before: int, check: bool, limit: int = 50) -> AuditPage:
    """``before``: only entries below this number, 0: the newest. In a thread: a check reads all of the log."""
    last = reader.raw("select coalesce(max(id), 0) from audit").fetchone()[0]
    end = before or last + 1
    rows = [row for row in reader.audit(max(0, end - 1 - limit), limit) if row.id < end]
    tail = reader.audit(last - 1, 1) if last else []
    faults: list[str] = []
    if check:
        for fault in audit.faults(reader):
            faults.append(f"{fault.where}: {fault.what}")
            if len(faults) > _MOST_FAULTS:
                break
    older = rows[0].id if rows and rows[0].id > 1 else 0
    return AuditPage(
        tuple(_entry(row) for row in reversed(rows)), older, before, last, tail[0].hash.hex() if tail else "", check,
        tuple(faults[:_MOST_FAULTS]), len(faults) > _MOST_FAULTS,
    )  # fmt: skip


def _entry(row: AuditRow) -> EntryFigures:
    try:
        detail = json.dumps(json.loads(row.detail), ensure_ascii=False) if row.detail not in ("", "{}") else ""
    except ValueError:
        detail = row.detail  # the check of its seal says what is wrong with it
    return EntryFigures(row.id, row.at, row.actor, row.action, row.subject, detail, row.hash.hex())


# --- about ---


def about_page(parts: Parts, reader: Reader) -> AboutPage:
    """In a thread."""
    found = versions()
    made = tuple(_library(one) for one in libraries())
    return AboutPage(
        *found, parts.journal.path.name, sizes(parts.journal.path), counted(reader), made
    )  # fmt: skip


def _library(given: Library) -> LibraryFigures:
    return LibraryFigures(given.name, given.version, given.licence)
