"""Owns the recorded exchanges of ``../shared/traffic`` (relative to the repository's root) as bytes to be played again.

Must not change them: bodies that were stored parsed are rendered once, here, and compared as rendered. Invariant: where
the recordings are absent a test that needs them skips with a reason, or fails when AGENTSTATE_REQUIRE_TRAFFIC=1.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "traffic"
# Read once, here: the variable must not reach a proxy, for which it would be an unknown setting.
REQUIRED = os.environ.get("AGENTSTATE_REQUIRE_TRAFFIC") == "1"
# Fields that belong to a connection or to the client that recorded, not to the exchange.
_HOP_FIELDS = ("host", "connection", "content-length", "transfer-encoding", "content-encoding", "accept-encoding")


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer, as bytes."""

    id: str
    path: str
    request_headers: tuple[tuple[str, str], ...]
    request: bytes
    status: int
    response_headers: tuple[tuple[str, str], ...]
    response: bytes
    streamed: bool
    fidelity: str
    method: str = "POST"

    @property
    def content_type(self) -> str | None:
        """The answer's content type as recorded."""
        return next((value for name, value in self.response_headers if name.lower() == "content-type"), None)


@dataclass(frozen=True)
class Trajectory:
    """Exchanges of one recording in their order."""

    id: str
    exchanges: tuple[Exchange, ...]


def require() -> None:
    """Skip the calling test, or fail it, when the recordings are not there."""
    if FOLDER.is_dir():
        return
    reason = f"recorded traffic is not at {FOLDER}"
    if REQUIRED:
        pytest.fail(f"{reason}, and AGENTSTATE_REQUIRE_TRAFFIC=1")
    pytest.skip(reason)


@cache
def provider_chat(service: str = "openai") -> tuple[Trajectory, ...]:
    """Chat completions recorded with one service; recorders that wrote the JSON anew are left out."""
    grouped: dict[str, list[tuple[int, Exchange]]] = {}
    for row in _rows(FOLDER / "providers" / f"{service}.jsonl"):
        if row["api"] != "chat.completions" or row["fidelity"] == "reserialised" or row["request"]["body"] is None:
            continue
        place = row.get("conversation", {})
        grouped.setdefault(place.get("id", row["id"]), []).append((place.get("index", 0), _of_provider(row)))
    return tuple(
        Trajectory(name, tuple(exchange for _, exchange in sorted(found, key=lambda pair: pair[0])))
        for name, found in grouped.items()
    )


@cache
def provider_calls(service: str, api: str) -> tuple[Trajectory, ...]:
    """Calls of another wire format that were recorded with one service, as ``provider_chat`` gives those of chat."""
    grouped: dict[str, list[tuple[int, Exchange]]] = {}
    for row in _rows(FOLDER / "providers" / f"{service}.jsonl"):
        if row["api"] != api or row["fidelity"] == "reserialised" or row["request"]["body"] is None:
            continue
        if not {"sse", "text", "body"} & set(row["response"]):
            continue
        place = row.get("conversation", {})
        grouped.setdefault(place.get("id", row["id"]), []).append((place.get("index", 0), _of_provider(row)))
    return tuple(
        Trajectory(name, tuple(exchange for _, exchange in sorted(found, key=lambda pair: pair[0])))
        for name, found in grouped.items()
    )


@cache
def client_chat(run: str = "run1") -> tuple[Trajectory, ...]:
    """Chat completions of recorded agent clients, one trajectory a client, of the first or second process."""
    found = []
    for path in sorted((FOLDER / "clients").glob(f"*.{run}.jsonl")):
        rows = [row for row in _rows(path) if row["path"].endswith("/chat/completions")]
        if rows:
            name = path.name.removesuffix(f".{run}.jsonl")
            found.append(Trajectory(name, tuple(_of_client(f"{name}#{at}", row) for at, row in enumerate(rows))))
    return tuple(found)


def double_runs() -> dict[str, tuple[str, str]]:
    """By name: the recordings of two processes of one client that did the same, and of one in another place."""
    found = {}
    for path in sorted((FOLDER / "clients").glob("*.run1.jsonl")):
        name = path.name.removesuffix(".run1.jsonl")
        for other in sorted(path.parent.glob(f"{name}.run[23]*.jsonl")):
            kind = other.name.removeprefix(f"{name}.").removesuffix(".jsonl")
            found[name if kind == "run2" else f"{name} {kind}"] = (path.name, other.name)
    return found


@cache
def client_all(file: str) -> tuple[Exchange, ...]:
    """Everything that one process of a recorded client sent, its session prefix taken out."""
    return tuple(_of_client(f"{file}#{at}", row) for at, row in enumerate(_rows(FOLDER / "clients" / file)))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _of_provider(row: dict[str, Any]) -> Exchange:
    response = row["response"]
    return Exchange(
        id=row["id"],
        path=row["request"]["path"],
        request_headers=_fields(row["request"]["headers"].items()),
        request=_bytes(row["request"]["body"]),
        status=response["status"],
        response_headers=_fields(response["headers"].items()),
        response=_answer_bytes(response),
        streamed="sse" in response,
        fidelity=row["fidelity"],
        method=row["request"]["method"],
    )


def _of_client(name: str, row: dict[str, Any]) -> Exchange:
    response = row["response"]
    body = response["body"]
    return Exchange(
        id=name,
        path=re.sub(r"^/s/[^/]+", "", row["path"]) or "/",
        request_headers=_fields(row["headers"]),
        request=b"" if row["body"] is None else _bytes(row["body"]),
        status=response["status"],
        response_headers=_fields(response["headers"].items()),
        response=b"" if body is None else _bytes(body),
        streamed=isinstance(body, str),
        fidelity="raw",
        method=row["method"],
    )


def _answer_bytes(response: dict[str, Any]) -> bytes:
    for key in ("sse", "text"):
        if key in response:
            return str(response[key]).encode()
    return str(response.get("body_prefix", "")).encode() + _bytes(response["body"])


def _bytes(body: Any) -> bytes:
    """Text as it stands, anything else as JSON in its recorded order of keys."""
    return body.encode() if isinstance(body, str) else json.dumps(body, ensure_ascii=False).encode()


def _fields(pairs: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(value)) for name, value in pairs if str(name).lower() not in _HOP_FIELDS)
