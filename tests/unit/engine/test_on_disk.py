"""An answer that is committed and not on disk yet is nobody's: neither its own reader's nor a later run's."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from agentstate import settings
from agentstate.dialects import registry
from agentstate.engine.answer import Answering
from agentstate.engine.core import Parts
from agentstate.engine.presence import Connection
from agentstate.engine.request import Answer, Request
from agentstate.errors import StoreError
from agentstate.store import writer

BODY = json.dumps({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}).encode()


class _Disk:
    """An fsync ends when it is let through; ``error``: it fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy = threading.Event()
        self.through = threading.Event()
        self.error: OSError | None = None
        monkeypatch.setattr(writer, "fdatasync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self.busy.set()
        assert self.through.wait(30)
        if self.error is not None:
            raise self.error
        os.fdatasync(descriptor)


def _parts(folder: Path) -> Parts:
    flags = {"simulate": {"enabled": True}, "store": {"url": f"sqlite:///{folder}/journal.db"}}
    parts = Parts(settings.load(flags=flags, environ={}))
    parts.open()
    return parts


async def _ask(answering: Answering, run: str, connection: Connection) -> Answer:
    answering.parts.presence.opened(connection)
    dialect = registry.for_path("POST", "chat/completions")
    assert dialect is not None
    headers = [("content-type", "application/json")]
    return await answering.answer(
        Request("POST", "/v1/chat/completions", "chat/completions", "", headers, BODY, connection, "s", run), dialect
    )


@pytest.mark.parametrize("broken", [False, True])
async def test_a_later_run_waits_for_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    parts = _parts(tmp_path)
    try:
        answering = Answering(parts)
        disk = _Disk(monkeypatch)
        connection = Connection(("10.0.0.1", 1), ("10.0.0.2", 2))
        first = asyncio.ensure_future(_ask(answering, "a", connection))
        await asyncio.to_thread(disk.busy.wait, 30)
        assert parts.journal.read.raw("select state from step").fetchall() == [("completed",)]
        assert not first.done()
        parts.presence.closed(connection)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.ensure_future(_ask(answering, "b", Connection(("10.0.0.1", 3), ("10.0.0.2", 2))))
        rows = "select count(*) from served where run = 2"
        while parts.journal.read.raw(rows).fetchone() == (0,):
            await asyncio.sleep(0.001)
        for _ in range(100):  # what could go on without the disk, has
            await asyncio.sleep(0)
        assert not second.done()
        disk.error = OSError(5, "Input/output error") if broken else None
        disk.through.set()
        if broken:
            with pytest.raises(StoreError, match="could not be put on disk"):
                await second
        else:
            answer = await second
            assert answer.status == 200
            answer.close(True)
    finally:
        disk.through.set()
        await parts.close()
