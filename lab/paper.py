"""A paper as a plugin: its ledger of claims, its experiments and its checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from dgbench.lab.experiment import Experiment

Evidence = Literal["measured", "analogue", "counted", "projected"]


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
    notes: str = ""


@dataclass(slots=True)
class Finding:
    """Outcome of a check over the rows, before the harness turns it into a verdict.

    Attributes:
        measured: the measured value (float, mapping or words), or None when nothing was.
        holds: for orderings and exact statements, whether the statement holds; None otherwise.
        direction: whether the measured side agrees in sign with the paper; None if undefined.
        low, high: interval of a scalar `measured`, same unit as the claim.
        target: the paper's scalar that `measured` is compared with, if it is a number.
        evidence: how strong the evidence is.
        twin: whether any of the rows used a twin.
        rows: ids of the rows it rests on.
        reason: when nothing was measured, what it needs; otherwise a remark.
        deviation: largest relative deviation from the reference among the rows.
        undecided: what was measured lies inside its noise, so that it supports neither side;
            `reason` says which comparison is open.
    """

    measured: Any = None
    holds: bool | None = None
    direction: bool | None = None
    low: float | None = None
    high: float | None = None
    target: float | None = None
    evidence: Evidence = "analogue"
    twin: bool = False
    rows: list[str] = field(default_factory=list)
    reason: str = ""
    deviation: float | None = None
    undecided: bool = False


Check = Callable[[Claim, Sequence[Any]], Finding]


@dataclass(frozen=True, slots=True)
class Paper:
    """Everything the harness needs to know about one paper.

    Attributes:
        name, title, venue: `pipad`, "PiPAD", "PPoPP 2023".
        about: two sentences for a reader who has not read the paper.
        system: name of its system in the registry.
        ledger: path of `claims.yaml`.
        experiments: its experiments, in the order of the paper.
        checks: claim id -> check. Every id of the ledger must be there.
    """

    name: str
    title: str
    venue: str
    about: str
    system: str
    ledger: Path
    experiments: tuple[Experiment, ...]
    checks: Mapping[str, Check]
    readings: tuple[str, ...] = ()
