"""Training a network over interactions as T-GCN does: sampled, in grids, interval by interval."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.models.streaming import DygnnState, PendingInteractions
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interaction_layout import Group, t_batch_groups
from dgbench.systems.base.interaction_trainer import (
    GroupWatch,
    InteractionTrainer,
    StepResult,
    VertexLabels,
)
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload
from dgbench.systems.tgcn.device import IntervalScores
from dgbench.systems.tgcn.feeding import StagedInterval
from dgbench.systems.tgcn.grids import cut_time, cut_vertices
from dgbench.systems.tgcn.intervals import Planner, TimeInterval
from dgbench.systems.tgcn.program import Edges, Program, check_sets
from dgbench.systems.tgcn.regions import Account, Regions
from dgbench.systems.tgcn.ring import KnownLinks, best_ring
from dgbench.systems.tgcn.rounds import Device, DeviceSettings, Rounds
from dgbench.systems.tgcn.schedule import RingSchedule, make_schedule
from dgbench.systems.tgcn.streamed import HostRounds

LEAF_COPIES: Final = 4
"""Of a parameter: itself, its gradient, and two moments of Adam."""
STATE_VECTORS: Final = 7
"""Of a vertex: two cells, two hidden states, an embedding, and a sum over partners by role."""
STATE_NUMBERS: Final = 40
"""Bytes of a vertex beside its vectors: two counts and four times."""
RESIDENT_SHARE: Final = 0.7
"""Of a limited device's memory, what state may take at most, unless it is asked for."""
SCORINGS: Final = ("intervals", "t-batches")


def state_bytes(hidden_dim: int, dtype: torch.dtype) -> int:
    """Bytes of one vertex's state and of what waits for it."""
    return STATE_VECTORS * hidden_dim * dtype.itemsize + STATE_NUMBERS


class TgcnTrainer(InteractionTrainer):
    """Trains on intervals in time order, on one device or on several virtual ones.

    Losses do not depend on the number of devices, nor on any exact switch, up to rounding.

    Attributes:
        parts: of the vertices. resident: whether their state lies on the devices.
        accounts: bytes of each device, by region.
        kept: the sets of events that are trained on, int64 ordinals; None before `prepare`.
        sample_s, partition_s: seconds of the work before the first epoch.
    """

    def __init__(
        self,
        workload: InteractionWorkload,
        data: InteractionData,
        switches: Mapping[str, bool],
        *,
        devices: int = 1,
        parts: int | None = None,
        resident: bool | None = None,
        memory_bytes: int | None = None,
        vertex_cut: str = "equal",
        scoring: str = "intervals",
        links: KnownLinks | None = None,
        program: Program | None = None,
        device: str = "cpu",
        meter: Meter | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Build model, state and regions; nothing is sampled before `prepare`.

        Args:
            workload, data: of `load_interactions`.
            switches: a truth value for each of `TgcnSystem.techniques`.
            devices: virtual devices that take turns.
            parts: of the vertices; None: one for each device. More only where state streams.
            resident: state lies on the devices; False: in host memory, parts stream in and out.
                None: on the devices, if it leaves room for the work.
            memory_bytes: that a device may use; None: no limit.
            vertex_cut: see `grids.cut_vertices`.
            scoring: events that are not trained on are scored in `intervals`, or exactly in time
                order (`t-batches`), as the sequential systems do.
            links: of the devices, whose best ring destinations are passed round. None: those of a
                DGX-1, or those that ranks measure.
            program: what samples, partitions and trains; None: T-GCN's own.
            device, meter, dtype: as in `InteractionTrainer`.

        Raises:
            InvalidInputError: an option out of range.
            DeviceFull: the state is to be resident and does not fit.
        """
        self.on = dict(switches)
        _check(devices, parts, resident, scoring, self.on)
        ordered = not self.on["partition"]
        count = 1 if ordered else parts or devices
        self.num_devices, self.scoring = devices, scoring
        if links is not None and links.size != devices:
            raise InvalidInputError(
                f"'links' is of {links.size} devices, needed: those of {devices}"
            )
        self.links = links
        self.parts = cut_vertices(
            data.events.num_nodes, count, cut=vertex_cut, src=data.events.src[: data.train_end]
        )
        self.resident, self._memory = resident, memory_bytes
        self.accounts = [Account(memory_bytes) for _ in self._numbers]
        super().__init__(workload, data, device=device, meter=meter, dtype=dtype, order="intervals")
        last = workload.aggregate == "last"
        moves = not self.resident or self.parts.count > 1
        self.planner = Planner(
            self.parts, touched=self.on["touched" if moves else "affected"], latest=last,
            tasks=devices if ordered else 0,
        )  # fmt: skip
        self._settings = DeviceSettings(
            self.model, self.meter, link=workload.task == "link", last=last, direct=self.on["p2p"]
        )
        self.kept: list[Tensor] | None = None
        self.sample_s = self.partition_s = 0.0
        self._loads: dict[tuple[int, int, int], list[StagedInterval]] = {}
        self._known: dict[tuple[int, ...], StagedInterval] = {}
        self._count = self._epoch = 0
        self._first: Tensor | None = None
        self.program = program if program is not None else Program()
        self.program.bind(self)
        self._open()

    # --- where state lies -------------------------------------------------------------------------

    def _fresh(self) -> tuple[DygnnState, PendingInteractions]:
        """State in the order of rows: on the device, or in host memory."""
        if self.resident is None or not self.on["partition"]:
            most = max(self.parts.sizes) * state_bytes(self.workload.hidden_dim, self.dtype)
            fits = self._memory is None or most + self._leaf_bytes <= RESIDENT_SHARE * self._memory
            devices = self.parts.count == self.num_devices
            self.resident = fits and devices and self.on["partition"]
        state, pending = self._initial()
        if not self.resident:
            return state, pending
        return state.to(self.device), pending.to(self.device)

    @property
    def own_part(self) -> int | None:
        """The only part whose grids are trained in this process; None: all of them."""
        return None

    def _send_labels(self) -> None:
        """Nothing: every device gets those of its part."""

    @property
    def _numbers(self) -> Sequence[int]:
        """Numbers of the devices in this process."""
        return range(self.num_devices) if self.own_part is None else [self.own_part]

    def _initial(self) -> tuple[DygnnState, PendingInteractions]:
        """State to which nothing has happened, in the order of rows, in host memory."""
        state, pending = self._new_state()
        return (state if self.parts.rows is None else state[self.parts.vertices()]), pending

    def _new_state(self, vertices: Tensor | None = None) -> tuple[DygnnState, PendingInteractions]:
        return self.model.new_state(
            self.data.events.num_nodes,
            vertices,
            seed=self.workload.seed,
            dtype=self.dtype,
        )

    @property
    def _leaf_bytes(self) -> int:
        leaves = self.model.parameters()
        return LEAF_COPIES * sum(p.numel() * p.element_size() for p in leaves)

    def _open(self) -> None:
        """Regions, devices and what runs intervals on them."""
        labels = None
        if self.labels is not None:
            rows = self.parts.vertices()
            if self.own_part is not None:
                rows = rows[self.parts.slice(self.own_part)]
            labels = self.labels[rows].to(self.device)
        overlap = self.on["overlap"]
        self.regions = [
            Regions(self.device, self.meter, account, overlap=overlap) for account in self.accounts
        ]
        for number, account in zip(self._numbers, self.accounts, strict=True):
            account.hold("R1 parameters", self._leaf_bytes)
            if self.resident:
                rows = self.parts.sizes[number]
                account.hold("R1 state", rows * state_bytes(self.workload.hidden_dim, self.dtype))
        self.rounds = self._rounds(labels)

    def _rounds(self, labels: VertexLabels | None) -> Any:
        """Make the runner of intervals."""
        if not self.resident:
            return HostRounds(
                self.regions, self._settings, self.parts, self.vertices, self.pending, labels
            )
        schedule, devices = self.schedule(), []
        for number, regions in enumerate(self.regions):
            part = self.parts.slice(number)
            mine = None if labels is None else labels[part]
            devices.append(
                Device(
                    number, self._settings, self.vertices[part], self.pending[part], regions, mine
                )
            )
        return Rounds(devices, self._settings, schedule)

    def schedule(self) -> RingSchedule:
        """Who holds what when: round the best ring of the links, or of a DGX-1's."""
        kind = "ring" if self.on["schedule"] else "gather"
        ring = None if self.links is None else best_ring(self.links)
        return make_schedule(self.num_devices, kind, ring=ring)

    # --- what is trained on -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Sample the training edges and cut them into grids."""
        if self.kept is None:
            self.resample()

    def resample(self) -> None:
        """Sample and cut anew (with another draw, where the program draws another)."""
        edges = self.edges_of(torch.arange(self.data.train_end))
        start = time.perf_counter()
        with self.meter.phase("sample"):
            self.kept = check_sets(self.program.sampling(edges), len(edges))
        self.sample_s = time.perf_counter() - start
        self._loads.clear()
        self.partition_s = 0.0
        for number in range(len(self.kept)):
            self.loads(0, self.data.train_end, number)

    def edges_of(self, events: Tensor) -> Edges:
        """The edges of events, int64[n] ordinals in ascending order."""
        stream = self.data.events
        link = self.workload.task == "link"
        negative = self.data.negative[events] if link else events[:0]
        return Edges(
            stream.src[events], stream.dst[events], negative, stream.t[events], events,
            stream.num_nodes,
        )  # fmt: skip

    def loads(self, first: int, last: int, epoch: int = 0) -> list[StagedInterval]:
        """The intervals of what was sampled of events first .. last - 1, ready to be sent."""
        self.prepare()
        number = epoch % len(self.kept)
        key = (first, last, number)
        if key not in self._loads:
            kept = self.kept[number]
            if last > self.data.train_end:
                kept = torch.cat([kept, torch.arange(self.data.train_end, last)])
            kept = kept[(kept >= first) & (kept < last)]
            self._loads[key] = self.staged(self._partitioned(kept))
        return self._loads[key]

    def _partitioned(self, kept: Tensor) -> Iterator[TimeInterval]:
        """The program's intervals of events int64[n], one after the other; their time is taken."""
        intervals: Iterator[TimeInterval] | None = None
        while True:
            start = time.perf_counter()
            with self.meter.phase("partition"):
                if intervals is None:
                    intervals = iter(self.program.partition(self.edges_of(kept)))
                interval = next(intervals, None)
            self.partition_s += time.perf_counter() - start
            if interval is None:
                return
            yield interval

    def staged(self, intervals: Iterable[TimeInterval]) -> list[StagedInterval]:
        """Intervals of a plan, ready to be sent, each with the one after it."""
        loads = []
        for interval in intervals:
            self._count += 1
            loads.append(
                StagedInterval.of(interval, self.regions[0].link, self._count, self.own_part)
            )
        for one, following in itertools.pairwise(loads):
            one.following = following
        most = max((rows for one in loads for rows in one.travelling), default=0)
        self.rounds.reserve(most, self.workload.hidden_dim, self.dtype)
        return loads

    def groups(self, first: int, last: int, epoch: int = 0) -> list[Group]:
        loads = self.loads(first, last, epoch)
        self._known = {_key(one.events): one for one in loads}
        return [[one.events] for one in loads]

    def scoring_groups(self, first: int, last: int) -> list[Group]:
        events = torch.arange(first, last)
        if self.scoring == "t-batches":
            w = self.workload
            strict = w.strict_time
            steps = t_batch_groups(self.data, first, last, w.batch, strict=strict, split=False)
            parts = [part for group in steps for part in group]
            events = torch.cat([events[:0], *parts])
            cuts = torch.tensor([0, *(part.numel() for part in parts)]).cumsum(0)
        else:
            cuts = self._scoring_cuts(first, last)
        edges = self.edges_of(events)
        plan = self.planner.plan(edges.events, edges.src, edges.dst, edges.negative, edges.t, cuts)
        loads = self.staged(plan)
        self._known = {_key(one.events): one for one in loads}
        return [[one.events] for one in loads]

    def _scoring_cuts(self, first: int, last: int) -> Tensor:
        """Intervals of as many edges as those of training have on average."""
        count = last - first
        loads = self.loads(0, self.data.train_end)
        width = max(1, self.data.train_end // max(1, len(loads)))
        steps = max(1, -(-count // width))
        t, strict = self.data.events.t[first:last], self.workload.strict_time
        return cut_time(t, steps, cut="edges", strict=strict)

    # --- one interval -----------------------------------------------------------------------------

    def bring(self, group: Group) -> None:
        """Nothing: rounds send what an interval needs, grid by grid."""

    def run_step(self, events: Tensor, *, scale: float | None) -> StepResult:
        """One interval; `events` are those of a group that was laid out last."""
        load = self._known.get(_key(events))
        if load is None:
            raise InvalidInputError(
                f"{events.numel()} events from {events[:1].tolist()} are no interval that is laid "
                "out", hint="call `groups` or `scoring_groups` first"
            )  # fmt: skip
        return self._run(load, scale)

    def _run(self, load: StagedInterval, scale: float | None) -> StepResult:
        found = self.rounds.run(load, scale=scale)
        # Nobody reads the scores of what is trained on, and their order would have to be sent.
        return result_of(load, found, self.workload.task == "link" and scale is None)

    def train_interval(self, load: StagedInterval) -> Tensor:
        """One optimiser step on an interval; the loss per edge before it, on the device."""
        self._known = {_key(load.events): load}
        return self.group_loss([load.events])

    def take_in(self, load: StagedInterval) -> None:
        """Let the state take in the edges of an interval; nothing is scored or trained."""
        self._settings.link, link = False, self._settings.link
        try:
            self.rounds.run(load, scale=None)
        finally:
            self._settings.link = link

    def train(
        self, first: int, last: int, *, epoch: int = 0, watch: GroupWatch | None = None
    ) -> float:
        self._check_range(first, last)
        total: Tensor | float = 0.0
        edges = 0
        for load in self.loads(first, last, epoch):
            if watch is not None:
                watch.before([load.events])
            loss = self.program.train(load, self.num_devices)
            if watch is not None:
                watch.after(loss)
            total = total + loss * load.events.numel()
            edges += load.events.numel()
        return float(total) / max(1, edges)

    def next_epoch(self) -> tuple[int, Tensor]:
        """Number of intervals of the next epoch, and the events int64[n] that were sampled for it,
        ascending."""
        loads = self.loads(0, self.data.train_end, self._epoch)
        return len(loads), self.kept[self._epoch % len(self.kept)]

    def train_epoch(self, watch: GroupWatch | None = None) -> float:
        """Forget the state and train on all that was sampled, once."""
        self.reset_state()
        self._epoch += 1
        return self.train(0, self.data.train_end, epoch=self._epoch - 1, watch=watch)

    def reset_state(self) -> None:
        # Drawn once; all else begins as zero, or as never. A second state on the device for the
        # time of a copy would double what it has to hold.
        if self._first is None:
            self._first = self._initial()[0].embedding
        for table in (self.vertices, self.pending):
            for name, column in table.columns().items():
                if name == "embedding":
                    column.copy_(self._first)
                else:
                    column.fill_(-torch.inf if name.startswith("last_") else 0)

    def rows_of(self, vertices: Tensor) -> Tensor:
        return self.parts.row(vertices)

    def read(self, ids: Tensor) -> tuple[DygnnState, PendingInteractions]:
        rows = self.rows_of(ids.cpu()).to(self.vertices.embedding.device)
        return self.vertices[rows].to(self.device), self.pending[rows].to(self.device)

    # --- the interface of every trainer -----------------------------------------------------------

    def report(self) -> dict[str, float]:
        return {
            "sample_s": self.sample_s,
            "partition_s": self.partition_s,
            "kept_edges": float(sum(kept.numel() for kept in self.kept or ())),
            "device_bytes": float(max(account.peak for account in self.accounts)),
            "host_bytes": float(self.host_bytes),
        }

    @property
    def region_bytes(self) -> dict[str, int]:
        """Peak of each region of memory, on the device where it is largest."""
        return {
            region: max(account.peaks.get(region, 0) for account in self.accounts)
            for region in self.accounts[0].peaks
        }

    @property
    def host_bytes(self) -> int:
        """Bytes that would lie in host memory beside a device: grids, and state that streams."""
        grids = sum(load.nbytes for loads in self._loads.values() for load in loads)
        return grids + (0 if self.resident else self.state_bytes)

    def close(self) -> None:
        super().close()
        self._loads.clear()
        self._known.clear()
        for one in self.regions:
            one.close()


def result_of(load: StagedInterval, found: Sequence[IntervalScores], link: bool) -> StepResult:
    """Result of an interval, its scores in the order of its events."""
    loss = torch.stack([one.loss for one in found]).sum()
    columns = []
    for name, order in (("positives", load.edge_order), ("negatives", load.negative_order)):
        if not link:
            columns.append(loss.new_zeros(0))
            continue
        cells: dict[tuple[int, int], Tensor] = {}
        for one in found:
            cells |= getattr(one, name)
        pieces = [loss.new_zeros(0), *(cells[cell] for cell in sorted(cells))]
        columns.append(load.in_order(pieces, order))
    asked = torch.stack([one.asked for one in found]).sum()
    return StepResult(loss, *columns, torch.stack([one.correct for one in found]).sum(), asked)


def _key(events: Tensor) -> tuple[int, ...]:
    """Tells intervals of one layout apart."""
    return (events.numel(), int(events[0]), int(events[-1]))


def _check(
    devices: int, parts: int | None, resident: bool | None, scoring: str, on: Mapping[str, bool]
) -> None:
    if devices < 1 or (parts is not None and parts < devices):
        raise InvalidInputError(
            f"{devices} devices and {parts} parts; needed: at least 1, and a part for each device"
        )
    if resident and parts not in (None, devices):
        raise InvalidInputError(
            f"{parts} parts on {devices} devices; where state is resident each device has one part"
        )
    if resident and not on["partition"]:
        raise InvalidInputError("resident is True, and state lies on the host without 'partition'")
    if scoring not in SCORINGS:
        raise unknown_key("scoring", scoring, SCORINGS)
