"""A paper as a plugin: its ledger of claims, its experiments and its checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from dgbench.lab.experiment import Contender, Experiment
from dgbench.lab.judging import Read


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One quantitative statement of a paper, as kept in `claims.yaml`.

    Attributes:
        id, where, statement, kind, unit: what the paper says and where.
        value: the printed number, range or ordering.
        needs: `{gpus: int, cpu_only_ok: bool, real_dataset_required: bool}`.
        hardware: what the paper measured on, or None for exact quantities.
        subject, baseline, workload: what is compared on what.
        twin: `allowed`, `direction` (a twin supports a direction only) or `never`, with the
            reason in `twin_reason` for `never`.
        tolerance: relative tolerance that overrides the kind's default.
        bound: `upper` or `lower` where the printed number is a bound and not a value.
        device: `cpu` or `gpu` where the quantity was obtained there, whatever `needs.gpus` says
            of the machine, `both` where it compares the two; "" by `needs`.
        definition: why no measurement can decide it (a setting, an identity of arithmetic, a
            quotient of printed numbers, a number that the input was fitted to), or "".
        notes: our reading.
    """

    id: str
    where: str
    statement: str
    kind: str
    value: Any
    unit: str | None = None
    subject: str = ""
    baseline: str | None = None
    workload: dict[str, Any] = {}
    hardware: str | None = None
    needs: dict[str, Any] = {}
    twin: Literal["allowed", "direction", "never"] = "allowed"
    twin_reason: str = ""
    tolerance: float | None = None
    bound: Literal["", "upper", "lower"] = ""
    device: Literal["", "cpu", "gpu", "both"] = ""
    definition: str = ""
    notes: str = ""


@dataclass(slots=True)
class Finding:
    """Outcome of a check over the rows, before the harness turns it into a verdict.

    A finding says what was found and on which rows. How strong it is follows from the conditions
    under which the numbers that the check read were obtained (`lab.evidence`); what a check may
    say beside is that it found less than the claim's quantity: `model` or `proxy`.

    Attributes:
        measured: the measured value (float, mapping or words), or None when nothing was.
        holds: for orderings and exact statements, whether the statement holds; None otherwise.
        direction: whether the measured side agrees in sign with the paper; None if undefined.
        low, high: interval of a scalar `measured`, same unit as the claim.
        target: the paper's scalar that `measured` is compared with, if it is a number.
        rows: ids of the rows it rests on.
        reason: when nothing was measured, what it needs; otherwise a remark.
        deviation: largest relative deviation from the reference among the rows.
        undecided: what was measured lies inside its noise, so that it supports neither side;
            `reason` says which comparison is open.
        model: name of the model of another machine that the check computed with ("alpha-beta
            model"), or "".
        proxy: what was measured in place of the claim's quantity, or "".
        processes: pairs of processes that its ratios rest on; None: as many as its cells have.
        readings: findings under each reading that the paper leaves open, by its name; all other
            fields but `reason` are then unused.
        reads: numbers that a reading read, apart from those of others; None: all of the check.
    """

    measured: Any = None
    holds: bool | None = None
    direction: bool | None = None
    low: float | None = None
    high: float | None = None
    target: float | None = None
    rows: list[str] = field(default_factory=list)
    reason: str = ""
    deviation: float | None = None
    undecided: bool = False
    model: str = ""
    proxy: str = ""
    processes: int | None = None
    readings: dict[str, Finding] = field(default_factory=dict)
    reads: frozenset[Read] | None = None

    @property
    def empty(self) -> bool:
        """True if nothing was measured."""
        return self.measured is None and self.holds is None and not self.readings


Check = Callable[[Claim, Sequence[Any]], Finding]


@dataclass(frozen=True, slots=True)
class PapersGraphs:
    """The graphs that a paper uses; a number bound to its data is only weakly supported by others.

    Attributes:
        names: of the graphs.
        families: what the names of graphs of the paper's own generators begin with.
    """

    names: Collection[str]
    families: tuple[str, ...] = ()

    def __contains__(self, row: object) -> bool:
        """Return True if a row uses one of the paper's graphs, or names no dataset."""
        name = row.params.get("dataset")  # type: ignore[attr-defined]
        return name is None or self.has(name)

    def has(self, dataset: str) -> bool:
        """Return True if the dataset is one of the paper's."""
        return dataset in self.names or dataset.startswith(self.families)

    def of(self, rows: Iterable[Any]) -> list[Any]:
        """Rows that rest on the paper's graphs, or on none."""
        return [row for row in rows if row in self]


@dataclass(frozen=True, slots=True)
class Paper:
    """Everything the harness needs to know about one paper.

    Attributes:
        name, title, venue: `pipad`, "PiPAD", "PPoPP 2023".
        about: two sentences for a reader who has not read the paper.
        system: name of its system in the registry.
        ledger: path of `claims.yaml`; None where it makes no claims.
        experiments: its experiments, in the order of the paper.
        checks: claim id -> check. Every id of the ledger must be there.
        readings: sentences on how our reading differs from the paper.
        graphs: the datasets that the paper uses, by the names of their cards.
        contenders: settings that rows name like a system; figures, tables and the terminal call
            them by their titles.
        since: day (`2026-11-29`, UTC) since which its contenders compute what they compute today;
            runs that began earlier are left out of sites of several runs. "" shows all.
    """

    name: str
    title: str
    venue: str
    about: str
    system: str
    ledger: Path | None
    experiments: tuple[Experiment, ...]
    checks: Mapping[str, Check]
    readings: tuple[str, ...] = ()
    graphs: PapersGraphs | None = None
    contenders: Mapping[str, Contender] = field(default_factory=dict)
    since: str = ""
