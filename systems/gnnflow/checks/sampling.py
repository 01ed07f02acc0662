"""Claims on sampling a temporal graph in blocks: sections 4.1 and 6.2, Figure 12."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table, number
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig12
from dgbench.systems.gnnflow.experiments.sampling_ablation import lookup_rows
from dgbench.systems.gnnflow.experiments.settings import PAPERS_GRAPHS, graph_title

Rows = Sequence[Any]
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


def _told(mine: Rows) -> str:
    """Both walks and rules for one graph, for the reason of a finding."""
    words = []
    longest = Table.of(mine[-1:]).where("list_blocks", statistic="longest").numbers("setting")
    for walk, policy in (("list", "recent"), ("fences", "uniform")):
        shares = ", ".join(
            f"{name} {fig12.share(mine, name, walk, policy).value:.2f}"
            for name in fig12.LAYOUTS[:-1]
        )
        way = "along the list" if walk == "list" else "by fences"
        words.append(f"{policy} {way}: {shares}")
    blocks = ", ".join(f"{name} {longest[name]}" for name in fig12.LAYOUTS)
    return f"{_title(mine)}: {'; '.join(words)}; longest walk: {blocks}"


def adjacency_lists(claim: Claim, rows: Rows) -> Finding:
    """Throughput of adjacency lists over the static layout's, on every graph of the paper."""
    found = _graphs(rows)
    if not found:
        return missing(NEEDED)
    shares = [fig12.share(mine, "Adj. List") for mine in found]
    used = [row for mine in found for row in mine]
    return finding(
        used,
        measured={
            _title(mine): round(share.value, 3) for mine, share in zip(found, shares, strict=True)
        },
        holds=all(share.value <= HARDLY for share in shares),
        direction=all(share.value < 1 for share in shares),
        undecided=any(share.side == 0 for share in shares),
        reason=". ".join(map(_told, found)),
    )


def _ordering(rows: Rows, pairs: Sequence[tuple[str, str]]) -> Finding:
    """The first of every pair is faster than the second, on every graph of the paper."""
    found = _graphs(rows)
    if not found:
        return missing(NEEDED)
    ratios: dict[str, Ratio] = {
        f"{_title(mine)}: {fast} over {slow}": fig12.ahead(mine, fast, slow)
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
        direction=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        reason=". ".join([*words, *map(_told, found)]),
    )


def fixed_below_strawman(claim: Claim, rows: Rows) -> Finding:
    """The strawman before blocks of fixed size."""
    return _ordering(rows, [("Strawman", "Fixed-size")])


def adaptive_best(claim: Claim, rows: Rows) -> Finding:
    """Adaptive before all that can grow, and behind the static layout."""
    return _ordering(rows, [pair for pair in fig12.PAIRS if "Adaptive" in pair])
