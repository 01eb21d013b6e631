"""Owns the rows that every request asks for, kept in memory: sessions, runs, and which fingerprints a branch holds.

Must not be asked for what a step changes (a session's count of steps and time of change): those are read from the file.
Invariant: a row here equals the committed one, since the journal's only writer forgets it with each write that
changes it; all of it is bounded.
"""

from __future__ import annotations

from agentstate.store.reader import Lineage, Reader
from agentstate.store.rows import RunRow, SessionRow

_MOST_ROWS = 20_000
_MOST_PRINTS = 200_000  # fingerprints over all branches; about 25 MB
_MOST_RUNS = 50  # newest runs of a session that matter for telling runs apart


class Facts:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._sessions: dict[str, SessionRow] = {}
        self._keys: dict[int, str] = {}
        self._runs: dict[int, tuple[RunRow, ...]] = {}
        self._named: dict[int, dict[str, RunRow]] = {}
        self._prints: dict[int, set[bytes]] = {}
        self._count = 0
        self._doomed: set[str] = set()
        # How often sessions began to be deleted: who waited meanwhile looks whether theirs is still there.
        self.gone = 0

    def session(self, key: str) -> SessionRow | None:
        """``steps``, ``clock`` and ``updated_at`` of the row may be old."""
        row = self._sessions.get(key)
        if row is None and key not in self._doomed:
            row = self._reader.session(key)
            if row is not None:
                if len(self._sessions) >= _MOST_ROWS:
                    self._sessions.clear()
                    self._keys.clear()
                self._sessions[key] = row
                self._keys[row.id] = key
        return row

    def session_of(self, session: int) -> SessionRow | None:
        """The same by the number by which the journal knows it."""
        key = self._keys.get(session)
        if key is None:
            row = self._reader.session_of(session)
            if row is None:
                return None
            key = row.key
        return self.session(key)

    def forget_session(self, session: int) -> None:
        key = self._keys.pop(session, None)
        if key is not None:
            del self._sessions[key]

    def doom(self, session: int, key: str) -> None:
        """A session is about to be deleted: from now on there is none of that id, until ``settled`` says otherwise. Who
        opens one gets what is there after the deletion, as writes keep their order."""
        self._doomed.add(key)
        self.gone += 1
        self.forget_session(session)
        self.forget_runs(session)

    def settled(self, key: str) -> None:
        """It is deleted, or was not."""
        self._doomed.discard(key)

    def current(self, session: SessionRow) -> bool:
        """Whether that very session is there."""
        row = self.session(session.key)
        return row is not None and row.id == session.id

    def runs(self, session: int) -> tuple[RunRow, ...]:
        """The newest runs, newest first."""
        rows = self._runs.get(session)
        if rows is None:
            if len(self._runs) >= _MOST_ROWS:
                self._runs.clear()
            rows = self._runs[session] = tuple(self._reader.runs(session, _MOST_RUNS))
        return rows

    def all_runs(self, session: int) -> list[RunRow]:
        """All of them, newest first."""
        newest = self.runs(session)
        return list(newest) if len(newest) < _MOST_RUNS else self._reader.runs(session)

    def run(self, session: int, name: str) -> RunRow | None:
        named = self._named.get(session, {})
        row = named.get(name)
        if row is None:
            row = self._reader.run(session, name)
            if row is not None:
                if len(self._named) >= _MOST_ROWS or len(named) >= _MOST_ROWS:
                    self._named.clear()
                self._named.setdefault(session, {})[name] = row
        return row

    def forget_runs(self, session: int) -> None:
        self._runs.pop(session, None)
        self._named.pop(session, None)

    def holds(self, shown: Lineage, fingerprint: bytes) -> bool:
        """Whether a step with this fingerprint may be on the shown branches; false is certain."""
        return fingerprint in self._of(shown)

    def begun(self, head: int, fingerprint: bytes) -> None:
        """A step with this fingerprint was begun on that branch."""
        prints = self._prints.get(head)
        if prints is not None and fingerprint not in prints:
            prints.add(fingerprint)
            self._count += 1

    def _of(self, shown: Lineage) -> set[bytes]:
        head = shown[0][0]
        prints = self._prints.get(head)
        if prints is None:
            if self._count >= _MOST_PRINTS:
                self._prints.clear()
                self._count = 0
            prints = self._prints[head] = self._reader.fingerprints(shown)
            self._count += len(prints)
        return prints
