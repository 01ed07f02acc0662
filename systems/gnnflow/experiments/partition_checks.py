"""Checks of partitions: each vertex once, and all counts again, edge by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal

EDGES = "count over all edges"


def assignment_check(
    part: Tensor, vertices: int, machines: int, name: str = "", *, filled: bool = True
) -> ResultCheck:
    """A check that every vertex has one machine, and no machine is without any.

    Args:
        part: int[N], a machine for each vertex.
        vertices, machines: N and P.
        name: of the partitioner.
        filled: whether no machine may be without any.
    """
    machine = part.numpy()
    wrong = abs(machine.size - vertices) + int(((machine < 0) | (machine >= machines)).sum())
    if filled:
        wrong += min(machines, vertices) - np.intersect1d(machine, np.arange(machines)).size
    return at_most(
        "owners", min(1.0, wrong / max(1, vertices)), 0.0, against="one machine for each vertex",
        compared=vertices, part=name,
    )  # fmt: skip


def places_check(owners: Any, vertices: int, name: str = "") -> ResultCheck:
    """A check that the vertices of a machine have the places 0, 1, ... there, each once."""
    machine, place = (of(torch.arange(vertices)).numpy() for of in (owners.of, owners.local))
    found = np.stack([machine, place], 1)
    counts = [owners.count(m, vertices) for m in range(owners.machines)]
    places = [np.stack([np.full(n, m), np.arange(n)], 1) for m, n in enumerate(counts)]
    wanted = np.concatenate(places)
    found = found[np.lexsort((place, machine))]
    check = equal("owners", found, wanted, against="places without gaps")
    return at_most("owners", check.gap, 0.0, against=check.against, compared=vertices, part=name)


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


def degree_check(degree: Tensor, src: Tensor, dst: Tensor, *, undirected: bool) -> ResultCheck:
    """A check of the records of each vertex, int64[N], by a sorted list of all ends."""
    ends = np.concatenate([src.numpy(), dst.numpy()] if undirected else [src.numpy()])
    vertices, counts = np.unique(ends, return_counts=True)
    wanted = np.zeros(degree.numel(), np.int64)
    wanted[vertices] = counts
    return equal("counters", degree, wanted, against=EDGES)


def asked_by_loop(
    machine_of: Sequence[int],
    src: Tensor,
    dst: Tensor,
    first: int,
    fanout: int,
    asker: Tensor,
    machines: int,
    *,
    by_edge: bool,
) -> dict[str, int]:
    """Targets, requests, records and bytes that sampling asks of other machines, event by event.

    Args:
        machine_of: the machine of each edge (`by_edge`) or of each vertex.
        src, dst, first, fanout, asker, machines: as of `asked_vertex_cut`.
        by_edge: whether edges have a machine, and not vertices.
    """
    targets = requests = records = 0
    zeros = [0] * machines
    seen: dict[int, list[int]] = {}
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
    return _asked(targets, requests, records)


def asked_by_search(
    machine: np.ndarray | None,
    owner: np.ndarray | None,
    src: Tensor,
    dst: Tensor,
    first: int,
    fanout: int,
    asker: Tensor,
    machines: int,
) -> dict[str, int]:
    """The same of a long stream: earlier records of a vertex by search in a sorted list of all.

    Args:
        machine: int64[E] of the edges, or None. owner: int64[N] of the vertices, or None.
        src, dst, first, fanout, asker, machines: as of `asked_vertex_cut`.
    """
    count = src.numel()
    ends = np.concatenate([src.numpy(), dst.numpy()])
    eids = np.concatenate([np.arange(count)] * 2)
    later = eids >= first
    vertex, event = ends[later], eids[later]
    own = asker.numpy()[event - first]
    requests = records = 0
    for m in range(machines) if machine is not None else (-1,):
        held_by = slice(None) if machine is None else machine[eids] == m
        keys = np.sort(ends[held_by] * count + eids[held_by])
        held = np.searchsorted(keys, vertex * count + event) - np.searchsorted(keys, vertex * count)
        away = own != (owner[vertex] if machine is None else m)
        asked = away & (held > 0)
        requests += int(asked.sum())
        records += int(np.minimum(held, fanout)[asked].sum())
    return _asked(vertex.size, requests, records)


def _asked(targets: int, requests: int, records: int) -> dict[str, int]:
    size = 3 * torch.empty(1, dtype=torch.int64).nbytes  # of a target, and of a neighbour
    return {"targets": targets, "requests": requests, "records": records,
            "bytes": size * (requests + records)}  # fmt: skip


def asked_check(asked: Any, wanted: dict[str, int], name: str) -> ResultCheck:
    """A check of `Asked` against the same numbers counted otherwise."""
    found = {key: getattr(asked, key) for key in wanted}
    gap = float(found != wanted)
    return at_most(
        "counters", gap, 0.0, against=EDGES, compared=max(1, wanted["targets"]), part=name
    )  # fmt: skip


def served_check(
    work: Any, layout: Any, samples: Sequence[Sequence[Any]], asker: Tensor, schedule: str,
    name: str,
) -> ResultCheck:  # fmt: skip
    """A check of the targets and records that each rank handles, target by target in a loop.

    Args:
        work: of `serving.served`, under the identity hash.
        layout, samples, asker: as there. schedule: one of `owners.SCHEDULES`.
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
    wanted = {"targets": torch.tensor(targets), "records": torch.tensor(records)}
    found = {"targets": work.targets, "records": work.records}
    if schedule == "random":  # which rank of a machine is left open
        found, wanted = (
            {key: counts.view(machines, per).sum(1) for key, counts in of.items()}
            for of in (found, wanted)
        )
    found["remote"] = work.remote.sum() - work.remote.diagonal().sum()
    wanted["remote"] = torch.tensor(remote)
    check = equal("counters", found, wanted, against="count over all targets")
    return at_most("counters", check.gap, 0.0, against=check.against, compared=sum(targets),
                   part=f"{name}, {schedule}")  # fmt: skip
