"""Differences of snapshots: finding what changed, and making a snapshot from it again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import Difference, encode, rebuild
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import equal
from dgbench.systems.operators.graphs import csr_of, keys_of, on_device
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

COPY = "copy of as many bytes"
REBUILDERS = ("torch mask and sort", "numpy delete and insert")


def pair(vertices: int, edges: int, changed: float, like: str) -> dict[str, Any]:
    """Params of two random snapshots; `changed` is (added + removed) / edges."""
    return {"vertices": vertices, "edges": edges, "changed": changed, "like": like}


PAIRS = {
    "smoke": (pair(500, 2000, 0.2, "tiny"),),
    "quick": (
        pair(100_000, 520_000, 0.23, "amlsim smoothed"),
        pair(100_000, 62_000, 1.90, "amlsim raw"),
    ),
    None: (
        pair(1_000_000, 5_200_000, 0.23, "amlsim smoothed"),
        pair(755_000, 2_070_000, 0.04, "epinions smoothed"),
        pair(100_000, 5_000_000, 0.10, "50 edges a row"),
        pair(1_000_000, 620_000, 1.90, "amlsim raw"),
        pair(3_200_000, 59_000, 2.0, "youtube raw"),
    ),
}
"""Of the sizes of ESDG's graphs (SC 2021), by number of vertices, edges and share of changes."""


class SnapshotPair:
    """Two uniform random snapshots, with their difference by how they were drawn.

    Attributes:
        old, new: the snapshots. removed, added: int64, ascending keys that one of them holds.
    """

    def __init__(self, vertices: int, edges: int, changed: float, **_: Any) -> None:
        draw = np.random.default_rng(3)
        pool = np.unique(draw.integers(0, vertices**2, int(edges * (1 + changed / 2))))
        own = int(len(pool) * (changed / 2) / (1 + changed / 2))
        order = draw.permutation(len(pool))
        first, last = pool[order[own:]], pool[order[: len(pool) - own]]
        self.old, self.new = (csr_of(np.sort(keys), vertices) for keys in (first, last))
        self.added, self.removed = (
            torch.from_numpy(np.sort(pool[part]))
            for part in (order[:own], order[len(pool) - own :])
        )


class DifferenceRace(OperatorRace):
    threads = 1
    clock = staticmethod(time.process_time)
    workloads = PAIRS
    label = "{like}"


class Encode(DifferenceRace):
    name = "difference"
    title = "Finding what changed between two snapshots"
    question = "How fast is the difference of two snapshots found?"
    reading = (
        "One thread, processor time. Every contender starts from what a system holds: a matrix, or "
        "sorted keys of its entries."
    )
    claims = ("operators-difference-best-peer",)

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        drawn = SnapshotPair(**params)
        a, b = drawn.old, drawn.new
        keys = keys_of(a), keys_of(b)
        arrays = tuple(one.numpy() for one in keys)

        def by_scipy(_: int) -> tuple[Tensor, Tensor]:
            left, right = (
                sparse.csr_array(
                    (np.ones(c.nnz, np.int8), c.indices.numpy(), c.indptr.numpy()),
                    shape=(c.num_rows, c.num_cols),
                )
                for c in (a, b)
            )
            coo = (right - left).tocoo()
            linear = coo.row.astype(np.int64) * a.num_cols + coo.col
            return linear[coo.data < 0], linear[coo.data > 0]

        def by_torch(_: int) -> tuple[Tensor, Tensor]:
            both, counts = torch.cat(keys).unique(return_counts=True)
            single = both[counts == 1]
            at = torch.searchsorted(keys[0], single).clamp(max=max(0, a.nnz - 1))
            mine = keys[0][at] == single
            return single[mine], single[~mine]

        calls: dict[str, Call] = {
            OURS: lambda _: encode(a, b, fallback=False),
            "numpy setdiff1d": lambda _: (
                np.setdiff1d(arrays[0], arrays[1], assume_unique=True),
                np.setdiff1d(arrays[1], arrays[0], assume_unique=True),
            ),
            "scipy subtract": by_scipy,
            "torch unique": by_torch,
        }
        # Both snapshots are read, and a pair of ids is written for each change.
        changes = len(drawn.removed) + len(drawn.added)
        moved = 4 * (a.nnz + b.nnz) + 16 * (a.num_rows + 1) + 16 * changes
        return OperatorCase(
            calls=calls,
            check=lambda name, _, found: equal(
                "changes",
                dict(zip(("removed", "added"), _changes(found, a), strict=True)),
                {"removed": drawn.removed, "added": drawn.added},
                against="changes that were drawn",
            ),
            work=(("throughput", {"of": "keys"}, a.nnz + b.nnz), ("bandwidth", {}, moved)),
        )


class Rebuild(DifferenceRace):
    name = "rebuild"
    title = "Making a snapshot from its difference"
    question = "How fast is a snapshot made from the one before it and what changed?"
    reading = (
        "One thread, processor time. The copy reads and writes half of the bytes that a rebuild "
        "must touch once each: what this machine allows at most, and no rival. Snapshots of which "
        "more changed than they hold are sent plain, so that no bar is set for them."
    )
    claims = ("operators-rebuild-best-peer",)
    devices = ("cpu", "cuda")
    limits = (COPY,)

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        drawn = SnapshotPair(**params)
        a, b = drawn.old, drawn.new
        sent = encode(a, b, fallback=False)
        sent = sent.with_tensors([one.to(device) for one in sent.tensors])
        target = keys_of(b)
        a = on_device(a, device)
        old, gone, come = keys_of(a), drawn.removed.to(device), drawn.added.to(device)
        moved = 4 * (a.nnz + b.nnz) + 16 * (a.num_rows + 1) + 16 * (len(gone) + len(come))
        source = torch.ones(moved // 2, dtype=torch.uint8, device=device)

        def by_torch(_: int) -> Tensor:
            keep = torch.ones(old.numel(), dtype=torch.bool, device=device)
            keep[torch.searchsorted(old, gone)] = False
            return torch.cat([old[keep], come]).sort().values

        def by_numpy(_: int) -> np.ndarray:
            left = np.delete(old.numpy(), np.searchsorted(old.numpy(), gone.numpy()))
            return np.insert(left, np.searchsorted(left, come.numpy()), come.numpy())

        peers = dict(zip(REBUILDERS, (by_torch, by_numpy), strict=True))
        if device != "cpu":
            del peers[REBUILDERS[1]]
        return OperatorCase(
            calls={OURS: lambda _: rebuild(a, sent), **peers, COPY: lambda _: source.clone()},
            check=lambda name, _, found: (
                None
                if name == COPY
                else equal(
                    "entries",
                    keys_of(found) if isinstance(found, Csr) else found,
                    target,
                    against="snapshot that was drawn",
                )
            ),
            work=(("bandwidth", {}, moved),),
        )


def _changes(found: Any, old: Csr) -> tuple[Any, Any]:
    """Keys that are removed and added, of any contender's answer."""
    if isinstance(found, Difference):
        pairs = (one.long() for one in (found.removed, found.added))
        removed, added = (one[0] * old.num_cols + one[1] for one in pairs)
        return removed, added
    return found
