"""Units of a device session: a command that measures, or an experiment's groups of cells.

A unit is what is ordered and budgeted. Those that answer most per second come first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import yaml

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.plan import GroupKey, Plan
from dgbench.lab.paper import Claim
from dgbench.runtime.documents import load_yaml
from dgbench.runtime.errors import InvalidInputError

_Positive = Annotated[float, msgspec.Meta(gt=0)]


class CommandUnit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command whose rows are a file of JSON lines, or whose exit status is the result.

    Attributes:
        name: of the unit and of its files. about: what it does, for the plan.
        command: arguments; `{rows}`, `{seconds}` and `{python}` stand for the file of rows, the
            seconds that it has, and the interpreter.
        seconds: what it should take. answers: checks that it decides.
        stage: `check` and `prepare` run before all measurements, in this order; `measure` is
            ordered by answers per second.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]+$")]
    about: str
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    seconds: _Positive
    answers: Annotated[int, msgspec.Meta(ge=0)] = 0
    stage: str = "measure"

    @property
    def id(self) -> str:
        """Key of the unit in the session's state."""
        return f"command/{self.name}"


class ExperimentUnit(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of an experiment that have processes without a row, one after the other.

    Attributes:
        paper, experiment: names. groups: in order of the plan.
        processes: of each group, without a row. seconds: what each group should still take.
        claims: ids that the experiment may decide here.
    """

    paper: str
    experiment: str
    groups: tuple[str, ...]
    processes: tuple[int, ...]
    group_seconds: tuple[float, ...]
    claims: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Key of the unit."""
        return f"{self.paper}/{self.experiment}"

    @property
    def seconds(self) -> float:
        """Estimated seconds that all of its groups still take."""
        return sum(self.group_seconds)

    @property
    def answers(self) -> int:
        """Number of open claims that it may decide."""
        return len(self.claims)

    @property
    def keys(self) -> list[GroupKey]:
        """Its groups as a plan names them."""
        return [(self.paper, self.experiment, group) for group in self.groups]


Unit = CommandUnit | ExperimentUnit
STAGES = ("check", "prepare", "measure")


def read_commands(path: Path) -> list[CommandUnit]:
    """The command units of a plan file (YAML, a list).

    Raises:
        InvalidInputError: it cannot be read, a key or stage is unknown, or a name stands twice.
    """
    try:
        found = msgspec.convert(load_yaml(path.read_bytes()), list[CommandUnit])
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise InvalidInputError(f"plan of commands {path}: {error}") from error
    names = [unit.name for unit in found]
    for unit in found:
        if unit.stage not in STAGES:
            raise InvalidInputError(
                f"plan of commands {path}: stage of '{unit.name}' is '{unit.stage}', "
                f"allowed: {', '.join(STAGES)}"
            )
        if names.count(unit.name) > 1:
            raise InvalidInputError(f"plan of commands {path}: '{unit.name}' stands twice")
    return found


def open_claims(decided: PaperVerdicts, gpus: int) -> dict[str, Claim]:
    """Claims of a paper that `gpus` devices may decide and no device has: id -> claim.

    A claim that counts on any machine needs no device; one that names more devices than are here
    cannot be decided by them.
    """
    found = {}
    for claim, verdict in zip(decided.claims, decided.verdicts, strict=True):
        needed = int(claim.needs.get("gpus") or 0)
        measured = verdict.device == "cuda" and bool(verdict.side)
        if 0 < needed <= gpus and not measured:
            found[claim.id] = claim
    return found


def experiment_units(
    plan: Plan,
    done: Collection[tuple[str, int, bool]],
    bears_on: Mapping[tuple[str, str], Iterable[str]],
    open_ids: Collection[str],
    pace: float = 1.0,
    lacking: Collection[str] = (),
) -> list[ExperimentUnit]:
    """Experiments of a plan with what of them has no row yet.

    Args:
        plan: of one or several papers.
        done: (cell hash, round, instrumented) of rows that are kept.
        bears_on: (paper, experiment) -> ids of the claims that it may decide.
        open_ids: claims that are worth measuring for.
        pace: measured over estimated seconds so far.
        lacking: hashes of cells that cannot run here; they are tried once.
    """
    left: dict[tuple[str, str], dict[str, list[float]]] = {}
    for step in plan.steps:
        planned = plan.cells[step.index]
        paper, experiment, group = plan.group_of(step)
        # Every group has its place, also one of which round 1 is done: it goes on first.
        waiting = left.setdefault((paper, experiment), {}).setdefault(group, [])
        if planned.hash in lacking:
            continue
        if (planned.hash, step.round, step.instrumented) not in done:
            waiting.append(planned.estimate_s)
    return [
        ExperimentUnit(
            paper=key[0],
            experiment=key[1],
            groups=tuple(group for group, seconds in groups.items() if seconds),
            processes=tuple(len(seconds) for seconds in groups.values() if seconds),
            group_seconds=tuple(pace * sum(seconds) for seconds in groups.values() if seconds),
            claims=tuple(c for c in bears_on.get(key, ()) if c in open_ids),
        )
        for key, groups in left.items()
        if any(groups.values())
    ]


def ordered(commands: Sequence[CommandUnit], experiments: Sequence[ExperimentUnit]) -> list[Unit]:
    """Checks, preparations, then measurements by answers per second, greatest first.

    Ties keep the order given.
    """

    def place(unit: Unit) -> tuple[int, float]:
        stage = unit.stage if isinstance(unit, CommandUnit) else "measure"
        return STAGES.index(stage), -unit.answers / max(unit.seconds, 1e-9)

    return sorted([*commands, *experiments], key=place)
