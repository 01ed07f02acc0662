"""A paper whose cells train ESDG on ranks of which one fails. The fork server imports it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import unknown_key
from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Experiment, Measurement, Paper
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

sys.path.append(str(Path(__file__).parent))  # the server has other paths than pytest
from test_esdg_one_plan import timeline
from tiny_data import tiny_sequence

BAD = 1
"""The rank that fails."""


def workload(model: str) -> TimelineWorkload:
    return TimelineWorkload(dataset="tiny", model=model, task="node", window=3, lr=0.01)


def train(comm: Communicator, how: str, pids: str) -> list[float]:
    """Three epochs; in the second one, `BAD` fails between two exchanges."""
    Path(pids, str(comm.rank)).write_text(str(os.getpid()))
    trainer = SnapshotRankTrainer(
        comm, workload("cd_gcn"), tiny_sequence(features=2, snapshots=9), blocks=2
    )
    losses = [trainer.train_epoch()]
    comm.barrier()
    if comm.rank == BAD and how != "well":
        trainer._loss = lambda *arguments: fail(how)
    return losses + [trainer.train_epoch() for _ in range(2)]


def fail(how: str) -> None:
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        time.sleep(60)
    if how == "eats":
        held = []
        while True:
            held.append(torch.ones(4 << 20))
            time.sleep(0.002)
    if how == "raises":
        raise ValueError("a mistake in a loss")


class Faults(Experiment):
    paper = "faults"
    name = "faults"
    title = "Faults"
    question = "What becomes of a cell whose rank fails?"
    made: tuple[Cell, ...] = ()

    def cells(self, preset, device):
        return list(self.made)

    def run(self, cell, context):
        if cell.params.get("blocks"):
            return one_process(cell)
        results = launch(
            train,
            3,
            (cell.params["how"], cell.params["pids"]),
            timeout_s=cell.timeout_s - 5,
            stall_s=3.0 if cell.params["how"] == "hangs" else None,
            memory_bytes=400 << 20,
            threads=1,
        )
        assert results[0] == results[1] == results[2]
        return told(loss=results[0][-1], epochs=len(results[0]))


def one_process(cell: Cell) -> Measurement:
    """An epoch of a timeline whose whole record does not fit into the cell's memory."""
    data = timeline(16_000, 32_000, 33)
    switches = EsdgSystem().switches({"checkpoint": cell.params["blocks"] > 1, "arena": True})
    blocks = cell.params["blocks"] if switches["checkpoint"] else None
    trainer = EsdgTrainer(workload("cd_gcn"), data, switches, nb=blocks)
    losses = [trainer.train_epoch() for _ in range(1)]
    whole = EsdgTrainer(workload("cd_gcn"), data, switches | {"checkpoint": False})
    saved = whole.planned_bytes() - trainer.planned_bytes()
    return told(loss=losses[-1], memory=int(saved), timeline_blocks=len(trainer.blocks))


def told(**numbers: float) -> Measurement:
    """A measurement of these metrics."""
    found = Measurement()
    for metric, number in numbers.items():
        found.observe(metric, number)
    return found


def make_paper(*cells: Cell) -> Paper:
    experiment = Faults()
    experiment.made = cells
    return Paper(
        name="faults",
        title="Faults",
        venue="nowhere",
        about="",
        system="none",
        ledger=Path("none"),
        experiments=(experiment,),
        checks={},
    )


def lookup(name: str) -> Paper:
    if name != "faults":
        raise unknown_key("paper", name, ["faults"])
    return make_paper()
