"""ESDG's Table 1, smoothing, encoding and Figure 4: what is timed, drawn and answered."""

from __future__ import annotations

import pytest
import torch
from esdg_difference_rows import (
    SMOKE,
    failed,
    points_of,
    private_cache,  # noqa: F401 - every test takes it
    ran,
    timed,
)
from tiny_data import csr_of

from dgbench.kernels_cuda.difference import count_changes, encode, rebuild
from dgbench.systems.esdg.experiments import encoding, fig4, smoothing, table1
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, formula
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODELS, RANKS


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
    row = ran(smoothing.Smoothing(), dataset="flickr")
    assert {check.of for check in row.checks if not check.passed} == {"counters"}


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
    checks = encoding._sequence("flickr", SMOKE).checks
    assert {check.of for check in checks if not check.passed} == {"entries"}


def test_timed_epochs_are_checked_and_send_what_they_should():
    smoothed, raw = timed("tm_gcn"), timed("cd_gcn")
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


def test_figure_4_draws_bytes_times_and_failures():
    rows = [ran(fig4.Fig4(), 7, part="bytes", dataset="flickr"), timed("tm_gcn")]
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
