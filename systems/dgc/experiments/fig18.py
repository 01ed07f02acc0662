"""Figure 18: loss and accuracy of all systems, by epoch and by time (section 7.6)."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.charts import chart, failures, gap
from dgbench.lab.compare import AGAIN, Ratio, observe_control
from dgbench.lab.estimates import Estimate, EvaluationContext, real_data
from dgbench.lab.quantities import computed, of_rows
from dgbench.lab.result_checks import summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.statistics import median_interval
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload, load_sequences
from dgbench.systems.dgc.dealing import WorkAssignment, connect, deal, open_trainer
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.common import RankGrid
from dgbench.systems.dgc.experiments.race_rows import dataset_title
from dgbench.systems.dgc.experiments.settings import FORMS, MODEL_TITLES, MODELS
from dgbench.systems.dgc.recount import EdgeRecount
from dgbench.systems.dgc.sequence_oracle import SequenceOracle, last_gradients
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.turns import TrainedAnswers, ask_trained

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.dgc.trainer import ChunkRankTrainer

ONE: Final = "one process"
SYSTEMS: Final = (*runs.BASELINE_NAMES, runs.PLAIN, runs.EXACT, runs.DGC)
LR: Final = 0.01
"""Not printed; large enough that the epochs of quick lead somewhere."""

EPOCHS: Final = {"smoke": 2, "quick": 10, "full": 60, "paper": 100}
STEPS: Final[dict[Preset, dict[str, int]]] = {
    "quick": {"sx-mathoverflow": 4},
    "full": {"sx-mathoverflow": 12, "wikipedia": 12},
}
"""Snapshots where those of a race would take too long."""


def ran(row: Any) -> list[str]:
    """Systems whose training a row holds, one process first."""
    here = Table.of([row]).by("setting")
    return [name for name in (ONE, *SYSTEMS) if name in here]


def exact(row: Any) -> list[str]:
    """Systems without stale rows that ran."""
    return [name for name in ran(row) if name not in (ONE, runs.DGC)]


def curve(row: Any, metric: str, name: str) -> list[float]:
    """`loss`, `accuracy` or `epoch_time` of each epoch of a system."""
    return Table.of([row]).where(metric, setting=name).values


def accuracy(row: Any, name: str) -> float:
    """Accuracy of a system after the last epoch."""
    return curve(row, "accuracy", name)[-1]


def gain(row: Any, slow: str, fast: str) -> Ratio:
    """Speedup of one system over another, from medians of their own epochs: each trained by itself,
    so that epochs do not pair."""
    tops, bottoms = (sorted(curve(row, "epoch_time", name)) for name in (slow, fast))
    ratio = median_interval([math.log(a / b) for a in tops for b in bottoms])[0]
    (low, high), (least, most) = (median_interval(values)[1:] for values in (tops, bottoms))
    known = None not in (low, high, least, most)
    return Ratio(
        math.exp(ratio), low / most if known else None, high / least if known else None,
        len(tops), rows=[row.id],
    )  # fmt: skip


COINCIDE: Final = 1e-3
"""Relative gap of two losses that no plot shows."""
SAME_POINTS: Final = 0.005
"""Gap of accuracies that no plot shows: half a point."""
SLIGHT: Final = 0.05
"""Accuracy that stale rows may cost and still be slightly lower: five points; Table 3 prints up to
3.6 for the adaptive threshold."""


def loss_gap(row: Any) -> float:
    """Largest relative gap of losses without stale rows to those of one process."""
    wanted = curve(row, "loss", ONE)
    return max(
        abs(a - b) / max(abs(b), 1e-30)
        for name in exact(row) for a, b in zip(curve(row, "loss", name), wanted, strict=True)
    )  # fmt: skip


def accuracy_gap(row: Any) -> float:
    """Largest gap of accuracies without stale rows to that of one process."""
    return max(abs(accuracy(row, name) - accuracy(row, ONE)) for name in exact(row))


def stale_gains(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Epochs of the quickest system without stale rows over those with them, on real graphs."""
    for row in rows_of(context.rows, experiment=Fig18.name):
        if not row.data.get("twin"):
            first = min(exact(row), key=lambda name: median(curve(row, "epoch_time", name)))
            yield row.params, Estimate.of_ratio(gain(row, first, runs.DGC), [row])


PLACES = ("dataset", "model")
ALIKE = {"losses": (of_rows(loss_gap, per=PLACES), COINCIDE),
         "accuracies": (of_rows(accuracy_gap, per=PLACES), SAME_POINTS)}  # fmt: skip
"""Gaps of systems without stale rows to one process, and what no plot shows of them."""
DROP = of_rows(lambda row: accuracy(row, runs.EXACT) - accuracy(row, runs.DGC), per=PLACES)
"""Accuracy that stale rows cost."""


def curve_points(rows: Sequence[Any], of: str) -> list[dict[str, Any]]:
    """Points of `curves`: a line per system, a panel per model and graph. One process is the
    reference; it has the machine for itself, so that its seconds stand beside nothing."""
    points: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment=Fig18.name):
        title = dataset_title(row.params["dataset"], bool(row.data.get("twin")))
        common = {
            "panel": f"{MODEL_TITLES[row.params['model']]} on {title}",
            "target": curve(row, of, ONE)[-1], "row_ids": [row.id],
        }  # fmt: skip
        for name in ran(row):
            spent = list(accumulate(curve(row, "epoch_time", name)))
            points += [
                {**common, "series": runs.SHOWN.get(name, name), "x": epoch + 1, "y": y}
                | ({"reference": True} if name == ONE else {"seconds": spent[epoch]})
                for epoch, y in enumerate(curve(row, of, name))
            ]
    return points + [
        gap(row, panel=MODEL_TITLES[row.params["model"]], series=runs.SHOWN[runs.DGC])
        for row in failures(rows, Fig18.name)
    ]


class Fig18(FormExperiment, RankGrid):
    forms, name = FORMS, "fig18"
    headline, unit = 100 * DROP, "points"
    charts = tuple(
        chart("curves", name, f"{title} by epoch and by time", partial(curve_points, of=of),
              together=True, target_label="one process at the end",
              start="same seed and first parameters", ylabel=of, **goal)
        for name, title, of, goal in (
            ("fig18", "Loss", "loss", {"goal": "down"}),
            ("fig18_accuracy", "Test accuracy", "accuracy", {}),
        )
    )  # fmt: skip
    claims = {
        "dgc-fig18-convergence": combine.both(
            *(rules.at_most(gap.keep(real_data), bar) for gap, bar in ALIKE.values()),
            rules.at_most(DROP.keep(real_data), SLIGHT),
            rules.all_above(computed(stale_gains, per=PLACES), 1.0),
        ),
        "dgc-s5-disable-same": combine.both(
            *(rules.at_most(gap, bar) for gap, bar in ALIKE.values())
        ),
    }
    control = {"model": MODELS[0]}
    axes = {
        "dataset": {
            "smoke": ("email-eu-core",),
            "quick": ("sx-mathoverflow",),
            None: ("epinions-2011-ratings", "sx-mathoverflow", "wikipedia", "epinions"),
        },
        "model": {"smoke": MODELS[:1], "quick": MODELS[:1], None: MODELS},
        "ranks": {"smoke": (2,), "quick": (2,), None: (4,)},
    }
    group = "{dataset}/{model}"
    timeout_s = {"smoke": 30, "quick": 60, "full": 1800, "paper": 7200}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, ranks = context.preset, int(cell.params["ranks"])  # type: ignore[arg-type]
        dataset, model = str(cell.params["dataset"]), str(cell.params["model"])
        snapshots = STEPS.get(preset, {}).get(dataset, runs.kept(dataset, preset))
        task = runs.task_of(dataset, model, preset, lr=LR, snapshots=snapshots)
        data = load_sequences(task)
        with one_thread():
            oracle = SequenceOracle(task, data, context.device)
        every = runs.contenders()
        # Without fusion DGC trains the same, chunk by chunk, and for long.
        names = [n for n in SYSTEMS if n != runs.PLAIN or preset == "paper"]
        chosen = {name: replace(every[name], transport="backend") for name in names}
        dealt = {n: deal(task, data, ranks, s, device=context.device) for n, s in chosen.items()}
        if self.controls(cell):
            chosen, dealt = ({**one, AGAIN: one[runs.DGC]} for one in (chosen, dealt))
        trained = {ONE: _learn(PlainSequences(task, data, device=context.device), EPOCHS[preset])}
        runs.before_ranks()
        found = launch(
            _train,
            ranks,
            (task, data, chosen, dealt, EPOCHS[preset], random.SystemRandom().choice(names)),
            timeout_s=cell.timeout_s,
            device=context.device,
            threads=1,
            seed=task.seed,
        )
        answers = [later for _, later in found]
        trained |= found[0][0]
        gaps = [oracle.gap(trained[name].output, trained[name].gradients) for name in chosen]
        state = answers[0].state
        later = oracle.checks_at(state)
        checks = []
        for name, one in trained.items():
            stale = name in chosen and chosen[name].stale
            losses = one.curve["loss"][: 1 if stale else None]
            checks += oracle.check_start(one.output, one.gradients, losses, name)
        edges = EdgeRecount(data)
        for name in chosen:
            own = answers[0].answers[name]
            checks += later(own, name)
            checks += oracle.liveness(own, state, name, now=state)
            checks.append(runs.replicas_equal(answers, name))
            checks.append(edges.partition(dealt[name].placement, name))
        out = Measurement(
            deviation={"gradient": max(gaps)},
            data=describe(data),
            notes=[f"{ranks} processes of one machine over Gloo"],
            checks=summarised(checks),
        )
        if AGAIN in trained:
            sides = (trained[name].curve["epoch_time"] for name in (runs.DGC, AGAIN))
            for pair in zip(*map(_fifths, sides), strict=True):
                observe_control(out, *([seconds] for seconds in pair), setting=runs.DGC)
            del trained[AGAIN]
        for name, one in trained.items():
            for metric, line in one.curve.items():
                for epoch, value in enumerate(line):
                    out.observe(metric, value, setting=name, epoch=epoch)
        return out


def _fifths(seconds: Sequence[float]) -> list[float]:
    """Medians of five runs of epochs: trainings follow each other, so that turns do not pair."""
    bounds = [len(seconds) * k // 5 for k in range(6)]
    return [median(seconds[a:b]) for a, b in pairwise(bounds) if b > a]


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """Output of an untrained model, gradients of its first epoch, which sends everything, and
    curves: `loss` before each epoch, `accuracy` on what is held out after it, and its seconds."""

    output: Tensor
    gradients: dict[str, Tensor]
    curve: dict[str, list[float]]


def _train(
    comm: Communicator,
    task: SequenceWorkload,
    data: SnapshotSequence,
    chosen: Mapping[str, ChunkRankSettings],
    dealt: Mapping[str, WorkAssignment],
    epochs: int,
    drawn: str,
) -> tuple[dict[str, Training], TrainedAnswers]:
    """Be one rank: train with each system in turn, from the same parameters; the first one returns
    what it found. In the end all are asked at the parameters of the system that was drawn."""
    trainers: dict[str, ChunkRankTrainer] = {}
    trained: dict[str, Training] = {}
    for name, settings in chosen.items():
        connect(comm, settings)
        trainers[name] = open_trainer(comm, task, data, dealt[name], settings)
        trained[name] = _learn(trainers[name], epochs, comm)
        trainers[name].close()
    later = ask_trained(comm, trainers, chosen, drawn)
    return trained if comm.rank == 0 else {}, later


def _learn(trainer: SequenceTrainer, epochs: int, comm: Communicator | None = None) -> Training:
    """Train for some epochs."""
    curve: dict[str, list[float]] = {"loss": [], "accuracy": [], "epoch_time": []}
    output, gradients = trainer.evaluate(), dict[str, Tensor]()
    for epoch in range(epochs):
        if comm is not None:
            comm.barrier()
        begin = time.perf_counter()
        curve["loss"].append(trainer.train_epoch())
        curve["epoch_time"].append(time.perf_counter() - begin)
        if epoch == 0:
            gradients = last_gradients(trainer)
        curve["accuracy"].append(trainer.accuracy())
    return Training(output, gradients, curve)
