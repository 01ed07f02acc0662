"""One rank's part of an interval: it exchanges destinations with its partner alone (4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dgbench.runtime.collectives import Communicator, Exchange
from dgbench.systems.tgcn.device import IntervalScores
from dgbench.systems.tgcn.feeding import StagedInterval
from dgbench.systems.tgcn.regions import Visitor
from dgbench.systems.tgcn.rounds import Device, DeviceSettings
from dgbench.systems.tgcn.schedule import PartMove, RingSchedule


class RankRounds:
    """Runs intervals on one rank; all ranks call it alike.

    Args:
        comm: the group. device: of this rank. settings: of it. schedule: who holds what when.
    """

    def __init__(
        self, comm: Communicator, device: Device, settings: DeviceSettings, schedule: RingSchedule
    ) -> None:
        self.comm, self.device, self.set, self.schedule = comm, device, settings, schedule
        self._path = [part for phase in schedule.phases for part in phase.trains[comm.rank]]

    def reserve(self, rows: int, width: int, dtype: torch.dtype) -> None:
        """Have room for what is added up at home; what comes brings its own."""
        self.device.regions.reserve(rows, width, dtype, now=1, coming=0)

    def run(self, load: StagedInterval, *, scale: float | None) -> list[IntervalScores]:
        """One interval, this rank's part of it."""
        device, phases = self.device, self.schedule.phases
        device.begin(load, scale=scale)
        early: Exchange | None = None
        for number, phase in enumerate(phases):
            self._move(load, phase.moves, early)
            following = phases[number + 1].moves if number + 1 < len(phases) else ()
            early = None
            if self.schedule.kind != "gather" and device.regions.overlap:
                early = self._read(load, following)
            for part in phase.trains[self.comm.rank]:
                self._ahead(load, part)
                device.train(load, part)
            if phase.moves:
                self.set.meter.count("phases")
        self.set.meter.count("rounds")
        return [device.end(load)]

    def _ahead(self, load: StagedInterval, part: int) -> None:
        rank, feeder = self.comm.rank, self.device.feeder
        for later in self._path[self._path.index(part) :]:
            if (rank, later) in load.grids:
                feeder.ahead((load.key, rank, later), load.grids[rank, later][1])

    def _read(self, load: StagedInterval, moves: Sequence[PartMove]) -> Exchange | None:
        """Begin to pass on embeddings, which nobody writes."""
        if not any(move.reads for move in moves):
            return None
        with self.set.meter.phase("swap"):
            return self._exchange(
                load, moves, "reads", 1, lambda part: self.device.held[part].embedding
            )

    def _move(
        self, load: StagedInterval, moves: Sequence[PartMove], early: Exchange | None
    ) -> None:
        """All moves of a phase at once."""
        if not moves:
            return
        read = early if early is not None else self._read(load, moves)
        added = None
        with self.set.meter.phase("swap"):
            if any(move.sums for move in moves):
                added = self._exchange(load, moves, "sums", 2, self._sums)
            mine = [move for move in moves if move.target == self.comm.rank]
            mine.sort(key=lambda move: move.source)
            sizes = [load.travelling[move.part] for move in mine]
            embeddings = None if read is None else read.wait().split(sizes)
            sums = None if added is None else added.wait().split([2 * n for n in sizes])
        for move in moves:
            copies = self.schedule.kind == "gather"
            if move.source == self.comm.rank and (not copies or move.target == move.part):
                self.device.drop(move.part)
        for k, (move, rows) in enumerate(zip(mine, sizes, strict=True)):
            self._receive(
                move, rows, None if embeddings is None else embeddings[k], sums and sums[k]
            )

    def _receive(self, move: PartMove, rows: int, embedding: Tensor | None, sums: Any) -> None:
        device = self.device
        if embedding is None:
            embedding = device.owner.targets
        if sums is None or sums.shape[0] == 0:
            sums = embedding.new_zeros(2 * rows, embedding.shape[1])
        visitor = Visitor(move.part, embedding, sums[:rows], sums[rows:])
        own = device.held.get(move.part)
        if own is None:
            device.held[move.part] = visitor
        else:  # a copy is back with what was added to it
            own.gradient.add_(visitor.gradient)
            own.total.add_(visitor.total)

    def _sums(self, part: int) -> Tensor:
        visitor = self.device.held[part]
        if visitor.total is None:
            width = visitor.embedding.shape[1]
            return visitor.embedding.new_zeros(2 * visitor.embedding.shape[0], width)
        return torch.cat([visitor.gradient, visitor.total])

    def _exchange(
        self, load: StagedInterval, moves: Sequence[PartMove], what: str, planes: int, piece: Any
    ) -> Exchange:
        """Rows that moves take from this rank and bring to it; to partners alone."""
        size = self.comm.size
        send, receive = [0] * size, [0] * size
        pieces = {}
        for move in moves:
            if not getattr(move, what):
                continue
            rows = planes * load.travelling[move.part]
            if move.source == self.comm.rank:
                send[move.target] = rows
                pieces[move.target] = piece(move.part)
                self.set.meter.count(
                    "bytes_swapped", pieces[move.target].numel() * self.device.state.hs.itemsize
                )
            if move.target == self.comm.rank:
                receive[move.source] = rows
        empty = self.device.owner.targets[:0]
        x = torch.cat([empty, *(pieces[to] for to in sorted(pieces))])
        return self.comm.start_all_to_all(x, send, receive, grad=False)
