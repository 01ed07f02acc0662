"""Spatial fusion: which chunks of a worker the structure encoder takes together (section 5.1.1).

A chunk loads its own rows and those that its rows hear. Two chunks that hear each other, taken one
after the other, load each other's boundary a second time. So the pair that does most of this is
fused, again and again, until nothing is left to save or memory ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, unknown_key

Rest = Literal["together", "apart"]
CLOSE: Final = 0.9
"""Share of the memory limit from which on a fused chunk takes no other: "close to" the limit."""


@dataclass(frozen=True, slots=True, eq=False)
class UnitReads:
    """Who loads whose rows without fusion, each pair of a unit and a row of another once.

    Attributes:
        units: number of units, those of other workers included.
        reader: int64[D], the unit that loads.
        row: int64[D], the row of the worker that it loads.
        owner: int64[D], the unit that has the row.
    """

    units: int
    reader: Tensor
    row: Tensor
    owner: Tensor

    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Pairs of units a < b with r(a, b) > 0: a, b and r in rows, int64[K] each.

        r(a, b) is the number of rows of a that b loads and of b that a loads.
        """
        low, high = torch.minimum(self.reader, self.owner), torch.maximum(self.reader, self.owner)
        key, rows = torch.unique(low * self.units + high, return_counts=True)
        return key // self.units, key % self.units, rows


def shared_rows(csr: Csr, unit: Tensor, units: int) -> UnitReads:
    """Rows that a worker's units load of each other.

    Rows of other workers are loaded by every unit that hears them, too; they are in no r, as the
    paper's pairs are of chunks on the same GPU.

    Args:
        csr: R x (R + H), a worker's matrix; columns from R on are rows of others.
        unit: int64[R] in [0, units).
        units: number of units.
    """
    rows = csr.num_rows
    reader = torch.repeat_interleave(unit, csr.indptr.diff(), output_size=csr.nnz)
    column = csr.indices.long()
    apart = column < rows
    apart &= unit[column.clamp(max=max(0, rows - 1))] != reader if rows else apart
    key = torch.unique(reader[apart] * max(1, rows) + column[apart])
    row = key % max(1, rows)
    return UnitReads(units, key // max(1, rows), row, unit[row])


@dataclass(frozen=True, slots=True, eq=False)
class FusedUnits:
    """Groups of units.

    Attributes:
        group: int64[units] in [0, groups), numbered by the smallest unit in each.
        groups: their number; a unit that was not fused is one.
        merges: pairs with r > 0 that were fused.
        saved_rows: rows of this worker that are not loaded a second time in one round.
        saved_bytes: the same in bytes.
        frozen: groups that took no other because of the memory.
    """

    group: Tensor
    groups: int
    merges: int
    saved_rows: int
    saved_bytes: int
    frozen: int


def fuse_units(
    reads: UnitReads,
    *,
    row_bytes: int = 1,
    memory: Tensor | None = None,
    limit: float | None = None,
    rest: Rest = "together",
) -> FusedUnits:
    """Fuse the pair of groups with the largest r until none is left.

    A heap with entries that may be out of date: fusing a and b changes r of what either had an r
    with, new entries are pushed and the old ones passed over. r(ab, c) counts distinct rows: one of
    c that both a and b load is loaded once by the two together. O(K log K) for K pairs with r > 0,
    and the rows that are loaded twice times the logarithm of the number of units.

    Args:
        reads: of `shared_rows`.
        row_bytes: of a row, alike everywhere, so that most rows are most bytes.
        memory: float64[units] bytes of each unit, measured in the first epoch or by
            `unit_memory`; a fused group counts for the sum of its units. None: nothing.
        limit: bytes of one group at most. A pair above it is not fused, and a group from `CLOSE`
            of it on is frozen. None: none.
        rest: units that share nothing with another save no load, and the paper leaves them alone:
            `apart`. `together` joins what is left as memory allows, which spares calls.

    Raises:
        InvalidInputError: memory of another length or with a negative number, a limit without
            memory or not above 0.
        UnknownKeyError: another `rest`.
    """
    if rest not in ("together", "apart"):
        raise unknown_key("rest", rest, ("together", "apart"))
    size = _checked_memory(reads.units, memory, limit)
    most = float("inf") if limit is None else float(limit)
    root = torch.empty(reads.units, dtype=torch.int64)
    total = torch.empty(3, dtype=torch.int64)
    rows = int(reads.row.max()) + 1 if reads.row.numel() else 0
    extension(root.device).fuse_units(
        reads.reader, reads.row, reads.owner, rows, size, most, CLOSE, root, total
    )
    if rest == "together":
        root = _join(root, size, most)
    names, group = torch.unique(root, return_inverse=True)
    merges, saved, frozen = total.tolist()
    return FusedUnits(group, names.numel(), merges, saved, saved * row_bytes, frozen)


def unit_memory(csr: Csr, unit: Tensor, units: int, floats: int) -> Tensor:
    """float64[units]: a model of the bytes of each unit, where none are measured.

    What it loads and what it makes of it, `floats` of 4 bytes for a row, and its entries, 8 bytes
    each.

    Args:
        csr, unit, units: as in `shared_rows`.
        floats: of a vertex-step over all rounds: what is shown and what is made.
    """
    rows = torch.bincount(unit, minlength=units)
    reader = torch.repeat_interleave(unit, csr.indptr.diff(), output_size=csr.nnz)
    entries = torch.bincount(reader, minlength=units)
    loaded = _loaded(csr, unit, reader, units)
    return ((loaded + rows) * floats * 4 + entries * 8).to(torch.float64)


def _loaded(csr: Csr, unit: Tensor, reader: Tensor, units: int) -> Tensor:
    column = csr.indices.long()
    home = torch.full((csr.num_cols,), -1)
    home[: csr.num_rows] = unit
    apart = home[column] != reader
    key = torch.unique(reader[apart] * max(1, csr.num_cols) + column[apart])
    others = torch.bincount(key // max(1, csr.num_cols), minlength=units)
    return torch.bincount(unit, minlength=units) + others


def _checked_memory(units: int, memory: Tensor | None, limit: float | None) -> Tensor:
    if limit is not None and not limit > 0:
        raise InvalidInputError(f"limit is {limit}, allowed are bytes above 0")
    if memory is None:
        if limit is not None:
            raise InvalidInputError(
                "limit is given without memory", hint="`unit_memory` is a model of it"
            )
        return torch.zeros(units, dtype=torch.float64)
    if memory.dtype != torch.float64 or memory.shape != (units,):
        raise InvalidInputError(
            f"memory is {memory.dtype} {list(memory.shape)}, expected torch.float64 [{units}]"
        )
    if not bool((memory.isfinite() & (memory >= 0)).all()):
        raise InvalidInputError("memory holds a number that is negative or not finite")
    return memory.contiguous()


def _join(root: Tensor, size: Tensor, limit: float) -> Tensor:
    """Groups one after the other into as few as the limit allows, in order of their names."""
    names, group = torch.unique(root, return_inverse=True)
    if limit == float("inf"):
        return torch.zeros_like(root)
    bytes_of = torch.zeros(names.numel(), dtype=torch.float64).index_add_(0, group, size)
    into, held = [], 0.0
    for i, more in enumerate(bytes_of.tolist()):
        if not into or held + more > limit:
            into.append(i)
            held = more
        else:
            into.append(into[-1])
            held += more
    return torch.tensor(into, dtype=torch.int64)[group]
