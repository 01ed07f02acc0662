"""Two runs of the same thing: are the counters equal, and the ratios as close as they claim?

A counter is exact, so a second run on the same machine must find the same number. A ratio comes
with an interval; two of them agree where the interval of their quotient holds 1. Of such intervals
95 % should, and what share does is printed with an interval of its own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dgbench.harness.compare import NOT_SAME
from dgbench.harness.quantities import PACE, Quantity, cell_words, exact, quantities, ratio_of
from dgbench.harness.samples import raced
from dgbench.lab.compare import without_control
from dgbench.lab.table import in_ratios
from dgbench.runtime.statistics import ConfidenceInterval, t_quantile

LEVEL: Final = 0.95
"""Rate at which the intervals of ratios should hold what they are of."""


_Key = tuple[str, int, bool]
"""Hash of the cell, round, and whether the process was instrumented."""


class Apart(NamedTuple):
    """A counter, or the status of a process, that is not the same in both runs.

    Attributes:
        paper, name: whose it is; paper, experiment, params and round. rows: ids of the row in A
            and in B.
        what: name of the counter, or `status`. a, b: what each run has; None where it has none.
    """

    paper: str
    name: str
    rows: tuple[str, str]
    what: str
    a: int | str | None
    b: int | str | None


class RepeatedRatio(NamedTuple):
    """A ratio that both runs have.

    Attributes:
        name: paper, experiment, params and the ratio's own name. cluster: the contenders it is
            of; ratios of one cluster rest on the same processes and are not independent.
        a, b: what the runs found. apart: a / b with its interval, None where a run has too few
            observations for one.
    """

    name: str
    cluster: tuple[str, str, str]
    a: float
    b: float
    apart: ConfidenceInterval

    @property
    def judged(self) -> bool:
        """True if the quotient has an interval to be judged by."""
        return self.apart.low is not None and self.apart.high is not None

    @property
    def agrees(self) -> bool:
        """True if the interval of the quotient contains 1."""
        low, high = self.apart.low, self.apart.high
        return low is not None and high is not None and low <= 1 <= high

    @property
    def size(self) -> float:
        """Distance from 1 in half widths of the interval; above 1 it does not hold 1."""
        if not self.judged:
            return 0.0
        value = math.log(self.apart.value)
        edge = math.log(self.apart.low if value > 0 else self.apart.high)  # type: ignore[arg-type]
        half = abs(value - edge)
        return abs(value) / half if half else (math.inf if value else 0.0)


class Coverage(NamedTuple):
    """`agree` of `n` ratios, from `clusters` groups of processes; interval of the share."""

    agree: int
    n: int
    clusters: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """Of the ratios, the part that agrees; 1 where there are none."""
        return self.agree / self.n if self.n else 1.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two runs.

    Attributes:
        processes: rows that both runs have, machine limits left out. counters: counters compared.
        apart: those that differ, and processes that ended differently.
        paced: counters of `quantities.PACE` that differ: how long a process went on, no work.
        only_a, only_b: processes that one run has, apart from rounds that were added.
        pairs: ratios of both runs, by name. coverage: of those with an interval.
    """

    a: str
    b: str
    processes: int
    counters: int
    apart: list[Apart]
    paced: int
    only_a: list[str]
    only_b: list[str]
    pairs: list[RepeatedRatio]
    coverage: Coverage
    identity: list[str] = field(default_factory=list)

    @property
    def disagree(self) -> list[RepeatedRatio]:
        """Ratios further apart than their intervals say, the furthest first."""
        found = [p for p in self.pairs if p.judged and not p.agrees]
        return sorted(found, key=lambda p: (-p.size, p.name))

    @property
    def same_work(self) -> bool:
        """True if both runs did and counted the same."""
        return not (self.apart or self.only_a or self.only_b)

    @property
    def same_ratios(self) -> bool:
        """True if the share that agrees may be `LEVEL`."""
        return self.coverage.high >= LEVEL

    @property
    def exit_code(self) -> int:
        """0 if the runs say the same numbers, else `NOT_SAME`."""
        return 0 if self.same_work and self.same_ratios else NOT_SAME

    def as_plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "a": self.a,
            "b": self.b,
            "exit_code": self.exit_code,
            "processes": self.processes,
            "counters": self.counters,
            "paced": self.paced,
            "apart": [one._asdict() for one in self.apart],
            "only_a": self.only_a,
            "only_b": self.only_b,
            "identity": self.identity,
            "coverage": self.coverage._asdict() | {"share": self.coverage.share, "level": LEVEL},
            "ratios": [
                {"name": p.name, "a": p.a, "b": p.b, "agrees": p.agrees if p.judged else None,
                 "apart": p.apart._asdict()}
                for p in self.pairs
            ],
        }  # fmt: skip


def agreement(
    a: Sequence[Any], b: Sequence[Any], names: tuple[str, str] = ("A", "B"),
    identity: Sequence[str] = (),
) -> Agreement:  # fmt: skip
    """Hold two runs against each other, process by process and ratio by ratio.

    Args:
        a, b: all rows of each run, also controls and instrumented ones: they count, too.
        names: of the runs. identity: what else differs, as `harness.compare.identity` says it.
    """
    first, second = _processes(a), _processes(b)
    both = [key for key in first if key in second]
    added = {row.cell_hash for row in (*a, *b) if row.looks or row.repeats}
    added &= {key[0] for key in both}
    apart, compared, paced = [], 0, 0
    for key in both:
        found, of, late = _against(first[key], second[key])
        apart += found
        compared += of
        paced += late
    pairs = _pairs(a, b)
    return Agreement(
        a=names[0],
        b=names[1],
        processes=len(both),
        counters=compared,
        apart=apart,
        paced=paced,
        only_a=_only(first, second, added),
        only_b=_only(second, first, added),
        pairs=pairs,
        coverage=coverage(pairs),
        identity=list(identity),
    )


def coverage(pairs: Iterable[RepeatedRatio], level: float = 0.95) -> Coverage:
    """The share of ratios that agree, with the interval of Korn and Graubard (1998).

    That is Clopper and Pearson's exact interval at the size of a sample of independent ratios that
    would know as much: ratios from the same processes say nearly the same.
    """
    clusters: dict[tuple, list[bool]] = defaultdict(list)
    for pair in pairs:
        if pair.judged:
            clusters[pair.cluster].append(pair.agrees)
    n, m = sum(map(len, clusters.values())), len(clusters)
    agree = sum(map(sum, clusters.values()))
    if not n:
        return Coverage(0, 0, 0, 0.0, 1.0)
    size = _independent([(sum(c), len(c)) for c in clusters.values()], agree / n)
    low, high = _exact_interval(agree / n * size, size, level)
    return Coverage(agree, n, m, low, high)


def process_name(row: Any) -> str:
    """`pipad/fig10 flickr evolvegcn pipad round 2`; an instrumented one is said."""
    return cell_words(row) + (", instrumented" if row.instrumented else f" round {row.round}")


def _only(mine: dict[_Key, Any], other: dict[_Key, Any], added: set[str]) -> list[str]:
    """Names of processes that the other run lacks; how many rounds were added is chance."""
    return sorted(
        process_name(row) for key, row in mine.items() if key not in other and key[0] not in added
    )


def _processes(rows: Iterable[Any]) -> dict[_Key, Any]:
    return {(r.cell_hash, r.round, r.instrumented): r for r in rows if r.experiment != "machine"}


def _against(a: Any, b: Any) -> tuple[list[Apart], int, int]:
    """Differences between two rows, number of counters, and number of differing pace counters."""
    where = a.paper, process_name(a), (a.id, b.id)
    if a.status != b.status:
        return [Apart(*where, "status", a.status, b.status)], 0, 0
    one, two = exact(a), exact(b)
    known = sorted({*one, *two})
    differ = [k for k in known if one.get(k) != two.get(k)]
    found = [Apart(*where, k, one.get(k), two.get(k)) for k in differ if k not in PACE]
    return found, sum(k not in PACE for k in known), len(differ) - len(found)


def _pairs(a: Sequence[Any], b: Sequence[Any]) -> list[RepeatedRatio]:
    first, second = _ratios(a), _ratios(b)
    found = []
    for key in sorted(first):
        if key not in second:
            continue
        one, two = first[key], second[key]
        medians = [math.exp(sum(map(math.log, q.found)) / len(q.found)) for q in (one, two)]
        # `ratio_of` reads gains as what a cell is faster by, so "new over old" is A over B.
        found.append(RepeatedRatio(key[1], key[0], *medians, ratio_of(two, one)))
    return found


def _ratios(rows: Sequence[Any]) -> dict[tuple[tuple, str], Quantity]:
    """Every ratio of a run: gains of settings that took turns, and races round by round."""
    usable = [row for row in without_control(rows) if in_ratios(row)]
    cells: dict[str, list[Any]] = defaultdict(list)
    for row in usable:
        cells[row.cell_hash].append(row)
    found: dict[tuple[tuple, str], Quantity] = {}
    for mine in cells.values():
        where = cell_words(mine[0])
        for name, quantity in quantities(mine).items():
            if quantity.gain:
                found[_cluster(mine[0]), f"{where}: {name}"] = quantity
    for own, name, value in raced(usable):
        key = _cluster(own), name
        found.setdefault(key, Quantity(gain=True)).found.append(1 / value)
    return found


def _cluster(row: Any) -> tuple[str, str, str]:
    return row.paper, row.experiment, row.group


def _independent(clusters: Sequence[tuple[int, int]], share: float) -> float:
    """Number of independent ratios that give the share as precisely as clusters of (k, n) do."""
    n, m = sum(size for _, size in clusters), len(clusters)
    if m < 2:
        return 1.0
    if share in (0, 1):
        return float(m)  # no spread to learn from: every cluster counts once
    spread = sum((k - share * size) ** 2 for k, size in clusters) / n**2 * m / (m - 1)
    size = share * (1 - share) / spread if spread else n
    few = (t_quantile(n - 1, 0.95) / t_quantile(m - 1, 0.95)) ** 2
    return max(1.0, min(float(n), size * few))


def _exact_interval(k: float, n: float, level: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of k of n; neither has to be whole."""
    from scipy.special import betaincinv  # scipy.stats would take a second to import

    tail = (1 - level) / 2
    low = float(betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return low, high
