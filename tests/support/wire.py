"""Owns the little HTTP/1.1 that the scripted upstream and the raw client share: heads, framing, chunk decoding.

Must not be clever: nothing is normalised, so that tests see exactly what was on the wire. Invariant: a message whose
framing ended early is reported as incomplete, never as a shorter complete one.
"""

from __future__ import annotations

from dataclasses import dataclass, field


class Headers(list[tuple[str, str]]):
    """Header fields in wire order, case kept; look-ups ignore case."""

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a field, or ``default``."""
        return next((value for key, value in self if key.lower() == name.lower()), default)

    def all(self, name: str) -> list[str]:
        """All values of a field, in wire order."""
        return [value for key, value in self if key.lower() == name.lower()]

    def names(self) -> list[str]:
        """All field names in lower case, in wire order."""
        return [key.lower() for key, _ in self]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.names()


def parse_head(raw: bytes) -> tuple[str, Headers]:
    """A raw head (up to and including the blank line) as (first line, fields)."""
    first, *rest = raw.decode("latin-1").split("\r\n")
    fields = Headers()
    for line in rest:
        if line:
            name, _, value = line.partition(":")
            fields.append((name, value.strip()))
    return first, fields


@dataclass
class Framing:
    """Decodes one message body fed in pieces. ``done`` is set at its proper end, ``rest`` holds what follows it."""

    length: int | None = None  # None with chunked=False: the body lasts until the connection closes
    chunked: bool = False
    body: bytearray = field(default_factory=bytearray)
    raw: bytearray = field(default_factory=bytearray)
    done: bool = False
    rest: bytes = b""
    _pending: bytearray = field(default_factory=bytearray)
    _left: int = 0
    _state: str = "size"

    @classmethod
    def of(cls, headers: Headers, *, request: bool) -> Framing:
        """The framing that a head announces; a request without any has no body."""
        if "chunked" in (headers.get("transfer-encoding") or "").lower():
            return cls(chunked=True)
        length = headers.get("content-length")
        if length is not None:
            return cls(length=int(length), done=int(length) == 0)
        return cls(length=0, done=True) if request else cls()

    def feed(self, data: bytes) -> None:
        """Take bytes off the wire."""
        if self.done:
            self.rest += data
        elif self.chunked:
            self.raw += data
            self._pending += data
            while self._step():
                pass
            if self.done:
                self.rest = bytes(self._pending)
                del self.raw[len(self.raw) - len(self.rest) :]
        else:
            take = data if self.length is None else data[: self.length - len(self.body)]
            self.body += take
            self.raw += take
            self.rest = data[len(take) :]
            self.done = self.length is not None and len(self.body) == self.length

    def end(self) -> None:
        """The peer closed: the proper end only for a body that lasts until then."""
        if not self.chunked and self.length is None:
            self.done = True

    def _step(self) -> bool:
        if self._state == "data":
            take = bytes(self._pending[: self._left])
            self.body += take
            del self._pending[: len(take)]
            self._left -= len(take)
            if self._left == 0:
                self._state = "data-end"
            return bool(take) or self._state == "data-end"
        line, found, rest = bytes(self._pending).partition(b"\r\n")
        if not found:
            return False
        self._pending = bytearray(rest)
        if self._state == "size":
            self._left = int(line.split(b";")[0], 16)
            self._state = "data" if self._left else "trailer"
        elif self._state == "data-end":
            if line:
                raise ValueError(f"chunk is longer than it said: {line[:40]!r}")
            self._state = "size"
        elif not line:
            self.done = True
            return False
        return True
