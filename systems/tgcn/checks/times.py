"""What Table 2's rows say of copies, computation and their overlap (sections 4.3 and 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import (
    NEEDS_CUDA,
    finding,
    missing,
    papers_graphs,
    strength,
)
from dgbench.systems.tgcn.experiments.races import DYGNN, TGCN
from dgbench.systems.tgcn.experiments.settings import BY_NAME, PRINTED_TITLE
from dgbench.systems.tgcn.experiments.table2 import (
    NAME,
    SERIAL,
    STREAMED,
    STREAMED_SERIAL,
    TIMELINE,
    hidden_share,
    parts_of,
    share,
)

Rows = Sequence[Any]
NO_ROW = "needs a row of table2"
RISE = 1.02
"""From here on the sum of parts is above the whole by more than clocks are off."""


def _rows(rows: Rows) -> list[Any]:
    return papers_graphs(rows_of(rows, experiment=NAME))


def _title(row: Any) -> str:
    return BY_NAME[row.params["dataset"]].title


def _seconds(system: str, part: str) -> Check:
    def check(claim: Claim, rows: Rows) -> Finding:
        found = [r for r in _rows(rows) if r.device == "cuda" and parts_of(r, system)]
        if not found:
            return missing(NEEDS_CUDA)
        return finding(
            found,
            evidence="measured",
            measured={
                PRINTED_TITLE[row.params["dataset"]]: parts_of(row, system)[part] for row in found
            },
            reason="seconds of one epoch; the paper does not say of how many its are",
        )

    return check


def compute_share(claim: Claim, rows: Rows) -> Finding:
    """Computation as a share of the time, of both systems."""
    found = _rows(rows)
    if not found:
        return missing(NO_ROW)
    shares = {
        f"{_title(row)} {name}": 100 * share(row, key)
        for row in found
        for key, name in ((TGCN, "T-GCN"), (DYGNN, "DyGNN"))
        if parts_of(row, key)
    }
    each = ", ".join(f"{key} {value:.0f} %" for key, value in shares.items())
    return finding(
        found,
        evidence=strength(found),
        measured=sum(shares.values()) / len(shares),
        direction=min(shares.values()) > 50,
        reason=f"computation takes {each}",
    )


def overlap(claim: Claim, rows: Rows) -> Finding:
    """The parts of T-GCN's epoch add up to more than the epoch."""
    found = _rows(rows)
    if not found:
        return missing(NO_ROW)
    words, ratios = [], []
    for row in found:
        for key in (TGCN, STREAMED):
            # What is neither copy nor computation (sampling, cutting, Python) is in no part.
            parts = parts_of(row, key)
            ratio = (parts["compute"] + parts["io"]) / (parts["compute"] + parts["wait"])
            if key == STREAMED:
                ratios.append(ratio)
            words.append(f"{_title(row)} {key} {ratio:.2f}x")
    smallest = min(ratios)
    return finding(
        found,
        evidence=strength(found),
        measured=smallest,
        direction=smallest > 1 if abs(smallest - 1) > RISE - 1 else None,
        undecided=abs(smallest - 1) <= RISE - 1,
        reason=(
            "copies and computation over computation and what is waited for: " + ", ".join(words)
        ),
    )


def both_reduced(claim: Claim, rows: Rows) -> Finding:
    """T-GCN copies and computes less than DyGNN."""
    found = [row for row in _rows(rows) if parts_of(row, DYGNN)]
    if not found:
        return missing(NO_ROW)
    words, holds = [], []
    for row in found:
        for part in ("io", "compute"):
            ours, theirs = (parts_of(row, key)[part] for key in (TGCN, DYGNN))
            holds.append(ours < theirs)
            words.append(f"{_title(row)} {part} {theirs / ours:.1f}x" if ours else f"{part} none")
    return finding(
        found,
        evidence=strength(found),
        measured=f"{sum(holds)} of {len(holds)} parts are smaller",
        holds=all(holds),
        direction=all(holds),
        reason="DyGNN over T-GCN: " + ", ".join(words),
    )


def pingpong(claim: Claim, rows: Rows) -> Finding:
    """Copies run beside training with three regions and not with one."""
    found = rows_of(rows, experiment=NAME)
    if not found:
        return missing(NO_ROW)
    timelines = Table.of(found).where("part_time", of=TIMELINE)
    if timelines:
        spent = [Table.of([row]).where(of=TIMELINE).numbers("phase") for row in timelines.rows]
        both = [one["both"] / max(1e-12, one["copy"]) for one in spent]
        return finding(
            timelines.rows,
            evidence="measured",
            measured=f"{min(both):.0%} to {max(both):.0%} of copy time beside training",
            holds=min(both) > 0.05,
            reason="by events of the device, state streamed from host memory",
        )
    hidden = {
        key: sum(hidden_share(row, key) for row in found) / len(found)
        for key in (TGCN, SERIAL, STREAMED, STREAMED_SERIAL)
    }
    better = [hidden_share(r, STREAMED) > hidden_share(r, STREAMED_SERIAL) for r in found]
    return finding(
        found,
        evidence=strength(found),
        measured=hidden[STREAMED],
        holds=all(better),
        direction=all(better),
        reason=(
            f"of streamed state's copies {hidden[STREAMED]:.0%} are hidden with three regions and "
            f"{hidden[STREAMED_SERIAL]:.0%} with one; of resident state's {hidden[TGCN]:.0%} and "
            f"{hidden[SERIAL]:.0%}; a copy thread stands in for the device's engine"
        ),
    )


CHECKS: dict[str, Callable[..., Finding]] = {
    **{
        f"tgcn-tab2-{system}-{part}": _seconds(system, part)
        for system in (DYGNN, TGCN)
        for part in ("io", "compute", "total")
    },
    "tgcn-tab2-compute-share": compute_share,
    "tgcn-tab2-overlap": overlap,
    "tgcn-tab2-both-parts-reduced": both_reduced,
    "tgcn-s43-pingpong-no-conflict": pingpong,
}
