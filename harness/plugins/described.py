"""Systems and papers of third parties as their own processes describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from dgbench.harness.plugins.process import PluginError, PluginProcess
from dgbench.harness.runner.readable import message, readable
from dgbench.lab.compare import Ratio
from dgbench.lab.experiment import (
    SPEED_PRESETS,
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
    Scalar,
)
from dgbench.lab.judging import current_floor
from dgbench.lab.main_race import MainRace, RaceComparison
from dgbench.lab.metrics import Source
from dgbench.lab.paper import Claim, Finding, Paper, PapersGraphs
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base.system import Technique

Title = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class DescribedSystem(msgspec.Struct, kw_only=True):
    """A third party's system without its code: what lists, pages and figures show of it.

    Attributes: those of `System`.
    """

    name: str = ""
    title: Title
    kind: Literal["paper", "baseline", "reference"]
    about: str = ""
    provenance: str = ""
    techniques: tuple[Technique, ...] = ()
    colour: Annotated[str, msgspec.Meta(pattern="^#[0-9A-Fa-f]{6}$")] | None = None
    marker: Annotated[str, msgspec.Meta(pattern="^[.,ov^<>12348spP*hH+xXDd|_]$")] | None = None
    process: PluginProcess | None = None

    def supports(self) -> list[dict[str, Any]]:
        """Support of every kind of workload, as its page shows it. Raises PluginError."""
        assert self.process is not None
        return _cleaned(self.process.ask("kinds of workload"))


class _Comparison(msgspec.Struct):
    subject: str
    rival: str
    package: str = ""
    rival_without: str = ""
    systems: tuple[str, str] | None = None
    verb: str = ""
    fairer: bool = False


class _RaceDescription(msgspec.Struct):
    verb: str
    comparisons: list[_Comparison]
    dims: tuple[str, ...]
    where: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    titles: dict[str, str] = {}


class _ExperimentFacts(msgspec.Struct):
    paper: str
    name: Title
    title: Title
    question: str
    claims: tuple[str, ...] = ()
    reading: str = ""
    device: Literal["", "cpu"] = ""
    presets: tuple[Preset, ...] = SPEED_PRESETS
    sources: dict[str, Source] = {}
    control: dict[str, Scalar] | None = None
    own_data: str = ""
    main_race: _RaceDescription | None = None


class _PaperFacts(msgspec.Struct):
    name: str
    title: Title
    venue: str
    about: str
    system: str
    ledger: str | None
    experiments: list[_ExperimentFacts]
    checks: list[str]
    readings: tuple[str, ...] = ()
    graphs: PapersGraphs | None = None
    contenders: dict[str, Contender] = {}


class _Figure(msgspec.Struct):
    kind: str
    name: Title
    title: str
    options: dict[str, Any] = {}
    contenders: dict[str, Contender] = {}


class DescribedExperiment(Experiment):
    """An experiment of a third party: its plugin's process says cells, figures and answers.

    Cells run in processes of their own, which import the plugin; `run` is never called here.
    """

    def __init__(self, facts: _ExperimentFacts, place: int, process: PluginProcess) -> None:
        """`place`: of the experiment in its paper."""
        for name in facts.__struct_fields__:
            setattr(self, name, getattr(facts, name))
        self.place, self.process = place, process
        race = _race(facts.main_race, self._ratio_reader) if facts.main_race else None
        setattr(self, "main_race", race)  # noqa: B010  (of this experiment, not of the class)

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        """Its cells; none may be another paper's or experiment's. Raises PluginError."""
        found = _read(self.process.ask("cells", self.place, preset, device), list[Cell])
        for cell in found:
            if (cell.paper, cell.experiment) != (self.paper, self.name):
                raise PluginError(f"it names a cell of {cell.paper}/{cell.experiment}")
        return found

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        """Raises DgbenchError: here is only the experiment's description."""
        raise DgbenchError(f"{self.paper}/{self.name} runs in its cells' own processes only")

    def figures(self) -> list[FigureSpec]:
        """Its figures, whose points are asked for. Raises PluginError."""
        found = _read(self.process.ask("figures", self.place), list[_Figure])
        return [
            FigureSpec(
                one.kind,
                one.name,
                one.title,
                self._points_reader(place),
                one.options,
                one.contenders,
            )
            for place, one in enumerate(found)
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        """Its sentence about rows. Raises PluginError."""
        return _read(self.process.ask("answer", self.place, rows=rows), str)

    def _points_reader(self, figure: int) -> Callable[[Sequence[Any]], list[dict[str, Any]]]:
        def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
            found = self.process.ask("points of a figure", self.place, figure, rows=rows)
            return _read(found, list[dict[str, Any]])

        return points

    def _ratio_reader(self, comparison: int) -> Any:
        def ratio(rows: Sequence[Any], workload: Mapping[str, str]) -> Ratio | None:
            asked = self.place, comparison, dict(workload)
            return _read(self.process.ask("ratio of a race", *asked, rows=rows), Ratio | None)

        return ratio


def describe_system(process: PluginProcess) -> DescribedSystem:
    """The description of a system. Raises PluginError where its process cannot give one."""
    found = process.ask("system description", describes=True)
    system = _read(found, DescribedSystem)
    system.name, system.process = process.name, process
    return system


def describe_paper(process: PluginProcess) -> Paper:
    """A paper whose cells, checks and figures ask its process.

    Raises:
        PluginError: its process cannot describe it, or it has another name than its entry point.
    """
    facts = _read(process.ask("paper description", describes=True), _PaperFacts)
    for name in (facts.name, *(one.paper for one in facts.experiments)):
        if name != process.name:
            raise PluginError(f"it names the paper '{name}', and its entry point '{process.name}'")
    return Paper(
        name=facts.name,
        title=facts.title,
        venue=facts.venue,
        about=facts.about,
        system=facts.system,
        ledger=Path(facts.ledger) if facts.ledger is not None else None,
        experiments=tuple(
            DescribedExperiment(one, place, process) for place, one in enumerate(facts.experiments)
        ),
        checks={name: _check(process) for name in facts.checks},
        readings=facts.readings,
        graphs=facts.graphs,
        contenders=facts.contenders,
    )


def _check(process: PluginProcess) -> Callable[[Claim, Sequence[Any]], Finding]:
    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        return _read(
            process.ask("finding of a claim", claim, current_floor(), rows=rows), Finding | None
        )

    return check


def _race(facts: _RaceDescription, reader: Callable[[int], Any]) -> MainRace:
    comparisons = tuple(
        RaceComparison(ratio=reader(place), **{f: getattr(one, f) for f in one.__struct_fields__})
        for place, one in enumerate(facts.comparisons)
    )
    return MainRace(
        verb=facts.verb,
        comparisons=comparisons,
        dims=facts.dims,
        where=_with_tuples(facts.where),
        checks=_with_tuples(facts.checks),
        titles=facts.titles,
    )


def _with_tuples(found: dict[str, Any]) -> dict[str, Any]:
    """A tuple of allowed values travels as a list."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in found.items()}


def _read(value: Any, kind: Any) -> Any:
    """A plain value as a type, its text fit for terminals and pages. Raises PluginError."""
    try:
        return msgspec.convert(_cleaned(value), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PluginError(f"what it says is not what is asked for: {message(error)}") from None


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_cleaned(one) for one in value]
    return value
