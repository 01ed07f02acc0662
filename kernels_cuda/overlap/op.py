"""Shared and exclusive entries of S successive snapshots (PiPAD, PPoPP 2023, 4.2).

The overlap of a partition is aggregated once over the features of all its snapshots side by side;
the exclusive rest is aggregated per snapshot. The paper leaves open whether "slice-grained" means
that edges are compared inside the row, slices bounding the work only, or that whole slices must be
the same. Both are here: `granularity="edge"` is the first and the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_csr
from dgbench.kernels_cuda.slices import DEFAULT_CAP, csr_words, slice_count
from dgbench.runtime.errors import InvalidInputError, unknown_key

Granularity = Literal["edge", "slice"]
GRANULARITIES: Final = ("edge", "slice")
MAX_SNAPSHOTS: Final = 32
"""Snapshots of one partition at most."""


@dataclass(frozen=True, slots=True)
class PartTopology:
    """The topology of a partition of S snapshots, taken apart.

    Attributes:
        over: entries that all S snapshots hold. Its values, where the snapshots are weighted, are
            float32[nnz_over, S]; column i is the weight in snapshot i.
        exclusive: S matrices; entry i holds the entries of snapshot i that are not in `over`, with
            the snapshot's own values. Disjoint from `over`; their union is snapshot i.
    """

    over: Csr
    exclusive: list[Csr]

    @staticmethod
    def build(
        csrs: Sequence[Csr], granularity: Granularity = "edge", cap: int = DEFAULT_CAP
    ) -> PartTopology:
        """Take S snapshots apart, in two parallel merges over their sorted rows.

        Args:
            csrs: 1 to 32 snapshots of one shape on one device, columns strictly ascending in each
                row, all weighted or none.
            granularity: "edge" compares entries; "slice" counts an entry as shared only where the
                whole slice that holds it is the same in all snapshots.
            cap: entries of a slice at most, read only with "slice".

        Raises:
            InvalidInputError: another number of snapshots, shapes, devices or weights that differ,
                a disordered row or a duplicate entry.
            UnknownKeyError: another granularity.
            UnsupportedError: CUDA matrices where the CUDA operators are not built.
        """
        check_granularity(granularity)
        _check_group(csrs)
        for i, csr in enumerate(csrs):
            check_csr(csr, f"csrs[{i}]", ascending=True)
        return split_unchecked(csrs, granularity, cap)

    @property
    def num_snapshots(self) -> int:
        return len(self.exclusive)

    def words(self, sliced: bool = True, with_values: bool = True, cap: int = DEFAULT_CAP) -> int:
        """Words of four bytes that the parts take.

        Args:
            sliced: in sliced CSR, otherwise in plain CSR.
            with_values: with one word per entry for a weight. The overlap of weighted snapshots
                carries S of them per entry; the factored normalisation needs none.
            cap: entries of a slice at most.
        """
        total = 0
        for part in (self.over, *self.exclusive):
            if sliced:
                total += part.nnz + 2 * slice_count(part, cap) + 1
            else:
                total += csr_words(part, with_values=False)
            if with_values:
                total += part.nnz if part.values is None else part.values.numel()
        return total

    def overlap_rate(self) -> float:
        """Shared entries over the mean number of entries of a snapshot; 1 where all are empty."""
        mean = self.over.nnz + sum(part.nnz for part in self.exclusive) / self.num_snapshots
        return self.over.nnz / mean if mean else 1.0

    def jaccard(self) -> float:
        """Shared entries over distinct entries, |intersection| / |union|; 1 where all are empty.

        With "slice" granularity the numerator counts the shared slices' entries only.
        """
        rows, columns = self.over.num_rows, self.over.num_cols
        keys = [_keys(part) for part in (self.over, *self.exclusive)]
        union = torch.cat(keys).unique().numel() if rows and columns else 0
        return self.over.nnz / union if union else 1.0


@dataclass(frozen=True, slots=True)
class UnionTopology:
    """S snapshots as one matrix with a bit per snapshot; not in the paper, kept to compare with.

    Attributes:
        csr: entries that any snapshot holds. Values, where the snapshots are weighted, are
            float32[nnz_union, S], 0 in snapshots without the entry.
        mask: int32[nnz_union], bit i set where snapshot i holds the entry.
        num_snapshots: S.
    """

    csr: Csr
    mask: Tensor
    num_snapshots: int

    @staticmethod
    def build(csrs: Sequence[Csr]) -> UnionTopology:
        """Unite 1 to 32 snapshots; arguments and errors as for `PartTopology.build`."""
        _check_group(csrs)
        for i, csr in enumerate(csrs):
            check_csr(csr, f"csrs[{i}]", ascending=True)
        device = csrs[0].indptr.device
        native, stream = extension(device), stream_of(device)
        indptrs, indices, values = _columns(csrs)
        indptr = torch.zeros_like(csrs[0].indptr)
        native.count_union(indptrs, indices, indptr[1:], *stream)
        torch.cumsum(indptr[1:], 0, out=indptr[1:])
        nnz = int(indptr[-1])
        columns = torch.empty(nnz, dtype=torch.int32, device=device)
        mask = torch.empty(nnz, dtype=torch.int32, device=device)
        weights = torch.empty(nnz, len(csrs), device=device) if values else None
        native.unite(indptrs, indices, values, indptr, columns, mask, weights, *stream)
        return UnionTopology(Csr(indptr, columns, csrs[0].num_cols, weights), mask, len(csrs))

    def words(self, sliced: bool = True, with_values: bool = True) -> int:
        """Words of four bytes: the matrix, and ceil(S / 32) word of mask per entry."""
        if sliced:
            total = self.csr.nnz + 2 * slice_count(self.csr, DEFAULT_CAP) + 1
        else:
            total = csr_words(self.csr, with_values=False)
        if with_values:
            total += self.csr.nnz if self.csr.values is None else self.csr.values.numel()
        return total + self.mask.numel()


def split_unchecked(
    csrs: Sequence[Csr], granularity: Granularity = "edge", cap: int = DEFAULT_CAP
) -> PartTopology:
    """`PartTopology.build` for snapshots that were checked before."""
    device = csrs[0].indptr.device
    native, stream = extension(device), stream_of(device)
    slice_cap = 0 if granularity == "edge" else cap
    indptrs, indices, values = _columns(csrs)
    over_indptr = torch.zeros_like(csrs[0].indptr)
    named = {}
    if size := getattr(native, "long_rows_size", None):  # on CUDA
        words = size(sum(csr.nnz for csr in csrs), len(csrs))
        named = {"long_rows": torch.empty(words, dtype=torch.int32, device=device)}
    native.count_shared(indptrs, indices, slice_cap, over_indptr[1:], *stream, **named)
    torch.cumsum(over_indptr[1:], 0, out=over_indptr[1:])
    shared = int(over_indptr[-1])
    over_indices = torch.empty(shared, dtype=torch.int32, device=device)
    over_values = torch.empty(shared, len(csrs), device=device) if values else None
    rest = [torch.empty(c.nnz - shared, dtype=torch.int32, device=device) for c in csrs]
    rest_values = [torch.empty(r.numel(), device=device) for r in rest] if values else []
    native.split(
        indptrs,
        indices,
        values,
        slice_cap,
        over_indptr,
        over_indices,
        over_values,
        rest,
        rest_values,
        *stream,
        **named,
    )
    # A shared entry leaves each snapshot exactly once: the exclusive offsets are differences.
    exclusive = [
        Csr(csr.indptr - over_indptr, r, csr.num_cols, rest_values[i] if values else None)
        for i, (csr, r) in enumerate(zip(csrs, rest, strict=True))
    ]
    return PartTopology(Csr(over_indptr, over_indices, csrs[0].num_cols, over_values), exclusive)


def _columns(csrs: Sequence[Csr]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    values = [csr.values for csr in csrs if csr.values is not None]
    return [csr.indptr for csr in csrs], [csr.indices for csr in csrs], values


def _keys(csr: Csr) -> Tensor:
    lengths = csr.indptr[1:] - csr.indptr[:-1]
    rows = torch.repeat_interleave(
        torch.arange(csr.num_rows, device=csr.indptr.device), lengths
    )  # [nnz]
    return rows * csr.num_cols + csr.indices


def check_granularity(granularity: str) -> None:
    """Raise UnknownKeyError for a granularity that there is not."""
    if granularity not in GRANULARITIES:
        raise unknown_key("granularity", granularity, GRANULARITIES)


def _check_group(csrs: Sequence[Csr]) -> None:
    if not 1 <= len(csrs) <= MAX_SNAPSHOTS:
        raise InvalidInputError(
            f"csrs holds {len(csrs)} snapshots, allowed are 1 to {MAX_SNAPSHOTS}"
        )
    check_alike(csrs)


def check_alike(csrs: Sequence[Csr]) -> None:
    """Raise InvalidInputError where shapes, devices or the presence of weights differ."""
    first = csrs[0]
    for i, csr in enumerate(csrs):
        if (csr.num_rows, csr.num_cols) != (first.num_rows, first.num_cols):
            raise InvalidInputError(
                f"csrs[{i}] is {csr.num_rows} x {csr.num_cols}, "
                f"csrs[0] is {first.num_rows} x {first.num_cols}; snapshots share one vertex set"
            )
        if csr.indptr.device != first.indptr.device:
            raise InvalidInputError(
                f"csrs[{i}] lies on {csr.indptr.device}, csrs[0] on {first.indptr.device}"
            )
        if (csr.values is None) != (first.values is None):
            raise InvalidInputError(
                f"csrs[{i}] {'has no' if csr.values is None else 'has'} values, csrs[0] "
                f"{'has none' if first.values is None else 'has some'}; "
                "all snapshots must be weighted or none"
            )
