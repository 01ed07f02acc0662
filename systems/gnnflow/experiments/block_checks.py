"""Checks of blocks: lists of drawn vertices built block by block, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.temporal_store import BlockPolicy
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.draws import draws_of
from dgbench.systems.gnnflow.block_counts import BlockCounts

VERTICES: Final = 40
"""Vertices whose lists are built again."""


def plain_blocks(batches: Iterable[int], policy: BlockPolicy) -> list[int]:
    """Slots of each block of a vertex to which batches bring so many records, oldest first."""
    blocks: list[int] = []
    degree = free = 0
    for count in batches:
        degree += int(count)
        left = int(count)
        while left:
            taken = min(left, free)
            left, free = left - taken, free - taken
            if not left:
                break
            bound = min(degree, policy.size)
            size = {"adaptive": max(left, bound), "adaptive_literal": bound, "fixed": policy.size,
                    "strawman": left, "static": left}[policy.name]  # fmt: skip
            if policy.name == "static" and blocks:  # one full block
                blocks[0] += left
                break
            blocks.append(size)
            free = size
    return blocks


class PlainBlocks:
    """Records that batches bring to drawn vertices; those that come first are among them.

    Args:
        vertices: N.
    """

    def __init__(self, vertices: int) -> None:
        count = min(vertices, VERTICES)
        chosen = draws_of("blocks").sample(range(vertices), count)
        self._chosen = np.sort(np.array(chosen, dtype=np.int64))
        self._vertices = vertices
        self._batches: list[np.ndarray] = []

    @classmethod
    def of(cls, events: Any, step: int, *, undirected: bool) -> PlainBlocks:
        """Of a stream in batches of `step` events."""
        made = cls(events.num_nodes)
        for first in range(0, len(events), step):
            ends = (events.src, events.dst) if undirected else (events.src,)
            made.add(np.concatenate([of[first : first + step].numpy() for of in ends]))
        return made

    def add(self, owners: np.ndarray) -> None:
        """A batch of records at these vertices."""
        if not self._batches:  # most vertices of a graph have no records, these have
            self._chosen = np.union1d(self._chosen, owners[:: max(1, owners.size // VERTICES)])
        ordered = np.sort(owners)
        ends = (np.searchsorted(ordered, self._chosen, side) for side in ("right", "left"))
        self._batches.append(next(ends) - next(ends))

    def checks(self, policy: BlockPolicy, lists: Tensor, part: str) -> list[ResultCheck]:
        """A check of the lengths of lists, int[N], under a policy, and of slots without records.

        Args:
            policy: of block sizes.
            lists: of all vertices.
            part: of which layout.
        """
        each = np.stack(self._batches, 1)
        found = lists.numpy()[self._chosen]
        blocks = [plain_blocks(counts[counts > 0], policy) for counts in each]
        counted = BlockCounts(self._chosen.size, policy)
        for batch in self._batches:
            counted.add(np.flatnonzero(batch), batch[batch > 0])
        own = {f"lists {part}": torch.from_numpy(found).long(), f"slots {part}": counted.slots}
        wanted = {
            f"lists {part}": torch.tensor([len(sizes) for sizes in blocks]),
            f"slots {part}": sum(map(sum, blocks)),
        }
        return [equal("counters", own, wanted, against="blocks built one by one")]


def records_by_batch(events: Any, step: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Vertices with new records and how many, of each batch of `step` events kept at sources."""
    return [
        np.unique(events.src[first : first + step].numpy(), return_counts=True)
        for first in range(0, len(events), step)
    ]


def counted_blocks(
    batches: Iterable[tuple[np.ndarray, np.ndarray]], vertices: int, policy: BlockPolicy
) -> dict[str, int]:
    """Slots and blocks after these batches, see `records_by_batch`, counted without records."""
    counts = BlockCounts(vertices, policy)
    for batch in batches:
        counts.add(*batch)
    return {"slots": counts.slots, "blocks": int(counts.blocks.sum())}
