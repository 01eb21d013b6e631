"""The command: ``python -m bench``. Owns the order of a benchmark; measuring and judging are elsewhere.

Invariant: whatever happens, every process that was started is ended and the folder it wrote to is removed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import bars, cells, peers, procs, recovery, report, storage
from bench.bars import US, Measurements
from bench.peers import Bed, NotMeasured, Target

PAGE = procs.ROOT / "docs/performance.md"
RESULTS = Path(__file__).resolve().parent / "results"
STARTS = 3
RECOVERY_WAIT_MS = 100
EXTRAS = ("recovery", "storage", "start")


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    names = ", ".join([cell.name for cell in cells.CELLS] + list(EXTRAS))
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, epilog=f"Parts for --only: {names}.")
    parser.add_argument("--quick", action="store_true", help="one short round: a look, not a figure to quote")
    parser.add_argument("--only", default="*", metavar="PART,…", help="parts by name; * stands for anything")
    parser.add_argument(
        "--rounds", type=int, default=0, metavar="N", help="rounds whose median is judged (3; 1 with --quick)"
    )
    others = ", ".join(name for name in peers.every() if name not in ("direct", US))
    parser.add_argument("--peers", default="*", metavar="NAME,…", help=f"to compare with, of {others}")
    parser.add_argument("--docs", action="store_true", help=f"write the tables into {PAGE.relative_to(procs.ROOT)}")
    parser.add_argument("--results", type=Path, metavar="FILE", help="measure nothing: render a saved result")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a bar is missed")
    return parser.parse_args(given)


def chosen(name: str, patterns: str) -> bool:
    """Whether ``name`` is meant by the comma list ``patterns``."""
    return any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


def say(text: str) -> None:
    """Progress, to stderr: stdout holds the report alone."""
    print(text, file=sys.stderr, flush=True)


class Bench:
    """One benchmark from start to end."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self._folder = options, folder
        self._core, self._proxy_core = procs.cores()
        self._haste = 0.4 if options.quick else 1.0
        self.found = Measurements(machine=procs.machine() | {"filesystem": procs.filesystem(folder)})
        self.found.machine["load"] = f"{os.getloadavg()[0]:.1f}"

    def run(self) -> Measurements:
        """Everything that was asked for. Raises ``RuntimeError`` when the bench itself fails."""
        if self._core is None:
            say("one core only: nothing is pinned, and every figure is worse than it would be")
        if self.found.machine["filesystem"] == "tmpfs":
            say(f"{self._folder} is in memory: an fsync costs nothing there (set TMPDIR to a folder on a disk)")
        if os.getloadavg()[0] > 0.3 * (os.cpu_count() or 1):
            say(f"the machine is busy (load {os.getloadavg()[0]:.1f}): wall-clock figures will be worse than they are")
        self._find()
        with procs.upstream(self._core, self._folder / "upstream.log") as port:
            self._starts(port)
            self._storage(port)
            self._rounds(port)
        return self.found

    def _wants(self, part: str) -> bool:
        return chosen(part, self._options.only)

    def _find(self) -> None:
        for name, peer in peers.every().items():
            if name not in ("direct", US) and not chosen(name, self._options.peers):
                continue
            try:
                self.found.versions[name] = peer.find()
            except NotMeasured as why:
                self._leave_out(name, str(why))

    def _leave_out(self, name: str, why: str) -> None:
        self.found.versions.pop(name, None)
        self.found.missing[name] = why
        say(f"not measured: {name}: {why}")

    def _bed(self, port: int, name: str) -> Bed:
        return Bed(port, self._folder / name, self._proxy_core)

    def _starts(self, port: int) -> None:
        """Cold starts with a new journal each; the first one, which may compile, is left out."""
        if not self._wants("start") or US not in self.found.versions:
            return
        try:
            for number in range(STARTS + 1):
                with peers.running(peers.every()[US], self._bed(port, f"start-{number}")) as target:
                    if number:
                        self.found.starts_s.append(target.started_s)
        except NotMeasured as why:
            self._leave_out(US, str(why))

    def _storage(self, port: int) -> None:
        if not self._wants("storage"):
            return
        for name, steps, kind in (
            (US, 300, ""),
            (US, 600, ""),
            (US, 300, storage.REPEATED),
            ("seed", 300, storage.REPEATED),
        ):
            if name not in self.found.versions:
                continue
            say(f"storage: {steps} steps through {name}{kind}")
            try:
                stored = storage.measure(
                    peers.every()[name],
                    self._bed(port, f"stored-{name}-{steps}{kind[-8:]}"),
                    self._core,
                    steps,
                    bool(kind),
                )
                self.found.stored.setdefault(name + kind, {})[steps] = stored
            except (NotMeasured, RuntimeError) as why:
                say(f"not measured: storage of {name}: {why}")

    def _rounds(self, port: int) -> None:
        wanted = [cell for cell in cells.CELLS if self._wants(cell.name)]
        needed = {name for cell in wanted for name in cell.targets} | ({US} if self._wants("recovery") else set())
        with contextlib.ExitStack() as stack:
            targets: dict[str, Target] = {}
            for name in list(self.found.versions):
                if name in needed or name == "direct":
                    say(f"starting {name}")
                    try:
                        targets[name] = stack.enter_context(peers.running(peers.every()[name], self._bed(port, name)))
                    except NotMeasured as why:
                        self._leave_out(name, str(why))
            if US in targets:
                self.found.rss_start = procs.usage(targets[US].pid).rss
            visitor = cells.Visitor(targets, port, self._core, self._folder / "load.log", self._haste)
            for name, failure in visitor.warm().items():
                self._leave_out(name, f"does not answer: {failure}")
                del targets[name]
            for number in range(self._options.rounds or (1 if self._options.quick else 3)):
                if wanted:
                    self.found.rounds.append(visitor.round(number, wanted, say))
                if wanted and US in targets:
                    self.found.rss_rounds.append(procs.usage(targets[US].pid).rss)
            self._recovery(port, targets)

    def _recovery(self, port: int, targets: dict[str, Target]) -> None:
        if not self._wants("recovery"):
            return
        for name in ("direct", US):
            if name in targets:
                say(f"recovery: {name}")
                try:
                    one = recovery.measure(targets[name], port, self._core, self._folder, RECOVERY_WAIT_MS)
                    self.found.recovery[name] = one
                except RuntimeError as why:
                    say(f"not measured: recovery through {name}: {why}")


def main() -> int:
    """Measures or loads, prints the report, and writes it where that was asked for. Returns the exit code."""
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.results:
        found = report.load(options.results)
    else:
        with tempfile.TemporaryDirectory(prefix="agentstate-bench-") as folder:
            found = Bench(options, Path(folder)).run()
        file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        report.save(found, file)
        report.save(found, RESULTS / "latest.json")
        say(f"saved {file.relative_to(procs.ROOT)}")
    text = report.render(found)
    print(text)
    if options.docs:
        report.write_page(PAGE, text)
    missed = report.missed(found)
    for bar in missed:
        say(f"missed: {bar}")
    measured = any(verdict.value is not None for verdict in bars.judge(found))
    return 1 if options.strict and (missed or not measured) else 0


if __name__ == "__main__":
    sys.exit(main())
