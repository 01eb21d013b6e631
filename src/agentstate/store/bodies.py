"""Owns how bytes are stored: content by its hash, transcripts as chains, compressed. Must not know what they mean.

Invariant: the same content is stored once; ``join`` of ``frame`` and messages gives back the request's exact bytes.
Growth of a conversation is linear: each step adds its new messages and two small rows for each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from hashlib import sha256

import zstandard

from agentstate.core.model import Call
from agentstate.core.prefixes import Prefixes
from agentstate.store.counters import Counters
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_PLAIN, _ZSTD = 0, 1
_LEVEL = 1  # as small as the usual 3 for bodies of a few KB, in two thirds of the time
_ROOT = sha256(b"agentstate/transcript/1\0").digest()
_links = Prefixes()

_compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
_decompressor = zstandard.ZstdDecompressor()


def packed(data: bytes) -> tuple[int, bytes]:
    """(codec, stored bytes): compressed where that is smaller. For the writer thread only."""
    if len(data) > 64:
        small = _compressor.compress(data)
        if len(small) < len(data):
            return _ZSTD, small
    return _PLAIN, data


def unpacked(codec: int, size: int, data: bytes, decompressor: zstandard.ZstdDecompressor = _decompressor) -> bytes:
    """The content. Raises ``ValueError`` when it is not what was stored."""
    if codec == _PLAIN:
        return data
    try:
        content = decompressor.decompress(data, max_output_size=size)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    if len(content) != size:
        raise ValueError(f"content has {len(content)} bytes instead of {size}")
    return content


def put_frame(conn: sqlite3.Connection, counters: Counters, call: Call) -> int:
    """Store the body around the messages, once; the id of its content."""
    return put_body(conn, counters, frame_of(call))


def put_body(conn: sqlite3.Connection, counters: Counters, data: bytes) -> int:
    """Store a content, once; its id."""
    key = sha256(data).digest()
    known = counters.bodies.get(key)
    if known is None:
        row = conn.execute(_SQL["find_blob"], (key,)).fetchone()
        if row is None:
            codec, stored = packed(data)
            known = conn.execute(_SQL["add_blob"], (key, codec, len(data), stored)).lastrowid or 0
        else:
            known = int(row[0])
        counters.keep(counters.bodies, key, known)
    return known


def put_transcript(conn: sqlite3.Connection, counters: Counters, call: Call) -> int | None:
    """Store the messages of a call that are not stored yet; the id of its last one's node."""
    if not call.items or not call.before:
        return None
    hashes = list(_links.known(call.items))
    link = hashes[-1] if hashes else _ROOT
    for item in call.items[len(hashes) :]:
        link = sha256(link + item.key).digest()
        hashes.append(link)
    _links.keep(call.items, hashes)
    known, node = _deepest(conn, counters, hashes)
    for place in range(known, len(hashes)):
        item = call.items[place]
        codec, stored = packed(item.raw)
        made = counters.node(conn)
        conn.execute(_SQL["put_message"], (made, hashes[place], node, item.key, codec, len(item.raw), stored))
        counters.keep(counters.nodes, hashes[place], made)
        node = made
    return node


def _deepest(conn: sqlite3.Connection, counters: Counters, hashes: Sequence[bytes]) -> tuple[int, int | None]:
    """How many of the leading messages are stored, and the node of the last of them.

    A conversation that goes on is found in memory, a few steps back; a strange one is halved, not walked.
    """
    count = len(hashes)
    for back in range(min(4, count)):
        if (node := counters.nodes.get(hashes[count - 1 - back])) is not None:
            return count - back, node
    low, high, found = 0, count, None
    while low < high:
        middle = (low + high + 1) // 2
        row = conn.execute(_SQL["find_node"], (hashes[middle - 1],)).fetchone()
        if row:
            low, found = middle, int(row[0])
        else:
            high = middle - 1
    return low, found


def frame_of(call: Call) -> bytes:
    """The body around its messages: three parts, the first two with their length before them."""
    if not call.items or not call.before:
        parts = (call.body, b"")
        rest = b""
    else:
        parts, rest = (call.before, call.separator), call.after
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts) + rest


def join(frame: bytes, messages: Sequence[bytes]) -> bytes:
    """The exact body of a request."""
    size = int.from_bytes(frame[:4], "big")
    before = frame[4 : 4 + size]
    at = 4 + size
    size = int.from_bytes(frame[at : at + 4], "big")
    separator = frame[at + 4 : at + 4 + size]
    return before + separator.join(messages) + frame[at + 4 + size :]
