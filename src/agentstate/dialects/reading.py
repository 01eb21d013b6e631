"""Owns reading a request body: strictly, leniently where that is all that works, and without its credentials.

Must not know any dialect. Invariant: what a dialect gets to see, and so whatever is kept or compared, holds no
credential that was found in the body; reading what was kept gives the same call again.
"""

from __future__ import annotations

from collections.abc import Callable

from agentstate.core.model import Call
from agentstate.dialects.base import UNREADABLE, fields_of, lenient
from agentstate.dialects.concealing import Exposed, conceal, suspected

Fields = dict[str, bytes]


def read_body(body: bytes, parsed: Callable[[bytes, Fields], Call], opaque: Callable[[bytes], Call]) -> Call:
    """What ``parsed`` makes of the body's top-level fields; what ``opaque`` does where only a lenient parser takes it.

    Both are given the body as it may be kept, which is the one that was sent unless that holds credentials. Raises
    ``BadRequest`` for what is not a JSON object.
    """
    fields = _fields(body)
    if fields is not None and not suspected(body, fields):
        try:
            return parsed(body, fields)
        except Exposed:
            pass  # a message gives credentials away: the body is read again without them
        except UNREADABLE as strict:
            lenient(body, strict)
    kept, secrets = conceal(body)
    fields = _fields(kept)
    try:
        call = opaque(kept) if fields is None else parsed(kept, fields)
    except UNREADABLE as strict:
        lenient(kept, strict)
        call = opaque(kept)
    return call._replace(secrets=secrets) if secrets else call


def _fields(body: bytes) -> Fields | None:
    fields = fields_of(body)
    return None if fields is None else {name: bytes(raw) for name, raw in fields.items()}
