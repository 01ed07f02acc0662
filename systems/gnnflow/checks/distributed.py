"""Claims on distribution: scaling (6.3), partitions and schedule (4.4), large graphs (6.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.base.compare import select
from dgbench.systems.base.turns import gain_of
from dgbench.systems.gnnflow.checks.common import (
    NEEDS_CUDA,
    finding,
    missing,
    some,
    strength,
)
from dgbench.systems.gnnflow.experiments import fig15, large, partition, table7
from dgbench.systems.gnnflow.experiments.common import graph_title
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, SETTINGS

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
    found = select(rows, experiment=fig15.NAME)
    ones = [row for row in found if row.params["ranks"] == 1]
    if not ones:
        return missing(NONE.format(fig15.NAME))
    leads = {
        f"{MODEL_TITLES[row.params['model']]}, by {reading}": min(
            row.values[f"projected {reading} {ranks} {fig15.OURS}"]
            / row.values[f"projected {reading} {ranks} {name}"]
            for name in (fig15.CACHED, fig15.TGL)
            for ranks in fig15.PROJECTED
        )
        for row in ones
        for reading in fig15.READINGS
    }
    here = ", ".join(
        f"{MODEL_TITLES[row.params['model']]} on {some(row.params['ranks'], 'rank')} "
        f"{gain_of([row], name).value:.2f}x over {name}"
        for row in found
        for name in (fig15.CACHED, fig15.TGL)
    )
    return finding(
        ones,
        evidence="projected",
        measured={name: f"{lead:.2f}x" for name, lead in leads.items()},
        holds=min(leads.values()) > 1,
        reason=f"least lead on 1 to 32 T4, by what scales computing; on this CPU: {here}",
    )


def near_linear(claim: Claim, rows: Rows) -> Finding:
    """Throughput by processor time over ranks of one machine, and projected to 8 T4."""
    found = select(rows, experiment=fig15.NAME)
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
        evidence=strength(found),
        measured=measured,
        holds=least >= LINEAR,
        reason=f"of linear, by processor time; projected to 8 T4: {eight}",
    )


def efficiency_32(claim: Claim, rows: Rows) -> Finding:
    """Projected throughput of 32 T4 over 32 times that of one."""
    found = [r for r in select(rows, experiment=fig15.NAME) if r.params["ranks"] == 1]
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
        evidence="projected",
        measured=measured,
        direction=all(high < 100 for _, high in ends.values())
        and ends.get("tgn", [0, 0])[1] <= ends.get("tgat", [0, 100])[1],
        reason="less than linear, TGN least, as its memories go to every machine; an upper end: "
        "computing scaled by a T4's arithmetic or by its bandwidth, and no rank waits for another",
    )


# Section 4.4.


def sampling_cv(claim: Claim, rows: Rows) -> Finding:
    """Variation of what 32 ranks sample for each other under the static schedule."""
    found = partition.rows_of(rows, partition.SERVING)
    if not found:
        return missing(NONE.format(partition.NAME))
    limit = float(claim.value)
    mine = [row for row in found if row.params["dataset"] == "gdelt"] or found
    counted = {
        SETTINGS[model].title: max(row.values[f"cv static {model}"] for row in mine)
        for model in SETTINGS
    }
    most = max(counted.values())
    first = min(row.values[f"cv first {model}"] for row in mine for model in SETTINGS)
    machines = max(row.values[f"cv machines {model}"] for row in mine for model in SETTINGS)
    others = ", ".join(
        f"{graph_title(row.params['dataset'])} "
        f"{max(row.values[f'cv static {m}'] for m in SETTINGS):.3f}"
        for row in found
        if row not in mine
    )
    timed = [r for r in select(rows, experiment=fig15.NAME) if r.params["ranks"] > 1]
    clock = ", ".join(
        f"{MODEL_TITLES[r.params['model']]} on {r.params['ranks']} ranks "
        f"{r.values[f'sampling cv {fig15.OURS}']:.2f}"
        for r in timed
    )
    return finding(
        mine,
        evidence="analogue",
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
    found = [r for r in partition.rows_of(rows, partition.BALANCE) if not r.data.get("twin")]
    if not found:
        return missing(NONE.format(partition.NAME))
    others_by = ("fennel", "ldg", "metis")
    even = all(row.values["vertices hash 4"] <= EVEN for row in found)
    better, by_edges, said = [], [], {}
    for row in found:
        mine = row.values["records hash 4"]
        others = {by: row.values[f"records {by} 4"] for by in others_by
                  if f"records {by} 4" in row.values}  # fmt: skip
        better += [mine < other for other in others.values()]
        if "records metis-edges 4" in row.values:
            by_edges.append(mine < row.values["records metis-edges 4"])
        words = ", ".join(f"{by} {100 * other:.0f} %" for by, other in others.items())
        said[graph_title(row.params["dataset"])] = f"hash {100 * mine:.0f} %, {words}"
    if not better:
        return missing("no other partitioner ran; the preset full has them on more graphs")
    worst = max(found, key=lambda row: row.values["records hash 4"])
    return finding(
        found,
        evidence="counted",
        measured=said,
        holds=even and all(better),
        direction=all(better),
        reason="records of the fullest of 4 machines beyond the mean; vertices are even to "
        f"{100 * max(r.values['vertices hash 4'] for r in found):.1f} %. METIS told to balance "
        f"edges is beaten on {sum(by_edges)} of {some(len(by_edges), 'graph')}; "
        f"{graph_title(worst.params['dataset'])} has {worst.counters['vertices']} vertices, one "
        "with "
        f"{100 * worst.values['hub share']:.0f} % of the records; ids in strides of "
        f"{partition.STRIDE} leave {100 * found[0].values['records strided 4']:.0f} %",
    )


def edge_cut(claim: Claim, rows: Rows) -> Finding:
    """Bytes that sampling takes from other machines: edge-cut by hash, the best vertex-cut."""
    found = partition.rows_of(rows, partition.CUTS)
    if not found:
        return missing(NONE.format(partition.NAME))
    said, less = {}, []
    for row in found:
        key = "cut bytes {} 4"
        ours = row.counters[key.format("edge-cut hash")]
        cuts = {
            by: row.counters[key.format(f"vertex-cut {by}")]
            for by in ("random", "dbh", "hdrf")
            if key.format(f"vertex-cut {by}") in row.counters
        }
        best = min(cuts, key=cuts.__getitem__)
        less.append(ours < cuts[best])
        said[graph_title(row.params["dataset"])] = f"{cuts[best] / ours:.2f}x by {best}"
    return finding(
        found,
        evidence="counted",
        measured=said,
        holds=all(less),
        reason="bytes of the best vertex-cut over those of the identity hash's edge-cut; 4 "
        "machines, 10 newest neighbours of both ends",
    )


# Section 6.4.


def mag_gain(claim: Claim, rows: Rows) -> Finding:
    """Throughput over DistDGL's way on MAG, the larger one of two models."""
    found = table7.rows_of(rows, table7.TRAIN)
    if not found:
        return missing(NONE.format(table7.NAME))
    ratios = {row.params["model"]: gain_of([row], table7.DISTDGL) for row in found}
    best = max(ratios, key=lambda model: ratios[model].value)
    result = finding(
        found,
        evidence=strength(found),
        measured=ratios[best].value,
        direction=ratios[best].value > 1,
        target=float(claim.value),
        reason="; ".join(f"{MODEL_TITLES[m]} {r.value:.2f}x" for m, r in ratios.items())
        + "; both sample on the CPU by one rule, so only partition and store differ, and a twin "
        "has no communities for METIS to find",
    )
    result.low, result.high = ratios[best].low, ratios[best].high
    return result


def graph_building(claim: Claim, rows: Rows) -> Finding:
    """Processor seconds to partition and build, METIS and rows over hash and blocks."""
    found = table7.rows_of(rows, table7.BUILD)
    if not found:
        return missing(NONE.format(table7.NAME))
    row = found[-1]
    gain, low = row.values["gain build"], row.values.get("low build", 0.0)
    return finding(
        [row],
        evidence="analogue",
        measured={
            "DGL": row.values[f"build_s {table7.DISTDGL}"],
            "GNNFlow": row.values[f"build_s {table7.OURS}"],
        },
        direction=gain > 1,
        undecided=low <= 1 <= row.values.get("high build", gain),
        reason=f"{gain:.1f}x, printed {claim.value['DGL'] / claim.value['GNNFlow']:.2f}x; "
        f"{row.counters['events']} edges of a twin for 4 machines in one process, without a "
        f"network; {row.values['edges_per_s'] / 1e6:.1f} M edges/s, printed "
        f"{1.3e9 / claim.value['GNNFlow'] / 1e6:.2f} M",
    )


def _throughput(name: str) -> Check:
    """A check of samples per second of both models; of a contender."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = table7.rows_of(rows, table7.TRAIN)
        said = {MODEL_TITLES[r.params["model"]]: r.values[f"throughput {name}"] for r in found}
        where = f"2 ranks of a CPU do {', '.join(f'{m} {v:.0f}' for m, v in said.items())}"
        return missing(
            "a number of 32 T4, which no smaller machine can stand for"
            + (f"; {where} samples/s" if said else f": {NEEDS_CUDA}")
        )

    return check


def accuracy_parity(claim: Claim, rows: Rows) -> Finding:
    """Average precision of both ways after the same training, on a real graph."""
    found = table7.rows_of(rows, table7.ACCURACY)
    if not found:
        return missing(NONE.format(table7.NAME))
    said, level = {}, []
    for row in found:
        ours, other = (row.values[f"ap {name}"] for name in (table7.OURS, table7.DISTDGL))
        said[MODEL_TITLES[row.params["model"]]] = f"{ours:.4f} and {other:.4f}"
        level.append(ours >= other - 0.01)
    return finding(
        found,
        evidence="analogue",
        measured=said,
        holds=all(level),
        reason=f"average precision on {graph_title(found[0].params['dataset'])}; neither partition "
        "nor store changes what is sampled, so the two are one by construction. DGL samples "
        "without regard to time, which is not compared here",
    )


def mag_too_large(claim: Claim, rows: Rows) -> Finding:
    """Features and edges of MAG against the memory of a machine."""
    found = [r for r in large.rows_of(rows, large.SIZES) if r.params["dataset"] == "mag"]
    if not found:
        return missing(NONE.format(large.NAME))
    counts = found[0].counters
    return finding(
        found,
        evidence="counted",
        measured=f"{counts['total'] / 1e9:.0f} GB of {large.HOST / 1e9:.0f} GB",
        holds=counts["total"] > large.HOST,
        reason=f"{counts['features'] / 1e9:.0f} GB of float32 features and "
        f"{counts['edges'] / 1e9:.0f} GB of edges, by printed sizes; in half precision "
        f"{counts['total, half precision'] / 1e9:.0f} GB would fit, and Table 2 has TGL on it",
    )


def _ldbc(rows: Rows) -> Any | None:
    found = large.rows_of(rows, large.MEMORY)
    return found[-1] if found else None


def ldbc_edges(claim: Claim, rows: Rows) -> Finding:
    """Bytes of slots on a twin, multiplied up, at the threshold that fits."""
    row = _ldbc(rows)
    if row is None:
        return missing(NONE.format(large.NAME))
    tau = large.fitting(row)
    ends = [row.values[f"edge GB {t}"] for t in (large.TAUS[0], large.TAUS[-1])]
    return finding(
        [row],
        evidence="projected",
        measured=row.values[f"edge GB {tau}"],
        direction=ends[0] <= float(claim.value) <= ends[1],
        reason=f"at a threshold of {tau}, which is not printed; {ends[0]:.0f} to {ends[1]:.0f} GB "
        f"over all thresholds, {row.values['edge GB at both ends']:.0f} GB if edges were stored at "
        "both ends",
    )


def ldbc_metadata(claim: Claim, rows: Rows) -> Finding:
    """Bytes of blocks on a twin, multiplied up, at the threshold that fits the edges."""
    row = _ldbc(rows)
    if row is None:
        return missing(NONE.format(large.NAME))
    tau = large.fitting(row)
    value = row.values[f"metadata GB {tau}"]
    least = min(row.values[f"metadata GB {t}"] for t in large.TAUS)
    small = value * 1e9 / large.PRINTED["edge"]
    return finding(
        [row],
        evidence="projected",
        measured=value,
        direction=small < 0.1,
        reason=f"at the threshold {tau} that fits the edges, at least {least:.1f} GB at any; the "
        f"printed {claim.value} GB are {float(claim.value) * 1e9 / large.BLOCK / 1e6:.0f} M blocks "
        "of 64 bytes, less than half a block for each of 113 M vertices: few of them have edges of "
        "their own, and the table of vertices is not counted. Degrees of the twin are assumed",
    )


def ldbc_throughput(claim: Claim, rows: Rows) -> Finding:
    """Events per second of TGN on 64 T4 of eight machines, projected."""
    found = large.rows_of(rows, large.TRAIN)
    if not found:
        return missing(NONE.format(large.NAME))
    row = found[-1]
    ends = sorted(row.values[f"projected {reading}"] / 1e3 for reading in fig15.READINGS)
    return finding(
        [row],
        evidence="projected",
        measured=f"{ends[0]:.0f} to {ends[1]:.0f} thousand",
        direction=ends[1] >= float(claim.value),
        reason="an upper end, as nothing waits in it, and the printed number has to lie below; "
        f"{row.values['throughput']:.0f} events/s on 2 ranks of a CPU",
    )


def five_billion(claim: Claim, rows: Rows) -> Finding:
    """Whether 5.1 billion edges and TGN's memories fit eight machines, and one machine."""
    row = _ldbc(rows)
    if row is None:
        return missing(NONE.format(large.NAME))
    tau = large.fitting(row)
    counts = row.counters
    stored = 1e9 * (row.values[f"edge GB {tau}"] + row.values[f"metadata GB {tau}"])
    share = (stored + counts["memories"]) / large.MACHINES["ldbc"]
    alone = counts["rebuild"] + counts["memories"]
    return finding(
        [row],
        evidence="projected",
        measured=f"{share / 1e9:.0f} GB on each of 8 machines",
        direction=share < large.HOST,
        reason=f"edges, blocks and TGN's memories, of {large.HOST / 1e9:.0f} GB; that others "
        "cannot is not shown in the paper: sorted rows and the events that they are rebuilt from, "
        f"in words of 8 bytes, and memories take {alone / 1e9:.0f} GB, which would "
        f"{'not ' if alone > large.HOST else 'just '}fit one machine",
    )


CHECKS: Final[dict[str, Check]] = {
    "gnnflow-fig15-best-throughput": best_throughput,
    "gnnflow-fig15-near-linear": near_linear,
    "gnnflow-fig15-32gpu-efficiency": efficiency_32,
    "gnnflow-s44-sampling-cv": sampling_cv,
    "gnnflow-s44-hash-balance": hash_balance,
    "gnnflow-s44-edge-cut-preferred": edge_cut,
    "gnnflow-abs-mag-throughput-gain": mag_gain,
    "gnnflow-tab7-graph-building": graph_building,
    "gnnflow-tab7-dgl-throughput": _throughput(table7.DISTDGL),
    "gnnflow-tab7-gnnflow-throughput": _throughput(table7.OURS),
    "gnnflow-s64-accuracy-parity": accuracy_parity,
    "gnnflow-s64-mag-too-large": mag_too_large,
    "gnnflow-s64-ldbc-edge-memory": ldbc_edges,
    "gnnflow-s64-ldbc-metadata": ldbc_metadata,
    "gnnflow-s64-ldbc-throughput": ldbc_throughput,
    "gnnflow-s1-five-billion-edges": five_billion,
}
