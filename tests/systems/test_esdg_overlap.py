"""Time hidden by overlap: exact on simulated clocks with given costs, and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from esdg_tiny import LIMIT_S, data, workload
from torch import Tensor

from dgbench.runtime.collectives import GroupCommunicator, LinkEmulation
from dgbench.runtime.ranks import launch
from dgbench.systems.base.audit import COUNTED
from dgbench.systems.esdg.experiments.overlap import GLOO, SHARED, WIRE
from dgbench.systems.esdg.experiments.overlap_turns import take_overlap_turns
from dgbench.systems.esdg.oracle import TimelineOracle
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

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


WIDTHS = {"tm_gcn": ([6, 6], []), "cd_gcn": ([8, 6, 12], [6])}
"""Widths of the exchanges of a pass that convolutions stand beside, and of those without."""
PIECES, ENOUGH = [1, 2, 4], 1000.0


def all_exposed(comm: GroupCommunicator) -> dict[str, Any]:
    return {model: exposed(comm, model, [0.0, ENOUGH], PIECES) for model in WIDTHS}


def test_all_but_one_piece_is_hidden_forward_and_backward() -> None:
    """Where convolutions take longer than what travels beside them, each way, with no time lost."""
    found = launch(all_exposed, RANKS, (), timeout_s=LIMIT_S, threads=1)
    for model, rank in [(model, rank[model]) for rank in found for model in WIDTHS]:
        seconds = [2 * ROWS * sum(widths) for widths in WIDTHS[model]]
        assert rank[1, 0.0][0] == pytest.approx(sum(seconds))
        computing = rank[1, ENOUGH][1] - rank[1, 0.0][1]
        for k in PIECES:
            waited, epoch = rank[k, ENOUGH]
            assert waited == pytest.approx(seconds[0] / k + seconds[1]), k
            assert epoch - waited == pytest.approx(rank[1, ENOUGH][1] - sum(seconds), rel=1e-3)
            # Nothing to stand beside: no piece is hidden, and none costs more.
            assert rank[k, 0.0][0] == pytest.approx(sum(seconds)), k
        assert computing == pytest.approx(2 * 2 * ENOUGH * (STEPS // RANKS))


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
