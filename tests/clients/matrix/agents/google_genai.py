"""An agent on Google's Gen AI package; it calls the Python functions by itself."""

from __future__ import annotations

from typing import Any

from google import genai
from google.genai import types

from tests.clients.matrix.agents.task import STREAM, SYSTEM, TASK, TOOLS, finish, given


def main() -> None:
    client = genai.Client(http_options=types.HttpOptions(**given("base_url", "headers")))
    config: Any = types.GenerateContentConfig(system_instruction=SYSTEM, tools=list(TOOLS.values()))
    asked: dict[str, Any] = {"model": "gemini-2.5-flash", "contents": TASK, "config": config}
    if STREAM:
        finish("".join(chunk.text or "" for chunk in client.models.generate_content_stream(**asked)))
    else:
        finish(client.models.generate_content(**asked).text)


if __name__ == "__main__":
    main()
