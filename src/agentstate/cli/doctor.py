"""Owns ``agentstate doctor``. Must not mend: it says what is wrong and what to do."""

from __future__ import annotations

from rich.console import Console
from rich.progress import Progress

from agentstate.dialects import registry
from agentstate.settings import Settings, store_path
from agentstate.store import doctor as audit
from agentstate.store.reader import Reader

_MOST_SHOWN = 50


def doctor(settings: Settings) -> int:
    """Print findings; 0: none, 1: some. Raises ``StoreError`` when the file cannot be read."""
    path = store_path(settings)
    console = Console()
    reader = Reader(path, settings.store.busy_s)
    found = 0
    try:
        with Progress(console=console, transient=True) as progress:
            tasks: dict[str, object] = {}

            def told(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=total)
                progress.update(tasks[what], completed=done)  # type: ignore[arg-type]

            for finding in audit.examine(reader, registry.parse, told):
                found += 1
                if found <= _MOST_SHOWN:
                    console.print(f"[red]✗[/red] {finding.where}: {finding.what}", markup=True, highlight=False)
        steps = reader.raw("select count(*) from step").fetchone()[0]
        bodies = reader.raw("select count(*) from blob").fetchone()[0]
    finally:
        reader.close()
    if found:
        console.print(f"{path}: {found} findings. Restore a backup, or keep the file and start a new one with --db.")
        return 1
    console.print(f"{path}: sound; {steps} steps and {bodies} bodies match their hashes.")
    return 0
