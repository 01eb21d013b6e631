"""Owns the taking-off of content-encodings from a provider's body. Must not read from the network by itself.

Invariant: one stateful decoder for the whole body, fed in the pieces in which it came; what ends early is no body.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

import zstandard

from agentstate.errors import UpstreamCut, UpstreamInvalid
from agentstate.providers.client import Headers

_SLICE = 256 * 1024  # most decoded bytes handed on at once, so that a compression bomb meets the size limit early
_ZSTD_SLICE = 256  # bytes of zstd fed at once: a block of 4 bytes can stand for 128 KiB, so at most 8 MiB come out
_WINDOW = 128 * 1024 * 1024


def decoded(headers: Headers, chunks: AsyncIterator[bytes]) -> tuple[Headers, AsyncIterator[bytes]]:
    """The body without its content-encoding, and headers that say so. Reading it raises ``UpstreamInvalid`` for what is
    damaged or of an unknown encoding, ``UpstreamCut`` for what ends early."""
    encoding = ",".join(value for name, value in headers if name.lower() == "content-encoding").strip().lower()
    if encoding in ("", "identity"):
        return headers, chunks
    kept = [(name, value) for name, value in headers if name.lower() not in ("content-encoding", "content-length")]
    return kept, _decode(encoding, chunks)


async def _decode(encoding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """One stateful decoder for the whole body."""
    if encoding == "zstd":
        unzstd = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
        try:
            async for chunk in chunks:
                for at in range(0, len(chunk), _ZSTD_SLICE):
                    if data := unzstd.decompress(chunk[at : at + _ZSTD_SLICE]):
                        yield data
        except zstandard.ZstdError as error:
            raise UpstreamInvalid(f"the provider's zstd body is damaged: {error}") from error
        if not unzstd.eof:
            raise UpstreamCut("the provider's zstd body ended early")
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise UpstreamInvalid(f"the provider used content-encoding {encoding!r} though identity was asked for")
    inflate = zlib.decompressobj(47 if encoding != "deflate" else 15)
    try:
        async for chunk in chunks:
            data = inflate.decompress(chunk, _SLICE)
            while data or inflate.unused_data:
                if data:
                    yield data
                if inflate.eof and inflate.unused_data:  # gzip may have several members
                    rest, inflate = inflate.unused_data, zlib.decompressobj(47 if encoding != "deflate" else 15)
                    data = inflate.decompress(rest, _SLICE)
                else:
                    data = inflate.decompress(inflate.unconsumed_tail, _SLICE)
    except zlib.error as error:
        raise UpstreamInvalid(f"the provider's {encoding} body is damaged: {error}") from error
    if not inflate.eof:
        raise UpstreamCut(f"the provider's {encoding} body ended early")
