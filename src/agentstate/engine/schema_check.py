"""Owns looking whether a value fits a JSON schema that somebody else wrote. Must not be told by the schema how long it
takes, nor what is fetched.

Invariant: whatever an agent gave as a schema, an answer comes within ``PATIENCE_S``, and meanwhile the process serves
on. A schema can ask for work without end (a pattern of nested repetitions, references that double at each level), and
a regular expression that runs holds up every thread; so those that could are looked at in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from typing import Any

PATIENCE_S = 5.0
_MOST_HERE = 2_000_000  # characters of the schema times those of the value, that are looked at in this process
_MOST_TOLD = 300  # characters of one fault
# What can take longer than in proportion to the sizes of schema and value.
_LONG = frozenset({
    "pattern", "patternProperties", "$ref", "$dynamicRef", "$recursiveRef", "$schema", "uniqueItems", "oneOf",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip

Found = list[tuple[str, str]]


class CannotTell(Exception):
    """Whether a value fits cannot be told."""


def misfits(schema: str, value: Any, most: int) -> Found:
    """(where, why) a value does not fit a schema (JSON text), ``most`` reasons at most; empty: it does. For a thread.
    Raises ``CannotTell``, which says why in a few words."""
    try:
        text = json.dumps(value)
        if len(schema) * len(text) <= _MOST_HERE and not _is_long(json.loads(schema)):
            return _misfits(schema, value, most)
    except (ValueError, RecursionError) as error:
        raise CannotTell(type(error).__name__) from error
    return _apart(json.dumps([schema, text, most]))


def _is_long(schema: Any) -> bool:
    if isinstance(schema, dict):
        return not _LONG.isdisjoint(schema) or any(map(_is_long, schema.values()))
    return isinstance(schema, list) and any(map(_is_long, schema))


def _misfits(schema: str, value: Any, most: int) -> Found:
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        described = json.loads(schema)
        kind = jsonschema.validators.validator_for(described, default=jsonschema.Draft202012Validator)
        # With a registry of its own it fetches nothing: a schema comes from an agent, and may name any address.
        checker = kind(described, registry=referencing.Registry())
        found = list(islice(checker.iter_errors(value), most))
    except (jsonschema.exceptions.SchemaError, referencing.exceptions.Unresolvable, RecursionError, TypeError,
            AttributeError, ValueError) as error:  # fmt: skip
        raise CannotTell(type(error).__name__) from error
    return [("/".join(str(part) for part in one.absolute_path), one.message[:_MOST_TOLD]) for one in found]


def _apart(asked: str) -> Found:
    """The same in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "agentstate.engine.schema_check"], input=asked.encode(), capture_output=True,
            timeout=PATIENCE_S, check=True,
        )  # fmt: skip
        told = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise CannotTell(f"it takes more than {PATIENCE_S:.0f} s") from None
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise CannotTell(type(error).__name__) from error
    if isinstance(told, str):
        raise CannotTell(told)
    return [(where, why) for where, why in told]


def main() -> None:
    """In that process: what is asked stands on stdin, the answer goes to stdout."""
    schema, text, most = json.load(sys.stdin)
    try:
        told: Found | str = _misfits(schema, json.loads(text), most)
    except CannotTell as error:
        told = str(error)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
