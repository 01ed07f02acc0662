"""Claims on one graph layer (5.3, Figure 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import Ratio, paired, select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import from_ratio, missing_finding, strength
from dgbench.systems.pipad.experiments.fig11 import layer_ratio
from dgbench.systems.pipad.experiments.settings import BY_NAME

NONE = "no layer race of this run covers it"
DENSER = ("flickr", "hepth", "epinions")


def average(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Geometric mean over graphs at the paper's feature lengths."""
    slow = "pygt-g" if claim.id.endswith("pygtg") else "pygt"
    mine = [
        r
        for r in select(rows, experiment="fig11")
        if r.params["dim"] == BY_NAME[r.params["dataset"]].feature_dim
    ]
    ratio = paired(mine, {"system": slow}, {"system": "pipad"})
    graphs = len({r.params["dataset"] for r in mine})
    return from_ratio(
        ratio,
        rows,
        target=claim.value["mean"],
        missing=NONE,
        reason=f"geometric mean of {graphs} graphs; forward pass",
    )


def _small_dims(rows: Sequence[Any]) -> dict[tuple[str, int], Ratio]:
    mine = select(rows, experiment="fig11", system="pipad")
    keys = sorted({(r.params["dataset"], r.params["dim"]) for r in mine})
    found = {k: layer_ratio(rows, k[0], "pygt", "pipad", k[1]) for k in keys if BY_NAME[k[0]].small}
    return {key: ratio for key, ratio in found.items() if ratio is not None}


def _finding(rows: Sequence[Any], used: Sequence[Ratio], **fields: Any) -> Finding:
    ids = list(dict.fromkeys(i for ratio in used for i in ratio.rows))
    return Finding(
        evidence=strength([r for r in rows if r.id in set(ids)]),
        twin=any(ratio.twin for ratio in used),
        rows=ids,
        deviation=max((r.deviation for r in used if r.deviation is not None), default=None),
        **fields,
    )


def denser_better(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Geometric means of the graphs that the paper calls denser, and of the others."""
    mine = [
        r
        for r in select(rows, experiment="fig11")
        if r.params["dim"] == BY_NAME[r.params["dataset"]].feature_dim
    ]
    dense, other = (
        paired(
            [r for r in mine if (r.params["dataset"] in DENSER) == wanted],
            {"system": "pygt"},
            {"system": "pipad"},
        )
        for wanted in (True, False)
    )
    if dense is None or other is None:
        return missing_finding("a denser and another graph are needed; " + NONE)
    order = dense.against(other)
    return _finding(
        rows,
        [dense, other],
        measured={"denser": f"{dense.value:.2g}x", "others": f"{other.value:.2g}x"},
        holds=order > 0,
        undecided=order == 0,
    )


def dim_sensitivity(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Lowest speed-up over all lengths on the small graphs."""
    found = _small_dims(rows)
    if not found:
        return missing_finding(NONE)
    key = min(found, key=lambda k: found[k].value)
    return from_ratio(
        found[key],
        rows,
        target=claim.value["low"],
        reason=f"lowest of {len(found)}: {BY_NAME[key[0]].title} at length {key[1]}",
    )


def small_dim_better(claim: Claim, rows: Sequence[Any]) -> Finding:
    """On every small graph the shortest length gains more than the longest."""
    found = _small_dims(rows)
    graphs: dict[str, list[int]] = {}
    for name, dim in found:
        graphs.setdefault(name, []).append(dim)
    pairs = {name: (min(dims), max(dims)) for name, dims in graphs.items() if len(dims) > 1}
    if not pairs:
        return missing_finding(NONE)
    shown = {
        BY_NAME[name].title: f"{found[name, low].value:.2g}x at {low}, "
        f"{found[name, high].value:.2g}x at {high}"
        for name, (low, high) in pairs.items()
    }
    sides = [found[n, low].against(found[n, high]) for n, (low, high) in pairs.items()]
    return _finding(
        rows,
        list(found.values()),
        measured=shown,
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
    )
