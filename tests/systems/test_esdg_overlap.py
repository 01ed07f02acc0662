"""Time hidden by overlap: exact on simulated clocks with given costs, and its report in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from esdg_rows import number, row
from test_esdg_spread import data, workload
from torch import Tensor

from dgbench.harness.store.row import Row
from dgbench.lab.table import Table
from dgbench.runtime.collectives import GroupCommunicator, LinkEmulation
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.audit import COUNTED
from dgbench.systems.esdg.experiments.overlap import (
    GLOO,
    SHARED,
    SLOW,
    WIRE,
    Overlap,
    gain_points,
    hideable_seconds,
    media_for,
    observed,
    share_points,
    split_points,
)
from dgbench.systems.esdg.experiments.overlap_turns import (
    OverlapTurns,
    Turn,
    take_overlap_turns,
)
from dgbench.systems.esdg.oracle import TimelineOracle
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute
NODES, STEPS, RANKS = 12, 9, 2
"""The last snapshot is a target: each rank has 4, and 6 of the vertices."""


class FakeClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.moment = 0.0

    def now(self) -> float:
        return self.moment

    def sleep_until(self, moment: float, now: float) -> float:
        self.moment = max(self.moment, moment)
        return self.moment


class Costly(torch.autograd.Function):
    """The identity, which takes its time both ways."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clock: FakeClock, seconds: float) -> Tensor:
        ctx.clock, ctx.seconds = clock, seconds
        clock.moment += seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.clock.moment += ctx.seconds
        return gradient, None, None


def exposed(comm: GroupCommunicator, model: str, costs: list[float], numbers: list[int]) -> Any:
    """Seconds exposed, and of an epoch, by pieces and cost of a step's convolution.

    A row of a step, 4 bytes a float, takes a second on the wire for each float.
    """
    found = {}
    for pieces in numbers:
        trainer = SnapshotRankTrainer(
            comm, workload(model, "class"), data(STEPS - 1, NODES), checkpoint=False, pieces=pieces
        )
        trainer.train_epoch()
        split, clock = trainer.split, FakeClock()
        plain = split._spatial
        comm.use_wire(LinkEmulation(0.0, 4.0), clock=clock)
        for cost in costs:
            split._spatial = partial(_timed, plain, clock, cost)
            comm.barrier()
            comm.meter.reset()
            begin = clock.moment
            trainer.accumulate()
            found[pieces, cost] = (comm.meter.spent["exchange_wait"], clock.moment - begin)
        comm.use_wire(None)
    return found


def _timed(
    plain: Callable[..., Tensor],
    clock: FakeClock,
    cost: float,
    layer: int,
    times: range,
    steps: range,
    *rest: Any,
) -> Tensor:
    return Costly.apply(plain(layer, times, steps, *rest), clock, cost * len(steps))


ROWS = STEPS // RANKS * (NODES // RANKS)
"""Rows of a message of an exchange in one piece: steps of a rank, vertices of the other."""


@pytest.mark.parametrize(
    ("model", "beside", "apart"),
    # Widths of the exchanges of a pass that convolutions stand beside, and of those without.
    [("tm_gcn", [6, 6], []), ("cd_gcn", [8, 6, 12], [6])],
)
def test_all_but_one_piece_is_hidden_forward_and_backward(
    model: str, beside: list[int], apart: list[int]
) -> None:
    """Where convolutions take longer than what travels beside them, each way, with no time lost."""
    numbers, enough = [1, 2, 4], 1000.0
    found = launch(exposed, RANKS, (model, [0.0, enough], numbers), timeout_s=LIMIT_S, threads=1)
    seconds = 2 * ROWS * sum(beside), 2 * ROWS * sum(apart)
    for rank in found:
        assert rank[1, 0.0][0] == pytest.approx(sum(seconds))
        computing = rank[1, enough][1] - rank[1, 0.0][1]
        for k in numbers:
            waited, epoch = rank[k, enough]
            assert waited == pytest.approx(seconds[0] / k + seconds[1]), k
            assert epoch - waited == pytest.approx(rank[1, enough][1] - sum(seconds), rel=1e-3)
            # Nothing to stand beside: no piece is hidden, and none costs more.
            assert rank[k, 0.0][0] == pytest.approx(sum(seconds)), k
        assert computing == pytest.approx(2 * 2 * enough * (STEPS // RANKS))


def test_turns_on_a_tiny_timeline() -> None:
    """Basis of the rows: gradients, messages, and epochs of every link and number of pieces."""
    task, snapshots = workload("cd_gcn", "link"), data(STEPS, NODES)
    oracle = TimelineOracle(task, snapshots)
    found = take_overlap_turns(
        task, snapshots, RANKS, (WIRE, GLOO, SHARED), (1, 3), least=2, budget_s=1e-3,
        request=oracle.request,
    )  # fmt: skip
    checks = oracle.trained_checks(found.before, found.after, found.losses)
    assert {check.of for check in checks} == {"outputs", "gradients", "losses", "liveness"}
    assert all(check.passed for check in checks)
    audited = oracle.audited(found.audits, found.losses)
    assert {check.of for check in audited} == {COUNTED, "updates", "losses", "moments"}
    assert all(check.passed for check in audited)
    assert list(found.before) == list(found.after) == ["1 piece", "3 pieces"]
    assert found.floats[1] == found.floats[3] == 2 * RANKS * ROWS * (8 + 6 + 12 + 6)
    assert (found.messages[1], found.messages[3]) == (2 * 4 * RANKS, 3 * 2 * 4 * RANKS)
    assert found.sent_bytes >= 4 * found.floats[1] // RANKS
    assert found.compute_s > found.convolve_s > 0
    assert set(found.wires) == {WIRE.name}
    assert found.wires[WIRE.name].bytes_per_second == pytest.approx(
        found.sent_bytes / found.convolve_s
    )
    assert {len(turns) for turns in found.turns.values()} == {2}
    assert set(found.turns) == {(m.name, k) for m in (WIRE, GLOO, SHARED) for k in (1, 3)}


@pytest.mark.parametrize("change", [{"ranks": 1}, {"least": 0}, {"pieces": (2, 4)}])
def test_turns_out_of_range(change: dict[str, Any]) -> None:
    options = {"ranks": 2, "least": 1, "pieces": (1, 2)} | change
    with pytest.raises(InvalidInputError, match="needed: 2 ranks, a turn and 1 among"):
        take_overlap_turns(
            workload("tm_gcn", "class"),
            data(STEPS, NODES),
            options["ranks"],
            (WIRE,),
            options["pieces"],
            least=options["least"],
            budget_s=1.0,
        )


def made_up(hidden: float) -> OverlapTurns:
    """Exposed 8 s in one piece, of 20; convolutions of 6 s; the second turn is disturbed."""
    turns = {
        (WIRE.name, 1): [Turn(20.0, 8.0), Turn(120.0, 18.0), Turn(20.0, 8.0)],
        (WIRE.name, 2): [Turn(20.5 - hidden, 8.0 - hidden)] * 3,
    }
    return OverlapTurns(
        turns,
        {WIRE.name: LinkEmulation(1e-5, 2.0)},
        6.0,
        12.0,
        12,
        {1: 4, 2: 8},
        {1: 3, 2: 3},
        {},
        {},
        {},
        {},
    )


LINK = {"link": WIRE.name}
TWO = {**LINK, "pieces": 2}


def row_of_turns(turns: OverlapTurns, **params: Any) -> Row:
    found = observed(turns, (WIRE,))
    where = {"model": "tm_gcn", "ranks": 2, **params}
    return row(
        "overlap", where, *found.observations, data={"twin": True}, deviation={"gradient": 1e-7}
    )


def row_hiding(hidden: float, **params: Any) -> Row:
    return row_of_turns(made_up(hidden), **params)


def bounds(found: Row, metric: str, **dims: Any) -> list[float | None]:
    """Low end, value and high end of a number in two pieces."""
    one = Table.of([found]).where(metric, **TWO, **dims).one().of
    return [one.low, one.value, one.high]


def test_what_a_row_observes() -> None:
    found = row_hiding(2.0)
    assert number(found, "phase_time", phase="exposed", **LINK, pieces=1) == 8.0
    hideable = number(found, "phase_time", phase="hideable", **TWO)
    assert hideable == 3.0, "half of the convolutions, which are the shorter"
    assert number(found, "phase_time", phase="hideable", **TWO) == 3.0
    hidden = bounds(found, "portion", of="hidden")
    assert hidden == [None, pytest.approx(2 / 3), None], "three turns bound nothing"
    assert number(found, "portion", of="saved", **TWO) == pytest.approx(1 / 2)
    assert number(found, "speedup", **TWO) == pytest.approx(20 / 18.5)
    assert number(found, "bandwidth", **LINK) == 2.0
    assert hideable_seconds(8.0, 6.0, 4) == 4.5
    assert hideable_seconds(2.0, 6.0, 4) == 1.5
    assert hideable_seconds(2.0, 6.0, 1) == 0.0


def test_six_turns_bound_what_is_hidden() -> None:
    turns = made_up(2.0)
    turns.turns[WIRE.name, 1] = [Turn(20.0, 8.0 + n / 10) for n in range(6)]
    turns.turns[WIRE.name, 2] = [Turn(16.0, 6.0)] * 6
    bounded = row_of_turns(turns)
    assert bounds(bounded, "portion", of="hidden") == pytest.approx([2 / 3, 2.25 / 3, 2.5 / 3])
    low, _, high = bounds(bounded, "speedup")
    assert (low, high) == pytest.approx((1.25, 1.25))
    (point,) = share_points([bounded])
    assert (point["low"], point["high"]) == pytest.approx((2 / 3, 2.5 / 3))
    said = Overlap().answer([bounded])
    assert "shorter in 1 of 1 cases, most with TM-GCN on 2 ranks on emulated wire as slow" in said
    assert "20000.0 to 16000.0 ms" in said


def test_answer_and_points() -> None:
    said = Overlap().answer([row_hiding(2.0), row_hiding(1.0, ranks=4)])
    assert "1 of 2 cases hide at least half" in said
    assert "TM-GCN on 2 ranks 0.67 of it in 2 pieces; TM-GCN on 4 ranks 0.33 of it" in said
    assert said.endswith("No epoch became shorter beyond doubt.")
    (gain,) = gain_points([row_hiding(2.0)])
    assert (gain["row"], gain["n"], gain["low"]) == ("2 pieces", 3, None)
    assert gain["panel"].endswith("P = 2")
    assert Overlap().answer([]) == ""
    shares = share_points([row_hiding(2.0)])
    assert [(p["x"], round(p["y"], 3), p["series"]) for p in shares] == [(2, 0.667, "P = 2")]
    bars = split_points([row_hiding(2.0)])
    assert [(p["row"], p["phase"], p["seconds"]) for p in bars] == [
        ("P = 2, 1 piece", "compute", 12.0),
        ("P = 2, 1 piece", "communicate", 8.0),
        ("P = 2, 2 pieces", "compute", 12.5),
        ("P = 2, 2 pieces", "communicate", 6.0),
    ]
    assert all("emulated" in p["panel"] for p in (*shares, *bars))


@pytest.mark.parametrize("preset", ["smoke", "full", "paper"])
def test_cells(preset: Any) -> None:
    cells = Overlap().cells(preset, "cpu")
    assert cells
    assert not any(cell.unavailable for cell in cells)
    assert all(cell.unavailable for cell in Overlap().cells(preset, "cuda"))
    assert {cell.params["ranks"] for cell in cells} >= {2}
    if preset != "smoke":
        assert {cell.params["model"] for cell in cells} == {"tm_gcn", "cd_gcn"}
        assert {cell.params["ranks"] for cell in cells} >= {2, 4}


def test_links_of_a_cell() -> None:
    assert media_for("smoke", own_cores=True) == (WIRE, GLOO)
    assert media_for("smoke", own_cores=False) == (WIRE,)
    assert media_for("full", own_cores=True) == (WIRE, SLOW, GLOO, SHARED)
    assert media_for("full", own_cores=False) == (WIRE, SLOW)
