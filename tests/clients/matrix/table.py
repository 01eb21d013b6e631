"""Owns the reference page of clients, which is made from the table of clients and the committed outcomes.

    python -m tests.clients.matrix.table                     write the page anew
    python -m tests.clients.matrix.table --collect [FOLDER]  take over what the last tests found, then write the page

Must not judge: a failure is shown as one. Invariant: the same outcomes give the same page, so that a test can hold the
page to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.clients.matrix import results
from tests.clients.matrix.clients import CLIENTS, PLAIN, STREAM, Client
from tests.clients.matrix.model import CALLS
from tests.clients.matrix.node_clients import NODE_CLIENTS
from tests.clients.matrix.results import Outcome
from tests.support.proxy import ROOT

PAGE = ROOT / "docs" / "reference" / "clients.md"
ALL: tuple[Client, ...] = (*CLIENTS, *NODE_CLIENTS)

_HEAD = f"""# Clients

Which packages are tested with AgentState, and how far each one's agents are recovered. The page is written from the
outcomes of tests with the real packages (`make test-clients` runs a part of them); failures stand in it as they are.

**The test.** An agent, the smallest that a package's users would write, does a task of {CALLS} model calls: a tool
call, another tool call, a final text. Its process is killed with SIGKILL *before* a call is answered, *during* the
answer (after its first bytes), or *after* it (the agent has the answer in hand), and started again until it is done. A
kill is survived when

* {CALLS} calls in all were paid, the ones that were cut included;
* no answer was given twice within a run, and the last run was given all of them;
* tools and final answer are those of a run that nobody disturbed, and those that the journal holds.

Every answer of the provider in this test is unlike any other, so equal output cannot come from asking twice.

## Kills survived

*Paid* is how many calls one task cost, whatever was killed; {CALLS} is right.

"""

_SET_UP = """
## Set-up

Under [`agentstate run`](cli.md#run) nothing has to be set up: these clients find the proxy by their own variables, but
for Codex, which takes `-c openai_base_url="$OPENAI_BASE_URL"`. Otherwise the address holds session and run:

```python
ROOT = "http://localhost:8080/s/SESSION/r/RUN"
BASE = ROOT + "/v1"
```

or two headers do, beside the proxy's bare address (`http://localhost:8080`, with `/v1` where BASE has it):

```python
HEADERS = {"x-agent-session-id": "SESSION", "x-agent-run-id": "RUN"}
```

RUN is a random text, made anew at every start of the agent; `agentstate.session` makes all of these.

| client | address | headers |
| --- | --- | --- |
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """The whole page."""
    lines = [
        "| client | version | wire format | plain | streamed | addresses | paid | notes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_row(client, [outcome for outcome in outcomes if outcome.client == client.name]) for client in ALL]
    failed = [outcome for outcome in outcomes if not outcome.ok]
    set_up = [f"| {client.name} | `{client.set_up}` | `{client.headers}` |" for client in ALL]
    return _HEAD + "\n".join(lines) + "\n" + _failures(failed) + _SET_UP + "\n".join(set_up) + "\n"


def _row(client: Client, outcomes: Sequence[Outcome]) -> str:
    modes = [_survived([outcome for outcome in outcomes if outcome.mode == mode]) for mode in (PLAIN, STREAM)]
    return " | ".join(
        (
            f"| {client.name}",
            ", ".join(sorted({outcome.version for outcome in outcomes})) or "not tested",
            client.wire,
            *modes,
            ", ".join(sorted({outcome.form for outcome in outcomes if outcome.ok})) or "none",
            ", ".join(sorted({str(outcome.paid) for outcome in outcomes})) or "-",
            f"{client.notes} |",
        )
    )


def _survived(outcomes: Iterable[Outcome]) -> str:
    """Kills survived of kills tried. A task that fails undisturbed says so: nothing after it counts."""
    tried = list(outcomes)
    if not tried:
        return "-"
    if any(not outcome.ok and not outcome.kills for outcome in tried):
        return "does not work"
    survived = sum(len(outcome.kills) for outcome in tried if outcome.ok)
    return f"{survived} of {sum(len(outcome.kills) for outcome in tried)}"


def _failures(failed: Sequence[Outcome]) -> str:
    if not failed:
        return ""
    lines = ["", "## What fails", "", "| client | mode | address | killed | why |", "| --- | --- | --- | --- | --- |"]
    for outcome in failed:
        why = outcome.why.replace("|", "\\|")
        killed = ", ".join(outcome.kills) or "never"
        lines.append(f"| {outcome.client} | {outcome.mode} | {outcome.form} | {killed} | {why} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page, after taking over new outcomes if that is asked for; 1 if there are none, 2 if misused."""
    if arguments and (arguments[0] != "--collect" or len(arguments) > 2):
        print("usage: python -m tests.clients.matrix.table [--collect [FOLDER]]", file=sys.stderr)
        return 2
    if arguments:
        folder = Path(arguments[1]) if len(arguments) > 1 else results.FOLDER
        names = {client.name for client in ALL}
        found = [outcome for outcome in results.collected(folder) if outcome.client in names]
        if not found:
            print(f"no outcomes in {folder}: run `make test-clients` first", file=sys.stderr)
            return 1
        results.commit(results.taken_over(results.committed(), found))
    PAGE.write_text(page(results.committed()))
    print(f"{PAGE.relative_to(ROOT)} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
