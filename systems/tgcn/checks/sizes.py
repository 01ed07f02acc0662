"""Claims on what fits into a GPU: Figure 6 on Twitter, and section 6.1.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing
from dgbench.systems.tgcn.experiments import large
from dgbench.systems.tgcn.experiments.common import last_rows, number
from dgbench.systems.tgcn.experiments.settings import GPU_BYTES

NONE: Final = "the experiment 'large' did not run"

Rows = Sequence[Any]


def _twitter(rows: Rows) -> Any | None:
    found = last_rows(rows, large.NAME, kind=large.PLAN, dataset="twitter")
    return found[-1] if found else None


def _device(row: Any) -> dict[str, int]:
    """Bytes on one device by contender."""
    return Table.of([row]).where("memory", of="device", ranks=None).numbers("setting")  # type: ignore[return-value]


def twitter_oom(claim: Claim, rows: Rows) -> Finding:
    """What both baselines hold on their GPU against its 32 GiB."""
    row = _twitter(rows)
    if row is None:
        return missing(NONE)
    held, state = _device(row), number(row, "memory", of="state", setting="paper")
    small = [
        r.params["dataset"]
        for r in last_rows(rows, large.NAME, kind=large.PLAN)
        if all(_device(r)[one] <= GPU_BYTES for one in ("dygnn", "jodie"))
    ]
    return finding(
        [row],
        evidence="counted",
        measured={
            name: f"{held[system] / 1e9:.0f} GB"
            for system, name in (("dygnn", "DyGNN"), ("jodie", "JODIE"))
        },
        holds=state > GPU_BYTES,
        reason="by printed sizes, nothing was allocated: five vectors of every vertex alone take "
        f"{state / 1e9:.0f} GB of {GPU_BYTES / 1e9:.0f}; "
        f"{', '.join(small) or 'no graph'} would fit, padding aside",
    )


def not_separable(claim: Claim, rows: Rows) -> Finding:
    """Whether one GPU holds Twitter's vertices and edges without parts, and how it streams."""
    row = _twitter(rows)
    if row is None:
        return missing(NONE)
    held = _device(row)["tgcn"]
    return finding(
        [row],
        evidence="counted",
        measured=f"{held / 1e9:.0f} GB of {GPU_BYTES / 1e9:.0f} GB",
        holds=held > GPU_BYTES,
        reason=f"with edges in the host already; in {number(row, 'parts')} parts that stream it "
        "fits, which is what the one-GPU results on Twitter need, and the cut can be left out on "
        "smaller graphs (experiment 'ablation')",
    )


CHECKS: Final[dict[str, Check]] = {
    "tgcn-fig6-twitter-oom": twitter_oom,
    "tgcn-s613-partition-not-separable": not_separable,
}
