"""Races of ways to deal out a model's work: several of them in a cell, each on one group of ranks.

A row of a race keeps the seconds of every turn, so that any two contenders can be compared turn by
turn afterwards. Each observation has dataset and model, and the part of a dataset where there are
several.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from msgspec.structs import replace as changed

from dgbench.lab.compare import take_control, with_control
from dgbench.lab.result_checks import ResultCheck, equal, of_contender, summarised
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.kept import KeptLosses
from dgbench.systems.base.sequences import (
    SequenceTask,
    SequenceWorkload,
    load_sequences,
    sequence_model,
    vertex_steps,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, GRAPHS, HELD, place_of, workload
from dgbench.systems.dgc.recount import AGAINST, EdgeRecount, counted, width_of
from dgbench.systems.dgc.sequence_oracle import SequenceOracle, later_audited
from dgbench.systems.dgc.settings_run import BASELINES, LADDER, REFINED, ChunkRankSettings
from dgbench.systems.dgc.turns import (
    CLOCKED,
    WARM,
    ChunkRaceResult,
    TrainedAnswers,
    take_rank_turns,
)
from dgbench.systems.dgc.volumes import shape_of

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.dgc.stale import StaleEpoch
    from dgbench.systems.dgc.volumes import Shape

PSS, PTS, PSS_TS = BASELINE_NAMES = ("PyGT-PSS", "PyGT-PTS", "PyGT-PSS-TS")
PLAIN, EXACT, DGC = LADDER_NAMES = tuple(f"{name}, labels once" for name in LADDER)
"""DGC as published, step by step: labels are propagated once, and workers are not refined."""
ADDED: Final = "DGC"
"""DGC with our refinement of its partition, DGC + dgbench; rows have called it so all along."""
SHOWN: Final = {**dict(zip(LADDER_NAMES, LADDER, strict=True)), ADDED: "DGC + dgbench"}
"""Forms of DGC as figures name them."""
PAPER_NAMES: Final = (*BASELINE_NAMES, *LADDER_NAMES)
CONTIGUOUS: Final = "PyGT-PSS contiguous"
"""PSS by runs of snapshots, as in ESDG, which section 2.2.2 follows; `PSS` deals them in turn."""
PSS_ORDERS: Final = (PSS, CONTIGUOUS)
PLACED: Final = (*BASELINE_NAMES, CONTIGUOUS)
"""Placements without chunks: the paper's three baselines, PSS in both orders."""
FUSED: Final = {name: f"{name} + CF" for name in PLACED}
"""Placements with chunk fusion, which the paper does not give its baselines: what is left of a
difference is the partition's and the stale rows'."""

HELD_NAMES: Final = tuple(graph.name for graph in HELD)
TWINS: Final = tuple(graph.name for graph in GRAPHS)
FAIR: Final = tuple(FUSED.values())
EVERY: Final = (*PAPER_NAMES, CONTIGUOUS, *FAIR, ADDED)
"""All contenders of a race."""
TITLES: Final = {PSS: "PSS in turn", PTS: "PTS", PSS_TS: "PSS-TS", CONTIGUOUS: "contiguous PSS"}
PHASES: Final = ("transfer", "gnn", "rnn", "communicate", "update")
PHASES_FROM: Final = "from epochs after those timed; communicate: waiting for other ranks"
"""Note of a figure on the phases of a race."""

FEWEST: Final = 20
"""Scored vertex-steps below which a row says that its accuracy means nothing."""
TURNING: Final = 0.5
"""Share of a race's time that is left for turns; the other half cuts chunks, starts ranks, compares
untrained models and reads clocks for the phases."""

Link = Literal["gloo", "wire"]
WIRE: Final = (5e-5, 125e6)
"""Seconds of a message and bytes per second of a rank's emulated link: 1 Gb/s. To half a core of
this kind (four ranks share two) it is about what a PCIe port is to a V100: 12 GB/s beside 900 GB/s
of memory."""
LINK_TITLES: Final = {"gloo": "Gloo", "wire": "emulated 1 Gb/s"}

KEPT: Final[dict[str, tuple[int | None, int | None, int | None, int | None]]] = {
    # Smoke, quick, full, paper.
    "sx-mathoverflow": (3, 4, 24, None),
    "epinions-2011-ratings": (1, 1, 2, None),
    "amazon-magazine": (3, 10, 40, None),
    "wikipedia": (3, 5, 24, None),
    "email-eu-core": (14, 20, 26, None),
    "amazon": (9, 24, 60, None),
    "epinions": (9, 12, 40, None),
    "movie": (9, 24, 60, None),
    "stack": (5, 7, 24, None),
}
"""Snapshots that a race runs over, the last ones; so many that an epoch takes tens of milliseconds
in quick and up to a second in full. The last eight but one of email-Eu are empty, and the last of
amazon-magazine are thin."""
KEPT_OF_OTHERS: Final = (3, 10, 40, None)
"""The same of a dataset of the user's."""

_SETTINGS: Final[Mapping[str, ChunkRankSettings]] = {
    **{name: BASELINES[name] for name in PLACED},
    **{
        fused: replace(LADDER[SHOWN[EXACT]], partition=BASELINES[name].partition)
        for name, fused in FUSED.items()
    },
    **{name: LADDER[SHOWN[name]] for name in LADDER_NAMES},
    ADDED: REFINED,
}


def contenders(*names: str, link: Link = "gloo") -> dict[str, ChunkRankSettings]:
    """Settings of contenders by name, in the order of `EVERY`; without names the paper's six."""
    wanted, wire = names or PAPER_NAMES, WIRE if link == "wire" else None
    return {name: replace(_SETTINGS[name], wire=wire) for name in EVERY if name in wanted}


def kept(dataset: str, preset: Preset) -> int | None:
    """Snapshots that a race on a graph runs over; None: all."""
    return KEPT.get(dataset, KEPT_OF_OTHERS)[place_of(preset)]


def task_of(dataset: str, model: str, preset: Preset, **fields: Any) -> SequenceWorkload:
    """Workload of a race: the last snapshots of a graph, so many as `KEPT` says."""
    return workload(
        BY_NAME[dataset], model, preset, **{"snapshots": kept(dataset, preset), **fields}
    )


PARTS: Final = ("quarter", "ends", "level")
"""Dimensions that tell parts of a dataset apart."""


def labelled(dataset: str, part: Mapping[str, Any]) -> str:
    """A dataset, or a part of it as `movie#1`."""
    words = (f"{v:g}" if isinstance(v, float) else str(v) for v in part.values())
    return f"{dataset}#{' '.join(words)}" if part else dataset


@dataclass(frozen=True, slots=True)
class RaceJob:
    """One race of a cell.

    Attributes:
        dataset: its name. task, data: what all contenders train.
        contenders: name -> settings.
        part: dimensions among `PARTS` that tell several jobs on a dataset apart.
    """

    dataset: str
    task: SequenceWorkload
    data: SnapshotSequence
    contenders: Mapping[str, ChunkRankSettings]
    part: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Its label in deviations, checks and notes."""
        return f"{labelled(self.dataset, self.part)}/{self.task.model}"

    @property
    def dims(self) -> dict[str, Any]:
        """Dimensions of its observations."""
        return {"dataset": self.dataset, **self.part, "model": self.task.model}


def jobs_of(
    dataset: str, models: Sequence[str], preset: Preset, chosen: Mapping[str, ChunkRankSettings]
) -> Iterator[RaceJob]:
    """Races of contenders with every model on a dataset, whose snapshots are opened once."""
    tasks = [task_of(dataset, model, preset) for model in models]
    data = load_sequences(tasks[0])
    for task in tasks:
        yield RaceJob(dataset, task, data, chosen)


def before_ranks() -> None:
    """Import what Adam imports at its first step, a second's worth: forks of this process have it
    then, and none of four ranks has to import it for itself."""
    importlib.import_module("torch._dynamo")


@one_thread()  # as ranks have; two that share busy cores would wait for one another
def race(
    jobs: Iterable[RaceJob],
    ranks: int,
    context: RunContext,
    *,
    least: int,
    budget_s: float,
    total_s: float = 0.0,
    timeout_s: float = 120.0,
    control: bool = False,
    clocked: int = CLOCKED,
) -> Measurement:
    """Run the races of a cell one after the other and put what they found into one row.

    Args:
        least, budget_s: turns of each contender that count, and seconds of turns, warm-up included,
            of each race; both at least.
        total_s: seconds of the cell: of what is left of them, a race takes its share for turns.
        timeout_s: of the cell; each race gets what is left.
        control: the first contender races itself, too: an A/A pair of each race.
        clocked: epochs that phases are taken from; with 0 a row has none.
    """
    begin = time.perf_counter()
    before_ranks()
    found, jobs = Measurement(), list(jobs)
    for number, job in enumerate(jobs):
        start = time.perf_counter()
        share = (begin + total_s - start) / (len(jobs) - number)
        how = ranks, context.device, sorted((name, repr(s)) for name, s in job.contenders.items())
        kept = KeptLosses(job.task, job.data, how, package=Path(__file__).parents[1])
        compare = context.round == 1 or kept.known is None
        oracle = None
        if compare:
            oracle = SequenceOracle(job.task, job.data, context.device, label=job.key)
        turns = take_rank_turns(
            job.task,
            job.data,
            ranks,
            with_control(job.contenders, on=control),
            least=least,
            budget_s=max(budget_s, TURNING * (share - (time.perf_counter() - start))),
            timeout_s=max(1.0, begin + timeout_s - time.perf_counter()),
            device=context.device,
            transport="backend",
            compare=compare,
            clocked=clocked,
        )
        _keep(found, job, turns, oracle, kept, context.device)
        said, known = describe(job.data), found.data
        label = labelled(job.dataset, job.part)
        names = [*known["dataset"].split(", "), said["dataset"]] if known else [label]
        found.data = {**(known or said), "dataset": ", ".join(dict.fromkeys(names))}
        wired = any(settings.wire is not None for settings in job.contenders.values())
        note = f"{ranks} processes over {turns.carrier}" + (", emulated wire" if wired else "")
        for words in (note, *(w for many in turns.notes.values() for w in many)):
            if words not in found.notes:
                found.notes.append(words)
    if not found.observations:
        raise UnsupportedError("this cell has no race")
    return found


def _keep(
    found: Measurement,
    job: RaceJob,
    turns: ChunkRaceResult,
    oracle: SequenceOracle | None,
    kept: KeptLosses,
    device: str,
) -> None:
    """Add what a race found to a row's observations, and how it compares to its checks."""
    every = with_control(job.contenders)
    stale = [name for name, settings in every.items() if settings.stale]
    if oracle is None:
        checks = kept.checks(turns.losses, stale=stale, part=job.key)
        checks += later_audited(
            job.task, job.data, turns.audits, turns.losses, stale=stale, device=device
        )
        checks = summarised(checks)
    else:
        found.deviation[job.key] = max(
            oracle.gap(turns.output[n], turns.gradients[n]) for n in job.contenders
        )
        checks = _checks(job, turns, oracle)
        checks += oracle.audited(turns.audits, turns.losses, stale=stale)
        checks = summarised(checks)
        kept.keep(turns.losses, checks)
    found.checks += of_contender("", checks, **job.dims)
    take_control(found, turns.seconds, **job.dims)
    for name in job.contenders:
        seconds = turns.seconds[name]
        observe = partial(found.observe, **job.dims, setting=name)
        for turn, s in enumerate(seconds):
            observe("epoch_time", s, turn=turn)
        for phase, s in turns.phases[name].items():
            observe("phase_time", s, phase=phase)
        observe("divergence", turns.divergence(name))
        if name in turns.accuracy:
            observe("accuracy", turns.accuracy[name])
        if turns.stale[name]:
            observe("row_share", _sent(turns.stale[name]), of="sent")
        observe("exchanged", turns.traffic[name].total("bytes", operation="all_to_all"))
    graph = vertex_steps(job.data, job.task)
    scored = SequenceTask(job.data, job.task, graph).count
    found.observe("vertex_steps", graph.num_vertices, **job.dims)
    if scored < FEWEST:
        found.notes.append(
            f"{job.key}: next to nothing is scored here ({scored} vertex-steps), as hardly an edge "
            "follows; its epochs and bytes count, its loss and accuracy say nothing"
        )
    edges = sum(job.data.topology[t].nnz for t in range(graph.steps))
    found.observe("edges", edges, **job.dims)


def _checks(job: RaceJob, turns: ChunkRaceResult, oracle: SequenceOracle) -> list[ResultCheck]:
    """Checks of every contender of a race: what it computes, who does what, and what it sends."""
    found: list[ResultCheck] = []
    first = turns.later[0]
    later = oracle.checks_at(first.state)
    edges, shape = EdgeRecount(job.data), shape_of(sequence_model(job.task))
    pairs = None
    if job.task.task == "link":
        graph = vertex_steps(job.data, job.task)
        pairs = SequenceTask(job.data, job.task, graph).scored.places.numpy()
    for name, settings in job.contenders.items():
        # With stale rows the first epoch is exact, as it sends everything.
        losses = turns.losses[name][: 1 if settings.stale else None]
        found += oracle.check_start(turns.output[name], turns.gradients[name], losses, name)
        found += later(first.answers[name], name)
        # The state is that to which timed epochs led a drawn contender.
        found += oracle.liveness(first.answers[name], first.state, name, now=first.state)
        found.append(replicas_equal(turns.later, name))
        placement = turns.placements[name]
        found.append(edges.partition(placement, name))
        rows = edges.rows(placement, shape, pairs)
        found.append(_counted(job, turns, name, rows, shape))
        stages = 1 if shape.attention else edges.span(placement)[0]
        check = counted({"stages": turns.stages[name]}, {"stages": stages})
        found += of_contender(name, [check])
    return found


def replicas_equal(ranks: Sequence[TrainedAnswers], name: str) -> ResultCheck:
    """A check that a contender's parameters are the same on all ranks."""
    first = ranks[0].replicas[name]
    found = {f"rank {number}": rank.replicas[name] for number, rank in enumerate(ranks)}
    wanted = dict.fromkeys(found, first)
    return equal("parameters", found, wanted, against="first rank", system=name)


def _counted(
    job: RaceJob, turns: ChunkRaceResult, name: str, rows: Mapping[str, np.ndarray], shape: Shape
) -> ResultCheck:
    """A check of the bytes of an epoch; with stale rows, of all rows, sent and held back."""
    sent = {key: int(matrix.sum()) for key, matrix in rows.items() if matrix.any()}
    found, wanted, index = {}, {}, 0
    if turns.stale[name]:
        epoch = turns.stale[name][WARM]  # the one whose traffic was kept
        found = {f"rows {key}": sum(pair) for key, pair in epoch.rows.items() if any(pair)}
        wanted = {f"rows {key}": count for key, count in sent.items()}
        sent = {key: pair[0] for key, pair in epoch.rows.items()}
        index = epoch.index_bytes
    wanted["bytes"] = index + sum(
        4 * count * width_of(key, shape)[0] * width_of(key, shape)[1] for key, count in sent.items()
    )
    found["bytes"] = turns.traffic[name].total("bytes", operation="all_to_all")
    check = equal("counters", found, wanted, against=AGAINST, system=name)
    return changed(check, part=f"{job.key} {check.part}")


def _sent(history: Sequence[StaleEpoch]) -> float:
    """Share of the floats that still travel, over the epochs of turns that count."""
    later = history[WARM:]
    sent, held = (sum(getattr(e, f"{w}_floats") for e in later) for w in ("sent", "held"))
    return sent / (sent + held) if sent + held else 1.0
