"""Temporal neighbours: sampling them, and putting edges into the graph they are sampled from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.experiment import Preset
from dgbench.lab.grid import by_preset
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.systems.operators.race import (
    OURS,
    Call,
    OperatorCase,
    OperatorRace,
    first_line,
    import_dgl,
)

EXPONENT, SHIFT = 0.9, 10
"""A vertex of rank r is an end with a probability that follows (r + 10) ^ -0.9."""
COMPARED = 2000
"""Targets of a hop that are compared, at most."""


class RacedHop(NamedTuple):
    """Neighbours of one hop: targets and their times, and whom each edge was drawn for."""

    nodes: Tensor
    times: Tensor
    target: Tensor
    eids: Tensor


@dataclass(frozen=True, eq=False)
class Stream:
    """Undirected edges in time order, no loops; the id of an edge is its place.

    Attributes:
        vertices: N. src, dst: int64[E]. t: float64[E], whole numbers below 2^24.
    """

    vertices: int
    src: Tensor
    dst: Tensor
    t: Tensor

    @classmethod
    def power_law(cls, vertices: int, edges: int, seed: int = 1) -> Stream:
        """Both ends by the same power law."""
        draw = np.random.default_rng(seed)
        weight = (np.arange(vertices) + SHIFT) ** -EXPONENT
        sums = np.cumsum(weight / weight.sum())
        names = draw.permutation(vertices)
        src, dst = names[np.searchsorted(sums, draw.random((2, edges))).clip(max=vertices - 1)]
        dst = np.where(src == dst, (dst + 1) % vertices, dst)
        t = np.sort(draw.integers(0, 2**24, edges)).astype(np.float64)
        return cls(vertices, *(torch.from_numpy(array.copy()) for array in (src, dst, t)))

    def __len__(self) -> int:
        return self.src.numel()

    def roots(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Sources, destinations and random vertices of `count` edges, each at its edge's time."""
        part = slice(first, first + count)
        draw = torch.Generator().manual_seed(1 + first)
        negatives = torch.randint(self.vertices, (len(self.src[part]),), generator=draw)
        return torch.cat([self.src[part], self.dst[part], negatives]), self.t[part].repeat(3)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Edges of each vertex in order of time: where a vertex's begin, and their ids."""
        ends = np.concatenate([self.src.numpy(), self.dst.numpy()])
        eids = np.tile(np.arange(len(self)), 2)
        order = np.lexsort((eids, ends))
        starts = np.searchsorted(ends[order], np.arange(self.vertices + 1))
        return starts, eids[order]

    def edges_before(self, vertex: int, time: float) -> np.ndarray:
        """Ids of the edges of a vertex that are older than a time, oldest first."""
        starts, eids = self.rows
        mine = eids[starts[vertex] : starts[vertex + 1]]
        return mine[: np.searchsorted(self.t.numpy()[mine], time)]

    def check(self, hops: Sequence[RacedHop], fanout: int, policy: str) -> ResultCheck:
        """Compare samples with a search through all edges of each vertex.

        Recent ones are the newest before the target's time; uniform ones any of these, each once,
        as many as there are up to the fan-out.
        """
        wrong = total = 0
        for hop in hops:
            order = torch.argsort(hop.target, stable=True)
            cuts = torch.searchsorted(
                hop.target[order].contiguous(), torch.arange(len(hop.nodes) + 1)
            ).numpy()
            eids = hop.eids[order].numpy()
            for at in range(0, len(hop.nodes), max(1, len(hop.nodes) // COMPARED)):
                right = self.edges_before(int(hop.nodes[at]), float(hop.times[at]))
                count = min(fanout, len(right))
                allowed = right[len(right) - count :] if policy == "recent" else right
                good = len(np.intersect1d(eids[cuts[at] : cuts[at + 1]], allowed))
                wrong += max(count, cuts[at + 1] - cuts[at]) - good
                total += max(count, 1)
        return at_most(
            "samples", wrong / max(1, total), 0.0, against="search through all edges",
            compared=total,
        )  # fmt: skip


TCSR, SEARCH = "T-CSR", "torch search"
DGL = "DGL, rebuilt"
FANOUT, BATCHES = 10, 32
EDGE_WIDTH, HIDDEN = 272, 100
STEP = 100_000
"""Edges that are inserted at a time where a graph is built."""
STREAMS = {"smoke": (200, 4000), "quick": (10_000, 300_000), None: (200_000, 10_000_000)}
ROOTS = {"smoke": (20,), "quick": (600,), None: (600, 4000)}
"""Edges of a batch; it has three roots each."""


def stream_workloads(threads: Any, roots: Any) -> dict[str | None, tuple[dict[str, Any], ...]]:
    """Params of cells by preset; `threads` and `roots` have several by preset."""
    return {
        preset: tuple(
            {
                "policy": policy, "hops": hops, "roots": size, "threads": count, "vertices": n,
                "edges": edges,
            }
            for count in by_preset(threads, preset)
            for policy, hops, size in product(
                ("recent", "uniform"), (1, 2), by_preset(roots, preset)
            )
        )
        for preset, (n, edges) in STREAMS.items()
    }  # fmt: skip


class Sampling(OperatorRace):
    name = "sampling"
    title = "Sampling temporal neighbours"
    question = "How fast are recent and uniform temporal neighbours sampled from a growing store?"
    reading = (
        "Power law, every edge at both ends, roots in the middle of the stream, fan-out 10; ours "
        "is the store that grew by insertion. T-CSR is TGL's way, sorted rows that are built anew "
        "whenever edges come; the search in torch knows recent neighbours only. Released samplers "
        "of other systems are raced by `gnnflow/contenders`."
    )
    claims = ("operators-sampling-tcsr",)
    workloads = stream_workloads({"smoke": (1,), "quick": (1,), None: (1, 2)}, ROOTS)
    label = "{policy}, {hops} hops, {roots} x 3 roots, {threads} threads"

    def before(self, params: Mapping[str, Any]) -> Callable[[], object] | None:
        """Work before every call, which is not timed; None for none."""
        return None

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        stream = Stream.power_law(params["vertices"], params["edges"])
        policy, fanouts, threads = params["policy"], [FANOUT] * params["hops"], params["threads"]
        torch.set_num_threads(threads)  # set back by the race
        store = TemporalStore(stream.vertices, undirected=True)
        for at in range(0, len(stream), STEP):
            part = slice(at, at + STEP)
            store.insert(stream.src[part], stream.dst[part], stream.t[part])
        rows = build_tcsr(
            stream.vertices, stream.src, stream.dst, stream.t, undirected=True, threads=threads
        )
        middle, size = len(stream) // 2, params["roots"]
        batches = [stream.roots(middle + turn * size, size) for turn in range(BATCHES)]

        def sampled(sample: Callable[..., Any], graph: Any, turn: int) -> list[Any]:
            """Draws of its own for every turn, so that two calls differ."""
            return sample(
                graph, *batches[turn], fanouts, policy=policy, draw=turn, threads=threads
            )[0]

        calls: dict[str, Call] = {
            OURS: partial(sampled, sample_hops, store),
            TCSR: partial(sampled, sample_tcsr_hops, rows),
        }
        if policy == "recent":
            search = TorchSearch(stream)
            calls[SEARCH] = lambda turn: search.recent(*batches[turn], len(fanouts))
        targets = sum(hop.nodes.numel() for hop in calls[OURS](0))
        return OperatorCase(
            calls=calls,
            check=lambda name, _, found: stream.check(list(map(_hop, found)), FANOUT, policy),
            before=dict.fromkeys(calls, before) if (before := self.before(params)) else {},
            work=(("throughput", {"of": "targets"}, targets),),
        )


class SamplingBetweenSteps(Sampling):
    name = "sampling_between_steps"
    title = "Sampling between steps of training"
    question = "How fast are the neighbours of a small batch sampled where a step of training ran?"
    reading = (
        "As in `sampling`, but before every call a network of two layers is trained on ten "
        "neighbours of every root, so that samplers find their graph, their memory and "
        "their own code out of the caches. A batch has three roots for an edge."
    )
    claims = ()
    # The first calls of a process take twice as long, whoever makes them.
    turns: ClassVar[Any] = {"smoke": 2, None: 15}
    workloads = stream_workloads(
        {"smoke": (1,), None: (1, 2)}, {"smoke": (20,), None: (33, 100, 200)}
    )

    def before(self, params: Mapping[str, Any]) -> Callable[[], object]:
        """A step of training on features as wide as Wikipedia's with an encoding of time."""
        rows = torch.rand(3 * params["roots"] * FANOUT, EDGE_WIDTH)
        layers = nn.Sequential(nn.Linear(EDGE_WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
        optimiser = torch.optim.Adam(layers.parameters(), fused=True)

        def step() -> None:
            optimiser.zero_grad()
            layers(rows).square().mean().backward()
            optimiser.step()

        return step


POLICIES = {
    "smoke": (BlockPolicy("adaptive", 64),),
    "quick": (BlockPolicy("adaptive", 64), BlockPolicy("fixed", 4), BlockPolicy("strawman")),
    None: (
        *(BlockPolicy("adaptive", size) for size in (48, 64, 8192)),
        *(BlockPolicy("fixed", size) for size in (4, 64)),
        BlockPolicy("strawman"),
    ),
}
"""Ways to size blocks that are raced beside the default."""


class Insert(OperatorRace):
    name = "insert"
    title = "Putting edges into a growing graph"
    question = "How much faster is inserting a batch of edges than building the graph anew?"
    reading = (
        "One thread, processor time, both directions of every edge. The store grows in place; "
        "T-CSR and DGL build all rows from arrays at hand. Each turn adds a batch to what the "
        "one before left. Other ways to size blocks stand beside the default, with their memory."
    )
    claims = ("operators-insert-rebuild",)
    threads = 1
    turns = {"smoke": 2, "quick": 3, None: 7}
    clock = staticmethod(time.process_time)
    slow_s = 30.0
    shortest_turn_s = 0.0
    workloads = {
        "smoke": ({"vertices": 200, "edges": 4000, "batch": 200},),
        "quick": ({"vertices": 10_000, "edges": 300_000, "batch": 10_000},),
        None: ({"vertices": 200_000, "edges": 10_000_000, "batch": 100_000},),
    }
    label = "{batch:,} into {edges:,} edges"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        old, batch = params["edges"], params["batch"]
        stream = Stream.power_law(params["vertices"], old + BATCHES * batch)
        stores = {OURS: TemporalStore(stream.vertices, undirected=True)}
        for policy in by_preset(POLICIES, preset):
            size = "" if policy.name == "strawman" else f" {policy.size}"
            stores[f"{OURS}, {policy.name}{size}"] = TemporalStore(
                stream.vertices, policy=policy, undirected=True
            )
        for store, at in product(stores.values(), range(0, old, STEP)):
            _insert(store, stream, at, min(at + STEP, old))
        growing = {
            **{
                name: Growing(stream, old, batch, partial(_insert, store))
                for name, store in stores.items()
            },
            f"{TCSR}, rebuilt": Growing(stream, old, batch, _tcsr),
        }
        left_out = {}
        try:
            growing[DGL] = Growing(stream, old, batch, _dgl())
        except Exception as error:  # its libraries may not load
            left_out[DGL] = first_line(error)
        return OperatorCase(
            calls={name: one.add for name, one in growing.items()},
            check=lambda name, _, found: check_edges(found, stream),
            baselines=((OURS, (f"{TCSR}, rebuilt", DGL)),),
            left_out=left_out,
            work=(("throughput", {"of": "edges"}, batch),),
            observe=tuple(
                ("memory", one.memory().total, {"method": name}) for name, one in stores.items()
            ),
        )


@dataclass
class Growing:
    """A graph that gets the next batch of a stream in every call.

    Attributes:
        grow: (stream, old, new) -> what holds its first `new` edges, of which `old` were there.
        held: edges that are there.
    """

    stream: Stream
    held: int
    batch: int
    grow: Callable[[Stream, int, int], Any]
    last: Any = field(default=None)

    def add(self, _: int) -> tuple[Any, int]:
        """Add a batch: the graph, and how many edges it has."""
        upto = self.held + self.batch
        if upto > len(self.stream):
            raise IndexError(f"the stream has {len(self.stream)} edges, {upto} are asked for")
        self.last = self.grow(self.stream, self.held, upto)
        self.held = upto
        return self.last, upto


def _insert(store: TemporalStore, stream: Stream, old: int, new: int) -> TemporalStore:
    part = slice(old, new)
    store.insert(stream.src[part], stream.dst[part], stream.t[part])
    return store


def _tcsr(stream: Stream, _: int, new: int) -> Tcsr:
    arrays = (one[:new] for one in (stream.src, stream.dst, stream.t))
    return build_tcsr(stream.vertices, *arrays, undirected=True, threads=1)


def _dgl() -> Callable[[Stream, int, int], Any]:
    dgl = import_dgl()

    def build(stream: Stream, _: int, new: int) -> Any:
        src, dst = stream.src[:new], stream.dst[:new]
        both = torch.cat([src, dst]), torch.cat([dst, src])
        return dgl.graph(both, num_nodes=stream.vertices).formats(["csc"])

    return build


def check_edges(found: tuple[Any, int], stream: Stream) -> ResultCheck:
    """Compare the edges of some vertices with a search through all edges that were added."""
    graph, count = found
    src, dst = stream.src[:count].numpy(), stream.dst[:count].numpy()
    chosen = {*range(0, stream.vertices, max(1, stream.vertices // 16)), int(src[-1]), int(dst[-1])}
    wanted = {str(vertex): np.flatnonzero((src == vertex) | (dst == vertex)) for vertex in chosen}
    own = {str(vertex): _edges_of(graph, vertex, count) for vertex in chosen}
    return equal("edges", own, wanted, against="search through all edges")


def _edges_of(graph: Any, vertex: int, count: int) -> Tensor:
    if isinstance(graph, TemporalStore):
        eids = graph.neighbours(vertex)[1]
    elif isinstance(graph, Tcsr):
        eids = graph.eids[int(graph.indptr[vertex]) : int(graph.indptr[vertex + 1])]
    else:
        eids = graph.in_edges(vertex, form="eid") % count
    return eids.long().sort().values


class TorchSearch:
    """Recent neighbours by one binary search for all roots, in torch, over rows sorted once."""

    SPAN = 1 << 25

    def __init__(self, stream: Stream) -> None:
        ends = torch.cat([stream.src, stream.dst])
        others = torch.cat([stream.dst, stream.src])
        # Stable, so that edges of equal times keep their order of arrival.
        self.keys, order = (ends * self.SPAN + stream.t.long().repeat(2)).sort(stable=True)
        self.eids = torch.arange(len(stream)).repeat(2)[order]
        self.others, self.times = others[order], stream.t.repeat(2)[order]
        self.starts = torch.searchsorted(self.keys, torch.arange(stream.vertices) * self.SPAN)

    def recent(self, nodes: Tensor, times: Tensor, hops: int) -> list[RacedHop]:
        """The newest neighbours of each hop."""
        found = []
        for hop in range(hops):
            upto = torch.searchsorted(self.keys, nodes * self.SPAN + times.long())
            at = upto.unsqueeze(1) - 1 - torch.arange(FANOUT)
            inside = at >= self.starts[nodes].unsqueeze(1)
            target, at = inside.nonzero()[:, 0], at[inside]
            found.append(RacedHop(nodes, times, target, self.eids[at]))
            if hop + 1 < hops:
                nodes = torch.cat([nodes, self.others[at]])
                times = torch.cat([times, self.times[at]])
        return found


def _hop(found: Any) -> RacedHop:
    """A hop of any contender."""
    if isinstance(found, RacedHop):
        return found
    target = torch.repeat_interleave(torch.arange(found.nodes.numel()), found.offsets.diff())
    return RacedHop(found.nodes, found.times, target, found.eids)
