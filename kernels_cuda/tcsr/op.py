"""A temporal graph as sorted rows: built from all edges, sampled by a search in each root's row.

This is how TGL (Zhou et al., VLDB 2022) keeps a growing graph, and what GNNFlow's blocks are held
against. Unlike TGL's own, times are exact, samples are without replacement unless asked for, and
two calls differ. Neighbours are drawn by the same rule as in `temporal_sample`, so that both give
the same answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda._dispatch import capsule
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.temporal_sample.batch import sample_batch
from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.runtime.errors import InvalidInputError, unknown_key

_CPU = torch.device("cpu")
POLICIES = ("recent", "uniform")


@dataclass(frozen=True, slots=True, eq=False)
class Tcsr:
    """K records of N vertices, each row in time order, equal times in order of arrival.

    Attributes:
        indptr: int64[N + 1].
        neighbours, eids: int64[K].
        times: float64[K].
    """

    indptr: Tensor
    neighbours: Tensor
    eids: Tensor
    times: Tensor

    @property
    def num_vertices(self) -> int:
        """N."""
        return self.indptr.numel() - 1

    @property
    def num_records(self) -> int:
        """K."""
        return self.times.numel()

    @property
    def nbytes(self) -> int:
        """Bytes of all four arrays."""
        return 8 * (self.indptr.numel() + 3 * self.num_records)


def build_tcsr(
    num_vertices: int,
    src: Tensor,
    dst: Tensor,
    t: Tensor,
    eid: Tensor | None = None,
    *,
    undirected: bool = False,
    threads: int | None = None,
) -> Tcsr:
    """Sort E events into rows by counting; the order of events decides among equal times.

    Args:
        num_vertices: N.
        src, dst: int64[E] in [0, N).
        t: float64[E] or int64[E], finite. Sorted first, stably, where it is not in order.
        eid: int64[E], by default the place of each event.
        undirected: keep each event at both ends, a self edge twice; else at its source.
        threads: OpenMP threads, torch's number if None. The result does not depend on it.

    Raises:
        InvalidInputError: wrong dtypes or lengths, ids out of range, times that are not finite.
    """
    if num_vertices < 0:
        raise InvalidInputError(f"num_vertices is {num_vertices}, allowed are 0 and more")
    count = src.numel() if isinstance(src, Tensor) else None
    for name, ids in (("src", src), ("dst", dst)):
        check_vector(ids, name, torch.int64, count)
        check_ids(ids, name, num_vertices)
    if isinstance(t, Tensor) and t.dtype == torch.int64:
        t = t.to(torch.float64)
    check_vector(t, "t", torch.float64, count)
    bad = (~torch.isfinite(t)).nonzero()
    if bad.numel():
        raise InvalidInputError(f"t[{int(bad[0])}] is {float(t[bad[0]])}, times must be finite")
    eid = torch.arange(count) if eid is None else eid
    check_vector(eid, "eid", torch.int64, count)
    if bool((t[1:] < t[:-1]).any()):
        order = torch.sort(t, stable=True).indices
        src, dst, t, eid = src[order], dst[order], t[order], eid[order]
    records = src.numel() * (2 if undirected else 1)
    indptr = torch.empty(num_vertices + 1, dtype=torch.int64)
    neighbours, eids = (torch.empty(records, dtype=torch.int64) for _ in range(2))
    times = torch.empty(records, dtype=torch.float64)
    extension(_CPU).build_tcsr(
        num_vertices, *(a.contiguous() for a in (src, dst, t, eid)), undirected, indptr,
        neighbours, eids, times, _threads(threads),
    )  # fmt: skip
    return Tcsr(indptr, neighbours, eids, times)


def sample_tcsr(
    rows: Tcsr,
    nodes: Tensor,
    times: Tensor,
    *,
    fanout: int,
    policy: Literal["recent", "uniform"] = "recent",
    window: float | None = None,
    closed: bool = False,
    replace: bool = False,
    seed: int = 0,
    draw: int = 0,
    hop: int = 0,
    snapshot: int = 0,
    positions: Tensor | None = None,
    threads: int | None = None,
) -> Sample:
    """Neighbours of R roots before the time each asks at; see `temporal_sample.sample_neighbours`.

    `hop` and `snapshot` only say which random numbers are meant.

    Raises:
        InvalidInputError: wrong dtypes or lengths, ids out of range, a fanout below 1, a window
            below 0, NaN as a time, or a number out of its range.
        UnknownKeyError: another policy.
    """
    return _sample(
        rows, nodes, times, (fanout,), policy=policy, window=window, closed=closed,
        replace=replace, seed=seed, draw=draw, hop=hop, snapshot=snapshot, positions=positions,
        threads=threads,
    )[0][0]  # fmt: skip


def sample_tcsr_hops(
    rows: Tcsr,
    nodes: Tensor,
    times: Tensor,
    fanouts: Sequence[int],
    *,
    policy: Literal["recent", "uniform"] = "recent",
    window: float | None = None,
    snapshots: int = 1,
    prop_time: bool = False,
    closed: bool = False,
    replace: bool = False,
    seed: int = 0,
    draw: int = 0,
    positions: Tensor | None = None,
    threads: int | None = None,
) -> list[list[Sample]]:
    """`[snapshot][hop]`; see `temporal_sample.sample_hops`.

    Snapshot s looks at [t - (s + 1) w, t - s w); targets of a hop are those of the hop before, at
    their own times, and then all that were drawn for them, at the times of their edges or, with
    `prop_time`, of their targets.

    Raises:
        InvalidInputError: as `sample_tcsr`, no fanout, or several snapshots without a window.
        UnknownKeyError: another policy.
    """
    if snapshots > 1 and window is None:
        raise InvalidInputError(f"snapshots is {snapshots} without a window", hint="pass `window`")
    return _sample(
        rows, nodes, times, tuple(fanouts), policy=policy, window=window, snapshots=snapshots,
        prop_time=prop_time, closed=closed, replace=replace, seed=seed, draw=draw,
        positions=positions, threads=threads,
    )  # fmt: skip


def _sample(
    rows: Tcsr,
    nodes: Tensor,
    times: Tensor,
    fanouts: tuple[int, ...],
    *,
    policy: str,
    window: float | None,
    closed: bool,
    replace: bool,
    seed: int,
    draw: int,
    positions: Tensor | None,
    threads: int | None,
    snapshots: int = 1,
    prop_time: bool = False,
    hop: int = 0,
    snapshot: int = 0,
) -> list[list[Sample]]:
    """[snapshot][hop], checked and sampled by one compiled call, as TGL's own sampler does it."""
    if policy not in POLICIES:
        raise unknown_key("policy", policy, POLICIES)
    if not fanouts:
        raise InvalidInputError("fanouts is empty; one number for each hop is needed")
    threads = _threads(threads)
    for name, value, low, high in (
        ("seed", seed, 0, 2**64 - 1), ("draw", draw, 0, 2**32 - 1), ("hop", hop, 0, 255),
        ("snapshot", snapshot, 0, 255), ("snapshots", snapshots, 1, 256),
        ("threads", threads, 1, 2**16),
    ):  # fmt: skip
        if not low <= value <= high:
            raise InvalidInputError(f"{name} is {value}; {low} to {high} are allowed")
    for fanout in fanouts:
        if isinstance(fanout, bool) or not isinstance(fanout, int) or not 1 <= fanout < 2**16:
            raise InvalidInputError(f"fanout is {fanout!r}; an integer from 1 to 65535 is allowed")
    if window is not None and not window >= 0:
        raise InvalidInputError(f"window is {window!r}; a length from 0 or None is allowed")
    check_vector(nodes, "nodes", torch.int64)
    count = nodes.numel()
    check_vector(times, "times", torch.float64, count)
    if positions is not None:
        check_vector(positions, "positions", torch.int64, count)
        positions = positions.contiguous()
    nodes, times = nodes.contiguous(), times.contiguous()
    compiled = extension(_CPU).sample_tcsr
    length = float("inf") if window is None else float(window)

    def fill(capacities: list[int], out: Tensor) -> list[int]:
        return compiled(
            to_dlpack(rows.indptr), to_dlpack(rows.neighbours), to_dlpack(rows.eids),
            to_dlpack(rows.times), to_dlpack(nodes), to_dlpack(times), capsule(positions), length,
            fanouts, capacities, snapshots, prop_time, policy == "uniform", closed, replace, seed,
            draw, hop, snapshot, threads, to_dlpack(out),
        )  # fmt: skip

    def refuse(root: int) -> None:
        check_ids(nodes, "nodes", rows.num_vertices)
        if root < count and bool(times[root].isnan()):
            raise InvalidInputError(f"times[{root}] is nan, allowed are numbers and infinities")
        raise InvalidInputError(f"rows: indptr or neighbours do not fit, target {root} has no row")

    return sample_batch(fill, refuse, count, fanouts, snapshots, prop_time)


def _threads(threads: int | None) -> int:
    return torch.get_num_threads() if threads is None else threads
