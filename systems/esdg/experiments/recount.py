"""Counts made again the slow and obvious way, for the checks of what ESDG's experiments count.

Nothing here reads the code that it judges: edges are compared one by one, shares are those of
`numpy.array_split`, and bytes are added up snapshot by snapshot.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.models import build_model
from dgbench.systems.base import Measurement
from dgbench.systems.esdg.experiments.common import Changes, Occurrences

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

VALUE_BYTES = 4
OVER_EDGES = "count over all edges"
OVER_PAIRS = "count over all pairs of ranks"
EACH_ONCE = "list with each of them once"


def agree(own: Measurement, wanted: Measurement, *, against: str) -> ResultCheck:
    """A check that all observations of `wanted` are those of `own`."""
    there, asked = (
        {f"{one.metric} {sorted(one.dims.items())}": one.value for one in side.observations}
        for side in (own, wanted)
    )
    there = {name: value for name, value in there.items() if name in asked}
    return equal("counters", there, asked, against=against)


class RawEdges:
    """Distinct edges of every raw snapshot, without self loops, as numbers of pairs.

    Attributes:
        snapshots: [T] int64 arrays of numbers below `pairs`.
        pairs: distinct pairs of vertices of the whole sequence.
    """

    def __init__(self, found: Occurrences) -> None:
        events = found.events
        source, target = events.src.numpy().astype(np.int64), events.dst.numpy().astype(np.int64)
        keep = source != target
        keys, numbers = np.unique(
            target[keep] * events.num_nodes + source[keep], return_inverse=True
        )
        self.keys, self.pairs = keys, len(keys)
        bins = found.bins.numpy()[keep]
        order = np.argsort(bins, kind="stable")
        cuts = np.searchsorted(bins[order], np.arange(1, found.steps))
        self.snapshots = [distinct(part) for part in np.split(numbers[order], cuts)]

    def changes(self, life: int) -> Changes:
        """Entries that are there, come and go, by letting a window of `life` snapshots slide."""
        there = np.zeros(self.pairs, dtype=np.int32)
        entries, added, removed = (np.zeros(len(self.snapshots), dtype=np.int64) for _ in range(3))
        now = 0
        for t, new in enumerate(self.snapshots):
            added[t] = np.count_nonzero(there[new] == 0)
            there[new] += 1
            if t >= life:
                old = self.snapshots[t - life]
                there[old] -= 1
                removed[t] = np.count_nonzero(there[old] == 0)
            now += int(added[t] - removed[t])
            entries[t] = now
        return Changes(entries, added, removed)

    def window(self, t: int, life: int) -> np.ndarray:
        """Keys (target N + source) of the edges that a smoothed snapshot holds, ascending."""
        held = np.concatenate(self.snapshots[max(0, t - life + 1) : t + 1])
        return self.keys[distinct(held)]


def changes_check(own: Changes, counted: Changes) -> ResultCheck:
    """A check of changes against those of a window that slides over the edges."""
    sides = (
        {name: getattr(side, name) for name in ("entries", "added", "removed")}
        for side in (own, counted)
    )
    return equal("counters", *sides, against=OVER_EDGES)


def sequence_changes(snapshots: Sequence[Csr]) -> Changes:
    """Entries of snapshots that are there, and those that each has and has not of the last one."""
    entries, added, removed = [], [], []
    before = np.zeros(0, dtype=np.int64)
    for csr in snapshots:
        now = entry_keys(csr)
        shared = common(before, now)
        entries.append(len(now))
        added.append(len(now) - shared)
        removed.append(len(before) - shared)
        before = now
    return Changes(*(np.array(column, dtype=np.int64) for column in (entries, added, removed)))


def entry_keys(csr: Csr) -> np.ndarray:
    """Row N + column of every entry, ascending."""
    rows = np.repeat(np.arange(csr.num_rows, dtype=np.int64), csr.indptr.cpu().diff().numpy())
    return rows * csr.num_cols + csr.indices.cpu().numpy()


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Each number once, ascending."""
    return torch.from_numpy(np.ascontiguousarray(numbers)).unique().numpy()


def common(one: np.ndarray, other: np.ndarray) -> int:
    """Number of values that two arrays of distinct numbers share."""
    # A stable sort merges two ascending runs.
    both = np.sort(np.concatenate([one, other]), kind="stable")
    return int(np.count_nonzero(both[1:] == both[:-1]))


def sequence_bytes(
    changes: Changes,
    *,
    starts: Collection[int] = (0,),
    fallback: bool = True,
    index_bytes: int = 8,
    values: bool = True,
    loops: int = 0,
) -> list[int]:
    """Bytes of each snapshot against the one before it: all values, and indices of what changed.

    Args:
        starts: snapshots that go as coordinates; `fallback`: others, too, where that is less.
        loops: entries that every snapshot has beside.
    """
    found = []
    for t, (n, a, r) in enumerate(
        zip(changes.entries.tolist(), changes.added.tolist(), changes.removed.tolist(), strict=True)
    ):
        held = (n + loops) * VALUE_BYTES * values
        whole, sent = (held + 2 * index_bytes * pairs for pairs in (n + loops, a + r))
        found.append(whole if t in starts else min(whole, sent) if fallback else sent)
    return found


def parted(whole: Sequence[int], parts: int) -> list[list[int]]:
    """Consecutive parts, the first ones longer by one."""
    return [part.tolist() for part in np.array_split(np.asarray(whole, dtype=np.int64), parts)]


def redistributed(
    dims: Iterable[tuple[int, int]],
    steps: int,
    nodes: int,
    size: int,
    *,
    blocks: int = 1,
    forward: int = 2,
    backward: int = 1,
) -> np.ndarray:
    """Floats [P, P] that ranks send to each other between snapshots and vertices, pair by pair;
    `dims` are floats of a vertex and step to each temporal half and back."""
    found = np.zeros((size, size), dtype=np.int64)
    owned = [len(part) for part in parted(range(nodes), size)]
    for block in parted(range(steps), blocks):
        held = [len(part) for part in parted(block, size)]
        for there, back in dims:
            for p, q in combinations(range(size), 2):
                for one, other in ((p, q), (q, p)):
                    # Own snapshots of the other's vertices go there, and come back from there.
                    moved = held[one] * owned[other]
                    found[one, other] += moved * (forward * there + backward * back)
                    found[other, one] += moved * (forward * back + backward * there)
    return found


def remote_readers(topology: Iterable[Csr], owner: Tensor, size: int) -> int:
    """Sum over snapshots and vertices of the parts that read a vertex and do not own it."""
    parts, total = owner.numpy(), 0
    for csr in topology:
        rows = np.repeat(np.arange(csr.num_rows), csr.indptr.diff().numpy())
        there = distinct(csr.indices.numpy().astype(np.int64) * size + parts[rows])
        total += int(np.count_nonzero(parts[there // size] != there % size))
    return total


def partition_check(parts: Iterable[Sequence[int] | Tensor], count: int, part: str) -> ResultCheck:
    """A check that parts hold each of `count` things once."""
    held = [torch.as_tensor(list(p) if isinstance(p, range) else p) for p in parts]
    seen = torch.bincount(torch.cat(held).long(), minlength=count)
    check = equal("parts", seen, torch.ones(count, dtype=torch.int64), against=EACH_ONCE)
    return msgspec.structs.replace(check, part=part)


@dataclass(frozen=True, slots=True)
class Widths:
    """Floats per vertex and step of a model, from the tensors of a run over three vertices.

    Attributes:
        activations: of all aggregated inputs, spatial halves and temporal halves.
        redistributed: (to it, from it) of each temporal half.
        border: floats per vertex that are kept after the run.
        parameters: of the model, in all.
    """

    activations: int
    redistributed: tuple[tuple[int, int], ...]
    border: int
    parameters: int

    @classmethod
    def of(cls, name: str, *, window: int = 1, task: str = "link") -> Widths:
        """Run a model of the paper's widths over two steps more than its window reads."""
        feature_dim = 2
        model = build_model(name, feature_dim=feature_dim, hidden_dim=6, task=task, window=window)
        nodes, steps = 3, range(window + 2)
        seen: list[Tensor] = []
        halves: list[tuple[int, int]] = []
        spatial, temporal = model.spatial, model.temporal

        def noted_spatial(*given: Any) -> Tensor:
            seen.append(spatial(*given))
            return seen[-1]

        def noted_temporal(layer: int, x: Tensor, carry: Any) -> Any:
            out, after = temporal(layer, x, carry)
            halves.append((x.shape[-1], out.shape[-1]))
            seen.extend(out.unbind(0))
            return out, after

        class Features:
            def first(self, t: int) -> Tensor:
                return self.apply(t, torch.ones(nodes, feature_dim))

            def apply(self, t: int, h: Tensor) -> Tensor:
                seen.append(h.clone())
                return seen[-1]

        model.spatial, model.temporal = noted_spatial, noted_temporal
        with torch.no_grad():
            _, state = model.forward_block(Features(), steps)
        kept = sum(t.numel() for layer in state.layers for t in layer)
        return cls(
            activations=sum(t.numel() for t in seen) // (nodes * len(steps)),
            redistributed=tuple(halves),
            border=kept // nodes,
            parameters=sum(p.numel() for p in model.parameters()),
        )


def epoch_traffic(
    data: SnapshotSequence, model: str, window: int, on: Mapping[str, bool], blocks: int
) -> dict[str, int]:
    """Snapshots (`brought`) and bytes of an epoch on one process: every block once, and for its
    first pass, of which a lean checkpoint brings what the model's borders need."""
    steps = range(len(data) - 1)
    cut = parted(steps, blocks)
    topology = [data.topology[t] for t in steps]
    matrices = sequence_bytes(
        sequence_changes(topology),
        starts={block[0] for block in cut} if on["difference"] else steps,
        fallback=on["fallback"],
        index_bytes=4 if on["int32"] else 8,
        values=not on["recompute_values"] or any(csr.values is not None for csr in topology),
        loops=data.num_nodes if on["ship_loops"] else 0,
    )
    inputs = [torch.as_tensor(data.features[t]).numpy().nbytes for t in steps]
    brought, total = len(steps), sum(matrices) + sum(inputs)
    if not on["checkpoint"]:
        return {"brought": brought, "bytes": total}
    for block in cut[:-1] if on["lean"] or on["keep_last"] else cut:
        if on["lean"] and model == "evolvegcn_o":
            continue  # its weights depend on no snapshot
        if on["lean"] and model == "tm_gcn" and on["precompute"]:
            # The first layer's last outputs, from aggregated inputs without their matrices.
            total += sum(inputs[t] for t in block[max(0, len(block) - window + 1) :])
            continue
        brought += len(block)
        total += sum(matrices[t] + inputs[t] for t in block)
    return {"brought": brought, "bytes": total}
