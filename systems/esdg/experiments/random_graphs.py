"""The random graphs of the weak-scaling runs (ESDG, SC 2021, section 6.3), made in memory.

Each snapshot is drawn by itself: m = f N pairs of vertices, uniformly. Pairs that occur twice and
loops are dropped from what is stored; at the paper's sizes that is fewer than one in ten thousand.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from dgbench.datasets import Origin, SnapshotSequence
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError

STEPS: Final = 256
DENSITY: Final = 3
"""T and f of the paper."""

FIRST_NODES: Final = 2**14
"""N at one GPU; it doubles with the GPUs."""

DATASET: Final = "random-weak"


def draw(num_nodes: int, density: int, rng: np.random.Generator) -> Csr:
    """One snapshot: `density * num_nodes` pairs drawn with replacement, loops and repeats dropped.

    Rows are the targets.
    """
    drawn = rng.integers(0, num_nodes * num_nodes, size=density * num_nodes, dtype=np.int64)
    drawn.sort()
    rows, cols = np.divmod(drawn, num_nodes)
    keep = rows != cols
    keep[1:] &= drawn[1:] != drawn[:-1]
    rows, cols = rows[keep], cols[keep]
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=indptr[1:])
    return Csr(torch.from_numpy(indptr), torch.from_numpy(cols.astype(np.int32)), num_nodes)


def random_graphs(
    num_nodes: int, *, steps: int = STEPS, density: int = DENSITY, seed: int = 1
) -> SnapshotSequence:
    """A timeline of such snapshots, with in-degree and out-degree as features.

    Args:
        num_nodes: N, at least 2.
        steps: T.
        density: f, pairs drawn per vertex.
        seed: of the pairs.

    Raises:
        InvalidInputError: an argument out of range.
    """
    for name, value, least in (("num_nodes", num_nodes, 2), ("steps", steps, 1),
                               ("density", density, 1)):  # fmt: skip
        if value < least:
            raise InvalidInputError(f"{name} is {value}, allowed are numbers from {least}")
    rng = np.random.default_rng(seed)
    topology = [draw(num_nodes, density, rng) for _ in range(steps)]
    features = torch.empty(steps, num_nodes, 2)
    for t, csr in enumerate(topology):
        features[t, :, 0] = csr.indptr.diff()
        features[t, :, 1] = torch.bincount(csr.indices, minlength=num_nodes)
    origin = Origin(
        dataset=DATASET,
        seed=seed,
        notes=("drawn by the paper's own recipe: every snapshot by itself",),
    )
    return SnapshotSequence(
        topology=topology,
        features=features,
        targets=features[:, :, 0].contiguous(),
        num_nodes=num_nodes,
        origin=origin,
        edge_counts=tuple(csr.nnz for csr in topology),
    )


def paper_edges(ranks: int, *, steps: int = STEPS, density: int = DENSITY) -> int:
    """Edges of all snapshots at so many GPUs, a loop per vertex included: N T (f + 1)."""
    return FIRST_NODES * ranks * steps * (density + 1)
