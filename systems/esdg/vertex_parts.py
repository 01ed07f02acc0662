"""Parts of the vertices for the baseline of ESDG (SC 2021), section 4.1.

The paper parts a hypergraph with PaToH, which is not free. Here KaHyPar parts a hypergraph whose
cut is the volume, METIS a graph whose cut is nearly that: on payments it sends at most 4 % more and
takes a twentieth of the time or less, so it is what is taken unless another is asked for. Without a
package labels are propagated: 12 to 16 % more than METIS there, where consecutive ranges send 20 to
50 % more and are unbalanced. The method is named, because the volume of the baseline stands and
falls with it.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import equal_parts
from dgbench.runtime.errors import InvalidInputError, UnsupportedError, unknown_key
from dgbench.systems.esdg.vertex_propagation import propagate

Method = Literal["pymetis", "kahypar", "propagation", "ranges"]
METHODS: Final[tuple[Method, ...]] = ("pymetis", "kahypar", "propagation", "ranges")
_PACKAGES: Final = ("pymetis", "kahypar")
IMBALANCE: Final = 0.03
"""Largest excess of a part's weight over the mean, relative to it."""

_MAX_WEIGHT: Final = 2**30

MAX_PINS: Final = 1_000_000
"""Entries that a hypergraph is made of. Of more every k-th snapshot is taken, its nets weighing k:
KaHyPar takes minutes for a million, and snapshots that are smoothed resemble their neighbours."""

# Direct k-way, connectivity - 1, which is the number of rows sent; a plain local search, as the
# flow-based one takes minutes on graphs of this kind.
_SETTINGS: Final = {
    "mode": "direct",
    "objective": "km1",
    "seed": 1,
    "cmaxnet": 1000,
    "vcycles": 0,
    "p-use-sparsifier": "false",
    "p-detect-communities": "false",
    "c-type": "ml_style",
    "c-s": 1,
    "c-t": 160,
    "c-rating-score": "heavy_edge",
    "c-rating-use-communities": "false",
    "c-rating-heavy_node_penalty": "no_penalty",
    "c-rating-acceptance-criterion": "best_prefer_unmatched",
    "c-fixed-vertex-acceptance-criterion": "fixed_vertex_allowed",
    "i-mode": "recursive",
    "i-technique": "multi",
    "i-c-type": "ml_style",
    "i-c-s": 1,
    "i-c-t": 150,
    "i-c-rating-score": "heavy_edge",
    "i-c-rating-use-communities": "false",
    "i-c-rating-heavy_node_penalty": "no_penalty",
    "i-c-rating-acceptance-criterion": "best_prefer_unmatched",
    "i-algo": "pool",
    "i-runs": 5,
    "i-r-type": "twoway_fm",
    "i-r-runs": -1,
    "i-r-fm-stop": "simple",
    "i-r-fm-stop-i": 50,
    # Asked for although no vertex is fixed; without it or the packing the library ends the process.
    "i-bp-algorithm": "worst_fit",
    "i-c-fixed-vertex-acceptance-criterion": "fixed_vertex_allowed",
    "r-type": "kway_fm_km1",
    "r-runs": -1,
    "r-fm-stop": "simple",
    "r-fm-stop-i": 100,
}

LARGE: Final = 200_000
"""Vertices from which the local search is short. KaHyPar searches after every single contraction:
a million accounts of AMLSim, 1.1 million pins, are in four parts after 96 s of processor time."""
_SHORT: Final = {"i-runs": 1, "i-r-fm-stop-i": 10, "r-fm-stop-i": 10}


@dataclass(frozen=True)
class VertexParts:
    """An owner for every vertex; vertices are renumbered so that each part is consecutive.

    Attributes:
        owner: int64[N], 0 .. size - 1.
        size: P; parts may be empty.
        method: who made it.
        seconds: what that took; 0 where they were given.
    """

    owner: Tensor
    size: int
    method: str = "given"
    seconds: float = 0.0

    def __post_init__(self) -> None:
        bad = self.owner.dtype != torch.int64 or self.owner.dim() != 1 or self.size < 1
        if bad or bool(((self.owner < 0) | (self.owner >= self.size)).any()):
            raise InvalidInputError(
                f"'owner' is {self.owner.dtype}{list(self.owner.shape)}; int64[N] with values 0 to "
                f"{self.size - 1} is needed"
            )

    @cached_property
    def order(self) -> Tensor:
        """int64[N]: vertices by part, ascending inside a part; new number -> vertex."""
        return torch.argsort(self.owner, stable=True)

    @cached_property
    def position(self) -> Tensor:
        """int64[N]: vertex -> new number."""
        found = torch.empty_like(self.order)
        found[self.order] = torch.arange(self.order.numel())
        return found

    @cached_property
    def sizes(self) -> list[int]:
        """Vertices of each part."""
        return torch.bincount(self.owner, minlength=self.size).tolist()

    @cached_property
    def starts(self) -> list[int]:
        """First new number of each part, and N."""
        return [0, *np.cumsum(self.sizes).tolist()]

    def vertices(self, part: int) -> Tensor:
        """The vertices of a part, int64, ascending."""
        return self.order[self.starts[part] : self.starts[part + 1]]


def split_vertices(
    topology: Sequence[Csr], size: int, method: Method | Literal["auto"] = "auto"
) -> VertexParts:
    """Part the vertices of a sequence of snapshots into `size` parts.

    A vertex weighs what its owner computes for it: its entries over all snapshots, and one row per
    snapshot for the temporal half. The hypergraph has one net per vertex v and snapshot: v and
    whoever reads it then; its connectivity minus one is lambda [our reading]. Equal nets are one
    that weighs their number. One net per vertex over all snapshots would be smaller by far, but
    nearly all of them are cut whatever the parts are, and more is sent than with ranges. The graph
    has an edge per pair, weighted by the snapshots in which it is there.

    Args:
        topology: at least one, N x N; rows read columns.
        size: P.
        method: `pymetis`, `kahypar`, `propagation`, `ranges`, or `auto`: `pymetis` where it is
            installed, else `propagation`.

    Raises:
        InvalidInputError: no snapshot, or `size` below 1.
        UnknownKeyError: another method.
        UnsupportedError: a method that is not installed.
    """
    if not topology or size < 1:
        raise InvalidInputError(
            f"{len(topology)} snapshots and {size} parts; at least one of each is needed"
        )
    if method == "auto":
        method = "pymetis" if importlib.util.find_spec("pymetis") else "propagation"
    if method not in METHODS:
        raise unknown_key("method", method, METHODS)
    if method in _PACKAGES and importlib.util.find_spec(method) is None:
        raise UnsupportedError(
            f"method '{method}' is not installed",
            hint=f"pip install {method}, or take the method 'propagation'",
        )
    begin = time.perf_counter()
    nodes = topology[0].num_rows
    if size == 1 or nodes <= size or method == "ranges":
        # Nothing to search for: with one part, or where each vertex could have a part of its own.
        lengths = torch.tensor(equal_parts(nodes, size))
        owner = torch.repeat_interleave(torch.arange(size), lengths)
        return VertexParts(owner, size, "ranges", time.perf_counter() - begin)
    rows, cols, times, weight = _pairs(topology)
    if method == "kahypar":
        owner = _kahypar(nodes, size, *nets(topology), weight)
    elif method == "propagation":
        owner = propagate(nodes, size, rows, cols, times, weight, imbalance=IMBALANCE)
    else:
        owner = _pymetis(nodes, size, rows, cols, times, weight)
    owner = torch.tensor(owner, dtype=torch.int64)
    return VertexParts(owner, size, method, time.perf_counter() - begin)


def nets(topology: Sequence[Csr], most: int = MAX_PINS) -> tuple[np.ndarray, ...]:
    """Hypergraph of a sequence: vertices of net i are pins[start[i] : start[i + 1]].

    Args:
        topology: the snapshots.
        most: entries, see `MAX_PINS`.

    Returns:
        (start, pins, weight of each net), int64; the first pin of a net is the vertex that is read,
        the others ascend.
    """
    nodes = topology[0].num_rows if topology else 0
    stride = max(1, -(-sum(csr.nnz for csr in topology) // most))
    # Nets are told apart by sums of random words, which agree by chance once in 2^64 pairs.
    words = np.random.default_rng(1).integers(0, 2**63, (2, nodes), dtype=np.int64).view(np.uint64)
    sources, sums, lengths, readers = [], [], [], []
    for csr in topology[::stride]:
        rows = np.repeat(np.arange(nodes), csr.indptr.diff().numpy())
        cols = csr.indices.numpy().astype(np.int64)
        key = np.unique((cols * nodes + rows)[rows != cols])
        cols, rows = np.divmod(key, max(1, nodes))
        first = np.flatnonzero(np.diff(cols, prepend=-1))
        if len(first):
            sources.append(cols[first])
            readers.append(rows)
            lengths.append(np.diff(first, append=len(cols)))
            sums.append(np.add.reduceat(words[0][rows], first) + words[1][cols[first]])
    if not sources:
        nothing = np.zeros(0, dtype=np.int64)
        return np.zeros(1, dtype=np.int64), nothing, nothing
    source, length, rows = (np.concatenate(x) for x in (sources, lengths, readers))
    begin = np.cumsum(length) - length
    _, chosen, times = np.unique(np.concatenate(sums), return_index=True, return_counts=True)
    source, length, begin = source[chosen], length[chosen], begin[chosen]
    start = np.concatenate([[0], np.cumsum(length + 1)])
    pins = np.empty(start[-1], dtype=np.int64)
    rest = np.ones(start[-1], dtype=bool)
    rest[start[:-1]] = False
    pins[start[:-1]] = source
    pins[rest] = rows[
        np.repeat(begin - np.cumsum(length) + length, length) + np.arange(sum(length))
    ]
    return start, pins, times * stride


def _pairs(topology: Sequence[Csr]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Distinct pairs without loops (rows, cols, snapshots of each), and weights of the vertices."""
    nodes = topology[0].num_rows
    keys, weight = [], np.full(nodes, len(topology), dtype=np.int64)
    for csr in topology:
        degree = csr.indptr.diff().numpy()
        weight += degree
        rows = np.repeat(np.arange(nodes), degree)
        keys.append(np.unique(rows * nodes + csr.indices.numpy()))
    # A stable sort merges what is in order already.
    key, times = _runs(np.sort(np.concatenate(keys), kind="stable"))
    rows, cols = key // nodes, key % nodes
    apart = rows != cols
    return rows[apart], cols[apart], times[apart], weight


def _runs(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct values of a sorted array, and how often each is there."""
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], np.diff(first, append=len(key))


def _kahypar(nodes: int, size: int, start: Any, pins: Any, times: Any, weight: Any) -> list[int]:
    import kahypar

    if not len(pins):
        return np.repeat(np.arange(size), equal_parts(nodes, size)).tolist()
    graph = kahypar.Hypergraph(
        nodes,
        len(times),
        start.tolist(),
        pins.tolist(),
        size,
        times.tolist(),
        weight.tolist(),
    )
    context = kahypar.Context()
    with tempfile.TemporaryDirectory(prefix="dgbench-kahypar-") as folder:
        settings = Path(folder) / "settings.ini"
        chosen = {**_SETTINGS, **(_SHORT if nodes >= LARGE else {})}
        settings.write_text("".join(f"{k}={v}\n" for k, v in chosen.items()))
        context.loadINIconfiguration(str(settings))
    context.setK(size)
    context.setEpsilon(IMBALANCE)
    context.setSeed(1)
    context.suppressOutput(True)
    kahypar.partition(graph, context)
    return [graph.blockID(v) for v in range(nodes)]


def _pymetis(nodes: int, size: int, rows: Any, cols: Any, times: Any, weight: Any) -> list[int]:
    import pymetis

    key = np.concatenate([rows * nodes + cols, cols * nodes + rows])
    by = np.argsort(key, kind="stable")
    key, both = key[by], np.concatenate([times, times])[by]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    both = np.add.reduceat(both, first) if len(first) else both
    key = key[first]
    xadj = np.concatenate([[0], np.cumsum(np.bincount(key // nodes, minlength=nodes))])
    # Sums of weights have 32 bits there.
    weight = np.maximum(1, weight // -(-int(weight.sum()) // _MAX_WEIGHT))
    _, owner = pymetis.part_graph(
        size,
        pymetis.CSRAdjacency(xadj.astype(np.int32), (key % nodes).astype(np.int32)),
        eweights=both.astype(np.int32),
        vweights=weight.astype(np.int32),
        options=pymetis.Options(seed=1, ufactor=round(1000 * IMBALANCE)),
    )
    return list(owner)
