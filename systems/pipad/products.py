"""The aggregation of a frame as a compiled step takes it: made once for a frame, then kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dgbench.kernels_cuda.steps import FrameProduct
from dgbench.systems.pipad.partitions import Partitions, SnapshotPartition
from dgbench.systems.pipad.snapshots import Snapshot

Key = tuple[int, bool, int]
"""Snapshots of a partition, whether they are merged, and floats a vertex."""


class KeptProduct(NamedTuple):
    """Product of a frame for a compiled step, valid as long as its key is."""

    key: Key
    product: FrameProduct
    launches: int
    entries: int


def product_of(
    sources: Partitions, groups: Sequence[range], width: int, *, together: bool
) -> KeptProduct:
    """Of a frame's groups, each merged (PiPAD 4.2) or its snapshots one by one."""
    key = len(groups[0]), together, width
    if together:
        return of_partitions([sources.partition(group) for group in groups], key)
    return of_snapshots([sources.snapshot(t) for group in groups for t in group], key)


def of_partitions(partitions: Sequence[SnapshotPartition], key: Key) -> KeptProduct:
    """Of partitions that follow each other and are merged (PiPAD 4.2)."""
    product, entries = FrameProduct(partitions[0].row_scale.shape[0]), 0
    for part in partitions:
        product.add(part.parts, part.row_scale, part.col_scale, key[2])
        entries += part.parts.over.nnz + sum(csr.nnz for csr in part.parts.exclusive)
    return KeptProduct(key, product, len(partitions), entries)


def of_snapshots(snapshots: Sequence[Snapshot], key: Key) -> KeptProduct:
    """Of snapshots one by one."""
    product, entries = FrameProduct(snapshots[0][1].shape[0]), 0
    for csr, row_scale, col_scale in snapshots:
        product.add(csr, row_scale, col_scale, key[2])
        entries += csr.nnz
    return KeptProduct(key, product, len(snapshots), entries)
