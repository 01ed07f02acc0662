"""Payments between up to a million accounts, by the rules of AMLSim's transaction graph generator.

The degree lists, counts of accounts and alert patterns are the parameter sets that IBM/AMLSim
publishes. Payments between accounts are a directed configuration model of the degree lists without
loops, of which each makes one payment; in the published samples 99 % of pairs have one as well.
Alert patterns add fans and cycles of a few accounts within a few steps. Not made are amounts and
the schedules of the simulator's account models: the step of a payment is drawn uniformly.

`degree.csv` is read as a histogram: so many accounts receive, and so many send, `Count` payments.
Its columns add up to the accounts of a set then, and the published samples are distributed so.
IBM/AMLSim's present program takes `Count` for the number of accounts of the degrees beside it,
which would give six of a million accounts 139 000 payments each.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from dgbench.datasets.events import EventStream
from dgbench.datasets.origin import Origin
from dgbench.datasets.sources.locate import data_dir
from dgbench.runtime.errors import DataError, InvalidInputError, MissingDataError

SIZES: Final = ("1K", "10K", "100K", "1M")
"""Names of the published parameter sets."""
STEPS: Final = 200
"""T of ESDG's Table 1."""
ALERTS: Final = ("fan_in", "fan_out", "cycle")


@dataclass(frozen=True, slots=True)
class AlertPattern:
    """Alert patterns of one kind.

    Attributes:
        kind: one of `ALERTS`. count: how many.
        accounts, period: least and largest number of members, and of steps they take.
    """

    kind: str
    count: int
    accounts: tuple[int, int]
    period: tuple[int, int]


@dataclass(frozen=True, slots=True)
class AmlsimParameters:
    """A parameter set.

    Attributes:
        accounts: N. in_degrees, out_degrees: int64, accounts of degree 0, 1, ...
        alerts: patterns that are added.
    """

    accounts: int
    in_degrees: np.ndarray
    out_degrees: np.ndarray
    alerts: tuple[AlertPattern, ...]


def published(size: str) -> AmlsimParameters:
    """A parameter set of IBM/AMLSim, from `amlsim/params` of the folder `DGBENCH_DATA`.

    Raises:
        InvalidInputError: no such size.
        MissingDataError: the files are not there.
        DataError: they do not hold what they should.
    """
    if size not in SIZES:
        raise InvalidInputError(f"'{size}' is none of AMLSim's sizes {', '.join(SIZES)}")
    folder = data_dir()
    where = None if folder is None else folder / "amlsim" / "params" / size
    if where is None or not where.is_dir():
        raise MissingDataError(
            f"the parameters of AMLSim {size} are not here",
            hint=f"put paramFiles/{size} of IBM/AMLSim into $DGBENCH_DATA/amlsim/params",
        )
    return read_parameters(where)


def read_parameters(folder: Path) -> AmlsimParameters:
    """A parameter set from its files `accounts.csv`, `degree.csv` and `alertPatterns.csv`.

    Raises:
        DataError: a file is missing or broken, or degrees do not add up.
    """
    try:
        degrees = [[int(x) for x in row.values()] for row in _rows(folder / "degree.csv")]
        accounts = sum(int(row["count"]) for row in _rows(folder / "accounts.csv"))
        alerts = tuple(
            AlertPattern(
                row["type"],
                int(row["count"]),
                (int(row["min_accounts"]), int(row["max_accounts"])),
                (int(row["min_period"]), int(row["max_period"])),
            )
            for row in _rows(folder / "alertPatterns.csv")
        )
        lists = np.zeros((2, 1 + max(row[0] for row in degrees)), dtype=np.int64)
        for degree, received, sent in degrees:
            lists[:, degree] += received, sent
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"'{folder}' holds no parameters of AMLSim: {error}") from error
    found = AmlsimParameters(accounts, lists[0], lists[1], alerts)
    _check(found, str(folder))
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _check(found: AmlsimParameters, where: str) -> None:
    steps = np.arange(len(found.in_degrees))
    sums = [int((steps * each).sum()) for each in (found.in_degrees, found.out_degrees)]
    if sums[0] != sums[1]:
        raise DataError(f"'{where}': degrees add up to {sums[0]} payments received, {sums[1]} sent")
    most = max(int(each.sum()) for each in (found.in_degrees, found.out_degrees))
    if most > found.accounts:
        raise DataError(f"'{where}': degrees of {most} accounts, and only {found.accounts} exist")
    for alert in found.alerts:
        if alert.kind not in ALERTS or alert.accounts[0] < 2 or alert.period[0] < 1:
            raise DataError(f"'{where}': an alert pattern that is none: {alert}")


def generate(
    parameters: AmlsimParameters, *, steps: int = STEPS, seed: int = 1, name: str = "amlsim-drawn"
) -> EventStream:
    """Payments of a parameter set.

    Args:
        parameters: of the generator.
        steps: T; times are whole steps from 0.
        seed: of everything that is drawn.
        name: that the stream's origin gives as its dataset.

    Raises:
        InvalidInputError: fewer steps than an alert pattern takes.
    """
    longest = max((alert.period[1] for alert in parameters.alerts), default=1)
    if steps < longest:
        raise InvalidInputError(f"{steps} steps are fewer than the {longest} of an alert pattern")
    rng = np.random.default_rng(seed)
    sender, receiver = configuration(parameters, rng)
    time = rng.integers(0, steps, len(sender))
    parts = [(sender, receiver, time)]
    parts += [_alerts(alert, parameters.accounts, steps, rng) for alert in parameters.alerts]
    source, target, time = (np.concatenate(each) for each in zip(*parts, strict=True))
    by = np.argsort(time, kind="stable")
    origin = Origin(
        dataset=name,
        seed=seed,
        notes=("drawn by the rules and published parameters of AMLSim; steps are uniform",),
    )
    return EventStream.build(
        source[by], target[by], time[by], num_nodes=parameters.accounts, origin=origin
    )


def configuration(
    parameters: AmlsimParameters, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Senders and receivers, int64[E], of a directed configuration model without loops.

    Each account has as many stubs as its degrees; its in- and out-degree are independent.
    A loop is undone by exchanging its receiver with that of a payment drawn at random.
    """
    ends = []
    for degrees in (parameters.out_degrees, parameters.in_degrees):
        of_account = np.zeros(parameters.accounts, dtype=np.int64)
        listed = np.repeat(np.arange(len(degrees)), degrees)
        of_account[: len(listed)] = listed
        rng.shuffle(of_account)
        stubs = np.repeat(np.arange(parameters.accounts), of_account)
        rng.shuffle(stubs)
        ends.append(stubs)
    sender, receiver = ends
    for _ in range(100):
        loops = np.flatnonzero(sender == receiver)
        if not len(loops):
            break
        for one in loops:
            other = rng.integers(len(receiver))
            receiver[[one, other]] = receiver[[other, one]]
    keep = sender != receiver  # nothing is left, but in graphs of a few accounts
    return sender[keep], receiver[keep]


def _alerts(
    alert: AlertPattern, accounts: int, steps: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Payments of all patterns of a kind: members are drawn, each once, and the first is main."""
    found: list[Sequence[np.ndarray]] = []
    for _ in range(alert.count):
        size = int(rng.integers(alert.accounts[0], alert.accounts[1] + 1))
        period = int(rng.integers(alert.period[0], alert.period[1] + 1))
        start = int(rng.integers(0, steps - period + 1))
        members = rng.integers(0, accounts, size)
        while len(np.unique(members)) < min(size, accounts):
            members = rng.integers(0, accounts, size)
        if alert.kind == "cycle":
            ends = members, np.roll(members, -1)
        else:
            main = np.full(size - 1, members[0])
            ends = (members[1:], main) if alert.kind == "fan_in" else (main, members[1:])
        found.append((*ends, start + np.sort(rng.integers(0, period, len(ends[0])))))
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing
    source, target, time = (np.concatenate(each) for each in zip(*found, strict=True))
    return source, target, time
