"""Owns a provider on loopback for pictures: it answers as its script says, fails where it should, and costs nothing.

Must not be used for tests or measurements: they have their own. Invariant: equal questions get equal answers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DOWN = "gpt-6-sol"  # a model that has no room today

Said = tuple[str, Sequence[tuple[str, dict[str, Any]]]]
"""A text and tool calls, each a name and arguments."""
Says = Callable[[list[dict[str, Any]]], Said]
"""What is said to messages."""


def answer(body: dict[str, Any], says: Says) -> tuple[int, dict[str, Any]]:
    """(status, body) of an answer to a chat request."""
    if body.get("model") == DOWN:
        return 503, {"error": {"message": "The model is overloaded, try again later.", "type": "server_error"}}
    messages = body.get("messages", [])
    text, calls = says(messages)
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{len(messages)}_{at}", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(calls)
        ]  # fmt: skip
    given, made = len(json.dumps(messages)) // 4 + 1200, max(12, len(text) // 4)
    return 200, {
        "id": f"chatcmpl-{len(messages):04d}", "object": "chat.completion", "created": 1_790_000_000,
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made,
                  "prompt_tokens_details": {"cached_tokens": given // 3}},
    }  # fmt: skip


class Provider:
    """``url`` while it stands. Use as a context manager."""

    def __init__(self, says: Says) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                status, body = answer(json.loads(self.rfile.read(length) or b"{}"), says)
                time.sleep(0.3 + length % 900 / 1000)  # a model takes its time
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing: the script tells what it does."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        Handler.wbufsize = -1  # an answer in one piece: its parts would wait for each other
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, name="provider", daemon=True).start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._server.shutdown()
        self._server.server_close()
