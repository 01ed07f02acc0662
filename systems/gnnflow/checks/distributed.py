"""Claims on distribution: scaling (6.3), partitions and schedule (4.4), large graphs (6.4).

Those of section 6.4 stand in `partitioned`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.compare import ratio_of
from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig15, partition
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, SETTINGS, graph_title

Rows = Sequence[Any]

NONE: Final = "the experiment '{}' did not run"
EVEN: Final = 0.05
"""Excess over the mean up to which vertices count as evenly distributed."""
LINEAR: Final = 0.8
"""Share of linear scaling from which it counts as near linear."""


# Section 6.3.


def best_throughput(claim: Claim, rows: Rows) -> Finding:
    """GNNFlow ahead of TGL and of TGL with the cache on any number of T4, projected.

    Ranks of a CPU have no link that a cache could spare, nor a GPU to sample on; what they do
    stands in the reason.
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
    here = ", ".join(
        f"{MODEL_TITLES[row.params['model']]} on {some(row.params['ranks'], 'rank')} "
        f"{ratio_of(Table.of([row]).where('speedup', baseline=name)).value:.2f}x over {name}"
        for row in found
        for name in (fig15.CACHED, fig15.TGL)
    )
    return finding(
        ones,
        model="alpha-beta model",
        measured={name: f"{lead:.2f}x" for name, lead in leads.items()},
        holds=min(leads.values()) > 1,
        reason=f"least lead on 1 to 32 T4, by what scales computing; on this CPU: {here}",
    )


def near_linear(claim: Claim, rows: Rows) -> Finding:
    """Throughput by processor time over ranks of one machine, and projected to 8 T4."""
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
    eight = ", ".join(
        f"{MODEL_TITLES[row.params['model']]} {100 * fig15.efficiency(row, 8, reading):.0f} % "
        f"({reading})"
        for row in found
        if row.params["ranks"] == 1
        for reading in fig15.READINGS
    )
    least = min(share for by in shares.values() for share in by.values())
    return finding(
        found,
        measured=measured,
        holds=least >= LINEAR,
        reason=f"of linear, by processor time; projected to 8 T4: {eight}",
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
    return finding(
        found,
        model="alpha-beta model",
        measured=measured,
        direction=all(high < 100 for _, high in ends.values())
        and ends.get("tgn", [0, 0])[1] <= ends.get("tgat", [0, 100])[1],
        reason="less than linear, TGN least, as its memories go to every machine; an upper end: "
        "computing scaled by a T4's arithmetic or by its bandwidth, and no rank waits for another",
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
    timed = [r for r in rows_of(rows, experiment=fig15.NAME) if r.params["ranks"] > 1]
    clock = ", ".join(
        f"{MODEL_TITLES[r.params['model']]} on {r.params['ranks']} ranks "
        f"{number(r, 'variation', setting=fig15.OURS):.2f}"
        for r in timed
    )
    return finding(
        mine,
        measured=counted,
        holds=most < limit,
        direction=most < 0.5 * first,
        reason=f"variation of targets and neighbours of 4 x 8 ranks, limit {limit:g}; of the 4 "
        f"machines alone up to {machines:.3f}, which no schedule inside a machine can even out; "
        f"all to the first rank of a machine: at least {first:.2f}"
        + (f"; other graphs: {others}" if others else "")
        + (f"; processor time of sampling, no partition: {clock}" if clock else ""),
    )


def hash_balance(claim: Claim, rows: Rows) -> Finding:
    """Vertices even, and records more even than under partitioners that balance vertices."""
    found = [r for r in partition.last_rows(rows, partition.BALANCE) if not r.data.get("twin")]
    if not found:
        return missing(NONE.format(partition.NAME))
    others_by = ("fennel", "ldg", "metis")
    vertices = [partition.excesses(row, "vertices")["hash"] for row in found]
    even = all(excess <= EVEN for excess in vertices)
    better, by_edges, said = [], [], {}
    for row in found:
        by = partition.excesses(row)
        mine, others = by["hash"], {name: by[name] for name in others_by if name in by}
        better += [mine < other for other in others.values()]
        if "metis-edges" in by:
            by_edges.append(mine < by["metis-edges"])
        words = ", ".join(f"{name} {100 * other:.0f} %" for name, other in others.items())
        said[graph_title(row.params["dataset"])] = f"hash {100 * mine:.0f} %, {words}"
    if not better:
        return missing("no other partitioner ran; the preset full has them on more graphs")
    worst = max(found, key=lambda row: partition.excesses(row)["hash"])
    hub, strided = number(worst, "portion", of="largest vertex"), partition.excesses(found[0])
    return finding(
        found,
        measured=said,
        holds=even and all(better),
        direction=all(better),
        reason="records of the fullest of 4 machines beyond the mean; vertices are even to "
        f"{100 * max(vertices):.1f} %. METIS told to balance "
        f"edges is beaten on {sum(by_edges)} of {some(len(by_edges), 'graph')}; "
        f"{graph_title(worst.params['dataset'])} has {number(worst, 'vertices')} vertices, one "
        f"with {100 * hub:.0f} % of the records; ids in "
        f"strides of {partition.STRIDE} leave {100 * strided['strided']:.0f} %",
    )


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
