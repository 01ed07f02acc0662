"""Other ways to assign vertices: what the identity hash is held against (GNNFlow 4.4).

METIS is what DistDGL uses, offline. Fennel and LDG are online and balance vertices, not edges. A
mixed hash shows what is luck of the ids: its choice does not depend on how they are numbered.
"""

from __future__ import annotations

import importlib.util
import time
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import UnsupportedError, unknown_key
from dgbench.systems.gnnflow.owners import AssignedOwners, IdentityHash, Owners

PARTITIONERS: Final = ("hash", "mixed", "fennel", "ldg", "metis", "metis-edges")

FENNEL_GAMMA: Final = 1.5
SLACK: Final = 0.1
"""Largest excess of an online partitioner's part over the mean (Fennel's setting)."""


def partition(
    by: str, num_vertices: int, src: Tensor, dst: Tensor, machines: int, *, seed: int = 1
) -> tuple[Owners, float]:
    """Assign the vertices of a graph to machines.

    Args:
        by: one of `PARTITIONERS`. `metis` balances vertices, as it does if nothing is asked, and
            `metis-edges` their edges. `fennel` and `ldg` see vertices in the order in which they
            arrive, each with its edges to those that are there.
        num_vertices: N.
        src, dst: int64[E], in order of time.
        machines: P.
        seed: of METIS.

    Returns:
        The owners, and the seconds that it took to find them.

    Raises:
        UnknownKeyError: another name.
        UnsupportedError: METIS is not installed.
    """
    if by not in PARTITIONERS:
        raise unknown_key("by", by, PARTITIONERS)
    begin = time.perf_counter()
    if by == "hash":
        return IdentityHash(machines), time.perf_counter() - begin
    if by == "mixed":
        part = _mixed(num_vertices) % machines
    elif machines == 1:
        part = torch.zeros(num_vertices, dtype=torch.int64)
    elif by in ("metis", "metis-edges"):
        part = _metis(num_vertices, src, dst, machines, seed, edges=by == "metis-edges")
    else:
        part = _greedy(by, num_vertices, src, dst, machines)
    return AssignedOwners(part, machines), time.perf_counter() - begin


def _mixed(count: int) -> Tensor:
    """A hash of each id whose low bits depend on all of its bits (splitmix64's finaliser)."""
    with np.errstate(over="ignore"):
        z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return torch.from_numpy(((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64))


def adjacency(num_vertices: int, src: Tensor, dst: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The undirected graph without self loops, repeated edges as weights.

    Returns:
        (first int64[N + 1], other int64[2 M], weight int64[2 M]), M distinct pairs.
    """
    keep = src != dst
    a, b = torch.cat([src[keep], dst[keep]]), torch.cat([dst[keep], src[keep]])
    key, weight = torch.unique(a * num_vertices + b, return_counts=True)
    first = torch.zeros(num_vertices + 1, dtype=torch.int64)
    rows = torch.div(key, max(1, num_vertices), rounding_mode="floor")
    first[1:] = torch.bincount(rows, minlength=num_vertices).cumsum(0)
    return first, key % max(1, num_vertices), weight


def _metis(
    num_vertices: int, src: Tensor, dst: Tensor, machines: int, seed: int, *, edges: bool
) -> Tensor:
    """DistDGL's partition: few edges are cut."""
    if importlib.util.find_spec("pymetis") is None:
        raise UnsupportedError("pymetis is not installed", hint="pip install pymetis")
    import pymetis

    first, other, weight = adjacency(num_vertices, src, dst)
    load = torch.ones(num_vertices, dtype=torch.int32)
    if edges:
        load += torch.bincount(torch.cat([src, dst]), minlength=num_vertices).to(torch.int32)
    _, part = pymetis.part_graph(
        machines,
        pymetis.CSRAdjacency(first.to(torch.int32).numpy(), other.to(torch.int32).numpy()),
        eweights=weight.to(torch.int32).numpy(),
        vweights=load.numpy(),
        options=pymetis.Options(seed=seed),
    )
    return torch.from_numpy(np.asarray(part, dtype=np.int64))


def _greedy(by: str, num_vertices: int, src: Tensor, dst: Tensor, machines: int) -> Tensor:
    """Fennel (WSDM 2014) or linear deterministic greedy (KDD 2012), vertices by first edge."""
    first, other, _ = adjacency(num_vertices, src, dst)
    arrival = _arrival(num_vertices, src, dst)
    edges = other.numel() / 2
    alpha = edges * machines ** (FENNEL_GAMMA - 1) / max(1, num_vertices) ** FENNEL_GAMMA
    most = (1 + SLACK) * num_vertices / machines
    part = np.full(num_vertices, -1, dtype=np.int64)
    sizes = np.zeros(machines)
    starts, others = first.numpy(), other.numpy()
    for v in arrival.tolist():
        there = part[others[starts[v] : starts[v + 1]]]
        near = np.bincount(there[there >= 0], minlength=machines).astype(np.float64)
        if by == "fennel":
            score = near - alpha * FENNEL_GAMMA * np.sqrt(sizes)
        else:
            score = near * (1 - sizes / most) - 1e-9 * sizes
        score[sizes >= most] = -np.inf
        part[v] = int(score.argmax())
        sizes[part[v]] += 1
    return torch.from_numpy(part)


def _arrival(num_vertices: int, src: Tensor, dst: Tensor) -> Tensor:
    """Vertices in order of their first edge, those without one at the end."""
    ends = torch.stack([src, dst], dim=1).flatten()
    seen = torch.full((num_vertices,), ends.numel(), dtype=torch.int64)
    seen.scatter_reduce_(0, ends, torch.arange(ends.numel()), reduce="amin")
    return torch.argsort(seen, stable=True)
