"""Figure 13: what its cells measure on a CPU, and what its checks make of rows of a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gnnflow_rows import by, judged, number, row
from paper_rows import answered_by

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store.row import Row
from dgbench.lab.table import observation
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow import PAPER
from dgbench.systems.gnnflow import claims as table
from dgbench.systems.gnnflow.checks import placements
from dgbench.systems.gnnflow.experiments import fig13

CHECKS = answered_by(table.CHECKS, placements)

LEDGER = {claim.id: claim for claim in load_ledger(PAPER.ledger)}
ENOUGH = 4 << 30


def rows_of(
    name: str, limit: int = ENOUGH, ballast: int = 1 << 30, **seconds: float | str
) -> list[Row]:
    """Five rounds of each placement; words instead of seconds are a status."""
    published = {"reddit": 1_344_894, "gdelt": 191_290_000, "netflix": 200_960_000}[name]
    found = []
    for system, took in seconds.items():
        for turn in range(5):
            told = [observation("records", published, of="published")]
            told += by("memory", "of", {"limit": limit, "ballast": ballast})
            if isinstance(took, float):
                time = took * (1 + 0.01 * turn)
                told.append(observation("step_time", time, samples=[time]))
            found.append(
                row(
                    "fig13", {"dataset": name, "system": system}, told, group=name, round=turn,
                    id=f"{name}-{system}-{turn}", device="cuda", deviation={"output": 0.0},
                    status="ok" if isinstance(took, float) else took,
                )
            )  # fmt: skip
    return found


def placed(name: str, rows: list[Row]) -> tuple[Any, Any]:
    return judged(f"fig13-{name}", rows)


def test_every_claim_of_the_figure_has_a_check():
    ours = {name for name in LEDGER if name.startswith("gnnflow-fig13-")}
    assert set(CHECKS) == ours == set(fig13.Fig13.claims)
    for check in CHECKS:
        assert CHECKS[check](LEDGER[check], []).measured is None


def test_the_order_on_the_small_graph(wording):
    paper = rows_of("reddit", cpu=1.0, cuda=0.1, unified=0.11, hybrid=0.2, uva=0.4)
    finding, verdict = placed("small-graph-best", paper)
    assert (finding.holds, verdict.device, verdict.agreement) == (True, "cuda", "value")
    other = rows_of("reddit", cpu=1.0, cuda=0.3, unified=0.11, hybrid=0.2, uva=0.4)
    finding, verdict = placed("small-graph-best", other)
    assert (finding.holds, finding.undecided, verdict.agreement) == (False, False, "opposite")
    some = rows_of("reddit", cpu=1.0, cuda=0.1, unified="oom", hybrid=0.2, uva=0.4)
    finding, verdict = placed("small-graph-best", some)
    assert verdict.glyph == "-"
    wording(finding.reason)


def test_hybrid_has_to_win_on_both_graphs():
    small, large = rows_of("reddit", hybrid=0.2, uva=0.4), rows_of("gdelt", hybrid=0.4, uva=0.4)
    assert placed("hybrid-over-uva", small)[1].glyph == "-"
    assert placed("hybrid-over-uva", small + large)[1].agreement == "undecided"
    large = rows_of("gdelt", hybrid=0.2, uva=0.4)
    assert placed("hybrid-over-uva", small + large)[1].agreement == "value"
    large = rows_of("gdelt", hybrid=0.4, uva=0.2)
    assert placed("hybrid-over-uva", small + large)[1].agreement == "opposite"


def test_the_cpu_against_uva_on_the_large_graph(wording):
    assert placed("uva-below-cpu", rows_of("gdelt", cpu=0.3, uva=0.4))[1].agreement == "value"
    finding, verdict = placed(
        "uva-below-cpu", rows_of("gdelt", cpu=0.4, uva=0.3) + rows_of("netflix", cpu=0.3, uva=0.4)
    )
    assert (finding.holds, verdict.agreement) == (False, "opposite")
    wording(finding.reason)


def test_thrashing_needs_a_limit_that_can_be_kept():
    slow = {"cpu": 0.3, "hybrid": 0.1, "uva": 0.4}
    finding, verdict = placed("um-thrash", rows_of("gdelt", unified=4.0, **slow))
    assert finding.measured == "10.00x as slow as the next slowest"
    assert verdict.agreement == "value"
    finding, verdict = placed("um-thrash", rows_of("gdelt", unified=0.5, **slow))
    assert (finding.holds, verdict.agreement) == (False, "opposite")
    finding, verdict = placed("um-thrash", rows_of("gdelt", 4 << 20, unified=4.0, **slow))
    assert verdict.glyph == "-"
    assert "too small" in finding.reason


def test_thrashing_needs_a_limit_at_all(wording):
    rows = rows_of("gdelt", ballast=0, unified=4.0, cpu=0.3, hybrid=0.1, uva=0.4)
    finding, verdict = placed("um-thrash", rows)
    assert verdict.glyph == "-"
    wording(finding.reason)


def lists_row(name: str, slots: int) -> Row:
    layouts = fig13.table6.LAYOUTS
    told = [observation("vertices", 100)]
    told += by("slots", "setting", dict.fromkeys(layouts, 1000) | {"Adaptive": slots})
    told += by("list_blocks", "setting", dict.fromkeys(layouts, 600))
    told += by("list_blocks", "setting", dict.fromkeys(layouts, 9), statistic="longest")
    return row("table6", {"dataset": name, "scale": 0.1}, told, data={"twin": True, "scale": 0.1})


def test_what_fills_the_limit_depends_on_the_large_graph(wording):
    counted = rows_of("gdelt", cpu=0.3, cuda=0.1) + rows_of("netflix", cpu=0.3, cuda="oom")
    lists = [lists_row("gdelt", 1050), lists_row("netflix", 1050)]
    finding, verdict = placed("cuda-only-oom", counted + lists)
    gdelt, netflix = finding.readings.values()
    assert (gdelt.holds, netflix.holds) == (False, True)
    assert (verdict.glyph, verdict.source) == ("v", "projected")
    wording(netflix.reason)
    full = [lists_row("gdelt", 1200), lists_row("netflix", 1200)]
    assert placed("cuda-only-oom", counted + full)[1].agreement == "value"
    bare = [lists_row("gdelt", 1000), lists_row("netflix", 1000)]
    assert placed("cuda-only-oom", counted + bare)[1].agreement == "opposite"
    assert placed("cuda-only-oom", counted)[1].glyph == "-"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cells_say_what_cannot_run(device):
    cells = fig13.Fig13().cells("quick", device)
    assert len(cells) == 18
    lacking = {cell.params["system"] for cell in cells if cell.unavailable}
    assert lacking == (set(fig13.TITLES) if device == "cpu" else set())
    assert {cell.repeats for cell in cells} == ({1} if device == "cpu" else {5})


def test_a_cell_of_the_cpu_counts_and_times():
    (cell,) = (
        cell
        for cell in fig13.Fig13().cells("smoke", "cpu")
        if cell.params == {"dataset": "reddit", "system": "cpu"}
    )
    measured = fig13.Fig13().run(cell, RunContext(device="cpu", preset="smoke", threads=1))
    assert measured.data["twin"]
    assert number(measured, "records", of=None) == 2 * measured.data["edges"]
    published = number(measured, "records", of="published")
    assert published == 64 * number(measured, "records", of=None)
    rates = {of: number(measured, "throughput", of=of) for of in ("neighbours", "roots")}
    assert rates["neighbours"] > rates["roots"] > 0
    assert measured.steady


def test_samples_that_differ_fail_the_cell():
    from dgbench.kernels_cuda.temporal_sample import sample_hops
    from dgbench.kernels_cuda.temporal_store import TemporalStore

    store = TemporalStore(4)
    ids = torch.tensor([0, 1, 2])
    store.insert(ids, ids.flip(0), torch.arange(3.0, dtype=torch.float64))
    roots = torch.tensor([0, 1]), torch.tensor([9.0, 9.0], dtype=torch.float64)
    right = sample_hops(store, *roots, [2])
    assert fig13.equal_samples(right, right).passed
    store.insert(ids, ids, torch.full((3,), 5.0, dtype=torch.float64))
    wrong = fig13.equal_samples(sample_hops(store, *roots, [2]), right)
    assert not wrong.passed
    assert "hop 1" in wrong.part


def test_points_keep_what_failed():
    rows = rows_of("netflix", cpu=0.4, hybrid=0.2, cuda="oom")
    points = fig13.points(rows)
    assert [p["row"] for p in points if "value" in p] == [fig13.TITLES["hybrid"]]
    assert {p["failed"] for p in points if "failed" in p} == {"oom"}
    counted = fig13.byte_points(rows)
    assert {p["series"]: p["y"] for p in counted}["paper, Table 6"] == 4295 << 20
    assert "Netflix" in fig13.Fig13().answer(rows)
