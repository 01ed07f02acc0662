"""The main race of a paper: its system against its baselines, workload by workload.

An experiment declares it as data (`Experiment.main_race`); the harness forms the ratios and says
in words what came out (`harness.terminal.answer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgbench.lab.compare import Ratio, paired, ratio_of
from dgbench.lab.quality import QualityReader
from dgbench.lab.table import Table

RatioReader = Callable[[Sequence[Any], Mapping[str, str]], Ratio | None]
"""(rows of a workload, the workload) -> time of the rival over time of the subject, or None where
the two did not both run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceComparison:
    """Subject against rival in a main race.

    Attributes:
        subject, rival: their titles, each with what it is where it is no release: "PiPAD",
            "DyGNN (re-implemented, strict order)".
        ratio: how many times faster the subject is.
        package: distribution of a released rival; its version is that of the run.
        rival_without: title of the rival where the run had no such distribution.
        systems: param `system` of the subject's and of the rival's cells, where each has its own.
        verb: what is timed, where that is not what the race times.
        fairer: whether the rival may use what the paper's baseline may not (or the subject goes
            without something); the headline factor alone would mislead.
        quality: reader of how well the subject's model predicts, from all rows of its paper; None
            where the race trains nothing whose quality is measured.
    """

    subject: str
    rival: str
    ratio: RatioReader
    package: str = ""
    rival_without: str = ""
    systems: tuple[str, str] | None = None
    verb: str = ""
    fairer: bool = False
    quality: QualityReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainRace:
    """A race that answers how much faster a paper's system is.

    Attributes:
        verb: what is timed: "trains", "trains an epoch".
        comparisons: headline baselines first.
        dims: params that name a workload, the dataset first. Where a cell races several values of
            a dim, its param has the plural name and the values stand in it, split by spaces.
        where: params that all cells of the race have; a tuple allows each of its values.
        checks: params of cells that only compare, in runs of earlier versions; empty without.
        titles: of values of dims; others are shown as they are.
    """

    verb: str
    comparisons: tuple[RaceComparison, ...]
    dims: tuple[str, ...] = ("dataset", "model")
    where: Mapping[str, Any] = field(default_factory=dict)
    checks: Mapping[str, Any] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)

    def workloads(self, params: Mapping[str, Any]) -> list[dict[str, str]]:
        """Workloads of a cell with these params; none if it is no part of the race."""
        for key, allowed in self.where.items():
            if params.get(key) not in (allowed if isinstance(allowed, tuple) else (allowed,)):
                return []
        found: list[dict[str, str]] = [{}]
        for dim in self.dims:
            values = [params[dim]] if dim in params else str(params.get(f"{dim}s", "")).split()
            found = [{**one, dim: str(value)} for one in found for value in values]
        return found

    def is_check(self, params: Mapping[str, Any]) -> bool:
        """Return True if such a cell is compared with the reference instead of timed."""
        return bool(self.checks) and all(params.get(k) == v for k, v in self.checks.items())


def paired_systems(rival: str, subject: str, metric: str = "step_time") -> RatioReader:
    """Reader of ratios between processes of two systems, paired by round."""

    def read(rows: Sequence[Any], workload: Mapping[str, str]) -> Ratio | None:
        return paired(rows, {"system": rival, **workload}, {"system": subject, **workload}, metric)

    return read


def observed_ratio(metric: str = "speedup", **dims: Any) -> RatioReader:
    """Reader of a ratio that each process formed over its turns."""

    def read(rows: Sequence[Any], workload: Mapping[str, str]) -> Ratio | None:
        return ratio_of(Table.of(rows).where(metric, **dims))

    return read
