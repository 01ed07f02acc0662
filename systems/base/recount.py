"""Recount of counters: what steps of training must at least touch, counted from the graphs.

A counter is what a system says of itself, and claims rest on it. How much work a system may save is
its technique: aggregations of a frame may be kept for the next one, edges that snapshots share may
be read once. So the recount gives bounds that no technique can pass. Of `edges_aggregated`, every
edge of the snapshots that a model reads is read once by the first layer, at any time since the
trainer was opened, and once in each step by the layers above, whose inputs change with the
parameters. Of bytes to a device, one float of each vertex and snapshot is sent at least once. Of
aggregations that were reused, there are no more than snapshots in the frames.

The count is of plain numpy and knows nothing of any system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.runtime.touched import comparing
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

AGAINST: Final = "recount of the workload's graphs"
HIDDEN_LAYERS: Final = {"tgcn_model": 0, "evolvegcn": 1, "mpnn_lstm": 1}
"""Layers of a model that aggregate what the layer below has made."""
MAX_MERGED: Final = 2_000_000
"""Edges that are merged to find those that snapshots share; of more, the largest snapshot counts
alone."""
FLOAT_BYTES: Final = 4


@comparing()
def recounted(
    workload: object,
    data: SnapshotSequence,
    counters: Mapping[str, int],
    before: Mapping[str, int],
    steps: Sequence[int],
    num_frames: int,
    *,
    system: str = "",
) -> list[ResultCheck]:
    """A check of the counters of a trainer's steps; none where it counted nothing that is known.

    Args:
        workload, data: what is trained; other tasks than those on frames have no recount here.
        counters: of `steps`, numbers of the counted steps, which follow one another.
        before: of all work before them: preparation and steps `0 .. steps[0] - 1`.
        num_frames: of an epoch.
    """
    if not isinstance(workload, Workload) or not steps:
        return []
    every = [_needed(workload, step % num_frames) for step in range(steps[-1] + 1)]
    faults, compared = [], 0

    def at_least(name: str, found: int, least: int) -> None:
        nonlocal compared
        compared += 1
        if found < least:
            gap = (least - found) / max(least, 1)
            faults.append((gap, f"{name}: {found:,}, a recount finds {least:,} at least"))

    if "edges_aggregated" in counters or "edges_aggregated" in before:
        upper = HIDDEN_LAYERS[workload.model]
        edges = _Edges(data)
        above = [upper * edges.of(times) for times in every]
        lower = edges.of({t for times in every for t in times})
        mine = counters.get("edges_aggregated", 0)
        at_least("edges_aggregated", mine, sum(above[steps[0] :]))
        total = mine + before.get("edges_aggregated", 0)
        at_least("edges_aggregated with all work before", total, lower + sum(above))
    if reused := counters.get("reused_aggregations", 0):
        compared += 1
        most = workload.frame * len(steps)
        if reused > most:
            words = f"reused_aggregations: {reused:,}, a recount finds {most:,} at most"
            faults.append((1 - most / reused, words))
    sent = counters.get("bytes_h2d_counted", 0) + before.get("bytes_h2d_counted", 0)
    if sent:
        snapshots = len({t for times in every for t in times})
        at_least("bytes_h2d_counted", sent, FLOAT_BYTES * data.num_nodes * snapshots)
    if not compared:
        return []
    gap, part = max(faults, default=(0.0, ""))
    return [
        at_most("counters", gap, 0.0, against=AGAINST, compared=compared, part=part, system=system)
    ]


def _needed(workload: Workload, frame: int) -> list[int]:
    """Snapshots whose graphs the loss of a frame hangs on."""
    first = frame * workload.stride
    times = range(first, first + workload.frame)
    if workload.model == "evolvegcn" and workload.loss_on == "last":
        return [times[-1]]  # its weights evolve without the graphs
    return list(times)


class _Edges:
    """Edges of snapshots, those that several share counted once."""

    def __init__(self, data: SnapshotSequence) -> None:
        self._data = data
        self._known: dict[frozenset[int], int] = {}

    def of(self, times: Iterable[int]) -> int:
        key = frozenset(times)
        if key not in self._known:
            self._known[key] = self._count(sorted(key))
        return self._known[key]

    def _count(self, times: Sequence[int]) -> int:
        graphs = [self._data.topology[t] for t in times]
        sizes = [len(csr.indices) for csr in graphs]
        if sum(sizes) > MAX_MERGED:
            return max(sizes)
        nodes = self._data.num_nodes
        keys = [np.empty(0, dtype=np.int64)]
        for csr in graphs:
            degrees = np.diff(np.asarray(csr.indptr, dtype=np.int64))
            rows = np.repeat(np.arange(len(degrees), dtype=np.int64), degrees)
            keys.append(rows * nodes + np.asarray(csr.indices, dtype=np.int64))
        return len(np.unique(np.concatenate(keys)))
