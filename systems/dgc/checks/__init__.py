"""Which check answers which claim. Every id of the ledger stands here exactly once.

Claims about the paper's graphs are answered by rows of its graphs; claims that name no dataset, or
a property of any graph, take rows of any. `systems.dgc.checks.common` says how strong rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks import fusion, partition, scaling, sizes, stale, synthetic, workload
from dgbench.systems.dgc.checks.common import of_the_paper

_PARTS: tuple[dict[str, Check], ...] = (
    sizes.CHECKS,
    synthetic.CHECKS,
    stale.CHECKS,
    workload.CHECKS,
    fusion.CHECKS,
    partition.CHECKS,
    scaling.CHECKS,
)


def _join(parts: Sequence[dict[str, Check]]) -> dict[str, Check]:
    """All parts as one; raises ValueError where two answer the same claim."""
    joined: dict[str, Check] = {}
    for part in parts:
        twice = sorted(joined.keys() & part.keys())
        if twice:
            raise ValueError(f"two checks answer {', '.join(twice)}")
        joined |= part
    return joined


def _on_the_papers_graphs(check: Check) -> Check:
    """Keep rows of graphs that the paper does not use out of claims about its graphs.

    Claims that name no dataset (formulas, mechanisms) and checks marked with `any_graph` take rows
    of any graph.
    """
    if getattr(check, "any_graph", False):
        return check

    @wraps(check)
    def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
        if claim.workload.get("datasets"):
            rows = [row for row in rows if of_the_paper(row)]
        return check(claim, rows)

    return checked


CHECKS: dict[str, Check] = {
    key: _on_the_papers_graphs(check) for key, check in _join(_PARTS).items()
}
