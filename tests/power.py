"""Power of a check: the outcomes that rows can give it.

The numbers that a check reads are changed until its verdict lies on the other side of the claim: a
system's, a setting's or a dataset's numbers thirtyfold or a thirtieth, a metric's ten thousandfold,
all of them, each by its own random factor (alike for all seeds), those that have a sign with the
other one; the rows are a GPU's, or some failed. A check that no rows can turn against its claim
says nothing, so that its ledger calls it *by definition*.

    python -m tests.power PAPER    # claims of a paper whose check cannot turn, on the kept rows
"""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import agreement
from dgbench.harness.store.row import VOID
from dgbench.lab.compare import OWN_DATA, control_ratios
from dgbench.lab.evidence import conditions
from dgbench.lab.judging import judging
from dgbench.lab.metrics import PROBE, metric
from dgbench.lab.paper import Claim, Finding, Paper
from dgbench.lab.table import Observation
from dgbench.runtime.statistics import noise_floor
from dgbench.systems.base.registry import find_paper
from tests.golden.record import kept_runs

Change = Callable[[Any, Observation], float]
"""(row, observation) -> factor that the observation is multiplied by."""
TRIES = 120
FIRST_TRIES = 12
"""Tries on the rows of a machine before those of another are asked."""
LONGEST = 1.5
"""Processor seconds of one try."""
SIGNED = {"likelihood_z", "saving"}
"""Metrics whose values may lie on either side of zero."""
SIDES = {"value": "for", "direction": "for", "opposite": "against"}


def outcomes(
    paper: Paper, claim: Claim, rows: Sequence[Any], floor: float | None
) -> Iterator[set[str]]:
    """The sides (`for`, `against`, or "" for none) that the check takes on these rows, and then on
    changed ones; none where it finds nothing on the rows as they are."""
    found, read = _asked(paper, claim, rows, floor)
    if found is None:
        return
    yield found
    for changed in islice(_changed(rows, read), TRIES):
        yield _asked(paper, claim, changed, floor)[0] or set()


@contextmanager
def processor_seconds(most: float) -> Iterator[None]:
    """Raise TimeoutError in the block once it has used so many seconds of a processor."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _asked(
    paper: Paper, claim: Claim, rows: Sequence[Any], floor: float | None
) -> tuple[set[str] | None, dict[str, set[str]]]:
    """Sides that a check takes (under each reading), None where it found nothing; and the metrics
    that it read, by row."""
    with judging(floor) as context:
        try:
            with processor_seconds(LONGEST):
                finding = paper.checks[claim.id](claim, rows)
        except Exception:  # numbers that nothing measures may be refused, or planned for too long
            return None, {}
    read: dict[str, set[str]] = {}
    for one in context.reads:
        read.setdefault(one.row, set()).add(one.metric)
    if finding.empty:
        return None, read
    each = [one for one in finding.readings.values() or [finding] if not one.empty]
    return {_side(paper, claim, one, rows, context.reads, floor) for one in each}, read


def _side(
    paper: Paper, claim: Claim, finding: Finding, rows: Sequence[Any], reads: Any, floor: Any
) -> str:
    where = conditions(claim, finding, rows, reads, paper)
    return SIDES.get(agreement(claim, finding, where, floor)[0], "")


def _changed(rows: Sequence[Any], read: dict[str, set[str]]) -> Iterator[list[Any]]:
    """Rows with other numbers in what was read, then rows of which some failed."""
    touched = [row for row in rows if row.id in read]
    labels: dict[tuple[str, Any], None] = {}
    for row in touched:
        for one in row.observed:
            if one.metric in read[row.id]:
                labels |= dict.fromkeys((("metric", one.metric), *one.dims.items()))
        labels |= dict.fromkeys(
            (name, value) for name, value in row.params.items() if not isinstance(value, float)
        )
    numbers: list[Change] = [lambda row, one: 30.0, lambda row, one: 1 / 30, lambda row, one: 0.0]
    numbers.append(lambda row, one: -1.0 if one.metric in SIGNED else 1.0)
    numbers += [_by_chance(seed) for seed in range(20)]
    few = sorted(labels, key=lambda label: label[0] not in ("system", "setting", "metric"))
    numbers += [_by_label(*label, x) for label in few if label[0] == "metric" for x in (1e4, 1e-4)]
    numbers += [_by_label(name, value, x) for name, value in few[:40] for x in (30.0, 1 / 30)]
    if any(row.device != "cuda" for row in touched):
        yield [msgspec.structs.replace(row, device="cuda") for row in rows]
    for change in numbers:
        yield [_with(row, read.get(row.id, set()), change) for row in rows]
    for name, value in few[:20]:
        yield [
            _failed(row) if row.id in read and row.params.get(name, _NONE) == value else row
            for row in rows
        ]


_NONE = object()


def _by_label(name: str, value: Any, factor: float) -> Change:
    def change(row: Any, one: Observation) -> float:
        found = one.metric if name == "metric" else one.dims.get(name, row.params.get(name, _NONE))
        return factor if found == value else 1.0

    return change


def _by_chance(seed: int) -> Change:
    draw = random.Random(seed)
    factors: dict[Any, float] = {}

    def change(row: Any, one: Observation) -> float:
        of = {**row.params, **one.dims, "metric": one.metric}
        key = tuple(sorted((k, repr(v)) for k, v in of.items() if k != "seed"))
        return factors.setdefault(key, 10.0 ** draw.uniform(-1.5, 1.5))

    return change


def _with(row: Any, metrics: set[str], change: Change) -> Any:
    if not metrics:
        return row
    observed = []
    for one in row.observed:
        factor = change(row, one) if one.metric in metrics else 1.0
        observed.append(one if factor == 1.0 else _scaled(one, factor))
    changed = msgspec.structs.replace(row, observed=observed)
    if PROBE in metrics:
        factor = change(row, Observation(metric=PROBE, value=0))
        changed = msgspec.structs.replace(changed, probes=_read_as(row.probes, factor))
    return changed


def _read_as(probes: dict[str, Any], factor: float) -> dict[str, Any]:
    """Probes with what they read times a factor; percents stay below 100."""
    return {
        name: min(100.0, value * factor) if name.endswith("percent") else value * factor
        for name, value in probes.items()
        if isinstance(value, int | float)
    }


def _scaled(one: Observation, factor: float) -> Observation:
    kind = metric(one.metric)
    share = kind.kind == "share"

    def scaled(value: float | None) -> Any:
        if value is None:
            return None
        if value == 0 and factor > 1:  # what is none becomes some
            return 0.5 if share else round(factor) if kind.exact else factor
        if share:  # stays a share
            return min(1.0, value * factor) if factor < 1 else 1.0 - (1.0 - value) / factor
        return round(value * factor) if kind.exact else value * factor

    ends = sorted(end for end in (scaled(one.low), scaled(one.high)) if end is not None)
    low, high = ends if len(ends) == 2 else (scaled(one.low), scaled(one.high))
    return msgspec.structs.replace(
        one,
        value=scaled(one.value),
        low=low,
        high=high,
        samples=[scaled(sample) for sample in one.samples],
    )


def _failed(row: Any) -> Any:
    changed = msgspec.structs.replace(row, status="oom", reason="out of memory")
    changed.observed = []
    return changed


def powerless(paper: Paper, every: int = 1) -> list[str]:
    """Ids of claims (one of so many) whose check finds something on the kept rows of a machine, and
    can turn against its claim on none of any machine."""
    kept = []
    for run in kept_runs(paper.name).values():
        rows = [
            row for row in run.everything
            if row.paper == paper.name and row.status not in ("check", VOID)
            and OWN_DATA not in row.params
        ]  # fmt: skip
        kept.append((rows, noise_floor(control_ratios(run.everything))))
    return [
        claim.id
        for claim in load_ledger(paper.ledger)[::every]
        if not claim.definition
        and _never_against([outcomes(paper, claim, *machine) for machine in kept])
    ]


def _never_against(machines: Sequence[Iterator[set[str]]]) -> bool:
    """Return True if there are outcomes and none is against; a few of each machine come first."""
    told = False
    for some in (FIRST_TRIES, None):
        for machine in machines:
            for sides in islice(machine, some):
                told = told or bool(sides)
                if "against" in sides:
                    return False
    return told


if __name__ == "__main__":
    for _name in sys.argv[1:]:
        _paper = find_paper(_name)
        assert isinstance(_paper, Paper), _paper
        print(_name, *powerless(_paper), sep="\n  ")
