"""Owns whether arguments fit the schema that an agent gave for a tool. Must not fetch anything that a schema names.

Invariant: a schema that cannot be understood fits nothing: what cannot be checked is refused, and says so.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, NamedTuple

from agentstate.errors import Unprocessable

_MOST_TOLD = 300  # characters of one fault


class Fault(NamedTuple):
    """What does not fit. ``where``: the members and places that lead to it, joined by ``/``; empty: the whole."""

    where: str
    message: str


def faults(schema: str, arguments: Any, tool: str, most: int = 20) -> list[Fault]:
    """Why arguments do not fit a schema (JSON text); empty: they do. Raises ``Unprocessable`` where that cannot be
    told."""
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        described = json.loads(schema)
        kind = jsonschema.validators.validator_for(described, default=jsonschema.Draft202012Validator)
        # With a registry of its own it fetches nothing: a schema comes from an agent, and may name any address.
        checker = kind(described, registry=referencing.Registry())
        found = list(islice(checker.iter_errors(arguments), most))
    except (jsonschema.exceptions.SchemaError, referencing.exceptions.Unresolvable, RecursionError, TypeError,
            AttributeError, ValueError) as error:  # fmt: skip
        raise Unprocessable(
            f"the schema of tool {tool} cannot be understood ({type(error).__name__}), so an edit cannot be checked; "
            "approve or reject the call as it is"
        ) from error
    return [Fault("/".join(str(part) for part in one.absolute_path), one.message[:_MOST_TOLD]) for one in found]


def check(schema: str, arguments: Any, tool: str) -> None:
    """Raises ``Unprocessable`` for arguments that do not fit, which says the first reason."""
    if found := faults(schema, arguments, tool, 1):
        where, message = found[0]
        raise Unprocessable(
            f"the edited arguments do not fit the schema of tool {tool}: {message}"
            + (f" (at {where})" if where else "")
            + "; the approval is still pending"
        )
