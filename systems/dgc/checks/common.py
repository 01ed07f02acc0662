"""What the checks share."""

from __future__ import annotations

from typing import Any

from dgbench.systems.base import Check
from dgbench.systems.dgc.experiments.settings import GRAPHS

NEEDS_CUDA = "needs CUDA devices: nox -s reproduce -- dgc --device cuda"

_GRAPHS = {graph.name for graph in GRAPHS}
_SYNTHETIC = "synthetic"
"""Names of graphs of the paper's own generator begin so: any run of it is data of the paper."""


def of_the_paper(row: Any) -> bool:
    """Whether a row rests on one of the paper's graphs, or on none."""
    name = row.params.get("dataset")
    return name is None or name in _GRAPHS or name.startswith(_SYNTHETIC)


def any_graph(check: Check) -> Check:
    """Mark a check that takes rows of any graph, though its claim names the paper's.

    For statements about a mechanism that every graph shows. Without the mark a check gets rows of
    the paper's own graphs only. Its evidence on other graphs is `analogue` at most, and its reason
    names them.
    """
    check.any_graph = True  # type: ignore[attr-defined]
    return check
