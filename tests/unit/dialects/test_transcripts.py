"""Exchanges of every wire format are read as the same conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.core.dataset import unanswered
from agentstate.core.transcript import Called, Dialogue, Document, Offered, Picture, Reply, Spoken, chain
from agentstate.dialects import transcripts, translate
from agentstate.errors import Untranslatable

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome and Oslo?"},
        {
            "role": "assistant", "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
                {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "rain"},
        {"role": "tool", "tool_call_id": "c1", "content": "sun"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Tells.", "parameters": SCHEMA}}],
    "parallel_tool_calls": True,
}  # fmt: skip
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [{"text": "Weather in Rome and Oslo?"}]},
        {"role": "model", "parts": [
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "x"},
            {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "sun"}}},
            {"functionResponse": {"name": "weather", "response": {"output": "rain"}}},
        ]},
    ],
    "tools": [{"functionDeclarations": [{"name": "weather", "description": "Tells.", "parameters":
               {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}}]}, {"googleSearch": {}}],
}  # fmt: skip
OLLAMA = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome and Oslo?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Rome"}}},
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
        ]},
        {"role": "tool", "tool_name": "weather", "content": "sun"},
        {"role": "tool", "tool_name": "weather", "content": "rain"},
    ],
    "tools": CHAT["tools"],
}  # fmt: skip


def wire(dialect: str) -> bytes:
    body = json.dumps(CHAT).encode()
    if dialect in ("openai_responses", "anthropic_messages"):
        return translate.question("openai_chat", dialect, body, "claude-x" if "anthropic" in dialect else "gpt-4o").body
    return json.dumps({"gemini": GEMINI, "ollama_chat": OLLAMA}[dialect]).encode() if dialect != "openai_chat" else body


@pytest.mark.parametrize("dialect", sorted(transcripts.DIALECTS))
def test_a_question_of_every_wire_format_is_the_same_conversation(dialect: str) -> None:
    wanted, _ = transcripts.dialogue("openai_chat", json.dumps(CHAT).encode())
    found, lost = transcripts.dialogue(dialect, wire(dialect))
    assert chain(found.messages) == chain(wanted.messages)
    assert [message.role for message in found.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert [message.text for message in found.messages if message.role == "tool"] == ["sun", "rain"]
    assert unanswered((*found.messages, Spoken("assistant", ("x",)))) == ""
    [tool] = found.tools
    assert (tool.name, tool.description, json.loads(tool.schema)) == ("weather", "Tells.", SCHEMA)
    assert (transcripts.LOST_TOOLS in lost) == (dialect == "gemini")


ANSWERS: dict[str, Any] = {
    "openai_chat": {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Let me see.", "reasoning_content": "hm",
        "tool_calls": [
            {"id": "c9", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Lima"}'}},
        ],
    }}]},
    "openai_responses": {"status": "completed", "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c9", "name": "weather", "arguments": '{"city":"Lima"}'},
    ]},
    "anthropic_messages": {"stop_reason": "tool_use", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c9", "name": "weather", "input": {"city": "Lima"}},
    ]},
    "gemini": {"candidates": [{"finishReason": "STOP", "content": {"role": "model", "parts": [
        {"text": "hm", "thought": True}, {"text": "Let me see."},
        {"functionCall": {"id": "c9", "name": "weather", "args": {"city": "Lima"}}},
    ]}}]},
    "ollama_chat": {"done": True, "done_reason": "stop", "message": {
        "role": "assistant", "content": "Let me see.", "thinking": "hm",
        "tool_calls": [{"id": "c9", "function": {"name": "weather", "arguments": {"city": "Lima"}}}],
    }},
}  # fmt: skip


@pytest.mark.parametrize("dialect", sorted(transcripts.DIALECTS))
def test_an_answer_of_every_wire_format_is_the_same_answer(dialect: str) -> None:
    [found] = transcripts.replies(dialect, Dialogue(()), json.dumps(ANSWERS[dialect]).encode())
    call = Called("c9", "weather", '{"city":"Lima"}')
    assert found == Reply(Spoken("assistant", ("Let me see.",), (call,), reasoning="hm"), "tools")


@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("openai_chat", {"choices": [{"index": 0, "finish_reason": "length", "message": {"content": "x"}}]}),
        ("openai_responses", {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
        ("anthropic_messages", {"stop_reason": "max_tokens"}),
        ("gemini", {"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": [{"text": "x"}]}}]}),
        ("ollama_chat", {"done_reason": "length"}),
    ],
)
def test_an_answer_that_a_limit_cut_says_so(dialect: str, changes: dict[str, Any]) -> None:
    [found] = transcripts.replies(dialect, Dialogue(()), json.dumps(ANSWERS[dialect] | changes).encode())
    assert found.end == "length"


def test_choices_come_in_their_order() -> None:
    choices = [
        {"index": at, "finish_reason": "stop", "message": {"content": text}} for at, text in ((1, "b"), (0, "a"))
    ]
    found = transcripts.replies("openai_chat", Dialogue(()), json.dumps({"choices": choices}).encode())
    assert [reply.message.text for reply in found] == ["a", "b"]


def test_a_call_has_an_id_that_no_call_before_it_has() -> None:
    asked = Dialogue((Spoken("assistant", (), (Called("c9", "t", "{}"),)),))
    [found] = transcripts.replies("openai_chat", asked, json.dumps(ANSWERS["openai_chat"]).encode())
    assert found.message.calls[0].id == "c9_2"


def test_pictures_and_files_are_kept_as_what_they_are() -> None:
    parts = [
        {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
        {"inlineData": {"mimeType": "application/pdf", "data": "AA=="}},
        {"text": "see"},
    ]
    found, _ = transcripts.dialogue("gemini", json.dumps({"contents": [{"parts": parts}]}).encode())
    data = "base64,AA=="
    assert found.messages[0].pieces == (
        Picture(f"data:image/png;{data}"), Document("", f"data:application/pdf;{data}"), "see",
    )  # fmt: skip
    body = {"prompt": "see", "system": "Be brief.", "images": ["iVBORw0KGgo="]}
    found, _ = transcripts.dialogue("ollama_chat", json.dumps(body).encode())
    assert found.messages[1].pieces == ("see", Picture("data:image/png;base64,iVBORw0KGgo="))


def test_a_tool_of_free_text_takes_an_object() -> None:
    body = {
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "py", "input": "1+1"}}],
            },
        ],
        "tools": [{"type": "custom", "custom": {"name": "py"}}],
    }
    found, _ = transcripts.dialogue("openai_chat", json.dumps(body).encode())
    assert found.messages[1].calls == (Called("1", "py", '{"input":"1+1"}'),)
    assert json.loads(found.tools[0].schema)["required"] == ["input"]


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("openai_chat", {"messages": "x"}),
        ("openai_chat", {"messages": [{"role": "robot"}]}),
        ("anthropic_messages", {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}),
        ("openai_responses", {"input": [{"type": "computer_call"}]}),
        ("gemini", {"contents": [{"parts": [{"executableCode": {"code": "x"}}]}]}),
        ("ollama_chat", {"messages": [{"role": "user", "content": 7}]}),
    ],
)
def test_what_the_form_cannot_hold_is_refused(dialect: str, body: dict[str, Any]) -> None:
    with pytest.raises(Untranslatable):
        transcripts.dialogue(dialect, json.dumps(body).encode())


@pytest.mark.parametrize("dialect", sorted(transcripts.DIALECTS))
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":"\xff"}', b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(dialect: str, body: bytes) -> None:
    with pytest.raises(Untranslatable):
        transcripts.dialogue(dialect, body)
    with pytest.raises(Untranslatable):
        transcripts.replies(dialect, Dialogue(()), body)


def test_a_job_is_known_by_its_status() -> None:
    assert transcripts.job_of(b'{"id": "resp_1", "status": "queued"}') == "resp_1"
    assert transcripts.job_of(b'{"id": "resp_1", "status": "completed"}') == "" == transcripts.job_of(b"x")


def test_tools_that_differ_in_spelling_alone_are_one() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a.b", "a.b", "c")]
    found, _ = transcripts.dialogue("openai_chat", json.dumps({"messages": [], "tools": tools}).encode())
    assert len(found.tools) == 2 and isinstance(found.tools[0], Offered)
