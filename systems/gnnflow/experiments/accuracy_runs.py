"""Experiments on accuracy: sizes, the race round by round, differences with errors, and checks.

GDELT is not held and a twin may not decide an accuracy, so held graphs stand in. A run is cut down
by the number of events and by widths; batches shrink along, so that a round has several of them.

The last round is played again on the plain path in float32: after a step, weights of ages differ by
rounding from those of any other precision, and long ages enlarge that. Where it left a trainer is
compared with float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, variance
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.quantities import MeasuredQuantity, computed
from dgbench.lab.result_checks import ResultCheck, close, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.statistics import t_quantile
from dgbench.runtime.threads import one_thread, threads
from dgbench.runtime.touched import comparing
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.base.stream_recount import recount_batches
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream, drawn
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, FORMS, INITIAL, SETTINGS, workload
from dgbench.systems.gnnflow.experiments.trainer_checks import (
    PLAIN,
    ROUNDING,
    SCORED,
    StreamOracle,
    taken_over,
)
from dgbench.systems.gnnflow.rounds import Continuous, RoundResult, rounds_by_count


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Length of a stream and sizes of models for each preset.

    Attributes:
        graphs: held graphs.
        seeds: how often it is run.
        events: kept, the first ones, by model that runs; None: all.
        rounds: that the 70 % after the initial part are cut into.
        initial: epochs over the first 30 %.
        width: of hidden states, times and memories; features have as many floats. None: those of
            the paper and of TGL.
        fanout: at every hop; None: the paper's.
        threads: for networks so small that a second one costs more than it does; None: all.
        lr: of Adam; TGL's 1e-4 is too slow for a short stream.
    """

    graphs: tuple[str, ...]
    seeds: int
    events: dict[str, int | None]
    rounds: int
    initial: int
    width: int | None
    fanout: int | None
    threads: int | None = None
    lr: float = 1e-3


HELD_STREAMS: Final = ("wikipedia", "college-msg", "enron")
MODELS: Final = ("tgn", "tgat")
WHOLE: Final[dict[str, int | None]] = {"tgn": None, "tgat": None}


def limits(smoke: StreamLimits, quick: StreamLimits, *, rounds: int) -> dict[Preset, StreamLimits]:
    """Sizes by preset; `rounds` are those of the preset `full`."""
    part: dict[str, int | None] = {"tgn": 20_000, "tgat": 20_000}
    return {
        "smoke": smoke,
        "quick": quick,
        "full": StreamLimits(HELD_STREAMS, 5, part, rounds, 3, 64, 10),
        "paper": StreamLimits(HELD_STREAMS, 5, WHOLE, 100, 3, None, None, lr=1e-4),
    }


def task_of(
    dataset: str, model: str, seed: int, size: StreamLimits, preset: Preset
) -> StreamWorkload:
    """The workload of one run."""
    one = SETTINGS[model]
    events = size.events[model]
    fields: dict[str, Any] = {"seed": seed, "events": events, "lr": size.lr}
    if size.width is not None:
        fields |= dict.fromkeys(
            ("node_dim", "edge_dim", "hidden_dim", "time_dim", "memory_dim"), size.width
        )
    if size.fanout is not None:
        fields["fanouts"] = (size.fanout,) * len(one.fanouts)
    if events is not None:  # about two batches a round, at most the paper's
        share = 0.7 * events / size.rounds / 2
        fields["batch"] = max(8, min(one.batch, 8 * round(share / 8)))
    return workload(BY_NAME[dataset], model, preset, **fields)


Contenders = dict[Any, tuple[str, dict[str, Any]]]
"""System, and options of `Continuous`, by contender; the first one is trained before."""
Outcomes = Mapping[Any, list[RoundResult]]
"""Results of all rounds by contender."""


class AccuracyRun(FormExperiment):
    """Contenders that go on from one trained model and take turns on every round.

    Attributes:
        sizes: by preset. dim: dimension that tells the contenders apart.
        replays: drawn contenders whose last round is played again on the plain path, at most.
    """

    forms = FORMS
    group = "{dataset}/{model}/{seed}"
    timeout_s = {"smoke": 60, "quick": 120, "full": 3600, "paper": 36000}
    sizes: ClassVar[Mapping[Preset, StreamLimits]]
    dim: ClassVar[str]
    replays: ClassVar[int]

    def points(self, preset: Preset, device: str) -> Iterator[dict[str, Any]]:
        size = self.sizes[preset]
        for name, model in product(size.graphs, size.events):
            for seed in range(1, size.seeds + 1):
                yield {"dataset": name, "model": model, "seed": seed}

    def contenders(self, task: StreamWorkload, rounds: int) -> Contenders:
        """Contenders of a task that is cut into so many rounds."""
        raise NotImplementedError

    def observe(self, measured: Measurement, task: StreamWorkload, outcomes: Outcomes) -> None:
        """Add numbers of the contenders' rounds beside average precisions."""
        raise NotImplementedError

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size = self.sizes[context.preset]
        task = task_of(size=size, preset=context.preset, **cell.params)  # type: ignore[arg-type]
        with threads(size.threads or context.threads):
            return self.train(task, size, context.device)

    def train(self, task: StreamWorkload, size: StreamLimits, device: str) -> Measurement:
        """Train and score all contenders."""
        data = load_stream(task)
        rounds = rounds_by_count(len(data.events), size.rounds, initial=INITIAL)
        streams: dict[Any, Continuous] = {}
        for name, (system, options) in self.contenders(task, len(rounds)).items():
            trainer: Any = get_system(system).open(task, device=device, data=data)  # type: ignore[arg-type,call-arg]
            streams[name] = Continuous(trainer, rounds, **options)
            streams[name].begin(0 if len(streams) > 1 else size.initial)
            trainer.copy_from(next(iter(streams.values())).trainer)
        outcomes: Outcomes = {name: [] for name in streams}
        for turn in range(len(rounds)):
            if turn == len(rounds) - 1:
                names = [list(streams)[i] for i in drawn(len(streams), self.replays).tolist()]
                replays = {name: RoundReplay(task, data, streams[name]) for name in names}
            for name in streams if turn % 2 == 0 else reversed(streams):
                outcomes[name].append(streams[name].play())
        measured = Measurement(data=data.describe())
        for name, played in outcomes.items():
            for number, one in enumerate(played):
                dims = {"round": number, self.dim: name}
                measured.observe("average_precision", one.ap, **dims)  # type: ignore[arg-type]
        self.observe(measured, task, outcomes)
        last = {name: played[-1] for name, played in outcomes.items()}
        measured.checks = stream_checks(task, data, streams, replays, last)
        for stream in streams.values():
            stream.trainer.close()
        return measured


def differences(row: Any, dim: str, first: Any, second: Any) -> list[float]:
    """Points of average precision that a contender has over another, round by round; none where one
    of them took no part. `dim` tells them apart."""
    curves = [
        Table.of([row]).where("average_precision", **{dim: one}).values for one in (first, second)
    ]
    return [100 * (a - b) for a, b in zip(*curves, strict=all(curves))]


def over_seeds(rows: Sequence[Any], means: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean over graphs of their means over seeds; the unit of its error is the seed.

    Rounds of one seed share the model that goes on from round to round, so that their spread says
    nothing of another seed. Without an interval where a graph has a single seed.

    Args:
        rows: of seeds and graphs. means: the difference that each shows. level: coverage.
    """
    graphs: dict[Any, list[float]] = {}
    for row, value in zip(rows, means, strict=True):
        graphs.setdefault(row.params["dataset"], []).append(value)
    middles = {name: fmean(values) for name, values in graphs.items()}
    value, n = fmean(middles.values()), min(map(len, graphs.values()))
    if n < 2:
        return Estimate(value, rows=tuple(rows), kind="seeds")
    error = math.sqrt(sum(variance(values) / len(values) for values in graphs.values()))
    half = t_quantile(n - 1, level) * error / len(graphs)
    return Estimate(value, value - half, value + half, tuple(rows), "seeds")


def by_model(
    numbers: Callable[[list[Any]], Iterable[tuple[Mapping[str, Any], Estimate]]], *per: str
) -> MeasuredQuantity:
    """Numbers with their dimensions that a function gives of the rows of each model."""

    def every(context: EvaluationContext) -> Iterator[tuple[dict[str, Any], Estimate]]:
        rows = rows_of(context.rows, experiment=context.experiment)
        for model in MODELS:
            mine = [row for row in rows if row.params["model"] == model]
            for dims, one in numbers(mine) if mine else ():
                yield {**dims, "model": model}, one

    return computed(every, per=("model", *per))


def mean_points(value: Callable[[Any], float]) -> MeasuredQuantity:
    """Means over seeds and by model of points that a function gives of a row; none with a NaN."""

    def numbers(rows: list[Any]) -> Iterator[tuple[dict[str, Any], Estimate]]:
        means = [value(row) for row in rows]
        if not any(map(math.isnan, means)):
            yield {}, over_seeds(rows, means)

    return by_model(numbers)


class _ScoredTrainer(StreamTrainer):
    """A plain trainer that keeps scores of each batch, [events, 2]: true pairs, random ones."""

    def gathered(self, rows: Tensor, count: int | None = None) -> Tensor:
        if count is not None:
            self.scores.append(rows)
        return rows


class RoundReplay:
    """A stream as it stands before a round, to be played again on the plain path."""

    @comparing()
    def __init__(self, task: StreamWorkload, data: StreamData, stream: Continuous) -> None:
        trainer = stream.trainer
        plain = _ScoredTrainer(task, data, NearbyStream(task, data), device=str(trainer.device))
        plain.scores = []
        plain.insert(trainer.inserted)
        taken_over(plain, trainer)
        self._stream = Continuous(
            plain, stream.rounds, epochs=stream.epochs, every=stream.every, replay=stream.replay,
            evaluate=stream.evaluate,
        )  # fmt: skip
        self._stream.played, self._stream._pending = stream.played, stream._pending
        self._stream._memory = stream._memory

    @comparing()
    def checks(self, name: str, outcome: RoundResult) -> list[ResultCheck]:
        """Losses of the epochs of a round, and the average precision before it."""
        with one_thread():
            trainer, exact = self._stream.trainer, self._stream.play()
        part = f"{name}, round {self._stream.played}"
        found = []
        if exact.losses:
            found.append(
                close("losses", outcome.losses, exact.losses, ROUNDING, against=PLAIN, part=part)
            )
        if outcome.ap is not None:
            scores = torch.cat(trainer.scores).cpu()  # type: ignore[attr-defined]
            precision = plain_average_precision(scores[:, 0], scores[:, 1])
            found.append(
                close("scores", outcome.ap, precision, SCORED, against=PLAIN, part=part)
            )  # fmt: skip
        return found


def plain_average_precision(positive: Tensor, negative: Tensor) -> float:
    """Mean over positives of the share of positives among all that are scored as high."""
    above = (positive[None, :] >= positive[:, None]).sum(1).double()
    wrong = (negative[None, :] >= positive[:, None]).sum(1).double()
    return float((above / (above + wrong)).mean()) if positive.numel() else 0.0


@comparing()
def stream_checks(
    task: StreamWorkload,
    data: StreamData,
    streams: Mapping[str | int, Continuous],
    replays: Mapping[str | int, RoundReplay],
    outcomes: Mapping[str | int, RoundResult],
) -> list[ResultCheck]:
    """Checks of streams after their last round, whose outcomes are given; `replays` of some were
    made before it. A number as a name is none of a contender."""
    first = next(iter(streams.values())).trainer
    oracle = StreamOracle(task, data, first.inserted, device=str(first.device))
    found: list[ResultCheck] = []
    for name, stream in streams.items():
        own = replays[name].checks(name, outcomes[name]) if name in replays else []
        # One that never trains takes no step: Adam's first follows signs of gradients alone.
        if stream.every is not None:
            own += oracle.checks(name, stream.trainer)
            own += recount_batches(str(name), stream.trainer, task)
        found += of_contender(name, own) if isinstance(name, str) else own
    return found
