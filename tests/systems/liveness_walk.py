"""All workloads that experiments train on, and how alive their networks are.

python tests/systems/liveness_walk.py [--twins] [--only TEXT] [PRESET ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final

import msgspec
import torch

from dgbench.datasets.twins import names as twin_names
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.errors import DgbenchError, UnsupportedError
from dgbench.systems.arena.timeline import TimelineTraining
from dgbench.systems.arena.training import SnapshotTraining
from dgbench.systems.base import liveness
from dgbench.systems.base.interaction_checks import check_now
from dgbench.systems.base.interactions import InteractionWorkload, load_interactions
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.sequences import SequenceWorkload, load_sequences
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload, load_timeline
from dgbench.systems.dgc.experiments import settings as dgc
from dgbench.systems.esdg.experiments import settings as esdg
from dgbench.systems.gnnflow.experiments import settings as gnnflow
from dgbench.systems.pipad.experiments import settings as pipad
from dgbench.systems.tgcn import races
from dgbench.systems.tgcn import settings as tgcn

STEPS: Final = 3
"""Optimiser steps before anything is measured."""
EVENTS, BATCHES = 200, 10
"""Last events of a stream by batch and their batches, which vertices remember something of."""


def workloads(presets: Sequence[Preset], source: str = "auto") -> dict[str, Any]:
    """Workloads by preset and name: every graph with every model, once; of `twin` those that have a
    synthetic twin, on it."""
    found: dict[str, Any] = {}
    for preset in presets:
        for name, task in _of_preset(preset):
            if source == "twin" and task.dataset in twin_names():
                task = msgspec.structs.replace(task, source="twin")
            if (source != "twin" or task.source == "twin") and task not in found.values():
                found[f"{preset}/{name}/{task.dataset}/{task.model}"] = task
    return found


def _of_preset(preset: Preset) -> Iterator[tuple[str, Any]]:
    """(paper, workload) of all papers and of the arena."""
    for name, settings in (("pipad", pipad), ("esdg", esdg), ("dgc", dgc), ("gnnflow", gnnflow)):
        for graph in settings.ALL:
            for model in settings.MODELS:
                yield name, settings.workload(graph, model, preset)
    for graph in gnnflow.ALL:
        for model in ("graphsage", "gat"):
            yield "gnnflow", gnnflow.workload(graph, model, preset)
    for graph in tgcn.ALL:
        for model in ("dygnn", "jodie"):
            for task in ("link", "classify") if model == "dygnn" else ("link",):
                yield "tgcn", races.task_of(graph.name, preset, model=model, task=task)
    for arena in (SnapshotTraining(), TimelineTraining()):
        for case in arena.arena_task.cases:
            if preset in case.presets:
                yield "arena", arena.workload(case, preset)


def alive(task: Any) -> list[ResultCheck]:
    """Checks of how alive the network of a workload is after a few steps in float32."""
    if isinstance(task, InteractionWorkload):
        return _alive_interactions(task)
    if isinstance(task, StreamWorkload):
        trainer: Any = get_system("gnnflow").open(task)  # type: ignore[arg-type]
        trainer.prepare()
        parts = _batches(trainer.data.events.t)
        last = len(parts) - 1
        steps: Iterable[int] = range(last)
        rows, frames = None, trainer.frames_replaced(dict(enumerate(parts)))
    else:
        trainer, frames = _plain(task), nullcontext()
        last = trainer.num_frames - 1
        steps = [step % (last + 1) for step in range(STEPS)]
        rows = None
        if not isinstance(task, SequenceWorkload):
            timeline = isinstance(task, TimelineWorkload)
            at = trainer.task.steps - 1 if timeline else trainer.task.times(last)[-1]
            rows = liveness.reached(trainer.data, at)
    if isinstance(task, SequenceWorkload) and bool(trainer.task.scored.test.all()):
        raise UnsupportedError("nothing is scored in it, so that nobody trains it")
    first = trainer.state()
    with frames:
        for step in steps:
            trainer.step(step)
        measured = liveness.measures(
            outputs=[(trainer.evaluate(last), rows)],
            gradients=[trainer.gradients(last)],
            first=first,
            now=trainer.state(),
        )
    trainer.close()
    return liveness.check(measured, against="nothing")


def _batches(times: torch.Tensor) -> Sequence[torch.Tensor]:
    """Batches of the last events; of all events in turn where those last ones share a time, before
    which nothing that they name has a history."""
    last = torch.arange(len(times))[-EVENTS * BATCHES :]
    if times[last].unique().numel() >= BATCHES:
        return last.split(EVENTS)
    begins = torch.linspace(0, len(times) - EVENTS, BATCHES).long().tolist()
    return [torch.arange(begin, begin + EVENTS) for begin in begins]


def _plain(task: Any) -> Any:
    if isinstance(task, TimelineWorkload):
        return PlainTimeline(task, load_timeline(task))
    if isinstance(task, SequenceWorkload):
        return PlainSequences(task, load_sequences(task))
    return get_system("reference").open(task)


def _alive_interactions(task: InteractionWorkload) -> list[ResultCheck]:
    data = load_interactions(task)
    trainer: Any = get_system(task.model).open(task, data=data)  # type: ignore[call-arg,arg-type]
    trainer.prepare()
    for group in trainer.groups(max(0, data.train_end - EVENTS * BATCHES), data.train_end):
        trainer.train_group(group)
    found = [one for one in check_now(trainer, "") if one.alive]
    trainer.close()
    return found


def main() -> int:
    """Walk all workloads of presets and print each; 1 where one of them is dead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="*", default=["smoke", "quick"])
    parser.add_argument("--twins", action="store_true", help="on synthetic twins, too")
    parser.add_argument("--only", default="", help="part of the names of workloads")
    given = parser.parse_args()
    tasks = workloads(given.presets)
    if given.twins:
        tasks |= {f"twin/{n}": task for n, task in workloads(given.presets, "twin").items()}
    dead = 0
    for name, task in tasks.items():
        if given.only in name:
            try:
                (check,) = alive(task)
            except DgbenchError as error:
                print(f"{name}: not here: {error}", flush=True)
                continue
            dead += not check.passed
            print(f"{name}: {check.alive} {check.words if not check.passed else ''}", flush=True)
    print(f"{dead} are dead")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
