"""Claims on distribution: scaling (6.3), partitions and schedule (4.4), large graphs (6.4).

Those of section 6.4 stand in `partitioned`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.judging import current_floor
from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments import fig15, partition
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, SETTINGS, graph_title

Rows = Sequence[Any]

NONE: Final = "the experiment '{}' did not run"
EVEN: Final = 0.05
"""Excess over the mean up to which vertices count as evenly distributed."""
BY_VERTICES: Final = ("fennel", "ldg", "metis")
"""Partitioners that balance vertices."""
MODEL: Final = "alpha-beta model"
LINEAR: Final = 0.8
"""Share of linear scaling from which it counts as near linear."""


# Section 6.3.


def best_throughput(claim: Claim, rows: Rows) -> Finding:
    """GNNFlow ahead of TGL and of TGL with the cache on any number of T4, projected.

    Ranks of a CPU have no link that a cache could spare, nor a GPU to sample on.
    """
    found = rows_of(rows, experiment=fig15.NAME)
    ones = [row for row in found if row.params["ranks"] == 1]
    if not ones:
        return missing(NONE.format(fig15.NAME))
    leads = {
        f"{MODEL_TITLES[row.params['model']]}, by {reading}": min(
            of[fig15.OURS, ranks] / of[name, ranks]
            for name in (fig15.CACHED, fig15.TGL)
            for ranks in fig15.PROJECTED
        )
        for row in ones
        for reading in fig15.READINGS
        for of in [fig15.projected(row, reading)]
    }
    least, band = min(leads.values()), 1 + current_floor()
    return finding(
        ones,
        model=MODEL,
        measured={name: f"{lead:.2f}x" for name, lead in leads.items()},
        holds=least > band,
        undecided=1 / band <= least <= band,
        reason="least lead on 1 to 32 T4, by what scales computing, from rates of one CPU; a lead "
        "has to exceed the noise floor of these",
    )


def near_linear(claim: Claim, rows: Rows) -> Finding:
    """Throughput by processor time over ranks of one machine."""
    found = rows_of(rows, experiment=fig15.NAME)
    shares = {m: fig15.scaling(rows, m) for m in fig15.MODELS}
    shares = {m: share for m, share in shares.items() if len(share) > 1}
    if not shares:
        return missing(NONE.format(fig15.NAME))
    measured = {
        f"{MODEL_TITLES[m]} on {some(ranks, 'rank')}": f"{100 * share:.0f} %"
        for m, by in shares.items()
        for ranks, share in by.items()
        if ranks > 1
    }
    least = min(share for by in shares.values() for share in by.values())
    return finding(
        found,
        proxy="ranks of one CPU, by processor time",
        measured=measured,
        holds=least >= LINEAR,
        reason=f"of linear; near is read as at least {LINEAR:.0%}",
    )


def efficiency_32(claim: Claim, rows: Rows) -> Finding:
    """Projected throughput of 32 T4 over 32 times that of one."""
    found = [r for r in rows_of(rows, experiment=fig15.NAME) if r.params["ranks"] == 1]
    if not found:
        return missing(NONE.format(fig15.NAME))
    ends = {
        row.params["model"]: sorted(
            100 * fig15.efficiency(row, 32, reading) for reading in fig15.READINGS
        )
        for row in found
    }
    measured = {MODEL_TITLES[m]: f"{low:.0f} to {high:.0f} %" for m, (low, high) in ends.items()}
    printed = {m: float(claim.value[MODEL_TITLES[m]]) for m in ends}
    return finding(
        found,
        model=MODEL,
        measured=measured,
        holds=len(ends) == len(claim.value)
        and all(low <= printed[m] <= high for m, (low, high) in ends.items()),
        direction=all(printed[m] <= high for m, (_, high) in ends.items())
        and ends.get("tgn", [0, 0])[1] <= ends.get("tgat", [0, 100])[1],
        reason="an upper end: computing scaled by a T4's arithmetic or by its bandwidth, and no "
        "rank waits for another. The direction is that no printed share lies above it, and TGN's, "
        "whose memories go to every machine, is the least",
    )


# Section 4.4.


def sampling_cv(claim: Claim, rows: Rows) -> Finding:
    """Variation of what 32 ranks sample for each other under the static schedule."""
    found = partition.last_rows(rows, partition.SERVING)
    if not found:
        return missing(NONE.format(partition.NAME))
    limit = float(claim.value)
    mine = [row for row in found if row.params["dataset"] == "gdelt"] or found
    found_in = Table.of(mine).where("variation")
    counted = {
        SETTINGS[model].title: max(found_in.where(setting="static", model=model).values)
        for model in SETTINGS
    }
    most = max(counted.values())
    first = min(found_in.where(setting="first").values)
    machines = max(found_in.where(setting="machines").values)
    others = ", ".join(
        f"{graph_title(row.params['dataset'])} "
        f"{max(partition.variations(row, 'static').values()):.3f}"
        for row in found
        if row not in mine
    )
    return finding(
        mine,
        proxy="targets and neighbours that ranks sample, in place of their times",
        measured=counted,
        holds=most < limit,
        reason=f"variation of targets and neighbours of 4 x 8 ranks, limit {limit:g}; of the 4 "
        f"machines alone up to {machines:.3f}, which no schedule inside a machine can even out; "
        f"all to the first rank of a machine: at least {first:.2f}"
        + (f"; other graphs: {others}" if others else ""),
    )


def _balanced(judge: Callable[[Rows], dict[str, Any]]) -> Check:
    """A check of real graphs of which the balance of several partitioners was counted."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = [r for r in partition.last_rows(rows, partition.BALANCE) if not r.data.get("twin")]
        if not found:
            return missing(NONE.format(partition.NAME))
        return finding(found, **judge(found))

    return check


def _even(found: Rows) -> dict[str, Any]:
    excess = {
        graph_title(row.params["dataset"]): {
            of: partition.excesses(row, of)["hash"] for of in ("vertices", "records")
        }
        for row in found
    }
    strided = partition.excesses(found[0])["strided"]
    return {
        "measured": {
            title: f"vertices {100 * one['vertices']:.1f} %, records {100 * one['records']:.0f} %"
            for title, one in excess.items()
        },
        "holds": all(value <= EVEN for one in excess.values() for value in one.values()),
        "reason": f"the fullest of 4 machines beyond the mean, even up to {EVEN:.0%}; ids in "
        f"strides of {partition.STRIDE} leave {100 * strided:.0f} %",
    }


def _more_even(found: Rows) -> dict[str, Any]:
    said, better, by_edges = {}, [], []
    for row in found:
        by = partition.excesses(row)
        others = {name: by[name] for name in BY_VERTICES if name in by}
        better.append(bool(others) and all(by["hash"] < other for other in others.values()))
        if "metis-edges" in by:
            by_edges.append(by["hash"] < by["metis-edges"])
        words = ", ".join(f"{name} {100 * other:.0f} %" for name, other in others.items())
        said[graph_title(row.params["dataset"])] = f"hash {100 * by['hash']:.0f} %, {words}"
    return {
        "measured": said,
        "holds": all(better),
        "reason": "records of the fullest of 4 machines beyond the mean. METIS told to balance "
        f"edges is beaten on {sum(by_edges)} of {some(len(by_edges), 'graph')}",
    }


hash_balance = readings(
    "the paper prints no number, and names partitioners that balance vertices beside it",
    **{
        "even in itself": _balanced(_even),
        "more even than those that balance vertices": _balanced(_more_even),
    },
)
"""Vertices and records that a hash of ids deals to machines: even, or more even than others."""


def edge_cut(claim: Claim, rows: Rows) -> Finding:
    """Bytes that sampling takes from other machines: edge-cut by hash, the best vertex-cut."""
    found = partition.last_rows(rows, partition.CUTS)
    if not found:
        return missing(NONE.format(partition.NAME))
    said, less = {}, []
    for row in found:
        sent = partition.exchanged(row)
        ours = sent["edge-cut hash"]
        cuts = {
            by: sent[f"vertex-cut {by}"]
            for by in ("random", "dbh", "hdrf")
            if f"vertex-cut {by}" in sent
        }
        best = min(cuts, key=cuts.__getitem__)
        less.append(ours < cuts[best])
        said[graph_title(row.params["dataset"])] = f"{cuts[best] / ours:.2f}x by {best}"
    return finding(
        found,
        measured=said,
        holds=all(less),
        reason="bytes of the best vertex-cut over those of the identity hash's edge-cut; 4 "
        "machines, 10 newest neighbours of both ends",
    )
