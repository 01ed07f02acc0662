"""Projections to a cluster, work counted for ranks that are not there, and what checks say."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gnnflow_rows import by, changed, judged, number, row
from paper_rows import answered_by

from dgbench.datasets.events import EventStream
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import get_paper
from dgbench.systems.base.stream import stream_data
from dgbench.systems.gnnflow import claims as table
from dgbench.systems.gnnflow.checks import distributed, partitioned
from dgbench.systems.gnnflow.cluster import (
    PER_MACHINE,
    ClusterMachine,
    Iteration,
    g4dn,
    measure_machine,
    project,
)
from dgbench.systems.gnnflow.experiments import fig15, large, partition, table7
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, StreamGraph, workload
from dgbench.systems.gnnflow.owners import IdentityHash, MachineLayout, variation_of
from dgbench.systems.gnnflow.serving import root_ranks

CHECKS = answered_by(table.CHECKS, distributed, partitioned)

EXPERIMENTS = (fig15.Fig15, partition.Partition, table7.Table7, large.Large)
ONE = Iteration(
    compute_s=4.0, sample_s=1.2, on_gpu=True, fetched=24e6, read=0.0, written=5e6, gradient=1e6
)


def test_a_step_is_its_parts_and_exchanges_grow_with_machines() -> None:
    steps = {ranks: project(ONE, ranks, speed=40.0) for ranks in (1, 8, 16, 32)}
    alone = steps[1]
    assert alone.exchange_s == 0
    assert alone.compute_s == pytest.approx(0.1)
    assert alone.sample_s == pytest.approx(0.03)
    assert alone.seconds == pytest.approx(0.13 + alone.fetch_s)
    exchanges = [step.exchange_s for step in steps.values()]
    assert exchanges == sorted(exchanges)
    # Within a machine gradients alone travel, over ports of the GPUs; beyond it memories as well.
    assert steps[8].exchange_s < 1e-3
    assert steps[16].exchange_s > 8 * ONE.written / 12.5e9
    on_cpu = Iteration(4.0, 1.2, False, 24e6, 0.0, 5e6, 1e6)
    assert project(on_cpu, 1, 40.0).sample_s == pytest.approx(0.1)


def test_a_cluster_has_ports_of_machines_between_gpus_of_two() -> None:
    topology = g4dn(PER_MACHINE + 1)
    assert topology.size == 9
    inside, across = topology.routes[0, 1], topology.routes[0, 8]
    assert (len(inside), len(across)) == (2, 4)
    with pytest.raises(InvalidInputError, match="'ranks' is 0"):
        g4dn(0)
    with pytest.raises(InvalidInputError, match="'speed'"):
        project(ONE, 2, 0.0)


def test_speed_of_a_machine_by_both_readings() -> None:
    machine = ClusterMachine(bytes_per_s=32e9, flops=81e9)
    assert machine.speed("bandwidth") == pytest.approx(10)
    assert machine.speed("arithmetic") == pytest.approx(100)
    with pytest.raises(UnknownKeyError, match="clock"):
        machine.speed("clock")
    assert measure_machine().flops > 0


def test_roots_are_dealt_side_by_side() -> None:
    assert root_ranks(5, 2, sides=2).tolist() == [0, 0, 0, 1, 1] * 2
    assert root_ranks(1, 3).tolist() == [0, 0, 0]
    assert variation_of([[1.0, 2.0], [3.0, 2.0]]) == pytest.approx(0.25)
    assert variation_of([[], []]) == 0.0


@pytest.mark.parametrize("one", EXPERIMENTS, ids=lambda one: one.name)
def test_cells_are_told_apart(one: Any) -> None:
    for preset in ("smoke", "quick", "full", "paper"):
        cells = one().cells(preset, "cpu")
        assert len({repr(cell.params) for cell in cells}) == len(cells) > 0
    assert one().answer([]) == ""
    assert [figure.points([]) for figure in one().figures()]
    assert set(one.claims) <= set(CHECKS)


@pytest.mark.parametrize("claim", CHECKS)
def test_a_claim_without_rows_says_what_is_missing(claim: str) -> None:
    found = CHECKS[claim](ledger()[claim], [])
    assert found.measured is None
    assert found.reason


@functools.cache
def ledger() -> dict[str, Any]:
    from dgbench.harness.claims.ledger import load_ledger

    return {claim.id: claim for claim in load_ledger(get_paper("gnnflow").ledger)}


def test_mag_is_too_large_in_single_precision_alone(wording) -> None:
    cell = large.Large().cells("smoke", "cpu")[0]
    found = large.Large().run(cell, SimpleNamespace(preset="smoke"))
    assert number(found, "memory", of="features", dtype=None) == 122_000_000 * 768 * 4
    claim = "gnnflow-s64-mag-too-large"
    said = CHECKS[claim](ledger()[claim], [row("large", cell.params, found)])
    assert said.holds
    assert judged(claim, [row("large", cell.params, found)])[1].glyph == "="
    wording(said.reason)


def small(graph: StreamGraph) -> EventStream:
    draw = torch.Generator().manual_seed(2)
    src = torch.randint(0, 60, (4000,), generator=draw)
    dst = (src * 7 + torch.randint(0, 5, (4000,), generator=draw)) % 60
    return EventStream.build(src, dst, range(4000), num_nodes=60)


def test_partitions_are_counted_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pymetis")
    monkeypatch.setattr(partition, "_events", lambda graph, preset: small(graph))
    rows = []
    for cell in partition.Partition().cells("smoke", "cpu"):
        found = partition.Partition().run(cell, SimpleNamespace(preset="smoke"))
        rows.append(row("partition", cell.params, found))
    assert len(rows) == 2
    for claim in ("gnnflow-s44-hash-balance", "gnnflow-s44-edge-cut-preferred",
                  "gnnflow-s44-sampling-cv"):  # fmt: skip
        verdict = judged(claim, rows)[1]
        assert verdict.measured
        assert verdict.rows
    cut, verdict = judged("s44-edge-cut-preferred", rows)
    assert cut.holds
    assert (verdict.source, verdict.strength) == ("counted", "strong")
    spread = judged("s44-sampling-cv", rows)[1]
    assert (spread.source, spread.strength) == ("counted", "weak")  # counts stand for times
    assert all(figure.points(rows) for figure in partition.Partition().figures())
    assert partition.Partition().answer(rows)


def test_rows_of_a_batch_are_counted_as_a_trainer_asks_for_them() -> None:
    graph = BY_NAME["gdelt"]
    events = small(graph)
    task = workload(graph, "tgat", "smoke", batch=10, chunks=1, node_dim=2, edge_dim=2)
    counts = fig15.count_rows(graph, "tgat", stream_data(events, task), batches=2)
    # 600 events: 1800 roots with up to 10 neighbours, each asked for with all of its neighbours.
    assert 1800 < counts.asked["node"] <= 1800 * 11 * 11
    assert counts.missed["node"] <= 60
    assert counts.missed["edge"] <= counts.asked["edge"]
    assert counts.records == counts.asked["edge"]
    assert counts.ends <= 60


def test_thresholds_that_are_not_printed_are_readings(wording) -> None:
    told = [
        *by("estimate", "tau", {tau: 1e9 * (100 + tau / 10) for tau in large.TAUS}, of="edge"),
        *by("estimate", "tau", dict.fromkeys(large.TAUS, 2e9), of="metadata"),
        observation("estimate", 210e9, of="edge", setting="at both ends"),
        *by("memory", "of", {"memories": int(140e9), "rebuild": int(250e9)}),
    ]
    one = row("large", {"kind": "memory", "dataset": "ldbc"}, told, data={"twin": True})
    assert large.fitting(one) == 256
    edges, verdict = judged("s64-ldbc-edge-memory", [one])
    assert set(edges.readings) == {f"threshold {tau}" for tau in large.TAUS}
    assert verdict.glyph == "v"  # 510 GB at the largest are not 123
    least = changed(one, "estimate", 120e9, of="edge", tau=4096)
    assert judged("s64-ldbc-edge-memory", [least])[1].source == "projected"
    assert judged("s64-ldbc-metadata", [one])[1].agreement == "value"
    fits, verdict = judged("s1-five-billion-edges", [one])
    assert (fits.holds, verdict.strength) == (True, "weak")
    wording(fits.reason)
    full = changed(one, "estimate", 4e12, of="edge", tau=16)
    assert judged("s1-five-billion-edges", [full])[1].agreement == "opposite"


def test_layouts_and_owners_serve_as_the_paper_draws_it() -> None:
    """Figure 6: a rank asks the rank of the other machine that has its own local number."""
    layout, owners = MachineLayout(2, 2), IdentityHash(2)
    ids = torch.tensor([0, 1, 2, 3])
    asked = [layout.servers(rank, owners.of(ids), ids).tolist() for rank in range(4)]
    assert asked == [[0, 2, 0, 2], [1, 3, 1, 3], [0, 2, 0, 2], [1, 3, 1, 3]]


def test_throughput_is_drawn_over_that_of_tgl_on_one() -> None:
    modelled = [
        one
        for reading in fig15.READINGS
        for ranks in fig15.PROJECTED
        for one in by(
            "projected_throughput", "setting",
            {n: ranks * (3.0 if n == fig15.OURS else 2.0) for n in fig15.CONTENDERS},
            scaled_by=reading, ranks=ranks,
        )
    ]  # fmt: skip
    rows = []
    for ranks, more in ((1, modelled), (2, [])):
        rates = dict.fromkeys(fig15.CONTENDERS, 100.0 * ranks)
        told = by("throughput", "setting", rates, clock="processor")
        params = {"dataset": "gdelt", "model": "tgn", "ranks": ranks}
        rows.append(row("fig15", params, told + more))
    points = fig15.scaled_points(rows)
    here = [(p["x"], p["y"]) for p in points if not p.get("projected") and p["series"] == "tgl"]
    assert here == [(1, 1.0), (2, 2.0)]
    ours = {p["x"]: p["y"] for p in points if p.get("projected") and p["series"] == "gnnflow"}
    assert ours[32] == 48.0
    assert all(p["low"] <= p["y"] <= p["high"] for p in points if p.get("projected"))


def projected_rows(leads: dict[str, float]) -> list[Any]:
    return [
        row(
            "fig15", {"dataset": "gdelt", "model": model, "ranks": 1},
            [
                one
                for reading in fig15.READINGS
                for ranks in fig15.PROJECTED
                for one in by(
                    "projected_throughput", "setting",
                    {n: ranks * (lead if n == fig15.OURS else 1.0) for n in fig15.CONTENDERS},
                    scaled_by=reading, ranks=ranks,
                )
            ],
            data={"twin": True, "scale": 0.1},
        )
        for model, lead in leads.items()
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lead", "agreement"),
    [(1.5, "value"), (1.1, "undecided"), (0.95, "undecided"), (0.5, "opposite")],
)
def test_a_projected_lead_has_to_exceed_the_floor_of_its_rates(lead: float, agreement: str) -> None:
    verdict = judged("fig15-best-throughput", projected_rows({"tgn": 2.0, "tgat": lead}), 0.2)[1]
    assert (verdict.agreement, verdict.source) == (agreement, "projected")


def test_an_upper_end_decides_no_throughput() -> None:
    params = {"kind": "train", "dataset": "ldbc"}
    for rate, agreement in ((1e6, "undecided"), (4e5, "value"), (1e5, "opposite")):
        ends = {"bandwidth": rate, "arithmetic": 2 * rate}
        told = by("projected_throughput", "scaled_by", ends)
        told.append(observation("throughput", 1e4))
        assert judged("s64-ldbc-throughput", [row("large", params, told)])[1].agreement == agreement


def balance_row(hash_: float, other: float) -> Any:
    told = [
        one
        for of, scale in (("records", 1.0), ("vertices", 0.01))
        for one in by(
            "excess", "setting", {"hash": hash_ * scale, "strided": 3.0, "metis": other}, of=of,
            machines=4,
        )
    ]  # fmt: skip
    return row("partition", {"dataset": "wikipedia"}, told)


@pytest.mark.parametrize(
    ("hash_", "other", "words"),
    [
        (0.01, 0.4, {"reproduced"}),
        (0.3, 0.4, {"contradicted", "reproduced"}),
        (0.3, 0.2, {"contradicted"}),
    ],
)
def test_a_hash_is_even_in_itself_or_beside_others(hash_, other, words) -> None:
    verdict = judged("s44-hash-balance", [balance_row(hash_, other)])[1]
    assert set(verdict.readings.values()) == words


def build_row(turn: int, gain: float) -> Any:
    told = by("preparation_time", "setting", {"GNNFlow": 1.0, "DistDGL": gain}, phase="build")
    which = {"setting": "GNNFlow", "baseline": "DistDGL", "phase": "build"}
    told.append(observation("speedup", gain, **which))
    told += [observation("events", 100), observation("throughput", 1e6, of="edges")]
    params = {"kind": "build", "dataset": "mag"}
    return row("table7", params, told, id=f"build{turn}", round=turn, group="build")


def test_building_is_judged_over_processes() -> None:
    rows = [build_row(turn, gain) for turn, gain in enumerate((5.0, 5.2, 4.9, 5.1, 5.0))]
    found, verdict = judged("tab7-graph-building", rows)
    assert (verdict.agreement, verdict.source, found.processes) == ("direction", "timed", 5)
    assert verdict.lacks == ()
    assert judged("tab7-graph-building", rows[:1])[1].agreement == "undecided"
    apart = [build_row(turn, gain) for turn, gain in enumerate((0.3, 104.0, 1.0, 0.9, 2.0))]
    assert judged("tab7-graph-building", apart)[1].agreement == "undecided"
    slower = [build_row(turn, 0.5 + turn / 100) for turn in range(5)]
    assert judged("tab7-graph-building", slower)[1].agreement == "opposite"
