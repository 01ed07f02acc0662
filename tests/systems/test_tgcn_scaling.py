"""T-GCN on several devices: what experiments count and project, and what checks make of it."""

from __future__ import annotations

import pytest
import torch
from msgspec import structs
from tgcn_rows import asked, five, glyphs, judged, made, observation, ran
from tgcn_tiny import events, task

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import scaling_cells
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.experiments import fig6, fig10, large, partition, schedule
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.scaling_runs import (
    load_of,
    open_on,
    time_pieces,
    train_alike,
    whole_swaps,
)
from dgbench.systems.tgcn.schedule import make_schedule
from dgbench.systems.tgcn.settings import BY_NAME, SMALL_NAMES


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
    assert glyphs("s42-schedule-rounds", [ring]) == "R"
    assert asked("s42-schedule-rounds", [ring]).measured == 4
    assert asked("s42-schedule-no-two-hop", [ring]).measured == 0
    dual = asked("s42-schedule-uses-dual-links", [ring]).readings
    assert [one.measured[:6] for one in dual.values()] == ["5 of 8", "8 of 8"]
    assert asked("s42-intergroup-cost", [ring]).measured == pytest.approx(1.75)
    assert glyphs("s42-intergroup-cost", [ring]) == "S"
    assert glyphs("s42-two-channel-split", [ring]) == "="
    assert glyphs("s1-nvlink-faster-than-pcie", [ring]) == "s"
    assert schedule.exchange_points([ring])
    assert "Algorithm 6" in schedule.Schedule().answer([ring])


def test_one_table_of_links_is_as_strong_for_as_against(ring) -> None:
    hop = judged("s42-schedule-no-two-hop", [ring])[1]
    assert (hop.glyph, hop.strength, hop.source) == ("S", "weak", "counted")
    assert glyphs("s42-schedule-uses-dual-links", [ring]) == "v(OS)"


def test_what_is_said_of_vectors_in_the_host() -> None:
    found = [
        observation("swapped", nbytes, method=method, link="pcie")
        for method, nbytes in (("device", 10), ("host", 300))
    ]
    held = made("schedule", {"kind": schedule.VOLUME, "dataset": "enron"}, found)
    said = asked("s41-hbm-embeddings-cut-traffic", [held])
    assert said.holds
    assert said.measured == {"Enron": "30x"}


def test_what_is_said_of_degrees() -> None:
    found = partition.measure_degrees(400, 6000)
    degrees = made("partition", {"kind": partition.DEGREES}, found.observations, data=found.data)

    def sorted_by(slower: float) -> list[Row]:
        rates = [
            observation("throughput", 1e6 / (1 + slower * skew), skew=skew)
            for skew in partition.SKEWS
        ]
        return five("partition", {"kind": partition.SORT}, rates)

    name = "s41-partition-degree-independent"
    found, verdict = judged(name, [degrees, *sorted_by(0.0)])
    assert verdict.readings == {
        "edges of a grid, ids by degree": "contradicted",
        "edges of a grid, ids mixed": "contradicted",
        "time of the cut": "reproduced",
    }
    assert found.readings["edges of a grid, ids by degree"].measured > 10
    assert glyphs(name, [degrees, *sorted_by(2.0)]) == "X(XXX)"
    assert glyphs(name, [degrees, *sorted_by(1 / 3)]) == "v(XXu)"
    assert partition.degree_points([degrees, *sorted_by(0.0)])
    assert all(check.passed for check in partition.measure_sort(400, 6000, control=False).checks)


def test_a_share_of_an_epoch_here_is_no_share_of_the_papers() -> None:
    found = [
        observation("time_share", 0.004, phase="cut"),
        observation("time_share", 0.02, phase="plan"),
        observation("time_share", 0.002, phase="cut", setting="printed"),
    ]
    rows = five("partition", {"kind": partition.SHARE, "dataset": "twitter"}, found)
    assert glyphs("s65-partition-share", rows) == "-(--)"
    said = asked("s65-partition-share", rows).readings["the sort alone"]
    assert said.measured == pytest.approx(0.4)
    gpu = [structs.replace(row, device="cuda") for row in rows]
    assert glyphs("s65-partition-share", gpu) == "X(XX)"


def test_a_formula_of_bytes_is_weak_on_either_side() -> None:
    names = ("lastfm", "reddit", "flickr", "twitter")
    rows = [ran("large", {"kind": large.PLAN, "dataset": name}) for name in names]
    said = asked("fig6-twitter-oom", rows)
    assert said.holds
    assert "54 GB" in said.reason
    for name in ("fig6-twitter-oom", "s613-partition-not-separable"):
        verdict = judged(name, rows)[1]
        assert (verdict.glyph, verdict.source) == ("S", "projected")
        less = [scaled(row, "memory", lambda one: one.value // 100) for row in rows]
        assert judged(name, less)[1].glyph == "O"
    twitter = Table.of(rows[-1:])
    assert twitter.where("parts").get() > 1
    assert twitter.where("memory", of="device", setting="parts").get() <= large.GPU_BYTES
    assert any("OOM" in note for note in rows[-1].notes)
    assert large.memory_points(rows)
    assert glyphs("s62-padding-blocks-baselines", [*rows, *padded(1_000)]) == "O"
    assert glyphs("s62-padding-blocks-baselines", [*rows, *padded(40 << 30)]) == "S"
    assert glyphs("s62-padding-blocks-baselines", padded(1_000)) == "-"


def scaled(row: Row, metric: str, value) -> Row:
    """The row with other values of a metric."""
    own = [
        structs.replace(one, value=value(one)) if one.metric == metric else one
        for one in row.observed
    ]
    return structs.replace(row, observed=own)


def padded(more: int) -> list[Row]:
    """Steps that padding makes larger by so many bytes."""
    found = [
        one
        for base, plain in fig6.NOT_PADDED.items()
        for one in (
            observation("memory", 10_000 + more, setting=base, method="planned"),
            observation("memory", 10_000, setting=plain, method="planned"),
            observation("relative_size", 7.0, setting=base, baseline="edges"),
        )
    ]
    return [
        made("fig6", {"dataset": name, "what": "padding"}, found, data={"dataset": name})
        for name in SMALL_NAMES
    ]


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
    eight = asked("fig10-8gpu", rows).readings
    assert {one.measured for one in eight.values()} == {4}
    assert all(one.model for one in eight.values())
    assert glyphs("fig10-8gpu", rows) == "S(SSS)"
    assert glyphs("fig10-4gpu", rows) == "s(sss)"
    assert glyphs("abs-8gpu-mean-scaling", rows) == "S(SSS)"
    assert glyphs("s67-p2p-off-slowdown", rows) == "S(SSS)"
    assert glyphs("s67-p2p-benefit", rows) == "S(SSS)"
    assert glyphs("fig6-8gpu-included", rows) == "S(SSS)"
    shown = fig10.scaled_points(rows)
    assert {p["panel"] for p in shown} == {"Reddit (twin)", "LastFM (twin)"}
    assert {p["x"] for p in shown if p.get("projected")} == {1, 4, 8}
    assert {(p["x"], p["y"]) for p in shown if p.get("paper")} == {
        (4, 2.8), (4, 3.6), (8, 4.5), (8, 5.8)
    }  # fmt: skip
    assert fig10.byte_points(rows)
    assert "8 V100" in fig10.Fig10().answer(rows)


def test_the_speed_of_a_v100_is_a_reading() -> None:
    row = projected("reddit")

    def at(**factors):
        return scaled(row, "speedup", lambda one: one.value * factors.get(one.dims["setting"], 1.0))

    fast = at(printed=2.0)
    assert glyphs("s67-p2p-off-slowdown", [fast]) == "v(OSS)"
    assert glyphs("fig10-8gpu", [at(arithmetic=0.1)]) == "v(SSO)"
    same = scaled(row, "speedup", lambda one: 1.0)
    assert glyphs("s67-p2p-benefit", [same]) == "u(uuu)"  # as fast is not clearly faster


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
    off = compute / 4 + found.where("estimate").get() * once
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
