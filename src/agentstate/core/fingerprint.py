"""Owns the fingerprint: which requests are the same question. Must not parse bytes; dialects give it canonical digests.

Invariant: two requests have equal keys exactly when they differ only in what cannot change the answer: the spelling of
JSON, the order of the tool set, tool-call ids (as long as calls and results still belong together), the order within a
contiguous run of tool results, and the fields on their dialect's deny-list.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from agentstate.core.model import Call, Fingerprint, Item
from agentstate.core.prefixes import Prefixes

_KEY_TAG = b"agentstate/fingerprint/1\0"
_CHAIN_TAG = sha256(b"agentstate/chain/1\0").digest()
_chains = Prefixes()


def of(call: Call) -> Fingerprint:
    """The fingerprint of a call. Cost: one sha256 for each message that is new."""
    chain = chain_of(call.items)
    text = f"{call.dialect}\0{call.method}\0{call.path}\0".encode()
    state = sha256(_KEY_TAG + text + call.frame + (chain[-1] if chain else _CHAIN_TAG))
    for part in call.context:
        state.update(part.digest)
    key = state.digest()
    return Fingerprint(key, chain)


def chain_of(items: Sequence[Item]) -> tuple[bytes, ...]:
    """Digest of each prefix of the messages, in canonical order."""
    ids: dict[str, int] = {}
    ordered = in_canonical_order(items)
    chain = list(_chains.known(ordered))
    known = len(chain)
    link = chain[-1] if chain else _CHAIN_TAG
    for place, item in enumerate(ordered):
        if item.call_ids:
            places = ",".join([str(ids.setdefault(call_id, len(ids))) for call_id in item.call_ids])
            if place >= known:
                link = sha256(link + item.digest + places.encode()).digest()
                chain.append(link)
        elif place >= known:
            link = sha256(link + item.digest).digest()
            chain.append(link)
    result = tuple(chain)
    _chains.keep(ordered, result)
    return result


def in_canonical_order(items: Sequence[Item]) -> Sequence[Item]:
    """The messages, each contiguous run of tool results in the order of the calls that they answer.

    Some clients send the results of parallel calls in the order in which their tools happened to finish.
    """
    if not any(item.answers is not None for item in items):
        return items
    first_seen: dict[str, int] = {}
    ordered: list[Item] = []
    run: list[Item] = []
    for item in items:
        if item.answers is not None:
            run.append(item)
            continue
        _flush(run, ordered, first_seen)
        for call_id in item.call_ids:
            first_seen.setdefault(call_id, len(first_seen))
        ordered.append(item)
    _flush(run, ordered, first_seen)
    return ordered


def _flush(run: list[Item], ordered: list[Item], first_seen: dict[str, int]) -> None:
    if len(run) > 1:
        unknown = len(first_seen)
        run.sort(key=lambda item: first_seen.get(item.answers or "", unknown))
    ordered.extend(run)
    run.clear()
