"""The official SDKs wait through a pause that is longer than their read timeout, with one request each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.clients import test_long_holds as holds
from tests.support.people import Asking
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

READ_S = 1.2
WAYS: tuple[Callable[[Any], Any], ...] = (
    holds.chat_plain, holds.chat_streamed, holds.responses_plain, holds.responses_streamed, holds.claude_plain,
    holds.claude_streamed,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_official_sdk_waits_through_a_pause(tmp_path: Path, way: Callable[[Any], Any]) -> None:
    with Upstream(holds.answer) as upstream, Proxy(tmp_path, upstream.url, file="policies = []\n") as proxy:
        proxy.control.post("/api/sessions/s/runs", {"run": "r1", "replaces": None, "supervisor_pid": None})
        proxy.control.post("/api/sessions/s/pause", {"reason": "looking"})
        base, key = f"{proxy.url}/s/s/r/r1", "sk-test-of-an-agent"
        client: Any = openai.OpenAI(base_url=f"{base}/v1", api_key=key, timeout=READ_S, max_retries=0)
        if way.__name__.startswith("claude"):
            client = anthropic.Anthropic(base_url=base, api_key=key, timeout=READ_S, max_retries=0)
        asking = Asking(lambda: way(client))
        began = time.monotonic()
        while asking.waits and time.monotonic() - began < 2 * READ_S + 0.2:
            time.sleep(0.02)
        assert asking.waits and upstream.calls == 0
        proxy.control.post("/api/sessions/s/resume", {})
        assert str(asking.answer()) == holds.ARGUMENTS
        assert upstream.calls == 1
