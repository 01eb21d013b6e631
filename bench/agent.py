"""An agent that works through a conversation and may be killed in the middle of a call.

    python -m bench.agent '{"port": …, "path": "/v1", "steps": 50, "wait_ms": 100, "kill_at": 45}'

Prints ``begin <ns>``, then for each answer ``<step> <CLOCK_MONOTONIC ns> <x-agentstate-outcome or ->``. With
``kill_at`` it sends that step's request and then kills itself (SIGKILL) without reading the answer. Must not remember
anything: started again it begins at step 0, as agents do. Invariant: standard library only, so that it starts at once.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from typing import Any


def work(spec: dict[str, Any]) -> None:
    """All steps; the answers go into the conversation. Raises ``SystemExit`` on any status but 200."""
    connection = http.client.HTTPConnection("127.0.0.1", spec["port"], timeout=60)
    system = f"[bench wait_ms={spec['wait_ms']} bytes=400] You are a careful agent."
    messages = [{"role": "system", "content": system}]
    headers = {"content-type": "application/json", "authorization": "Bearer sk-test-bench"}
    print(f"begin {time.monotonic_ns()}", flush=True)
    for step in range(spec["steps"]):
        messages.append({"role": "user", "content": f"Please do step {step} of the work."})
        body = json.dumps({"model": "gpt-4o-mini", "messages": messages})
        connection.request("POST", f"{spec['path']}/chat/completions", body, headers)
        if step == spec.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise SystemExit(f"step {step}: HTTP {answer.status} {content[:300]!r}")
        print(f"{step} {time.monotonic_ns()} {answer.getheader('x-agentstate-outcome', '-')}", flush=True)
        messages.append({"role": "assistant", "content": json.loads(content)["choices"][0]["message"]["content"]})


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
