"""Figure 2: where a batch of TGL and DGL spends its time (section 2.2)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import torch

from dgbench.lab.entry_rules import within_claim
from dgbench.lab.figure_forms import StackedTime
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.base.stream_data import StreamData
from dgbench.systems.gnnflow.dgl_access import DglAccess
from dgbench.systems.gnnflow.experiments.sample_checks import by_subject, untimed_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    HELD_NAMES,
    MODELS,
    PRESETS,
    SETTINGS,
    STATIC_MODELS,
    TWIN_NAMES,
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
GRAPHS: Final = {"smoke": ("gdelt",), "quick": ("gdelt",), None: ("gdelt", "netflix", *HELD_NAMES)}
SECONDS: Final = (0.0, 0.1, 6.0, 60.0)
"""Seconds of batches for each model, by preset."""
SHARE: Final = 100 * observed("time_share", per=("dataset", "baseline", "model"))
"""Sampling and fetching in percent of a batch."""
PHASES: Final = observed("phase_time", per=("dataset", "phase"))


class Fig2(FormExperiment):
    forms, name = FORMS, "fig2"
    axes = {"dataset": GRAPHS, "baseline": tuple(BASELINES)}
    group = "{dataset} {baseline}"
    timeout_s = {"smoke": 60, "quick": 90, "full": 900, "paper": 7200}
    headline, unit = SHARE, "%"
    figure_forms = (
        StackedTime(
            "fig2", "A batch of TGL and DGL by its parts (Figure 2)",
            {title if name == "dgl" else name: PHASES.where(baseline=name, model=BASELINES[name])
             for name, title in BASELINE_TITLES.items()},
            panel="{dataset}", row="{model}", system="of", phase="{phase}",
            more=lambda _, dims, one: {
                "total": fmean(number(row, "step_time", model=dims["model"]) for row in one.rows)
            },
            xlabel="time of a batch, ms",
            phases_from="parts and totals from one instrumented run; blue: sampling, "
            "yellow: fetching features, purple: reading and writing memories",
        ),
    )  # fmt: skip
    claims = {"gnnflow-s1-sample-fetch-share": within_claim(SHARE.where(dataset=TWIN_NAMES))}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        baseline = str(cell.params["baseline"])
        seconds = SECONDS[PRESETS.index(context.preset)]
        found = Measurement(notes=size_notes(context.preset))
        data = None
        models = BASELINES[baseline]
        for model in models[:1] if context.preset == "smoke" else models:
            task = baseline_task(graph, model, context.preset)
            data = load_stream(task) if data is None else data
            trainer = open_baseline(
                baseline, task, data, device=context.device, threads=context.threads
            )
            trainer.prepare()
            times = time_batches(trainer, seconds)
            found.checks += baseline_checks(baseline, trainer, task, data)
            trainer.close()
            found.observe("step_time", times.total, model=model)
            found.observe("time_share", times.share, model=model)
            for part in PARTS:
                found.observe("phase_time", times.parts[part], model=model, phase=part)
            found.observe("counted_steps", times.batches, model=model)
        found.data = data.describe()
        return found


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Mean seconds of a batch and of its `PARTS`, which add up; batches timed and of an epoch."""

    total: float
    parts: dict[str, float]
    batches: int
    epoch: int

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
    """A trainer with timed phases that has taken in nothing yet."""
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
    begin = time.perf_counter()
    while len(totals) < MIN_BATCHES or time.perf_counter() - begin < budget_s:
        trainer.meter.reset()
        start = time.perf_counter()
        trainer.step((first + 1 + len(totals)) % count)
        totals.append(time.perf_counter() - start)
        spent = trainer.meter.phases()
        for part in PARTS:
            parts[part].append(spent.get(part, 0.0))
    means = {part: fmean(seconds) for part, seconds in parts.items()}
    return BatchTimes(fmean(totals), means, len(totals), count)
