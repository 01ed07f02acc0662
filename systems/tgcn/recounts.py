"""Slow recounts of what T-GCN samples, cuts, schedules and holds, for the checks of its results.

Everything is formed anew from the edges of the stream with numpy or plain loops; nothing here calls
the operators that it is compared with.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, close, equal
from dgbench.systems.base.interaction_baseline import SAVED, BaselineTrainer

EDGES: Final = "count over all edges"
LOOP: Final = "loop over a drawn interval"
VECTORS: Final = 3
"""Of a destination's row that travels: embedding, gradient, sum over partners."""
DRAWS: Final = 20_000
BIAS: Final = 0.015
"""Largest total variation between draws and their chances; luck alone makes about 0.005."""


# --- sampling -------------------------------------------------------------------------------------


def half_of(count: Any, share: float) -> Any:
    """Edges out of `count` that a share of them is, to the nearest."""
    return np.floor(share * np.asarray(count, dtype=np.float64) + 0.5).astype(np.int64)


def check_kept(sources: Tensor, kept: Tensor, share: float) -> list[ResultCheck]:
    """Check that a share of every source's edges was kept, each once.

    Args:
        sources: int64[E], of the edges drawn from. kept: int64[K] places among them.
    """
    src, places = sources.numpy(), kept.numpy()
    size = int(src.max(initial=0)) + 1
    degrees = np.bincount(src, minlength=size)
    own = np.bincount(src[places], minlength=size)
    return [
        equal("samples", own, half_of(degrees, share), against=f"share of each source, {EDGES}"),
        equal("samples", len(np.unique(places)), len(places), against="edges, each once"),
    ]


def check_pooled(
    ends: tuple[Tensor, Tensor], kept: Tensor, pooled: Any, share: float
) -> list[ResultCheck]:
    """Checks of a sample by pools: its size, and the formula of what is drawn of each pool.

    A root's first pool is its degree, an edge at both ends; of a pool of n edges share n are drawn,
    to the nearest.

    Args:
        ends: sources and destinations int64[E]. kept: int64[K] places among them.
    """
    src, dst = (one.numpy() for one in ends)
    places = kept.numpy()
    size = int(max(src.max(initial=0), dst.max(initial=0))) + 1
    degrees = np.bincount(src, minlength=size) + np.bincount(dst, minlength=size)
    roots, pools = pooled.roots.numpy(), pooled.pools.numpy()
    batches = [roots[k : k + pooled.width] for k in range(0, len(roots), pooled.width)]
    first = [int(degrees[np.unique(one)].sum()) for one in batches]
    whole = int(half_of(len(src), share))
    own = {"edges": len(np.unique(places)), "kept": len(places)}
    return [
        equal("samples", own, {"edges": whole, "kept": whole}, against=f"share, {EDGES}"),
        equal("samples", pools[:, 0], np.array(first, dtype=np.int64), against=EDGES),
        equal("samples", pooled.drawn.numpy(), half_of(pools, share), against="share of a pool"),
    ]


def check_sample(trainer: Any, part: str) -> list[ResultCheck]:
    """Checks that a trainer drew its share of edges, and trains on them in time order, all of them.

    Also follows the pairs of a drawn interval back to their vertices.
    """
    data, kept = trainer.data, trainer.kept[0]
    share = trainer.workload.share if trainer.on["sampling"] else 1.0
    pooled = trainer.program.pooled
    if pooled is None:
        found = check_kept(data.events.src[: data.train_end], kept, share)
    else:
        ends = data.events.src[: data.train_end], data.events.dst[: data.train_end]
        found = check_pooled(ends, kept, pooled, share)
    loads = trainer.loads(0, data.train_end)
    trained = torch.cat([load.events for load in loads])
    found.append(equal("order", trained, kept, against="sampled edges in the order of time"))
    drawn = random.SystemRandom().randrange(len(loads))
    for number in {drawn, len(loads) - 1}:
        load = loads[number]
        if load.grids and trainer.own_part is None:
            found.append(_check_pairs(trainer, load, f"{part}, interval {number}"))
    return found


def _check_pairs(trainer: Any, load: Any, part: str) -> ResultCheck:
    """The pairs of all grids of an interval against its edges and negatives."""
    bounds, vertices = trainer.parts.bounds.tolist(), trainer.parts.vertices().tolist()
    rows = [[bounds[p] + k for k in share.ids.tolist()] for p, (share, _) in load.shares.items()]
    own: Counter[tuple[int, int]] = Counter()
    for (i, j), (pairs, _) in load.grids.items():
        first = load.shares[j][0].targets
        for u, v in zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True):
            own[vertices[rows[i][u]], vertices[rows[j][first + v]]] += 1
    stream, events = trainer.data.events, load.events
    wanted = Counter(zip(stream.src[events].tolist(), stream.dst[events].tolist(), strict=True))
    if trainer.workload.task == "link":
        negatives = trainer.data.negative[events].tolist()
        wanted.update(zip(stream.src[events].tolist(), negatives, strict=True))
    gap = sum(((own - wanted) + (wanted - own)).values())
    return at_most("pairs", float(gap), 0.0, against=LOOP, compared=wanted.total(), part=part)


def check_walk(
    ends: tuple[Tensor, Tensor],
    sample: Any,
    roots: Tensor,
    *,
    amount: Callable[[np.ndarray], int],
    part: str,
) -> ResultCheck:
    """Check a sample around one drawn root (or pool of roots), layer by layer.

    Every edge must lead from a vertex of the layer before to where it really leads, no edge may be
    drawn twice from one vertex, and as many must be drawn as there were to draw from allow.

    Args:
        ends: sources and destinations int64[E]; edges stand at both.
        roots: int64[R]; all of them where the sample is of one pool.
        amount: edges drawn from vertices with these degrees.
    """
    src, dst = (one.numpy() for one in ends)
    size = int(max(src.max(initial=0), dst.max(initial=0), int(roots.max()))) + 1
    degrees = np.bincount(src, minlength=size) + np.bincount(dst, minlength=size)
    pools = sample.node_offsets.numel() - 1
    drawn = random.SystemRandom().randrange(pools)
    frontier = np.unique(roots.numpy()) if pools == 1 else roots.numpy()[[drawn]]
    violations = seen = 0
    for layer in sample.layers:
        at = slice(int(layer.offsets[drawn]), int(layer.offsets[drawn + 1]))
        eids, near, far = (
            one[at].numpy() for one in (layer.eids, layer.sources, layer.neighbours)
        )  # fmt: skip
        forward = (src[eids] == near) & (dst[eids] == far)
        backward = (dst[eids] == near) & (src[eids] == far)
        violations += int((~(forward | backward)).sum()) + int((~np.isin(near, frontier)).sum())
        loops = int((src[eids] == dst[eids]).sum())
        once = len(np.unique(np.stack([near, eids]), axis=1).T)
        violations += max(0, len(eids) - once - loops // 2 - loops % 2)
        violations += abs(len(eids) - amount(degrees[frontier]))
        seen += max(1, len(eids))
        frontier = np.unique(far)
    return at_most(
        "samples", float(violations), 0.0, against="brute force over all edges", compared=seen,
        part=f"{part}, root {drawn}",
    )  # fmt: skip


def check_subgraph(
    ends: tuple[Tensor, Tensor], sample: Any, frontier: int, draws: int, part: str
) -> ResultCheck:
    """Check a subgraph: its vertices have edges, come once, and were walked to.

    A drawn vertex that no other drawn vertex is next to was in the first frontier, or a slot came
    to it anew; there are no more of them than of these.
    """
    src, dst = (one.numpy() for one in ends)
    found = sample.vertices.numpy()
    size = int(max(src.max(initial=0), dst.max(initial=0), found.max(initial=0))) + 1
    inside = np.zeros(size, dtype=bool)
    inside[found] = True
    next_to, occupied = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    occupied[src] = occupied[dst] = True
    next_to[dst[inside[src]]] = True
    next_to[src[inside[dst]]] = True
    alone = int((~next_to[found]).sum())
    violations = int((~occupied[found]).sum()) + len(found) - len(np.unique(found))
    violations += max(0, alone - frontier - sample.reseeded) + max(0, len(found) - draws)
    violations += int(not len(found)) + abs(sample.stats.draws - draws)
    return at_most(
        "samples", float(violations), 0.0, against="brute force over all edges",
        compared=len(found) + draws, part=part,
    )  # fmt: skip


def check_draws(
    methods: Mapping[str, Mapping[str, Any]], weights: Sequence[int]
) -> list[ResultCheck]:
    """Check pairs of draws against weights, and that a whole set comes out, each element once.

    Args:
        methods: what chooses each, by name.
    """
    from dgbench.kernels_cuda.weighted import draw_many, draw_without_replacement

    table = torch.tensor(weights, dtype=torch.int64)
    total, size = sum(weights), len(weights)
    wanted = np.zeros(size)  # how often each is drawn, first or second
    for i, j in itertools.permutations(range(size), 2):
        chance = weights[i] / total * weights[j] / (total - weights[i])
        wanted[[i, j]] += chance / 2
    found = []
    for name, chosen in methods.items():
        drawn = draw_many(table, 2, DRAWS, seed=3, **chosen).flatten().numpy()
        gap = 0.5 * float(np.abs(np.bincount(drawn, minlength=len(weights)) / len(drawn)
                                 - wanted).sum())  # fmt: skip
        whole = draw_without_replacement(table, len(weights), seed=3, **chosen)
        if sorted(whole.tolist()) != list(range(len(weights))):
            gap = 1.0
        found.append(
            at_most("draws", gap, BIAS, against="chances by the weights", compared=DRAWS,
                    part=name, system=name)
        )  # fmt: skip
    return found


# --- grids ----------------------------------------------------------------------------------------


def intervals_of(t: Tensor, intervals: int) -> np.ndarray:
    """int64[E]: the interval of equal width that each time lies in."""
    times = t.numpy()
    first, last = float(times[0]), float(times[-1])
    steps = [first + (last - first) * k / intervals for k in range(1, intervals)]
    return np.searchsorted(np.array(steps), times, side="right")


def parts_of(cut: str, vertices: Tensor, count: int, parts: int, bounds: Tensor) -> np.ndarray:
    """int64[n]: the part of vertices under a cut; of `edges`, the range of `bounds` they are in."""
    ids = vertices.numpy()
    if cut == "dealt":
        return ids % parts
    inner = [k * count // parts for k in range(1, parts)] if cut == "equal" else bounds[1:-1]
    return np.searchsorted(np.asarray(inner), ids, side="right")


def check_parts(parts: Any, count: int) -> ResultCheck:
    """Check that each vertex is in one part, and on one row."""
    every = torch.arange(count)
    sizes = np.bincount(parts.of(every).numpy(), minlength=parts.count)
    own = {"rows": parts.row(every).sort().values, "sizes": torch.from_numpy(sizes)}
    wanted = {"rows": every, "sizes": torch.tensor(parts.sizes)}
    return equal("partitions", own, wanted, against="every vertex once")


def check_grids(
    grids: Any, src: Tensor, dst: Tensor, at: np.ndarray, cut: str, count: int, part: str
) -> list[ResultCheck]:
    """Check counts and order of grids, edge by edge.

    Args:
        at: int64[E], interval of each edge. cut: of the vertices. count: N.
    """
    size, bounds = grids.parts.count, grids.parts.bounds
    key = at.astype(np.int64)
    for ids in (src, dst):
        key = key * size + parts_of(cut, ids, count, size, bounds)
    counts = np.bincount(key, minlength=grids.counts.numel())
    about = f"{EDGES}, {part}"
    return [
        equal("counters", grids.counts.reshape(-1), counts, against=about),
        equal("order", grids.order, np.argsort(key, kind="stable"), against=about),
        check_parts(grids.parts, count),
    ]


def check_balance(found: Any, counts: Tensor, phases: Sequence[Sequence[int]]) -> ResultCheck:
    """Check the fill of grids against loops over them."""
    table, parts = counts.tolist(), counts.shape[1]
    total = sum(sum(map(sum, grid)) for grid in table)
    slowest = sum(max(grid[i][row[i]] for i in range(parts)) for grid in table for row in phases)
    cells = [edges for grid in table for row in grid for edges in row]
    wanted = {
        "busy": total / slowest,
        "largest": max(cells) * len(cells) / total,
    }
    own = {name: getattr(found, name) for name in wanted}
    return close("balances", own, wanted, 1e-12, against="loop over all grids")


# --- schedules ------------------------------------------------------------------------------------


def check_round(schedule: Any, part: str) -> ResultCheck:
    """Check a round: every device trains every destination part once, held by it at that time."""
    copies = schedule.kind in ("gather", "direct")
    holds = [{i} for i in range(schedule.size)]
    trained: Counter[tuple[int, int]] = Counter()
    violations = 0
    for phase in schedule.phases:
        coming = [(move.target, move.part) for move in phase.moves]
        violations += sum(move.part not in holds[move.source] for move in phase.moves)
        for move in phase.moves:
            if not copies or move.target == move.part:
                holds[move.source].discard(move.part)
        for target, moved in coming:
            holds[target].add(moved)
        for device, parts in enumerate(phase.trains):
            violations += sum(one not in holds[device] for one in parts)
            trained.update((device, one) for one in parts)
    every = [(i, j) for i in range(schedule.size) for j in range(schedule.size)]
    violations += sum(trained[pair] != 1 for pair in every)
    violations += sum(holds[i] != {i} for i in range(schedule.size))
    return at_most(
        "order", float(violations), 0.0, against="a round followed part by part",
        compared=len(every), part=part,
    )  # fmt: skip


def moved_bytes(schedule: Any, rows: Sequence[int], vector: int) -> int:
    """Bytes of a round, move by move: an embedding where it is read, two vectors of sums."""
    return sum(
        int(rows[move.part]) * vector * (int(move.reads) + (VECTORS - 1) * int(move.sums))
        for phase in schedule.phases
        for move in phase.moves
    )


def visiting_rows(trainer: Any, events: Tensor) -> list[int]:
    """Vertices whose rows are passed on in an interval, by part: all of them, or, where rows
    are named, the distinct destinations and negatives of its events."""
    stream = trainer.data.events
    named = torch.arange(stream.num_nodes)
    if trainer.planner.touched:
        named = torch.cat([stream.dst[events], trainer.data.negative[events]]).unique()
    parts = trainer.parts.of(named).numpy()
    return np.bincount(parts, minlength=trainer.parts.count).tolist()


# --- memory ---------------------------------------------------------------------------------------


def check_bytes(trainer: Any) -> ResultCheck:
    """Check the bytes that a trainer says to hold against its tensors and its largest step."""
    tensors = list(trainer.model.parameters())
    # Adam makes its moments when a parameter gets its first gradient.
    adam = trainer._optimiser.state
    moments = [adam[p].get(name, p) for p in tensors for name in ("exp_avg", "exp_avg_sq")]
    # A parameter, its gradient, and what Adam keeps of it.
    leaves = 2 * _nbytes(tensors) + _nbytes(moments)
    tables = trainer.vertices, trainer.pending
    state = _nbytes([x for one in tables for x in one.columns().values() if x is not None])
    report, width = trainer.report(), trainer.workload.hidden_dim
    item = torch.empty(0, dtype=trainer.dtype).element_size()
    if isinstance(trainer, BaselineTrainer):
        data = trainer.data
        ranges = ((0, data.train_end), (data.train_end, len(data.events)))
        steps = [e for one in ranges for group in trainer.groups(*one) for e in group]
        largest = max(events.unique().numel() for events in steps)
        kept = SAVED[trainer.workload.model] * VECTORS * largest * width * item
        near = 0 if trainer._push is None else _nbytes(trainer._push._columns())
        own = {"planned": report["planned_bytes"], "state": report["state_bytes"]}
        wanted = {"planned": state + near + leaves + kept + 64 * largest, "state": state}
    else:
        regions = trainer.region_bytes
        own = {"parameters": regions["R1 parameters"]}
        wanted = {"parameters": leaves}
        if trainer.resident:
            buffers = [one.flat for one in trainer.regions[0]._free]
            own |= {
                "state": regions["R1 state"],
                "vectors": regions["R2 vectors"] + regions["R3 vectors"],
            }
            wanted |= {"state": state, "vectors": _nbytes(buffers)}
        else:
            own["host"] = report["host_bytes"]
            loads = [load for loads in trainer._loads.values() for load in loads]
            wanted["host"] = state + sum(load.nbytes for load in loads)
        own["whole"] = float(report["device_bytes"] <= sum(regions.values()))
        own["whole"] += float(report["device_bytes"] > max(regions.values()))
        wanted["whole"] = 2.0
    return equal(
        "bytes", {k: float(v) for k, v in own.items()}, {k: float(v) for k, v in wanted.items()},
        against="bytes of the tensors themselves",
    )  # fmt: skip


def _nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)
