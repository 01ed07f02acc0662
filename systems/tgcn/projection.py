"""An epoch on G devices of a machine, from what was measured on one and counted: projections only.

An interval takes

- refreshing its rows and learning from them, on each device those of its own part;
- phase by phase of the round: the swap, and the grids that are then trained;
- the sum of gradients over all devices, as a ring.

A device waits for those that send to it, and all of them at the end of an interval; the busiest
link of an exchange decides. Pairs of a grid come over PCIe behind training, on switches that two
devices share. With `overlap` the embeddings that a swap brings come during training too; what is
added to them cannot (section 4.3 leaves that open). Without P2P a swap goes through the host, over
the same switches.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import torch

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.links import PER_SWITCH, Links
from dgbench.systems.tgcn.plan import (
    INDEX,
    PLANES_ADDED,
    PLANES_READ,
    Cut,
    ModelSize,
    parameter_bytes,
    touched,
    trained,
)
from dgbench.systems.tgcn.ring import best_ring
from dgbench.systems.tgcn.schedule import RingSchedule, make_schedule, traffic

V100_BYTES_PER_S: Final = 900e9
V100_FLOPS: Final = 15.7e12
"""Published peaks of a V100 SXM2: memory, and float32 arithmetic."""


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """One thread here, or one GPU.

    Attributes:
        bytes_per_s: of a large copy, read and written. flops: of a matrix product in float32.
    """

    bytes_per_s: float
    flops: float

    @property
    def bandwidth(self) -> float:
        """Speed of a V100 in these devices, by memory bandwidth."""
        return V100_BYTES_PER_S / self.bytes_per_s

    @property
    def arithmetic(self) -> float:
        """Speed of a V100 in these devices, by arithmetic."""
        return V100_FLOPS / self.flops


def measure_machine(device: str = "cpu") -> DeviceRates:
    """Time a copy and a matrix product, the best of a few; on a CPU of one thread's own time."""
    on_cpu = torch.device(device).type == "cpu"
    side, count = (512, 8 << 20) if on_cpu else (8192, 256 << 20)
    x, y = torch.zeros(2, count, device=device)
    a = torch.ones(side, side, device=device)
    found = []
    for call in (lambda: y.copy_(x), lambda: a @ a):
        seconds = []
        for _ in range(5):
            begin = time.process_time() if on_cpu else time.perf_counter()
            call()
            if not on_cpu:
                torch.cuda.synchronize()
            seconds.append((time.process_time() if on_cpu else time.perf_counter()) - begin)
        found.append(min(seconds))
    return DeviceRates(2 * count * 4 / found[0], 2 * side**3 / found[1])


@dataclass(frozen=True, slots=True)
class Pieces:
    """Seconds of one device.

    Attributes:
        pair_s: of a pair of a grid, an edge or a negative, trained. row_s: of a row, refreshed,
            learned from and kept. visit_s: of a destination's row, on each device that it comes
            to. interval_s: of an interval, whatever its size. phase_s: of a grid, likewise.
    """

    pair_s: float
    row_s: float
    visit_s: float = 0.0
    interval_s: float = 0.0
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        if any(not getattr(self, f.name) >= 0 for f in fields(self)):
            raise InvalidInputError(f"{self} has a negative time")

    def scaled(self, factor: float) -> Pieces:
        """All times multiplied."""
        return Pieces(*(factor * getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class EpochLoad:
    """Load of an epoch on G devices in T intervals.

    Attributes:
        pairs: float64[T, G, G], pairs of each grid.
        rows: float64[T, G], rows of each part that are refreshed.
        visiting: float64[T, G], those of them that travel.
        repeats: how often the T intervals come, one like the other.
    """

    pairs: np.ndarray
    rows: np.ndarray
    visiting: np.ndarray
    repeats: int = 1

    def __post_init__(self) -> None:
        steps, parts = self.rows.shape
        if self.pairs.shape != (steps, parts, parts) or self.visiting.shape != (steps, parts):
            raise InvalidInputError(
                f"'pairs' is {list(self.pairs.shape)}, 'rows' {list(self.rows.shape)} and "
                f"'visiting' {list(self.visiting.shape)}; needed: [T, G, G], [T, G], [T, G]"
            )

    @property
    def devices(self) -> int:
        """G."""
        return self.rows.shape[1]

    def scaled(self, pairs: float, rows: float) -> EpochLoad:
        """The same with more pairs and rows, by these factors."""
        return EpochLoad(pairs * self.pairs, rows * self.rows, rows * self.visiting, self.repeats)

    @property
    def intervals(self) -> int:
        """Intervals of the epoch."""
        return self.repeats * self.rows.shape[0]


def even_load(
    size: ModelSize, cut: Cut, *, share: np.ndarray | None = None, whole: bool = False
) -> EpochLoad:
    """The load of a graph of some size, its edges spread evenly over time.

    Args:
        share: float64[G, G], part of all edges in each grid; None: equal parts.
        whole: whole parts travel, as in the paper, and not only rows that the interval names.

    Raises:
        InvalidInputError: another shape than the cut's devices.
    """
    devices = cut.devices
    if share is None:
        share = np.full((devices, devices), 1 / devices**2)
    if share.shape != (devices, devices):
        raise InvalidInputError(f"'share' is {list(share.shape)}, needed: [{devices}, {devices}]")
    pairs = trained(size, cut) * (1 + cut.negatives) / cut.intervals
    rows = np.full((1, devices), touched(size, cut) / devices)
    visiting = np.full((1, devices), size.vertices / devices) if whole else rows
    return EpochLoad((pairs * share)[None], rows, visiting, cut.intervals)


@dataclass(frozen=True, slots=True)
class ProjectedGridEpoch:
    """Projected seconds of an epoch, by what they go to.

    Attributes:
        rows_s: refreshing and learning. pairs_s: training grids. exchange_s: swaps that nothing
            hides. host_s: pairs from the host that nothing hides. reduce_s: gradients.
        moved: bytes that devices send each other.
    """

    rows_s: float
    pairs_s: float
    exchange_s: float
    host_s: float
    reduce_s: float
    moved: int

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.rows_s + self.pairs_s + self.exchange_s + self.host_s + self.reduce_s


def project_epoch(
    load: EpochLoad,
    pieces: Pieces,
    links: Links,
    *,
    size: ModelSize,
    schedule: RingSchedule | None = None,
    p2p: bool = True,
    overlap: bool = True,
    planes: tuple[int, int] = (PLANES_READ, PLANES_ADDED),
) -> ProjectedGridEpoch:
    """Project an epoch.

    Args:
        load: counted. pieces: measured. links: of as many devices as the load has.
        size: gives the bytes of a vector and of the parameters.
        schedule: None: the ring that is best on these links.
        p2p: devices send to each other; else through the host.
        overlap: what can come during training does.
        planes: vectors of a visiting row that are read and added to.

    Raises:
        InvalidInputError: numbers of devices that differ.
    """
    devices = load.devices
    schedule = schedule or make_schedule(devices, ring=best_ring(links))
    if links.size != devices or schedule.size != devices:
        raise InvalidInputError(
            f"the load has {devices} devices, the links {links.size}, the schedule {schedule.size}"
        )
    topology = links.topology(p2p=p2p)
    read, add = (count * size.vector for count in planes)
    alone = fed = whole = 0.0
    moved = 0
    for pairs, visiting in zip(load.pairs, np.rint(load.visiting).astype(np.int64), strict=True):
        sent = traffic(schedule, visiting.tolist(), read=read, add=add)
        early = traffic(schedule, visiting.tolist(), read=read, add=0)
        moved += int(sent.sum())
        trains = np.array(
            [[sum(pairs[i, p] for p in own) for i, own in enumerate(phase.trains)]
             for phase in schedule.phases]
        )  # fmt: skip
        guests = np.array(
            [[sum(visiting[p] for p in own if pairs[i, p]) for i, own in enumerate(phase.trains)]
             for phase in schedule.phases]
        )  # fmt: skip
        busy = (
            trains * pieces.pair_s + guests * pieces.visit_s + pieces.phase_s * (trains > 0)
        )  # fmt: skip
        host = np.array([_from_host(row, links) for row in trains])[:, None]
        swap = np.array([topology.time(one) for one in sent])[:, None]
        if overlap:
            late = np.array([topology.time(one) for one in sent - early])[:, None]
            before = np.vstack([np.zeros(devices), busy[:-1]])
            swap = np.maximum(late, swap - before)
            host = np.maximum(0.0, host - busy)
        alone += _round(schedule, busy)
        fed += _round(schedule, busy + host)
        whole += _round(schedule, busy + host, swap)
    slowest = load.repeats * load.rows.max(1).sum()
    reduce_s = _all_reduce(devices, parameter_bytes(size) / 4, schedule, links, p2p)
    return ProjectedGridEpoch(
        rows_s=float(slowest * pieces.row_s + load.intervals * pieces.interval_s),
        pairs_s=load.repeats * alone,
        exchange_s=load.repeats * (whole - fed),
        host_s=load.repeats * (fed - alone),
        reduce_s=load.intervals * reduce_s,
        moved=load.repeats * moved,
    )


def _round(schedule: RingSchedule, busy: np.ndarray, swap: np.ndarray | None = None) -> float:
    """Seconds until all devices are through a round; busy and swap by phase and device."""
    ready = np.zeros(schedule.size)
    for number, phase in enumerate(schedule.phases):
        begin = ready.copy()
        for move in phase.moves:
            begin[move.target] = max(begin[move.target], ready[move.source])
        ready = begin + busy[number] + (0.0 if swap is None else swap[number])
    return float(ready.max())


def _from_host(pairs: np.ndarray, links: Links) -> float:
    """Seconds until every device has its pairs, by switches that devices share."""
    each = [2 * INDEX * float(count) for count in pairs]
    shared = [sum(each[s : s + PER_SWITCH]) for s in range(0, len(each), PER_SWITCH)]
    return max(shared) / links.pcie


def _all_reduce(
    devices: int, nbytes: float, schedule: RingSchedule, links: Links, p2p: bool
) -> float:
    """Seconds to add up gradients as a ring, 2 (G - 1) steps of a G-th each."""
    if devices == 1:
        return 0.0
    sent = np.zeros((devices, devices))
    for i, device in enumerate(schedule.ring):
        sent[device, schedule.ring[(i + 1) % devices]] = nbytes / devices
    return 2 * (devices - 1) * links.topology(p2p=p2p).time(sent)
