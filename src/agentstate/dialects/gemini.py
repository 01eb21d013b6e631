"""Owns Gemini's generateContent, of the Gemini API and of Vertex: how a request is read. Must not change what passes.

Invariant: two bodies have the same canonical parts exactly when no provider could tell the difference by its answer.
Fields at the top of a body are the same in camel case and in snake case, as they are to the API; further below only
call ids are found in both spellings, as one client keeps to one spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from agentstate.core.model import Call, Change, Item, OfferedTool, Shape, ToolResult, Verdict
from agentstate.dialects import gemini_amend, gemini_results, gemini_shape, volatile
from agentstate.dialects import query as query_of
from agentstate.dialects.base import (
    Blanked,
    Cache,
    Gate,
    Scrubbed,
    canonical,
    digest_of,
    frame_key,
)
from agentstate.dialects.conversation import Conversations
from agentstate.dialects.gemini_answer import ArrayGate, StreamGate, gemini_error, judge_plain
from agentstate.dialects.reading import Fields, read_body
from agentstate.errors import AgentStateError, BadRequest

GENERATE = frozenset({"generateContent", "streamGenerateContent"})
# Their answers depend on the request alone.
PURE = frozenset({"countTokens", "embedContent", "batchEmbedContents"})

# Cannot change the answer: what the bill is sorted by; and the model, which the API takes from the path.
DENIED = frozenset({"labels", "model"})

_PATH = re.compile(
    r"(?:v\d[\w.]*/)?"
    r"(?:projects/[^/]+/locations/[^/]+/)?(?:publishers/[^/]+/)?"
    r"(?P<kind>models|tunedModels|endpoints)/(?P<name>[^/]+(?:/[^/]+)*):(?P<operation>\w+)/?"
)
# Stands at the beginning of every frame, so that journals keep their fingerprints: a query counted there once.
_NO_MORE = digest_of(())
_COLLECTIONS = ("tunedModels/", "endpoints/")
_SNAKE = re.compile(r"_([a-z0-9])")
_CALLS = ("functionCall", "function_call")
_RESULTS = ("functionResponse", "function_response")

_frames = Cache(4 * 1024 * 1024)
_contexts = Cache(8 * 1024 * 1024)


def gemini_operation(path: str) -> tuple[str, str] | None:
    """(model, operation) of a path, percent-encoded or not, under any version, of the Gemini API or of Vertex.

    ``None``: no operation that a dialect here understands; those are ``GENERATE`` and ``PURE``. What is no base model
    keeps its collection in its name: ``tunedModels/x``, ``endpoints/7``.
    """
    found = _PATH.fullmatch(_read(path).strip("/"))
    if found is None or found["operation"] not in GENERATE | PURE:
        return None
    named = found["name"] if found["kind"] == "models" else f"{found['kind']}/{found['name']}"
    return named, found["operation"]


def _read(path: str) -> str:
    """The path with its escapes undone, but for that of the sign with which a query would begin."""
    return query_of.unescaped(path).replace("?", "%3F")


class Gemini:
    """The dialect; see ``dialects.base.Dialect`` and ``dialects.base.Amending``."""

    name = "gemini"
    provider = "gemini"

    def parse(self, method: str, path: str, body: bytes, query: str = "") -> Call:
        path, _, counting = query_of.asked(path, query, self.provider).partition("?")
        named = gemini_operation(path)
        if named is None or named[1] not in GENERATE:
            raise BadRequest("the path names no model and operation; use models/MODEL:generateContent")
        model, operation = named
        stream = operation == "streamGenerateContent"
        shape = Shape(stream, array=stream and query_of.framing(query) != "sse")
        name = f"{model}:generateContent" if model.startswith(_COLLECTIONS) else f"models/{model}:generateContent"
        whose = _read(path).find("projects/")
        if whose >= 0 and model.startswith(_COLLECTIONS):
            # The same number names another model in another project.
            name = _read(path)[whose:].rpartition(":")[0] + ":generateContent"
        name += f"?{counting}" if counting else ""
        whole = Call(self.name, method, name, b"", b"", model=model, shape=shape)
        return read_body(
            body,
            lambda kept, fields: _parsed(whole._replace(body=kept), fields),
            lambda kept: whole._replace(body=kept, frame=digest_of((b"opaque", _NO_MORE, kept))),
        )

    def scrubbed(self, item: Item, user_text: bool) -> Scrubbed:
        value = msgspec.json.decode(item.raw)
        literals: list[str] = []
        if item.role == "system":
            text = _is_instruction(value)
            masked = _masked_content(value, literals, False) if text else _described(value, literals)
            plain = () if text else tuple(volatile.texts(_described(value, None)))
            return Scrubbed(_context_digest(masked), tuple(literals), plain)
        if item.role != "tool" and not (user_text and item.role == "user"):
            return Scrubbed(item.digest, (), tuple(volatile.texts(value)))
        masked = _masked_content(value, literals, item.role == "tool")
        return Scrubbed(sha256(canonical(_shown(masked, []))).digest(), tuple(literals), ())

    def blanked(self, item: Item) -> Blanked:
        content = msgspec.json.decode(item.raw)
        ids: list[str] = []
        for part in _parts(content):
            for result in _named(part, _RESULTS):
                if isinstance(result.get("id"), str) and result["id"]:
                    ids.append(result["id"])
                    result.update(dict.fromkeys(("response", "parts"), None))
        return Blanked(canonical(content), tuple(ids))

    def spoken(self, body: bytes) -> Any:
        """The candidates' contents, less ids and signatures."""
        candidates = msgspec.json.decode(body).get("candidates")
        contents = [found.get("content") for found in candidates or () if isinstance(found, dict)]
        for content in contents:
            for part in _parts(content):
                part.pop("thoughtSignature", None)
                for call in _named(part, _CALLS):
                    call.pop("id", None)
        return contents

    def is_stream(self, call: Call, start: bytes) -> bool:
        if call.shape.array:
            return start[:1] == b"["
        return start[:1] not in (b"{", b"[", b"<")

    def gate(self, call: Call) -> Gate:
        return ArrayGate() if call.shape.array else StreamGate()

    def judge(self, call: Call, body: bytes) -> Verdict:
        return judge_plain(body)

    def convert(self, recorded: Shape, asked: Shape, body: bytes) -> bytes:
        return gemini_shape.convert(recorded, asked, body)

    def offered(self, call: Call) -> tuple[OfferedTool, ...]:
        return gemini_results.offered(call)

    def results(self, call: Call) -> tuple[ToolResult, ...]:
        return gemini_results.results(call)

    def amended(self, call: Call, shape: Shape, body: bytes, changes: Sequence[Change], said: str) -> bytes:
        return gemini_amend.amended(shape, body, changes, said)

    def continued(self, call: Call, shape: Shape, body: bytes, results: Sequence[ToolResult]) -> bytes:
        return gemini_results.continued(call, shape, body, results)

    def content_type(self, shape: Shape) -> str:
        return "text/event-stream" if shape.stream and not shape.array else "application/json; charset=UTF-8"

    def error(self, error: AgentStateError) -> bytes:
        return gemini_error(error)

    def stream_error(self, error: AgentStateError) -> bytes:
        """As an event: an array would need to know what of it has been shown."""
        return gemini_shape.encode(gemini_error(error))


# --- the request ------------------------------------------------------------------------------------------------------


def _parsed(whole: Call, fields: Fields) -> Call:
    named: dict[str, list[bytes]] = {}
    for name, raw in sorted(fields.items()):
        plain = _SNAKE.sub(lambda found: found[1].upper(), name)
        if plain not in DENIED and raw != b"null":
            named.setdefault(plain, []).append(raw)
    contents = named.pop("contents", [])
    context = tuple(_context(name, raw) for name in ("systemInstruction", "tools") for raw in named.pop(name, ()))
    frame, choices = _frame(named)
    array = contents[0] if contents else b""
    messages = _conversations.read(array) if array else None
    if messages is None:
        # Not a list of contents: the provider will say so. It still counts in the fingerprint.
        frame = digest_of((frame, array)) if array else frame
        return whole._replace(frame=frame, choices=choices, context=context)
    return Call(
        whole.dialect, whole.method, whole.path, whole.body, frame, messages.items,
        *messages.around(array, whole.body), whole.model, choices, whole.shape, context=context,
    )  # fmt: skip


def _frame(named: dict[str, list[bytes]]) -> tuple[bytes, int]:
    """(digest of everything but contents, context and denied fields; number of candidates asked for)."""
    key = frame_key((name.encode(), raw) for name, found in named.items() for raw in found)
    known = _frames.get(key)
    if known is not None:
        return known  # type: ignore[no-any-return]
    parts = [_NO_MORE]
    choices = 1
    for name, found in named.items():
        for raw in found:
            value = msgspec.json.decode(raw)
            parts += (name.encode(), canonical(_unmarked(value)))
            if name == "generationConfig" and isinstance(value, dict):
                count = value.get("candidateCount", value.get("candidate_count"))
                choices = count if isinstance(count, int) else 1
    frame = digest_of(parts), choices
    _frames.put(key, frame)
    return frame


def _unmarked(value: Any) -> Any:
    """An object without nulls, on its own level only: below may be a user's JSON schema."""
    return {key: part for key, part in value.items() if part is not None} if isinstance(value, dict) else value


# --- contents ---------------------------------------------------------------------------------------------------------


def item_of(raw: bytes, content: dict[str, Any]) -> Item:
    """A content as the fingerprint sees it. One that holds only results of function calls has the role ``tool``."""
    ids: list[str] = []
    shown = _shown(content, ids)
    parts = list(_parts(content))
    results = [result for part in parts for result in _named(part, _RESULTS)]
    role = content.get("role") or "user"
    if results and len(results) == len(parts):
        role = "tool"
    one = results[0].get("id") if len(results) == 1 == len(parts) else None
    return Item(
        raw,
        sha256(raw).digest(),
        sha256(canonical(shown)).digest(),
        role if isinstance(role, str) else "",
        tuple(ids),
        one if isinstance(one, str) and one else None,
    )


def _shown(content: Any, ids: list[str]) -> Any:
    """The content without nulls, each call id replaced by the place at which it stands in ``ids``.

    Results of parallel calls that say which call they answer may come in any order: it is that in which their tools
    happened to finish.
    """
    shown = _unmarked(content)
    parts = shown.get("parts") if isinstance(shown, dict) else None
    if not isinstance(parts, list):
        return shown
    if len(parts) > 1 and all(_answers(part) for part in parts):
        parts = sorted(parts, key=lambda part: canonical(_renamed(part, None)))
    shown["parts"] = [_renamed(part, ids) for part in parts]
    return shown


def _answers(part: Any) -> bool:
    """Whether a part is the result of a call that it names."""
    return isinstance(part, dict) and any(result.get("id") for result in _named(part, _RESULTS))


def _renamed(part: Any, ids: list[str] | None) -> Any:
    """The part without nulls; its call id is left out where ``ids`` is ``None``, and where it is empty."""
    if not isinstance(part, dict):
        return part
    shown = _unmarked(part)
    for name in (*_CALLS, *_RESULTS):
        if not isinstance(shown.get(name), dict):
            continue
        call = _unmarked(shown[name])
        call_id = call.pop("id", None)
        if isinstance(call_id, str) and call_id and ids is not None:
            if call_id not in ids:
                ids.append(call_id)
            call["id"] = {"call": ids.index(call_id)}
        elif call_id and not isinstance(call_id, str):
            call["id"] = call_id
        shown[name] = call
    return shown


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    parts = content.get("parts") if isinstance(content, dict) else None
    found = parts if isinstance(parts, list) else [parts]
    return (part for part in found if isinstance(part, dict))


def _named(part: dict[str, Any], names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The objects that a part holds under any of these names."""
    return [part[name] for name in names if isinstance(part.get(name), dict)]


def _masked_content(content: Any, literals: list[str], results: bool) -> Any:
    """The content with its texts masked; ``results``: those in the results of functions too. It may be bare text."""
    if isinstance(content, str):
        return volatile.scrub(content, literals)
    for part in _parts(content):
        if isinstance(part.get("text"), str):
            part["text"] = volatile.scrub(part["text"], literals)
        for result in _named(part, _RESULTS) if results else ():
            result["response"] = _masked(result.get("response"), literals)
    return content


def _masked(value: Any, literals: list[str]) -> Any:
    """A JSON value with every text in it masked."""
    if isinstance(value, str):
        return volatile.scrub(value, literals)
    if isinstance(value, list):
        return [_masked(part, literals) for part in value]
    return {key: _masked(part, literals) for key, part in value.items()} if isinstance(value, dict) else value


# --- system text and tools --------------------------------------------------------------------------------------------


def _context(name: str, raw: bytes) -> Item:
    key = name.encode() + b"\0" + raw
    known: Item | None = _contexts.get(key)
    if known is None:
        known = Item(raw, sha256(raw).digest(), _context_digest(msgspec.json.decode(raw)), "system")
        _contexts.put(key, known)
    return known


def _is_instruction(value: Any) -> bool:
    """System text, a content or bare text, as against tools."""
    return isinstance(value, str) or (isinstance(value, dict) and "parts" in value)


def _context_digest(value: Any) -> bytes:
    if _is_instruction(value):
        return sha256(b"instruction\0" + canonical(_shown(value, []))).digest()
    tools = [_tool(tool) for tool in (value if isinstance(value, list) else [value])]
    return sha256(b"set\0" + b"\0".join(sorted(tools))).digest()


def _tool(tool: Any) -> bytes:
    """A tool; the order of the functions that it declares cannot change the answer."""
    shown = _unmarked(tool)
    for name in ("functionDeclarations", "function_declarations"):
        if isinstance(shown, dict) and isinstance(shown.get(name), list):
            shown[name] = sorted((_unmarked(found) for found in shown[name]), key=canonical)
    return canonical(shown)


def _described(value: Any, literals: list[str] | None) -> Any:
    """Tools with the texts of their descriptions masked, those of parameters too; ``None``: without descriptions."""
    if isinstance(value, list):
        return [_described(part, literals) for part in value]
    if not isinstance(value, dict):
        return value
    shown = {}
    for key, part in value.items():
        if key != "description" or not isinstance(part, str):
            shown[key] = _described(part, literals)
        elif literals is not None:
            shown[key] = volatile.scrub(part, literals)
    return shown


_conversations = Conversations(item_of)
