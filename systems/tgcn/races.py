"""T-GCN beside its baselines, turn by turn in one process: Figure 6, Table 2 and the ablation.

A baseline goes through the stream in t-batches, one optimiser step a turn, on a device as many as
an interval of T-GCN has edges for; T-GCN samples, cuts and trains a whole epoch a turn. Nobody
waits for a device before the end of a turn. Both are given in seconds per labelled edge, as the
paper's throughput is: edges of the graph before sampling.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import torch

from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.outcomes import Rule, RuleOutcome
from dgbench.lab.result_checks import ResultCheck, of_contender
from dgbench.lab.rule_combinations import first_found
from dgbench.runtime.meter import Meter
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.base.audit import taken_again_later
from dgbench.systems.base.interaction_audit import GroupAudit, GroupOracle
from dgbench.systems.base.interaction_checks import check_from_start, check_now, task_in_whole
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.base.interactions import InteractionData, InteractionWorkload, interaction_data
from dgbench.systems.base.registry import get_system
from dgbench.systems.tgcn.recounts import check_sample
from dgbench.systems.tgcn.settings import BY_NAME, PRESETS, workload
from dgbench.systems.tgcn.trainer import TgcnTrainer

TGCN: Final = "tgcn"
WHOLE: Final = "tgcn, all edges"
PARTS: Final = "tgcn, whole parts"
UNION: Final = "tgcn, union pools"
RELAXED: Final = "dygnn, relaxed"
JODIE_RELAXED: Final = "jodie, relaxed"
DYGNN: Final = "dygnn"
JODIE: Final = "jodie"
TITLES: Final = {
    TGCN: "T-GCN",
    WHOLE: "T-GCN, all edges",
    PARTS: "T-GCN, all vertices anew",
    UNION: "T-GCN, union pools",
    RELAXED: "DyGNN, order relaxed",
    JODIE_RELAXED: "JODIE, order relaxed",
    DYGNN: "DyGNN",
    JODIE: "JODIE",
}
STREAMED: Final = "tgcn, whole parts streamed"
ADDED_STREAMED: Final = "tgcn, streamed"
"""T-GCN of which only rows that edges name are streamed; rows have called it so all along."""
FORMER: Final = {
    STREAMED: ADDED_STREAMED, f"{STREAMED}, one region": f"{ADDED_STREAMED}, one region",
}  # fmt: skip
"""Settings of rows from before T-GCN's published form, by what they stood for."""
FORMER_WORDS: Final = (
    "T-GCN that moves only rows which edges name (ours), as measured before its published form"
)


def or_former(rule: Callable[..., Rule], *settings: str) -> Rule:
    """A rule of settings; where they did not run, of those that stood for them before the
    published form, which its reason says."""
    former = rule(*(FORMER.get(one, one) for one in settings))

    def before(context: EvaluationContext) -> RuleOutcome:
        found = former(context)
        return replace(found, remarks=(*found.remarks, FORMER_WORDS))

    return first_found(rule(*settings), before) if FORMER.keys() & {*settings} else former


ALL_OFF: Final = "all off"
SETTING_TITLES: Final = {
    WHOLE: TITLES[WHOLE],
    PARTS: TITLES[PARTS],
    UNION: TITLES[UNION],
    STREAMED: "T-GCN, streamed",
    ADDED_STREAMED: "T-GCN + dgbench, streamed",
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
MIN_INTERVALS: Final = 2
"""In a single interval all edges are scored from first states, and the head alone is trained."""
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
    """The task with intervals of about `INTERVAL` edges, at least `MIN_INTERVALS`."""
    count = max(MIN_INTERVALS, round(data.train_end / INTERVAL))
    return msgspec.structs.replace(task, intervals=count)


FORMS: Final = {WHOLE: {"sampling": False}, PARTS: {"affected": False}, UNION: {"union": True}}
"""Form of T-GCN -> the switches by which it differs."""


@dataclass(slots=True)
class Runner:
    """One contender.

    Attributes:
        trainer: of it.
        turn: trains once, returns the labelled edges that this stands for; an audit watches it.
    """

    trainer: Any
    turn: Callable[..., int]


def open_runner(
    name: str, task: InteractionWorkload, data: InteractionData, device: str, **options: Any
) -> Runner:
    """A contender by its name, a key of `TITLES`.

    Args:
        options: of the system's `open`, `timing` of its meter.
    """
    meter = Meter(timing=options.pop("timing", False), device=device)
    task = with_intervals(task, data)
    if name in FORMS or name == TGCN:
        if name in FORMS:
            options["switches"] = {**options.get("switches", {}), **FORMS[name]}
        trainer = get_system("tgcn").open(task, data=data, device=device, meter=meter, **options)

        def epoch(audit: GroupAudit | None = None) -> int:
            trainer.resample()
            if audit is not None:
                audit.begin(*trainer.next_epoch())
            trainer.train_epoch(audit)
            return data.train_end

        return Runner(trainer, epoch)
    if name in SAME_ORDER.values():
        alone = msgspec.structs.replace(task, model=_system(name))
        plain = InteractionTrainer(alone, data, device=device, meter=meter, order="intervals")
        return epoch_runner(plain)
    one = get_system(name).open(task, data=data, device=device, meter=meter, **options)
    groups = one.groups(0, data.train_end)
    places = itertools.cycle(range(len(groups)))
    # A turn ends with a wait for the device: it is as long as an interval of T-GCN there.
    least = INTERVAL if device == "cuda" else 1

    def step(audit: GroupAudit | None = None) -> int:
        turn, edges = [], 0
        while edges < least:
            turn.append(next(places))
            edges += sum(part.numel() for part in groups[turn[-1]])
        if audit is not None:
            audit.begin(len(turn), torch.cat([part for at in turn for part in groups[at]]))
        for at in turn:
            if at == 0:
                one.reset_state()
            if audit is not None:
                audit.before(groups[at])
            loss = one.group_loss(groups[at])
            if audit is not None:
                audit.after(loss)
        return edges

    return Runner(one, step)


def epoch_runner(trainer: InteractionTrainer) -> Runner:
    """A contender that trains an epoch on all edges a turn."""

    def whole(audit: GroupAudit | None = None) -> int:
        last = trainer.data.train_end
        if audit is not None:
            audit.begin(len(trainer.groups(0, last)), torch.arange(last))
        trainer.train_epoch(audit)
        return last

    return Runner(trainer, whole)


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


def audits_of(runners: Mapping[str, Runner]) -> dict[str, GroupAudit]:
    """Audits of contenders that have taken no turn yet."""
    return {name: GroupAudit(runner.trainer) for name, runner in runners.items()}


def take_turns(
    runners: Mapping[str, Runner],
    turns: int,
    device: str,
    audits: Mapping[str, GroupAudit] | None = None,
) -> dict[str, list[float]]:
    """Seconds per labelled edge, turn by turn, every second turn backwards; one more warms up.

    What `audits` take is in no time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    order = list(runners)
    for turn in range(turns + 1):
        if turn == 1:
            for runner in runners.values():
                runner.trainer.meter.reset()
        for name in order if turn % 2 == 0 else reversed(order):
            audit = None if audits is None else audits[name]
            audited = 0.0 if audit is None else audit.seconds
            begin = time.perf_counter()
            edges = runners[name].turn(audit)
            if device == "cuda":
                torch.cuda.synchronize()
            took = time.perf_counter() - begin
            if audit is not None:
                took -= audit.seconds - audited
                audit.end()
            if turn:
                seconds[name].append(took / edges)
    return seconds


@comparing()
def audit_checks(
    audits: Mapping[str, GroupAudit], runners: Mapping[str, Runner], *, first: bool
) -> list[ResultCheck]:
    """Checks of audited steps of contenders, of the same network by one oracle.

    Args:
        first: of all contenders, as in the first process of a cell, else of a drawn one.
    """
    drawn = list(audits) if first else [random.SystemRandom().choice(list(audits))]
    again, oracles, found = taken_again_later(first), list[GroupOracle](), list[ResultCheck]()
    for name, audit in audits.items():
        if name not in drawn:
            found.append(audit.cut(name))
            continue
        trainer = runners[name].trainer
        task = task_in_whole(trainer)
        same = [one for one in oracles if one.task == task and one.data is trainer.data]
        if not same:
            same = [GroupOracle(task, trainer.data)]
            oracles += same
        found += audit.checks(name, same[0], again=again)
    return found


@comparing()
def checks_of(runners: Mapping[str, Runner], *, later: bool = False) -> list[ResultCheck]:
    """Checks of contenders as they are after their turns: outputs, gradients, losses, samples.

    The first one is asked for drawn events and the last ones, others for either.

    Args:
        later: in a process after a cell's first: all are asked for either, and for no samples.
    """
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


def compare_first(
    found: Measurement,
    context: RunContext,
    task: InteractionWorkload,
    data: InteractionData,
    runners: Mapping[str, Runner],
    audits: Mapping[str, GroupAudit] | None = None,
) -> None:
    """Add the checks of contenders; in the first process of a cell also from the start.

    An audited step of each contender is taken again there, later, in a share of the processes, one
    of a drawn contender.
    """
    first = context.round == 1
    if audits:
        found.checks += audit_checks(audits, runners, first=first)
    if not first:
        found.checks += checks_of(runners, later=True)
        return
    names = [one for one in (TGCN, DYGNN, JODIE) if any(n.split(",")[0] == one for n in runners)]
    started = start_checks(task, data, context.device, names or (TGCN,))
    found.checks += [*started, *checks_of(runners)]
    found.deviation = loss_gap(started)


def loss_gap(checks: Sequence[ResultCheck]) -> dict[str, float]:
    """The `deviation` of a measurement: the largest gap of losses in float64."""
    return {"loss": max(one.gap for one in checks if one.of == "losses")}
