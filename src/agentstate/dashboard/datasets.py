"""Owns what the page of data sets shows: what an export would come to under filters, before anything is written.

Must not choose lines, nor write any: ``engine.exporting`` does. Invariant: the counts are those of the download under
the same filters, or say that they are not of all of it; redaction is on until somebody turns it off.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from agentstate import clock
from agentstate.core.dataset_filter import Filters, Format, parsed
from agentstate.engine.exporting import Export, Report
from agentstate.errors import BadRequest, NotFound
from agentstate.store.reader import Reader

LONGEST_S = 3.0  # that a page counts for
_PREVIEW, _MOST_SHOWN = 3, 4000  # lines; characters of one
# What each format is for, in the order of the list.
FORMS: Mapping[Format, str] = {
    "openai": "OpenAI chat: fine-tuning, a transcript a line",
    "openai-dpo": "OpenAI preference pairs: what people preferred",
    "trl": "TRL, supervised: arguments as objects",
    "trl-dpo": "TRL, preference pairs",
    "trajectory": "Everything, as JSON of our own",
    "parquet": "Everything, as a Parquet table",
}
# Fields of the form, by what they hold: a flag's box that is not ticked is sent as its own word.
TEXTS = ("status", "rating", "model", "since", "until", "min_cost", "max_cost", "min_steps", "per", "split", "part")
FLAGS = {"approved": False, "finished": False, "dedupe": True, "redact": True}
_OPTIONS = {"dedupe": "--no-dedupe", "redact": "--no-redact"}  # of flags that are on by themselves


@dataclass(frozen=True, slots=True)
class Counted:
    """Something, and how often."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class ReportFigures:
    """``whole``: all of the journal was looked at, else the counts are of what was; ``told``: in one sentence;
    ``tokens``: about; ``price``: USD that the answers in it cost, as far as known, of ``unpriced`` it is not."""

    whole: bool
    told: str
    lines: int
    sessions: int
    tokens: int
    bytes: int
    price: float
    unpriced: int
    left_out: tuple[Counted, ...]
    losses: tuple[Counted, ...]
    redacted: tuple[Counted, ...]
    parts: tuple[Counted, ...]
    warnings: tuple[str, ...]
    preview: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DatasetsPage:
    """``given``: the form's fields as they stand; ``flags``: its boxes; ``fault``: why they cannot be used; ``report``:
    ``None`` where they cannot."""

    format: Format
    given: dict[str, str]
    flags: dict[str, bool]
    fault: str
    report: ReportFigures | None
    download: str
    command: str


def pairs_of(query: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The names and values of an export that a form's fields ask for: without empty ones, lists taken apart, and each
    flag once."""
    found: list[tuple[str, str]] = []
    flags: dict[str, str] = {}
    for name, value in query:
        text = value.strip()
        if name in FLAGS:
            flags[name] = text
        elif name in ("session", "label"):
            found += [(name, part.strip()) for part in text.split("," if name == "label" else "\n") if part.strip()]
        elif text:
            found.append((name, text))
    return found + list(flags.items())


def datasets_page(reader: Reader, query: list[tuple[str, str]], patterns: Iterable[str]) -> DatasetsPage:
    """In a thread: it counts for ``LONGEST_S`` at most."""
    pairs = pairs_of(query)
    typed = {name: value for name, value in pairs if name in TEXTS}
    typed["session"] = "\n".join(value for name, value in pairs if name == "session")
    typed["label"] = ", ".join(value for name, value in pairs if name == "label")
    given = dict.fromkeys((*TEXTS, "session", "label"), "") | typed
    try:
        filters, form = parsed(pairs)
        report = counted(reader, filters, form, patterns)
    except (BadRequest, NotFound) as error:
        flags = {name: dict(pairs).get(name, str(on)).lower() == "true" for name, on in FLAGS.items()}
        return DatasetsPage("openai", given, flags, error.message, None, "", "")
    flags = {name: bool(getattr(filters, name)) for name in FLAGS}
    return DatasetsPage(form, given, flags, "", report, download(pairs), command(pairs, form))


def counted(reader: Reader, filters: Filters, form: Format, patterns: Iterable[str]) -> ReportFigures:
    """What an export comes to, as far as it is looked at in time. Raises ``NotFound``, ``BadRequest``."""
    export = Export(reader, filters, form, patterns)
    until, whole = clock.monotonic() + LONGEST_S, True
    for line in export.lines():
        if len(export.report.preview) < _PREVIEW:
            export.report.preview.append(line.text.decode())
        if clock.monotonic() > until:
            whole = False
            break
    return _figures(export.report, form, whole)


def _figures(report: Report, form: Format, whole: bool) -> ReportFigures:
    return ReportFigures(
        whole, report.told(), report.lines, report.sessions, report.tokens, report.bytes, report.price,
        report.unpriced, _most(report.left_out), _most(report.losses), _most(report.redacted), _most(report.parts),
        tuple(report.warnings(form)), tuple(_shown(text) for text in report.preview),
    )  # fmt: skip


def _most(counts: Mapping[str, int]) -> tuple[Counted, ...]:
    return tuple(Counted(name, count) for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _shown(text: str) -> str:
    """A line of the preview, laid out; a long one is cut."""
    laid = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return laid if len(laid) <= _MOST_SHOWN else f"{laid[:_MOST_SHOWN]}\n… {len(laid) - _MOST_SHOWN:,} characters more"


def download(pairs: list[tuple[str, str]]) -> str:
    """Where the lines are."""
    return "/api/export/dataset" + (f"?{urlencode(pairs)}" if pairs else "")


def command(pairs: list[tuple[str, str]], form: Format) -> str:
    """The same on the command line."""
    words = ["agentstate", "export"]
    words += [value for name, value in pairs if name == "session"]
    words += ["--format", form, "--out", f"dataset.{'parquet' if form == 'parquet' else 'jsonl'}"]
    for name, value in pairs:
        if name in FLAGS:
            on = value.lower() in ("1", "true", "yes")
            if on != FLAGS[name]:
                words.append(_OPTIONS.get(name, f"--{name}"))
        elif name not in ("session", "format", "part"):
            words += [f"--{name.replace('_', '-')}", value]
    return shlex.join(words)
