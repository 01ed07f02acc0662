"""Runs of contenders that are scored and then trained on each piece of a stream, with checks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import msgspec
import torch

from dgbench.lab.quality_study import EpochClock
from dgbench.lab.result_checks import ResultCheck, close, of_contender
from dgbench.systems.base import (
    Measurement,
    Preset,
    RunContext,
    get_system,
)
from dgbench.systems.base.interaction_baseline import vertex_bytes
from dgbench.systems.base.interaction_checks import (
    AGAINST,
    EVENTS,
    EXACT,
    check_now,
    plain_of,
    probe,
    stored,
)
from dgbench.systems.base.interactions import interaction_data, load_interactions
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    GPU_BYTES,
    HELD_NAMES,
    HIDDEN,
    PIECES,
    TWIN_NAMES,
    workload,
)
from dgbench.systems.tgcn.whole_state import WholeState

WHOLE: Final = "T-GCN, states of all edges"
OURS, DYGNN, PLAIN, JODIE = "T-GCN", "DyGNN", "DyGNN without propagation", "JODIE"
LARGE: Final = "twitter"
"""Where the baselines run out of memory at the printed size (section 6.2)."""
SYSTEMS: Final = {
    OURS: ("tgcn", {}, {"scoring": "t-batches"}),
    WHOLE: ("tgcn", {}, {"scoring": "t-batches", "program": WholeState}),
    DYGNN: ("dygnn", {"padding": False}, {}),
    PLAIN: ("dygnn", {"padding": False, "propagation": False}, {}),
    JODIE: ("jodie", {"padding": False}, {}),
}
"""System, switches and options of each contender; padding is exact and costs time alone. A program
is named by its class, as every trainer has its own."""
TASKS: Final = ("classify", "link")
SCORES: Final = {"classify": "accuracy", "link": "average_precision"}
"""Metric of a task."""
MAJORITY: Final = "majority"
"""Setting that always says the largest class."""


@dataclass(frozen=True, slots=True)
class AccuracySize:
    """Size of a preset's part of Figure 9.

    Attributes:
        graphs: names of datasets.
        events: of each, the first ones; None for all.
        seeds: runs of each graph of which accuracy decides something; of `LARGE` one.
        width: edges of an optimiser step, and of an interval of T-GCN before sampling.
        lr: of all contenders.
        rivals: what T-GCN is compared with, by task.
        linked: runs in which links are predicted too.
        threads: of torch; None for those of the run.
    """

    graphs: tuple[str, ...]
    events: int | None
    seeds: int
    width: int
    lr: float
    rivals: dict[str, tuple[str, ...]]
    linked: int
    threads: int | None = None


FEW: Final = {"classify": (WHOLE, DYGNN, JODIE), "link": (DYGNN,)}
EVERY: Final = dict.fromkeys(TASKS, (WHOLE, DYGNN, PLAIN, JODIE))
BRIEF: Final = ("college-msg",)
"""Of the held graphs, those that `quick` has time for five seeds of."""
SIZES: Final[dict[Preset, AccuracySize]] = {
    "smoke": AccuracySize(("college-msg",), 330, 1, 15, 1e-2, FEW, 1, 1),
    "quick": AccuracySize((*BRIEF, LARGE), 880, 5, 20, 1e-2, FEW, 0, 1),
    "full": AccuracySize((*HELD_NAMES, LARGE), 11_000, 5, 50, 3e-3, EVERY, 5),
    "paper": AccuracySize((*HELD_NAMES, *TWIN_NAMES), None, 5, 100, 3e-3, EVERY, 5),
}


def run_pieces(
    name: str, seed: int, kind: str, contenders: tuple[str, ...], context: RunContext,
    found: Measurement,
) -> None:  # fmt: skip
    """Score and then train on each piece in turn, and add what came out to a measurement."""
    size = SIZES[context.preset]
    task = workload(
        BY_NAME[name],
        context.preset,
        task=kind,
        seed=seed,
        events=size.events,
        batch=size.width,
        lr=size.lr,
    )
    data = load_interactions(task)
    events = len(data.events)
    # Every piece is trained on once it is scored, so that there is no part that only tests.
    data = replace(data, train_end=events, validate_end=events)
    bounds = [events * k // PIECES for k in range(PIECES + 1)]
    task = _cut(task, events, size.width)
    for title in contenders:
        system, switches, options = SYSTEMS[title]
        options = {k: one() if isinstance(one, type) else one for k, one in options.items()}
        trainer = get_system(system).open(
            task, device=context.device, data=data, switches=switches, **options
        )
        trainer.prepare()
        for piece, (first, last) in enumerate(pairwise(bounds)):
            scores = trainer.evaluate_range(first, last)
            value = scores.accuracy if kind == "classify" else scores.ap
            if not math.isnan(value):
                found.observe(SCORES[kind], value, task=kind, setting=title, piece=piece)
            clock = EpochClock()
            trainer.train(first, last)
            clock.observe(found, task=kind, setting=title, piece=piece)
        checks = _checks(trainer, f"{kind} {title}", title)
        found.checks += of_contender(title, checks, task=kind)
        trainer.close()
    if kind == "link" and (WHOLE in contenders or OURS in contenders):
        found.checks += _whole_state_checks(task, data, context.device)
    if kind == "classify":
        found.observe("accuracy", _majority(data), task=kind, setting=MAJORITY)
    found.observe("edges", events, task=kind)
    found.data.update(data.describe())


def _checks(trainer: Any, part: str, system: str) -> list[ResultCheck]:
    """Checks of a trainer after the last piece: of its steps, and of how scores are summed up."""
    end = trainer.data.train_end
    first = max(0, end - EVENTS)
    found = check_now(trainer, f"{part} after the last piece", system=system, last=False)
    scores, one = trainer.evaluate_range(first, end), probe(trainer, first, end)
    own, wanted = {"loss": scores.loss}, {"loss": one.loss}
    if trainer.workload.task == "link":
        # The share of edges among all pairs that score as high, at each edge.
        positives, negatives = one.scores[:, 0].tolist(), one.scores[:, 1].tolist()
        above = [
            (sum(x >= mark for x in positives), sum(x >= mark for x in negatives))
            for mark in positives
        ]  # fmt: skip
        own["ap"] = scores.ap
        wanted["ap"] = sum(a / (a + b) for a, b in above) / len(above)
    about = {"against": "scores one by one", "system": system, "part": part}
    return [*found, close("scores", own, wanted, 1e-5, **about)]


def _whole(workload: Any) -> Any:
    return msgspec.structs.replace(workload, strict_time=False)


def _whole_state_checks(task: Any, data: Any, device: str) -> list[ResultCheck]:
    """Checks of an epoch in float64 whose states take in every edge: losses and parameters."""
    # The program cuts time itself, so edges of one time may fall apart.
    small = msgspec.structs.replace(task, events=None, intervals=3, strict_time=False)
    count = len(data.events)
    last = interaction_data(data.events.select(max(0, count - 48), count), small)
    trainer = get_system("tgcn").open(
        small, device=device, data=last, dtype=torch.float64, program=WholeState(time_cut="edges")
    )
    trainer.prepare()
    loads = trainer.loads(0, last.train_end)
    ends = torch.cat([last.events.src, last.events.dst, last.negative]).unique()
    plain = plain_of(_whole(trainer.workload), last, trainer.state(), stored(trainer, ends))
    optimiser = torch.optim.Adam(plain.model.parameters(), lr=small.lr)
    bounds = [int(load.events[0]) for load in loads] + [int(loads[-1].events[-1]) + 1]
    losses, wanted = [], []
    for vertex in ends.tolist():
        plain.vertices[vertex] = plain.vertices[vertex]
    for load, (begin, end) in zip(loads, pairwise(bounds), strict=True):
        before = dict(plain.vertices)
        optimiser.zero_grad()
        size = load.events.numel()
        wanted.append(plain.run(load.events, scale=1 / size)[0] / size)
        losses.append(float(trainer.program.train(load, 1)))
        leaves = zip(plain.model.parameters(), trainer.model.parameters(), strict=True)
        for leaf, own in leaves:
            if leaf.grad is None and own.grad is not None:
                leaf.grad = torch.zeros_like(leaf)  # Adam counts steps of what has a gradient
        optimiser.step()
        plain.vertices.update(before)
        with torch.no_grad():
            plain.run(torch.arange(begin, end))
    about = {"against": AGAINST, "part": "states of all edges, from the start"}
    parameters = {name: p.detach() for name, p in plain.model.named_parameters()}
    found = [
        close("losses", losses, wanted, EXACT, **about),
        close("parameters", trainer.state(), parameters, EXACT, **about),
    ]
    trainer.close()
    return found


def _cut(task: Any, events: int, width: int) -> Any:
    """The task with as many intervals to a piece as hold `width` edges before sampling."""
    return msgspec.structs.replace(task, intervals=max(1, round(events / PIECES / width)))


def _majority(data: Any) -> float:
    """Accuracy of always saying the class that most held-out ends have."""
    ends = torch.cat([data.events.src, data.events.dst])
    asked = ends[data.held_out[ends] & (data.classes[ends] >= 0)]
    if not asked.numel():
        return float("nan")
    return float(torch.bincount(data.classes[asked]).max()) / asked.numel()


def observe_memory(found: Measurement) -> None:
    """Observe the memory of the baselines' state for Twitter at its printed size."""
    vertices = BY_NAME[LARGE].printed.vertices
    for title, model in ((DYGNN, "dygnn"), (JODIE, "jodie")):
        needed = vertices * vertex_bytes(model, HIDDEN)
        found.observe("memory", needed, setting=title, of="state")
    found.observe("memory", GPU_BYTES, of="device")
