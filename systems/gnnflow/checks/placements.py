"""Claims on placements of the graph under a limit of GPU memory (section 6.2, Figure 13)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import number, rows_of
from dgbench.lab.verbs import readings
from dgbench.systems.base import Claim, Finding
from dgbench.systems.gnnflow.experiments import fig13
from dgbench.systems.gnnflow.experiments.fig13 import CPU, ENFORCED, OVERSUBSCRIBE, TITLES
from dgbench.systems.gnnflow.experiments.settings import DATASET_OF, NEEDS_CUDA, graph_title
from dgbench.systems.gnnflow.experiments.table6 import graph_rows, table

Rows = Sequence[Any]
SMALL, LARGE = "reddit", ("gdelt", "netflix")
VERTICES = {"gdelt": 16_682, "netflix": 497_959}
"""Vertices of the published graphs."""
FAR = 2.0
"""Times as slow as all else from which something is far slower."""


def _ratios(rows: Rows, name: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Ratio]:
    """By words, how many times as fast the second of a pair is; only pairs that ran."""
    mine = rows_of(rows, experiment=fig13.NAME, dataset=name)
    found = {}
    for slow, fast in pairs:
        ratio = fig13.over(mine, slow, fast)
        if ratio is not None:
            found[f"{graph_title(name)}: {_short(fast)} over {_short(slow)}"] = ratio
    return found


def _short(system: str) -> str:
    return "CPU" if system == CPU else TITLES[system]


def _ordering(rows: Rows, ratios: dict[str, Ratio], *, asked: int, reason: str = "") -> Finding:
    """All of these factors above 1x."""
    if not ratios:
        return missing(NEEDS_CUDA)
    used = {key for ratio in ratios.values() for key in ratio.rows}
    mine = [row for row in rows if row.id in used]
    if len(ratios) < asked:
        told = _lacking(rows)
        return missing(f"some placements did not run{told}; measured: {_told(ratios)}")
    sides = [ratio.side for ratio in ratios.values()]
    return finding(
        mine,
        measured={words: round(ratio.value, 2) for words, ratio in ratios.items()},
        holds=all(side > 0 for side in sides),
        undecided=0 in sides and -1 not in sides,
        reason=reason,
    )


def _told(ratios: dict[str, Ratio]) -> str:
    return ", ".join(f"{words} {ratio.value:.2f}x" for words, ratio in ratios.items())


def _lacking(rows: Rows) -> str:
    """Describe the cells that did not run, and their status, in brackets."""
    found = {
        f"{graph_title(row.params['dataset'])} {_short(row.params['system'])}: {row.status}"
        for row in rows
        if row.experiment == fig13.NAME and row.status != "ok"
    }
    return f" ({', '.join(sorted(found))})" if found else ""


def small_graph(claim: Claim, rows: Rows) -> Finding:
    """Everything on the GPU and unified memory before hybrid before UVA, all before the CPU."""
    pairs = [("hybrid", "cuda"), ("hybrid", "unified"), ("uva", "hybrid"), (CPU, "uva")]
    return _ordering(rows, _ratios(rows, SMALL, pairs), asked=len(pairs))


def hybrid_over_uva(claim: Claim, rows: Rows) -> Finding:
    """Hybrid before UVA on every graph that the claim names."""
    names = [DATASET_OF[title] for title in claim.workload["datasets"]]
    ratios: dict[str, Ratio] = {}
    for name in names:
        ratios |= _ratios(rows, name, [("uva", "hybrid")])
    return _ordering(rows, ratios, asked=len(names))


def uva_below_cpu(claim: Claim, rows: Rows) -> Finding:
    """The CPU before UVA on the graph that the text calls large."""
    ratios = _ratios(rows, LARGE[0], [("uva", CPU)])
    others = _ratios(rows, LARGE[1], [("uva", CPU)])
    return _ordering(rows, ratios, asked=1, reason=_told(others))


def _whole_graph(name: str, claim: Claim, rows: Rows) -> Finding:
    """Bytes of one graph at its published size, as Table 6 counts them, against the limit.

    Empty slots and lists are those of adaptive blocks on the twin: lists get longer with the graph.
    """
    title = graph_title(name)
    counted = [row for row in fig13.cpu_rows(rows) if row.params["dataset"] == name]
    lists = graph_rows(rows, name)
    if not counted or not lists:
        return missing(f"no bytes were counted on {title} in this run")
    adaptive = table(lists[-1])["Adaptive"]
    slots = adaptive["edge MB"] / table(lists[-1])["Static"]["edge MB"]
    blocks = adaptive["average"] * VERTICES[name] * fig13.table6.BLOCK / fig13.LIMIT
    share = fig13.share(counted[-1]) * slots + blocks
    printed = fig13.printed_bytes(name) / fig13.LIMIT
    ended = sorted(
        {
            row.status
            for row in rows
            if row.experiment == fig13.NAME
            and row.params["system"] == "cuda"
            and row.params["dataset"] == name
            and row.device == "cuda"
        }
    )
    return finding(
        [counted[-1], lists[-1]],
        model="sizes of the paper's records",
        measured=f"{share:.1%} of the limit",
        holds=share > 1,
        reason=f"{title}: records of 20 bytes without empty slots take "
        f"{fig13.share(counted[-1]):.0%}, with what Table 6 prints it comes to {printed:.0%}"
        + "".join(f"; on the GPU, under a limit set by Table 6: {one}" for one in ended),
    )


out_of_memory = readings(
    "the text calls GDELT the large graph, the captions Netflix",
    **{
        "GDELT, by the text": partial(_whole_graph, "gdelt"),
        "Netflix, by the captions": partial(_whole_graph, "netflix"),
    },
)
"""Bytes of the whole graph against the limit."""


def thrashing(claim: Claim, rows: Rows) -> Finding:
    """Unified memory against the slowest of all others on the large graph."""
    others = ("hybrid", "uva", CPU)
    ratios = _ratios(rows, LARGE[0], [("unified", other) for other in others])
    if not ratios:
        return missing(NEEDS_CUDA)
    used = {key for ratio in ratios.values() for key in ratio.rows}
    mine = [row for row in rows if row.id in used]
    if not all(
        number(row, "memory", of="ballast") for row in mine if row.params["system"] == "unified"
    ):
        return missing(
            f"unified memory had no limit; {OVERSUBSCRIBE}=1 sets one by holding the rest of the "
            "device's memory"
        )
    limit = min(number(row, "memory", of="limit") for row in mine)
    if limit < ENFORCED:
        return missing(
            f"a limit of {limit / 1e6:.0f} MB is too small to be kept with unified memory; "
            "run the preset 'paper', whose graph and limit have their full size"
        )
    least = min(ratios.values(), key=lambda ratio: ratio.value)
    sides = [ratio.side for ratio in ratios.values()]
    return finding(
        mine,
        measured=f"{least.value:.2f}x as slow as the next slowest",
        holds=all(side > 0 for side in sides) and least.value >= FAR,
        undecided=0 in sides and -1 not in sides,
        reason=_told(ratios),
    )
