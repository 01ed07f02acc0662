"""An interval on devices that own their parts: refresh, pass destinations round, learn (4.2, 4.3).

The devices are virtual: they take turns in one process, on one processor or one GPU, and each has
memory of its own, so that what travels is really copied. `ranked` has one device per process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dgbench.models.streaming import Dygnn, DygnnState, PendingInteractions
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interaction_trainer import VertexLabels
from dgbench.systems.tgcn.device import IntervalScores, Owner, train_pairs
from dgbench.systems.tgcn.feeding import Feeder, StagedInterval
from dgbench.systems.tgcn.regions import Regions, Visitor, copy_across
from dgbench.systems.tgcn.schedule import PartMove, RingSchedule


class DeviceSettings:
    """Settings that all devices of a trainer share.

    Args:
        model: the network. meter: gets phases and counters.
        link: score pairs, or classify vertices.
        last: only a vertex's last partner goes in.
        direct: devices copy to each other, or through the host.
    """

    def __init__(
        self, model: Dygnn, meter: Meter, *, link: bool, last: bool, direct: bool = True
    ) -> None:
        self.model, self.meter = model, meter
        self.link, self.last, self.direct = link, last, direct


class Device:
    """One device and the part that it owns.

    Args:
        number: of the device and its part.
        settings: shared by all.
        state, pending: of the part's vertices, on the device; written to.
        regions: its memory.
        labels: of the part's vertices, or None without classes.
    """

    def __init__(
        self,
        number: int,
        settings: DeviceSettings,
        state: DygnnState,
        pending: PendingInteractions,
        regions: Regions,
        labels: VertexLabels | None = None,
    ) -> None:
        self.number, self.set, self.regions = number, settings, regions
        self.state, self.pending, self.labels = state, pending, labels
        self.feeder = Feeder(regions)
        self.held: dict[int, Visitor] = {}
        self.scored: IntervalScores | None = None
        self.owner: Owner | None = None

    def begin(self, load: StagedInterval, *, scale: float | None) -> None:
        """Refresh the rows that the interval reads."""
        share, staged = load.shares[self.number]
        share = share.received(self.feeder.get((load.key, self.number, -1), staged))
        meter = self.set.meter
        meter.count("rows", share.ids.numel())
        self.regions.work(
            share.ids.numel(), self.state.embedding.shape[1], self.state.embedding.dtype
        )
        with meter.phase("refresh"):
            ids = share.ids.long()
            self.owner = Owner(
                self.set.model,
                share,
                self.state[ids],
                self.pending[ids],
                learn=scale is not None,
                link=self.set.link,
            )
            self._ids = ids
        self._scale = scale
        nothing = self.owner.total.new_zeros(())
        self.scored = IntervalScores(nothing, {}, {}, nothing, nothing)
        self.held = {self.number: Visitor(self.number, self.owner.targets)}

    def region(self, part: int, rows: int) -> Visitor:
        """Room for a part, with nothing added up."""
        visitor = self.regions.take(part, rows)
        visitor.gradient.zero_()
        visitor.total.zero_()
        return visitor

    def train(self, load: StagedInterval, part: int) -> None:
        """Train the grid whose destinations are `part`, which has to be here."""
        visitor = self.held[part]
        if visitor.total is None:  # at home, nothing added yet
            region = self.region(part, visitor.embedding.shape[0])
            visitor = replace(region, embedding=visitor.embedding)
            self.held[part] = visitor
        if (self.number, part) not in load.grids:
            return
        key = (load.key, self.number, part)
        pairs, staged = load.grids[self.number, part]
        pairs = pairs.received(self.feeder.get(key, staged))
        set_ = self.set
        set_.meter.count("edges", pairs.edges)
        with self.regions.timeline.span("train"):
            loss, positives, negatives = train_pairs(
                set_.model,
                pairs,
                self.owner.keys,
                self.owner.sources,
                visitor,
                self.owner.total,
                scale=self._scale,
                link=set_.link,
                last=set_.last,
                meter=set_.meter,
            )
        self.feeder.done(key)
        self.scored.loss = self.scored.loss + loss
        self.scored.positives[self.number, part] = positives
        self.scored.negatives[self.number, part] = negatives

    def end(self, load: StagedInterval) -> IntervalScores:
        """Learn from what has come home, and keep the state; what the device found."""
        home, owner, meter, scored = self.held[self.number], self.owner, self.set.meter, self.scored
        loss = None
        if self.labels is not None:
            with meter.phase("score"), torch.set_grad_enabled(self._scale is not None):
                ends = self._ids[: owner.share.ends]
                summed, scored.correct, scored.asked = owner.classified(self.labels, ends)
                scored.loss = summed.detach()
                loss = None if self._scale is None else summed * self._scale
        if self._scale is not None:
            with meter.phase("backward"), self.regions.timeline.span("train"):
                owner.backward(home.gradient, loss)
        with meter.phase("interact"), torch.no_grad():
            ends = self._ids[: owner.share.ends]
            now, waits = owner.left(home.total, last=self.set.last)
            self.state.write(ends, now)
            self.pending.write(ends, waits)
        self.drop(self.number)
        self.feeder.done((load.key, self.number, -1))
        self.owner, self.held = None, {}
        return scored

    def drop(self, part: int) -> None:
        """A part is not here any more."""
        self.regions.give(self.held.pop(part))

    def reserve(self, schedule: RingSchedule, rows: int, width: int, dtype: torch.dtype) -> None:
        """Have room for the vectors that a schedule brings, parts of `rows` rows at most."""
        if schedule.size == 1:
            now, coming = 1, 0
        elif schedule.kind == "gather":
            now, coming = schedule.size, 1  # its own comes home from each of the others
        else:
            now, coming = 1, 1
        self.regions.reserve(rows, width, dtype, now, coming)


class Rounds:
    """Runs intervals on virtual devices by a schedule.

    Args:
        devices: in order of their numbers. settings: of all. schedule: who holds what when.
    """

    def __init__(
        self, devices: Sequence[Device], settings: DeviceSettings, schedule: RingSchedule
    ) -> None:
        self.devices, self.set, self.schedule = devices, settings, schedule
        self._copies = schedule.kind in ("gather", "direct")
        self._early: dict[int, Visitor] = {}
        # The destination parts that each device trains, in order.
        self._path = [
            [part for phase in schedule.phases for part in phase.trains[d]]
            for d in range(len(devices))
        ]

    def reserve(self, rows: int, width: int, dtype: torch.dtype) -> None:
        """Have room for parts of so many travelling rows at most."""
        for device in self.devices:
            device.reserve(self.schedule, rows, width, dtype)

    def run(self, load: StagedInterval, *, scale: float | None) -> list[IntervalScores]:
        """One interval: score it, learn where there is a scale, and keep what happened."""
        meter, phases = self.set.meter, self.schedule.phases
        for device in self.devices:
            device.begin(load, scale=scale)
        for number, phase in enumerate(phases):
            self._move(phase.moves)
            following = phases[number + 1].moves if number + 1 < len(phases) else ()
            self._read_ahead(following)
            for device, parts in zip(self.devices, phase.trains, strict=True):
                for part in parts:
                    self._ahead(load, device, part)
                    device.train(load, part)
            if phase.moves:
                meter.count("phases")
        meter.count("rounds")
        return [device.end(load) for device in self.devices]

    def _ahead(self, load: StagedInterval, device: Device, part: int) -> None:
        """Bring what the device trains after this grid while it trains on it."""
        path = self._path[device.number]
        mine = (load.key, device.number, part)
        if (device.number, part) in load.grids:
            # What is trained now goes first, if it was not brought before.
            device.feeder.ahead(mine, load.grids[device.number, part][1])
        for later in path[path.index(part) + 1 :]:
            if (device.number, later) in load.grids:
                staged = load.grids[device.number, later][1]
                device.feeder.ahead((load.key, device.number, later), staged)
                return
        if load.following is not None:
            coming = load.following
            device.feeder.ahead((coming.key, device.number, -1), coming.shares[device.number][1])

    def _read_ahead(self, moves: Sequence[PartMove]) -> None:
        """Copy embeddings, which nobody writes, to who trains on them next, while training."""
        if self._copies or not self.devices[0].regions.overlap:
            return
        for move in moves:
            if move.reads:
                self._early[move.target] = self._read(move)

    def _read(self, move: PartMove) -> Visitor:
        """Room at the target of a move, with the embeddings if those move."""
        visitor = self.devices[move.source].held[move.part]
        regions = self.devices[move.target].regions
        region = regions.take(move.part, visitor.embedding.shape[0])
        if move.reads:
            with self.set.meter.phase("swap"), regions.aside(), regions.timeline.span("swap"):
                self._copy(visitor.embedding, region.embedding)
        return region

    def _move(self, moves: Sequence[PartMove]) -> None:
        """All moves of a phase at once; copies that come home one after the other."""
        arrived = []
        for move in moves:
            source, target = self.devices[move.source], self.devices[move.target]
            visitor = source.held[move.part]
            region = self._early.pop(move.target, None) or self._read(move)
            target.regions.join()
            with self.set.meter.phase("swap"):
                if move.sums and visitor.total is not None:
                    self._copy(visitor.gradient, region.gradient)
                    self._copy(visitor.total, region.total)
                else:
                    region.gradient.zero_()
                    region.total.zero_()
            if self._copies:
                if move.target == move.part:
                    source.drop(move.part)
                self._receive(target, region)
            else:
                arrived.append((target, region))
        if not self._copies:
            for move in moves:
                self.devices[move.source].drop(move.part)
            for target, region in arrived:
                self._receive(target, region)

    def _receive(self, target: Device, region: Visitor) -> None:
        if region.part != target.number:
            target.held[region.part] = region
        elif region.part in target.held:  # a copy is back with what was added to it
            own = target.held[region.part]
            own.gradient.add_(region.gradient)
            own.total.add_(region.total)
            target.regions.give(region)
        else:
            target.held[region.part] = replace(region, embedding=target.owner.targets)

    def _copy(self, source: Tensor, target: Tensor) -> None:
        copy_across(source, target, self.set.meter, direct=self.set.direct)
