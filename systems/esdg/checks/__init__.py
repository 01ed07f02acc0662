"""Which check answers which claim. Every id of the ledger stands here exactly once."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.esdg.checks import checkpoint, convergence, difference, scaling, sizes, volume
from dgbench.systems.esdg.experiments.settings import GRAPHS

_CHECKS: dict[str, Check] = {
    **sizes.CHECKS,
    **difference.CHECKS,
    **checkpoint.CHECKS,
    **scaling.CHECKS,
    **volume.CHECKS,
    **convergence.CHECKS,
}

_GRAPHS = {graph.name for graph in GRAPHS}
_FAMILIES = ("amlsim", "random")
"""The paper's own generators: any run of theirs is data of the paper."""


def _on_the_papers_graphs(check: Check) -> Check:
    """Keep rows of graphs that the paper does not use out of claims about its graphs.

    Claims that name no dataset (formulas, mechanisms) take rows of any graph.
    """

    @wraps(check)
    def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
        if claim.workload.get("datasets"):
            rows = [row for row in rows if _is_of_the_paper(row.params.get("dataset"))]
        return check(claim, rows)

    return checked


def _is_of_the_paper(dataset: str | None) -> bool:
    return dataset is None or dataset in _GRAPHS or dataset.startswith(_FAMILIES)


CHECKS: dict[str, Check] = {key: _on_the_papers_graphs(check) for key, check in _CHECKS.items()}
