"""An epoch on G devices of a machine, from what was measured on one and counted: projections only.

An interval takes

- refreshing its rows and learning from them, on each device those of its own part;
- phase by phase of the round: the swap, and the grids that are then trained;
- the sum of gradients over all devices, as a ring.

The slowest device of a step decides, and the busiest link of an exchange. Pairs of a grid come over
PCIe behind training, on switches that two devices share. With `overlap` the embeddings that a swap
brings come during training too; what is added to them cannot (section 4.3 leaves that open).
Without P2P a swap goes through the host, over the same switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.links import PER_SWITCH, Links
from dgbench.systems.tgcn.plan import (
    INDEX,
    PLANES_ADDED,
    PLANES_READ,
    Cut,
    Size,
    parameter_bytes,
    touched,
    trained,
)
from dgbench.systems.tgcn.ring import best_ring
from dgbench.systems.tgcn.schedule import Schedule, make_schedule, traffic

V100_BYTES_PER_S: Final = 900e9
V100_FLOPS: Final = 15.7e12
"""Published peaks of a V100 SXM2: memory, and float32 arithmetic."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Seconds of one device.

    Attributes:
        pair_s: of a pair of a grid, an edge or a negative, trained. row_s: of a row, refreshed,
            learned from and kept. interval_s: of an interval, whatever its size. phase_s: of a
            grid, whatever its size.
    """

    pair_s: float
    row_s: float
    interval_s: float = 0.0
    phase_s: float = 0.0

    def __post_init__(self) -> None:
        if any(not getattr(self, f.name) >= 0 for f in fields(self)):
            raise InvalidInputError(f"{self} has a negative time")

    def scaled(self, factor: float) -> Pieces:
        """All times multiplied."""
        return Pieces(*(factor * getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Load:
    """What an epoch asks of G devices in T intervals.

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

    @property
    def intervals(self) -> int:
        """Intervals of the epoch."""
        return self.repeats * self.rows.shape[0]


def even_load(
    size: Size, cut: Cut, *, share: np.ndarray | None = None, whole: bool = False
) -> Load:
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
    return Load((pairs * share)[None], rows, visiting, cut.intervals)


@dataclass(frozen=True, slots=True)
class Epoch:
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
    load: Load,
    pieces: Pieces,
    links: Links,
    *,
    size: Size,
    schedule: Schedule | None = None,
    p2p: bool = True,
    overlap: bool = True,
    planes: tuple[int, int] = (PLANES_READ, PLANES_ADDED),
) -> Epoch:
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
    exchange = pairs_s = host_s = 0.0
    moved = 0
    for pairs, visiting in zip(load.pairs, np.rint(load.visiting).astype(np.int64), strict=True):
        whole = traffic(schedule, visiting.tolist(), read=read, add=add)
        early = traffic(schedule, visiting.tolist(), read=read, add=0)
        moved += int(whole.sum())
        before = 0.0  # training that the swap before a phase can hide behind
        for phase, sent, first in zip(schedule.phases, whole, early, strict=True):
            trains = [
                float(sum(pairs[i, p] for p in parts)) for i, parts in enumerate(phase.trains)
            ]
            compute = max(trains) * pieces.pair_s + pieces.phase_s * any(phase.trains)
            comes = _from_host(trains, links)
            if overlap:
                late = topology.time(sent - first) if sent.any() else 0.0
                exchange += max(late, (topology.time(sent) if sent.any() else 0.0) - before)
                host_s += max(0.0, comes - compute)
            else:
                exchange += topology.time(sent) if sent.any() else 0.0
                host_s += comes
            pairs_s += compute
            before = compute
    slowest = load.repeats * load.rows.max(1).sum()
    reduce_s = _all_reduce(devices, parameter_bytes(size) / 4, schedule, links, p2p)
    return Epoch(
        rows_s=float(slowest * pieces.row_s + load.intervals * pieces.interval_s),
        pairs_s=float(load.repeats * pairs_s),
        exchange_s=float(load.repeats * exchange),
        host_s=float(load.repeats * host_s),
        reduce_s=float(load.intervals * reduce_s),
        moved=load.repeats * moved,
    )


def _from_host(pairs: Sequence[float], links: Links) -> float:
    """Seconds until every device has its pairs, by switches that devices share."""
    each = [2 * INDEX * count for count in pairs]
    shared = [sum(each[s : s + PER_SWITCH]) for s in range(0, len(each), PER_SWITCH)]
    return max(shared) / links.pcie


def _all_reduce(devices: int, nbytes: float, schedule: Schedule, links: Links, p2p: bool) -> float:
    """Seconds to add up gradients as a ring, 2 (G - 1) steps of a G-th each."""
    if devices == 1:
        return 0.0
    sent = np.zeros((devices, devices))
    for i, device in enumerate(schedule.ring):
        sent[device, schedule.ring[(i + 1) % devices]] = nbytes / devices
    return 2 * (devices - 1) * links.topology(p2p=p2p).time(sent)


def fit_pieces(seconds: Sequence[float], pairs: Sequence[float], rows: Sequence[float]) -> Pieces:
    """Times of a pair, a row and an interval from epochs of one device that were measured.

    Args:
        seconds: of each interval (or of equal groups of them). pairs, rows: that it had.

    Raises:
        InvalidInputError: fewer than three measurements, or other lengths.
    """
    from scipy.optimize import nnls

    count = len(seconds)
    if count < 3 or len(pairs) != count or len(rows) != count:
        raise InvalidInputError(
            f"{count} times, {len(pairs)} and {len(rows)} counts; needed: three and as many counts"
        )
    table = np.column_stack([pairs, rows, np.ones(count)]) / np.asarray(seconds)[:, None]
    scale = np.maximum(np.abs(table).max(0), 1e-300)
    found, _ = nnls(table / scale, np.ones(count))
    pair_s, row_s, interval_s = found / scale
    return Pieces(float(pair_s), float(row_s), float(interval_s))
