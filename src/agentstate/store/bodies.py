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
from agentstate.store.sqlite import named

_SQL = named("write.sql")
_PLAIN, _ZSTD = 0, 1
_LEVEL = 3
_ROOT = sha256(b"agentstate/transcript/1\0").digest()

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


def put_blob(conn: sqlite3.Connection, data: bytes, likely_known: bool = False, key: bytes | None = None) -> int:
    """Store content once; its id. ``key``: its sha256, where known."""
    key = key or sha256(data).digest()
    if likely_known and (row := conn.execute(_SQL["find_blob"], (key,)).fetchone()):
        return int(row[0])
    codec, stored = packed(data)
    cursor = conn.execute(_SQL["add_blob"], (key, codec, len(data), stored))
    if cursor.rowcount == 1 and cursor.lastrowid is not None:
        return cursor.lastrowid
    return int(conn.execute(_SQL["find_blob"], (key,)).fetchone()[0])


def put_transcript(conn: sqlite3.Connection, call: Call) -> int | None:
    """Store the messages of a call that are not stored yet; the id of its last one's node."""
    if not call.items or not call.before:
        return None
    hashes = []
    link = _ROOT
    for item in call.items:
        link = sha256(link + item.key).digest()
        hashes.append(link)
    known, node = _deepest(conn, hashes)
    for place in range(known, len(hashes)):
        item = call.items[place]
        blob = put_blob(conn, item.raw, key=item.key)
        node = conn.execute(_SQL["add_node"], (hashes[place], node, blob)).lastrowid
    return node


def _deepest(conn: sqlite3.Connection, hashes: Sequence[bytes]) -> tuple[int, int | None]:
    """How many of the leading messages are stored, and the node of the last of them.

    A conversation that goes on is found after a few steps back; a strange one is halved, not walked.
    """
    find = _SQL["find_node"]
    count = len(hashes)
    for back in range(min(4, count)):
        if row := conn.execute(find, (hashes[count - 1 - back],)).fetchone():
            return count - back, row[0]
    low, high, node = 0, count - min(4, count), None
    while low < high:
        middle = (low + high + 1) // 2
        row = conn.execute(find, (hashes[middle - 1],)).fetchone()
        if row:
            low, node = middle, row[0]
        else:
            high = middle - 1
    return low, node


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
