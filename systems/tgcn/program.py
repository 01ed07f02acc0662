"""The paper's programming interface (section 5, Algorithm 7): Sampling, Partition, Train.

A program says what is trained on, how it is cut, and how an interval is trained; each has a default
and may be replaced on its own::

    class Newest(Program):
        def sampling(self, edges):
            return torch.arange(len(edges) // 2, len(edges))

    trainer = TgcnSystem().open(workload, program=Newest())
    losses = run(trainer, epochs=3)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share, sample_nodewise
from dgbench.kernels_cuda.edge_sampling.device import sample_rows
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.tgcn.grids import cut_time
from dgbench.systems.tgcn.intervals import TimeInterval
from dgbench.systems.tgcn.pools import KINDS, PooledSample, sample_pools, sample_subgraphs

if TYPE_CHECKING:
    from dgbench.systems.tgcn.feeding import StagedInterval
    from dgbench.systems.tgcn.trainer import TgcnTrainer

EDGES_PER_BATCH = 5
"""Intervals whose number is not given hold so many batches of the sequential systems: with order
relaxed inside, an optimiser step stands for several."""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Edges of a stream, in time order.

    Attributes:
        src, dst, negative: int64[n], negatives empty where pairs are not scored.
        t: float64[n].
        events: int64[n], their ordinals in the stream.
        num_vertices: N.
    """

    src: Tensor
    dst: Tensor
    negative: Tensor
    t: Tensor
    events: Tensor
    num_vertices: int

    def __len__(self) -> int:
        return self.src.numel()

    def select(self, places: Tensor) -> Edges:
        """Those edges, int64[k] places in ascending order."""
        columns = (self.src, self.dst, self.negative, self.t, self.events)
        return Edges(*(one[places] if one.numel() else one for one in columns), self.num_vertices)


class Program:
    """T-GCN's own program.

    Args:
        method: how a vertex's edges are drawn, one of `kernels_cuda.weighted.METHODS`, or
            `keep_share`: the same half by one random number an edge. None: what the switches say.
        time_cut: `width` (constant width, as the paper's) or `edges`.
        kind: what is drawn from, one of `pools.KINDS`. None: what the switches say.

    Attributes:
        pooled: of the sample that was drawn last from pools; None of others.

    Raises:
        UnknownKeyError: another kind.
    """

    def __init__(
        self, method: str | None = None, *, time_cut: str = "width", kind: str | None = None
    ) -> None:
        if kind is not None and kind not in KINDS:
            raise unknown_key("kind", kind, KINDS)
        self.method, self.time_cut, self.kind = method, time_cut, kind
        self.pooled: PooledSample | None = None

    def bind(self, trainer: TgcnTrainer) -> None:
        """Called once by the trainer that runs it."""
        self.trainer = trainer

    def sampling(self, edges: Edges) -> Tensor | Sequence[Tensor]:
        """Select the edges to train on: int64 places, ascending; or several such sets.

        Of several sets, subgraphs for instance, an epoch takes the next one in turn. Here: the
        workload's share of every source's edges, or of all edges by pools.
        """
        workload, on = self.trainer.workload, self.trainer.on
        self.pooled = None
        if not on["sampling"] or workload.share == 1:
            return torch.arange(len(edges))
        kind = self.kind or ("union" if on["union"] else "rows")
        table = EdgeTable.build(
            edges.src, edges.dst, edges.t, edges.num_vertices, undirected=kind != "rows"
        )
        method = self.method or ("sis" if on["sis"] else "its_linear")
        device = self.trainer.device
        if device.type != "cuda" or method != "sis" or not on["device_sampling"]:
            device = torch.device("cpu")
        if kind == "subgraph":
            brs = method if method in ("sis", "keys") else "brs"
            return sample_subgraphs(table, method=brs, seed=workload.seed, device=device)
        if kind != "rows":
            return self._pooled(table, kind, method, device)
        if device.type == "cuda":
            return sample_rows(table, workload.share, seed=workload.seed, device=device)
        if method == "keep_share":
            return keep_share(table, workload.share, seed=workload.seed).nonzero().squeeze(1)
        sample = sample_nodewise(
            table,
            (table.indptr.diff() > 0).nonzero().squeeze(1),
            share=workload.share,
            layers=1,
            union=False,
            method=method,
            seed=workload.seed,
        )
        return sample.edges()

    def _pooled(self, table: EdgeTable, kind: str, method: str, device: torch.device) -> Tensor:
        """The share of all edges that pools give; counts roots, pools and what was drawn."""
        workload, meter = self.trainer.workload, self.trainer.meter
        pooled = sample_pools(
            table, workload.share, kind=kind, method=method, seed=workload.seed, device=device
        )
        meter.count("sample_roots", pooled.roots.numel())
        meter.count("pool_edges", int(pooled.pools.sum()))
        meter.count("drawn_edges", int(pooled.drawn.sum()))
        self.pooled = pooled
        return pooled.edges

    def cuts(self, edges: Edges) -> Tensor:
        """Where time intervals begin: int64[T + 1] places, from 0 to the number of edges."""
        w = self.trainer.workload
        intervals = w.intervals or max(1, round(len(edges) / (EDGES_PER_BATCH * w.batch)))
        return cut_time(edges.t, intervals, cut=self.time_cut, strict=w.strict_time)

    def partition(self, edges: Edges) -> Iterable[TimeInterval]:
        """The grids of what was sampled, an interval at a time, in time order.

        Here each is made when it is asked for, so that a rank never holds all parts of all.
        """
        return self.trainer.planner.plan(
            edges.events, edges.src, edges.dst, edges.negative, edges.t, self.cuts(edges)
        )

    def train(self, grids: StagedInterval, devices: int) -> Tensor | float:
        """Train on an interval's grids; the loss per edge before the update (scalar)."""
        return self.trainer.train_interval(grids)


def check_sets(found: Tensor | Sequence[Tensor], count: int) -> list[Tensor]:
    """The sets of places that a program sampled.

    Raises:
        InvalidInputError: no set, or one that is not int64, ascending and in range.
    """
    sets = [found] if isinstance(found, Tensor) else list(found)
    if not sets:
        raise InvalidInputError("`sampling` returned no set of edges")
    for k, places in enumerate(sets):
        good = isinstance(places, Tensor) and places.dtype == torch.int64 and places.dim() == 1
        if good and places.numel():
            rising = bool((places[1:] > places[:-1]).all())
            good = rising and int(places[0]) >= 0 and int(places[-1]) < count
        if not good:
            raise InvalidInputError(
                f"set {k} of `sampling` must be int64[n], ascending, of places in [0, {count})"
            )
    return sets


def run(trainer: TgcnTrainer, epochs: int = 1) -> list[float]:
    """Algorithm 7: sample, partition, and train on every grid in time order; losses by epoch."""
    trainer.prepare()
    return [trainer.train_epoch() for _ in range(epochs)]
