"""Groups of snapshots with a wanted overlap rate, and a race of partition sizes over them.

For the tuner's offline table and for Figure 9 (PiPAD 4.4): the graph kernels alone, forward and
backward, S snapshots at a time against one at a time, on groups made to share a given part of
their entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.pipad.kernels import Aggregate, ArrivedKernel, PlacedKernel, Turn
from dgbench.systems.pipad.partitions import Partitions, split

SNAPSHOTS: Final = 8
"""Snapshots of a group: the largest partition of the paper."""

_ROUNDS = 6


def random_group(
    nodes: int, edges: int, overlap_rate: float, *, snapshots: int = SNAPSHOTS, seed: int = 1
) -> list[Csr]:
    """A group over a random graph whose vertices are unequally busy, as in real graphs.

    Args:
        nodes: N, 2 or more.
        edges: entries of each snapshot.
        overlap_rate: share of them that all snapshots hold.
        snapshots: how many.
        seed: of the draw.

    Raises:
        InvalidInputError: a rate outside 0..1, or more distinct entries than the graph has room
            for.
    """
    draw = torch.Generator().manual_seed(seed)
    busy = torch.rand(8 * nodes, generator=draw, dtype=torch.float64).square()
    ids = torch.randperm(nodes, generator=draw)  # busy vertices anywhere, not at the beginning
    ends = ids[(busy * nodes).long().clamp_(max=nodes - 1)]
    empty = torch.empty(0, dtype=torch.int64)
    return _group(ends, ends, empty, nodes, edges, overlap_rate, snapshots, draw)


def made_group(
    base: Csr, overlap_rate: float, *, snapshots: int = SNAPSHOTS, seed: int = 1
) -> list[Csr]:
    """A group with the size and degrees of a real snapshot.

    All snapshots share a random part of the entries of `base`; the rest of each is drawn anew
    between its sources and its destinations, so that busy vertices stay busy.

    Raises:
        InvalidInputError: as `random_group`.
    """
    rows = torch.repeat_interleave(torch.arange(base.num_rows), base.indptr.diff())
    columns = base.indices.long()
    draw = torch.Generator().manual_seed(seed)
    known = rows * base.num_cols + columns
    known = known[rows != columns]
    known = known[torch.randperm(known.numel(), generator=draw)]
    return _group(rows, columns, known, base.num_rows, known.numel(), overlap_rate, snapshots, draw)


def _group(
    rows: Tensor,
    columns: Tensor,
    known: Tensor,
    nodes: int,
    edges: int,
    rate: float,
    snapshots: int,
    draw: torch.Generator,
) -> list[Csr]:
    """Snapshots of `edges` entries: shared ones first from `known`, all others distinct."""
    if not 0 <= rate <= 1:
        raise InvalidInputError(f"'overlap_rate' is {rate}, allowed: 0 to 1")
    shared = round(rate * edges)
    rest = edges - shared
    need = shared + snapshots * rest
    capacity = nodes * (nodes - 1)
    if need > capacity:
        raise InvalidInputError(
            f"{snapshots} snapshots of {edges} entries at overlap rate {rate:g} need {need} "
            f"distinct entries, {nodes} vertices have room for {capacity}"
        )
    core = known[:shared]
    found = _distinct(rows, columns, core, nodes, need, draw)
    core, found = found[:shared], found[shared:]
    group = []
    for i in range(snapshots):
        keys = torch.cat([core, found[i * rest : (i + 1) * rest]]).sort().values
        indptr = torch.zeros(nodes + 1, dtype=torch.int64)
        indptr[1:] = torch.bincount(keys // nodes, minlength=nodes).cumsum(0)
        group.append(Csr(indptr, (keys % nodes).to(torch.int32), nodes))
    return group


def _distinct(
    rows: Tensor, columns: Tensor, first: Tensor, nodes: int, need: int, draw: torch.Generator
) -> Tensor:
    """`need` distinct keys row * N + column without loops: `first`, then random ones."""
    found = first
    for round_ in range(_ROUNDS + 1):
        missing = need - found.numel()
        if missing <= 0:
            return found[:need]
        if round_ == _ROUNDS and nodes * nodes <= 1 << 26:
            # A dense graph runs out of likely pairs: take the rest from all there are.
            more = torch.randperm(nodes * nodes, generator=draw)
        elif round_ < _ROUNDS // 2 and rows.numel():
            picks = torch.randint(0, rows.numel(), (2, 2 * missing + 16), generator=draw)
            more = rows[picks[0]] * nodes + columns[picks[1]]
        else:
            more = torch.randint(0, nodes * nodes, (2 * missing + 16,), generator=draw)
        more = more[more // nodes != more % nodes]
        more = more[~torch.isin(more, found)].unique()
        found = torch.cat([found, more[torch.randperm(more.numel(), generator=draw)]])
    return found[:need]


def sequence_of(group: Sequence[Csr]) -> SnapshotSequence:
    """Snapshots without features of their own, for code that wants a sequence."""
    nodes = group[0].num_rows
    return SnapshotSequence(
        topology=list(group),
        features=torch.zeros(len(group), nodes, 1),
        targets=torch.zeros(len(group), nodes),
        num_nodes=nodes,
        origin=Origin("random", "twin", 1.0, 1, ()),
    )


def partitions_for(
    kernel: PlacedKernel | ArrivedKernel, group: Sequence[Csr], device: str
) -> Partitions:
    """Partitions of a group where a kernel takes them from: what arrives is packed on the CPU."""
    place = "cpu" if isinstance(kernel, ArrivedKernel) else device
    return Partitions(sequence_of(group), norm="sym", device=place)


def aggregation(
    kernel: PlacedKernel | ArrivedKernel, group: Sequence[Csr], s_per: int, device: str = "cpu"
) -> Aggregate:
    """Aggregation of a group's snapshots by a kernel, `s_per` at a time."""
    partitions, groups = partitions_for(kernel, group, device), split(range(len(group)), s_per)
    if isinstance(kernel, ArrivedKernel):
        return kernel.over(partitions, groups, torch.device(device))
    return kernel.over(partitions, groups)


def race(
    group: Sequence[Csr],
    width: int,
    sizes: Sequence[int],
    kernel: PlacedKernel | ArrivedKernel,
    *,
    device: str = "cpu",
    budget_s: float = 0.1,
    turns: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, list[float]]:
    """Seconds of each turn, forward and backward, by S_per; 1 is one snapshot at a time.

    The sizes take turns, every second turn backwards, so that drift of the machine cancels in the
    ratio of a turn. The first turn is not kept.

    Args:
        group: snapshots on the CPU.
        width: floats per vertex.
        sizes: partition sizes to race against 1.
        kernel: what aggregates, the very one of the engine (`kernels`).
        budget_s: seconds to aim for; at least `turns` turns are kept.
    """
    on_gpu = torch.device(device).type == "cuda"
    partitions = partitions_for(kernel, group, device)
    runs: dict[int, Turn] = {}
    for size in dict.fromkeys((1, *sizes)):
        groups = split(range(len(group)), size)
        if isinstance(kernel, ArrivedKernel):
            runs[size] = kernel.turn(partitions, groups, width, torch.device(device))
        else:
            runs[size] = kernel.turn(partitions, groups, width)

    def once(run: Turn) -> float:
        start = clock()
        run()
        if on_gpu:
            torch.cuda.synchronize(device)
        return clock() - start

    for run in runs.values():
        once(run)
    found: dict[int, list[float]] = {size: [] for size in runs}
    begin, turn, order = clock(), 0, list(runs)
    while turn < turns or (turn < 40 * turns and clock() - begin < budget_s):
        for size in order if turn % 2 == 0 else reversed(order):
            found[size].append(once(runs[size]))
        turn += 1
    return found


def typical(seconds: Sequence[float]) -> float:
    """The lower quartile: other work on the machine only ever adds to a turn."""
    return sorted(seconds)[len(seconds) // 4]


def gains_of(found: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """One-at-a-time over S-at-a-time seconds, by S_per."""
    single = typical(found[1])
    return {size: single / typical(times) for size, times in found.items() if size != 1}
