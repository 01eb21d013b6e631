"""Owns how comparisons look as JSON. Must not compare.

Invariant: money is USD and latency seconds; what is not known is null and never nothing.
"""

from __future__ import annotations

from typing import Any

from agentstate.core.comparing import Field, Fields, Kind
from agentstate.engine.comparing import Comparison, Pair, PairDiff, Side
from agentstate.engine.trial import Trial


def comparison_view(found: Comparison) -> dict[str, Any]:
    return {
        "same": found.same,
        "left": side_view(found.left),
        "right": side_view(found.right),
        "total": found.total,
        "counts": {kind.value: found.counts.get(kind, 0) for kind in Kind},
        "first": None if found.first is None else pair_view(found.first),
        "pairs": [pair_view(pair) for pair in found.pairs],
    }


def side_view(side: Side) -> dict[str, Any]:
    return side._asdict() | {"run": side.run or None, "models": list(side.models)}


def pair_view(pair: Pair) -> dict[str, Any]:
    return {
        "pair": pair.index,
        "kind": pair.kind.value,
        "differs": list(pair.differs),
        "left": None if pair.left is None else pair.left._asdict(),
        "right": None if pair.right is None else pair.right._asdict(),
    }


def diff_view(found: PairDiff) -> dict[str, Any]:
    return {
        **pair_view(found.pair),
        "request": fields_view(found.request),
        "answer": fields_view(found.answer),
        "released": None if found.released is None else fields_view(found.released),
        "left_text": found.left_text,
        "right_text": found.right_text,
    }


def trial_view(trial: Trial) -> dict[str, Any]:
    """Beside the pair of the recorded step (left) and its trial (right)."""
    return {
        "trial": {
            "session": trial.session,
            "step_number": trial.number,
            "provider": trial.provider,
            "model": trial.model,
            "lost": list(trial.lost),
            "error": trial.error or None,
        },
        "note": "No agent is given this answer; its tool calls are only shown, and nobody was asked about them.",
    }


def fields_view(fields: Fields) -> dict[str, Any]:
    return {"fields": [field_view(field) for field in fields.found], "more": fields.more}


def field_view(field: Field) -> dict[str, Any]:
    return {
        "path": field.path,
        "place": field.place,
        "left": field.left,
        "right": field.right,
        "only": field.only or None,
        "text": [segment._asdict() for segment in field.text],
    }
