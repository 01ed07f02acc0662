"""Figure 9: accuracy over time, T-GCN on half of the edges against DyGNN and JODIE on all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

import msgspec
import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import Estimate, EvaluationContext, gaps_of_failures, real_data
from dgbench.lab.figure_forms import FigureForm
from dgbench.lab.quality_study import EpochClock
from dgbench.lab.quantities import MeasuredQuantity, computed, observed
from dgbench.lab.result_checks import ResultCheck, close, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.lab.time_to_quality import PROCESSOR
from dgbench.runtime.statistics import t_quantile
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext, get_system
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
    FORMS,
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
    """Observe the memory of DyGNN's state for Twitter at its printed size."""
    vertices = BY_NAME[LARGE].printed.vertices
    needed = vertices * vertex_bytes("dygnn", HIDDEN)
    found.observe("memory", needed, setting=DYGNN, of="state")
    found.observe("memory", GPU_BYTES, of="device")


TITLES = {"classify": "accuracy of classes", "link": "average precision of links"}
RUN = ("dataset", "seed")
GB = 1e-9 * observed("memory", dataset=LARGE)
STATE, ROOM = GB.where(of="state", setting=DYGNN), GB.where(of="device")


def score(task: str, **where: Any) -> MeasuredQuantity:
    """Score of each piece of a run; a piece is scored before it is trained on."""
    return observed(SCORES[task], per=(*RUN, "piece"), task=task, **where)


def learned(setting: str, task: str = "classify") -> MeasuredQuantity:
    """Percent of each piece but the first, before which nothing was trained."""
    return 100 * score(task, setting=setting, piece=lambda piece: bool(piece))


def over_seeds(gaps: MeasuredQuantity) -> MeasuredQuantity:
    """Mean over graphs of the means of their seeds, with its interval over seeds.

    Graphs are those named, so that only what differs between seeds of one graph is noise; their
    variances add up as Welch and Satterthwaite do. One with a single seed leaves no interval.
    """

    def mean(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
        by_graph: dict[str, list[float]] = {}
        estimates = gaps.estimates(context)
        for at, one in estimates.items():
            by_graph.setdefault(dict(at)["dataset"], []).append(one.value)
        if by_graph:
            rows = {row.id: row for one in estimates.values() for row in one.rows}
            yield {}, welch_mean(list(by_graph.values()), tuple(rows.values()))

    return computed(mean, per=())


def welch_mean(groups: Sequence[Sequence[float]], rows: tuple[Any, ...]) -> Estimate:
    """Mean of the means of groups, and its t interval where each has several members."""
    middle = fmean(map(fmean, groups))
    if min(map(len, groups)) < 2:
        return Estimate(middle, rows=rows, kind="seeds")
    parts = [
        sum((one - fmean(group)) ** 2 for one in group)
        / ((len(group) - 1) * len(group) * len(groups) ** 2)
        for group in groups
    ]
    free = sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    total = sum(parts)
    half = t_quantile(total**2 / free, 0.95) * math.sqrt(total) if total else 0.0
    return Estimate(middle, middle - half, middle + half, rows, "seeds")


def ahead(first: str, second: str, task: str = "classify") -> MeasuredQuantity:
    """Points by which a contender is ahead of another on the same pieces of the same runs."""
    gaps = learned(first, task) - learned(second, task)
    return over_seeds(gaps.keep(real_data).mean_over("piece"))


def not_behind(lead: MeasuredQuantity) -> outcomes.Rule:
    """A lead in points is no loss, by its interval over seeds."""
    return rules.all_above(lead, 0.0, unit="points")


def last_thirds(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Points by which the last third of a run's pieces is ahead of the first one."""
    runs: dict[tuple[Any, Any], list[Estimate]] = {}
    for at, one in learned(OURS).keep(real_data).estimates(context).items():
        runs.setdefault((dict(at)["dataset"], dict(at)["seed"]), []).append(one)
    for run, scores in runs.items():
        if third := len(scores) // 3:
            early, late = (
                fmean(o.value for o in part) for part in (scores[:third], scores[-third:])
            )
            rows = {row.id: row for one in scores for row in one.rows}
            yield (
                dict(zip(RUN, run, strict=True)),
                Estimate(late - early, rows=tuple(rows.values())),
            )


ABOVE_MAJORITY = learned(OURS).where(dataset=(LARGE,)) - 100 * observed(
    "accuracy", per="seed", dataset=LARGE, setting=MAJORITY, task="classify"
)


def contender_form(title: str) -> str:
    """A contender as figures know it: its system's name, and its form behind a comma."""
    form = {WHOLE: ", states of all edges", PLAIN: ", no propagation"}.get(title, "")
    return SYSTEMS[title][0] + form


def seconds_before(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> dict[str, Any]:
    """The piece, counted from 1, and the seconds of training before it.

    Seconds are the processor's, as accuracies may be measured beside other work; rows of older
    runs kept none.
    """
    row = {name: dims[name] for name in (*RUN, "setting", "task")}
    times = observed("epoch_time", per="piece", clock=PROCESSOR, **row).pooled("last")
    spent = {dict(at)["piece"]: each.value for at, each in times.estimates(context).items()}
    before = sum(each for piece, each in spent.items() if piece < dims["piece"])
    return {"x": dims["piece"] + 1, "seed": dims["seed"]} | ({"seconds": before} if spent else {})


def curves(task: str) -> FigureForm:
    """The figure of one task: score by piece, of every seed."""
    return FigureForm(
        "curves", f"fig9_{task}",
        f"{TITLES[task]} by piece of time, each scored before it is trained on",
        score(task, setting=SYSTEMS.__contains__).per("setting", "task").keep(gaps_of_failures),
        {"panel": "{dataset}", "series": "{setting}"}, more=seconds_before,
        gaps={"series": "tgcn", "x": 1},
        options={
            "xlabel": "piece of time", "ylabel": TITLES[task],
            "start": "same seeds, and parameters that each model draws from them",
        },
    )  # fmt: skip


class Fig9(FormExperiment):
    forms = replace(FORMS, labels={**FORMS.labels, "setting": contender_form})
    name = "fig9"
    group = "{dataset}/{seed}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 3600, "paper": 86400}

    headline, unit = ahead(OURS, DYGNN), "points"
    figure_forms = tuple(map(curves, TASKS))
    claims = {
        "tgcn-fig9-no-accuracy-loss": combine.interpretations(
            "whether states see the edges that are not trained on is not said",
            {
                "states see sampled edges": not_behind(ahead(OURS, DYGNN)),
                "states see all edges": not_behind(ahead(WHOLE, DYGNN)),
            },
        ),
        "tgcn-fig9-twitter": combine.by_model(
            combine.both(
                rules.all_above(
                    over_seeds(ABOVE_MAJORITY.mean_over("piece")), 0.0, unit="points"
                ),
                rules.all_above(STATE - ROOM, 0.0, unit="GB"),
            ), "size of a state by formula",
        ),
        "tgcn-fig9-stable-over-time": not_behind(over_seeds(computed(last_thirds, per=RUN))),
        "tgcn-s64-dygnn-over-jodie": not_behind(ahead(DYGNN, JODIE)),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        size = SIZES[preset]
        return (
            {"dataset": name, "seed": seed}
            for name in size.graphs
            for seed in range(1, (1 if name == LARGE else size.seeds) + 1)
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size, found = SIZES[context.preset], Measurement()
        name, seed = str(cell.params["dataset"]), int(cell.params["seed"])
        with threads(size.threads or context.threads):
            for kind in TASKS[: 2 if seed <= size.linked else 1]:
                rivals = () if name == LARGE else size.rivals[kind]
                run_pieces(name, seed, kind, (OURS, *rivals), context, found)
        if name == LARGE:
            observe_memory(found)
        return found
