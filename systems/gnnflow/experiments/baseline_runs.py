"""TGL and DGL training on a stream, batch by batch, with the parts of a batch's time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import mean
from typing import Final

import torch

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Preset
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload
from dgbench.systems.base.stream_data import StreamData
from dgbench.systems.gnnflow.dgl_access import DglAccess
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, untimed_check
from dgbench.systems.gnnflow.experiments.settings import (
    MODELS,
    PRESETS,
    SETTINGS,
    STATIC_MODELS,
    StreamGraph,
    workload,
)
from dgbench.systems.gnnflow.experiments.trainer_checks import StreamOracle, trainer_checks

BASELINES: Final = {"tgl": MODELS, "dgl": STATIC_MODELS}
"""Models that section 2.2 trains on each baseline."""
BASELINE_TITLES: Final = {"tgl": "TGL", "dgl": "DGL"}
PARTS: Final = ("sample", "fetch", "memory", "compute", "update")
MIN_BATCHES: Final = 3
"""Batches timed, at least; one more warms up."""
SMALLER: Final = (50, 20, 1, 1)
"""By how much a batch is smaller than the paper's, by preset."""


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Means over batches of one run with instruments, seconds; so parts add up.

    Attributes:
        total: of a batch.
        parts: by name, as in `PARTS`.
        batches: timed.
        epoch: batches of an epoch.
        loss: mean of the timed batches.
    """

    total: float
    parts: dict[str, float]
    batches: int
    epoch: int
    loss: float

    @property
    def share(self) -> float:
        """Sampling and fetching features, memories included, of a batch."""
        moved = sum(self.parts[part] for part in ("sample", "fetch", "memory"))
        return moved / self.total


def baseline_task(graph: StreamGraph, model: str, preset: Preset) -> StreamWorkload:
    """The paper's settings, in short batches of fixed borders where there is little time."""
    smaller = SMALLER[PRESETS.index(preset)]
    return workload(graph, model, preset, batch=SETTINGS[model].batch // smaller, chunks=1)


def size_notes(preset: Preset) -> list[str]:
    """Notes of a row on the size of its batches."""
    smaller = SMALLER[PRESETS.index(preset)]
    if smaller == 1:
        return []
    return [f"batches are 1/{smaller} of the paper's, so that what each costs weighs more"]


def open_baseline(
    baseline: str, task: StreamWorkload, data: StreamData, *, device: str, threads: int
) -> StreamTrainer:
    """A trainer with timed phases that has taken in nothing yet.

    Raises:
        UnsupportedError, MissingPackageError: what it cannot do here.
    """
    meter = Meter(timing=True, device=device)
    if baseline == "dgl":
        return StreamTrainer(task, data, DglAccess(task, data), device=device, meter=meter)
    system = get_system("tgl")
    if reasons := system.unsupported(task, device):  # type: ignore[arg-type]
        raise UnsupportedError(f"TGL: {'; '.join(reasons)}")
    return system.open(task, device=device, meter=meter, data=data, threads=threads)  # type: ignore


def baseline_checks(
    baseline: str, trainer: StreamTrainer, task: StreamWorkload, data: StreamData
) -> list[ResultCheck]:
    """Checks of a baseline that holds all events, as it stands."""
    if baseline == "tgl":
        return trainer_checks({BASELINE_TITLES[baseline]: trainer}, task, data)
    # Its sampler draws by a generator of its own: what it drew is checked, and is then given.
    access = trainer.access
    oracle = StreamOracle(task, data, trainer.inserted, access=access, device=str(trainer.device))
    found = []
    for frame, part in oracle.frames.items():
        nodes = torch.cat([data.events.src[part], data.events.dst[part]])
        hops = access.sample(nodes, data.events.t[part].repeat(2), draw=frame)[0]
        found.append(untimed_check(hops, nodes, task, data.events))
    return by_subject(found) + oracle.checks(BASELINE_TITLES[baseline], trainer)


def time_batches(trainer: StreamTrainer, budget_s: float) -> BatchTimes:
    """Train on batches from the middle of the stream on, for so long, at least `MIN_BATCHES`."""
    count = trainer.num_frames
    first = count // 2
    trainer.step(first % count)
    totals: list[float] = []
    parts: dict[str, list[float]] = {part: [] for part in PARTS}
    losses: list[float] = []
    begin = time.perf_counter()
    while len(totals) < MIN_BATCHES or time.perf_counter() - begin < budget_s:
        trainer.meter.reset()
        start = time.perf_counter()
        losses.append(trainer.step((first + 1 + len(totals)) % count))
        totals.append(time.perf_counter() - start)
        spent = trainer.meter.phases()
        for part in PARTS:
            parts[part].append(spent.get(part, 0.0))
    return BatchTimes(
        mean(totals),
        {part: mean(seconds) for part, seconds in parts.items()},
        len(totals),
        count,
        mean(losses),
    )
