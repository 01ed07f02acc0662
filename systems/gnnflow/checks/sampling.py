"""Claims on sampling a temporal graph in blocks: sections 4.1 and 6.2, Figure 12."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import floor, log2
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments import fig12
from dgbench.systems.gnnflow.experiments.sampling_ablation import lookup_rows
from dgbench.systems.gnnflow.experiments.settings import PAPERS_GRAPHS, graph_title

Rows = Sequence[Any]
RULES: Final = {"uniform over the past": "uniform", "newest": "recent"}
"""Rules of sampling that Figure 12 may have, by the policy of its rows."""
HARDLY: Final = 0.1
"""Share of the static layout's throughput up to which a bar of Figure 12 is almost nothing."""
SEARCHES: Final = 2
"""Binary searches that find a window inside a block: where it begins and where it ends."""
NEEDED: Final = "needs the experiment fig12 on GDELT or Netflix"


def log_time(claim: Claim, rows: Rows) -> Finding:
    """Comparisons inside one block against two binary searches; blocks walked beside them."""
    found = lookup_rows(rows)
    if not found:
        return missing("needs the experiment sampling_ablation")
    row = found[-1]
    compared = Table.of([row]).where("comparisons").numbers("size")
    allowed = {n: SEARCHES * (floor(log2(n)) + 1) for n in compared}
    longest = max(compared)
    walked = number(row, "list_blocks", size=longest)
    return finding(
        [row],
        measured={f"{n} records": count for n, count in sorted(compared.items())},
        holds=all(compared[n] <= allowed[n] for n in compared),
        reason=(
            f"times compared for the begin and the end of a window, at most {allowed[longest]} for "
            f"{longest} records; the walk to the block stays linear: {walked} blocks of 4 on the "
            "list of as many"
        ),
    )


def _graphs(rows: Rows) -> list[list[Any]]:
    """The paper's graphs, each as its rounds."""
    return [mine for mine in fig12.found_rows(rows) if mine[-1] in PAPERS_GRAPHS]


def _title(mine: Rows) -> str:
    return graph_title(mine[-1].params["dataset"])


def _longest(mine: Rows) -> str:
    """The longest walks on one graph, for the reason of a finding."""
    longest = Table.of(mine[-1:]).where("list_blocks", statistic="longest").numbers("setting")
    blocks = ", ".join(f"{name} {longest[name]}" for name in fig12.LAYOUTS)
    return f"{_title(mine)}, longest walk: {blocks}"


def by_rule(judge: Callable[[str, Claim, Rows], Finding]) -> Check:
    """A check under both rules of sampling, along the list as in Algorithm 1.

    The paper does not say which rule Figure 12 has.
    """
    return readings(
        "the paper does not say which neighbours are sampled",
        **{name: partial(judge, policy) for name, policy in RULES.items()},
    )


def _adjacency_lists(policy: str, claim: Claim, rows: Rows) -> Finding:
    found = _graphs(rows)
    if not found:
        return missing(NEEDED)
    shares = {_title(mine): fig12.share(mine, "Adj. List", policy=policy) for mine in found}
    sides = [
        0 if one.low is None or one.high is None or one.low <= HARDLY < one.high
        else 1 if one.high <= HARDLY else -1
        for one in shares.values()
    ]  # fmt: skip
    return finding(
        [row for mine in found for row in mine],
        measured={title: round(share.value, 3) for title, share in shares.items()},
        holds=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        processes=min(share.processes for share in shares.values()),
        reason=". ".join(map(_longest, found)),
    )


def _ordering(pairs: Sequence[tuple[str, str]], policy: str, claim: Claim, rows: Rows) -> Finding:
    """The first of every pair is faster than the second, on every graph of the paper."""
    found = _graphs(rows)
    if not found:
        return missing(NEEDED)
    ratios: dict[str, Ratio] = {
        f"{_title(mine)}: {fast} over {slow}": fig12.ahead(mine, fast, slow, policy=policy)
        for mine in found
        for fast, slow in pairs
    }
    sides = [ratio.side for ratio in ratios.values()]
    open_ = [name for name, ratio in ratios.items() if ratio.side == 0]
    other = [name for name, ratio in ratios.items() if ratio.side < 0]
    words = [f"the other way: {', '.join(other)}"] if other else []
    words += [f"undecided: {', '.join(open_)}"] if open_ else []
    used = [row for mine in found for row in mine]
    return finding(
        used,
        measured={name: round(ratio.value, 2) for name, ratio in ratios.items()},
        holds=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        processes=min(ratio.processes for ratio in ratios.values()),
        reason=". ".join([*words, *map(_longest, found)]),
    )


adjacency_lists = by_rule(_adjacency_lists)
"""Throughput of adjacency lists over the static layout's, on every graph of the paper."""
fixed_below_strawman = by_rule(partial(_ordering, [("Strawman", "Fixed-size")]))
"""The strawman before blocks of fixed size."""
adaptive_best = by_rule(partial(_ordering, [pair for pair in fig12.PAIRS if "Adaptive" in pair]))
"""Adaptive before all that can grow, and behind the static layout."""
