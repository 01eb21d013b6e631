"""Bars and report: ratios within one round, nothing invented, only the part between the markers written."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import bars, peers, report
from bench.bars import Bar, Measurements, Round
from bench.cells import CELLS, Summary
from bench.recovery import Recovery
from bench.storage import REPEATED, Stored


def summary(p50: float, paid: float = 1.0, errors: int = 0, n: int = 10) -> Summary:
    return Summary(n, errors, "", p50, p50 * 2, p50 / 2, p50 / 4, 1000 / p50, p50 / 3, 50_000_000, paid)


def verdict_of(found: Measurements, text: str) -> bars.Verdict:
    return next(verdict for verdict in bars.judge(found) if verdict.bar.text == text)


LITELLM = "added p50, c=1, 1 KB, of LiteLLM's"


def live(us: float, litellm: float, direct: float = 1.0) -> dict[str, dict[str, Summary]]:
    return {"json-1k-c1": {"direct": summary(direct), "agentstate": summary(us), "litellm": summary(litellm)}}


def test_added_is_the_difference_to_the_call_without_a_proxy() -> None:
    verdict = verdict_of(Measurements(rounds=[live(us=2.0, litellm=21.0)]), LITELLM)
    assert verdict.value == pytest.approx(1 / 20)
    assert verdict.met is True


def test_median_of_the_rounds_is_judged_and_never_figures_of_two_rounds() -> None:
    rounds = [live(2.0, 11.0), live(20.0, 191.0, direct=1.0), live(3.0, 5.0)]
    verdict = verdict_of(Measurements(rounds=rounds), LITELLM)
    assert verdict.value == pytest.approx(0.1)
    assert (verdict.low, verdict.high) == (pytest.approx(0.1), pytest.approx(0.5))


def test_bar_with_a_part_missing_is_not_measured() -> None:
    cells = live(2.0, 11.0)
    del cells["json-1k-c1"]["litellm"]
    verdict = verdict_of(Measurements(rounds=[cells]), LITELLM)
    assert (verdict.value, verdict.met) == (None, None)
    assert report.missed(Measurements(rounds=[cells])) == []


def test_noise_that_makes_a_peer_add_nothing_gives_no_figure() -> None:
    assert verdict_of(Measurements(rounds=[live(2.0, 1.0)]), LITELLM).value is None


def test_replay_that_reached_the_provider_is_no_replay() -> None:
    cell = {"agentstate": summary(1.0, paid=0.0), "seed": summary(9.0, paid=0.5)}
    assert Round({"replay-1k-c1": cell}).of("replay-1k-c1", "seed", "p50") is None
    cell["seed"] = summary(9.0, paid=0.0)
    assert Round({"replay-1k-c1": cell}).of("replay-1k-c1", "seed", "p50") == pytest.approx(1 / 9)


def test_errors_are_a_missed_bar_even_where_nothing_succeeded() -> None:
    cells = {"json-1k-c64": {"agentstate": summary(1.0, errors=3, n=0)}, "sse-c64": {"agentstate": summary(1.0)}}
    assert report.missed(Measurements(rounds=[cells])) == ["errors under load, c=64"]


def test_storage_is_held_against_the_first_version_and_against_its_own_growth() -> None:
    ours = {300: Stored(300, 600_000, 1_064_400), 600: Stored(600, 1_500_000, 2_128_800)}
    alike = {
        "agentstate" + REPEATED: {300: Stored(300, 600_000, 1_064_400)},
        "seed" + REPEATED: {300: Stored(300, 72_000_000, 1_064_400)},
    }
    found = Measurements(stored={"agentstate": ours, **alike})
    growth = verdict_of(found, "growth: bytes at 600 steps of bytes at 300")
    assert verdict_of(found, "bytes stored, 300 steps of 1.5 KB, of the first AgentState's").value == pytest.approx(
        1 / 120
    )
    assert (growth.value, growth.met) == (pytest.approx(2.5), False)


def test_every_bar_reads_cells_that_exist() -> None:
    everything = {
        cell.name: {name: summary(2.0 + place, paid=0.0) for place, name in enumerate(cell.targets)} for cell in CELLS
    }
    found = Measurements(rounds=[everything])
    silent = [verdict.bar.text for verdict in bars.judge(found) if verdict.bar.each and verdict.value is None]
    assert silent == []


@pytest.mark.parametrize(
    ("value", "bar", "text"),
    [
        (0.05, Bar("", 1, 1), "1/20"),
        (0.8, Bar("", 1, 1), "0.8×"),
        (12.0, Bar("", 1, 1), "12×"),
        (3.14159, Bar("", 1, 1, "ms"), "3.14 ms"),
        (0.0, Bar("", 0, 0, "count"), "0"),
    ],
)
def test_figures_read_well(value: float, bar: Bar, text: str) -> None:
    assert report.number(value, bar) == text


def test_only_the_part_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_page(page, "new")
    assert page.read_text() == f"before\n{report.BEGIN}\n\nnew\n{report.END}\nafter\n"


def test_page_without_markers_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("by hand")
    with pytest.raises(ValueError, match="needs the lines"):
        report.write_page(page, "new")
    assert page.read_text() == "by hand"


def test_saved_measurements_render_the_same_again(tmp_path: Path) -> None:
    found = Measurements(
        rounds=[live(2.0, 11.0)],
        stored={"agentstate": {300: Stored(300, 600_000, 1_064_400)}},
        recovery={"direct": Recovery(4.6, 4.7, 96, 46, {"-": 50})},
        versions={"litellm": "1.0"},
        missing={"nginx": "no nginx on PATH"},
    )
    report.save(found, tmp_path / "result.json")
    again = report.load(tmp_path / "result.json")
    assert report.render(again) == report.render(found)
    assert "Not measured: nginx: no nginx on PATH." in report.render(again)


def test_peer_that_is_not_installed_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("BENCH_LITELLM", "BENCH_PORTKEY", "BENCH_SEED"):
        monkeypatch.delenv(name, raising=False)
    for name in ("litellm", "litellm-cache", "portkey", "seed"):
        with pytest.raises(peers.NotMeasured):
            peers.every()[name].find()


def test_peer_that_dies_at_start_is_not_measured_and_says_what_it_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("BENCH_LITELLM", str(program))
    bed = peers.Bed(upstream=1, folder=tmp_path / "bed", core=None)
    with pytest.raises(peers.NotMeasured, match="no such luck"), peers.running(peers.every()["litellm"], bed):
        raise AssertionError("it must not run")
