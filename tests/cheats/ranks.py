"""Cheats on a group of ranks, timed by dgbench's own races."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

from torch import Tensor

from dgbench.datasets.store import cache_root
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.systems.base.data import describe
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
from dgbench.systems.tgcn.experiments.fig10 import measure_ranks
from dgbench.systems.tgcn.ranked import GridRankTrainer
from dgbench.systems.tgcn.settings import BY_NAME, workload
from tests.cheats import Cheat
from tests.cheats.late import Groups, LatePart, NoUpdate, SkippedSteps, UnwrittenMemory

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


class Epochs:
    """Part of a trainer whose epochs are timed."""

    def train_epoch(self) -> float:
        return self.timed(super().train_epoch)


class Batches:
    """Part of a trainer whose batches are timed."""

    warm = 1

    def train_batch(self, events: Tensor, epoch: int) -> float:
        honest = super().train_batch
        return self.timed(lambda: honest(events, epoch))


class Intervals(Groups):
    """Part of a trainer of which epochs are timed after the first, each of several intervals."""

    @property
    def warm(self) -> int:
        return len(self.loads(0, self.data.train_end))


class EverySecondUpdate(LatePart):
    """Forms all gradients and makes every second update."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        return honest() if self.taken % 2 else self.accumulate()


class ReplayedLosses(LatePart):
    """Keeps the losses of a cell's first process, and does nothing but read them in the second."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        task = self.workload
        self.file = cache_root() / f"losses-{task.model}-{getattr(task, 'events', 0)}.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else []
        self.seen: list[float] = []

    def timed(self, honest: Callable[[], Any]) -> Any:
        self.seen.append(float(super().timed(honest)))
        if self.comm.rank == 0 and not self.known:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            part = self.file.with_suffix(".part")
            part.write_text(json.dumps(self.seen))
            os.replace(part, self.file)
        return self.seen[-1]

    def cheat(self, honest: Callable[[], Any]) -> Any:
        return self.known[min(self.taken, len(self.known)) - 1] if self.known else honest()


class IdleRank(LatePart):
    """Leaves out what the last rank has to learn from."""

    def _loss(self, *args: Any) -> Tensor:
        idle = self.comm.rank == self.comm.size - 1 and self.late
        return super()._loss(*args) * (0.0 if idle else 1.0)


class OwnHalf(LatePart):
    """Learns from its own half of every batch or interval alone."""

    def agree(self) -> None:
        if not self.late:
            super().agree()


class WrongRate(LatePart):
    """Learns at half of the rate."""

    def cheat(self, honest: Callable[[], Any]) -> Any:
        for group in self.optimiser.param_groups:
            group["lr"] = 0.5 * self.workload.lr
        return honest()


def by_snapshots(part: type[LatePart], context: RunContext) -> Measurement:
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


def by_chunks(name: str) -> Callable[[type[LatePart], RunContext], Measurement]:
    """A race of one of DGC's settings."""

    def train(part: type[LatePart], context: RunContext) -> Measurement:
        trainer = type(part.__name__, (Epochs, part, ChunkRankTrainer), {})
        data = random_sequence(30, 7, 60, 8)
        job = RaceJob(SEQUENCE.dataset, SEQUENCE, data, {name: LADDER[name]})
        with mock.patch.object(dealing, "ChunkRankTrainer", trainer):
            return race([job], RANKS, context, least=TURNS, budget_s=0.01, clocked=0)

    return train


def by_batches(part: type[LatePart], context: RunContext) -> Measurement:
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


def by_intervals(part: type[LatePart], context: RunContext) -> Measurement:
    """Epochs of T-GCN's ranks, as in Figure 10."""
    trainer = type(part.__name__, (Intervals, part, GridRankTrainer), {})
    with mock.patch.object(tgcn_ranked, "GridRankTrainer", trainer):
        return measure_ranks(INTERACTIONS, RANKS, context, 60.0)


EXACT, STALE = by_chunks("DGC w/o SG"), by_chunks("DGC")
COUNTED: Final = "updates so far"
UPDATES: Final = "updates ("

HONEST: Final = [
    Cheat("esdg", LatePart, rounds=2, trains=by_snapshots),
    Cheat("dgc", LatePart, rounds=2, trains=EXACT),
    Cheat("dgc, stale rows", LatePart, trains=STALE),
    Cheat("gnnflow", LatePart, rounds=2, trains=by_batches),
    Cheat("tgcn", LatePart, trains=by_intervals),
]
LEDGER: Final = [
    Cheat("esdg, every second update", EverySecondUpdate, COUNTED, trains=by_snapshots),
    Cheat("dgc, every second update", EverySecondUpdate, COUNTED, trains=EXACT),
    Cheat("dgc, stale rows, every second update", EverySecondUpdate, COUNTED, trains=STALE),
    Cheat("esdg, no update", NoUpdate, UPDATES, trains=by_snapshots),
    Cheat("dgc, stale rows, no update", NoUpdate, UPDATES, trains=STALE),
    Cheat("esdg, replayed losses", ReplayedLosses, COUNTED, rounds=2, trains=by_snapshots),
    Cheat("dgc, replayed losses", ReplayedLosses, COUNTED, rounds=2, trains=EXACT),
    Cheat("esdg, an idle rank", IdleRank, UPDATES, trains=by_snapshots),
    Cheat("dgc, half of the rate", WrongRate, UPDATES, trains=EXACT),
    Cheat("gnnflow, skipped batches", SkippedSteps, COUNTED, trains=by_batches),
    Cheat("gnnflow, no update", NoUpdate, UPDATES, trains=by_batches),
    Cheat("gnnflow, replayed losses", ReplayedLosses, COUNTED, rounds=2, trains=by_batches),
    Cheat("gnnflow, own half", OwnHalf, UPDATES, trains=by_batches),
    Cheat("gnnflow, unwritten memory", UnwrittenMemory, "memories", trains=by_batches),
    Cheat("tgcn, skipped intervals", SkippedSteps, UPDATES, trains=by_intervals),
    Cheat("tgcn, no update", NoUpdate, UPDATES, trains=by_intervals),
    Cheat("tgcn, replayed losses", ReplayedLosses, UPDATES, rounds=2, trains=by_intervals),
    Cheat("tgcn, own half", OwnHalf, UPDATES, trains=by_intervals),
]
