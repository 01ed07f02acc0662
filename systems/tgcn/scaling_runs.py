"""Measurements of Figure 10: training on virtual devices, times of its parts, and derived times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dgbench.models.streaming import Dygnn
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.base.registry import get_system
from dgbench.systems.tgcn.device import train_pairs
from dgbench.systems.tgcn.intervals import Pairs
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.projection import EpochLoad, Pieces, ProjectedGridEpoch
from dgbench.systems.tgcn.recounts import visiting_rows
from dgbench.systems.tgcn.regions import Visitor
from dgbench.systems.tgcn.ring import LITERAL
from dgbench.systems.tgcn.schedule import exchange_seconds, expected_bytes, make_schedule, traffic
from dgbench.systems.tgcn.settings import HIDDEN, GridGraph, table2

ROWS, CALLS = 2000, 3
"""Rows whose refresh is timed, and calls of which the best counts."""


def open_on(
    task: InteractionWorkload, data: InteractionData, devices: int, cut: str, **options: Any
) -> Any:
    """A trainer on virtual devices, sampled and cut."""
    trainer = get_system("tgcn").open(task, data=data, devices=devices, vertex_cut=cut, **options)
    trainer.prepare()
    return trainer


def load_of(trainer: Any) -> EpochLoad:
    """Pairs and rows of an epoch by device."""
    loads, parts = trainer.loads(0, trainer.data.train_end), trainer.parts.count
    pairs = np.zeros((len(loads), parts, parts))
    rows, visiting = np.zeros((2, len(loads), parts))
    for k, one in enumerate(loads):
        for (i, j), (grid, _) in one.grids.items():
            pairs[k, i, j] = grid.src.numel()
        rows[k] = [share.ids.numel() for share, _ in one.shares.values()]
        visiting[k] = one.travelling
    return EpochLoad(pairs, rows, visiting)


@dataclass(frozen=True, slots=True)
class Alike:
    """One number of devices beside one device.

    Attributes:
        deviation: largest relative difference of losses and of the embeddings that are left.
        swapped: bytes passed on in an epoch. expected: by the formula.
        visiting: rows that are passed on in each interval, recounted, added up.
    """

    deviation: float
    swapped: int
    expected: int
    visiting: int


def train_alike(
    task: InteractionWorkload, data: InteractionData, devices: Sequence[int], cut: str
) -> dict[int, Alike]:
    """Train an epoch in double precision on each number of devices, the first one the measure."""
    found: dict[int, Alike] = {}
    truth: tuple[float, torch.Tensor] | None = None
    for count in devices:
        trainer = open_on(task, data, count, cut, dtype=torch.float64)
        load = load_of(trainer)
        loss = trainer.train_epoch()
        left = trainer.vertices.embedding[trainer.parts.row(torch.arange(data.events.num_nodes))]
        truth = truth or (loss, left.clone())
        gap = float((left - truth[1]).abs().max() / truth[1].abs().max())
        vector = 8 * task.hidden_dim
        schedule = make_schedule(count)
        found[count] = Alike(
            max(abs(loss / truth[0] - 1), gap),
            int(trainer.meter.counters["bytes_swapped"]),
            sum(
                expected_bytes(schedule, one.tolist(), read=vector, add=2 * vector)
                for one in load.visiting.astype(np.int64)
            ),
            sum(
                sum(visiting_rows(trainer, one.events)) for one in trainer.loads(0, data.train_end)
            ),
        )
        trainer.close()
    return found


def time_pieces(task: InteractionWorkload, device: str) -> Pieces:
    """Times of a row, a pair and a visitor, by the operators that train, each on its own.

    By processor time on a CPU, so that what else runs there does not count; the best of a few.
    """
    generator = torch.Generator().manual_seed(1)
    model = Dygnn(task.hidden_dim).to(device)
    state, waits = (one.to(device) for one in model.new_state(ROWS))
    waits.count_s += 1
    waits.count_g += 1

    def rows() -> None:
        new = model.refresh(state, waits)
        (new.embedding.sum() + model.head.keys(new.embedding).sum()).backward()
        state[torch.arange(ROWS, device=device)].clone()

    def grid(pairs: int, sources: int, targets: int) -> Callable[[], None]:
        ends = [
            torch.randint(0, top, (pairs,), generator=generator, dtype=torch.int32).to(device)
            for top in (sources, targets)
        ]
        vectors = [torch.randn(n, task.hidden_dim).to(device) for n in (sources, targets)]
        keys = vectors[0].clone().requires_grad_(True)
        visitor = Visitor(0, vectors[1], *torch.zeros(2, targets, task.hidden_dim, device=device))
        meter, total = Meter(), torch.zeros_like(vectors[0])

        def train() -> None:
            train_pairs(
                model, Pairs(*ends, pairs // 2), keys, vectors[0], visitor, total, scale=1.0,
                link=True, last=False, meter=meter,
            )  # fmt: skip

        return train

    row_s = _seconds(rows, device) / ROWS
    many, few = 20 * ROWS, ROWS // 4
    both = [_seconds(grid(p, few, v), device) for p, v in ((many, few), (few, 2 * ROWS))]
    pair_s, visit_s = np.linalg.solve([[many, few], [few, 2 * ROWS]], both)
    return Pieces(max(0.0, float(pair_s)), row_s, max(0.0, float(visit_s)))


def _seconds(call: Callable[[], None], device: str) -> float:
    """The best of some calls, after one that warms up."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = []
    for _ in range(CALLS + 1):
        begin = clock()
        call()
        if device != "cpu":
            torch.cuda.synchronize()
        found.append(clock() - begin)
    return min(found[1:])


def time_epoch(trainer: Any) -> float:
    """Seconds of an epoch that is not the first."""
    clock = time.process_time if trainer.device.type == "cpu" else time.perf_counter
    trainer.train_epoch()
    begin = clock()
    trainer.train_epoch()
    if trainer.device.type != "cpu":
        torch.cuda.synchronize()
    return clock() - begin


def as_printed(graph: GridGraph, pieces: Pieces, one: ProjectedGridEpoch) -> Pieces:
    """The pieces scaled so that an epoch of one device computes as long as Table 2 has it.

    Args:
        one: the epoch of one device, at the printed size, that `pieces` make.
    """
    return pieces.scaled(table2("tgcn", "compute")[graph.name] / (one.rows_s + one.pairs_s))


def whole_swaps(graph: GridGraph, devices: int) -> float:
    """Projected seconds of a round without P2P that passes on one vector of every vertex."""
    rows = [graph.printed.vertices / devices] * devices
    ring = LITERAL if devices == len(LITERAL) else None
    schedule = make_schedule(devices, ring=ring, lean=False)
    sent = traffic(schedule, [round(r) for r in rows], read=4 * HIDDEN, add=0)
    return exchange_seconds(schedule, sent, machine(size=devices).topology(p2p=False))
