"""Recount of vertex-steps, partitions and what they send, edge by edge in numpy.

What counters of experiments are compared with. Nothing here calls the code that made them: edges
come from the snapshots, and pairs are told apart by `numpy.unique`.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dgbench.lab.experiment import Measurement
from dgbench.lab.metrics import metric
from dgbench.lab.result_checks import ResultCheck, close, equal

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.systems.dgc.chunk_samples import GraphChunks
    from dgbench.systems.dgc.placement import Placement
    from dgbench.systems.dgc.volumes import Shape

AGAINST: Final = "count over all edges"
EXACT: Final = 1e-9
"""Tolerance of float64 results that differ in the order of sums only."""


class EdgeRecount:
    """Vertex-steps of some snapshots and who hears whom, by presence from first to last edge.

    Attributes:
        steps: snapshots.
        entity, step: int64[V], of each vertex-step, by entity and then by step.
        reader, heard: int64[E], vertex-steps at both ends of every edge, loops left out.
    """

    def __init__(self, data: SnapshotSequence, steps: int | None = None) -> None:
        self.steps = len(data) - 1 if steps is None else steps
        ends = []
        for t in range(self.steps):
            csr = data.topology[t]
            row = np.repeat(np.arange(csr.num_rows), np.diff(csr.indptr.numpy()))
            column = csr.indices.numpy().astype(np.int64)
            kept = row != column
            ends.append(np.stack([row[kept], column[kept], np.full(int(kept.sum()), t)]))
        reader, heard, at = np.concatenate(ends, axis=1) if ends else np.zeros((3, 0), np.int64)
        first = np.full(data.num_nodes, self.steps)
        last = np.full(data.num_nodes, -1)
        for side in (reader, heard):
            np.minimum.at(first, side, at)
            np.maximum.at(last, side, at)
        alive = np.flatnonzero(last >= 0)
        lengths = last[alive] - first[alive] + 1
        begin = np.cumsum(lengths) - lengths
        self.entity = np.repeat(alive, lengths)
        self.step = np.arange(self.entity.size) - np.repeat(begin - first[alive], lengths)
        base = np.zeros(data.num_nodes, np.int64)
        base[alive] = begin - first[alive]
        self.reader, self.heard = base[reader] + at, base[heard] + at

    def sizes(self, **dims: Any) -> Measurement:
        """Vertex-steps and edges, with these dimensions."""
        found = Measurement()
        found.observe("vertex_steps", self.entity.size, **dims)
        found.observe("edges", self.reader.size, **dims)
        return found

    def per_step(self) -> np.ndarray:
        """int64[T], edges of each snapshot."""
        return np.bincount(self.step[self.reader], minlength=self.steps)

    def vertex_steps(self, graph: Supergraph) -> ResultCheck:
        """A check that a graph has these vertex-steps in this order."""
        found = {"entity": graph.entity.long(), "step": graph.step.long()}
        return equal(
            "vertex-steps", found, {"entity": self.entity, "step": self.step}, against=AGAINST
        )

    def rows(
        self, placement: Placement, shape: Shape, pairs: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """Rows that each worker sends each other one in a forward pass, int64[P, P] by exchange.

        A vertex-step goes once to each other worker that needs it; states by their stage.

        Args:
            pairs: int64[2, S] vertex-steps that are scored together, V where there is none. The
                first one's worker scores them, the second one's where the first is none.
        """
        size = placement.workers
        structure, time = placement.structure.numpy(), placement.time.numpy()
        found: dict[str, np.ndarray] = {}
        if pairs is not None:
            first, second = np.append(time, -1)[pairs]
            scorer = np.maximum(np.where(first >= 0, first, second), 0)
            ends, at = pairs.ravel(), np.tile(scorer, 2)
            there = ends < time.size
            read = np.unique(ends[there] * size + at[there])
            found["task"] = _matrix(time[read // size], read % size, size)
        shown = np.unique(self.heard * size + structure[self.reader])
        matrix = _matrix(structure[shown // size], shown % size, size)
        found |= {f"structure{k}": matrix for k in range(len(shape.round_dims))}
        if not np.array_equal(structure, time):
            found["move"] = _matrix(structure, time, size)
        if shape.attention:
            matrix = np.zeros((size, size), np.int64)
            for reader in range(size):
                hears = np.zeros(int(self.entity.max(initial=-1)) + 1, bool)
                hears[self.entity[time == reader]] = True
                matrix[:, reader] = np.bincount(time[hears[self.entity]], minlength=size)
            np.fill_diagonal(matrix, 0)
            found["time"] = matrix
            return found
        stage = self.stages(placement)
        goes_on = np.flatnonzero(self.entity[1:] == self.entity[:-1])
        cut = goes_on[stage[goes_on + 1] != stage[goes_on]]
        for number in range(int(stage[cut].max()) + 1 if cut.size else 0):
            of = cut[stage[cut] == number]
            found[f"state{number}"] = _matrix(time[of], time[of + 1], size)
        return found

    def bytes(self, placement: Placement, shape: Shape) -> dict[str, int]:
        """Bytes of an epoch by exchange, gradients included; states together."""
        total: dict[str, int] = {}
        for name, matrix in self.rows(placement, shape).items():
            width, passes = width_of(name, shape)
            key = name.rstrip("0123456789") if name.startswith("state") else name
            total[key] = total.get(key, 0) + 4 * width * passes * int(matrix.sum())
        return total

    def stages(self, placement: Placement) -> np.ndarray:
        """int64[V]: how often the sequence of a vertex-step changed its worker before it."""
        worker = placement.time.numpy()
        first = np.diff(self.entity, prepend=-1) != 0  # of its entity
        changes = np.cumsum(~first & (np.diff(worker, prepend=-1) != 0))
        before = changes[first][np.cumsum(first) - 1]
        return changes - before

    def span(self, placement: Placement) -> tuple[int, float]:
        """Stages of a recurrence, and vertex-steps done in a row over an even share of all."""
        stage, worker, size = self.stages(placement), placement.time.numpy(), placement.workers
        if not stage.size:
            return 0, 1.0
        done = np.zeros((int(stage.max()) + 1, size), np.int64)
        np.add.at(done, (stage, worker), 1)
        return done.shape[0], int(done.max(1).sum()) * size / stage.size

    def most_heard(self, placement: Placement, shape: Shape) -> int:
        """Most steps of its own entity that a vertex-step needs of other workers."""
        if not shape.attention:
            return int(self.stages(placement).any())
        size, time = placement.workers, placement.time.numpy()
        keys, own = np.unique(self.entity * size + time, return_counts=True)
        lengths = np.bincount(self.entity)[keys // size]
        return int((lengths - own).max(initial=0))

    def balance(self, placement: Placement) -> float:
        """Largest over mean work: edges in the structure encoder, vertex-steps in time."""
        work = self.work(placement)
        total = work["edges"] + work["rows"]
        return float(total.max() / total.mean()) if total.any() else 1.0

    def work(self, placement: Placement) -> dict[str, np.ndarray]:
        """By worker: vertex-steps and edges of the structure encoder, vertex-steps in time."""
        size, structure = placement.workers, placement.structure.numpy()
        of = {
            "vertices": structure, "edges": structure[self.reader], "rows": placement.time.numpy()
        }  # fmt: skip
        return {
            name: np.array([int((worker == p).sum()) for p in range(size)])
            for name, worker in of.items()
        }

    def weight(self, chunk: np.ndarray, shape: Shape) -> tuple[int, int]:
        """Profiled weight of the edges inside chunks and between them."""
        counts = shape.counts()
        spatial, temporal = counts.weights()
        lengths = np.bincount(self.entity)
        goes_on = np.flatnonzero(self.entity[1:] == self.entity[:-1])
        each = lengths[self.entity[goes_on]] - 1 if counts.all_steps else np.ones(goes_on.size)
        apart = chunk[self.reader] != chunk[self.heard]
        cut = chunk[goes_on] != chunk[goes_on + 1]
        inside = spatial * int((~apart).sum()) + temporal * int(each[~cut].sum())
        return inside, spatial * int(apart.sum()) + temporal * int(each[cut].sum())

    def partition(self, placement: Placement, name: str = "") -> ResultCheck:
        """A check that every vertex-step has one worker, and the one that the baseline says.

        Args:
            placement: to check.
            name: what it is called in the check.
        """
        size = placement.workers
        order = np.cumsum(np.diff(self.entity, prepend=-1) != 0) - 1  # of entities that exist
        by_step, by_entity = self.step % size, order % size
        wanted = {
            "snapshots": (by_step, by_step),
            "snapshots-contiguous": (self.step * size // max(1, self.steps),) * 2,
            "sequences": (by_entity, by_entity),
            "both": (by_step, by_entity),
        }.get(placement.partition)
        found = {"structure": placement.structure.numpy(), "time": placement.time.numpy()}
        if wanted is None:
            # Any worker will do, but there must be one for each vertex-step and one unit.
            clipped = {key: np.clip(of, 0, size - 1) for key, of in found.items()}
            wanted = tuple(clipped.values())
            found["unit"] = placement.unit.numpy()
            units = np.clip(found["unit"], 0, placement.units - 1)
        else:
            found["unit"], units = placement.unit.numpy(), self.step
        expected = {"structure": wanted[0], "time": wanted[1], "unit": units}
        shape = (self.entity.size,)
        expected = {k: v if v.shape == shape else np.zeros(shape) for k, v in expected.items()}
        check = equal("workers of vertex-steps", found, expected, against="rule of the partition")
        return _named(check, name or placement.partition)


def check_cut(
    edges: EdgeRecount, cut: GraphChunks, numbers: Collection[int], cap: int
) -> list[ResultCheck]:
    """Checks of chunks: all of them against the cap, some edge by edge.

    Args:
        edges: of the same snapshots.
        cut: the chunks.
        numbers: of those that are counted.
        cap: vertex-steps of a chunk at most.
    """
    chunk = cut.chunk.numpy()
    sizes = np.bincount(chunk, minlength=cut.count)
    checks = [
        edges.vertex_steps(cut.graph),
        equal("chunks", np.clip(chunk, 0, cut.count - 1), chunk, against="range of chunks"),
        equal("chunks", np.minimum(sizes, cap), sizes, against="cap of vertex-steps"),
    ]
    degree = 1 + np.bincount(edges.reader, minlength=edges.entity.size)
    for number in numbers:
        inside = chunk == number
        own, sizes = cut[number], cut.statistics
        read = inside[edges.reader]
        entities, lengths = np.unique(edges.entity[inside], return_counts=True)
        pairs = edges.heard[read & inside[edges.heard]], edges.reader[read & inside[edges.heard]]
        inner = np.unique(np.stack([np.minimum(*pairs), np.maximum(*pairs)]), axis=1).shape[1]
        weight = (degree[edges.reader[read]] * degree[edges.heard[read]]) ** -0.5
        wanted = {
            "vertices": int(inside.sum()), "edges": int(read.sum()), "inner_edges": inner,
            "sequences": entities.size, "longest": int(lengths.max(initial=0)),
        }  # fmt: skip
        found = {name: int(getattr(sizes, name)[number]) for name in wanted}
        others = edges.heard[read & ~inside[edges.heard]]
        wanted |= {
            "entries": int(read.sum()),
            "columns": int(inside.sum()) + np.unique(others).size,
        }
        found |= {"entries": own.csr.nnz, "columns": own.csr.num_cols}
        sums = {"entries": float(own.csr.values.double().sum()), "loop": float(own.loop.sum())}
        loop = float((1.0 / degree[inside]).sum())
        checks += [
            counted(found, wanted),
            equal("chunks", own.lengths, lengths, against=AGAINST),
            close("weights", sums, {"entries": float(weight.sum()), "loop": loop}, 1e-5,
                  against=AGAINST),
        ]  # fmt: skip
    return checks


def width_of(exchange: str, shape: Shape) -> tuple[int, int]:
    """Floats of a row of an exchange, and its passes: 2 where gradients go back."""
    if exchange.startswith("structure"):
        number = int(exchange.removeprefix("structure"))
        return shape.round_dims[number], 1 + shape.round_grads[number]
    if exchange.startswith("state"):
        return sum(shape.state_dims), 2
    if exchange == "task":
        return shape.state_dims[-1] if shape.state_dims else shape.hidden_dim, 2
    return shape.spatial_dim, 2


def drawn(names: Sequence[Any], count: int) -> list[Any]:
    """Some of the names, another draw in every process, in their order."""
    chosen = set(random.SystemRandom().sample(range(len(names)), min(count, len(names))))
    return [name for place, name in enumerate(names) if place in chosen]


def counted(found: Mapping[str, int], wanted: Mapping[str, int]) -> ResultCheck:
    """A check that the counters of a row are those of a recount; others are not read."""
    own = {name: found[name] for name in wanted if name in found}
    return equal("counters", own, dict(wanted), against=AGAINST)


def recounted(found: Measurement, wanted: Measurement) -> list[ResultCheck]:
    """Checks that a measurement holds the numbers of a recount; others of it are not read."""
    checks = []
    for exact, check in ((True, counted), (False, computed)):
        if numbers := _by_place(wanted, exact=exact):
            checks.append(check(_by_place(found, exact=exact), numbers))
    return checks


def _by_place(found: Measurement, *, exact: bool) -> dict[str, Any]:
    """Numbers by metric and dimensions, in words for a check that fails."""
    return {
        " ".join(map(str, (one.metric, *(one.dims[name] for name in sorted(one.dims))))): one.value
        for one in found.observations
        if metric(one.metric).exact == exact
    }


def computed(found: Mapping[str, float], wanted: Mapping[str, float]) -> ResultCheck:
    """A check that the values of a row follow from a recount, up to float64 rounding."""
    own = {name: found[name] for name in wanted if name in found}
    return close("values", own, dict(wanted), EXACT, against=AGAINST)


def unevenness(values: np.ndarray) -> float:
    """Gini index by its definition, half the mean difference of two values over their mean."""
    numbers, counts = np.unique(values, return_counts=True)
    share = counts / max(1, values.size)
    mean = float(share @ numbers)
    apart = np.abs(numbers[:, None] - numbers[None, :])
    return float(share @ apart @ share) / (2 * mean) if mean else 0.0


def _named(check: ResultCheck, system: str) -> ResultCheck:
    from msgspec.structs import replace

    return replace(check, system=system)


def _matrix(sender: np.ndarray, receiver: np.ndarray, size: int) -> np.ndarray:
    matrix = np.zeros((size, size), np.int64)
    np.add.at(matrix, (sender, receiver), 1)
    np.fill_diagonal(matrix, 0)
    return matrix
