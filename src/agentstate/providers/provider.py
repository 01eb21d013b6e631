"""Owns what a provider is and which one a path is for. Must not speak to it.

Invariant: an upstream address comes from the settings alone, never from a request.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentstate.errors import NotFound, SettingsError
from agentstate.settings import ProviderSettings

_KEY_HEADERS = {("anthropic",): "x-api-key", ("gemini",): "x-goog-api-key"}  # others take a bearer token
_OWN_BASES = ("/openai/", "/api/v1/")  # Azure; OpenRouter and its like


@dataclass(frozen=True, slots=True)
class Provider:
    """``root`` + ``version`` is the API's base: "https://api.openai.com" + "/v1"."""

    name: str
    root: str
    version: str
    dialects: tuple[str, ...]
    key_env: str = ""
    usage_in_streams: bool = True

    def url(self, path: str, query: str) -> str:
        """Where a path of the agent goes: its ``/v1`` (absent, once or doubled) becomes this provider's base. A version
        other than that stays, as does a base that is known of a compatible provider, and the ``/v1`` of Gemini's, whose
        own default is ``/v1beta``."""
        rest = path
        while rest == "/v1" or rest.startswith("/v1/"):
            rest = rest[3:]
        version = self.version
        if (
            _has_version(rest)
            or rest.startswith(_OWN_BASES)
            or ("ollama" in self.dialects and rest.startswith("/api/"))
        ):
            version = ""
        elif self.dialects == ("gemini",) and version == "/v1":
            version = "/v1" if rest != path else "/v1beta"
        return self.root + version + rest + (f"?{query}" if query else "")

    def credentials(self, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
        """Headers with our own key; empty: the agent's pass through. ``SettingsError``: the key is missing."""
        if not self.key_env:
            return []
        key = (os.environ if environ is None else environ).get(self.key_env, "")
        if not key:
            raise SettingsError(f"providers.{self.name}.key_env names {self.key_env}, which is not set")
        return self.carrying(key)

    def carrying(self, key: str) -> list[tuple[str, str]]:
        """Headers with this key."""
        if self.dialects in _KEY_HEADERS:
            return [(_KEY_HEADERS[self.dialects], key)]
        return [("authorization", f"Bearer {key}")]


def _has_version(path: str) -> bool:
    """Whether a path brings a version of its own, as ``/v1beta/models/…`` does."""
    first = path.lstrip("/").partition("/")[0]
    return first.startswith("v") and first[1:2].isdigit()


def from_settings(name: str, settings: ProviderSettings) -> Provider:
    """Raises ``SettingsError`` for a URL that is none."""
    url = urlsplit(settings.url.rstrip("/"))
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise SettingsError(f"providers.{name}.url must look like https://host/v1, less what follows ? or #")
    base = f"{url.scheme}://{url.netloc}"
    path = url.path
    dialects = tuple(settings.dialects)
    root, version = base, path  # a base of its own shape, such as /v1beta/openai, stands for /v1
    if path in ("", "/v1"):
        version = "/v1"
    elif path.endswith("/v1"):
        root, version = base + path[:-3], "/v1"
    elif dialects in _KEY_HEADERS:
        # The clients of these take a base without a version, and so do those who offer the same elsewhere.
        root, version = base + path, "/v1"
    return Provider(name, root, version, dialects, settings.key_env, settings.usage_in_streams)


class Registry:
    """The configured providers, in order."""

    def __init__(self, settings: Mapping[str, ProviderSettings]) -> None:
        self._providers = [from_settings(name, part) for name, part in settings.items()]

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._providers)

    def named(self, name: str) -> Provider | None:
        """The provider of that name, if there is one."""
        return next((provider for provider in self._providers if provider.name == name), None)

    @property
    def kinds(self) -> dict[str, tuple[str, ...]]:
        """What each provider speaks, by name, in order."""
        return {provider.name: provider.dialects for provider in self._providers}

    def for_dialect(self, dialect: str) -> Provider:
        """The first provider that speaks it. Raises ``NotFound``."""
        for provider in self._providers:
            if dialect in provider.dialects:
                return provider
        raise NotFound(
            f"no provider in the settings speaks {dialect}; add [providers.NAME] with dialects = [{dialect!r}]"
        )
