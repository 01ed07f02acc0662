"""Contenders of sampling and updating: this project's and released ones, behind one face."""

from __future__ import annotations

from typing import Final

from dgbench.runtime.errors import unknown_key
from dgbench.systems.gnnflow.contenders.base import ContenderEvents, GraphStoreContender
from dgbench.systems.gnnflow.contenders.judge import ReferenceResult, SampleQuality
from dgbench.systems.gnnflow.contenders.ours import BlockStoreContender, Rebuilt
from dgbench.systems.gnnflow.contenders.rapids import CuGraph, CuGraphWindow
from dgbench.systems.gnnflow.contenders.released import Dgl, LastNeighbours, Tglite

CONTENDERS: Final[dict[str, type[GraphStoreContender]]] = {
    one.name: one
    for one in (BlockStoreContender, Rebuilt, Tglite, CuGraph, CuGraphWindow, Dgl, LastNeighbours)
}
"""By the word that rows use."""


def contender(name: str) -> type[GraphStoreContender]:
    """The contender of that name. Raises UnknownKeyError."""
    if name not in CONTENDERS:
        raise unknown_key("contender", name, CONTENDERS)
    return CONTENDERS[name]


__all__ = [
    "CONTENDERS",
    "ContenderEvents",
    "GraphStoreContender",
    "ReferenceResult",
    "SampleQuality",
    "contender",
]
