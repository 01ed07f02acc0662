"""Vertex-cut partitions, and what sampling from them costs beside edge-cut ones (GNNFlow 4.4).

A vertex-cut gives each edge to one machine, so the neighbours of a vertex lie on several: whoever
samples them asks all of these and keeps the newest of what they return. An edge-cut asks one. Both
are counted here from the events alone: recent sampling of k neighbours, no machine asked that holds
nothing of a vertex by then, and a trainer's own machine for free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import unknown_key
from dgbench.systems.gnnflow.owners import Owners

CUTS: Final = ("random", "dbh", "hdrf")
HDRF_BALANCE: Final = 1.0

REQUEST_BYTES: Final = 24
"""Of a target: vertex, time, position."""
RECORD_BYTES: Final = 24
"""Of a neighbour that returns: vertex, edge, time."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Counts of the remote requests of sampling.

    Attributes:
        targets: vertices that were sampled.
        requests: pairs of a target and another machine that is asked about it.
        records: neighbours that came back from other machines.
    """

    targets: int
    requests: int
    records: int

    @property
    def bytes(self) -> int:
        return REQUEST_BYTES * self.requests + RECORD_BYTES * self.records


def edge_machines(by: str, num_vertices: int, src: Tensor, dst: Tensor, machines: int) -> Tensor:
    """int64[E], a machine for each edge.

    Args:
        by: `random` (a hash of the edge's number), `dbh` (a hash of the end of lower degree, NIPS
            2014), or `hdrf` (the end of higher degree is cut first, CIKM 2015; a loop in Python).
        num_vertices: N.
        src, dst: int64[E].
        machines: P.

    Raises:
        UnknownKeyError: another name.
    """
    if by == "random":
        return _hashed(torch.arange(src.numel())) % machines
    if by == "dbh":
        degree = torch.bincount(torch.cat([src, dst]), minlength=num_vertices)
        lower = torch.where(degree[src] <= degree[dst], src, dst)
        return _hashed(lower) % machines
    if by == "hdrf":
        return _hdrf(num_vertices, src, dst, machines)
    raise unknown_key("by", by, CUTS)


def asked_edge_cut(
    owners: Owners, src: Tensor, dst: Tensor, first: int, fanout: int, asker: Tensor
) -> Asked:
    """Remote requests of both ends of the events `first ..` if each vertex lives on one machine.

    Args:
        owners: of the vertices.
        src, dst: int64[E], in time order; each edge is stored at both ends.
        first: earlier events are only stored.
        fanout: k.
        asker: int64[E - first], machine whose trainer has the event.
    """
    earlier = _earlier(src, dst, None, 1)
    targets, requests, records = 0, 0, 0
    for end, seen in ((src, earlier[0]), (dst, earlier[1])):
        away = owners.of(end[first:]) != asker
        held = seen[first:, 0].clamp(max=fanout)
        asked = away & (held > 0)
        targets += asked.numel()
        requests += int(asked.sum())
        records += int(held[asked].sum())
    return Asked(targets, requests, records)


def asked_vertex_cut(
    machine: Tensor,
    machines: int,
    src: Tensor,
    dst: Tensor,
    first: int,
    fanout: int,
    asker: Tensor,
) -> Asked:
    """The same where `machine` int64[E] says which machine has each edge."""
    earlier = _earlier(src, dst, machine, machines)
    others = torch.arange(machines)[None, :] != asker[:, None]
    targets, requests, records = 0, 0, 0
    for seen in earlier:
        held = seen[first:].clamp(max=fanout) * others
        targets += held.shape[0]
        requests += int((held > 0).sum())
        records += int(held.sum())
    return Asked(targets, requests, records)


def _earlier(
    src: Tensor, dst: Tensor, machine: Tensor | None, machines: int
) -> tuple[Tensor, Tensor]:
    """int64[E, machines] for each end: earlier events of that vertex that a machine holds.

    Events count as earlier by their order, so a batch's own are seen as if each were its own batch.
    """
    events = src.numel()
    ends = torch.stack([src, dst], dim=1).flatten()
    where = torch.zeros(events, dtype=torch.int64) if machine is None else machine
    where = where.repeat_interleave(2)
    order = torch.argsort(ends, stable=True)
    held = torch.zeros(2 * events, machines, dtype=torch.int64)
    held[torch.arange(2 * events), where[order]] = 1
    before = held.cumsum(0) - held
    fresh = torch.ones(2 * events, dtype=torch.bool)
    fresh[1:] = ends[order][1:] != ends[order][:-1]
    start = torch.where(fresh, torch.arange(2 * events), 0).cummax(0).values
    counts = torch.empty_like(before)
    counts[order] = before - before[start]
    both = counts.view(events, 2, machines)
    # The record at the source comes before that at the destination: a self edge is no past of its.
    own = torch.zeros(events, machines, dtype=torch.int64)
    own[torch.arange(events), where.view(events, 2)[:, 0]] = (src == dst).long()
    return both[:, 0], both[:, 1] - own


def _hashed(ids: Tensor) -> Tensor:
    return ((ids + 1) * (0x9E3779B97F4A7C15 - (1 << 64)) >> 33) & 0x3FFFFFFF


def _hdrf(num_vertices: int, src: Tensor, dst: Tensor, machines: int) -> Tensor:
    here = np.zeros((num_vertices, machines), dtype=bool)
    degree = np.zeros(num_vertices, dtype=np.int64)
    sizes = np.zeros(machines, dtype=np.float64)
    found = np.empty(src.numel(), dtype=np.int64)
    for e, (u, v) in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        degree[u] += 1
        degree[v] += 1
        share = degree[u] / (degree[u] + degree[v])
        spread = sizes.max() - sizes.min() + 1e-9
        score = here[u] * (2 - share) + here[v] * (1 + share)
        score = score + HDRF_BALANCE * (sizes.max() - sizes) / spread
        m = int(score.argmax())
        found[e] = m
        here[u, m] = here[v, m] = True
        sizes[m] += 1
    return torch.from_numpy(found)
