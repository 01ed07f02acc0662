"""Checks of the claims on differences: each can hold and can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from esdg_difference_rows import (
    private_cache,  # noqa: F401 - every test takes it
    ran,
    row_of,
    timed,
)

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import equal
from dgbench.systems.esdg import PAPER
from dgbench.systems.esdg.experiments import encoding, fig4, smoothing, table1
from dgbench.systems.esdg.experiments.settings import BY_NAME


def verdict(claim: str, rows: list[Row]) -> Any:
    return evaluate(PAPER, rows).find(f"esdg-{claim}")[1]


def real(row: Row, dataset: str = "amlsim-20k-cycle200", **fields: Any) -> Row:
    """The same row as if it were of real data of the paper's generator."""
    data = {**row.data, "dataset": dataset, "twin": False}
    changed = {"params": {**row.params, "dataset": dataset}, "data": data, **fields}
    names = Row.__struct_fields__
    return Row(**({name: getattr(row, name) for name in names} | changed))


def edited(row: Row, edit: Callable[[dict], None]) -> Row:
    counters = dict(row.counters)
    edit(counters)
    return real(row, counters=counters)


@pytest.fixture(scope="module")
def counted() -> Row:
    params = {"part": "bytes", "dataset": "flickr"}
    return row_of("fig4", 1, params, fig4.count_bytes(BY_NAME["flickr"], "smoke"))


def test_table_1_of_a_twin_decides_nothing_and_of_real_data_does():
    row = ran(table1.Table1(), dataset="youtube")
    assert verdict("tab1-youtube", [row]).verdict == "not run here"
    graph = BY_NAME["youtube"]
    whole = real(row, "youtube", counters=row.counters | graph.printed)
    assert verdict("tab1-youtube", [whole]).verdict == "reproduced"
    other = real(row, "youtube", counters=row.counters | graph.printed | {"nnz": 14_000_000})
    found = verdict("tab1-youtube", [other])
    assert found.verdict == "contradicted"
    assert "differs in nnz;" in found.reason


def test_bytes_of_a_difference_are_16_a_r_and_4_n():
    pair, made = ran(encoding.Encoding(), part="pair"), ran(smoothing.Smoothing(), dataset="flickr")
    assert verdict("s32-gd-bytes", [pair, made]).verdict == "reproduced"
    for row, key in ((pair, "sent_bytes"), (made, "made_sent"), (made, "made_forced")):
        wrong = edited(row, lambda counters, key=key: counters.update({key: 7}))
        assert verdict("s32-gd-bytes", [wrong]).verdict == "contradicted"
    assert verdict("s32-gd-bytes", []).verdict == "not run here"


def test_the_share_that_benefits_is_counted(counted):
    assert verdict("s62-gd-benefit-fraction", [real(counted)]).verdict == "reproduced"
    engine = timed("tm_gcn")
    assert verdict("s62-gd-benefit-fraction", [real(counted), real(engine)]).glyph == "R"
    for row, key in ((counted, "kept 1 8"), (counted, "kept 4 128"), (engine, "differences GD")):
        wrong = edited(row, lambda counters, key=key: counters.update({key: counters[key] + 9}))
        rows = [real(counted), wrong] if row is engine else [wrong]
        assert verdict("s62-gd-benefit-fraction", rows).verdict == "contradicted"


def test_gains_that_grow_with_ranks_do_not_shrink(counted):
    assert verdict("s62-gd-gains-shrink", [real(counted)]).glyph == "p"
    grows = edited(counted, lambda c: c.update({"gd tm_gcn 1 64": c["gd tm_gcn 1 1"] // 2}))
    assert verdict("s62-gd-gains-shrink", [grows]).other_way
    assert verdict("s62-gd-gains-shrink", []).verdict == "not run here"


def test_raw_snapshots_of_the_generator_decide_on_cd_gcn(counted):
    assert verdict("s62-cdgcn-gd", [counted]).verdict == "not run here"  # a twin
    found = verdict("s62-cdgcn-gd", [real(counted)])
    assert found.other_way
    assert found.measured == 1.0
    half = edited(counted, lambda c: c.update({"gd cd_gcn 1 1": c["base cd_gcn"] // 2}))
    assert verdict("s62-cdgcn-gd", [half]).glyph == "p"


def test_smoothed_snapshots_gain_more(counted):
    assert verdict("s62-gd-order-smoothing", [real(counted)]).glyph == "p"
    raw = edited(counted, lambda c: c.update({"gd cd_gcn 1 1": c["base cd_gcn"] // 5}))
    assert verdict("s62-gd-order-smoothing", [raw]).other_way


def gain_row(
    number: int, model: str, device: str = "cpu", same: bool = False, **gains: tuple
) -> Row:
    """A timed row with gains of (value, low, high) by kind."""
    values = {}
    for kind in ("transfer", "epoch", "copy"):
        value, low, high = gains.get(kind, (1.0, 0.9, 1.1))
        values |= {f"gain {kind}": value, f"low {kind}": low, f"high {kind}": high}
        values |= {f"{kind} Base": 0.3 if kind == "epoch" else 0.1, f"{kind} GD": 0.1}
    counters = {"turns": 8, "hidden": 6, "classes": 2, "steps": 16, "blocks": 2}
    counters |= {"matrices Base": 100, "matrices GD": 100 if same else 30, "differences GD": 0}
    dataset = "amlsim-20k-cycle200"
    params = {"part": "timed", "dataset": dataset, "model": model}
    fields = {"values": values, "counters": counters, "deviation": {"output": 1e-7}}
    empty = {"units": {}, "samples": [0.1], "notes": [], "data": {"twin": False}}
    empty["checks"] = [equal("counters", 1, 1, against="made up")]
    found = type("Found", (), fields | empty)
    return row_of("fig4", number, params, found, device=device)


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
    small = real(row, values=row.values | {"transfer Base": 0.003})
    assert verdict("s32-transfer-important", [small]).verdict != "reproduced"
    assert verdict("fig4-components", [row]).verdict == "direction only"
    slow = gain_row(2, "tm_gcn", transfer=(0.5, 0.4, 0.6))
    assert verdict("fig4-components", [slow]).other_way
    assert "undecided" in verdict("fig4-components", [row, gain_row(3, "evolvegcn_o", "cuda",
        transfer=(0.3, 0.2, 0.4))]).reason  # fmt: skip


def test_settings_are_those_of_the_timed_rows():
    row = gain_row(1, "tm_gcn")
    assert verdict("s61-settings", [row]).verdict == "reproduced"
    for key, value in (("hidden", 7), ("classes", 3), ("turns", 4)):
        wrong = edited(row, lambda counters, pair=(key, value): counters.update([pair]))
        assert verdict("s61-settings", [wrong]).verdict == "contradicted"


def test_both_smoothings_of_one_length_keep_the_same_entries():
    made = ran(smoothing.Smoothing(), dataset="flickr")
    assert verdict("s54-window-equivalence", [made]).verdict == "direction only"  # a twin
    assert verdict("s54-window-equivalence", [real(made)]).verdict == "reproduced"
    wrong = edited(made, lambda counters: counters.update({"same_entries": 3}))
    assert verdict("s54-window-equivalence", [wrong]).verdict == "contradicted"


def test_a_count_of_one_is_said_as_one():
    from dgbench.lab.evidence import some

    assert [some(n, "graph") for n in (0, 1, 2)] == ["0 graphs", "1 graph", "2 graphs"]
    assert some(2, "entry", "entries") == "2 entries"
