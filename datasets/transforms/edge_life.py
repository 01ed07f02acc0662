"""Edge-life smoothing: an edge stays for a number of snapshots (ESDG 5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.datasets.transforms.stacks import flatten
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.fields import check_count


def edge_life(snapshots: Sequence[Csr], life: int) -> list[Csr]:
    """Let every edge live `life` snapshots, the one it appears in included.

    Snapshot t becomes the sum of the given snapshots max(0, t - life + 1) .. t; entries that
    occur more than once are merged and their values added. ESDG's text says that an edge lives
    for the *subsequent* l snapshots, its formula has l terms in all; the formula is used.

    Args:
        snapshots: T matrices of one size. Entries without values count as 1 each and the result
            has no values either: only the union of the entries is kept.
        life: l >= 1; 1 returns the snapshots as they are.

    Returns:
        T matrices. Self loops that are in the input stay.
    """
    check_count("life", life)
    if life == 1 or len(snapshots) <= 1:
        return list(snapshots)
    from dgbench.kernels_cuda.snapshots import edge_snapshots

    weighted = snapshots[0].values is not None
    src, dst, step, weight = flatten(snapshots)
    return edge_snapshots(
        src,
        dst,
        step,
        len(snapshots),
        snapshots[0].num_rows,
        weight=weight,
        edge_life=life,
        drop_self_loops=False,
        weighted=weighted,
    )
