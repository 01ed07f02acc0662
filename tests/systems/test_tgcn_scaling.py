"""T-GCN on several devices: what experiments count and project, and what checks make of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tgcn_tiny import events, task

from dgbench.harness.claims.ledger import load_ledger
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import PAPER
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.checks import partition as partition_checks
from dgbench.systems.tgcn.checks import scaling, sizes
from dgbench.systems.tgcn.checks import schedule as schedule_checks
from dgbench.systems.tgcn.experiments import fig10, large, partition, schedule
from dgbench.systems.tgcn.experiments.scaling_runs import load_of, open_on, time_pieces, train_alike
from dgbench.systems.tgcn.experiments.settings import BY_NAME
from dgbench.systems.tgcn.schedule import make_schedule

LEDGER = {claim.id: claim for claim in load_ledger(PAPER.ledger)}


def row(experiment: str, found: Any, **params: Any) -> SimpleNamespace:
    """A measurement as a row."""
    return SimpleNamespace(
        id=f"{experiment}/{params}", experiment=experiment, paper="tgcn", params=params,
        status="ok", reason="", values=found.values, counters=found.counters, data=found.data,
        deviation=found.deviation, device="cpu", instrumented=False, group="", round=0,
        phases={}, samples=[], units=found.units, notes=found.notes,
    )  # fmt: skip


def asked(check: dict[str, Any], name: str, rows: list[Any]) -> Any:
    return check[f"tgcn-{name}"](LEDGER[f"tgcn-{name}"], rows)


@pytest.fixture(scope="module")
def ring() -> SimpleNamespace:
    return row("schedule", schedule._ring("dgx1-v100"), kind=schedule.RING, machine="dgx1-v100")


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
    checks = schedule_checks.CHECKS
    assert asked(checks, "s42-schedule-rounds", [ring]).holds
    assert asked(checks, "s42-schedule-rounds", [ring]).measured == 4
    assert asked(checks, "s42-schedule-no-two-hop", [ring]).holds
    assert asked(checks, "s42-schedule-no-two-hop", [ring]).measured == 0
    dual = asked(checks, "s42-schedule-uses-dual-links", [ring])
    assert (dual.holds, dual.evidence) == (False, "analogue")
    assert dual.measured.startswith("5 of 8")
    assert asked(checks, "s42-intergroup-cost", [ring]).direction
    assert asked(checks, "s42-two-channel-split", [ring]).measured == 64
    assert asked(checks, "s1-nvlink-faster-than-pcie", [ring]).evidence == "projected"
    for check in checks:
        assert checks[check](LEDGER[check], []).reason
    assert schedule.exchange_points([ring])
    assert "Algorithm 6" in schedule.Schedule().answer([ring])


def test_what_is_said_of_vectors_in_the_host() -> None:
    counters = {"pcie bytes": 10, "pcie bytes, vectors in the host": 300}
    found = SimpleNamespace(values={}, counters=counters, data={}, deviation={}, units={}, notes=[])
    held = row("schedule", found, kind=schedule.VOLUME, dataset="enron")
    said = asked(schedule_checks.CHECKS, "s41-hbm-embeddings-cut-traffic", [held])
    assert said.holds
    assert said.measured == {"Enron": "30x"}


def test_what_is_said_of_degrees_and_of_the_share() -> None:
    made = row("partition", partition._degrees(400, 6000), kind=partition.DEGREES)
    said = asked(partition_checks.CHECKS, "s41-partition-degree-independent", [made])
    assert (said.holds, said.evidence) == (False, "counted")
    assert said.measured["largest grid over uniform, ids by degree"] > 10
    values = {"share": 0.004, "plan share": 0.02, "printed share": 0.002, "edges/s": 2e7}
    found = SimpleNamespace(values=values, counters={}, data={}, deviation={}, units={}, notes=[])
    share = row("partition", found, kind=partition.SHARE, dataset="twitter")
    said = asked(partition_checks.CHECKS, "s65-partition-share", [share])
    assert said.measured == pytest.approx(0.4)
    assert said.direction
    assert partition.degree_points([made])


def test_what_is_said_of_memory() -> None:
    rows = [
        row("large", large._plan(name, SimpleNamespace()), kind=large.PLAN, dataset=name)
        for name in ("flickr", "twitter")
    ]
    said = asked(sizes.CHECKS, "fig6-twitter-oom", rows)
    assert said.holds
    assert "54 GB" in said.reason
    assert "flickr" in said.reason
    assert asked(sizes.CHECKS, "s613-partition-not-separable", rows).holds
    assert rows[1].counters["parts"] > 1
    assert rows[1].counters["device parts"] <= large.GPU_BYTES
    assert any("OOM" in note for note in rows[1].notes)
    assert large.memory_points(rows)
    assert sizes.CHECKS["tgcn-fig6-twitter-oom"](LEDGER["tgcn-fig6-twitter-oom"], []).reason


def test_what_is_said_of_figure_10() -> None:
    values = {
        f"speedup {reading} {cut} {count} {p2p}": (count / 2) * (0.4 if p2p == "off" else 1.0)
        for reading in fig10.READINGS
        for cut in fig10.CUTS
        for count in (4, 8)
        for p2p in ("on", "off")
    }
    found = SimpleNamespace(
        values=values, counters={f"bytes {n}": n for n in fig10.DEVICES}, data={"twin": True},
        deviation={}, units={}, notes=[],
    )  # fmt: skip
    rows = [row("fig10", found, kind=fig10.VIRTUAL, dataset=name) for name in ("reddit", "lastfm")]
    rows.append(row("fig10", fig10._swaps(), kind=fig10.SWAPS))
    eight = asked(scaling.CHECKS, "fig10-8gpu", rows)
    assert (eight.measured, eight.target, eight.evidence) == (4, 5.2, "projected")
    assert asked(scaling.CHECKS, "fig10-4gpu", rows).measured == 2
    assert asked(scaling.CHECKS, "abs-8gpu-mean-scaling", rows).target == 5.2
    off = asked(scaling.CHECKS, "s67-p2p-off-slowdown", rows)
    assert off.direction
    assert "swaps of all vertices" in off.reason
    assert asked(scaling.CHECKS, "s67-p2p-benefit", rows).direction
    assert asked(scaling.CHECKS, "fig6-8gpu-included", rows).direction
    shown = fig10.scaled_points(rows)
    assert {p["panel"] for p in shown} == {"Reddit (twin)", "LastFM (twin)"}
    assert {p["x"] for p in shown if p.get("projected")} == {1, 4, 8}
    assert {(p["x"], p["y"]) for p in shown if p.get("paper")} == {
        (4, 2.8), (4, 3.6), (8, 4.5), (8, 5.8)
    }  # fmt: skip
    ran = [
        row("fig10", SimpleNamespace(**vars(found) | {"values": {"own throughput": speed}}),
            kind=fig10.RANKS, dataset="flickr", ranks=ranks)
        for ranks, speed in ((1, 10.0), (2, 18.0))
    ]  # fmt: skip
    here = [p for p in fig10.scaled_points(ran) if not p.get("projected")]
    assert [(p["x"], p["y"]) for p in here] == [(1, 1.0), (2, 1.8)]
    assert fig10.byte_points(rows)
    assert "8 V100" in fig10.Fig10().answer(rows)
    for name, check in scaling.CHECKS.items():
        assert check(LEDGER[name], []).reason


def test_swaps_that_make_p2p_necessary() -> None:
    """Without P2P 4 GPUs are as slow as one by construction; with it they are not."""
    from dgbench.systems.tgcn.experiments.scaling_runs import whole_swaps

    found = fig10._swaps().values
    graph = BY_NAME["twitter"]
    compute = fig10.TABLE2["tgcn", "compute"]["twitter"]
    off = compute / 4 + found["intervals twitter"] * whole_swaps(graph, 4, p2p=False)
    assert off == pytest.approx(compute)
    assert found["speedup twitter 4"] > 2


def test_cells_exist_in_every_preset() -> None:
    for experiment in (partition.Partition(), schedule.Schedule(), fig10.Fig10(), large.Large()):
        for preset in ("smoke", "quick", "full", "paper"):
            for device in ("cpu", "cuda"):
                cells = experiment.cells(preset, device)
                assert len({str(cell.params) for cell in cells}) == len(cells) > 1
        assert experiment.answer([]) == ""
        for figure in experiment.figures():
            assert figure.points([]) == []
