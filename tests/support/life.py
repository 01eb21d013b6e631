"""Owns one life of an agent that says what it was given as lines of JSON: its end, and what it said.

Invariant: the process is gone when the block is left, whatever the test did.
"""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any, Self


class Life:
    """``process``: with both outputs as pipes of text; ``bound_s``: how long its end is waited for at most."""

    bound_s = 40.0
    process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(self.bound_s)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def said(self) -> list[Any]:
        """Wait for its end: the lines that it said."""
        out, err = self.process.communicate(timeout=self.bound_s)
        assert self.process.returncode == 0, err[-3000:]
        return [json.loads(line) for line in out.splitlines()]
