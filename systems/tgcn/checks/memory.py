"""What Table 3's rows say of device memory (section 6.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import (
    NEEDS_CUDA,
    finding,
    missing,
    of_the_paper,
    strength,
)
from dgbench.systems.tgcn.experiments.races import DYGNN, JODIE, TGCN, TITLES
from dgbench.systems.tgcn.experiments.settings import BY_NAME, PRINTED_TITLE
from dgbench.systems.tgcn.experiments.table3 import MB, NAME, STREAMED, by_graph, memory, savings

Rows = Sequence[Any]


def memory_by_counter(row: Any) -> dict[str, int]:
    """Bytes of the device as counted, as the allocator held them, and as the driver says."""
    return Table.of([row]).where("memory", of=None).numbers("method")  # type: ignore[return-value]


def _memory(system: str) -> Check:
    def check(claim: Claim, rows: Rows) -> Finding:
        found = [
            row
            for row in rows_of(rows, experiment=NAME, system=system, device="cuda")
            if of_the_paper(row)
        ]
        if not found:
            return missing(NEEDS_CUDA)
        held = {row.params["dataset"]: memory_by_counter(row) for row in found}
        driver = ", ".join(
            f"{BY_NAME[name].title} {of['driver'] / MB:,.0f} MB" for name, of in held.items()
        )
        return finding(
            found,
            evidence="measured",
            measured={PRINTED_TITLE[name]: of["held"] / MB for name, of in held.items()},
            reason=f"the allocator's peak; the driver says {driver}",
        )

    return check


def _graphs(rows: Rows) -> dict[str, dict[str, Any]]:
    return by_graph([row for row in rows if of_the_paper(row)])


def _words(graphs: dict[str, dict[str, Any]]) -> str:
    words = []
    for name, of in graphs.items():
        each = ", ".join(f"{TITLES[k]} {v:.2f}x" for k, v in savings(of).items())
        words.append(f"{BY_NAME[name].title}: {each}")
        if STREAMED in of:
            streamed = memory(of[TGCN]) / memory(of[STREAMED])
            words[-1] += f" (state streamed: T-GCN {streamed:.2f}x less)"
    return "; ".join(words)


def ordering(claim: Claim, rows: Rows) -> Finding:
    """T-GCN holds the least on every graph."""
    graphs = _graphs(rows)
    if not graphs:
        return missing("needs rows of table3 of all three systems")
    used = [row for of in graphs.values() for row in of.values()]
    least = min(ratio for of in graphs.values() for ratio in savings(of).values())
    return finding(
        used,
        evidence=strength(used),
        measured=least,
        holds=least > 1,
        direction=least > 1,
        reason=_words(graphs),
    )


def saving(claim: Claim, rows: Rows) -> Finding:
    """The largest factor between a baseline's memory and T-GCN's."""
    graphs = _graphs(rows)
    if not graphs:
        return missing("needs rows of table3 of all three systems")
    used = [row for of in graphs.values() for row in of.values()]
    most = max(ratio for of in graphs.values() for ratio in savings(of).values())
    return finding(
        used,
        evidence=strength(used),
        measured=most,
        direction=most > 1,
        target=float(claim.value),
        reason=_words(graphs),
    )


CHECKS: dict[str, Callable[..., Finding]] = {
    "tgcn-tab3-dygnn-memory": _memory(DYGNN),
    "tgcn-tab3-jodie-memory": _memory(JODIE),
    "tgcn-tab3-tgcn-memory": _memory(TGCN),
    "tgcn-tab3-ordering": ordering,
    "tgcn-s66-max-space-saving": saving,
}
