"""Owns what the page for several approvals at once shows. Must not decide. Invariant: nothing is decided together that
was not shown whole on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentstate.core.model import ApprovalKind
from agentstate.dashboard.approvals import Card

_ALONE = {
    ApprovalKind.DOUBT.value: "a call in doubt is settled on its own card",
    ApprovalKind.BUDGET.value: "a budget is decided on its own card",
}


@dataclass(frozen=True, slots=True)
class Bulk:
    """``cards``: those that can be decided together; ``alone``: (card, why) of the others; ``failed``: why, by id, of
    those that could not be decided a moment ago."""

    cards: tuple[Card, ...]
    alone: tuple[tuple[Card, str], ...]
    failed: dict[str, str]


def bulk(cards: Sequence[Card], failed: Mapping[str, str]) -> Bulk:
    reasons = {card.row.id: _reason(card) for card in cards}
    return Bulk(
        tuple(card for card in cards if not reasons[card.row.id]),
        tuple((card, reasons[card.row.id]) for card in cards if reasons[card.row.id]),
        dict(failed),
    )


def _reason(card: Card) -> str:
    """Why an approval is not decided with others; empty: it is."""
    if card.outcome:
        return card.outcome
    return card.refusal or _ALONE.get(card.row.kind, "")
