"""T-GCN beside its baselines, turn by turn in one process: Figure 6, Table 2 and the ablation.

A baseline goes through the stream in t-batches, one optimiser step a turn; T-GCN samples, cuts and
trains a whole epoch a turn. Both are given in seconds per labelled edge, as the paper's throughput
is: edges of the graph before sampling.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

from dgbench.lab.metrics import metric
from dgbench.lab.result_checks import ResultCheck, of_contender
from dgbench.runtime.meter import Meter
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.tgcn.settings import BY_NAME, PRESETS, workload

if TYPE_CHECKING:
    from dgbench.systems.base.interactions import InteractionData, InteractionWorkload

TGCN: Final = "tgcn"
WHOLE: Final = "tgcn, all edges"
PARTS: Final = "tgcn, whole parts"
RELAXED: Final = "dygnn, relaxed"
JODIE_RELAXED: Final = "jodie, relaxed"
DYGNN: Final = "dygnn"
JODIE: Final = "jodie"
TITLES: Final = {
    TGCN: "T-GCN",
    WHOLE: "T-GCN, all edges",
    PARTS: "T-GCN, whole parts",
    RELAXED: "DyGNN, order relaxed",
    JODIE_RELAXED: "JODIE, order relaxed",
    DYGNN: "DyGNN",
    JODIE: "JODIE",
}
STREAMED: Final = "tgcn, streamed"
ALL_OFF: Final = "all off"
SETTING_TITLES: Final = {
    WHOLE: TITLES[WHOLE],
    PARTS: TITLES[PARTS],
    STREAMED: "T-GCN, streamed",
    ALL_OFF: "T-GCN, all techniques off",
}
"""Settings of T-GCN that rows and points name like a system."""
SAME_ORDER: Final = {DYGNN: RELAXED, JODIE: JODIE_RELAXED}
"""Baseline -> the same network on T-GCN's engine, in the order that T-GCN relaxes."""
PROCESSES: Final = {"smoke": 1, None: 5}
"""Processes of a cell whose contenders take turns: what a ratio of times needs."""
EVENTS: Final = {"smoke": 1500, "quick": 12_500, "full": 200_000, "paper": None}
"""First events of a graph that are kept; None: all."""
SMALLER: Final = {
    "flickr": (1 / 16384, 1 / 2048, 1 / 64, 1.0),
    "twitter": (1 / 4096, 1 / 4096, 1 / 2048, 1 / 64),
}
"""Scales of twins that are not cut off after some events: half of Flickr's edges have the same
time, and a share of Twitter's stands for its whole."""
BATCH: Final = {"smoke": 50, "quick": 100, "full": 200, "paper": 200}
"""Events of an optimiser step of a sequential system."""
INTERVAL: Final = 2000
"""Edges of the graph in an interval of T-GCN, on average: about a thousand are sampled."""
CHECKED: Final = 36
"""Events of a stream on which contenders and the plain reference train from the start."""


HELD_EVENTS: Final = {("wikipedia", "quick"): 5_000}
"""Fewer events where no claim rests on a graph: as many as the ablation trains on."""


def task_of(name: str, preset: Preset, **fields: Any) -> InteractionWorkload:
    """The link task of a graph in a preset."""
    events = HELD_EVENTS.get((name, preset), EVENTS[preset])
    given: dict[str, Any] = {"events": events, "batch": BATCH[preset]}
    if name in SMALLER:
        given |= {"events": None, "scale": SMALLER[name][PRESETS.index(preset)]}
    given |= fields
    return workload(BY_NAME[name], preset, **given)


def with_intervals(task: InteractionWorkload, data: InteractionData) -> InteractionWorkload:
    """The task with intervals of about `INTERVAL` edges."""
    return msgspec.structs.replace(task, intervals=max(1, round(data.train_end / INTERVAL)))


OFF: Final = {WHOLE: "sampling", PARTS: "touched"}
"""Form of T-GCN -> the technique that it lacks."""


@dataclass(slots=True)
class Runner:
    """One contender.

    Attributes:
        trainer: of it. turn: trains once, returns the labelled edges that this stands for.
    """

    trainer: Any
    turn: Callable[[], int]


def open_runner(
    name: str, task: InteractionWorkload, data: InteractionData, device: str, **options: Any
) -> Runner:
    """A contender by its name, a key of `TITLES`.

    Args:
        options: of the system's `open`, `timing` of its meter.
    """
    from dgbench.systems.base.interaction_trainer import InteractionTrainer
    from dgbench.systems.base.registry import get_system

    meter = Meter(timing=options.pop("timing", False), device=device)
    task = with_intervals(task, data)
    if name in OFF or name == TGCN:
        if name in OFF:
            options["switches"] = {**options.get("switches", {}), OFF[name]: False}
        trainer = get_system("tgcn").open(task, data=data, device=device, meter=meter, **options)

        def epoch() -> int:
            trainer.resample()
            trainer.train_epoch()
            return data.train_end

        return Runner(trainer, epoch)
    if name in SAME_ORDER.values():
        alone = msgspec.structs.replace(task, model=_system(name))
        plain = InteractionTrainer(alone, data, device=device, meter=meter, order="intervals")

        def whole() -> int:
            plain.train_epoch()
            return data.train_end

        return Runner(plain, whole)
    one = get_system(name).open(task, data=data, device=device, meter=meter, **options)
    groups = one.groups(0, data.train_end)
    places = itertools.cycle(range(len(groups)))

    def step() -> int:
        at = next(places)
        one.step(at)
        return sum(part.numel() for part in groups[at])

    return Runner(one, step)


@contextmanager
def opened(
    names: Mapping[str, dict[str, Any]],
    task: InteractionWorkload,
    data: InteractionData,
    device: str,
) -> Iterator[dict[str, Runner]]:
    """Contenders by name with their options, closed at the end."""
    with ExitStack() as stack:
        runners = {}
        for name, options in names.items():
            kind = options.pop("contender", name)
            runners[name] = open_runner(kind, task, data, device, **options)
            stack.callback(runners[name].trainer.close)
        yield runners


def take_turns(runners: Mapping[str, Runner], turns: int, device: str) -> dict[str, list[float]]:
    """Seconds per labelled edge, turn by turn, every second turn backwards; one more warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    for turn in range(turns + 1):
        if turn == 1:
            for runner in runners.values():
                runner.trainer.meter.reset()
        for name in order if turn % 2 == 0 else reversed(order):
            begin = time.perf_counter()
            edges = runners[name].turn()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                seconds[name].append((time.perf_counter() - begin) / edges)
    return seconds


@comparing()
def checks_of(runners: Mapping[str, Runner], *, later: bool = False) -> list[ResultCheck]:
    """Checks of contenders as they are after their turns: outputs, gradients, losses, samples.

    The first one is asked for drawn events and the last ones, others for either.

    Args:
        later: in a process after a cell's first: all are asked for either, and for no samples.
    """
    from dgbench.systems.base.interaction_checks import check_now
    from dgbench.systems.tgcn.recounts import check_sample
    from dgbench.systems.tgcn.trainer import TgcnTrainer

    found, first = [], "" if later else next(iter(runners))
    for name, runner in runners.items():
        trainer = runner.trainer
        found += check_now(trainer, f"{name} after its turns", system=name, drawn=name == first)
        if isinstance(trainer, TgcnTrainer) and not later:
            found += of_contender(name, check_sample(trainer, name))
    return found


def _system(name: str) -> str:
    """The baseline that a contender is; "" for T-GCN itself."""
    return next((one for one in (DYGNN, JODIE) if name.startswith(one)), "")


@comparing()
def start_checks(
    task: InteractionWorkload,
    data: InteractionData,
    device: str,
    names: Sequence[str] = (TGCN,),
) -> list[ResultCheck]:
    """Checks of an epoch in float64 of systems, T-GCN on four devices; on the last edges."""
    from dgbench.systems.base.interaction_checks import check_from_start
    from dgbench.systems.base.interactions import interaction_data
    from dgbench.systems.base.registry import get_system

    # The last ones, as many graphs begin with edges of one time.
    small = msgspec.structs.replace(task, events=None, intervals=3, batch=16)
    count = len(data.events)
    events = data.events.select(max(0, count - CHECKED), count)
    if events.t.unique().numel() < 4:  # all of one time would be one step, and none before tests
        events = replace(events, t=torch.arange(len(events), dtype=torch.float64))
    last = interaction_data(events, small)
    found = []
    for name in names:
        options: dict[str, Any] = {"devices": 4} if name == TGCN else {}
        trainer = get_system(name).open(
            small, data=last, device=device, dtype=torch.float64, **options
        )
        words = f"{name}, the last {len(last.events)} events from the start"
        found += check_from_start(trainer, words, system=name)
        trainer.close()
    return found


REPORTED: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "sample_s": ("part_time", {"phase": "sample"}),
    "partition_s": ("part_time", {"phase": "partition"}),
    "kept_edges": ("edges", {"of": "sampled"}),
    "padded_share": ("relative_size", {"baseline": "edges"}),
    "planned_bytes": ("memory", {"method": "planned"}),
    "device_bytes": ("memory", {"of": "device"}),
    "host_bytes": ("memory", {"of": "host"}),
    "state_bytes": ("memory", {"of": "state"}),
}
"""Key of a trainer's report -> the metric and dimensions that it is observed as."""
TRAINING: Final = ("sample_s", "partition_s", "kept_edges", "padded_share", "planned_bytes")
MEMORY: Final = ("planned_bytes", "device_bytes", "host_bytes", "state_bytes")


def observe_report(
    found: Measurement, report: Mapping[str, float], keys: Sequence[str], **dims: Any
) -> None:
    """Observe those of these keys that a trainer reports."""
    for key in keys:
        if key in report:
            name, of = REPORTED[key]
            value = int(report[key]) if metric(name).exact else report[key]
            found.observe(name, value, **of, **dims)


def compare_first(
    found: Measurement,
    context: RunContext,
    task: InteractionWorkload,
    data: InteractionData,
    runners: Mapping[str, Runner],
) -> None:
    """Add the checks of contenders; in the first process of a cell also from the start."""
    if context.round != 1:
        found.checks += checks_of(runners, later=True)
        return
    names = [one for one in (TGCN, DYGNN, JODIE) if any(n.split(",")[0] == one for n in runners)]
    started = start_checks(task, data, context.device, names or (TGCN,))
    found.checks += [*started, *checks_of(runners)]
    found.deviation = loss_gap(started)


def loss_gap(checks: Sequence[ResultCheck]) -> dict[str, float]:
    """The `deviation` of a measurement: the largest gap of losses in float64."""
    return {"loss": max(one.gap for one in checks if one.of == "losses")}
