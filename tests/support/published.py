"""Owns the schema that OpenAI publishes of the lines of its fine-tuning files, as llm-comply carries it.

Must not loosen it. Invariant: what is wrong with a line is told in words; nothing is fetched.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator


@cache
def _validator(name: str) -> Draft202012Validator:
    llm_comply = pytest.importorskip("llm_comply", reason="llm-comply, which carries the schema, is not installed")
    spec = json.loads((Path(llm_comply.__file__).parent / "specs" / "openai_chat.json").read_text("utf-8"))
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": {"schemas": spec["components"]["schemas"]}}
    )


def faults(line: Any) -> list[str]:
    """What is wrong with a line for supervised fine-tuning."""
    return [
        f"{error.json_path}: {error.message[:300]}"
        for error in _validator("FineTuneChatRequestInput").iter_errors(line)
    ]


def faults_of_answer(message: Any) -> list[str]:
    """What is wrong with an answer, as it stands in a preference pair."""
    found = _validator("ChatCompletionRequestAssistantMessage").iter_errors(message)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]
