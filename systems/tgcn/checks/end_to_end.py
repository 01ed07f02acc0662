"""What Figure 6's rows say of the claims of section 6.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.compare import ratio_of
from dgbench.lab.probes import probe
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import (
    NEEDS_CUDA,
    finding,
    missing,
    papers_graphs,
    strength,
)
from dgbench.systems.tgcn.experiments.common import number
from dgbench.systems.tgcn.experiments.fig6 import (
    DYGNN,
    JODIE,
    LARGE,
    NAME,
    PLAIN,
    RELAXED,
    WHOLE,
    gain,
)
from dgbench.systems.tgcn.experiments.races import TGCN, TITLES
from dgbench.systems.tgcn.experiments.settings import BY_NAME, PRINTED_TITLE

Rows = Sequence[Any]
NO_ROW = "needs a row of fig6"
RESIDENT = probe("gpu_kernel_resident_percent")
"""What NVML calls utilisation."""


def _races(rows: Rows) -> list[Any]:
    return papers_graphs(rows_of(rows, experiment=NAME, what="race"))


def _controls(rows: Rows) -> str:
    """What relaxed order and fewer edges bring on their own."""
    words = []
    for other in (RELAXED, WHOLE):
        values = Table.of(rows).where("speedup", baseline=other).values
        words.append(f"over {TITLES[other]} {min(values):.2f}x to {max(values):.2f}x")
    return "controls: " + ", ".join(words)


def _against(other: str) -> Check:
    def check(claim: Claim, rows: Rows) -> Finding:
        found = _races(rows)
        gains = Table.of(found).where("speedup", baseline=other)
        ratio = ratio_of(gains)
        if ratio is None:
            return missing(NO_ROW)
        each = ", ".join(f"{BY_NAME[one['dataset']].title} {one.value:.1f}x" for one in gains)
        return Finding(
            measured=ratio.value,
            direction=ratio.value > 1,
            low=ratio.low,
            high=ratio.high,
            target=float(claim.value["mean"]),
            evidence=strength(found),
            twin=ratio.twin,
            rows=ratio.rows,
            reason=f"{each}; {_controls(found)}",
            deviation=ratio.deviation,
        )

    return check


def beats_both(claim: Claim, rows: Rows) -> Finding:
    """T-GCN is faster than both on every graph, by intervals."""
    found = _races(rows)
    if not found:
        return missing(NO_ROW)
    gains = {
        other: [gain([row], other) for row in found] for other in (DYGNN, JODIE)
    }  # fmt: skip
    sides = [one.side for each in gains.values() for one in each]
    slowest = min(one.value for each in gains.values() for one in each)
    faster = sum(j.value > d.value for d, j in zip(*gains.values(), strict=True))
    return finding(
        found,
        evidence=strength(found),
        measured=slowest,
        holds=all(side > 0 for side in sides) and faster == len(found),
        direction=all(side > 0 for side in sides),
        undecided=any(side == 0 for side in sides),
        reason=(
            f"at least {slowest:.1f}x over either; DyGNN is the faster baseline on {faster} of "
            f"{len(found)} graphs; {_controls(found)}"
        ),
    )


def largest(claim: Claim, rows: Rows) -> Finding:
    """The largest gain over either baseline."""
    found = _races(rows)
    if not found:
        return missing(NO_ROW)
    ratio, other, row = max(
        ((gain([row], other), other, row) for row in found for other in (DYGNN, JODIE)),
        key=lambda one: one[0].value,
    )
    return Finding(
        measured=ratio.value,
        direction=ratio.value > 1,
        low=ratio.low,
        high=ratio.high,
        target=7.9,
        evidence=strength(found),
        twin=ratio.twin,
        rows=ratio.rows,
        reason=f"over {TITLES[other]} on {BY_NAME[row.params['dataset']].title}; "
        f"{_controls(found)}",
        deviation=ratio.deviation,
    )


def underused(claim: Claim, rows: Rows) -> Finding:
    """The GPU is not saturated by the small graphs."""
    found = [row for row in _races(rows) if row.device == "cuda"]
    known = [busy for row in found if (busy := RESIDENT.read(row)) is not None]
    if not known:
        return missing(NEEDS_CUDA)
    return finding(
        found,
        evidence="measured",
        measured=max(known),
        holds=max(known) < 90,
        reason="mean utilisation of a process that trains all contenders, in percent",
    )


def twitter_time(claim: Claim, rows: Rows) -> Finding:
    """Time on Twitter, from the rate on a twin of a part of it."""
    found = rows_of(rows, experiment=NAME, what="rate", device="cuda")
    if not found:
        return missing(NEEDS_CUDA)
    edges = BY_NAME[LARGE].printed.edges
    seconds = edges * number(found[-1], "edge_time", setting=TGCN)
    return finding(
        found,
        evidence="projected",
        measured=seconds,
        target=float(claim.value),
        reason=(
            f"an epoch at the rate of {number(found[-1], 'edges', of=None):,} edges of a "
            "twin; the paper does not say how many epochs it trained"
        ),
    )


def _rates(rows: Rows, name: str) -> dict[str, float]:
    by_graph = Table.of(rows).where("throughput", setting=name).numbers("dataset")
    return {PRINTED_TITLE.get(graph, graph): rate for graph, rate in by_graph.items()}


def _throughput(name: str) -> Check:
    def check(claim: Claim, rows: Rows) -> Finding:
        found = _races(rows)
        if not found:
            return missing(NO_ROW)
        rates = _rates(found, name)
        mean = math.exp(sum(map(math.log, rates.values())) / len(rates))
        target = float(str(claim.value).rstrip("K")) * 1000
        each = ", ".join(f"{key} {rate:,.0f}" for key, rate in rates.items())
        return finding(
            found,
            evidence=strength(found),
            measured=mean if name != TGCN else max(rates.values()),
            target=target,
            reason=f"edges/s of the whole graph: {each}",
        )

    return check


def floor(claim: Claim, rows: Rows) -> Finding:
    """Baselines train fewer edges a second than T-GCN."""
    found = _races(rows)
    if not found:
        return missing(NO_ROW)
    lowest = min(min(_rates(found, name).values()) for name in (DYGNN, JODIE))
    highest = max(_rates(found, TGCN).values())
    return finding(
        found,
        evidence=strength(found),
        measured={"prior": lowest, "T-GCN": highest},
        direction=lowest < highest,
        reason=f"{highest / lowest:.0f}x apart, the paper's numbers {815.7 / 34:.0f}x",
    )


def padding(claim: Claim, rows: Rows) -> Finding:
    """Padding makes DyGNN slower and larger."""
    found = rows_of(rows, experiment=NAME, what="padding")
    if not found:
        return missing(NO_ROW)
    ratio = gain(found, DYGNN)
    row = found[-1]
    share, larger = (
        number(row, metric, setting=DYGNN) / number(row, metric, setting=PLAIN)
        for metric in ("relative_size", "memory")
    )
    return finding(
        found,
        evidence=strength(found),
        measured=ratio.value,
        direction=ratio.side > 0,
        undecided=ratio.side == 0 and ratio.low is not None,
        reason=(
            f"padded t-batches hold {share:.1f} times the edges, take {ratio.value:.2f} times as "
            f"long and {larger:.3f} times the memory on {row.data['dataset']}; none ran out of it"
        ),
    )


CHECKS: dict[str, Callable[..., Finding]] = {
    "tgcn-fig6-vs-dygnn": _against(DYGNN),
    "tgcn-fig6-vs-jodie": _against(JODIE),
    "tgcn-fig6-beats-both-everywhere": beats_both,
    "tgcn-fig6-gpu-underused-small": underused,
    "tgcn-fig6-twitter-time": twitter_time,
    "tgcn-abs-e2e-max-speedup": largest,
    "tgcn-s24-prior-throughput-floor": floor,
    "tgcn-s62-throughput-dygnn": _throughput(DYGNN),
    "tgcn-s62-throughput-jodie": _throughput(JODIE),
    "tgcn-s62-throughput-tgcn": _throughput(TGCN),
    "tgcn-s62-padding-blocks-baselines": padding,
}
