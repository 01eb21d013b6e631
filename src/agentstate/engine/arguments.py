"""Owns checking the arguments that a person gives a tool call, in an approval or in an edited answer. Must not decide
whether they may: policies do.

Invariant: what does not fit the schema that the agent gave for the tool is refused, and a schema that cannot be
understood lets nothing pass.
"""

from __future__ import annotations

import json
from typing import Any

from agentstate.errors import Unprocessable


def checked(arguments: Any, schema: str, tool: str, after: str) -> str:
    """The arguments as JSON text. ``schema``: JSON text, empty: the tool has none; ``after``: what the person is told
    of how things stand now. Raises ``Unprocessable``."""
    if not isinstance(arguments, dict):
        raise Unprocessable(f"arguments must be a JSON object: all of the call's arguments, edited; {after}")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise Unprocessable(f"the edited arguments cannot be written as JSON: {error}; {after}") from None
    if schema:
        _check_schema(json.loads(schema), arguments, tool, after)
    return text


def _check_schema(schema: Any, arguments: dict[str, Any], tool: str, after: str) -> None:
    """Raises ``Unprocessable`` where the arguments do not fit the schema that the agent gave for the tool."""
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        # With a registry of its own it fetches nothing: a schema comes from an agent, and may name any address.
        checker = kind(schema, registry=referencing.Registry())
        fault = next(iter(checker.iter_errors(arguments)), None)
    except (jsonschema.exceptions.SchemaError, referencing.exceptions.Unresolvable, RecursionError, TypeError,
            AttributeError, ValueError) as error:  # fmt: skip
        raise Unprocessable(
            f"the schema of tool {tool} cannot be understood ({type(error).__name__}), so an edit cannot be checked; "
            f"leave the call as it is; {after}"
        ) from error
    if fault is not None:
        where = "/".join(str(part) for part in fault.absolute_path)
        raise Unprocessable(
            f"the edited arguments do not fit the schema of tool {tool}: {fault.message[:300]}"
            + (f" (at {where})" if where else "")
            + f"; {after}"
        )
