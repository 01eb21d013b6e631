"""What a request looks up, the names of an answer, and the fields of a form."""

from __future__ import annotations

import json

import pytest

from agentstate.core.model import Shape
from agentstate.dialects import lookups
from agentstate.dialects.lookups import COMPLETION, CONVERSATION, RESPONSE, Lookup, lookup
from agentstate.dialects.multipart import fields
from agentstate.dialects.responses_job import working


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("responses/resp_1", Lookup(RESPONSE, "resp_1")),
        ("openai/v1/responses/resp.1~x", Lookup(RESPONSE, "resp.1~x")),
        ("responses/resp_1/cancel", Lookup(RESPONSE, "resp_1", "cancel")),
        ("responses/resp_1/input_items/a", Lookup(RESPONSE, "resp_1", "input_items/a")),
        ("responses/compact", None),
        ("responses", None),
        ("chat/completions", Lookup(COMPLETION, "")),
        ("chat/completions/c1/messages", Lookup(COMPLETION, "c1", "messages")),
        ("conversations/conv_1/items", Lookup(CONVERSATION, "conv_1", "items")),
        ("conversations/conv_1", None),
        ("models", None),
    ],
)
def test_what_a_path_looks_up_is_told_by_kind_name_and_what_is_below(path: str, found: Lookup | None) -> None:
    assert lookup(path) == found


def test_answer_has_the_names_of_itself_and_of_its_conversation() -> None:
    plain = json.dumps({"id": "resp_1", "conversation": {"id": "conv_1"}, "output": [{"id": "fc_1"}]}).encode()
    assert lookups.names(b"{}", Shape(), plain) == ("resp_1", "conv_1")
    assert lookups.names(b'{"conversation":"conv_2"}', Shape(), b"not json") == ("conv_2",)
    chunks = (
        b'data: {"id":"c1"}\n\n: x\n\ndata: {"response":{"id":"resp_2","conversation":"conv_3"}}\n\ndata: [DONE]\n\n'
    )
    assert lookups.names(b'{"conversation":{"id":"conv_2"}}', Shape(True), chunks) == (
        "conv_2",
        "c1",
        "resp_2",
        "conv_3",
    )
    many = b"".join(b'data: {"id":"c%d"}\n\n' % number for number in range(1000))
    assert len(lookups.names(b"{}", Shape(True), many)) == lookups._MOST


def test_job_under_way_says_nothing_that_the_model_said() -> None:
    said = {"id": "resp_1", "object": "response", "status": "completed", "output": [{"x": "secret"}], "model": "m",
            "output_text": "secret", "unheard_of": "secret", "usage": {"output_tokens": 7}, "tools": [{"name": "t"}],
            "incomplete_details": {"reason": "secret"}, "completed_at": 7}  # fmt: skip
    shown = json.loads(working(json.dumps(said).encode()))
    assert shown == {
        "id": "resp_1", "object": "response", "status": "in_progress", "output": [], "model": "m", "usage": None,
        "tools": [{"name": "t"}], "incomplete_details": None, "error": None,
    }  # fmt: skip
    assert json.loads(working(b"[]"))["status"] == "in_progress"


@pytest.mark.parametrize("line", [b"\r\n", b"\n"])
@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b0", 'Multipart/Mixed; x=1; Boundary="b0"'])
def test_fields_of_a_form_are_found_in_every_spelling(kind: str, line: bytes) -> None:
    body = (
        b'before\n--b0\nContent-Disposition: form-data; filename="a; name=b"; name="tools"\nX: y\n\n[1,\n2]\n'
        b"--b0\nContent-Disposition: form-data; name=purpose\n\nbatch\n--b0\n\nno name\n--b0--\nafter"
    ).replace(b"\n", line)
    found = [("tools", b"[1,\n2]".replace(b"\n", line)), ("purpose", b"batch"), ("", b"no name")]
    assert fields(kind, body) == found


@pytest.mark.parametrize("kind", ["", "application/json; boundary=b0", "multipart/form-data", "multipart/x; boundary="])
def test_what_is_no_form_has_no_fields(kind: str) -> None:
    assert fields(kind, b"--b0\n\nx\n--b0--") == []
