"""Owns the exports that the tests of this folder read: ``python -m tests.datasets.made FOLDER`` writes one a format.

Runs where the project is installed; the tests run in an environment with the trainers' libraries alone. Invariant: the
files come from a real proxy, through the command line.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support import chat
from tests.support.exports import weather_agent, weather_model
from tests.support.proxy import Proxy
from tests.support.upstream import Upstream

SESSIONS = 12
PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
FILES = {
    "openai": "openai.jsonl", "openai-dpo": "openai-dpo.jsonl", "trl": "trl.jsonl", "trl-dpo": "trl-dpo.jsonl",
    "trajectory": "trajectory.jsonl", "parquet": "parquet.parquet",
}  # fmt: skip


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        Upstream(weather_model) as upstream,
        Proxy(Path(data) / "data", upstream.url, file="policies = []\n") as proxy,
    ):
        for number in range(SESSIONS):
            weather_agent(proxy, f"s{number}", f"Weather in Rome on day {number}?")
            proxy.control.post(f"/api/sessions/s{number}/steps/1/edit", {"text": f"Sunny, on day {number}."})
        shown = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        proxy.client.ask("picture", [{"role": "user", "content": shown}])
        for form, name in FILES.items():
            proxy.cli("export", "--format", form, "--out", str(folder / name))


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
    print(f"exports of {SESSIONS} sessions are in {sys.argv[1]}", chat.MODEL)
