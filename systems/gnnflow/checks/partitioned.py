"""Claims on graphs that lie on several machines: Table 7 and section 6.4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dgbench.lab.compare import ratio_of
from dgbench.lab.evidence import finding, from_ratio, missing
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments import large, table7
from dgbench.systems.gnnflow.experiments.settings import MODEL_TITLES, graph_title

Rows = Sequence[Any]

NEAR: Final = 0.25
"""Relative distance up to which a factor counts as the printed one."""
MODEL: Final = "alpha-beta model"
BYTES: Final = "bytes of a twin, multiplied up"
NONE: Final = "the experiment '{}' did not run"


def mag_gain(claim: Claim, rows: Rows) -> Finding:
    """Throughput over DistDGL's way on MAG, of GraphSAGE: the quotient of Table 7 is its."""
    found = table7.rows_of_kind(rows, table7.TRAIN)
    ratios = {
        model: ratio_of(Table.of(mine).where("speedup", baseline=table7.DISTDGL))
        for model, mine in _by_model(found).items()
    }
    if ratios.get(table7.FASTEST) is None:
        return missing(NONE.format(table7.NAME))
    return from_ratio(
        ratios[table7.FASTEST],
        target=float(claim.value),
        reason="; ".join(f"{MODEL_TITLES[m]} {r.value:.2f}x" for m, r in ratios.items())
        + "; both sample on the CPU by one rule, so only partition and store differ, and a twin "
        "has no communities for METIS to find",
    )


def _by_model(found: Rows) -> dict[str, list[Any]]:
    models = dict.fromkeys(row.params["model"] for row in found)
    return {model: [r for r in found if r.params["model"] == model] for model in models}


def graph_building(claim: Claim, rows: Rows) -> Finding:
    """Processor seconds to partition and build, METIS and rows over hash and blocks."""
    found = table7.rows_of_kind(rows, table7.BUILD)
    if not found:
        return missing(NONE.format(table7.NAME))
    gain, seconds = table7.build_gain(found), table7.build_times(found)
    printed = float(claim.value["DGL"]) / float(claim.value["GNNFlow"])
    return finding(
        found,
        measured={"DGL": seconds[table7.DISTDGL], "GNNFlow": seconds[table7.OURS]},
        holds=abs(gain.value / printed - 1) <= NEAR,
        direction=gain.side > 0,
        undecided=gain.side == 0,
        processes=gain.processes,
        reason=f"{gain.value:.1f}x, printed {printed:.2f}x; {number(found[-1], 'events')} edges of "
        f"a twin for 4 machines in one process, without a network; "
        f"{number(found[-1], 'throughput', of='edges') / 1e6:.1f} M edges/s, printed "
        f"{1.3e9 / claim.value['GNNFlow'] / 1e6:.2f} M",
    )


def throughput(name: str) -> Check:
    """A check of samples per second of both models; of a contender."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = table7.last_rows(rows, table7.TRAIN)
        said = {MODEL_TITLES[r.params["model"]]: table7.throughputs(r)[name] for r in found}
        where = f"2 ranks of a CPU do {', '.join(f'{m} {v:.0f}' for m, v in said.items())}"
        return missing(
            "a number of 32 T4, which no smaller machine can stand for"
            + (f"; {where} samples/s" if said else "")
        )

    return check


def accuracy_parity(claim: Claim, rows: Rows) -> Finding:
    """Nothing here: both ways sample by one rule, so that they are equally accurate by making."""
    found = table7.last_rows(rows, table7.ACCURACY)
    said = {}
    for row in found:
        precisions = Table.of([row]).where("average_precision").numbers("setting")
        ours, other = (precisions[name] for name in (table7.OURS, table7.DISTDGL))
        said[MODEL_TITLES[row.params["model"]]] = f"{ours:.4f} and {other:.4f}"
    words = ", ".join(f"{model} {both}" for model, both in said.items())
    return missing(
        "needs DistDGL's own training: the two ways here differ in partition and store alone, so "
        "that they are as accurate by construction"
        + (
            f" (average precision on {graph_title(found[0].params['dataset'])}: {words})"
            if said
            else ""
        )
    )


def mag_too_large(claim: Claim, rows: Rows) -> Finding:
    """Features and edges of MAG against the memory of a machine."""
    found = [r for r in large.last_rows(rows, large.SIZES) if r.params["dataset"] == "mag"]
    if not found:
        return missing(NONE.format(large.NAME))
    total, half = (large.memory(found[0], "total", dtype) for dtype in (None, "float16"))
    return finding(
        found,
        measured=f"{total / 1e9:.0f} GB of {large.HOST / 1e9:.0f} GB",
        holds=total > large.HOST,
        reason=f"{large.memory(found[0], 'features') / 1e9:.0f} GB of float32 features and "
        f"{large.memory(found[0], 'edges') / 1e9:.0f} GB of edges, by printed sizes; in half "
        f"precision {half / 1e9:.0f} GB would fit, and Table 2 has TGL on it",
    )


def _ldbc(rows: Rows) -> Any | None:
    found = large.last_rows(rows, large.MEMORY)
    return found[-1] if found else None


def _by_threshold(judge: Callable[[Claim, Any, int], Finding]) -> Check:
    """A check under every threshold that was counted, as none is printed for LDBC."""

    def at(tau: int, claim: Claim, rows: Rows) -> Finding:
        row = _ldbc(rows)
        return missing(NONE.format(large.NAME)) if row is None else judge(claim, row, tau)

    return readings(
        "the threshold of the blocks is not printed",
        **{f"threshold {tau}": partial(at, tau) for tau in large.TAUS},
    )


def _ldbc_edges(claim: Claim, row: Any, tau: int) -> Finding:
    return finding(
        [row],
        model=BYTES,
        measured=large.gigabytes(row, "edge")[tau],
        target=float(claim.value),
        reason="degrees of the twin are assumed",
    )


def _ldbc_metadata(claim: Claim, row: Any, tau: int) -> Finding:
    return finding(
        [row],
        model=BYTES,
        measured=large.gigabytes(row, "metadata")[tau],
        target=float(claim.value),
        reason=f"the printed {claim.value} GB are "
        f"{float(claim.value) * 1e9 / large.BLOCK / 1e6:.0f} M blocks of 64 bytes, less than half "
        "a block for each of 113 M vertices: few of them have edges of their own, and the table "
        "of vertices is not counted. Degrees of the twin are assumed",
    )


ldbc_edges = _by_threshold(_ldbc_edges)
"""Bytes of slots on a twin, multiplied up."""
ldbc_metadata = _by_threshold(_ldbc_metadata)
"""Bytes of blocks on a twin, multiplied up."""


def ldbc_throughput(claim: Claim, rows: Rows) -> Finding:
    """Events per second of TGN on 64 T4 of eight machines, projected."""
    found = large.last_rows(rows, large.TRAIN)
    if not found:
        return missing(NONE.format(large.NAME))
    row = found[-1]
    ends = sorted(one / 1e3 for one in Table.of([row]).where("projected_throughput").values)
    return finding(
        [row],
        model=MODEL,
        measured=f"{ends[0]:.0f} to {ends[1]:.0f} thousand",
        holds=ends[0] <= float(claim.value) <= ends[1],
        undecided=ends[0] > float(claim.value),
        reason="an upper end, as nothing waits in it: a printed number below it is neither for "
        "nor against; "
        f"{number(row, 'throughput'):.0f} events/s on 2 ranks of a CPU",
    )


def five_billion(claim: Claim, rows: Rows) -> Finding:
    """Check if 5.1 billion edges and TGN's memories fit eight machines, and if they fit one."""
    row = _ldbc(rows)
    if row is None:
        return missing(NONE.format(large.NAME))
    edges, blocks = (large.gigabytes(row, part) for part in ("edge", "metadata"))
    stored = 1e9 * max(edges[tau] + blocks[tau] for tau in large.TAUS)
    memories = large.memory(row, "memories")
    share = (stored + memories) / large.MACHINES["ldbc"]
    alone = large.memory(row, "rebuild") + memories
    return finding(
        [row],
        model=BYTES,
        measured=f"{share / 1e9:.0f} GB on each of 8 machines",
        holds=share < large.HOST < alone,
        direction=share < large.HOST,
        reason=f"edges, blocks and TGN's memories at the dearest threshold, of "
        f"{large.HOST / 1e9:.0f} GB; that others cannot is not shown in the paper: sorted rows and "
        "the events that they are rebuilt from, in words of 8 bytes, and memories take "
        f"{alone / 1e9:.0f} GB, which would "
        f"{'not ' if alone > large.HOST else 'just '}fit one machine",
    )
