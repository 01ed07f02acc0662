"""Sampling from a temporal graph that a device reads (GNNFlow, section 4.2).

Samples equal those of the CPU bit for bit: both go by `temporal_sample/functors.hpp`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids
from dgbench.kernels_cuda.build_info import stream_of
from dgbench.kernels_cuda.temporal_sample import POLICIES, SEARCHES
from dgbench.kernels_cuda.temporal_sample.hops import (
    Hop,
    Layout,
    Targets,
    cut_all,
    lay_out,
)
from dgbench.kernels_cuda.temporal_sample.samples import Sample
from dgbench.runtime.errors import InvalidInputError

MAX_FANOUT: Final = 1 << 17


class DeviceSampler(ABC):
    """Temporal graph on a device, as samplers read it.

    Args:
        device: a CUDA device.
    """

    _graph: Any
    """The compiled one."""

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self._staging = torch.empty(0, dtype=torch.int64)

    @property
    @abstractmethod
    def num_vertices(self) -> int:
        """N."""

    def sample_hops(
        self,
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
    ) -> list[list[Sample]]:
        """`temporal_sample.sample_hops` on the device, with the same results.

        Hops follow each other without the host: how many targets a hop has stays on the device,
        and all counts come home together at the end. The arrays of a result share their memory,
        which has capacity for the most neighbours there may be; copy what is kept for long.

        Args:
            nodes, times, positions: on the CPU or on the device.
            Others as there; fan-outs at most `MAX_FANOUT`.

        Returns:
            [snapshot][hop], arrays on the device.

        Raises:
            InvalidInputError: as there.
        """
        uniform, linear = check_sampling(fanouts, policy, search, seed, draw, snapshots, window)
        self._check_roots(nodes, times, positions)
        length = float("inf") if window is None else float(window)
        how = uniform, linear, replace, seed, draw, length, closed, prop_time
        layout = lay_out(nodes.numel(), tuple(fanouts), snapshots, uniform)
        if layout is None:
            return self._hop_by_hop(nodes, times, positions, fanouts, snapshots, *how)
        return self._all_hops(nodes, times, positions, layout, snapshots, *how)

    def sample_hop(
        self,
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
    ) -> Sample:
        """`temporal_sample.sample_neighbours` on the device, with the same results.

        Args:
            nodes, times, positions: on the CPU, or on the device, where nobody looks at them: a
                root that is no vertex has no neighbours then. Others as there.

        Returns:
            Arrays on the device.

        Raises:
            InvalidInputError: as there.
        """
        uniform, linear = check_sampling((fanout,), policy, search, seed, draw, 1, window)
        self._check_roots(nodes, times, positions)
        if nodes.device.type == "cpu":
            self._refuse(nodes, times)
        length = float("inf") if window is None else float(window)
        if positions is None:
            positions = torch.arange(nodes.numel(), device=nodes.device)
        nodes, times, positions = (
            a.to(self.device).contiguous() for a in (nodes, times, positions)
        )
        live = torch.full((1,), nodes.numel(), dtype=torch.int64, device=self.device)
        made, _ = self._launch_hop(
            Targets(live, nodes, times, positions), fanout, hop, snapshot, uniform, linear,
            replace, seed, draw, length, closed, False, last=True,
        )  # fmt: skip
        return cut_all([[made]])[0][0]

    def launch_in(
        self,
        memory: Tensor,
        scratch: Tensor,
        layout: Layout,
        draws: Tensor,
        uniform: bool,
        linear: bool,
        replace: bool,
        seed: int,
        length: float,
        closed: bool,
        prop_time: bool,
    ) -> None:
        """Launch all hops of one snapshot in memory that stays, whose roots stand there.

        Args:
            memory, scratch: of `layout`, on the device.
            draws: int64[1] on the device, the number of the draw (modulo 2^32).
            Others as `check_sampling` leaves them; `length` is infinite without a window.
        """
        self._graph.launch_in(
            memory, scratch, layout.fanouts, layout.capacities, layout.starts, layout.named,
            uniform, linear, replace, seed, draws, length, closed, prop_time, *self._stream(),
        )  # fmt: skip

    def _all_hops(
        self,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor | None,
        layout: Layout,
        snapshots: int,
        *how: Any,
    ) -> list[list[Sample]]:
        """One compiled call: roots go there and counts come home through page-locked memory."""
        nodes, times = nodes.cpu().contiguous(), times.cpu().contiguous()
        positions = None if positions is None else positions.cpu().contiguous()
        if self._staging.numel() < layout.staged:
            pinned = self.device.type == "cuda"
            self._staging = torch.empty(2 * layout.staged, dtype=torch.int64, pin_memory=pinned)
        memory = torch.empty(layout.words, dtype=torch.int64, device=self.device)
        scratch = torch.empty(layout.scratch, dtype=torch.int64, device=self.device)
        totals = self._graph.sample(
            nodes, times, positions, self._staging[: layout.staged], memory, scratch,
            layout.fanouts, layout.capacities, layout.starts, snapshots, *how, *self._stream(),
        )  # fmt: skip
        if not totals:
            self._refuse(nodes, times)
        return layout.cut(memory, totals)

    def _hop_by_hop(
        self,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor | None,
        fanouts: Sequence[int],
        snapshots: int,
        *how: Any,
    ) -> list[list[Sample]]:
        """A call for each hop, whose neighbours are counted first where the most is much."""
        self._refuse(nodes, times)
        return cut_all(self._launch_hops(nodes, times, positions, fanouts, snapshots, *how))

    def _launch_hops(
        self,
        nodes: Tensor,
        times: Tensor,
        positions: Tensor | None,
        fanouts: Sequence[int],
        snapshots: int,
        uniform: bool,
        linear: bool,
        replace: bool,
        seed: int,
        draw: int,
        length: float,
        closed: bool,
        prop_time: bool,
    ) -> list[list[Hop]]:
        if positions is None:
            positions = torch.arange(nodes.numel(), device=nodes.device)
        nodes, times, where = (a.to(self.device).contiguous() for a in (nodes, times, positions))
        every: list[list[Hop]] = []
        for snapshot in range(snapshots):
            live = torch.full((1,), nodes.numel(), dtype=torch.int64, device=self.device)
            at = Targets(live, nodes, times - snapshot * length if snapshot else times, where)
            every.append([])
            for number, fanout in enumerate(fanouts):
                hop, at = self._launch_hop(
                    at, fanout, number, snapshot, uniform, linear, replace, seed, draw, length,
                    closed, prop_time, last=number + 1 == len(fanouts),
                )  # fmt: skip
                every[-1].append(hop)
        return every

    def _launch_hop(
        self,
        at: Targets,
        fanout: int,
        number: int,
        snapshot: int,
        uniform: bool,
        linear: bool,
        replace: bool,
        seed: int,
        draw: int,
        length: float,
        closed: bool,
        prop_time: bool,
        *,
        last: bool,
    ) -> tuple[Hop, Targets]:
        """One hop, and the targets of the next; those of this one where it is the last."""
        hop = Hop.of(at, fanout, uniform)
        self._graph.locate(
            at.live, at.nodes, at.positions, at.times, length, closed, fanout, uniform, linear,
            replace, seed, draw, number, snapshot, *hop.located, None, *self._stream(),
        )  # fmt: skip
        hop.allocate_neighbours(last=last)
        following = hop.following
        self._graph.emit(
            at.live, at.nodes, at.positions, at.times, fanout, uniform, linear, *hop.located,
            hop.offsets, *hop.found, *(following.all if following else (None,) * 4), prop_time,
            *self._stream(),
        )  # fmt: skip
        return hop, following or at

    def _number(self) -> int:
        """The device's number; of a name without one that of the current device."""
        if self.device.type != "cuda":
            return 0
        return torch.cuda.current_device() if self.device.index is None else self.device.index

    def _stream(self) -> tuple[int]:
        return stream_of(self.device) or (0,)

    def _check_roots(self, nodes: Tensor, times: Tensor, positions: Tensor | None) -> None:
        """Raises InvalidInputError for another dtype or length."""
        for name, array, dtype in (
            ("nodes", nodes, torch.int64),
            ("times", times, torch.float64),
            ("positions", positions, torch.int64),
        ):
            if array is None:
                continue
            if array.dtype != dtype or array.shape != (nodes.numel(),):
                raise InvalidInputError(
                    f"{name} is {array.dtype}{list(array.shape)}, expected {dtype}[{nodes.numel()}]"
                )

    def _refuse(self, nodes: Tensor, times: Tensor) -> None:
        """Raises InvalidInputError for a vertex that is not there, or NaN."""
        check_ids(nodes, "nodes", self.num_vertices)
        if bool(times.isnan().any()):
            raise InvalidInputError("times holds nan, allowed are numbers and infinities")


def check_sampling(
    fanouts: Sequence[int],
    policy: str,
    search: str,
    seed: int,
    draw: int,
    snapshots: int,
    window: float | None,
) -> tuple[bool, bool]:
    """Check the settings of a sample; return (draws at random, searches linearly).

    Raises:
        InvalidInputError: a setting out of its range.
    """
    for name, word, allowed in (("policy", policy, POLICIES), ("search", search, SEARCHES)):
        if word not in allowed:
            raise InvalidInputError(f"{name} is {word!r}, allowed are {' and '.join(allowed)}")
    if snapshots > 1 and window is None:
        raise InvalidInputError(f"snapshots is {snapshots} and window None, give their length")
    if window is not None and not window >= 0:
        raise InvalidInputError(f"window is {window}, allowed are lengths from 0, or None")
    for name, value, low, high in (
        ("snapshots", snapshots, 1, 256),
        ("len(fanouts)", len(fanouts), 1, 256),
        *(("fanout", fanout, 1, MAX_FANOUT) for fanout in fanouts),
        ("seed", seed, 0, 2**64 - 1),
        ("draw", draw, 0, 2**32 - 1),
    ):
        if not low <= value <= high:
            raise InvalidInputError(f"{name} is {value}, allowed are {low} to {high}")
    return policy == "uniform", search == "linear"
