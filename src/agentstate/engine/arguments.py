"""Owns checking the arguments that a person gives a tool call, in an approval or in an edited answer. Must not decide
whether they may: policies do.

Invariant: what does not fit the schema that the agent gave for the tool is refused, and a schema that cannot be
understood lets nothing pass.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from agentstate.engine.schema_check import CannotTell, misfits
from agentstate.errors import Unprocessable

MOST_FAULTS = 20


class Fault(NamedTuple):
    """What does not fit. ``where``: the members and places that lead to it, joined by ``/``; empty: the whole."""

    where: str
    message: str


def checked(arguments: Any, schema: str, tool: str, after: str) -> str:
    """The arguments as JSON text. ``schema``: JSON text, empty: the tool has none; ``after``: what the person is told
    of how things stand now. For a thread: it may take seconds. Raises ``Unprocessable``."""
    if not isinstance(arguments, dict):
        raise Unprocessable(f"arguments must be a JSON object: all of the call's arguments, edited; {after}")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise Unprocessable(f"the edited arguments cannot be written as JSON: {error}; {after}") from None
    if schema and (found := faults(schema, arguments, tool, after, 1)):
        where, message = found[0]
        raise Unprocessable(
            f"the edited arguments do not fit the schema of tool {tool}: {message}"
            + (f" (at {where})" if where else "")
            + f"; {after}"
        )
    return text


def faults(schema: str, arguments: Any, tool: str, after: str, most: int = MOST_FAULTS) -> list[Fault]:
    """Why arguments do not fit a schema (JSON text), ``most`` reasons at most; empty: they do. ``after``: as above.
    For a thread. Raises ``Unprocessable`` where that cannot be told."""
    try:
        found = misfits(schema, arguments, most)
    except CannotTell as error:
        raise Unprocessable(
            f"the schema of tool {tool} cannot be understood ({error}), so an edit cannot be checked; "
            f"leave the call as it is; {after}"
        ) from error
    return [Fault(where, why) for where, why in found]
