"""Claims on formats, change between snapshots and overlap transfer (3.1, 4.1, 5.2, 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import counted, missing_finding
from dgbench.systems.pipad.experiments.space import S_OPTIONS, is_between, saves

NONE = "the experiment 'space' did not run"


def formula(claim: Claim, rows: Sequence[Any]) -> Finding:
    """A printed formula against the lengths of the arrays that are really stored."""
    key = claim.id.rpartition("-")[2]  # sliced-csr, csr, coo all end in their own word
    key = "sliced" if "sliced" in claim.id else key
    found = select(rows, experiment="space")
    if not found:
        return missing_finding(NONE)
    wrong = sum(row.counters[f"mismatches_{key}"] for row in found)
    snapshots = sum(row.counters["snapshots"] for row in found)
    return counted(
        found,
        holds=wrong == 0,
        measured=claim.value if wrong == 0 else f"{wrong} of {snapshots} snapshots differ",
        reason=f"arrays of {snapshots} snapshots on {len(found)} graphs",
    )


def slice_cap(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = select(rows, experiment="space")
    if not found:
        return missing_finding(NONE)
    longest = max(row.counters["longest_slice"] for row in found)
    return counted(
        found,
        holds=longest <= claim.value,
        measured=longest,
        reason="longest slice met; the cap is an upper bound",
    )


def between(claim: Claim, rows: Sequence[Any]) -> Finding:
    """ "Normally": on more than half of the graphs."""
    found = select(rows, experiment="space")
    if not found:
        return missing_finding(NONE)
    inside = [row.params["dataset"] for row in found if is_between(row)]
    outside = sorted({row.params["dataset"] for row in found} - set(inside))
    return counted(
        found,
        holds=2 * len(inside) > len(found),
        measured=f"{len(inside)} of {len(found)} graphs",
        reason=f"not on {', '.join(outside)}" if outside else "",
    )


def youtube_space(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = select(rows, experiment="space", dataset="youtube")
    if not found:
        return missing_finding(NONE)
    c = found[-1].counters
    share = c["words_sliced"] / max(1, c["words_csr"])
    return counted(
        found, holds=share < 1, measured=f"sliced CSR takes {100 * share:.3g} % of CSR's words"
    )


def overlap_transfer(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Fewer words on every graph, for each partition size that the paper names."""
    found = select(rows, experiment="space")
    if not found:
        return missing_finding(NONE)
    bad = [
        f"{row.params['dataset']} at {size}"
        for row in found
        for size in S_OPTIONS
        if row.counters[f"words_whole_{size}"] and not saves(row, size)
    ]
    shares = [
        row.counters[f"words_partition_{size}"] / row.counters[f"words_whole_{size}"]
        for row in found
        for size in S_OPTIONS
        if row.counters[f"words_whole_{size}"]
    ]
    return counted(
        found,
        holds=not bad,
        measured=f"{100 * min(shares):.3g} to {100 * max(shares):.3g} % of whole snapshots",
        reason=f"more words on {', '.join(bad)}" if bad else f"{len(shares)} graphs and sizes",
    )


def slow_change(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Mean change of smoothed neighbours over the graphs, percent."""
    found = select(rows, experiment="space")
    if not found:
        return missing_finding(NONE)
    smoothed = 100 * fmean(row.values["change_smoothed"] for row in found)
    raw = 100 * fmean(row.values["change_raw"] for row in found)
    return counted(
        found,
        holds=None,
        measured=smoothed,
        target=float(claim.value),
        reason=f"raw snapshots change by {raw:.0f} %",
    )


def csc_transfer(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Topology bytes that a two-layer model moves in PyGT-G against PyGT-R, counted per step."""
    found = []
    shares = []
    for dataset in ("youtube", "flickr"):
        for model in ("evolvegcn", "mpnn_lstm"):
            per_step = {}
            for system in ("pygt-r", "pygt-g"):
                mine = [
                    r
                    for r in select(
                        rows, experiment="fig10", system=system, model=model, dataset=dataset
                    )
                    if r.counters.get("adjacency_bytes_counted") and not r.params.get("check")
                ]
                if mine:
                    steps = mine[0].counters["counted_steps"]
                    per_step[system] = mine[0].counters["adjacency_bytes_counted"] / steps
                    found.append(mine[0])
            if len(per_step) == 2:
                shares.append(per_step["pygt-g"] / per_step["pygt-r"])
    if not shares:
        return missing_finding("no two-layer model ran on a large graph in this run")
    return counted(
        found,
        holds=min(shares) > 1,
        measured=f"{min(shares):.2g}x to {max(shares):.2g}x the bytes of PyGT-R",
        reason="CSR and CSC with int32 ids and values against an int64 coordinate list",
    )
