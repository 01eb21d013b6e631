"""Owns the files that an export is written to: parts, shards, the manifest beside them. Must not choose lines.

Invariant: a file of an export is whole when it has its name: it is written under another one, readable by its owner
alone, and takes its name when all of the export has been written; the manifest comes last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Protocol

from agentstate import __version__, clock
from agentstate.core.dataset_filter import Filters, Format
from agentstate.engine.exporting import Export, Line, Report
from agentstate.errors import BadRequest, StoreReadOnly

SHARD_BYTES = 512 * 1024 * 1024
_BATCH_ROWS = 1000
_BATCH_BYTES = 16 * 1024 * 1024


class Sink(Protocol):
    """Where lines of one file go. ``size``: bytes so far."""

    @property
    def size(self) -> int: ...

    def add(self, line: Line) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Lines of JSON."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = 0

    def add(self, line: Line) -> None:
        self.size += self._file.write(line.text + b"\n")

    def close(self) -> None:
        self._file.flush()


class Table:
    """Rows of a Parquet file, in groups that bound what is in memory. Raises ``BadRequest`` without pyarrow."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            import pyarrow  # type: ignore[import-untyped]
            from pyarrow import parquet
        except ImportError:
            raise BadRequest("Parquet needs pyarrow: pip install 'agentstate-proxy[parquet]'") from None
        self._arrow = pyarrow
        self._schema = _schema(pyarrow)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self.size = 0

    def add(self, line: Line) -> None:
        self._rows.append(line.value)
        self._bytes += len(line.text)
        self.size += len(line.text)
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0


def _schema(pyarrow: Any) -> Any:
    text, texts = pyarrow.string(), pyarrow.list_(pyarrow.string())
    call = pyarrow.struct([("id", text), ("name", text), ("arguments", text)])
    message = pyarrow.struct(
        [
            ("role", text), ("content", text), ("images", texts), ("tool_calls", pyarrow.list_(call)),
            ("tool_call_id", text), ("weight", pyarrow.int8()),
        ]
    )  # fmt: skip
    return pyarrow.schema(
        [
            ("session", text), ("steps", pyarrow.list_(pyarrow.int64())), ("models", texts), ("ratings", texts),
            ("labels", texts), ("cost", pyarrow.float64()), ("messages", pyarrow.list_(message)), ("tools", text),
        ]
    )  # fmt: skip


def sink_of(form: Format, file: IO[bytes]) -> Sink:
    return Table(file) if form == "parquet" else JsonLines(file)


class _Part:
    """The files of one part of an export; a new one is begun where the last one is full."""

    def __init__(self, target: Path, name: str, form: Format, most: int) -> None:
        self._target = target
        self._name = name
        self._form = form
        self._most = most
        self._sink: Sink | None = None
        self._file: IO[bytes] | None = None
        self.paths: list[Path] = []

    def add(self, line: Line) -> None:
        if self._sink is None or self._sink.size >= self._most:
            self.begin()
        assert self._sink is not None
        self._sink.add(line)

    def begin(self) -> None:
        self.end()
        number = f"-{len(self.paths) + 1:03d}" if self.paths else ""
        name = f".{self._name}" if self._name else ""
        path = self._target.with_name(f"{self._target.stem}{name}{number}{self._target.suffix}")
        try:
            unfinished(path).unlink(missing_ok=True)
            unfinished(path).touch(0o600)
            self._file = unfinished(path).open("wb")
        except OSError as error:
            raise StoreReadOnly(f"{path} cannot be written: {error.strerror}; name another file") from error
        self.paths.append(path)
        self._sink = sink_of(self._form, self._file)

    def end(self) -> None:
        if self._sink is not None and self._file is not None:
            self._sink.close()
            self._file.close()
        self._sink = self._file = None

    def drop(self) -> None:
        if self._file is not None:
            self._file.close()
        for path in self.paths:
            unfinished(path).unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def write(export: Export, filters: Filters, form: Format, target: Path, most: int = SHARD_BYTES) -> list[Path]:
    """Write an export to ``target`` and files named after it: ``data.train.jsonl`` and ``data.validation.jsonl`` where
    it is split, ``data-002.jsonl`` where a file is full, ``data.manifest.json``. Their paths, the manifest's last.

    Raises ``BadRequest``, ``StoreReadOnly`` where a file cannot be written, and whatever the journal raises; then
    nothing is left.
    """
    names = ("train", "validation") if filters.split and not filters.part else ("",)
    parts = {name: _Part(target, name, form, most) for name in names}
    try:
        for part in parts.values():
            part.begin()
        for line in export.lines():
            parts[line.part if line.part in parts else ""].add(line)
        for part in parts.values():
            part.end()
        paths = [path for part in parts.values() for path in part.paths]
        manifest = target.with_name(f"{target.stem}.manifest.json")
        text = json.dumps(manifest_of(export.report, filters, form, paths), indent=2, ensure_ascii=False)
        unfinished(manifest).touch(0o600)
        unfinished(manifest).write_text(text + "\n", "utf-8")
        for path in (*paths, manifest):
            unfinished(path).replace(path)
    except OSError as error:
        for part in parts.values():
            part.drop()
        raise StoreReadOnly(f"{target} cannot be written: {error.strerror or error}; name another file") from error
    except BaseException:
        for part in parts.values():
            part.drop()
        raise
    return [*paths, manifest]


def manifest_of(report: Report, filters: Filters, form: Format, paths: list[Path]) -> dict[str, Any]:
    """What is told beside the files of an export."""
    return {
        "format": form,
        "made_by": f"agentstate {__version__}",
        "made_at": clock.now(),
        "files": [{"name": path.name, "bytes": unfinished(path).stat().st_size} for path in paths],
        "filters": {name: value for name, value in asdict(filters).items() if value not in (None, "", ())},
        **told(report, form),
    }


def told(report: Report, form: Format) -> dict[str, Any]:
    """A report as JSON, without its preview."""
    return {
        "summary": report.told(),
        "lines": report.lines,
        "sessions": report.sessions,
        "parts": dict(report.parts),
        "left_out": dict(sorted(report.left_out.items())),
        "losses": dict(sorted(report.losses.items())),
        "redacted": dict(sorted(report.redacted.items())),
        "bytes": report.bytes,
        "tokens": report.tokens,
        "price": report.price,
        "unpriced": report.unpriced,
        "warnings": report.warnings(form),
    }


def streamed(export: Export, form: Format, most: int = 64 * 1024) -> Iterator[bytes]:
    """The file of an export in pieces of about ``most`` bytes, as they become ready."""
    buffer = _Pieces()
    sink = sink_of(form, buffer)  # type: ignore[arg-type]
    for line in export.lines():
        sink.add(line)
        if buffer.size >= most:
            yield buffer.taken()
    sink.close()
    yield buffer.taken()


class _Pieces:
    """A file of which what was written is taken away again."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._at = 0
        self.size = 0

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._at += len(piece)
        self.size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Nothing is kept back."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        found = b"".join(self._pieces)
        self._pieces, self.size = [], 0
        return found
