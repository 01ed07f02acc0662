"""Blocks of a growing graph by counting alone: no records, any policy, graphs of any size."""

from __future__ import annotations

import numpy as np

from dgbench.kernels_cuda.temporal_store import BlockPolicy


class BlockCounts:
    """Lists of every vertex after any number of batches, as `TemporalStore` would hold them.

    Attributes:
        blocks: int64[N], blocks of each vertex.
        slots, records: of all vertices.

    Args:
        num_vertices: N.
        policy: of block sizes; `static` counts one full block of each vertex with a record.
    """

    def __init__(self, num_vertices: int, policy: BlockPolicy) -> None:
        self.policy = policy
        self.blocks = np.zeros(num_vertices, np.int64)
        self.slots = 0
        self.records = 0
        self._degree = np.zeros(num_vertices, np.int64)
        self._free = np.zeros(num_vertices, np.int64)

    def add(self, vertices: np.ndarray, counts: np.ndarray) -> None:
        """A batch that brings `counts[i]` >= 1 records to `vertices[i]`, each named once."""
        policy, added = self.policy, int(counts.sum())
        self.records += added
        self._degree[vertices] += counts
        if policy.name == "static":
            self.blocks[vertices] = 1
            self.slots += added
            return
        free = self._free[vertices]
        rest = np.maximum(counts - free, 0)
        self._free[vertices] = np.maximum(free - counts, 0)
        vertices, rest = vertices[rest > 0], rest[rest > 0]
        bound = np.minimum(self._degree[vertices], policy.size)
        capacity = {
            "adaptive": np.maximum(rest, bound),
            "adaptive_literal": bound,
            "fixed": np.full_like(rest, policy.size),
            "strawman": rest,
        }[policy.name]
        made = -(-rest // capacity)
        self.blocks[vertices] += made
        self.slots += int((made * capacity).sum())
        self._free[vertices] = made * capacity - rest
