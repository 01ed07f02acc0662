"""Settings and statistics of a temporal store: policies, counts, memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from dgbench.runtime.errors import InvalidInputError, unknown_key

PolicyName = Literal["adaptive", "adaptive_literal", "fixed", "strawman", "static", "grown"]
LayoutName = Literal["packed", "compact", "wide"]
Late = Literal["refuse", "sort"]

RECORD_BYTES: Final = {"packed": 16, "compact": 12, "wide": 24}
"""Bytes of a record by layout."""
SIZINGS: Final = {
    "adaptive": 0,
    "adaptive_literal": 1,
    "fixed": 2,
    "strawman": 3,
    "static": 3,
    "grown": 4,
}


@dataclass(frozen=True, slots=True)
class BlockPolicy:
    """Policy for the number of slots of a new block. Only blocks of `grown` change their size
    afterwards.

    Attributes:
        name: `adaptive`: max(records that are left over, min(degree, size)). The paper prints only
            the second part, but its Table 6 fits the whole. `adaptive_literal`: min(degree, size),
            again for what remains. `fixed`: `size` (an adjacency list is 1; Table 6 fits 4).
            `strawman`: the records that are left over. `static`: one block per vertex, made at
            once; such a store takes no insert. `grown`, added to the paper: a vertex has one block
            up to `size` records, found without a search among blocks; when it is full its records
            move to one of the next power of two (4 to `size`), and its slots serve a later block of
            as many. Beyond: max(records that are left over, size). A degree counts the records of
            the batch at hand.
        size: the threshold tau of `adaptive` and `grown`, the slots of `fixed`, 1 to 2^32 - 2.
    """

    name: PolicyName = "adaptive"
    size: int = 64

    def __post_init__(self) -> None:
        if self.name not in SIZINGS:
            raise unknown_key("block policy", self.name, SIZINGS)
        if not 1 <= self.size < 2**32 - 1:
            raise InvalidInputError(f"size is {self.size}, allowed are 1 to 2^32 - 2")


EXACT: Final = 1 << 53
"""Whole numbers up to this one are exact in float64."""
ADAPTIVE: Final = BlockPolicy()
GROWN: Final = BlockPolicy("grown", 512)


@dataclass(frozen=True, slots=True)
class Inserted:
    """Counts of one insert: records written, vertices that received one, new blocks (grown ones are
    not counted), and vertices whose records had to be merged because some came late."""

    records: int
    vertices: int
    blocks: int
    merged: int


@dataclass(frozen=True, slots=True)
class Offloaded:
    """Counts of what was moved from the store to a file: vertices, blocks, records and bytes."""

    vertices: int
    blocks: int
    records: int
    bytes: int
    path: Path


@dataclass(frozen=True, slots=True)
class StoreMemory:
    """Sizes of a store.

    Attributes:
        records: records in blocks, deleted ones included.
        slots: places for records in all blocks, and in those that grown ones have left.
        blocks: blocks of all vertices.
        vertices: vertices, those without records included.
        held: bytes in use by part: `records` (all slots), `fences` and `blocks` (the blocks as a
            search and as a list see them), `vertices`, and `scratch` of the last insert.
    """

    records: int
    slots: int
    blocks: int
    vertices: int
    held: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes in use, without scratch."""
        return sum(size for part, size in self.held.items() if part != "scratch")

    def paper_bytes(self, record: int = 20, block: int = 64) -> tuple[int, int]:
        """Bytes of edge data and of metadata as Table 6 counts them.

        Args:
            record: bytes of a slot: 20 fits Table 6, 21 adds the validity that section 4.1 has.
            block: bytes of a block's record: 64 fits Table 6, section 4.1 says 72.
        """
        return self.slots * record, self.blocks * block
