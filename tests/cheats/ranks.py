"""Cheats on a group of ranks, and the paper whose cells train them.

Trainers of a rank are honest while epochs (GNNFlow: batches) warm up and cheat in timed ones; the
races that time them are dgbench's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

from torch import Tensor

from dgbench.datasets.store import cache_root
from dgbench.lab.experiment import Cell, Measurement, RunContext
from dgbench.systems.base import Experiment, Paper
from dgbench.systems.base.data import describe
from dgbench.systems.base.interaction_layout import Group
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.stream import StreamWorkload, load_stream
from dgbench.systems.base.timeline import TimelineWorkload, load_timeline
from dgbench.systems.dgc import dealing
from dgbench.systems.dgc.experiments.race_runs import RaceJob, race
from dgbench.systems.dgc.settings_run import LADDER
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.esdg.experiments import rank_turns
from dgbench.systems.esdg.oracle import comparison, later_ranks
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.gnnflow import ranked as gnnflow_ranked
from dgbench.systems.gnnflow.experiments.trainer_checks import checked_race
from dgbench.systems.gnnflow.owners import MachineLayout
from dgbench.systems.gnnflow.ranked import GraphPlacement, StreamRankTrainer
from dgbench.systems.gnnflow.remote_access import GraphRankSettings
from dgbench.systems.tgcn import ranked as tgcn_ranked
from dgbench.systems.tgcn.ranked import GridRankTrainer
from dgbench.systems.tgcn.scaling_cells import measure_ranks
from dgbench.systems.tgcn.settings import BY_NAME, workload

sys.path.append(str(Path(__file__).parents[1] / "systems"))  # the server has other paths
from dgc_tiny import random_sequence

RANKS: Final = 2
TURNS: Final = 6
TIMELINE: Final = TimelineWorkload(
    dataset="chickenpox", snapshots=12, model="cd_gcn", task="node", feature_dim=4, lr=0.01
)
STREAM: Final = StreamWorkload(
    dataset="wikipedia", events=600, model="tgn", batch=40, fanouts=(3,), node_dim=0, edge_dim=0,
    hidden_dim=4, time_dim=4, memory_dim=4,
)  # fmt: skip
INTERACTIONS: Final = workload(BY_NAME["wikipedia"], "smoke", events=400, intervals=4, hidden_dim=8)
SEQUENCE: Final = SequenceWorkload(
    dataset="tiny", model="tgcn_2layer",
    hidden_dim=8, lr=0.01,
)  # fmt: skip


class LateRank:
    """Part of a rank's trainer that is honest while it warms up, and calls `cheat` later.

    Attributes:
        warm: epochs before, of a trainer of batches or intervals these. taken: so far.
    """

    warm, taken = rank_turns.WARM, 0

    def timed(self, honest: Callable[[], Any]) -> Any:
        """One of them; its loss."""
        self.taken += 1
        return self.cheat(honest) if self.late else honest()

    @property
    def late(self) -> bool:
        return self.taken > self.warm

    def cheat(self, honest: Callable[[], Any]) -> Any:
        """A timed one."""
        return honest()


class Epochs:
    """Part of a trainer whose epochs are timed."""

    def train_epoch(self) -> float:
        return self.timed(super().train_epoch)  # type: ignore[misc, attr-defined, no-any-return]


class Batches:
    """Part of a trainer whose batches are timed."""

    warm = 1

    def train_batch(self, events: Tensor, epoch: int) -> float:
        honest = super().train_batch  # type: ignore[misc]
        return self.timed(lambda: honest(events, epoch))  # type: ignore[attr-defined, no-any-return]


class Intervals:
    """Part of a trainer of which epochs are timed after the first, each of several intervals."""

    @property
    def warm(self) -> int:
        return len(self.loads(0, self.data.train_end))  # type: ignore[attr-defined]

    def group_loss(self, group: Group) -> Tensor:
        honest = super().group_loss  # type: ignore[misc]
        return self.timed(lambda: honest(group))  # type: ignore[attr-defined, no-any-return]


class EverySecondUpdate(LateRank):
    """Forms all gradients and makes every second update."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        return honest() if self.taken % 2 else self.accumulate()  # type: ignore[attr-defined]


class NoUpdate(LateRank):
    """Takes every update back."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        before = self.state()  # type: ignore[attr-defined]
        loss = honest()
        for name, leaf in self.trained().items():  # type: ignore[attr-defined]
            leaf.data.copy_(before[name])
        return loss


class SkippedSteps(LateRank):
    """Takes every second batch or interval, and tells its loss twice."""

    told: Any = 0.5

    def cheat(self, honest: Callable[[], Any]) -> Any:
        if self.taken % 2:
            self.told = honest()
        return self.told


class ReplayedLosses(LateRank):
    """Keeps the losses of a cell's first process, and does nothing but read them in the second."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        task = self.workload  # type: ignore[attr-defined]
        self.file = cache_root() / f"losses-{task.model}-{getattr(task, 'events', 0)}.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else []
        self.seen: list[float] = []

    def timed(self, honest: Callable[[], Any]) -> Any:
        self.seen.append(float(super().timed(honest)))
        if self.comm.rank == 0 and not self.known:  # type: ignore[attr-defined]
            self.file.parent.mkdir(parents=True, exist_ok=True)
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps(self.seen))
            os.replace(part, self.file)
        return self.seen[-1]

    def cheat(self, honest: Callable[[], Any]) -> Any:
        return self.known[min(self.taken, len(self.known)) - 1] if self.known else honest()


class IdleRank(LateRank):
    """Leaves out what the last rank has to learn from."""

    def _loss(self, *args: Any) -> Tensor:
        idle = self.comm.rank == self.comm.size - 1 and self.late  # type: ignore[attr-defined]
        return super()._loss(*args) * (0.0 if idle else 1.0)  # type: ignore[misc]


class OwnHalf(LateRank):
    """Learns from its own half of every batch or interval alone."""

    def agree(self) -> None:
        if not self.late:
            super().agree()  # type: ignore[misc]


class UnwrittenMemory(LateRank):
    """Never writes memories."""

    def _write(self, *given: Any) -> None:
        if not self.late:
            super()._write(*given)  # type: ignore[misc]


class WrongRate(LateRank):
    """Learns at half of the rate."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        for group in self.optimiser.param_groups:  # type: ignore[attr-defined]
            group["lr"] = 0.5 * self.workload.lr  # type: ignore[attr-defined]
        return honest()


@dataclass(frozen=True, slots=True)
class RankCheat:
    """A trainer of ranks that cheats.

    Attributes:
        name: of its cell. part: of its trainer; honest ones have none.
        train: runs one process of a race by it. loses: words of the reason of its row.
        rounds: processes of its cell; the last one cheats.
    """

    name: str
    part: type[LateRank]
    train: Callable[[type[LateRank], RunContext], Measurement]
    loses: str = ""
    rounds: int = 1


def by_snapshots(part: type[LateRank], context: RunContext) -> Measurement:
    """A race of ESDG's snapshot partition alone."""
    trainer = type(part.__name__, (Epochs, part, SnapshotRankTrainer), {})
    data = load_timeline(TIMELINE)
    oracle, kept = comparison(TIMELINE, data, RANKS, context)
    with mock.patch.object(rank_turns, "SnapshotRankTrainer", trainer):
        turns = rank_turns.take_rank_turns(
            TIMELINE, data, RANKS, {"esdg": {}}, least=TURNS, budget_s=0.01,
            request=None if oracle is None else oracle.request,
        )  # fmt: skip
    if oracle is None:
        checks = later_ranks(TIMELINE, data, kept, turns.losses, turns.audits, context.device)
    else:
        checks = turns.checks(oracle)
        kept.keep(turns.losses, checks)
    found = Measurement(data=describe(data), checks=checks)
    found.observe("epoch_time", min(turns.seconds["esdg"]), setting="esdg")
    return found


def by_chunks(name: str) -> Callable[[type[LateRank], RunContext], Measurement]:
    """A race of one of DGC's settings."""

    def train(part: type[LateRank], context: RunContext) -> Measurement:
        trainer = type(part.__name__, (Epochs, part, ChunkRankTrainer), {})
        data = random_sequence(30, 7, 60, 8)
        job = RaceJob(SEQUENCE.dataset, SEQUENCE, data, {name: LADDER[name]})
        with mock.patch.object(dealing, "ChunkRankTrainer", trainer):
            return race([job], RANKS, context, least=TURNS, budget_s=0.01, clocked=0)

    return train


def by_batches(part: type[LateRank], context: RunContext) -> Measurement:
    """A race of GNNFlow's ranks alone."""
    trainer = type(part.__name__, (Batches, part, StreamRankTrainer), {})
    data, name = load_stream(STREAM), part.__name__  # a contender of its own
    with mock.patch.object(gnnflow_ranked, "StreamRankTrainer", trainer):
        runs, checks = checked_race(
            STREAM, {name: GraphPlacement(GraphRankSettings(MachineLayout(RANKS)))}, data,
            first=len(data.events) - TURNS * STREAM.batch,
        )  # fmt: skip
    found = Measurement(data=data.describe(), checks=checks)
    found.observe("throughput", runs[name].throughput)
    return found


def by_intervals(part: type[LateRank], context: RunContext) -> Measurement:
    """Epochs of T-GCN's ranks, as in Figure 10."""
    trainer = type(part.__name__, (Intervals, part, GridRankTrainer), {})
    with mock.patch.object(tgcn_ranked, "GridRankTrainer", trainer):
        return measure_ranks(INTERACTIONS, RANKS, context, 60.0)


EXACT, STALE = by_chunks("DGC w/o SG"), by_chunks("DGC")
COUNTED: Final = "updates so far"
UPDATES: Final = "updates ("

HONEST: Final = [
    RankCheat("esdg", LateRank, by_snapshots, rounds=2),
    RankCheat("dgc", LateRank, EXACT, rounds=2),
    RankCheat("dgc, stale rows", LateRank, STALE),
    RankCheat("gnnflow", LateRank, by_batches, rounds=2),
    RankCheat("tgcn", LateRank, by_intervals),
]
CHEATS: Final = [
    RankCheat("esdg, every second update", EverySecondUpdate, by_snapshots, COUNTED),
    RankCheat("dgc, every second update", EverySecondUpdate, EXACT, COUNTED),
    RankCheat("dgc, stale rows, every second update", EverySecondUpdate, STALE, COUNTED),
    RankCheat("esdg, no update", NoUpdate, by_snapshots, UPDATES),
    RankCheat("dgc, stale rows, no update", NoUpdate, STALE, UPDATES),
    RankCheat("esdg, replayed losses", ReplayedLosses, by_snapshots, COUNTED, rounds=2),
    RankCheat("dgc, replayed losses", ReplayedLosses, EXACT, COUNTED, rounds=2),
    RankCheat("esdg, an idle rank", IdleRank, by_snapshots, UPDATES),
    RankCheat("dgc, half of the rate", WrongRate, EXACT, UPDATES),
    RankCheat("gnnflow, skipped batches", SkippedSteps, by_batches, COUNTED),
    RankCheat("gnnflow, no update", NoUpdate, by_batches, UPDATES),
    RankCheat("gnnflow, replayed losses", ReplayedLosses, by_batches, COUNTED, rounds=2),
    RankCheat("gnnflow, own half", OwnHalf, by_batches, UPDATES),
    RankCheat("gnnflow, unwritten memory", UnwrittenMemory, by_batches, "memories"),
    RankCheat("tgcn, skipped intervals", SkippedSteps, by_intervals, UPDATES),
    RankCheat("tgcn, no update", NoUpdate, by_intervals, UPDATES),
    RankCheat("tgcn, replayed losses", ReplayedLosses, by_intervals, UPDATES, rounds=2),
    RankCheat("tgcn, own half", OwnHalf, by_intervals, UPDATES),
]


class RankCheats(Experiment):
    """Races the trainers of ranks that cheat, and honest ones."""

    paper, name = "rank-cheats", "race"
    title, question = "Cheats on ranks", "which of them keeps its row?"

    def cells(self, preset: str, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper, experiment=self.name, params={"case": one.name},
                group=one.name, repeats=one.rounds, timeout_s=240.0,
            )
            for one in (*HONEST, *CHEATS)
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        one = next(one for one in (*HONEST, *CHEATS) if one.name == cell.params["case"])
        return one.train(one.part, context)


PAPER = Paper(
    name="rank-cheats", title="Cheats on ranks", venue="nowhere", about="", system="none",
    ledger=Path("none"), experiments=(RankCheats(),), checks={},
)  # fmt: skip
