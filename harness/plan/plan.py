"""Plans: which processes run, in which order, and which never start."""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgbench.datasets.first_use import DatasetSource
from dgbench.harness.plan.own_data import OwnData, on_dataset
from dgbench.harness.plan.presets import PRESETS, RoundsRule, preset_info
from dgbench.harness.store.row import Row
from dgbench.lab.compare import CONTROL
from dgbench.lab.experiment import SPEED_PRESETS, Cell, Experiment
from dgbench.lab.noise import MIN_PAIRS
from dgbench.lab.paper import Paper
from dgbench.runtime.errors import InvalidInputError, StoreError, UnsupportedError, unknown_key

if TYPE_CHECKING:
    from dgbench.harness.store import Store

TIMED = 3
"""Cells with this many rounds or more are timed; only they get an A/A control."""

_GPU = re.compile(r"\b(GPUs?|CUDA|NVML|NVLink)\b")
"""Words in a reason that mean a missing device."""
MAX_REPEATS = 10_000
"""Rounds of a cell; a claim asks for five to ten."""
MAX_SECONDS = 1e9
PROCESS_S = 0.01
"""Seconds from the end of a process to the start of the next, which no row counts: 4 to 14 ms in
1,080 processes of five papers on two quiet cores."""
_UNKNOWN_S = 0.9
"""Cost of a process that has never run, beyond its budget, s: 886 processes of all papers at quick,
on two cores with data that were prepared on the way, took 1.04 s each."""
_UNKNOWN_CUDA_S = 1.9
"""The same on a device, which each process opens anew: 1.5 to 2.5 s in three runs on an H200."""

NOISE_PAIRS = (5, 21)
"""Fewest and most pairs for the noise floor where not every paper of a run has a control: of 21
the floor holds 95 % and leaves one out, so that no single visit of a neighbour decides it."""
STEPS_A_PAIR = 12
"""Between fewest and most, a pair for so many processes of the plan."""
NOISE_S = 0.4
"""Seconds of a process of a pair until one has run."""

GroupKey = tuple[str, str, str]
"""Paper, experiment and group of cells that run interleaved."""


class PlannedCell(msgspec.Struct, kw_only=True):
    """A cell with what is known of it before it runs.

    Attributes:
        cell: as the experiment gave it; a control has `params["control"] = "aa"` added.
        hash: content hash, 16 hex digits.
        status, reason: set where the cell will not start (`no-gpu`, `skipped` ...).
        estimate_s: seconds one process should take. known: whether an earlier run says so.
        stated: whether its experiment says so (`Experiment.expected_seconds`).
        data: `real` or `twin`, "" where its parameters name no dataset.
        stages: rounds after which its group is looked at, to decide whether it needs more; none
            where its rounds are fixed, None until that is settled (`harness.plan.rounds`).
        paired: whether its own turns give A/A pairs, one a round (`Experiment.controls`).
        again: (round, disturbed round that it repeats) of its group, or None.
    """

    cell: Cell
    hash: str
    status: str = ""
    reason: str = ""
    estimate_s: float = 0.0
    known: bool = False
    stated: bool = False
    data: str = ""
    stages: list[int] | None = None
    paired: bool = False
    again: tuple[int, int] | None = None

    @property
    def control(self) -> bool:
        """True if it is the second A of an A/A pair."""
        return CONTROL in self.cell.params


class PlannedProcess(msgspec.Struct, frozen=True):
    """One process to start: a cell (index into `Plan.cells`), a round from 1, instrumented."""

    index: int
    round: int
    instrumented: bool = False


class Plan(msgspec.Struct, kw_only=True):
    """Everything a run will do.

    Attributes:
        preset, device: for all cells.
        cells: in the order of papers and experiments; those with a `status` do not start.
        budget_s: steady seconds one process aims for.
        problems: sentences about experiments that could not say their cells.
        sources: where each dataset comes from, once it is settled (`harness.plan.sources`).
        own_data: the dataset of the user's that all cells run on, or None.
        rounds: when rounds are added to those that cells ask for; None never.
    """

    preset: str
    device: str
    cells: list[PlannedCell]
    budget_s: float = 1.0
    problems: list[str] = []
    sources: list[DatasetSource] = []
    own_data: OwnData | None = None
    rounds: RoundsRule | None = None

    @classmethod
    def build(
        cls,
        papers: Iterable[Paper],
        experiments: Sequence[str] | None = None,
        preset: str = "quick",
        device: str = "cpu",
        *,
        last: Iterable[Row] = (),
        elsewhere: Iterable[Row] = (),
        control: str | None = None,
        gpus: int | None = None,
        own_data: OwnData | None = None,
        rounds: RoundsRule | None = None,
    ) -> Plan:
        """Ask experiments for their cells and order them.

        Args:
            papers: loaded papers. experiments: names to keep, `fig10` or `pipad/fig10`; None or
                an empty list keeps all.
            preset, device: `device` is `cpu` or `cuda`.
            last: rows of earlier runs of this machine, for estimates. elsewhere: rows of other
                machines, for cells that have none of this one.
            control: `none`, `paper` or `experiment`; None takes the preset's.
            gpus: GPUs here, None to look.
            own_data: runs experiments on this dataset in the place of their own graphs.
            rounds: when rounds are added to those that cells ask for; None never.

        Raises:
            UnknownKeyError: a preset or an experiment is not known.
            InvalidInputError: the device is neither `cpu` nor `cuda`.
        """
        info = preset_info(preset)
        if device not in ("cpu", "cuda"):
            raise InvalidInputError(f"'device' is '{device}', allowed: cpu, cuda")
        papers = list(papers)
        chosen = _choose(papers, experiments or ())
        having = {
            name: [one for one in some if preset in getattr(one, "presets", SPEED_PRESETS)]
            for name, some in chosen.items()
        }
        if any(chosen.values()) and not any(having.values()):
            raise InvalidInputError(
                f"no experiment that was chosen has a preset '{preset}'",
                hint="take another preset, or an experiment called 'quality'",
            )
        plan = cls(
            preset=preset, device=device, cells=[], budget_s=info.budget_s, own_data=own_data,
            rounds=rounds,
        )  # fmt: skip
        if experiments:  # those that were named; of whole papers the others are left out
            plan.problems += [
                f"{name}/{one.name} has no preset '{preset}'"
                for name, some in chosen.items()
                for one in some
                if one not in having[name]
            ]
        control = info.control if control is None else control
        if device == "cuda" and gpus is None:
            from dgbench.harness.machine.facts import gpu_count

            gpus = gpu_count()
        for paper in papers:
            every = [(one, plan._cells_of(paper, one)) for one in having[paper.name]]
            twins = [_control_for(cells) for _, cells in every]
            if control != "experiment":
                kept = _controlled([one for one, _ in every], twins) if control == "paper" else None
                twins = [twin if place == kept else None for place, twin in enumerate(twins)]
            for (one, cells), twin in zip(every, twins, strict=True):
                if twin is not None:
                    cells.insert(cells.index(twin[0]) + 1, twin[1])
                plan.cells.extend(plan._planned(cell, gpus, one) for cell in cells)
        plan._refuse_twice()
        plan._estimate(list(last), list(elsewhere))
        return plan

    @property
    def steps(self) -> list[PlannedProcess]:
        """Processes in order: of a paper round 1 of all groups, then round 2 ...

        Contenders of a group follow each other, every second round backwards (A B, B A, A B): a
        machine that steadily slows down then favours each side in turn. Rounds of a group are far
        apart, so that its interval holds what the machine does over minutes, too. Instrumented
        processes follow the last round of their group.
        """
        return list(self._steps())

    @property
    def runnable(self) -> list[PlannedCell]:
        """Cells that will start."""
        return [c for c in self.cells if not c.status]

    @property
    def on_cpu(self) -> int:
        """Cells that will start on the CPU though a device was asked for."""
        return sum(c.cell.device == "cpu" != self.device for c in self.runnable)

    @property
    def controlled(self) -> bool:
        """True if every experiment with cells that will start has enough A/A pairs of its own, or
        its paper has an A/A control among them."""
        pairs: dict[tuple[str, str], int] = defaultdict(int)
        for planned in self.runnable:
            cell = planned.cell
            pairs[cell.paper, cell.experiment] += cell.repeats if planned.paired else 0
        lacking = {paper for (paper, _), count in pairs.items() if count < MIN_PAIRS}
        return lacking <= {planned.cell.paper for planned in self.runnable if planned.control}

    @property
    def noise_pairs(self) -> int:
        """A/A pairs that a run adds for its noise floor: none where its papers have their own."""
        if PRESETS[self.preset].control == "none" or self.controlled or not self.runnable:
            return 0
        least, most = NOISE_PAIRS
        return min(most, max(least, len(self.steps) // STEPS_A_PAIR))

    @property
    def seconds(self) -> float:
        """Estimated seconds of the whole run, with its noise pairs."""
        own = 2 * self.noise_pairs * NOISE_S
        return own + sum(self.cells[step.index].estimate_s for step in self.steps)

    @property
    def pairs(self) -> int:
        """Most rounds of any cell."""
        return max((c.cell.repeats for c in self.runnable), default=0)

    @property
    def fault(self) -> str:
        """Why it is none that `build` can have made, or ""."""
        if self.preset not in PRESETS or self.device not in ("cpu", "cuda"):
            return f"preset '{self.preset}' or device '{self.device}' is not known"
        for planned in self.cells:
            cell = planned.cell
            name = f"{cell.paper}/{cell.experiment} {cell.params}"
            if planned.hash != cell_hash(cell, self.preset, self.device):
                return f"{name} has the hash of another cell"
            if cell.repeats > MAX_REPEATS:
                return f"{name} asks for {cell.repeats} rounds, at most {MAX_REPEATS} are allowed"
            if not 0 <= planned.estimate_s <= MAX_SECONDS or not cell.timeout_s > 0:
                return f"{name} has a time that is none"
        return ""

    def _steps(self) -> Iterator[PlannedProcess]:
        papers: dict[str, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
        for index, planned in enumerate(self.cells):
            if not planned.status:
                cell = planned.cell
                papers[cell.paper][cell.experiment, cell.group].append(index)
        for groups in papers.values():
            rounds = {g: self._most(members) for g, members in groups.items()}
            for number in range(1, max(rounds.values()) + 1):
                for group, members in groups.items():
                    yield from self._round(members, number, last=number == rounds[group])

    def group_of(self, step: PlannedProcess) -> GroupKey:
        """The group whose cells are interleaved with a step's cell."""
        cell = self.cells[step.index].cell
        return cell.paper, cell.experiment, cell.group

    def _most(self, members: Sequence[int]) -> int:
        """Rounds of the cell that has most of them."""
        return max(self.cells[i].cell.repeats for i in members)

    def _round(
        self, members: Sequence[int], number: int, *, last: bool
    ) -> Iterator[PlannedProcess]:
        """One round of a group, and what follows its last one."""
        for index in members if number % 2 else members[::-1]:
            if number <= self.cells[index].cell.repeats:
                yield PlannedProcess(index, number)
        for index in members if last else ():
            if self.cells[index].cell.phases and not self.cells[index].control:
                yield PlannedProcess(index, 1, instrumented=True)

    def _cells_of(self, paper: Paper, experiment: Experiment) -> list[Cell]:
        try:
            cells = list(experiment.cells(self.preset, self.device))
            if experiment.device:
                replace = msgspec.structs.replace
                cells = [replace(cell, device=experiment.device) for cell in cells]
            return on_dataset(experiment, cells, self.own_data) if self.own_data else cells
        except UnsupportedError as error:
            self.problems.append(str(error))
            return []
        except Exception as error:  # a plugin may fail in any way; the others still run
            self.problems.append(
                f"{paper.name}/{experiment.name} cannot say its cells: "
                f"{type(error).__name__}: {error}"
            )
            return []

    def _planned(self, cell: Cell, gpus: int | None, experiment: Experiment) -> PlannedCell:
        planned = PlannedCell(cell=cell, hash=cell_hash(cell, self.preset, self.device))
        planned.estimate_s = experiment.expected_seconds(cell, self.preset)
        planned.stated = planned.estimate_s > 0
        planned.paired = cell.interleaved and experiment.controls(cell)
        if self.device == "cuda" and not gpus:
            planned.status, planned.reason = "no-gpu", "no NVIDIA GPU was found here"
        elif cell.unavailable:
            needs_gpu = self.device == "cpu" and _GPU.search(cell.unavailable)
            planned.status = "no-gpu" if needs_gpu else "skipped"
            planned.reason = cell.unavailable
        elif cell.repeats < 1:
            planned.status, planned.reason = "skipped", "it asks for no rounds"
        return planned

    def _refuse_twice(self) -> None:
        seen: set[str] = set()
        kept = []
        for planned in self.cells:
            if planned.hash in seen:
                cell = planned.cell
                self.problems.append(
                    f"{cell.paper}/{cell.experiment} names the cell {cell.params} twice in group "
                    f"'{cell.group}'; it runs once"
                )
                continue
            seen.add(planned.hash)
            kept.append(planned)
        self.cells = kept

    def _estimate(self, last: list[Row], elsewhere: list[Row]) -> None:
        here, there = self._seconds_of(last), self._seconds_of(elsewhere)
        for planned in self.cells:
            cell = planned.cell
            device = cell.device or self.device
            name = cell.paper, cell.experiment, device
            planned.known = planned.hash in here
            seconds = next(
                (times[key] for key in (planned.hash, name) for times in (here, there)
                 if key in times), None
            )  # fmt: skip
            if seconds is None and planned.estimate_s > 0:
                seconds = planned.estimate_s
            if seconds is not None:
                planned.estimate_s = min(cell.timeout_s, seconds + PROCESS_S)
            else:
                start_s = _UNKNOWN_CUDA_S if device == "cuda" else _UNKNOWN_S
                planned.estimate_s = min(cell.timeout_s, self.budget_s + start_s)

    def _seconds_of(self, rows: list[Row]) -> dict[Any, float]:
        """Median seconds of a process by cell hash, and by experiment and device asked for."""
        times: dict[Any, list[float]] = defaultdict(list)
        for row in rows:
            if row.preset == self.preset and row.seconds > 0:
                times[row.cell_hash].append(row.seconds)
                times[row.paper, row.experiment, row.asked].append(row.seconds)
        return {key: statistics.median(found) for key, found in times.items()}


def read_plan(store: Store) -> Plan:
    """The plan that a run was started with.

    Raises:
        StoreError: there is none, or it is not one that `Plan.build` can have made.
    """
    try:
        plan = msgspec.convert(store.read_plan(), Plan)
    except msgspec.ValidationError as error:
        fault = str(error)
    else:
        fault = plan.fault
    if fault:
        raise StoreError(
            f"the plan of run {store.run} cannot be read: {fault}", hint="start a new run"
        )
    return plan


def cell_hash(cell: Cell, preset: str, device: str) -> str:
    """Content hash of what a cell measures: where it belongs, params, preset and device.

    Rounds, limits and the code's version are left out: more rounds of a cell are the same cell,
    and the version is in each row's provenance. A cell of the CPU is the same for every device.
    """
    content: dict[str, Any] = {
        "paper": cell.paper,
        "experiment": cell.experiment,
        "params": cell.params,
        "group": cell.group,
        "preset": preset,
        "device": cell.device or device,
    }
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]


def _choose(papers: list[Paper], names: Sequence[str]) -> dict[str, list[Experiment]]:
    known = {f"{p.name}/{e.name}": (p.name, e.name) for p in papers for e in p.experiments}
    wanted: set[tuple[str, str]] = set()
    for name in names:
        hits = [key for full, key in known.items() if name in (full, key[1])]
        if not hits:
            raise unknown_key("experiment", name, known)
        wanted.update(hits)
    return {
        p.name: [e for e in p.experiments if not names or (p.name, e.name) in wanted]
        for p in papers
    }


def _controlled(
    experiments: Sequence[Experiment], twins: Sequence[tuple[Cell, Cell] | None]
) -> int | None:
    """Place of the experiment that has a paper's control: its main race, or None where that has no
    time of its own: another's would say nothing of it (`lab.noise`). Without a main race the first.
    """
    races = [k for k, one in enumerate(experiments) if getattr(one, "main_race", None) is not None]
    places = races or range(len(twins))
    return next((place for place in places if twins[place] is not None), None)


def _control_for(cells: list[Cell]) -> tuple[Cell, Cell] | None:
    """The cell that gets a control and its copy: the first timed one of the group with the most
    contenders, which is a race; cells alone in their group may have no time of their own."""
    timed = [c for c in cells if c.repeats >= TIMED and not c.interleaved]
    if not timed:
        return None
    sizes: dict[str, int] = defaultdict(int)
    for cell in timed:
        sizes[cell.group] += 1
    first = max(timed, key=lambda cell: sizes[cell.group])
    params = {**first.params, CONTROL: "aa"}
    return first, msgspec.structs.replace(first, params=params, phases=False)
