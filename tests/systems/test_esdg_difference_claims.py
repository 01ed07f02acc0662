"""Checks of the claims on differences: each can hold and can fail."""

from __future__ import annotations

from typing import Any

import pytest
from esdg_difference_rows import (
    private_cache,  # noqa: F401 - every test takes it
    ran,
    timed,
)
from esdg_rows import edited, judge, number, processes, row, row_of, seen
from esdg_rows import gain as gain_seen

from dgbench.harness.store.row import Row
from dgbench.systems.esdg.experiments import encoding, fig4, smoothing, table1
from dgbench.systems.esdg.experiments.settings import BY_NAME

verdict = judge


def real(old: Row, *observed: Any, dataset: str = "amlsim-20k-cycle200") -> Row:
    """The same row as if it were of real data of the paper's generator, with other numbers."""
    data = {**old.data, "dataset": dataset, "twin": False}
    return edited(old, *observed, params={**old.params, "dataset": dataset}, data=data)


@pytest.fixture(scope="module")
def counted() -> Row:
    experiment = fig4.Fig4()
    wanted = {"part": "bytes", "dataset": "flickr"}
    (cell,) = (c for c in experiment.cells("smoke", "cpu") if c.params.items() >= wanted.items())
    return row_of(cell, fig4.count_bytes(BY_NAME["flickr"], "smoke"))


def test_table_1_of_a_twin_decides_nothing_and_of_real_data_does(wording):
    row = ran(table1.Table1(), dataset="youtube")
    assert verdict("tab1-youtube", [row]).verdict == "not run here"
    printed = {
        key: seen(metric, BY_NAME["youtube"].printed[key], **dims)
        for key, (metric, dims) in table1.COLUMNS.items()
    }
    whole = real(row, *printed.values(), dataset="youtube")
    whole = edited(whole, data={**whole.data, "scale": 1.0})
    assert verdict("tab1-youtube", [whole]).verdict == "reproduced"
    assert verdict("tab1-youtube", [whole]).strength == "strong"
    part = edited(whole, data={**whole.data, "scale": 0.5})
    assert verdict("tab1-youtube", [part]).glyph == "S"  # a part of it says less
    other = real(whole, seen("edges", 14_000_000, smoothing="none"), dataset="youtube")
    found = verdict("tab1-youtube", [other])
    assert found.verdict == "contradicted"
    wording(found.reason)


def test_bytes_of_a_difference_are_16_a_r_and_4_n():
    pair, made = ran(encoding.Encoding(), part="pair"), ran(smoothing.Smoothing(), dataset="flickr")
    assert verdict("s32-gd-bytes", [pair, made]).verdict == "reproduced"
    for one, dims in (
        (pair, {"format": "sent"}),
        (made, {"format": "sent", "of": "made"}),
        (made, {"format": "forced", "of": "made"}),
    ):
        wrong = real(one, seen("topology_sent", 7, **dims))
        assert verdict("s32-gd-bytes", [wrong]).verdict == "contradicted"
    assert verdict("s32-gd-bytes", []).verdict == "not run here"


def test_the_share_that_benefits_is_arithmetic_and_still_counted(counted):
    found = verdict("s62-gd-benefit-fraction", [real(counted)])
    assert (found.glyph, found.strength) == ("=", "")
    engine = timed("tm_gcn")
    good = verdict("s62-gd-benefit-fraction", [real(counted), real(engine)])
    assert good.measured == found.measured != "other shares"
    for one, dims in (
        (counted, {"of": "kept", "blocks": 1, "ranks": 8}),
        (counted, {"of": "kept", "blocks": 4, "ranks": 128}),
        (engine, {"setting": "GD", "format": "difference"}),
    ):
        wrong = real(one, seen("snapshots", number(one, "snapshots", **dims) + 9, **dims))
        rows = [real(counted), wrong] if one is engine else [wrong]
        assert verdict("s62-gd-benefit-fraction", rows).measured == "other shares"


def sent(model: str, count: int, ranks: int = 1) -> Any:
    """Bytes of matrices by difference, in one block."""
    dims = {"model": model, "format": "sent", "blocks": 1, "ranks": ranks}
    return seen("topology_sent", count, **dims)


def plain(row: Row, model: str) -> int:
    return number(row, "topology_sent", model=model, format="plain")


def test_gains_that_grow_with_ranks_do_not_shrink(counted):
    found = verdict("s62-gd-gains-shrink", [real(counted)])
    assert (found.glyph, found.data) == ("S", "other")  # a small run is another graph
    one = number(counted, "topology_sent", model="tm_gcn", format="sent", blocks=1, ranks=1)
    grows = real(counted, sent("tm_gcn", one // 2, ranks=64))
    assert verdict("s62-gd-gains-shrink", [grows]).glyph == "O"
    assert verdict("s62-gd-gains-shrink", []).glyph == "-"


def test_raw_snapshots_of_the_generator_decide_on_cd_gcn(counted):
    assert verdict("s62-cdgcn-gd", [counted]).glyph == "-"  # a twin
    found = verdict("s62-cdgcn-gd", [real(counted)])
    assert (found.glyph, found.source) == ("S", "projected")
    half = real(counted, sent("cd_gcn", plain(counted, "cd_gcn") // 2))
    assert verdict("s62-cdgcn-gd", [half]).glyph == "S"
    third = real(counted, sent("cd_gcn", plain(counted, "cd_gcn") // 3))
    broken = verdict("s62-cdgcn-gd", [third])  # as sent; forced ones stay below the bound
    assert set(broken.readings.values()) == {"opposed", "supported"}


def test_smoothed_snapshots_gain_more(counted):
    assert verdict("s62-gd-order-smoothing", [real(counted)]).glyph == "S"
    raw = real(counted, sent("cd_gcn", plain(counted, "cd_gcn") // 5))
    assert verdict("s62-gd-order-smoothing", [raw]).glyph == "O"


def gain_row(
    place: int, model: str, device: str = "cpu", same: bool = False, **gains: tuple
) -> Row:
    """A timed row with gains of (value, low, high) of the epoch and its phases."""
    pair = {"setting": "GD", "baseline": "Base"}
    found = [
        seen("turns", 8),
        seen("columns", 6, of="hidden"),
        seen("columns", 2, of="classes"),
        seen("snapshots", 16),
        seen("timeline_blocks", 2),
        seen("topology_sent", 100, setting="Base"),
        seen("topology_sent", 100 if same else 30, setting="GD"),
        seen("snapshots", 0, setting="GD", format="difference"),
        seen("epoch_time", 0.3, setting="Base"),
        seen("epoch_time", 0.1, setting="GD"),
        gain_seen(*gains.get("epoch", (1.0, 0.9, 1.1)), **pair),
    ]
    for phase in ("transfer", "copy"):
        found += [seen("phase_time", 0.1, setting=name, phase=phase) for name in ("Base", "GD")]
        found.append(gain_seen(*gains.get(phase, (1.0, 0.9, 1.1)), phase=phase, **pair))
    params = {"part": "timed", "dataset": "amlsim-20k-cycle200", "model": model}
    return row("fig4", params, *found, id=f"fig4-{place}", device=device, preset="quick",
               deviation={"output": 1e-7}, data={"twin": False})  # fmt: skip


def test_the_transfer_gain_is_projected_on_a_cpu_and_measured_on_a_gpu(counted):
    found = verdict("abs-gd-transfer", [real(counted)])
    assert set(found.readings) == {"matrices", "matrices and inputs"}
    assert (found.glyph in "Ssv", found.source) == (True, "projected")
    on_cpu = gain_row(3, "tm_gcn", transfer=(0.5, 0.4, 0.6))
    assert verdict("abs-gd-transfer", [real(counted), on_cpu]).readings == found.readings
    fast = processes(gain_row(4, "tm_gcn", "cuda", transfer=(4.0, 3.8, 4.2)))
    measured = verdict("abs-gd-transfer", [real(counted), *fast])
    assert (measured.agreement, measured.source, len(measured.rows)) == ("value", "timed", 5)
    slow = processes(gain_row(5, "tm_gcn", "cuda", transfer=(0.5, 0.4, 0.6)))
    assert verdict("abs-gd-transfer", [real(counted), *slow]).agreement == "opposite"
    raw = gain_row(6, "cd_gcn", "cuda", transfer=(9.0, 8.0, 10.0))
    assert verdict("abs-gd-transfer", [raw]).glyph == "-"


def test_the_papers_graphs_count_before_those_that_stand_in(counted):
    small = real(counted, sent("tm_gcn", plain(counted, "tm_gcn") // 9))
    alone, beside = (verdict("abs-gd-transfer", rows) for rows in ([counted], [counted, small]))
    assert alone.readings == beside.readings
    assert alone.measured == beside.measured  # not the larger gain of a small run


def test_an_epoch_gains_only_beyond_the_noise():
    good = processes(gain_row(1, "tm_gcn", "cuda", epoch=(1.67, 1.6, 1.7)))
    found = verdict("abs-gd-overall", good)
    assert (found.agreement, found.source) == ("value", "timed")
    assert found.measured == pytest.approx(40, abs=1)
    assert "5 processes" not in " ".join(found.lacks)
    one = verdict("abs-gd-overall", good[:1])
    assert "1 of 5 processes" in one.lacks
    level = gain_row(2, "tm_gcn", "cuda", epoch=(1.05, 0.95, 1.15))
    assert verdict("abs-gd-overall", [level]).glyph == "u"
    near = gain_row(3, "tm_gcn", "cuda", epoch=(1.03, 1.02, 1.04))
    assert verdict("abs-gd-overall", [near], floor=0.1).glyph == "u"
    assert verdict("abs-gd-overall", [near]).agreement == "direction"
    assert verdict("abs-gd-overall", [near], floor=None).glyph == "u"
    slow = gain_row(4, "tm_gcn", "cuda", epoch=(0.8, 0.7, 0.9))
    assert verdict("abs-gd-overall", [slow]).agreement == "opposite"
    on_cpu = verdict("abs-gd-overall", [gain_row(5, "tm_gcn", epoch=(1.67, 1.6, 1.7))])
    assert (on_cpu.glyph, "a CPU stands for a GPU" in on_cpu.lacks) == ("S", True)


def test_the_order_of_models_on_a_gpu_needs_intervals_that_do_not_meet():
    raw = gain_row(1, "cd_gcn", "cuda", transfer=(1, 0.9, 1.1))
    above = gain_row(2, "tm_gcn", "cuda", transfer=(3, 2, 4))
    assert verdict("s62-gd-order-smoothing", [raw, above]).agreement == "value"
    near = gain_row(3, "tm_gcn", "cuda", transfer=(1.1, 1.0, 1.2))
    assert verdict("s62-gd-order-smoothing", [raw, near]).glyph == "u"
    below = gain_row(4, "tm_gcn", "cuda", transfer=(0.5, 0.4, 0.6))
    assert verdict("s62-gd-order-smoothing", [raw, below]).agreement == "opposite"


def test_transfers_have_to_matter_on_every_graph_and_model():
    row = gain_row(1, "tm_gcn", "cuda", transfer=(3, 2, 4))
    assert verdict("s32-transfer-important", [row]).agreement == "value"
    small = seen("phase_time", 0.003, setting="Base", phase="transfer")
    other = edited(gain_row(2, "cd_gcn", "cuda"), small)
    assert verdict("s32-transfer-important", [other]).agreement == "opposite"
    more = gain_row(3, "evolvegcn_o", "cuda")
    assert verdict("s32-transfer-important", [row, other, more]).agreement == "opposite"


def test_bars_without_a_statement_are_shown_and_decide_nothing():
    found = verdict("fig4-components", [gain_row(1, "tm_gcn", "cuda", transfer=(3, 2, 4))])
    assert (found.glyph, found.measured["transfer share, Base"]) == ("=", "33%")


def test_settings_are_no_evidence():
    found = verdict("s61-settings", [gain_row(1, "tm_gcn")])
    assert (found.glyph, found.measured["epochs_averaged"]) == ("=", 8)


def test_both_smoothings_of_one_length_keep_the_same_entries():
    made = ran(smoothing.Smoothing(), dataset="flickr")
    found = verdict("s54-window-equivalence", [real(made)])
    assert (found.glyph, found.measured) == ("=", "the same entries")
    wrong = real(made, seen("snapshots", 3, of="equal"))
    assert verdict("s54-window-equivalence", [wrong]).measured == "other entries"


def test_a_count_of_one_is_said_as_one():
    from dgbench.lab.evidence import some

    assert [some(n, "graph") for n in (0, 1, 2)] == ["0 graphs", "1 graph", "2 graphs"]
    assert some(2, "entry", "entries") == "2 entries"
