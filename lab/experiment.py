"""Experiments: one figure, table or section of a paper as a matrix of cells.

An experiment lives in its system's folder. It only says what to run and what to draw; the
harness decides when, in which process, how often, and keeps the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec

from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation, observation
from dgbench.runtime.meter import Meter

if TYPE_CHECKING:
    from dgbench.lab.arena import ArenaRace, ArenaTask, Division
    from dgbench.lab.main_race import MainRace
    from dgbench.lab.metrics import Source

Preset = Literal["smoke", "quick", "full", "paper", "quality"]
SPEED_PRESETS: Final[tuple[Preset, ...]] = ("smoke", "quick", "full", "paper")
"""Presets of all experiments; `quality` is one of those that train whole."""
Scalar = str | int | float | bool | None


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point of an experiment's matrix.

    Attributes:
        paper, experiment: where it belongs (`pipad`, `fig10`).
        params: what identifies the point, JSON scalars only; includes `system` and `dataset`
            where they apply. The content hash covers all of it.
        group: cells of one group are contenders; the harness runs them interleaved, one
            process of each per round, so that ratios are formed inside a round.
        repeats: rounds to run (1 for exact counts, at least 5 for a timed claim).
        timeout_s: wall-clock limit of one process, seconds.
        memory_bytes: limit of the process tree's resident memory, or None.
        phases: whether to run it once more, instrumented, after its timed rounds. That process
            has `context.instrumented` set and a row of its own, which no ratio uses.
        interleaved: whether its settings take turns inside each process. Such a cell has
            ratios and no time of its own, so no A/A control is made of it.
        device: `cpu` where it measures or counts on the host whatever device a run is asked for;
            it is then planned, stamped and judged as a cell of the CPU. "" elsewhere.
        unavailable: why it cannot run on the device asked for, or "". Such a cell becomes a row
            with this reason and costs no process; its status is `no-gpu` where a run on the CPU
            is told of a GPU, else `skipped`.
    """

    paper: str
    experiment: str
    params: dict[str, Scalar]
    group: str
    repeats: int = 1
    timeout_s: float = 60.0
    memory_bytes: int | None = None
    phases: bool = False
    interleaved: bool = msgspec.field(default=False, name="turns")  # its name in stored plans
    device: Literal["", "cpu"] = ""
    unavailable: str = ""


class Measurement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Result of one process of a cell.

    Attributes:
        observations: what was measured, number by number, see `observe`.
        warmup: iterations dropped by the warm-up rule.
        deviation: largest relative deviations from the reference (`loss`, `output`, `gradient`,
            `parameters`), or empty where nothing was compared.
        data: what data was used: `{"dataset": ..., "twin": bool, "scale": ..., "note": ...}`.
        notes: sentences a reader of the row must know.
        checks: comparisons of what was measured with an independent reference. A row decides
            nothing where neither it nor another row of its cell has one that passed.
    """

    observations: list[Observation] = []
    warmup: int = 0
    deviation: dict[str, float] = {}
    data: dict[str, Any] = {}
    notes: list[str] = []
    checks: list[ResultCheck] = []

    def observe(
        self,
        metric: str,
        value: float | int,
        *,
        low: float | None = None,
        high: float | None = None,
        samples: Sequence[float] = (),
        **dims: Any,
    ) -> None:
        """Add a number.

        Args:
            metric: registered name of what it is (`lab.metrics`).
            value: the number in the unit of its kind: s, B, 1/s, a share as a fraction of 1.
            low, high: interval of a ratio that was formed over turns inside this process.
            samples: seconds of each turn or iteration; `value` is then their median.
            dims: what it is of, beyond the params of the cell.

        Raises:
            UnknownKeyError: an unknown metric or dimension; the nearest ones are named.
            InvalidInputError: a value of another type than the metric or the dimension has.
        """
        found = observation(metric, value, low=low, high=high, samples=samples, **dims)
        self.observations.append(found)

    @property
    def steady(self) -> list[float]:
        """Seconds of each iteration of what the process was started to time; empty without."""
        return next((o.samples for o in self.observations if o.samples and not o.dims), [])

    @property
    def seconds_by_phase(self) -> dict[str, float]:
        """Seconds of an instrumented process by phase."""
        return {o.dims["phase"]: o.value for o in self.observations if o.metric == "phase_time"}


@dataclass(slots=True)
class RunContext:
    """Arguments of a running cell, passed by the harness inside the cell's own process.

    Attributes:
        device: `cpu` or `cuda`.
        preset: the preset of this run.
        threads: intra-op threads torch is set to.
        instrumented: True in the second, timed-phases process of a cell.
        meter: where counters and phases go.
        budget_s: seconds this process should aim for (not the hard limit).
        round: which process of the cell this is; 1 until one of them has compared its result, so
            that the others need not.
        control: whether the race of this cell has an A/A pair, where an experiment that runs
            another's race decides it; None: what the race itself declares.
    """

    device: str
    preset: Preset
    threads: int
    instrumented: bool = False
    meter: Meter = field(default_factory=Meter)
    budget_s: float = 1.0
    round: int = 1
    control: bool | None = None


@dataclass(frozen=True, slots=True)
class Contender:
    """System, title and ablation switch behind a name in a figure that is not a registered
    system's.

    Attributes:
        system: registered name of the system that it is a form or a setting of.
        title: what people read; the name itself where it is "".
        switch: of an ablation's step, the technique of the system that is switched on.
    """

    system: str
    title: str = ""
    switch: str = ""


@dataclass(frozen=True, slots=True)
class FigureSpec:
    """A figure as data. `harness.figures` draws it; systems never import matplotlib.

    Attributes:
        kind: `speedup`, `time_split`, `ablation`, `sweep`, `scaling`, `frontier`, `correctness`,
            `curves`, `limit_share`, `over_time`, `paper_vs_measured` or `failed_cells`; what each
            of them needs is in `docs/figures.md`.
        name: file stem (`fig10`).
        title: heading on the page.
        points: rows -> list of flat dicts, one per drawn mark; each kind documents its keys.
        options: kind-specific options (axis labels, baseline name, ...).
        contenders: what names of systems, baselines and steps in its points stand for. A name that
            is not here is a system's own, or a setting of the paper's system.
    """

    kind: str
    name: str
    title: str
    points: Callable[[Sequence[Any]], list[dict[str, Any]]]
    options: Mapping[str, Any] = field(default_factory=dict)
    contenders: Mapping[str, Contender] = field(default_factory=dict)


class Experiment(ABC):
    """One figure, table or section of a paper."""

    paper: ClassVar[str]
    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    claims: ClassVar[tuple[str, ...]] = ()
    reading: ClassVar[str] = ""  # how our reading differs from the paper, shown on the page
    main_race: ClassVar[MainRace | None] = None  # where it tells how much faster the system is
    arena_task: ClassVar[ArenaTask | None] = None  # the task of the arena that it runs
    device: ClassVar[Literal["", "cpu"]] = ""  # `cpu`: all of its cells, see `Cell.device`
    sources: ClassVar[Mapping[str, Source]] = {}  # metric -> how it is obtained, see `lab.metrics`
    presets: ClassVar[tuple[Preset, ...]] = SPEED_PRESETS  # those that it has cells of
    control: ClassVar[Mapping[str, Scalar] | None] = None  # params of cells that race themselves
    own_data: ClassVar[str] = ""  # why it cannot run on a dataset of the user's; "" if it can

    @abstractmethod
    def cells(self, preset: Preset, device: str) -> list[Cell]:
        """The cells of this experiment for a preset and device. Must be cheap and load no data."""

    @abstractmethod
    def run(self, cell: Cell, context: RunContext) -> Measurement:
        """Run one cell in this process. Raise `UnsupportedError` for what cannot run here."""

    def expected_seconds(self, cell: Cell, preset: Preset) -> float:
        """Seconds that a process of a cell takes where no earlier run says so; 0: not known."""
        return 0.0

    def controls(self, cell: Cell, context: RunContext | None = None) -> bool:
        """Return True if the first contender of an interleaved cell takes turns with itself, too:
        an A/A pair of this very race (`lab.noise`). One cheap cell of a race is enough.

        Args:
            cell: of this experiment. context: of a race that another experiment may run: what that
                one says holds.
        """
        if context is not None and context.control is not None:
            return context.control
        if self.control is None:
            return False
        return all(cell.params.get(name) == value for name, value in self.control.items())

    def cell_of(self, params: Mapping[str, Scalar], group: str, **fields: Any) -> Cell:
        """A cell of this experiment; `fields` are those of `Cell`."""
        params = dict(params)
        return Cell(paper=self.paper, experiment=self.name, params=params, group=group, **fields)

    def figures(self) -> list[FigureSpec]:
        """Figures of this experiment. Default: none."""
        return []

    def races(
        self,
        rows: Sequence[Any],
        floor: float = 0.0,
        *,
        with_ours: bool = False,
        division: Division = "base",
    ) -> list[ArenaRace]:
        """Races of its task of the arena that have rows in a division, with this noise floor.
        Default: none."""
        return []

    def answer(self, rows: Sequence[Any]) -> str:
        """One sentence that answers `question` from rows, or "" if nothing ran."""
        return ""
