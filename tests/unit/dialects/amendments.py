"""Owns what the tests of amended answers share: amendments to try, and what every amended answer must be.

Must not know how an answer is amended. Invariant: nothing here is computed by the code under test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from agentstate.core.model import Change, ToolCall

SAID = 'Ann refused: "not \u2028 today".\nAsk again 🙂'
NEW = '{ "new": [1.50, "ü\u2028", {}] ,\n "big": 12345678901234567890 }'


def chosen(calls: Sequence[ToolCall], fates: Sequence[int]) -> list[Change]:
    """A change of each call by its fate: 0 it stays, 1 it is edited, 2 it is taken out."""
    texts = {1: NEW, 2: None}
    return [
        Change(call.choice, call.index, texts[fate]) for call, fate in zip(calls, fates, strict=False) if fate in texts
    ]


def fates_of(count: int) -> list[list[int]]:
    """All taken out, all edited, each one alone taken out or edited, and a mixture."""
    alone = [[fate if place == at else 0 for place in range(count)] for at in range(count) for fate in (1, 2)]
    mixed = [[1 + place % 2 for place in range(count)]] if count > 1 else []
    return [[2] * count, [1] * count, *alone, *mixed]


def expected(calls: Sequence[ToolCall], changes: Sequence[Change]) -> list[ToolCall]:
    """The calls that an amended answer is to have; those of a choice that loses one are numbered without a gap."""
    texts = {(change.choice, change.index): change.arguments for change in changes}
    lost = {choice for (choice, _), text in texts.items() if text is None}
    found = []
    for call in calls:
        text = texts.get((call.choice, call.index), call.arguments)
        if text is None:
            continue
        index = call.index
        if call.choice in lost and index >= 0:
            mine = sorted(other.index for other in calls if other.choice == call.choice and other.index >= 0)
            left = [at for at in mine if texts.get((call.choice, at), "") is not None]
            index = mine[0] + left.index(index)
        found.append(ToolCall(call.choice, index, call.call_id, call.name, text))
    return found


def shown(calls: Sequence[ToolCall]) -> list[tuple[int, int, str, str, object]]:
    """Calls with their arguments as values, empty ones as none; of a custom tool its text, read as such."""
    return [
        (call.choice, call.index, call.call_id, call.name, _value(call.arguments))
        for call in sorted(calls, key=lambda call: (call.choice, call.index))
    ]


def _value(arguments: str) -> object:
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments
    custom = isinstance(value, dict) and value.keys() == {"input"} and isinstance(value["input"], str)
    return _value(value["input"]) if custom else value
