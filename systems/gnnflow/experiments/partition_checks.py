"""Checks of partitions: each vertex once, and all counts again, edge by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.systems.base.result_checks import ResultCheck, at_most, equal

EDGES = "count over all edges"


def assignment_check(part: Tensor, vertices: int, machines: int, name: str = "") -> ResultCheck:
    """A check that every vertex has one machine, and no machine is without any.

    Args:
        part: int[N], a machine for each vertex.
        vertices, machines: N and P.
        name: of the partitioner.
    """
    entries = [int(machine) for machine in part.tolist()]
    wrong = abs(len(entries) - vertices)
    wrong += sum(not 0 <= machine < machines for machine in entries)
    wrong += len(set(range(min(machines, vertices))) - set(entries))
    return at_most(
        "owners", min(1.0, wrong / max(1, vertices)), 0.0, against="one machine for each vertex",
        compared=vertices, part=name,
    )  # fmt: skip


def places_check(owners: Any, vertices: int, name: str = "") -> ResultCheck:
    """A check that the vertices of a machine have the places 0, 1, ... there, each once."""
    machine, place = (of(torch.arange(vertices)).tolist() for of in (owners.of, owners.local))
    known = {(m, p) for m, p in zip(machine, place, strict=True)}
    wanted = {(m, p) for m in range(owners.machines) for p in range(owners.count(m, vertices))}
    return at_most(
        "owners", len(known ^ wanted) / max(1, vertices), 0.0, against="places without gaps",
        compared=vertices, part=name,
    )  # fmt: skip


def shares_check(
    share: Any, owners: Any, src: Tensor, dst: Tensor, *, undirected: bool, name: str
) -> ResultCheck:
    """A check of vertices, records and cut of each machine, counted edge by edge.

    Args:
        share: of `owners.shares`.
        owners: of the vertices. src, dst: int64[E].
        undirected: whether both ends store an edge.
        name: of the partitioner.
    """
    ends = np.concatenate([src.numpy(), dst.numpy()])
    part = owners.of(torch.from_numpy(ends)).numpy()
    first, second = part[: src.numel()], part[src.numel() :]
    records = [int((first == m).sum()) + undirected * int((second == m).sum())
               for m in range(owners.machines)]  # fmt: skip
    met = np.zeros(int(ends.max(initial=-1)) + 1, dtype=np.int64) - 1
    met[ends] = part
    vertices = [int((met == m).sum()) for m in range(owners.machines)]
    most = [max(counts) * len(counts) / max(1, sum(counts)) - 1 for counts in (records, vertices)]
    wanted = {
        "records": torch.tensor(records), "vertices": torch.tensor(vertices),
        "cut edges": int((first != second).sum()),
    }  # fmt: skip
    found = {
        "records": share.records, "vertices": share.vertices,
        "cut edges": round(share.cut * src.numel()),
    }  # fmt: skip
    excess = [share.record_excess, share.vertex_excess]
    check = equal("counters", found, wanted, against=EDGES)
    off = any(abs(a - b) > 1e-9 * max(1.0, abs(b)) for a, b in zip(excess, most, strict=True))
    return at_most(
        "counters", max(check.gap, float(off)), 0.0, against=EDGES,
        compared=check.compared + len(excess), part=f"{name}, {owners.machines} machines",
    )  # fmt: skip


def asked_check(
    asked: Any,
    machine_of: Sequence[int],
    src: Tensor,
    dst: Tensor,
    first: int,
    fanout: int,
    asker: Tensor,
    machines: int,
    *,
    by_edge: bool,
    name: str,
) -> ResultCheck:
    """A check of what sampling asks of other machines, event by event in one loop.

    Args:
        asked: of `asked_edge_cut` or `asked_vertex_cut`.
        machine_of: the machine of each edge (`by_edge`) or of each vertex.
        src, dst, first, fanout, asker, machines: as there.
        by_edge: whether edges have a machine, and not vertices.
        name: of the cut.
    """
    targets = requests = records = 0
    seen: dict[int, list[int]] = {}
    zeros = [0] * machines
    askers = asker.tolist()
    for event, ends in enumerate(zip(src.tolist(), dst.tolist(), strict=True)):
        if event >= first:
            for vertex in ends:
                targets += 1
                for machine, held in enumerate(seen.get(vertex, zeros)):
                    if held and machine != askers[event - first]:
                        requests += 1
                        records += min(held, fanout)
        for vertex in ends:
            seen.setdefault(vertex, list(zeros))[machine_of[event if by_edge else vertex]] += 1
    wanted = {"targets": targets, "requests": requests, "records": records,
              "bytes": 24 * (requests + records)}  # fmt: skip
    found = {key: getattr(asked, key) for key in wanted}
    return at_most(
        "counters", float(found != wanted), 0.0, against=EDGES, compared=targets, part=name
    )


def served_check(
    work: Any, layout: Any, samples: Sequence[Sequence[Any]], asker: Tensor, schedule: str,
    name: str,
) -> ResultCheck:  # fmt: skip
    """A check of the targets and records that each rank handles, target by target in a loop.

    Args:
        work: of `serving.served`, under the identity hash.
        layout, samples, asker: as there. schedule: `static` or `first`.
        name: of the model.
    """
    ranks, per, machines = layout.ranks, layout.per_machine, layout.machines
    targets, records = [0] * ranks, [0] * ranks
    remote = 0
    for hops in samples:
        who = asker.tolist()
        for hop in hops:
            counts, nodes = hop.offsets.diff().tolist(), hop.nodes.tolist()
            below = []
            for rank, vertex, count in zip(who, nodes, counts, strict=True):
                home = vertex % machines
                server = home * per + (rank % per if schedule == "static" else 0)
                server = rank if rank // per == home else server
                targets[server] += 1
                records[server] += count
                remote += server != rank
                below += [rank] * count
            who = who + below
    found = {"targets": work.targets, "records": work.records,
             "remote": int(work.remote.sum() - work.remote.diagonal().sum())}  # fmt: skip
    wanted = {"targets": torch.tensor(targets), "records": torch.tensor(records), "remote": remote}
    check = equal("counters", found, wanted, against="count over all targets")
    return at_most("counters", check.gap, 0.0, against=check.against, compared=sum(targets),
                   part=f"{name}, {schedule}")  # fmt: skip
