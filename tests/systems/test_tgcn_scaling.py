"""T-GCN on several devices: what experiments count and project, and what checks make of it."""

from __future__ import annotations

import pytest
import torch
from tgcn_rows import asked, made, observation, ran
from tgcn_tiny import events, task

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import scaling_cells
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.experiments import fig10, large, partition, schedule
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.scaling_runs import (
    load_of,
    open_on,
    time_pieces,
    train_alike,
    whole_swaps,
)
from dgbench.systems.tgcn.schedule import make_schedule
from dgbench.systems.tgcn.settings import BY_NAME


@pytest.fixture(scope="module")
def ring() -> Row:
    params = {"kind": schedule.RING, "machine": "dgx1-v100"}
    return made("schedule", params, schedule.measure_ring("dgx1-v100").observations)


def test_balance_of_even_full_and_empty_grids() -> None:
    even = balance(torch.full((3, 4, 4), 5))
    assert (even.largest, even.device, even.busy, even.empty) == (1, 1, 4, 0)
    one = torch.zeros(1, 4, 4, dtype=torch.int64)
    one[0, 1, 2] = 7
    found = balance(one, make_schedule(4).assignments)
    assert (found.largest, found.device, found.busy, found.empty) == (16, 4, 1, 15 / 16)
    diagonal = 3 * torch.eye(4, dtype=torch.int64)[None]
    assert balance(diagonal, make_schedule(4).assignments).busy == 4
    with pytest.raises(InvalidInputError, match="'counts' is"):
        balance(torch.zeros(1, 2, 3))


def test_devices_train_alike_and_pass_on_what_the_formula_says() -> None:
    work = task(intervals=3, share=1.0)
    found = train_alike(work, interaction_data(events(), work), (1, 2, 3, 4), "dealt")
    assert found[1].swapped == found[1].expected == 0
    for one in found.values():
        assert one.deviation < 1e-10
        assert one.swapped == one.expected
    assert 0 < found[2].swapped < found[4].swapped


def test_a_load_holds_every_pair_and_row() -> None:
    work = task(intervals=3, share=1.0)
    data = interaction_data(events(), work)
    for devices in (1, 3):
        trainer = open_on(work, data, devices, "dealt")
        load = load_of(trainer)
        assert load.pairs.sum() == 2 * sum(kept.numel() for kept in trainer.kept)
        assert (load.visiting <= load.rows).all()
        assert load.rows.sum() == sum(one.rows for one in trainer.loads(0, data.train_end))
        trainer.close()


def test_pieces_are_timed() -> None:
    found = time_pieces(task(hidden_dim=8), "cpu")
    assert found.row_s > 0
    assert found.pair_s >= 0
    assert found.visit_s >= 0


def test_what_is_said_of_links(ring) -> None:
    assert asked("s42-schedule-rounds", [ring]).holds
    assert asked("s42-schedule-rounds", [ring]).measured == 4
    assert asked("s42-schedule-no-two-hop", [ring]).holds
    assert asked("s42-schedule-no-two-hop", [ring]).measured == 0
    dual = asked("s42-schedule-uses-dual-links", [ring])
    assert (dual.holds, dual.evidence) == (False, "analogue")
    assert dual.measured.startswith("5 of 8")
    assert asked("s42-intergroup-cost", [ring]).direction
    assert asked("s42-two-channel-split", [ring]).measured == 64
    assert asked("s1-nvlink-faster-than-pcie", [ring]).evidence == "projected"
    assert schedule.exchange_points([ring])
    assert "Algorithm 6" in schedule.Schedule().answer([ring])


def test_what_is_said_of_vectors_in_the_host() -> None:
    found = [
        observation("swapped", nbytes, method=method, link="pcie")
        for method, nbytes in (("device", 10), ("host", 300))
    ]
    held = made("schedule", {"kind": schedule.VOLUME, "dataset": "enron"}, found)
    said = asked("s41-hbm-embeddings-cut-traffic", [held])
    assert said.holds
    assert said.measured == {"Enron": "30x"}


def test_what_is_said_of_degrees_and_of_the_share() -> None:
    found = partition.measure_degrees(400, 6000).observations
    degrees = made("partition", {"kind": partition.DEGREES}, found)
    said = asked("s41-partition-degree-independent", [degrees])
    assert (said.holds, said.evidence) == (False, "counted")
    assert said.measured["largest grid over uniform, ids by degree"] > 10
    found = [
        observation("time_share", 0.004, phase="cut"),
        observation("time_share", 0.02, phase="plan"),
        observation("time_share", 0.002, phase="cut", setting="printed"),
        observation("throughput", 2e7),
    ]
    share = made("partition", {"kind": partition.SHARE, "dataset": "twitter"}, found)
    said = asked("s65-partition-share", [share])
    assert said.measured == pytest.approx(0.4)
    assert said.direction
    assert partition.degree_points([degrees])


def test_what_is_said_of_memory() -> None:
    rows = [ran("large", {"kind": large.PLAN, "dataset": name}) for name in ("flickr", "twitter")]
    said = asked("fig6-twitter-oom", rows)
    assert said.holds
    assert "54 GB" in said.reason
    assert "flickr" in said.reason
    assert asked("s613-partition-not-separable", rows).holds
    twitter = Table.of(rows[1:])
    assert twitter.where("parts").get() > 1
    assert twitter.where("memory", of="device", setting="parts").get() <= large.GPU_BYTES
    assert any("OOM" in note for note in rows[1].notes)
    assert large.memory_points(rows)


def projected(dataset: str) -> Row:
    """Speed of half of the devices with P2P, of a fifth of them without."""
    found = [
        observation(
            "speedup",
            (count / 2) * (0.4 if p2p == fig10.OFF else 1.0),
            setting=reading, method=cut, ranks=count, p2p=p2p,
        )
        for reading in scaling_cells.READINGS
        for cut in scaling_cells.CUTS
        for count in (4, 8)
        for p2p in (fig10.ON, fig10.OFF)
    ]  # fmt: skip
    found += [observation("swapped", n, ranks=n) for n in fig10.DEVICES]
    params = {"kind": fig10.VIRTUAL, "dataset": dataset}
    return made("fig10", params, found, data={"twin": True})


def test_what_is_said_of_figure_10() -> None:
    rows = [projected(name) for name in ("reddit", "lastfm")]
    rows.append(made("fig10", {"kind": fig10.SWAPS}, scaling_cells.project_swaps().observations))
    eight = asked("fig10-8gpu", rows)
    assert (eight.measured, eight.target, eight.evidence) == (4, 5.2, "projected")
    assert asked("fig10-4gpu", rows).measured == 2
    assert asked("abs-8gpu-mean-scaling", rows).target == 5.2
    off = asked("s67-p2p-off-slowdown", rows)
    assert off.direction
    assert "swaps of all vertices" in off.reason
    assert asked("s67-p2p-benefit", rows).direction
    assert asked("fig6-8gpu-included", rows).direction
    shown = fig10.scaled_points(rows)
    assert {p["panel"] for p in shown} == {"Reddit (twin)", "LastFM (twin)"}
    assert {p["x"] for p in shown if p.get("projected")} == {1, 4, 8}
    assert {(p["x"], p["y"]) for p in shown if p.get("paper")} == {
        (4, 2.8), (4, 3.6), (8, 4.5), (8, 5.8)
    }  # fmt: skip
    assert fig10.byte_points(rows)
    assert "8 V100" in fig10.Fig10().answer(rows)


def test_ranks_over_one_rank() -> None:
    rows = [
        made(
            "fig10",
            {"kind": fig10.RANKS, "dataset": "flickr", "ranks": ranks},
            [observation("throughput", speed, method=scaling_cells.PROCESSOR)],
        )
        for ranks, speed in ((1, 10.0), (2, 18.0))
    ]
    assert [(p["x"], p["y"]) for p in fig10.scaled_points(rows)] == [(1, 1.0), (2, 1.8)]
    assert fig10.scaled_points(rows[1:]) == []


def test_swaps_that_make_p2p_necessary() -> None:
    """Without P2P 4 GPUs are as slow as one by construction; with it they are not."""
    row = made("fig10", {"kind": fig10.SWAPS}, scaling_cells.project_swaps().observations)
    found = Table.of([row]).where(dataset="twitter")
    compute = table2("tgcn", "compute")["twitter"]
    once = whole_swaps(BY_NAME["twitter"], 4, p2p=False)
    off = compute / 4 + found.where("derived_number").get() * once
    assert off == pytest.approx(compute)
    assert found.where("speedup", ranks=4).get() > 2


def test_cells_exist_in_every_preset() -> None:
    for experiment in (partition.Partition(), schedule.Schedule(), fig10.Fig10(), large.Large()):
        for preset in ("smoke", "quick", "full", "paper"):
            for device in ("cpu", "cuda"):
                cells = experiment.cells(preset, device)
                assert len({str(cell.params) for cell in cells}) == len(cells) > 1
        assert experiment.answer([]) == ""
        for figure in experiment.figures():
            assert figure.points([]) == []
