"""Temporal neighbours from a store of blocks: one hop, k hops, snapshots and walks (GNNFlow 4.2).

Candidates of a root are the records of its vertex in a window of time. Readings, with reasons:

- **Half open**: begin <= time < end, so the edge that is to be predicted, which happens at the
  root's own time, is never an answer. `closed=True` is section 2.1's window, which leaks it.
- **Without replacement**, and all candidates where they are no more than the fan-out. Recent stops
  at the k newest; the printed loop walks the whole list.
- **Deleted** records are no candidates, so they do not count.
- **Next hop**: targets are those of the hop before, at their own times, then the sampled
  neighbours, at the times of their edges or with `prop_time` at the time of their root. Snapshot s
  of a root at time t is its graph in [t - (s + 1) window, t - s window): it is sampled as a root
  at time t - s window. Only `prop_time` keeps all hops inside it, as TGL and GNNFlow do for DySAT.
- **Random numbers** by counter (`common/philox.hpp`): a sample depends on seed, draw, hop,
  snapshot and the root's position in the whole batch; not on threads, ranks or the device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from dgbench.kernels_cuda._checks import check_vector
from dgbench.kernels_cuda._dispatch import capsule
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.temporal_sample.batch import sample_batch
from dgbench.kernels_cuda.temporal_sample.samples import Sample, Walks
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_store import TemporalStore

__all__ = [
    "Sample", "TemporalSampler", "Walks", "next_targets", "random_walks",
    "sample_between", "sample_hops", "sample_neighbours",
]  # fmt: skip

POLICIES: Final = ("recent", "uniform")
_CPU: Final = torch.device("cpu")
SEARCHES: Final = ("binary", "linear")
MAX_UNIFORM_FANOUT: Final = 1 << 17
"""Largest fan-out with random numbers: calls are counted in 16 bits and give two numbers each."""


def sample_neighbours(
    store: TemporalStore,
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
    search: str = "binary",
    grouped: bool = True,
    threads: int | None = None,
) -> Sample:
    """Sample up to `fanout` neighbours of each root from before its time.

    Args:
        store: where the records are.
        nodes: int64[R], the roots. The same vertex may stand there several times.
        times: float64[R], not NaN. inf looks at everything.
        fanout: neighbours of a root at most, at least 1; `uniform` at most `MAX_UNIFORM_FANOUT`.
        policy: `recent`, the newest, oldest of them first; or `uniform`.
        window: how far back to look, in the unit of the times; None for all.
        closed: whether the window includes its end, and with it the root's own time.
        replace: draw `uniform` with replacement: `fanout` neighbours wherever there is one.
        seed: in [0, 2^64).
        draw: ordinal of the call, in [0, 2^32). The same number repeats the sample.
        hop, snapshot: in [0, 256), what else the numbers are counted by.
        positions: int64[R], each root's ordinal in the whole batch; 0 .. R - 1 if None.
        search: for the blocks of a window: `binary` over the times of a vertex's blocks, or
            `linear`, from the newest block back along the list, the paper's Algorithm 1. The
            samples are the same.
        grouped: look up 32 roots in step and ask for their lines of memory ahead; off for
            comparison. The samples are the same.
        threads: OpenMP threads, torch's number if None. The samples are the same.

    Raises:
        InvalidInputError: another dtype or length, a vertex that is not there, NaN, a window below
            0, or a number out of its range.
    """
    return _sample(
        store, nodes, times, (fanout,), policy=policy, window=window, closed=closed,
        replace=replace, seed=seed, draw=draw, hop=hop, snapshot=snapshot, positions=positions,
        search=search, grouped=grouped, threads=threads,
    )[0][0]  # fmt: skip


def sample_between(
    store: TemporalStore,
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
    search: str = "binary",
    grouped: bool = True,
    threads: int | None = None,
) -> Sample:
    """`sample_neighbours` with a window of its own for each root.

    Args:
        begins, ends: float64[R], not NaN: records with begin <= time < end (closed: <= end). A
            window that ends before it begins holds nothing. The sample's times are the ends.

    Raises:
        InvalidInputError: as `sample_neighbours`.
    """
    check_vector(ends, "ends", torch.float64)
    check_vector(begins, "begins", torch.float64, ends.numel())
    return _sample(
        store, nodes, ends, (fanout,), begins=begins, policy=policy, closed=closed,
        replace=replace, seed=seed, draw=draw, hop=hop, snapshot=snapshot, positions=positions,
        search=search, grouped=grouped, threads=threads,
    )[0][0]  # fmt: skip


def sample_hops(
    store: TemporalStore,
    nodes: Tensor,
    times: Tensor,
    fanouts: Sequence[int],
    *,
    policy: str = "recent",
    window: float | None = None,
    snapshots: int = 1,
    prop_time: bool = False,
    closed: bool = False,
    replace: bool = False,
    seed: int = 0,
    draw: int = 0,
    positions: Tensor | None = None,
    search: str = "binary",
    grouped: bool = True,
    threads: int | None = None,
) -> list[list[Sample]]:
    """Sample neighbours of neighbours, for one or several snapshots.

    Args:
        fanouts: of each hop, the hop next to the root first; at most 256 of them.
        window: length of a snapshot, or how far back to look; needed for several snapshots.
        snapshots: windows looked at, the newest first; 1 to 256.
        prop_time: whether neighbours are targets of the next hop at the time of their root, so that
            every hop has the root's window; otherwise at the times of their edges.
        Others as `sample_neighbours`.

    Returns:
        [snapshot][hop].

    Raises:
        InvalidInputError: as `sample_neighbours`, or several snapshots without a window.
    """
    if snapshots > 1 and window is None:
        raise InvalidInputError(f"snapshots is {snapshots} and window None, give their length")
    return _sample(
        store, nodes, times, tuple(fanouts), policy=policy, window=window, snapshots=snapshots,
        prop_time=prop_time, closed=closed, replace=replace, seed=seed, draw=draw,
        positions=positions, search=search, grouped=grouped, threads=threads,
    )  # fmt: skip


def next_targets(sample: Sample, prop_time: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """(nodes int64[R + K], times float64[R + K], positions int64[R + K]) of the hop that follows:
    the targets as they were, then their neighbours at the times of the edges, or with `prop_time`
    at the time of their target."""
    counts = sample.offsets.diff()
    times = sample.times.repeat_interleave(counts) if prop_time else sample.edge_times
    own = sample.positions * (sample.fanout + 1)
    first = own + 1 - sample.offsets[:-1]  # less the neighbours that stand before a target's
    numbers = torch.arange(sample.neighbours.numel(), device=first.device)
    children = first.repeat_interleave(counts) + numbers
    return (
        torch.cat((sample.nodes, sample.neighbours)),
        torch.cat((sample.times, times)),
        torch.cat((own, children)),
    )


def random_walks(
    store: TemporalStore,
    nodes: Tensor,
    times: Tensor,
    length: int,
    *,
    policy: str = "uniform",
    window: float | None = None,
    closed: bool = False,
    seed: int = 0,
    draw: int = 0,
    positions: Tensor | None = None,
    threads: int | None = None,
) -> Walks:
    """Walk `length` edges back in time from each root; a walk ends where nothing is older.

    Step s draws as hop s of a sample with fan-out 1, for the same position throughout.

    Args:
        length: steps, 0 to 256. Others as `sample_neighbours`.

    Raises:
        InvalidInputError: as `sample_neighbours`.
    """
    _check_range("length", length, 0, 256)
    check_vector(nodes, "nodes", torch.int64)
    check_vector(times, "times", torch.float64, nodes.numel())
    roots = nodes.numel()
    where = torch.arange(roots) if positions is None else positions
    walks = Walks(
        torch.full((roots, length + 1), -1, dtype=torch.int64),
        torch.full((roots, length + 1), torch.nan, dtype=torch.float64),
        torch.full((roots, length), -1, dtype=torch.int64),
    )
    walks.nodes[:, 0], walks.times[:, 0] = nodes, times
    alive, at, when = torch.arange(roots), nodes, times
    for step in range(length):
        one = sample_neighbours(
            store, at, when, fanout=1, policy=policy, window=window, closed=closed, seed=seed,
            draw=draw, hop=step, positions=where[alive], threads=threads,
        )  # fmt: skip
        alive = alive[one.offsets.diff() > 0]
        at, when = one.neighbours, one.edge_times
        walks.nodes[alive, step + 1], walks.times[alive, step + 1] = at, when
        walks.eids[alive, step] = one.eids
    return walks


class TemporalSampler:
    """Samples k hops and counts its own calls, so that two calls differ and a given one repeats.

    Args:
        store, fanouts: where from, and how many per hop.
        Others as `sample_hops`.

    Attributes:
        draws: calls made so far without a `draw` of their own.
    """

    def __init__(
        self,
        store: TemporalStore,
        fanouts: Sequence[int],
        *,
        policy: str = "recent",
        window: float | None = None,
        snapshots: int = 1,
        prop_time: bool = False,
        replace: bool = False,
        closed: bool = False,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.store, self.fanouts, self.draws = store, tuple(fanouts), 0
        self._how: dict[str, Any] = {
            "policy": policy, "window": window, "snapshots": snapshots, "prop_time": prop_time,
            "replace": replace, "closed": closed, "seed": seed, "threads": threads,
        }  # fmt: skip

    def sample(
        self,
        nodes: Tensor,
        times: Tensor,
        *,
        positions: Tensor | None = None,
        draw: int | None = None,
    ) -> list[list[Sample]]:
        """[snapshot][hop] of int64[R] roots at float64[R] times; see `sample_hops`."""
        if draw is None:
            draw = self.draws
            self.draws += 1
        return sample_hops(
            self.store, nodes, times, self.fanouts, positions=positions, draw=draw, **self._how
        )


def _sample(
    store: TemporalStore,
    nodes: Tensor,
    ends: Tensor,
    fanouts: tuple[int, ...],
    *,
    policy: str,
    closed: bool,
    replace: bool,
    seed: int,
    draw: int,
    positions: Tensor | None,
    search: str,
    grouped: bool,
    threads: int | None,
    begins: Tensor | None = None,
    window: float | None = None,
    snapshots: int = 1,
    prop_time: bool = False,
    hop: int = 0,
    snapshot: int = 0,
) -> list[list[Sample]]:
    """[snapshot][hop], checked and sampled by one compiled call; `begins` are for a single hop."""
    settings = (policy, search, fanouts, window, snapshots, seed, hop, snapshot)
    try:
        uniform, linear, length = _checked(*settings)
    except TypeError:  # of a kind that no table holds
        uniform, linear, length = _checked.__wrapped__(*settings)
    threads = torch.get_num_threads() if threads is None else threads
    _check_range("draw", draw, 0, 2**32 - 1)
    _check_range("threads", threads, 1, 1 << 16)
    check_vector(ends, "times", torch.float64)
    roots = ends.numel()
    check_vector(nodes, "nodes", torch.int64, roots)
    if positions is not None:
        check_vector(positions, "positions", torch.int64, roots)
        positions = positions.contiguous()
    nodes, ends = nodes.contiguous(), ends.contiguous()
    begins = begins if begins is None else begins.contiguous()
    compiled = extension(_CPU).temporal_sample

    def fill(capacities: list[int], out: Tensor) -> list[int]:
        return compiled(
            store.handle, to_dlpack(nodes), to_dlpack(ends), capsule(begins), capsule(positions),
            length, fanouts, capacities, snapshots, prop_time, uniform, closed, replace, seed, draw,
            hop, snapshot, linear, grouped and not linear, threads, to_dlpack(out),
        )  # fmt: skip

    def refuse(root: int) -> None:
        node, count = int(nodes[root]), store.num_vertices
        if not 0 <= node < count:
            raise InvalidInputError(f"nodes[{root}] is {node}, allowed is 0 <= x < {count}")
        if begins is None:
            raise InvalidInputError(f"times[{root}] is nan, allowed are numbers and infinities")
        found = f"begins[{root}] is {float(begins[root])} and ends[{root}] {float(ends[root])}"
        raise InvalidInputError(f"{found}, allowed are numbers and infinities")

    return sample_batch(fill, refuse, roots, fanouts, snapshots, prop_time)


@functools.lru_cache(maxsize=256)
def _checked(
    policy: str,
    search: str,
    fanouts: tuple[int, ...],
    window: float | None,
    snapshots: int,
    seed: int,
    hop: int,
    snapshot: int,
) -> tuple[bool, bool, float]:
    """Settings as a compiled call takes them: uniform draws, linear search, length of the window.

    Kept, as between two steps of training a small batch waits for its own code more than for its
    neighbours.
    """
    uniform = _one_of("policy", policy, POLICIES)
    linear = _one_of("search", search, SEARCHES)
    _check_range("snapshots", snapshots, 1, 256)
    _check_range("len(fanouts)", len(fanouts), 1, 256)
    for fanout in fanouts:
        _check_range("fanout", fanout, 1, MAX_UNIFORM_FANOUT if uniform else 2**31 - 1)
    _check_range("seed", seed, 0, 2**64 - 1)
    _check_range("hop", hop, 0, 255)
    _check_range("snapshot", snapshot, 0, 255)
    return uniform, linear, _length(window)


def _length(window: float | None) -> float:
    """The window's length; inf for all of the past."""
    if window is None:
        return float("inf")
    if not window >= 0:
        raise InvalidInputError(f"window is {window}, allowed are lengths from 0, or None")
    return float(window)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> bool:
    """Return True if `value` is the second of the two allowed words, False if it is the first."""
    if value not in allowed:
        raise InvalidInputError(f"{name} is {value!r}, allowed are {' and '.join(allowed)}")
    return value == allowed[1]
