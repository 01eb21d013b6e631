"""Owns the targets of alerts as the settings give them, checked. Must not send.

Invariant: a target's address is a secret: no text that is made here holds more of it than scheme and host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from agentstate.errors import SettingsError
from agentstate.settings import AlertSettings, ApprovalSettings

LONGEST_NAME = 64
_LONGEST_SAID = 200
_TELLING = 4  # a part of an address that is shorter tells nothing


class Post(NamedTuple):
    """A message as it is sent: a POST of ``body`` with these headers. ``url`` is a secret."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Where messages go. ``buttons``: decisions can be made there, as the settings hold what proves them genuine."""

    name: str
    kind: str
    url: str = field(repr=False)
    on: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)
    show_content: bool = False
    buttons: bool = False

    @property
    def shown(self) -> str:
        """The address as people may see it: scheme and host."""
        url = urlsplit(self.url)
        host = url.hostname or ""
        return f"{url.scheme}://{f'[{host}]' if ':' in host else host}"


def targets(alerts: Sequence[AlertSettings], approvals: ApprovalSettings) -> dict[str, Target]:
    """The targets by name, in the settings' order. Raises ``SettingsError``, which never shows an address."""
    found: dict[str, Target] = {}
    for number, given in enumerate(alerts, 1):
        target = _target(number, given, approvals)
        if target.name in found:
            raise SettingsError(
                f"[[alerts]] {number}: another target is called {target.name!r}; give it a name of its own"
            )
        found[target.name] = target
    return found


def _target(number: int, given: AlertSettings, approvals: ApprovalSettings) -> Target:
    where = f"[[alerts]] {number}"
    name = given.name or f"{given.kind}-{number}"
    if len(name) > LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise SettingsError(f"{where}: name must be 1 to {LONGEST_NAME} printable characters")
    buttons = {
        "slack": approvals.slack_signing_secret is not None,
        "discord": bool(approvals.discord_public_key),
    }.get(given.kind, False)
    secret = given.secret.get_secret_value() if given.secret is not None else ""
    if secret and given.kind != "webhook":
        raise SettingsError(f"{where}: secret is for a target of the kind webhook; {given.kind} does not sign")
    _check_secret(where, secret)
    url = given.url.get_secret_value().strip()
    _check_url(where, url)
    return Target(name, given.kind, url, tuple(given.on), secret, given.show_content, buttons)


def _check_url(where: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        sound = False
    if not sound or not url.isascii() or not url.isprintable() or " " in url:
        raise SettingsError(f"{where}: url must look like https://host/path, percent-encoded where it is not ASCII")


def _check_secret(where: str, secret: str) -> None:
    if not secret:
        return
    from standardwebhooks import Webhook  # only where one is set
    from standardwebhooks.webhooks import EmptyWebhookSecretError

    try:
        Webhook(secret)
    except (ValueError, EmptyWebhookSecretError):
        raise SettingsError(f"{where}: secret must be whsec_ and the key in base64, as the receiver has it") from None


def said_by(target: Target, body: bytes) -> str:
    """What an answer's body says, for people: one short printable line, or nothing. An answer that repeats a part of
    the target's address (some quote the path that was asked for) is not shown at all."""
    text = " ".join(body.decode("utf-8", "replace").split())
    if not text or len(text) > _LONGEST_SAID or not text.isascii() or not text.isprintable() or "<" in text:
        return ""
    url = urlsplit(target.url)
    parts = [*url.path.split("/"), *url.query.replace("&", "=").split("="), url.username or "", url.password or ""]
    spelled = {spelling for part in parts for spelling in (part, unquote(part)) if len(spelling) >= _TELLING}
    low = text.lower()
    return "" if any(part.lower() in low for part in spelled) else text
