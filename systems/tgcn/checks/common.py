"""What the checks of T-GCN share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dgbench.lab.evidence import (
    finding,
    from_ratio,
    ids,
    missing,
    some,
    strength,
    uses_twin,
)
from dgbench.lab.paper import Evidence
from dgbench.systems.tgcn.experiments.settings import GRAPHS

__all__ = [
    "CPU_EVIDENCE",
    "NEEDS_CUDA",
    "finding",
    "from_ratio",
    "ids",
    "missing",
    "of_the_paper",
    "papers_graphs",
    "some",
    "strength",
    "uses_twin",
]

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- tgcn --device cuda"

CPU_EVIDENCE: Final[Evidence] = "measured"
"""Of times of sampling: the paper samples on the CPU, so a CPU is no analogue here."""

_GRAPHS = {graph.name for graph in GRAPHS}


def of_the_paper(row: Any) -> bool:
    """Whether a row rests on one of the paper's graphs, or on none."""
    name = row.params.get("dataset")
    return name is None or name in _GRAPHS


def papers_graphs(rows: Iterable[Any]) -> list[Any]:
    """Rows that rest on the paper's graphs, for claims about these; claims about a mechanism that
    every graph shows take all rows."""
    return [row for row in rows if of_the_paper(row)]
