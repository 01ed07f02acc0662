"""Checks of the claims on differences: each can hold and can fail."""

from __future__ import annotations

from typing import Any

import pytest
from esdg_difference_rows import (
    private_cache,  # noqa: F401 - every test takes it
    ran,
    timed,
)
from esdg_rows import edited, number, row, row_of, seen
from esdg_rows import gain as gain_seen

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg.experiments import encoding, fig4, smoothing, table1
from dgbench.systems.esdg.experiments.settings import BY_NAME


def verdict(claim: str, rows: list[Row]) -> Any:
    return evaluate(PAPER, rows).find(f"esdg-{claim}")[1]


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


def test_table_1_of_a_twin_decides_nothing_and_of_real_data_does():
    row = ran(table1.Table1(), dataset="youtube")
    assert verdict("tab1-youtube", [row]).verdict == "not run here"
    printed = {
        key: seen(metric, BY_NAME["youtube"].printed[key], **dims)
        for key, (metric, dims) in table1.COLUMNS.items()
    }
    whole = real(row, *printed.values(), dataset="youtube")
    assert verdict("tab1-youtube", [whole]).verdict == "reproduced"
    other = real(whole, seen("edges", 14_000_000, smoothing="none"), dataset="youtube")
    found = verdict("tab1-youtube", [other])
    assert found.verdict == "contradicted"
    assert "differs in nnz;" in found.reason


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


def test_the_share_that_benefits_is_counted(counted):
    assert verdict("s62-gd-benefit-fraction", [real(counted)]).verdict == "reproduced"
    engine = timed("tm_gcn")
    assert verdict("s62-gd-benefit-fraction", [real(counted), real(engine)]).glyph == "R"
    for one, dims in (
        (counted, {"of": "kept", "blocks": 1, "ranks": 8}),
        (counted, {"of": "kept", "blocks": 4, "ranks": 128}),
        (engine, {"setting": "GD", "format": "difference"}),
    ):
        wrong = real(one, seen("snapshots", number(one, "snapshots", **dims) + 9, **dims))
        rows = [real(counted), wrong] if one is engine else [wrong]
        assert verdict("s62-gd-benefit-fraction", rows).verdict == "contradicted"


def sent(model: str, count: int, ranks: int = 1) -> Any:
    """Bytes of matrices by difference, in one block."""
    dims = {"model": model, "format": "sent", "blocks": 1, "ranks": ranks}
    return seen("topology_sent", count, **dims)


def plain(row: Row, model: str) -> int:
    return number(row, "topology_sent", model=model, format="plain")


def test_gains_that_grow_with_ranks_do_not_shrink(counted):
    assert verdict("s62-gd-gains-shrink", [real(counted)]).glyph == "p"
    one = number(counted, "topology_sent", model="tm_gcn", format="sent", blocks=1, ranks=1)
    grows = real(counted, sent("tm_gcn", one // 2, ranks=64))
    assert verdict("s62-gd-gains-shrink", [grows]).other_way
    assert verdict("s62-gd-gains-shrink", []).verdict == "not run here"


def test_raw_snapshots_of_the_generator_decide_on_cd_gcn(counted):
    assert verdict("s62-cdgcn-gd", [counted]).verdict == "not run here"  # a twin
    found = verdict("s62-cdgcn-gd", [real(counted)])
    assert found.other_way
    assert found.measured == 1.0
    half = real(counted, sent("cd_gcn", plain(counted, "cd_gcn") // 2))
    assert verdict("s62-cdgcn-gd", [half]).glyph == "p"


def test_smoothed_snapshots_gain_more(counted):
    assert verdict("s62-gd-order-smoothing", [real(counted)]).glyph == "p"
    raw = real(counted, sent("cd_gcn", plain(counted, "cd_gcn") // 5))
    assert verdict("s62-gd-order-smoothing", [raw]).other_way


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
    assert found.glyph == "p"
    assert found.measured == pytest.approx(4.1, abs=0.1)
    on_cpu = gain_row(3, "tm_gcn", transfer=(0.5, 0.4, 0.6))
    assert "on this CPU 0.5x" in verdict("abs-gd-transfer", [real(counted), on_cpu]).reason
    fast = gain_row(4, "tm_gcn", "cuda", transfer=(4.0, 3.8, 4.2))
    assert verdict("abs-gd-transfer", [real(counted), fast]).verdict == "reproduced"
    slow = gain_row(5, "tm_gcn", "cuda", transfer=(0.5, 0.4, 0.6))
    assert verdict("abs-gd-transfer", [real(counted), slow]).verdict == "contradicted"
    raw = gain_row(6, "cd_gcn", "cuda", transfer=(9.0, 8.0, 10.0))
    assert verdict("abs-gd-transfer", [raw]).verdict == "not run here"


def test_an_epoch_gains_only_beyond_the_noise_and_with_its_transfer():
    good = gain_row(1, "tm_gcn", "cuda", transfer=(3, 2, 4), epoch=(1.67, 1.6, 1.7))
    found = verdict("abs-gd-overall", [good])
    assert found.verdict == "reproduced"
    assert found.measured == pytest.approx(40, abs=1)
    noise = gain_row(2, "cd_gcn", "cuda", same=True, epoch=(1.8, 1.7, 1.9))
    assert "undecided" in verdict("abs-gd-overall", [good, noise]).reason
    other = gain_row(3, "tm_gcn", "cuda", transfer=(1, 0.9, 1.1), epoch=(1.67, 1.6, 1.7))
    assert "undecided" in verdict("abs-gd-overall", [other]).reason
    slow = gain_row(4, "tm_gcn", "cuda", transfer=(0.5, 0.4, 0.6), epoch=(0.8, 0.7, 0.9))
    assert verdict("abs-gd-overall", [slow]).verdict == "contradicted"
    on_cpu = gain_row(5, "tm_gcn", transfer=(3, 2, 4), epoch=(1.67, 1.6, 1.7))
    assert verdict("abs-gd-overall", [on_cpu]).verdict == "direction only"


def test_the_order_of_models_on_a_gpu_needs_intervals_that_do_not_meet():
    raw = gain_row(1, "cd_gcn", "cuda", transfer=(1, 0.9, 1.1))
    above = gain_row(2, "tm_gcn", "cuda", transfer=(3, 2, 4))
    assert verdict("s62-gd-order-smoothing", [raw, above]).verdict == "reproduced"
    near = gain_row(3, "tm_gcn", "cuda", transfer=(1.1, 1.0, 1.2))
    assert "undecided" in verdict("s62-gd-order-smoothing", [raw, near]).reason
    below = gain_row(4, "tm_gcn", "cuda", transfer=(0.5, 0.4, 0.6))
    assert verdict("s62-gd-order-smoothing", [raw, below]).verdict != "reproduced"


def test_what_transfers_take_of_an_epoch():
    row = gain_row(1, "tm_gcn", "cuda", transfer=(3, 2, 4))
    assert verdict("s32-transfer-important", [row]).verdict == "reproduced"
    small = real(row, seen("phase_time", 0.003, setting="Base", phase="transfer"))
    assert verdict("s32-transfer-important", [small]).verdict != "reproduced"
    assert verdict("fig4-components", [row]).verdict == "direction only"
    slow = gain_row(2, "tm_gcn", transfer=(0.5, 0.4, 0.6))
    assert verdict("fig4-components", [slow]).other_way
    assert "undecided" in verdict("fig4-components", [row, gain_row(3, "evolvegcn_o", "cuda",
        transfer=(0.3, 0.2, 0.4))]).reason  # fmt: skip


def test_settings_are_those_of_the_timed_rows():
    row = gain_row(1, "tm_gcn")
    assert verdict("s61-settings", [row]).verdict == "reproduced"
    for wrong in (
        seen("columns", 7, of="hidden"), seen("columns", 3, of="classes"), seen("turns", 4)
    ):  # fmt: skip
        assert verdict("s61-settings", [real(row, wrong)]).verdict == "contradicted"


def test_both_smoothings_of_one_length_keep_the_same_entries():
    made = ran(smoothing.Smoothing(), dataset="flickr")
    assert verdict("s54-window-equivalence", [made]).verdict == "direction only"  # a twin
    assert verdict("s54-window-equivalence", [real(made)]).verdict == "reproduced"
    wrong = real(made, seen("snapshots", 3, of="equal"))
    assert verdict("s54-window-equivalence", [wrong]).verdict == "contradicted"


def test_a_count_of_one_is_said_as_one():
    from dgbench.lab.evidence import some

    assert [some(n, "graph") for n in (0, 1, 2)] == ["0 graphs", "1 graph", "2 graphs"]
    assert some(2, "entry", "entries") == "2 entries"
