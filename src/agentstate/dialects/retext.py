"""Owns the text that a plain, finished answer says, in each wire format: reading it, and putting another in its place.
Must not change calls, nor decide what is said.

Invariant: ids, calls, what a model thought and members that nobody knows stay byte for byte; nothing of the old text is
left, nor what speaks of its places: citations, probabilities of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from agentstate.dialects.rewriting import (
    elements,
    encoded,
    listed,
    loaded,
    member,
    members,
    with_elements,
    with_members,
)

Changes = dict[str, bytes | None]


class _Way(NamedTuple):
    """``read``: the text of a plain answer; ``write``: the answer with another one."""

    read: Callable[[bytes], str]
    write: Callable[[bytes, str], bytes]


def text_of(dialect: str, plain: bytes) -> str:
    """What an answer says, calls and thoughts apart. Raises ``ValueError`` where it cannot be edited."""
    return _way(dialect).read(plain)


def with_text(dialect: str, plain: bytes, text: str) -> bytes:
    """The answer with another text. Raises ``ValueError`` where it cannot be edited, and why."""
    way = _way(dialect)
    made = way.write(plain, text)
    if way.read(made) != text:
        raise ValueError("this text cannot stand in the answer just as it is")
    return made


def _way(dialect: str) -> _Way:
    if dialect not in _WAYS:
        raise ValueError(f"answers of {dialect} cannot be edited")
    return _WAYS[dialect]


def _text(raw: bytes) -> str:
    value = loaded(raw)
    return value if isinstance(value, str) else ""


def _only(plain: bytes, name: str) -> bytes:
    """The one choice of an answer. Raises ``ValueError`` where there are several, or none."""
    found = listed(plain, name)
    if len(found) != 1:
        raise ValueError(f"the answer has {len(found)} choices; only one of a single choice can be edited")
    return found[0]


def _first(plain: bytes, name: str, changed: bytes) -> bytes:
    return with_members(plain, {name: with_elements(member(plain, name), {0: [changed]})})


def _without(raw: bytes, names: Mapping[str, bytes]) -> Changes:
    """What to put in the place of those members that are there and say something."""
    return {name: empty for name, empty in names.items() if member(raw, name) not in (b"", empty)}


# --- OpenAI's chat and legacy completions, Ollama ---------------------------------------------------------------------


def _chat_text(plain: bytes) -> str:
    return _content(member(_only(plain, "choices"), "message"))


def _content(message: bytes) -> str:
    content = member(message, "content")
    if content.startswith(b"["):
        return "".join(_text(member(part, "text")) for part in elements(content))
    return _text(content)


def _chat_write(plain: bytes, text: str) -> bytes:
    choice = _only(plain, "choices")
    message = member(choice, "message")
    if member(message, "audio"):
        raise ValueError("the answer is spoken, and later requests name the recording of it; it cannot be edited")
    changes: Changes = {"content": encoded(text), **_without(message, {"annotations": b"[]"})}
    if member(message, "refusal"):
        changes["refusal"] = b"null"
    made = with_members(choice, {"message": with_members(message, changes), **_without(choice, {"logprobs": b"null"})})
    return _first(plain, "choices", made)


def _completion_text(plain: bytes) -> str:
    return _text(member(_only(plain, "choices"), "text"))


def _completion_write(plain: bytes, text: str) -> bytes:
    choice = _only(plain, "choices")
    return _first(
        plain, "choices", with_members(choice, {"text": encoded(text), **_without(choice, {"logprobs": b"null"})})
    )


def _ollama_text(plain: bytes) -> str:
    message = member(plain, "message")
    return _content(message) if message else _text(member(plain, "response"))


def _ollama_write(plain: bytes, text: str) -> bytes:
    if member(plain, "context"):
        raise ValueError("the answer brings the conversation in a form of its provider's own; it cannot be edited")
    gone = _without(plain, {"logprobs": b"null"})
    message = member(plain, "message")
    if not message:
        return with_members(plain, {"response": encoded(text), **gone})
    return with_members(plain, {"message": with_members(message, {"content": encoded(text)}), **gone})


# --- Anthropic, Gemini: a list of parts -------------------------------------------------------------------------------


def _replaced(array: bytes, spoken: Sequence[int], new: bytes, before: int, kept: Callable[[bytes], bytes]) -> bytes:
    """A list of parts whose texts are at ``spoken``: the first becomes what ``kept`` makes of it, the others go; where
    there is none, ``new`` goes before the part at ``before``. ``new`` empty: no text is left."""
    parts = elements(array)
    changes: dict[int, Sequence[bytes]] = {place: [] for place in spoken}
    added: list[bytes] = []
    if new and spoken:
        changes[spoken[0]] = [kept(parts[spoken[0]])]
    elif new and before < len(parts):
        changes[before] = [new, parts[before]]
    elif new:
        added = [new]
    return with_elements(array, changes, added)


def _anthropic_texts(plain: bytes) -> list[int]:
    blocks = listed(plain, "content")
    return [place for place, block in enumerate(blocks) if loaded(member(block, "type")) == "text"]


def _anthropic_text(plain: bytes) -> str:
    blocks = listed(plain, "content")
    return "".join(_text(member(blocks[place], "text")) for place in _anthropic_texts(plain))


def _anthropic_write(plain: bytes, text: str) -> bytes:
    blocks = listed(plain, "content")
    thought = [place for place, block in enumerate(blocks) if "thinking" in str(loaded(member(block, "type")))]
    new = b'{"type":"text","text":' + encoded(text) + b"}" if text else b""

    def kept(block: bytes) -> bytes:
        return with_members(block, {"text": encoded(text), **_without(block, {"citations": b"null"})})

    before = thought[-1] + 1 if thought else 0
    made = _replaced(member(plain, "content"), _anthropic_texts(plain), new, before, kept)
    return with_members(plain, {"content": made})


def _gemini_texts(parts: Sequence[bytes]) -> list[int]:
    return [
        place
        for place, part in enumerate(parts)
        if member(part, "text") and loaded(member(part, "thought")) is not True
    ]


def _gemini_text(plain: bytes) -> str:
    parts = listed(member(_only(plain, "candidates"), "content"), "parts")
    return "".join(_text(member(parts[place], "text")) for place in _gemini_texts(parts))


_CITING = {name: b"null" for name in (
    "citationMetadata", "citation_metadata", "groundingMetadata", "grounding_metadata", "logprobsResult",
    "logprobs_result", "avgLogprobs", "avg_logprobs",
)}  # fmt: skip


def _gemini_write(plain: bytes, text: str) -> bytes:
    candidate = _only(plain, "candidates")
    content = member(candidate, "content")
    parts = listed(content, "parts")
    thought = [place for place, part in enumerate(parts) if loaded(member(part, "thought")) is True]
    new = b'{"text":' + encoded(text) + b"}" if text else b""
    array = member(content, "parts") or b"[]"
    before = thought[-1] + 1 if thought else 0
    made = _replaced(array, _gemini_texts(parts), new, before, lambda part: with_members(part, {"text": encoded(text)}))
    gone: Changes = dict.fromkeys(_without(candidate, _CITING))
    whole = with_members(content or b'{"role":"model"}', {"parts": made})
    return _first(plain, "candidates", with_members(candidate, {"content": whole, **gone}))


# --- OpenAI's responses -----------------------------------------------------------------------------------------------


def _messages(plain: bytes) -> list[int]:
    items = listed(plain, "output")
    return [place for place, item in enumerate(items) if loaded(member(item, "type")) == "message"]


def _responses_text(plain: bytes) -> str:
    items = listed(plain, "output")
    parts = [part for place in _messages(plain) for part in listed(items[place], "content")]
    return "".join(_text(member(part, "text")) for part in parts if loaded(member(part, "type")) == "output_text")


def _said(item: bytes, text: str) -> bytes:
    """The parts of a message with the text in the place of the first that says one; empty: none does."""
    parts = listed(item, "content")
    spoken = [place for place, part in enumerate(parts) if loaded(member(part, "type")) == "output_text"]
    if not spoken:
        return b""
    first = parts[spoken[0]]
    gone = _without(first, {"annotations": b"[]", "logprobs": b"[]"})
    changes: dict[int, Sequence[bytes]] = {place: [] for place in range(len(parts))}
    changes[spoken[0]] = [with_members(first, {"text": encoded(text), **gone})]
    return with_elements(member(item, "content"), changes)


def _responses_write(plain: bytes, text: str) -> bytes:
    items = listed(plain, "output")
    spoken = _messages(plain)
    said = b'[{"type":"output_text","annotations":[],"text":' + encoded(text) + b"}]"
    calls = [place for place, item in enumerate(items) if member(item, "call_id")]
    name = sha256(member(plain, "id") + b"\0" + text.encode("utf-8", "surrogatepass")).hexdigest()[:32].encode()
    new = b""
    if text:
        new = b'{"id":"msg_agentstate_%b","type":"message","status":"completed","role":"assistant","content":%b}' % (
            name, said,
        )  # fmt: skip
    before = calls[0] if calls else len(items)
    array = member(plain, "output") or b"[]"
    made = _replaced(
        array, spoken, new, before, lambda item: with_members(item, {"content": _said(item, text) or said})
    )
    changes: Changes = {"output": made}
    if any(one.name == "output_text" for one in members(plain)):
        changes["output_text"] = encoded(text)
    return with_members(plain, changes)


_WAYS = {
    "openai_chat": _Way(_chat_text, _chat_write),
    "openai_completions": _Way(_completion_text, _completion_write),
    "openai_responses": _Way(_responses_text, _responses_write),
    "anthropic_messages": _Way(_anthropic_text, _anthropic_write),
    "gemini": _Way(_gemini_text, _gemini_write),
    "ollama_chat": _Way(_ollama_text, _ollama_write),
}
