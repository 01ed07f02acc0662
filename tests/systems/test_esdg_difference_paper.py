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
from esdg_rows import number
from tiny_data import csr_of

from dgbench.kernels_cuda.difference import count_changes, encode, rebuild
from dgbench.systems.esdg.experiments import encoding, fig4, fig4_rows, smoothing, table1
from dgbench.systems.esdg.experiments.common import Changes, Occurrences, formula
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODELS, RANKS


def test_table_1_counts_a_twin_and_finds_its_lives(wording):
    row = ran(table1.Table1(), dataset="youtube")
    graph = BY_NAME["youtube"]
    counted = table1.counted(row)
    assert counted["T"] == graph.printed["T"]
    assert counted["nnz"] <= number(row, "events")
    found = Occurrences.of(graph, "smoke")
    made = sum(csr.nnz for csr in found.snapshots(life=graph.edge_life))
    assert counted["edge_life"] == made
    shortest = number(row, "smoothing_length", of="shortest", smoothing="edge_life")
    assert abs(shortest - graph.edge_life) <= 2
    points = points_of(table1.Table1(), [row, failed("table1", dataset="flickr")])["table1"]
    assert {p["claim"] for p in points if p.get("failed")} == {
        "flickr M_product / nnz",
        "flickr edge_life / nnz",
    }
    for point in points:
        if not point.get("failed"):
            assert point["measured"] == pytest.approx(point["paper"], rel=0.05)
    wording(table1.Table1().answer([row]))
    assert table1.Table1().answer([]) == ""


def test_smoothing_sends_what_was_counted_and_both_smoothings_keep_the_same(wording):
    row = ran(smoothing.Smoothing(), dataset="flickr")
    made = number(row, "smoothing_length", of="made")
    assert made == BY_NAME["flickr"].edge_life

    def sent(format_: str, **dims) -> int:
        return number(row, "topology_sent", format=format_, **dims)

    assert sent("sent", of="made") == sent("sent", life=made)
    assert number(row, "snapshots", of="equal") == number(row, "snapshots", of="made") == 134
    assert number(row, "relative_error", of="normalised") > 0
    shares = {life: number(row, "portion", of="changed", life=life) for life in smoothing.LIVES}
    for life, share in shares.items():
        first = 20 * number(row, "edges", of="first", life=life)
        gain = (sent("plain", life=life) - first) / (sent("forced", life=life) - first)
        assert gain == pytest.approx(formula(share), rel=1e-9)
        assert sent("plain32", life=life) <= 3 * sent("sent32", life=life)
    gains = [smoothing.gain(row, life) for life in smoothing.LIVES]
    assert gains == sorted(gains)
    assert gains[0] == 1 > smoothing.gain(row, 1, "forced")
    assert smoothing.gain(row, 1, "loops_sent", "loops_plain") > 1
    assert formula(shares[40]) > 4.1 > formula(shares[20])
    shortest = [
        number(row, "smoothing_length", of="shortest", gain=gain) for gain in smoothing.GAINS
    ]
    assert 20 < shortest[0] <= shortest[1] < 40
    points = points_of(smoothing.Smoothing(), [row, failed("smoothing", dataset="bitcoin-otc")])
    assert all(len(found) == len(smoothing.LIVES) + 1 for found in points.values())
    wording(smoothing.Smoothing().answer([row]))
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
    assert number(row, "throughput", of="keys") > 0
    encode = next(one for one in row.observations if one.samples)
    assert (encode.metric, len(encode.samples)) == ("operation_time", encoding.ROUNDS["smoke"])
    found = encoding._sequence("flickr", SMOKE)
    assert number(found, "snapshots") == 9
    for one in (row, found):
        sent, formula_, plain = (
            number(one, "topology_sent", format=name) for name in ("sent", "formula", "plain")
        )
        assert sent == formula_ < plain
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
        assert number(row, "turns") >= fig4.TURNS["smoke"]
        assert number(row, "snapshots", setting=fig4_rows.BASE, format="difference") == 0
        for name in (fig4_rows.BASE, fig4_rows.GD):
            assert 0 < fig4_rows.transfer_share(row, name) < 1
            assert number(row, "phase_time", setting=name, phase="copy") > 0
    base, sent = (
        [number(row, "topology_sent", setting=name) for row in (smoothed, raw)]
        for name in (fig4_rows.BASE, fig4_rows.GD)
    )
    assert sent[0] < base[0]
    assert sent[1] > base[1]  # edges that come once: the paper sends their difference all the same
    steps, blocks = number(smoothed, "snapshots"), number(smoothed, "timeline_blocks")
    differences = number(smoothed, "snapshots", setting=fig4_rows.GD, format="difference")
    assert differences == 2 * (steps - blocks)


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
