"""Helpers of the experiments on accuracy: their sizes, and differences with their errors.

GDELT is not held and a twin may not decide an accuracy, so held graphs stand in. A run is cut down
by the number of events and by widths; batches shrink along, so that a round has several of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Final

from dgbench.lab.grid import Grid
from dgbench.lab.table import Table
from dgbench.runtime.statistics import t_quantile
from dgbench.runtime.threads import threads
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, SETTINGS, workload

if TYPE_CHECKING:
    from dgbench.systems.base.stream import StreamData, StreamWorkload

READING: Final = (
    "GDELT is not held and a twin may decide no accuracy: real graphs stand in. Their features are "
    "drawn, so ids and times are all that a model can learn from. Learning rate 1e-3 where streams "
    "are cut short. A round is an equal share of the events after the first 30 %. Intervals are "
    "over seeds, each with one mean over its rounds."
)


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


class AccuracyRun(Grid):
    """Contenders that go on from one trained model and take turns on every round.

    Attributes:
        sizes: by preset.
    """

    paper = "gnnflow"
    group = "{dataset}/{model}/{seed}"
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 120, "full": 3600, "paper": 36000}
    sizes: ClassVar[Mapping[Preset, StreamLimits]]

    def points(self, preset: Preset, device: str) -> Iterator[dict[str, Any]]:
        size = self.sizes[preset]
        for name, model in product(size.graphs, size.events):
            for seed in range(1, size.seeds + 1):
                yield {"dataset": name, "model": model, "seed": seed}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        size = self.sizes[context.preset]
        task = task_of(size=size, preset=context.preset, **cell.params)  # type: ignore[arg-type]
        with threads(size.threads or context.threads):
            return self.train(task, size, context)

    def train(self, task: StreamWorkload, size: StreamLimits, context: RunContext) -> Measurement:
        """Train and score all contenders."""
        raise NotImplementedError


def observe_stream(
    found: Measurement, task: StreamWorkload, data: StreamData, rounds: Sequence[Any]
) -> None:
    """Observe how long a stream is and how it is cut."""
    found.observe("rounds", len(rounds))
    found.observe("events", len(data.events))
    found.observe("events", rounds[0].events, of="round")
    found.observe("batch_size", task.batch)


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A mean of paired differences, in points of average precision.

    Attributes:
        value: the mean; error: its standard error, infinite for a single seed.
        n: seeds of the graph that has the fewest. level: coverage of the interval.
    """

    value: float
    error: float
    n: int
    level: float = 0.95

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.value - self._half()

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.value + self._half()

    @property
    def side(self) -> int:
        """1 or -1 where the whole interval lies above or below 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.value:+.2f} (one seed)"
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"

    def _half(self) -> float:
        return math.inf if self.n < 2 else t_quantile(self.n - 1, self.level) * self.error


def difference(high: Sequence[float], low: Sequence[float]) -> float:
    """Mean of average precisions of the same rounds, `high` minus `low`, in points."""
    gaps = [100 * (a - b) for a, b in zip(high, low, strict=True)]
    return sum(gaps) / len(gaps)


def over_seeds(
    rows: Sequence[Any], means: Sequence[float], level: float = 0.95
) -> PairedDifference:
    """The mean over graphs of their means over seeds; the unit of its error is the seed.

    Rounds of one seed share the model that goes on from round to round, so that their spread says
    nothing of another seed.

    Args:
        rows: of seeds and graphs. means: the difference that each shows. level: coverage.
    """
    graphs: dict[Any, list[float]] = {}
    for row, value in zip(rows, means, strict=True):
        graphs.setdefault(row.params["dataset"], []).append(value)
    middles = {name: sum(values) / len(values) for name, values in graphs.items()}
    value = sum(middles.values()) / len(middles)
    n = min(map(len, graphs.values()))
    if n < 2:
        return PairedDifference(value, math.inf, n, level)
    variance = sum(
        sum((one - middles[name]) ** 2 for one in values) / (len(values) - 1) / len(values)
        for name, values in graphs.items()
    )
    return PairedDifference(value, math.sqrt(variance) / len(graphs), n, level)


def series(row: Any, **which: Any) -> list[float]:
    """Average precisions of a contender, round by round."""
    return Table.of([row]).where("average_precision", **which).values


def observe_series(found: Measurement, values: Sequence[float], **which: Any) -> None:
    """Add what `series` reads."""
    for number, value in enumerate(values):
        found.observe("average_precision", value, round=number, **which)
