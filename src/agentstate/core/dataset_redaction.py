"""Owns redacting a line of a data set as a whole. Pure. Must not know formats.

Invariant: texts, arguments, results and what tools say of themselves are redacted; names of tools and ids of calls,
by which the parts of a line find each other, stay.
"""

from __future__ import annotations

from agentstate.core.dataset import Example, Pair
from agentstate.core.redaction import Redactor
from agentstate.core.transcript import Called, Dialogue, Document, Offered, Picture, Piece, Spoken


def redacted_example(line: Example, redactor: Redactor) -> Example:
    return line._replace(dialogue=_dialogue(line.dialogue, redactor))


def redacted_pair(pair: Pair, redactor: Redactor) -> Pair:
    return pair._replace(
        dialogue=_dialogue(pair.dialogue, redactor),
        preferred=_spoken(pair.preferred, redactor),
        other=_spoken(pair.other, redactor),
    )


def _dialogue(said: Dialogue, redactor: Redactor) -> Dialogue:
    return said._replace(
        messages=tuple(_spoken(message, redactor) for message in said.messages),
        tools=tuple(_tool(tool, redactor) for tool in said.tools),
    )


def _spoken(message: Spoken, redactor: Redactor) -> Spoken:
    return message._replace(
        pieces=tuple(_piece(piece, message.role == "tool", redactor) for piece in message.pieces),
        calls=tuple(_called(call, redactor) for call in message.calls),
        refusal=redactor.text(message.refusal),
        reasoning=redactor.text(message.reasoning),
    )


def _piece(piece: Piece, result: bool, redactor: Redactor) -> Piece:
    if isinstance(piece, str):
        # What a tool gives is often JSON, in which the names of members tell what is secret.
        return redactor.json(piece) if result and piece.lstrip()[:1] in ("{", "[") else redactor.text(piece)
    if isinstance(piece, Picture):
        return Picture(redactor.text(piece.url))
    return Document(redactor.text(piece.name), redactor.text(piece.url))


def _called(call: Called, redactor: Redactor) -> Called:
    return call._replace(arguments=redactor.json(call.arguments))


def _tool(tool: Offered, redactor: Redactor) -> Offered:
    return tool._replace(description=redactor.text(tool.description), schema=redactor.schema(tool.schema))
