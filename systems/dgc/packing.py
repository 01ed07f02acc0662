"""Packing of sequences of unequal length into rows (temporal fusion, DGC section 5.1.2).

The paper concatenates short sequences up to the length of the longest instead of padding each to
it, and does not say in which order. Here: first-fit decreasing, which never needs more than
11/9 of the fewest rows possible, and two thirds of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import CONTINUES, FROM_ZERO
from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Where every sequence stands. Values come and go as [V, F]: sequence after sequence.

    Attributes:
        lengths: int64[n], steps of each sequence; V is their sum.
        row: int64[n], the row that holds a sequence.
        offset: int64[n], the step of its row at which it begins.
        num_rows: N, rows used.
        row_length: T, steps of every row.
    """

    lengths: Tensor
    row: Tensor
    offset: Tensor
    num_rows: int
    row_length: int

    @property
    def steps(self) -> int:
        """V, vertex-steps of all sequences."""
        return int(self.lengths.sum())

    @property
    def padding(self) -> int:
        """Steps of the rows that hold nothing."""
        return self.num_rows * self.row_length - self.steps

    @property
    def padding_unpacked(self) -> int:
        """Steps that hold nothing when every sequence is padded to the longest."""
        if self.lengths.numel() == 0:
            return 0
        return self.lengths.numel() * int(self.lengths.max()) - self.steps

    @cached_property
    def place(self) -> Tensor:
        """int64[V]: where a vertex-step lies in the rows laid out as [T * N]."""
        return (self.offset_of_step * self.num_rows) + self.row[self.sequence_of_step]

    @cached_property
    def sequence_of_step(self) -> Tensor:
        """int64[V]: the sequence of each vertex-step."""
        return torch.repeat_interleave(torch.arange(self.lengths.numel()), self.lengths)

    @cached_property
    def position_of_step(self) -> Tensor:
        """int64[V]: the place of each vertex-step in its sequence, from 0."""
        first = torch.cumsum(self.lengths, 0) - self.lengths
        return torch.arange(self.steps) - first[self.sequence_of_step]

    @cached_property
    def offset_of_step(self) -> Tensor:
        """int64[V]: the step of its row at which each vertex-step lies."""
        return self.offset[self.sequence_of_step] + self.position_of_step

    @cached_property
    def begins(self) -> Tensor:
        """int32[T, N] for the packed scans; every sequence begins from zero."""
        return self.begins_from(torch.full_like(self.lengths, FROM_ZERO))

    def begins_from(self, starts: Tensor) -> Tensor:
        """`begins` with a start of its own for every sequence.

        Args:
            starts: int64[n], FROM_ZERO or the row of `h_starts`, each row once at most.

        Returns:
            int32[T, N]. What holds nothing begins from zero, step by step, so that no state grows
            there.
        """
        if starts.shape != self.lengths.shape:
            raise InvalidInputError(
                f"starts has shape {list(starts.shape)}, expected {list(self.lengths.shape)}, "
                "one for each sequence"
            )
        out = torch.full((self.row_length * self.num_rows,), FROM_ZERO, dtype=torch.int32)
        out[self.place] = CONTINUES
        some = self.lengths > 0
        first = self.offset[some] * self.num_rows + self.row[some]
        out[first] = starts[some].to(torch.int32)
        return out.view(self.row_length, self.num_rows)

    @cached_property
    def sequence(self) -> Tensor:
        """int64[T, N]: the sequence that each step of a row belongs to, -1 where it holds none."""
        out = torch.full((self.row_length * self.num_rows,), -1)
        out[self.place] = self.sequence_of_step
        return out.view(self.row_length, self.num_rows)

    @cached_property
    def position(self) -> Tensor:
        """int64[T, N]: the position in its sequence, from 0 again for each; 0 where none is."""
        out = torch.zeros(self.row_length * self.num_rows, dtype=torch.int64)
        out[self.place] = self.position_of_step
        return out.view(self.row_length, self.num_rows)

    def pack(self, values: Tensor) -> Tensor:
        """[V, F] -> [T, N, F], zero where a row holds nothing. Differentiable."""
        if values.dim() != 2 or values.shape[0] != self.steps:
            raise InvalidInputError(
                f"values has shape {list(values.shape)}, expected [{self.steps}, F]",
                hint="one row for each vertex-step, sequence after sequence",
            )
        out = values.new_zeros(self.row_length * self.num_rows, values.shape[1])
        out = out.index_copy(0, self.place, values)
        return out.view(self.row_length, self.num_rows, values.shape[1])

    def unpack(self, rows: Tensor) -> Tensor:
        """[T, N, H] -> [V, H], the reverse of `pack`. Differentiable."""
        if rows.dim() != 3 or tuple(rows.shape[:2]) != (self.row_length, self.num_rows):
            raise InvalidInputError(
                f"rows has shape {list(rows.shape)}, expected "
                f"[{self.row_length}, {self.num_rows}, H]"
            )
        return rows.reshape(-1, rows.shape[2]).index_select(0, self.place)


def pack_sequences(lengths: Tensor, row_length: int | None = None) -> PackedRows:
    """Pack sequences into rows by first-fit decreasing.

    Sequences of falling length (equal ones in their order) each go to the first row with room.
    Equal lengths are placed together, so the cost is that of one pass over the rows for every
    distinct length.

    Args:
        lengths: int64[n] on the CPU, at least 0; a sequence of length 0 takes no place.
        row_length: T; None is the longest sequence.

    Raises:
        InvalidInputError: a shape or dtype that does not fit, a negative length, or a sequence
            longer than a row.
    """
    if not isinstance(lengths, Tensor) or lengths.dim() != 1 or lengths.dtype != torch.int64:
        found = (
            f"{lengths.dtype} {list(lengths.shape)}"
            if isinstance(lengths, Tensor)
            else type(lengths).__name__
        )
        raise InvalidInputError(f"lengths is {found}, expected an int64 tensor [n]")
    sizes = lengths.detach().cpu().numpy()
    longest = int(sizes.max(initial=0))
    if sizes.min(initial=0) < 0:
        raise InvalidInputError(f"lengths holds {sizes.min()}, allowed are numbers from 0")
    if row_length is None:
        row_length = longest
    if isinstance(row_length, bool) or not isinstance(row_length, int) or row_length < longest:
        raise InvalidInputError(
            f"row_length is {row_length!r}, expected an integer of at least the longest sequence, "
            f"{longest}",
            hint="leave row_length out to take the longest",
        )
    row, offset, count = _first_fit(sizes, row_length)
    return PackedRows(
        torch.from_numpy(sizes.copy()),
        torch.from_numpy(row),
        torch.from_numpy(offset),
        count,
        row_length,
    )


def _first_fit(sizes: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Row and offset of each sequence, int64[n], and the number of rows."""
    row, offset = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.int64)
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    groups = np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1) if order.size else []
    open_rows = np.zeros(0, np.int64)  # with room, in the order in which they were opened
    free = np.zeros(0, np.int64)
    count = 0
    for group in groups:
        size = int(sizes[group[0]])
        fit = free // size  # of an open row; first fit fills one before it asks the next
        left = max(0, group.size - int(fit.sum()))
        fresh = -(-left // (capacity // size))
        open_rows = np.concatenate([open_rows, np.arange(count, count + fresh)])
        free = np.concatenate([free, np.full(fresh, capacity)])
        count += fresh
        before = np.cumsum(free // size) - free // size
        taken = np.clip(group.size - before, 0, free // size)
        which = np.repeat(np.arange(open_rows.size), taken)
        nth = np.arange(group.size) - np.repeat(np.cumsum(taken) - taken, taken)
        row[group] = open_rows[which]
        offset[group] = capacity - free[which] + nth * size
        free = free - taken * size
        open_rows, free = open_rows[free > 0], free[free > 0]
    return row, offset, count
