"""Per-vertex state of DyGNN, and the interactions that are not yet applied to it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Final, TypeVar

import torch
from torch import Tensor

Self = TypeVar("Self", bound="VertexColumns")

_DRAWN_AT_ONCE: Final = 2**20
"""Numbers of a draw of which only some rows are kept."""


@dataclass(slots=True, eq=False)
class VertexColumns:
    """Named columns, a row per vertex; any of them may be None."""

    def columns(self) -> dict[str, Tensor]:
        """The columns that there are, by name."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: column for name, column in found.items() if column is not None}

    def _each(self: Self, change: object) -> Self:
        return type(self)(**{name: change(c) for name, c in self.columns().items()})  # type: ignore[operator]

    def __len__(self) -> int:
        return next(iter(self.columns().values())).shape[0]

    def __getitem__(self: Self, rows: Tensor | slice) -> Self:
        """Those rows, int64[n] or a slice (a view)."""
        if isinstance(rows, Tensor) and rows.dtype == torch.int64:
            return self._each(lambda c: c.index_select(0, rows))
        return self._each(lambda c: c[rows])

    def write(self: Self, ids: Tensor, rows: Self) -> None:
        """Replace rows int64[n], each named once, by n others."""
        mine = self.columns()
        for name, column in rows.columns().items():
            mine[name].index_copy_(0, ids, column.detach())

    def detach(self: Self) -> Self:
        """The same values without their graph."""
        return self._each(lambda c: c.detach())

    def clone(self: Self) -> Self:
        """A copy."""
        return self._each(lambda c: c.clone())

    def extended(self: Self, spare: int) -> Self:
        """With so many rows of zeros behind."""
        if spare == 0:
            return self
        return self._each(lambda c: torch.cat([c, c.new_zeros(spare, *c.shape[1:])]))

    def copy_(self: Self, other: Self) -> None:
        """Take over all values of another of the same size."""
        for name, column in self.columns().items():
            column.copy_(getattr(other, name))

    def to(self: Self, device: torch.device | str) -> Self:
        """The same on a device."""
        return self._each(lambda c: c.to(device, non_blocking=True))

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(c.numel() * c.element_size() for c in self.columns().values())


@dataclass(slots=True, eq=False)
class DygnnState(VertexColumns):
    """State of N vertices as it stood at the start of the last interval they occurred in.

    Attributes:
        cs, hs: floating [N, H], cell and hidden state of the source role (C^s, h^s).
        cg, hg: the same of the destination role (C^g, h^g).
        embedding: floating [N, H], E.
        last_s, last_g: float64[N], time of the last interaction taken in, by role; -inf before the
            first.
    """

    cs: Tensor
    hs: Tensor
    cg: Tensor
    hg: Tensor
    embedding: Tensor
    last_s: Tensor
    last_g: Tensor

    @classmethod
    def fresh(
        cls,
        num_vertices: int,
        hidden_dim: int,
        vertices: Tensor | None = None,
        *,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> DygnnState:
        """Cells zero, hidden states and embeddings drawn, the same for a seed.

        They must differ between vertices: what starts alike and sees only what starts alike stays
        alike.

        Args:
            vertices: int64[n], ascending, those whose rows are made; None: all.
        """
        draw = torch.Generator().manual_seed(seed + 15_485_863)
        embedding = _normal_rows(num_vertices, hidden_dim, vertices, draw).to(device, dtype)
        num_vertices, shape = embedding.shape[0], embedding.shape

        def zeros() -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def never() -> Tensor:
            return torch.full((num_vertices,), -torch.inf, dtype=torch.float64, device=device)

        return cls(zeros(), zeros(), zeros(), zeros(), embedding, never(), never())


@dataclass(slots=True, eq=False)
class PendingInteractions(VertexColumns):
    """Interactions of the last interval that N vertices occurred in, not yet taken in.

    Attributes:
        sum_s: floating [N, H], sum of E of the destinations of a vertex's edges as a source.
        sum_g: the same over the sources of its edges as a destination.
        count_s, count_g: int32[N], how many were added up; 0 where there was none.
        time_s, time_g: float64[N], time of the last of them; only where the count is not 0.
        push_s, push_g: floating [N, H], what neighbours pushed (propagation), or None.
    """

    sum_s: Tensor
    sum_g: Tensor
    count_s: Tensor
    count_g: Tensor
    time_s: Tensor
    time_g: Tensor
    push_s: Tensor | None = None
    push_g: Tensor | None = None

    @classmethod
    def none(
        cls,
        num_vertices: int,
        hidden_dim: int,
        *,
        propagation: bool = False,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> PendingInteractions:
        """Nothing waits."""

        def vectors() -> Tensor:
            return torch.zeros(num_vertices, hidden_dim, dtype=dtype, device=device)

        def counts() -> Tensor:
            return torch.zeros(num_vertices, dtype=torch.int32, device=device)

        def times() -> Tensor:
            return torch.zeros(num_vertices, dtype=torch.float64, device=device)

        return cls(
            vectors(), vectors(), counts(), counts(), times(), times(),
            vectors() if propagation else None, vectors() if propagation else None,
        )  # fmt: skip


def _normal_rows(rows: int, width: int, kept: Tensor | None, generator: torch.Generator) -> Tensor:
    """float32[n, width]: rows `kept` int64[n], ascending, of a normal draw of [rows, width].

    Torch fills a tensor in order, 16 numbers at a time, so that pieces of multiples of 16 with at
    least 16 at the end are the same draw.
    """
    if kept is None:
        return torch.empty(rows, width).normal_(generator=generator)
    step = 16 * max(1, _DRAWN_AT_ONCE // (16 * width))
    begins = [*range(0, max(1, rows - 15), step), rows]
    found = torch.empty(kept.numel(), width)
    marks = torch.searchsorted(kept, torch.tensor(begins)).tolist()
    for (begin, end), (first, last) in zip(pairwise(begins), pairwise(marks), strict=True):
        piece = torch.empty(end - begin, width).normal_(generator=generator)
        torch.index_select(piece, 0, kept[first:last] - begin, out=found[first:last])
    return found
