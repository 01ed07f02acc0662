"""The oracle of temporal sampling: sorted arrays, numpy, one root after the other.

It says what a sample is; every faster sampler must return the same records in the same order.

- Records of a vertex are in time order, equal times in the order of their arrival.
- Candidates of a root are its records with begin <= time < end (closed: <= end), less the deleted.
- Recent: the newest candidates, oldest of them first. Uniform: all in time order where they are
  no more than the fan-out, otherwise drawn by Floyd's rule without replacement.
- Numbers come from Philox4x32-10 by counter (`plain_draws`), so they depend on the root's position
  in the whole batch and not on who samples it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_sample import Sample, Walks
from dgbench.runtime.errors import InvalidInputError

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


class PlainGraph:
    """A temporal graph as sorted arrays, sorted again after every insertion.

    Args:
        num_vertices: N, at least 0.
        undirected: keep every edge at both of its ends, a self edge twice.
    """

    def __init__(self, num_vertices: int, *, undirected: bool = False) -> None:
        self.num_vertices = num_vertices
        self.undirected = undirected
        self._src, self._dst, self._eid = (np.empty(0, np.int64) for _ in range(3))
        self._t = np.empty(0, np.float64)
        self._dead = np.empty(0, np.int64)
        self._gone = np.zeros(num_vertices, bool)
        self._sort()

    def insert(self, src: Tensor, dst: Tensor, t: Tensor, eid: Tensor | None = None) -> None:
        """Add events; int64[E], int64[E], float64[E], and int64[E] or running numbers."""
        first = self._eid.size
        ids = np.arange(first, first + src.numel()) if eid is None else eid.numpy()
        self._src = np.concatenate((self._src, src.numpy()))
        self._dst = np.concatenate((self._dst, dst.numpy()))
        self._t = np.concatenate((self._t, t.numpy().astype(np.float64)))
        self._eid = np.concatenate((self._eid, ids))
        self._sort()

    def delete_edges(self, eid: Tensor) -> None:
        """Take edges out of every list they stand in."""
        self._dead = np.union1d(self._dead, eid.numpy())
        self._sort()

    def delete_vertices(self, ids: Tensor) -> None:
        """Hide vertices: they have no neighbours and are nobody's."""
        self._gone[ids.numpy()] = True
        self._sort()

    def revive_vertices(self, ids: Tensor) -> None:
        """Show hidden vertices again, with the edges that they had."""
        self._gone[ids.numpy()] = False
        self._sort()

    def neighbours(self, vertex: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ids int64[d], edge ids int64[d], times float64[d]) in time order."""
        mine = slice(self._indptr[vertex], self._indptr[vertex + 1])
        return self._nodes[mine], self._eids[mine], self._times[mine]

    def _sort(self) -> None:
        owner, other, eid, t = self._src, self._dst, self._eid, self._t
        if self.undirected:  # src's record of an event stands before dst's
            owner = np.stack((self._src, self._dst), 1).ravel()
            other = np.stack((self._dst, self._src), 1).ravel()
            eid, t = eid.repeat(2), t.repeat(2)
        alive = ~(np.isin(eid, self._dead) | self._gone[owner] | self._gone[other])
        owner, other, eid, t = owner[alive], other[alive], eid[alive], t[alive]
        order = np.lexsort((t, owner))  # stable
        self._nodes, self._eids, self._times = other[order], eid[order], t[order]
        counts = np.bincount(owner, minlength=self.num_vertices)
        self._indptr = np.concatenate(([0], np.cumsum(counts)))


def plain_sample(
    graph: PlainGraph,
    nodes: Tensor,
    times: Tensor,
    *,
    fanout: int,
    policy: str = "recent",
    window: float | None = None,
    closed: bool = False,
    replace: bool = False,
    seed: int = 0,
    draw: int = 0,
    hop: int = 0,
    snapshot: int = 0,
    positions: Tensor | None = None,
) -> Sample:
    """One hop; the arguments and the answer of `sample_neighbours`."""
    begins = torch.full_like(times, -torch.inf) if window is None else times - window
    return plain_between(
        graph, nodes, begins, times, fanout=fanout, policy=policy, closed=closed, replace=replace,
        seed=seed, draw=draw, hop=hop, snapshot=snapshot, positions=positions,
    )  # fmt: skip


def plain_between(
    graph: PlainGraph,
    nodes: Tensor,
    begins: Tensor,
    ends: Tensor,
    *,
    fanout: int,
    policy: str = "recent",
    closed: bool = False,
    replace: bool = False,
    seed: int = 0,
    draw: int = 0,
    hop: int = 0,
    snapshot: int = 0,
    positions: Tensor | None = None,
) -> Sample:
    """One hop with a window of its own for each root; the answer of `sample_between`."""
    roots = nodes.numel()
    where = torch.arange(roots) if positions is None else positions
    lists = []
    firsts, counts = np.zeros(roots, np.int64), np.zeros(roots, np.int64)
    for i, (node, begin, end) in enumerate(
        zip(nodes.tolist(), begins.tolist(), ends.tolist(), strict=True)
    ):
        mine = graph.neighbours(node)
        first = np.searchsorted(mine[2], begin, "left")
        last = np.searchsorted(mine[2], end, "right" if closed else "left")
        lists.append(mine)
        firsts[i], counts[i] = first, max(0, last - first)
    if policy == "recent":
        taken = np.minimum(counts, fanout)
        chosen = [range(n - k, n) for n, k in zip(counts.tolist(), taken.tolist(), strict=True)]
    elif policy == "uniform":
        drawn = (counts > 0) & ((counts > fanout) | replace)
        draws = np.zeros((roots, fanout if drawn.any() else 0), np.uint64)
        draws[drawn] = plain_draws(where.numpy()[drawn], draws.shape[1], seed, draw, hop, snapshot)
        chosen = _uniform(counts, fanout, replace, draws)
    else:
        raise InvalidInputError(f"policy is {policy!r}, allowed are 'recent' and 'uniform'")
    kept = [first + np.asarray(c, np.int64) for first, c in zip(firsts, chosen, strict=True)]
    nothing = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    columns = [
        np.concatenate([part, *(mine[c][k] for mine, k in zip(lists, kept, strict=True))])
        for c, part in enumerate(nothing)
    ]
    offsets = np.concatenate(([0], np.cumsum([k.size for k in kept]))).astype(np.int64)
    return Sample(
        nodes, ends, where, torch.from_numpy(offsets), *map(torch.from_numpy, columns), fanout
    )


def plain_hops(
    graph: PlainGraph,
    nodes: Tensor,
    times: Tensor,
    fanouts: Sequence[int],
    *,
    snapshots: int = 1,
    window: float | None = None,
    prop_time: bool = False,
    positions: Tensor | None = None,
    **how: object,
) -> list[list[Sample]]:
    """[snapshot][hop]; the arguments and the answer of `sample_hops`."""
    every = []
    for snapshot in range(snapshots):
        ends = times - snapshot * window if snapshot and window is not None else times
        targets, where, hops = nodes, positions, []
        for hop, fanout in enumerate(fanouts):
            one = plain_sample(
                graph, targets, ends, fanout=fanout, window=window, hop=hop, snapshot=snapshot,
                positions=where, **how,
            )  # type: ignore[arg-type]  # fmt: skip
            hops.append(one)
            children = [
                p * (fanout + 1) + 1 + i
                for p, n in zip(one.positions.tolist(), one.offsets.diff().tolist(), strict=True)
                for i in range(n)
            ]
            targets = torch.cat((targets, one.neighbours))
            asked = ends.repeat_interleave(one.offsets.diff()) if prop_time else one.edge_times
            ends = torch.cat((ends, asked))
            mine = torch.tensor(children, dtype=torch.int64)
            where = torch.cat((one.positions * (fanout + 1), mine))
        every.append(hops)
    return every


def plain_walks(
    graph: PlainGraph,
    nodes: Tensor,
    times: Tensor,
    length: int,
    *,
    positions: Tensor | None = None,
    **how: object,
) -> Walks:
    """The answer of `random_walks`: fan-out 1 at every step, hop s draws step s."""
    roots = nodes.numel()
    where = torch.arange(roots) if positions is None else positions
    found = torch.full((roots, length + 1), -1, dtype=torch.int64)
    eids = torch.full((roots, length), -1, dtype=torch.int64)
    when = torch.full((roots, length + 1), torch.nan, dtype=torch.float64)
    found[:, 0], when[:, 0] = nodes, times
    for root in range(roots):
        for step in range(length):
            one = plain_sample(
                graph, found[root, step : step + 1], when[root, step : step + 1], fanout=1,
                hop=step, positions=where[root : root + 1], **how,
            )  # type: ignore[arg-type]  # fmt: skip
            if one.neighbours.numel() == 0:
                break
            found[root, step + 1] = one.neighbours[0]
            when[root, step + 1] = one.edge_times[0]
            eids[root, step] = one.eids[0]
    return Walks(found, when, eids)


def plain_draws(
    positions: np.ndarray, count: int, seed: int, draw: int, hop: int = 0, snapshot: int = 0
) -> np.ndarray:
    """uint64[R, count]: the random numbers of each root, all 64 bits of them.

    Philox4x32-10 with the key `seed` and the counter (j | hop << 16 | snapshot << 24, position low,
    position high, draw); call j gives the numbers 2j and 2j + 1.
    """
    calls = (count + 1) // 2
    place = positions.astype(np.int64).view(np.uint64)[:, None]
    j = np.arange(calls, dtype=np.uint64)[None, :]
    shape = (positions.size, calls)
    c0 = np.broadcast_to(j | np.uint64(hop << 16 | snapshot << 24), shape)
    c1 = np.broadcast_to(place & _LOW, shape)
    c2 = np.broadcast_to(place >> _HALF, shape)
    c3 = np.full(shape, draw, np.uint64)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = b >> _HALF ^ c1 ^ k0, b & _LOW, a >> _HALF ^ c3 ^ k1, a & _LOW
        k0 = (k0 + np.uint64(0x9E3779B9)) & _LOW
        k1 = (k1 + np.uint64(0xBB67AE85)) & _LOW
    both = np.stack((c0 | c1 << _HALF, c2 | c3 << _HALF), 2)
    return both.reshape(positions.size, 2 * calls)[:, :count]


def _uniform(
    counts: np.ndarray, fanout: int, replace: bool, draws: np.ndarray
) -> list[Sequence[int]]:
    """Numbers in [0, n) that each root takes of its n candidates, in the order of the output."""
    chosen: list[Sequence[int]] = []
    for n, mine in zip(counts.tolist(), draws.tolist(), strict=True):
        if n == 0 or (n <= fanout and not replace):
            chosen.append(range(n))
        elif replace:
            chosen.append([number * n >> 64 for number in mine])
        else:
            kept: list[int] = []
            for i, number in enumerate(mine):
                last = n - fanout + i
                r = number * (last + 1) >> 64
                kept.append(last if r in kept else r)
            chosen.append(kept)
    return chosen
