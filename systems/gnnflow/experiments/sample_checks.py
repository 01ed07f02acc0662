"""Checks of sampled neighbourhoods: drawn roots beside the plain sampler, records by a scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.runtime.draws import draws_of
from dgbench.systems.base.plain_sampler import PlainGraph, plain_sample
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamData, StreamWorkload

ROOTS: Final = 12
"""Roots of a batch whose neighbourhoods are compared."""
VERTICES: Final = 12
"""Vertices of a graph whose records are compared."""
SCAN: Final = "scan of all events"


def drawn(count: int, most: int) -> Tensor:
    """int64[n], ascending: up to `most` different numbers below `count`, always the last one."""
    if count <= most:
        return torch.arange(count)
    chosen = draws_of("samples").sample(range(count - 1), most - 1)
    return torch.tensor([*sorted(chosen), count - 1])


def by_subject(checks: Sequence[ResultCheck]) -> list[ResultCheck]:
    """Exact checks of many batches, one for each thing compared, what with and contender.

    The gap is the share of all entries; the part is that of the worst.
    """
    groups: dict[tuple[str, str, str], list[ResultCheck]] = {}
    for check in checks:
        groups.setdefault((check.of, check.against, check.system), []).append(check)
    found = []
    for mine in groups.values():
        if any(check.tolerance or check.compared <= 0 for check in mine):
            found += mine
            continue
        worst = max(mine, key=lambda check: check.gap)
        compared = sum(check.compared for check in mine)
        wrong = sum(check.gap * check.compared for check in mine)
        found.append(
            msgspec.structs.replace(worst, gap=wrong / max(1, compared), compared=compared)
        )  # fmt: skip
    return found


def sampling_task(
    fanouts: Sequence[int], policy: str, *, undirected: bool = True, seed: int = 0
) -> StreamWorkload:
    """A workload that says no more than how neighbours are drawn, for `samples_check`."""
    return StreamWorkload(
        dataset="samples", model="tgat", fanouts=tuple(fanouts), sampling=policy,  # type: ignore[arg-type]
        undirected=undirected, seed=seed, node_dim=0, edge_dim=0,
    )  # fmt: skip


class NearbyStream(PlainStream):
    """`PlainStream` over the events of a few vertices: cheap where few roots of a long stream ask.

    All that is needed of the events is `src`, `dst`, `t` and the number of vertices.
    """

    def __init__(self, workload: StreamWorkload, data: StreamData) -> None:
        self.workload, self.data, self.inserted = workload, data, 0

    def insert(self, first: int, last: int) -> None:
        """Take in events up to `last`."""
        self.inserted = last

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> Any:
        """As of `PlainStream`: every hop is right once all of its targets are known."""
        targets = nodes
        for _ in self.workload.fanouts:
            self.graph = self._around(targets)
            found = super().sample(nodes, times, draw=draw, positions=positions)
            targets = torch.cat([hops[-1].nodes for hops in found])
        return found

    def _around(self, vertices: Tensor) -> PlainGraph:
        """All records of these vertices; others may lack some."""
        events, undirected = self.data.events, self.workload.undirected
        count = events.num_nodes
        wanted = torch.zeros(count, dtype=torch.bool)
        wanted[vertices] = True
        mask = wanted[events.src[: self.inserted]]
        if undirected:
            mask |= wanted[events.dst[: self.inserted]]
        eid = mask.nonzero()[:, 0]
        graph = PlainGraph(count, undirected=undirected)
        graph.insert(events.src[eid], events.dst[eid], events.t[eid].double(), eid)
        return graph


def samples_check(
    task: StreamWorkload,
    events: Any,
    nodes: Tensor,
    times: Tensor,
    draw: int,
    samples: Sequence[Sequence[Any]],
    *,
    inserted: int | None = None,
    most: int = ROOTS,
    part: str = "",
) -> ResultCheck:
    """A check of the neighbourhoods of drawn roots of a batch, all hops and snapshots.

    Args:
        nodes, times: int64[R], float64[R], the roots that were asked for, in their order.
        draw: number of the sampling call.
        samples: [snapshot][hop], what the whole batch got.
        inserted: events that the graph held; None: all.
        most: roots compared.
    """
    roots = drawn(nodes.numel(), most)
    own = [_below(hops, roots) for hops in samples]
    plain = NearbyStream(task, StreamData(events, None, None))
    plain.insert(0, events.src.numel() if inserted is None else inserted)
    exact = plain.sample(nodes[roots], times[roots], draw=draw, positions=roots)
    wanted = [[_columns(hop) for hop in hops] for hops in exact]
    check = equal("samples", _flat(own), _flat(wanted), against="plain sampler")
    where = f"{part + ', ' if part else ''}{roots.numel()} of {nodes.numel()} roots"
    return msgspec.structs.replace(check, part=f"{where}{', ' + check.part if check.part else ''}")


def static_samples_check(
    task: StreamWorkload,
    events: Any,
    nodes: Tensor,
    times: Tensor,
    draw: int,
    samples: Sequence[Sequence[Any]],
) -> ResultCheck:
    """A check of drawn targets of each hop of a static model, [[hop]], which draws from all edges.

    Arguments as of `samples_check`; times, float64[R], are later than all edges.
    """
    plain = NearbyStream(task, StreamData(events, None, None))
    plain.insert(0, events.src.numel())
    found: dict[str, Tensor] = {}
    wanted: dict[str, Tensor] = {}
    targets = nodes
    for number, hop in enumerate(samples[0]):
        some = drawn(targets.numel(), ROOTS)
        exact = plain_sample(
            plain._around(targets[some]), targets[some], times[:1].expand(some.numel()),
            fanout=task.fanouts[number], policy="uniform", seed=task.seed, draw=draw, hop=number,
            positions=some,
        )  # fmt: skip
        mine = torch.isin(torch.arange(targets.numel()), some)
        found |= {f"{k} of hop {number}": v for k, v in _columns_of(hop, mine).items()}
        wanted |= {f"{k} of hop {number}": v for k, v in _columns(exact).items()}
        found[f"targets of hop {number}"], wanted[f"targets of hop {number}"] = hop.nodes, targets
        targets = torch.cat([targets, hop.neighbours])
    return equal("samples", found, wanted, against="plain sampler")


def untimed_check(
    hops: Sequence[Any], nodes: Tensor, task: StreamWorkload, events: Any
) -> ResultCheck:
    """A check of a sampler that knows no time: every root has its fan-out of different records."""
    wrong, compared = 0, 0
    targets = nodes
    for hop, fanout in zip(hops, task.fanouts, strict=True):
        wrong += int((hop.nodes != targets).sum()) if hop.nodes.shape == targets.shape else 1
        bounds = hop.offsets.tolist()
        for i in drawn(targets.numel(), ROOTS).tolist():
            vertex = int(targets[i])
            eids = hop.eids[bounds[i] : bounds[i + 1]].tolist()
            ends = hop.neighbours[bounds[i] : bounds[i + 1]].tolist()
            at_src = (events.src == vertex).nonzero()[:, 0]
            left = Counter(zip(at_src.tolist(), events.dst[at_src].tolist(), strict=True))
            if task.undirected:
                at_dst = (events.dst == vertex).nonzero()[:, 0]
                left.update(zip(at_dst.tolist(), events.src[at_dst].tolist(), strict=True))
            wrong += abs(len(eids) - min(fanout, left.total()))
            for record in zip(eids, ends, strict=True):
                if left[record] > 0:
                    left[record] -= 1
                else:
                    wrong += 1
            compared += max(1, len(eids))
        targets = torch.cat([targets, hop.neighbours])
    return at_most("samples", min(1.0, wrong / max(1, compared)), 0.0, against=SCAN,
                   compared=compared)  # fmt: skip


def records_check(
    find: Any, events: Any, undirected: bool, *, inserted: int | None = None, part: str = ""
) -> ResultCheck:
    """A check of the records of drawn vertices, in their order, found by scanning all events.

    `find` gives (neighbours, edges, times) of a vertex, as `TemporalStore.neighbours`; `inserted`:
    events that the graph holds, None for all.
    """
    last = events.src.numel() if inserted is None else inserted
    src, dst = events.src[:last], events.dst[:last]
    count = events.num_nodes
    chosen = set(drawn(count, VERTICES).tolist())
    if last:  # an end of a drawn event and of the last one: most vertices have no records
        chosen |= {int(src[int(drawn(last, 2)[0])]), int(src[-1])}
    found, wanted = {}, {}
    for vertex in sorted(chosen):
        at_src = (src == vertex).nonzero()[:, 0]
        at_dst = (dst == vertex).nonzero()[:, 0] if undirected else at_src[:0]
        # The record at the source of an event stands before that at its destination.
        place = torch.cat([2 * at_src, 2 * at_dst + 1]).sort().values
        eid = place // 2
        other = torch.where(place % 2 == 0, dst[eid], src[eid])
        exact = {"neighbours": other, "eids": eid, "times": events.t[eid].double()}
        own = dict(zip(exact, find(vertex), strict=True))
        for name in exact:
            found[f"{name} of {vertex}"], wanted[f"{name} of {vertex}"] = own[name], exact[name]
    check = equal("records", found, wanted, against=SCAN)
    return msgspec.structs.replace(check, part=", ".join(filter(None, (part, check.part))))


def _columns(hop: Any) -> dict[str, Tensor]:
    return _columns_of(hop, torch.ones(hop.nodes.numel(), dtype=torch.bool))


def _columns_of(hop: Any, targets: Tensor) -> dict[str, Tensor]:
    """Samples of the selected targets of a hop, bool[R]."""
    counts = hop.offsets.diff()
    entries = torch.repeat_interleave(targets, counts)
    return {
        "nodes": hop.nodes[targets], "counts": counts[targets],
        "neighbours": hop.neighbours[entries], "eids": hop.eids[entries],
        "edge_times": hop.edge_times[entries],
    }  # fmt: skip


def _below(hops: Sequence[Any], roots: Tensor) -> list[dict[str, Tensor]]:
    """Samples of the targets below some roots, hop by hop, in the order of the whole batch."""
    found = []
    root = torch.arange(hops[0].nodes.numel())
    for hop in hops:
        counts = hop.offsets.diff()
        found.append(_columns_of(hop, torch.isin(root, roots)))
        root = torch.cat([root, torch.repeat_interleave(root, counts)])
    return found


def _flat(samples: Sequence[Sequence[Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    return {
        f"{name} of hop {number} of snapshot {snapshot}": column
        for snapshot, hops in enumerate(samples)
        for number, hop in enumerate(hops)
        for name, column in hop.items()
    }
