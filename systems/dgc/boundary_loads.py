"""Rows that chunks of a worker load of each other, before and after spatial fusion (5.1.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from dgbench.lab.experiment import Measurement
from dgbench.systems.dgc.recount import EdgeRecount

if TYPE_CHECKING:
    from torch import Tensor

    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.dealing import WorkAssignment

UNFUSED: Final = "unfused"
FUSED: Final = "fused"
"""Chunks of a worker apart, and those that share rows together."""


def recounted_loads(
    edges: EdgeRecount, dealt: WorkAssignment, fused: Sequence[Tensor]
) -> Measurement:
    """Some counts of `count_boundary`, edge by edge.

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
    found = Measurement()
    boundary = np.zeros(worker.size, bool)
    for name, part in ((UNFUSED, unit + worker * (int(unit.max()) + 1)), (FUSED, group)):
        apart = part[edges.reader] != part[edges.heard]
        pairs = np.unique(
            np.stack([edges.heard[apart], part[edges.reader[apart]],
                      worker[edges.reader[apart]]]), axis=1)  # fmt: skip
        own = pairs[0][worker[pairs[0]] == pairs[2]]
        loads = 1 + np.bincount(own, minlength=worker.size)
        if name == UNFUSED:
            boundary = loads > 1
            found.observe("boundary_rows", int(boundary.sum()))
            found.observe("rows_loaded", int(loads[boundary].max(initial=0)), of="most")
            least = int(loads[boundary].min()) if boundary.any() else 0
            found.observe("rows_loaded", least, of="least")
        found.observe("rows_loaded", int(loads[boundary].sum()), of="boundary", format=name)
    return found


def count_boundary(
    task: SequenceWorkload, data: SnapshotSequence, dealt: WorkAssignment
) -> tuple[Measurement, list[Tensor]]:
    """Rows loaded in one round by all workers, before and after spatial fusion.

    A boundary row is one that another chunk of its worker hears. Beside the counts: by worker, the
    group that each unit is fused into.
    """
    from dgbench.systems.dgc.fusion import fuse_units, shared_rows
    from dgbench.systems.dgc.plan import plan_worker

    rows = 0
    of_boundary = Counter[str]()
    most, least = [0], list[int]()
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
        rows += int(boundary.sum())
        of_boundary[UNFUSED] += int(loads[boundary].sum())
        of_boundary[FUSED] += int(loads_after[boundary].sum())
        if bool(boundary.any()):
            most.append(int(loads[boundary].max()))
            least.append(int(loads[boundary].min()))
    found = Measurement()
    found.observe("boundary_rows", rows)
    found.observe("rows_loaded", max(most), of="most")
    found.observe("rows_loaded", min(least, default=0), of="least")
    for name in (UNFUSED, FUSED):
        found.observe("rows_loaded", of_boundary[name], of="boundary", format=name)
    return found, groups
