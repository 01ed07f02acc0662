"""Rows that chunks of a worker load of each other, before and after spatial fusion (5.1.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from dgbench.systems.dgc.experiments.recount import EdgeRecount

if TYPE_CHECKING:
    from torch import Tensor

    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import Dealt


def recounted_loads(edges: EdgeRecount, dealt: Dealt, fused: Sequence[Tensor]) -> dict[str, int]:
    """Some counters of `count_boundary`, edge by edge.

    Args:
        edges: of the snapshots.
        dealt: the placement.
        fused: by worker, the group of each unit.
    """
    worker, unit = dealt.placement.structure.numpy(), dealt.placement.unit.numpy()
    group = unit.astype(np.int64)
    for rank, of in enumerate(fused):
        group[worker == rank] = of.numpy()[unit[worker == rank]]
    group += worker * (int(max(group.max(), unit.max())) + 1)
    found: dict[str, int] = {}
    boundary = np.zeros(worker.size, bool)
    for name, part in (("", unit + worker * (int(unit.max()) + 1)), (", fused", group)):
        apart = part[edges.reader] != part[edges.heard]
        pairs = np.unique(
            np.stack([edges.heard[apart], part[edges.reader[apart]],
                      worker[edges.reader[apart]]]), axis=1)  # fmt: skip
        found[f"rows loaded{name}"] = worker.size + pairs.shape[1]
        own = pairs[0][worker[pairs[0]] == pairs[2]]
        loads = 1 + np.bincount(own, minlength=worker.size)
        if not name:
            boundary = loads > 1
            found["boundary rows"] = int(boundary.sum())
            found["most loads"] = int(loads[boundary].max(initial=0))
            found["least loads"] = int(loads[boundary].min()) if boundary.any() else 0
        found[f"boundary loads{name}"] = int(loads[boundary].sum())
    return found


def count_boundary(
    task: SequenceWorkload, data: SnapshotSequence, dealt: Dealt
) -> tuple[dict[str, int], list[Tensor]]:
    """Rows loaded in one round by all workers, before and after spatial fusion.

    A boundary row is one that another chunk of its worker hears. Beside the counts: by worker, the
    group that each unit is fused into.
    """
    from dgbench.systems.dgc.fusion import fuse_units, shared_rows, unit_loads
    from dgbench.systems.dgc.plan import plan_worker

    totals = dict.fromkeys(
        ("pairs", "merges", "boundary rows", "boundary loads", "boundary loads, fused",
         "most loads", "least loads", "rows loaded", "rows loaded, fused"), 0)  # fmt: skip
    least: list[int] = []
    groups: list[Tensor] = []
    units = dealt.placement.units
    for rank in range(dealt.placement.workers):
        plan = plan_worker(
            data, dealt.graph, dealt.placement, rank, attention=True, norm=task.norm,
            fusion="whole", entries=dealt.entries,
        ).structure  # fmt: skip
        unit = dealt.placement.unit[plan.rows].long()
        reads = shared_rows(plan.csr, unit, units)
        fused = fuse_units(reads, rest="apart")
        groups.append(fused.group)
        after = shared_rows(plan.csr, fused.group[unit], units)
        loads, loads_after = (1 + torch.bincount(r.row, minlength=unit.numel())
                              for r in (reads, after))  # fmt: skip
        boundary = loads > 1
        totals["pairs"] += reads.pairs()[0].numel()
        totals["merges"] += fused.merges
        totals["boundary rows"] += int(boundary.sum())
        totals["boundary loads"] += int(loads[boundary].sum())
        totals["boundary loads, fused"] += int(loads_after[boundary].sum())
        if bool(boundary.any()):
            totals["most loads"] = max(totals["most loads"], int(loads[boundary].max()))
            least.append(int(loads[boundary].min()))
        totals["rows loaded"] += int(unit_loads(plan.csr, unit, units).sum())
        totals["rows loaded, fused"] += int(unit_loads(plan.csr, fused.group[unit], units).sum())
    totals["least loads"] = min(least, default=0)
    return totals, groups
