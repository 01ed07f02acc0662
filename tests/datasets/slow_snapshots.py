"""A slow, obvious version of the compiled `edge_snapshots`, for comparison."""

import torch

from dgbench.kernels_cuda.csr import Csr


def slow_edge_snapshots(
    src, dst, bins, num_snapshots, num_nodes, *, weight=None, edge_life=1, symmetric=False,
    drop_self_loops=True, weighted=False,
):  # fmt: skip
    """Snapshot k holds the events of bins k - edge_life + 1 .. k; duplicates add up."""
    snapshots = []
    for step in range(num_snapshots):
        entries = {}
        for i in range(len(src)):
            s, d = int(src[i]), int(dst[i])
            if not step - edge_life < int(bins[i]) <= step or (drop_self_loops and s == d):
                continue
            amount = 1.0 if weight is None else float(weight[i])
            for key in {(d, s), (s, d)} if symmetric else {(d, s)}:
                entries[key] = entries.get(key, 0.0) + amount
        keys = sorted(entries)
        indptr = torch.zeros(num_nodes + 1, dtype=torch.int64)
        for row, _ in keys:
            indptr[row + 1 :] += 1
        indices = torch.tensor([col for _, col in keys], dtype=torch.int32)
        values = torch.tensor([entries[key] for key in keys]) if weighted else None
        snapshots.append(Csr(indptr, indices, num_nodes, values))
    return snapshots
