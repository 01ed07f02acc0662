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
