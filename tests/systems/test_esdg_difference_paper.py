"""ESDG's Table 1, smoothing, encoding and Figure 4: what is counted, timed, drawn and claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import csr_of, tiny_sequence

from dgbench.datasets.transforms import EdgeLives, edge_life
from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.store.row import Row
from dgbench.kernels_cuda.difference import count_changes, encode, encode_sequence, rebuild
from dgbench.runtime.errors import CheckFailed
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base import RunContext, get_system
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg import PAPER, EsdgTrainer
from dgbench.systems.esdg.experiments import encoding, fig4, smoothing, table1
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, formula
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODELS, RANKS
from dgbench.systems.esdg.transfer import Delivery, Form, slots_for

SMOKE = RunContext("cpu", "smoke", 1, budget_s=0.01)
GRAPHS = st.integers(2, 6).flatmap(
    lambda nodes: st.lists(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=12).map(
            lambda pairs: csr_of(pairs, nodes)
        ),
        min_size=2,
        max_size=7,
    )
)


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "esdg-difference"
    monkeypatch.setenv("DGBENCH_CACHE", str(folder))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


def changes_of(snapshots: list, life: int) -> Changes:
    return Changes.of(EdgeLives.of_snapshots(snapshots), life)


# Counting


@given(GRAPHS, st.integers(1, 4), st.booleans(), st.sampled_from(["int64", "int32"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counted_bytes_are_those_of_the_encoded_snapshots(raw, life, fallback, index, loops):
    smoothed = edge_life(raw, life)
    changes = changes_of(raw, life)
    restarts = {0, len(raw) // 2}
    sent = encode_sequence(
        smoothed, restarts=restarts, index=index, fallback=fallback, self_loops=loops
    )
    found = changes.sent(
        restarts, index=index, fallback=fallback, loops=raw[0].num_rows if loops else 0
    )
    assert found == sum(d.nbytes for d in sent)
    assert changes.plain(index) == (20 if index == "int64" else 12) * sum(c.nnz for c in smoothed)
    pairs = [count_changes(a, b) for a, b in pairwise(smoothed)]
    assert [*zip(changes.removed[1:], changes.added[1:], strict=True)] == pairs


def test_the_share_of_changes_gives_the_gain():
    first, second = csr_of([(0, 1), (1, 2), (2, 3), (3, 0)], 4), csr_of([(0, 1), (1, 2)], 4)
    changes = changes_of([first, second, first], 1)
    assert changes.share == 4 / 6
    steady = changes.plain() - 80
    assert steady / (changes.sent(fallback=False) - 80) == pytest.approx(formula(changes.share))
    assert formula(0) == 5.0
    assert formula(0, "int32") == 3.0
    assert formula(0.055) == pytest.approx(4.1, abs=0.01)
    assert formula(1) == 1.0
    assert changes_of([csr_of([], 3)] * 2, 1).share == 0.0


def test_first_and_last_snapshots_of_a_count():
    changes = Changes(*(np.arange(5) + k for k in range(3)))
    assert changes.first(2).added.tolist() == [1, 2]
    assert changes.last(2).removed.tolist() == [5, 6]
    assert changes.last(None) is changes


@given(GRAPHS, st.floats(0, 8))
@settings(max_examples=40, deadline=None)
def test_the_smallest_life_that_reaches_a_ratio(raw, ratio):
    lives = EdgeLives.of_snapshots(raw)
    total = [int(lives.entries(life).sum()) for life in range(1, len(raw) + 1)]
    enough = [life for life, n in enumerate(total, 1) if n >= ratio * total[0]]
    assert table1.smallest_life(lives, ratio) == (enough[0] if enough else None)


@pytest.mark.parametrize(
    ("counted", "printed", "same"),
    [
        (13_668_320, 13_000_000, True),  # cut, as the paper does
        (13_400_000, 13_000_000, True),
        (14_000_000, 13_000_000, False),
        (12_500_000, 13_000_000, True),
        (12_400_000, 13_000_000, False),
        (501, 501, True),
        (502, 501, False),
        (1_038_999_999, 1_038_000_000, True),
        (1_040_000_000, 1_038_000_000, False),
    ],
)
def test_printed_digits(counted, printed, same):
    assert table1.same_printed(counted, printed) is same


@given(st.integers(1, 300), st.sampled_from([1, 2, 4]), st.sampled_from(RANKS))
def test_runs_cover_every_snapshot_once(steps, blocks, ranks):
    blocks = min(blocks, steps)
    runs = fig4.runs_of(steps, blocks, ranks)
    assert len(runs) == ranks
    assert sorted(t for own in runs for run in own for t in run) == list(range(steps))


def test_bytes_by_ranks_are_those_the_engine_prepares():
    """Every rank's Delivery encodes its own runs; together they send what was counted."""
    raw = tiny_sequence(snapshots=12, features=2)
    data = replace(raw, topology=edge_life(raw.topology, 3))
    changes = changes_of(list(raw.topology), 3)
    for ranks in (1, 2, 3):
        runs = fig4.runs_of(12, 2, ranks)
        found = fig4._by_ranks(changes, runs, 4 * 2 * raw.num_nodes)
        for kind, fallback in (("gd", True), ("forced", False)):
            sent, busiest = 0, 0
            for own in runs:
                meter = Meter()
                delivery = Delivery(
                    data,
                    [t for run in own for t in run],
                    Form(fallback=fallback),
                    "sym",
                    open_link("cpu", meter, slots=slots_for(12)),
                    meter,
                )
                delivery.prepare(own)
                matrices = delivery.topology_bytes(own)
                sent += matrices
                busiest = max(busiest, matrices + delivery.feature_bytes(own))
                delivery.close()
            assert found[kind] == sent
            if kind == "gd":
                assert found["rank_gd"] == busiest


@pytest.mark.parametrize("model", MODELS)
def test_an_epoch_sends_the_counted_matrices_twice(model):
    raw = tiny_sequence(snapshots=9, features=2)
    work = TimelineWorkload(dataset="tiny", model=model, window=3)
    changes = changes_of(list(raw.topology), 1).first(8)
    for on, counted in ((False, changes.plain()), (True, changes.sent({0, 4}))):
        switches = get_system("esdg").switches({**fig4.PAPER, "difference": on})
        trainer = EsdgTrainer(work, raw, switches, nb=2)
        trainer.step(0)
        assert trainer.meter.counters["bytes_topology"] == fig4.PASSES * counted
        assert trainer.meter.counters["bytes_features"] == 2 * 8 * 4 * 2 * raw.num_nodes
        trainer.close()


# Experiments


def ran(experiment: Any, number: int = 0, /, **params: Any) -> Row:
    """A real row of a smoke run: the first cell with these params."""
    cells = [c for c in experiment.cells("smoke", "cpu") if params.items() <= c.params.items()]
    found = experiment.run(cells[0], SMOKE)
    return row_of(experiment.name, number, cells[0].params, found)


def row_of(experiment: str, number: int, params: dict, found: Any, **fields: Any) -> Row:
    plain = {
        "id": f"{experiment}-{number}",
        "run": "test",
        "cell_hash": str(number),
        "paper": "esdg",
        "experiment": experiment,
        "params": params,
        "group": "g",
        "round": 1,
        "device": "cpu",
        "preset": "quick",
        "status": "ok",
    }
    names = ("values", "units", "counters", "samples", "deviation", "data", "notes")
    return Row(**(plain | {name: getattr(found, name) for name in names} | fields))


def failed(experiment: str, number: int = 9, /, **params: Any) -> Row:
    return Row(
        id=f"{experiment}-{number}",
        run="test",
        cell_hash=str(number),
        paper="esdg",
        experiment=experiment,
        params=params,
        group="g",
        round=1,
        device="cpu",
        preset="quick",
        status="oom",
        reason="21 of 24 GiB",
    )


def points_of(experiment: Any, rows: list[Row]) -> dict[str, list[dict]]:
    return {figure.name: figure.points(rows) for figure in experiment.figures()}


def test_table_1_counts_a_twin_and_finds_its_lives():
    row = ran(table1.Table1(), dataset="youtube")
    graph = BY_NAME["youtube"]
    assert row.counters["T"] == graph.printed["T"]
    assert row.counters["nnz"] <= row.counters["events"]
    found = Occurrences.of(graph, "smoke")
    made = sum(csr.nnz for csr in found.snapshots(life=graph.edge_life))
    assert row.counters["edge_life"] == made
    assert abs(row.counters["found edge_life"] - graph.edge_life) <= 2
    points = points_of(table1.Table1(), [row, failed("table1", dataset="flickr")])["table1"]
    assert {p["claim"] for p in points if p.get("failed")} == {
        "flickr M_product / nnz",
        "flickr edge_life / nnz",
    }
    for point in points:
        if not point.get("failed"):
            assert point["measured"] == pytest.approx(point["paper"], rel=0.05)
    assert "youtube l = " in table1.Table1().answer([row])
    assert table1.Table1().answer([]) == ""


def test_smoothing_sends_what_was_counted_and_both_smoothings_keep_the_same():
    row = ran(smoothing.Smoothing(), dataset="flickr")
    counters = row.counters
    assert counters["made_life"] == BY_NAME["flickr"].edge_life
    assert counters["made_sent"] == counters[f"sent {counters['made_life']}"]
    assert counters["same_entries"] == counters["made_snapshots"] == 134
    assert row.values["normalised_gap"] > 0
    for life in smoothing.LIVES:
        share = row.values[f"delta {life}"]
        left = counters[f"plain {life}"] - 20 * counters[f"first {life}"]
        sent = counters[f"forced {life}"] - 20 * counters[f"first {life}"]
        assert left / sent == pytest.approx(formula(share), rel=1e-9)
        narrow = counters[f"plain32 {life}"] / counters[f"sent32 {life}"]
        assert narrow <= 3 < 5
    gains = [smoothing.gain(row, life) for life in smoothing.LIVES]
    assert gains == sorted(gains)
    assert gains[0] == 1 > smoothing.gain(row, 1, forced=True)
    assert smoothing.gain(row, 1, loops=True) > 1
    assert formula(row.values["delta 40"]) > 4.1 > formula(row.values["delta 20"])
    assert 20 < counters["life_4x"] <= counters["life_4.1x"] < 40
    points = points_of(smoothing.Smoothing(), [row, failed("smoothing", dataset="bitcoin-otc")])
    assert all(len(found) == len(smoothing.LIVES) + 1 for found in points.values())
    assert "larger than the snapshots on 1 of 1" in smoothing.Smoothing().answer([row])
    assert smoothing.Smoothing().answer([]) == ""


def test_bytes_that_were_not_counted_are_no_result(monkeypatch):
    monkeypatch.setattr(Changes, "sent", lambda self, *args, **kwargs: 1)
    with pytest.raises(CheckFailed, match="counted were 1"):
        ran(smoothing.Smoothing(), dataset="flickr")


def test_made_pairs_have_the_share_of_changes_asked_for():
    old, new = encoding.made_pair(500, 20_000, 0.2)
    removed, added = count_changes(old, new)
    assert (removed + added) / new.nnz == pytest.approx(0.2, rel=0.1)
    assert new.nnz == pytest.approx(20_000, rel=0.05)
    difference = encode(old, new)
    made = rebuild(old, difference)
    assert torch.equal(made.indices, new.indices)
    whole = encoding.rebuild_bytes(old, new, difference)
    assert whole == 4 * (old.nnz + new.nnz) + 16 * 501 + 16 * (removed + added)


def test_encoding_is_timed_and_exact():
    row = ran(encoding.Encoding(), part="pair")
    assert row.counters["sent_bytes"] == row.counters["formula_bytes"] < row.counters["plain_bytes"]
    assert row.values["keys_per_s"] > 0
    assert len(row.samples) == encoding.ROUNDS["smoke"]
    found = encoding._sequence("flickr", SMOKE)
    counters = found.counters
    assert counters["sent_bytes"] == counters["formula_bytes"] < counters["plain_bytes"]
    assert counters["snapshots"] == 9
    points = points_of(
        encoding.Encoding(), [row, failed("encoding", dataset="amlsim", part="pair")]
    )["encoding"]
    assert [bool(p.get("failed")) for p in points] == [True, False]
    assert points[1]["value"] > 0 < points[1]["limit"]
    assert "M keys a second" in encoding.Encoding().answer([row])


def test_a_snapshot_that_is_rebuilt_wrong_is_no_result(monkeypatch):
    monkeypatch.setattr(encoding, "rebuild", lambda old, difference, **kwargs: csr_of([], 4))
    with pytest.raises(CheckFailed, match="rebuilt"):
        encoding._sequence("flickr", SMOKE)


@pytest.fixture(scope="module")
def epochs() -> dict[str, Any]:
    """Figure 4's timed epochs of a smoke run, once."""
    return {}


def timed(model: str, epochs: dict[str, Any]) -> Row:
    if model not in epochs:
        epochs[model] = ran(fig4.Fig4(), len(epochs), part="timed", model=model)
    return epochs[model]


def test_timed_epochs_are_checked_and_send_what_they_should(epochs):
    smoothed, raw = timed("tm_gcn", epochs), timed("cd_gcn", epochs)
    for row in (smoothed, raw):
        assert row.deviation["output"] <= 1e-5
        assert row.counters["turns"] >= fig4.TURNS["smoke"]
        assert row.counters[f"differences {fig4.BASE}"] == 0
        for name in (fig4.BASE, fig4.GD):
            assert 0 < row.values[f"transfer {name}"] < row.values[f"epoch {name}"]
            assert row.values[f"copy {name}"] > 0
    assert smoothed.counters["matrices GD"] < smoothed.counters["matrices Base"]
    steps, blocks = smoothed.counters["steps"], smoothed.counters["blocks"]
    assert smoothed.counters["differences GD"] == 2 * (steps - blocks)
    assert raw.counters["matrices GD"] == raw.counters["matrices Base"]
    assert fig4.noise([smoothed, raw], "transfer") >= 0
    assert fig4.noise([smoothed], "transfer") is None


def test_figure_4_draws_bytes_times_and_failures(epochs):
    rows = [ran(fig4.Fig4(), 7, part="bytes", dataset="flickr"), timed("tm_gcn", epochs)]
    bad = [
        failed("fig4", 8, part="timed", dataset="epinions", model="cd_gcn"),
        failed("fig4", 9, part="bytes", dataset="youtube"),
    ]
    points = points_of(fig4.Fig4(), [*rows, *bad])
    assert len(points["fig4"]) == len(MODELS) * len(RANKS) + 1
    assert {p["phase"] for p in points["fig4_split"] if "phase" in p} == {"transfer", "compute"}
    assert all(p["projected"] for p in points["fig4_link"])
    for name in ("fig4", "fig4_split", "fig4_gain"):
        assert sum(bool(p.get("failed")) for p in points[name]) == 1, name
    answer = fig4.Fig4().answer([*rows, *bad])
    assert "times fewer bytes" in answer
    assert "on this CPU" in answer
    assert fig4.Fig4().answer([]) == ""


def test_cells_of_every_preset_are_distinct_and_named():
    for experiment in (table1.Table1(), smoothing.Smoothing(), encoding.Encoding(), fig4.Fig4()):
        for preset in ("smoke", "quick", "full", "paper"):
            cells = experiment.cells(preset, "cpu")
            assert len({str(sorted(c.params.items())) for c in cells}) == len(cells) > 0
            assert all(c.params["dataset"] in BY_NAME for c in cells)


# Claims


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


def test_the_share_that_benefits_is_counted(counted, epochs):
    assert verdict("s62-gd-benefit-fraction", [real(counted)]).verdict == "reproduced"
    engine = timed("tm_gcn", epochs)
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
    from dgbench.systems.esdg.checks.common import some

    assert [some(n, "graph") for n in (0, 1, 2)] == ["0 graphs", "1 graph", "2 graphs"]
    assert some(2, "entry", "entries") == "2 entries"
