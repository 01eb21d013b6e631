"""Owns how a line of a data set is spelled in each format. Pure. Must not choose, redact or write lines.

Invariant: what a format has no place for is a reason to leave the line out, never silently dropped; the same line is
spelled the same each time.
"""

from __future__ import annotations

import json
from typing import Any

from agentstate.core import dataset
from agentstate.core.dataset import Example, Pair, unanswered
from agentstate.core.dataset_filter import Format
from agentstate.core.transcript import Called, Dialogue, Document, Offered, Picture, Spoken, object_of

Fields = dict[str, Any]


class LeftOut(Exception):
    """A line that a format cannot tell. Its text: one of ``dataset.REASONS``."""


def spelled(form: Format, line: Example | Pair) -> Fields:
    """A line in a format. Raises ``LeftOut``."""
    trl = form.startswith("trl")
    if isinstance(line, Pair):
        return _pair(line, trl)
    if form == "trajectory":
        return trajectory(line)
    _checked(line.dialogue)
    messages = [
        _message(message, trl, weight=None if place in line.trained else 0)
        for place, message in enumerate(line.dialogue.messages)
    ]
    if form == "parquet":
        return row(line, messages)
    return {"messages": messages, **_around(line.dialogue, trl)}


def _pair(pair: Pair, trl: bool) -> Fields:
    _checked(pair.dialogue)
    asked = [_message(message, trl) for message in pair.dialogue.messages]
    better, worse = ([_message(answer, trl)] for answer in (pair.preferred, pair.other))
    around = _around(pair.dialogue, trl)
    if trl:
        return {"prompt": asked, "chosen": better, "rejected": worse, **around}
    return {"input": {"messages": asked, **around}, "preferred_output": better, "non_preferred_output": worse}


def _checked(dialogue: Dialogue) -> None:
    wrong = unanswered(dialogue.messages)
    if wrong:
        raise LeftOut(wrong)
    if not dialogue.messages:
        raise LeftOut(dataset.SILENT)


def _message(message: Spoken, trl: bool, weight: int | None = None) -> Fields:
    """``weight``: of an answer; ``None``: as usual, it is trained."""
    if any(isinstance(piece, Document) for piece in message.pieces):
        raise LeftOut(dataset.DOCUMENTS)
    pictures = [piece for piece in message.pieces if isinstance(piece, Picture)]
    if pictures and (trl or message.role != "user"):
        raise LeftOut(dataset.PICTURES)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    if message.role != "assistant":
        return {"role": message.role, "content": _parts(message) if pictures else message.text}
    said: Fields = {"role": "assistant"}
    text = message.text or message.refusal
    if text or not message.calls:
        said["content"] = text
    if not text and not message.calls:
        raise LeftOut(dataset.SILENT)
    if message.calls:
        said["tool_calls"] = [_call(call, trl) for call in message.calls]
    return said if weight is None else said | {"weight": weight}


def _parts(message: Spoken) -> list[Fields]:
    return [_part(piece) for piece in message.pieces if piece and not isinstance(piece, Document)]


def _part(piece: str | Picture) -> Fields:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": "image_url", "image_url": {"url": piece.url}}


def _call(call: Called, trl: bool) -> Fields:
    value = object_of(call.arguments)
    if value is None:
        raise LeftOut(dataset.ARGUMENTS)
    arguments: Any = value if trl else call.arguments if call.arguments.strip() else "{}"
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _around(dialogue: Dialogue, trl: bool) -> Fields:
    found: Fields = {}
    if dialogue.tools:
        found["tools"] = [_tool(tool) for tool in dialogue.tools]
    if dialogue.parallel is not None and dialogue.tools and not trl:
        found["parallel_tool_calls"] = dialogue.parallel
    return found


def _tool(tool: Offered) -> Fields:
    function: Fields = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.schema:
        function["parameters"] = json.loads(tool.schema)
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


# --- formats of our own -----------------------------------------------------------------------------------------------


def trajectory(line: Example) -> Fields:
    """All that is known of a transcript; messages with every piece in them."""
    return {
        "session": line.session,
        "steps": [step(facts) for facts in line.steps],
        "messages": [_whole(message, place in line.trained) for place, message in enumerate(line.dialogue.messages)],
        "tools": [_tool(tool) for tool in line.dialogue.tools],
        "parallel_tool_calls": line.dialogue.parallel,
    }


def step(facts: dataset.Facts) -> Fields:
    """What is told of a step whose answer is in a line. ``at``: seconds since the epoch; ``cost``: USD."""
    return {
        "number": facts.number,
        "model": facts.model,
        "run": facts.run,
        "at": facts.at,
        "cost": facts.cost,
        "rating": facts.rating or None,
        "labels": list(facts.labels),
    }


def _whole(message: Spoken, trained: bool) -> Fields:
    said: Fields = {"role": message.role, "content": [_piece(piece) for piece in message.pieces]}
    if message.role == "assistant":
        said |= {"trained": trained, "tool_calls": [call._asdict() for call in message.calls]}
        said |= {name: value for name in ("refusal", "reasoning") if (value := getattr(message, name))}
    if message.role == "tool":
        said |= {"tool_call_id": message.answers, "failed": message.failed}
    return said


def _piece(piece: str | Picture | Document) -> Fields:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    return {"type": "image" if isinstance(piece, Picture) else "file", **piece._asdict()}


def row(line: Example, messages: list[Fields]) -> Fields:
    """A row of a table, in which every column has one type: pictures stand beside texts, tools are JSON text."""
    costs = [facts.cost for facts in line.steps]
    return {
        "session": line.session,
        "steps": [facts.number for facts in line.steps],
        "models": sorted({facts.model for facts in line.steps}),
        "ratings": sorted({facts.rating for facts in line.steps} - {""}),
        "labels": sorted({label for facts in line.steps for label in facts.labels}),
        "cost": None if None in costs else sum(cost for cost in costs if cost is not None),
        "messages": [_cells(message) for message in messages],
        "tools": json.dumps([_tool(tool) for tool in line.dialogue.tools], ensure_ascii=False),
    }


def _cells(message: Fields) -> Fields:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    texts = "".join(part["text"] for part in parts if part["type"] == "text") if parts else content
    return {
        "role": message["role"],
        "content": texts,
        "images": [part["image_url"]["url"] for part in parts if part["type"] == "image_url"],
        "tool_calls": [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())],
        "tool_call_id": message.get("tool_call_id"),
        "weight": message.get("weight", 1) if message["role"] == "assistant" else None,
    }
