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
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.ranks import launch
from dgbench.runtime.statistics import median_interval
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload, load_sequences
from dgbench.systems.dgc.dealing import WorkAssignment, connect, deal, open_trainer
from dgbench.systems.dgc.experiments.common import RankGrid
from dgbench.systems.dgc.experiments.race_rows import dataset_title
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    DGC,
    EXACT,
    FORMER,
    LADDER_NAMES,
    PLAIN,
    SHOWN,
    before_ranks,
    contenders,
    kept,
    replicas_equal,
    task_of,
)
from dgbench.systems.dgc.experiments.settings import FORMS, MODEL_TITLES, MODELS
from dgbench.systems.dgc.recount import EdgeRecount
from dgbench.systems.dgc.sequence_oracle import SequenceOracle, last_gradients
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.turns import TrainedAnswers, ask_trained

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.dgc.trainer import ChunkRankTrainer

ONE: Final = "one process"
SYSTEMS: Final = (*BASELINE_NAMES, PLAIN, EXACT, DGC)
LR: Final = 0.01
"""Not printed; large enough that the epochs of quick lead somewhere."""

EPOCHS: Final = {"smoke": 2, "quick": 10, "full": 60, "paper": 100}
STEPS: Final[dict[Preset, dict[str, int]]] = {
    "quick": {"sx-mathoverflow": 4},
    "full": {"sx-mathoverflow": 12, "wikipedia": 12},
}
"""Snapshots where those of a race would take too long."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Curves of one model on one graph.

    Attributes:
        row: that holds them. names: systems that ran, one process with them.
        former: whether DGC's steps are those with our refinement, see `FORMER`.
    """

    row: Any
    names: tuple[str, ...]
    former: bool = False

    @classmethod
    def of(cls, row: Any) -> Trained:
        """The curves of a row."""
        here = Table.of([row]).by("setting")
        former = not any(name in here for name in LADDER_NAMES)
        names = (n for n in (ONE, *SYSTEMS) if (FORMER.get(n, n) if former else n) in here)
        return cls(row, tuple(names), former)

    @property
    def exact(self) -> list[str]:
        """Systems without stale rows that ran."""
        return [name for name in self.names if name not in (ONE, DGC)]

    @property
    def twin(self) -> bool:
        """True if the data are synthetic."""
        return bool(self.row.data.get("twin"))

    @property
    def epochs(self) -> int:
        return number(self.row, "epochs")

    @property
    def title(self) -> str:
        """Model and dataset in words."""
        model = MODEL_TITLES[self.row.params["model"]]
        return f"{model} on {dataset_title(self.row.params['dataset'], self.twin)}"

    def curve(self, what: str, name: str) -> list[float]:
        """`loss`, `accuracy` or `epoch_time` of each epoch."""
        setting = FORMER.get(name, name) if self.former else name
        return Table.of([self.row]).where(what, setting=setting).values

    def title_of(self, name: str) -> str:
        """A system as figures name it."""
        return f"{SHOWN.get(name, name)}{', refined' if self.former and name in FORMER else ''}"

    def accuracy(self, name: str) -> float:
        """After the last epoch."""
        return self.curve("accuracy", name)[-1]

    def seconds(self, name: str) -> float:
        """Of all epochs, each as long as the median one."""
        return self.epochs * median(self.curve("epoch_time", name))

    def gain(self, slow: str, fast: str) -> Ratio:
        """Speedup of one system over another, from medians of their own epochs: each trained by
        itself, so that epochs do not pair."""
        tops, bottoms = (sorted(self.curve("epoch_time", name)) for name in (slow, fast))
        ratio = median_interval([math.log(a / b) for a in tops for b in bottoms])[0]
        (low, high), (least, most) = (median_interval(values)[1:] for values in (tops, bottoms))
        known = None not in (low, high, least, most)
        return Ratio(
            math.exp(ratio), low / most if known else None, high / least if known else None,
            len(tops), rows=[self.row.id],
        )  # fmt: skip

    def gaps(self, name: str) -> list[float]:
        """Relative gaps between a system's losses and those of one process, by epoch."""
        pairs = zip(self.curve("loss", name), self.curve("loss", ONE), strict=True)
        return [abs(a - b) / max(abs(b), 1e-30) for a, b in pairs]


COINCIDE: Final = 1e-3
"""Relative gap of two losses that no plot shows."""
SAME_POINTS: Final = 0.005
"""Gap of accuracies that no plot shows: half a point."""
SLIGHT: Final = 0.05
"""Accuracy that stale rows may cost and still be slightly lower: five points; Table 3 prints up to
3.6 for the adaptive threshold."""


def loss_gap(row: Any) -> float:
    """Largest relative gap of losses without stale rows to those of one process."""
    one = Trained.of(row)
    return max(gap for name in one.exact for gap in one.gaps(name))


def accuracy_gap(row: Any) -> float:
    """Largest gap of accuracies without stale rows to that of one process."""
    one = Trained.of(row)
    return max(abs(one.accuracy(name) - one.accuracy(ONE)) for name in one.exact)


def accuracy_drop(row: Any) -> float:
    """Accuracy that stale rows cost."""
    one = Trained.of(row)
    return one.accuracy(EXACT) - one.accuracy(DGC)


def stale_gains(context: EvaluationContext) -> Iterator[tuple[Mapping[str, Any], Estimate]]:
    """Epochs of the quickest system without stale rows over those with them, on real graphs."""
    for row in rows_of(context.rows, experiment=Fig18.name):
        one = Trained.of(row)
        if not one.twin:
            ratio = one.gain(min(one.exact, key=one.seconds), DGC)
            yield row.params, Estimate.of_ratio(ratio, [row])


PLACES = ("dataset", "model")
ALIKE = {"losses": (of_rows(loss_gap, per=PLACES), COINCIDE),
         "accuracies": (of_rows(accuracy_gap, per=PLACES), SAME_POINTS)}  # fmt: skip
"""Gaps of systems without stale rows to one process, and what no plot shows of them."""
DROP = of_rows(accuracy_drop, per=PLACES)


def curve_points(rows: Sequence[Any], of: str) -> list[dict[str, Any]]:
    """Points of `curves`: a line per system, a panel per model and graph. One process is the
    reference; it has the machine for itself, so that its seconds stand beside nothing."""
    points: list[dict[str, Any]] = []
    for one in map(Trained.of, rows_of(rows, experiment=Fig18.name)):
        goal = one.curve(of, ONE)[-1]
        for name in one.names:
            spent = list(accumulate(one.curve("epoch_time", name)))
            points += [
                {
                    "panel": one.title,
                    "series": one.title_of(name),
                    "x": epoch + 1,
                    "y": y,
                    "target": goal,
                    "row_ids": [one.row.id],
                }
                | ({"reference": True} if name == ONE else {"seconds": spent[epoch]})
                for epoch, y in enumerate(one.curve(of, name))
            ]
    return points + [
        gap(row, panel=MODEL_TITLES[row.params["model"]], series=SHOWN[DGC])
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
        snapshots = STEPS.get(preset, {}).get(dataset, kept(dataset, preset))
        task = task_of(dataset, model, preset, lr=LR, snapshots=snapshots)
        data = load_sequences(task)
        with one_thread():
            oracle = SequenceOracle(task, data, context.device)
        every = contenders()
        # Without fusion DGC trains the same, chunk by chunk, and for long.
        names = [n for n in SYSTEMS if n != PLAIN or preset == "paper"]
        chosen = {name: replace(every[name], transport="backend") for name in names}
        dealt = {n: deal(task, data, ranks, s, device=context.device) for n, s in chosen.items()}
        if self.controls(cell):
            chosen, dealt = ({**one, AGAIN: one[DGC]} for one in (chosen, dealt))
        trained = {ONE: _learn(PlainSequences(task, data, device=context.device), EPOCHS[preset])}
        before_ranks()
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
            checks.append(replicas_equal(answers, name))
            checks.append(edges.partition(dealt[name].placement, name))
        out = Measurement(
            deviation={"gradient": max(gaps)},
            data=describe(data),
            notes=[f"{ranks} processes of one machine over Gloo"],
            checks=summarised(checks),
        )
        if AGAIN in trained:
            sides = (trained[name].curve["epoch_time"] for name in (DGC, AGAIN))
            for pair in zip(*map(_fifths, sides), strict=True):
                observe_control(out, *([seconds] for seconds in pair), setting=DGC)
            del trained[AGAIN]
        for name, one in trained.items():
            for metric, line in one.curve.items():
                for epoch, value in enumerate(line):
                    out.observe(metric, value, setting=name, epoch=epoch)
        out.observe("epochs", EPOCHS[preset])
        return out


def _fifths(seconds: Sequence[float]) -> list[float]:
    """Medians of five runs of epochs: trainings follow each other, so that turns do not pair."""
    bounds = [len(seconds) * k // 5 for k in range(6)]
    return [median(seconds[a:b]) for a, b in pairwise(bounds) if b > a]


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """Training of one system.

    Attributes:
        output: of the untrained model.
        gradients: of the first epoch, which sends everything.
        curve: `loss` before each epoch, `accuracy` on what is held out after it, and its seconds.
    """

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
