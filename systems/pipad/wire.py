"""The topology of a partition as it travels: exactly the words that the formulas count.

Source: PiPAD 3.1 and 4.1. A partition is its overlap and one exclusive part per snapshot, each in
sliced CSR (row of each slice, first entry of each slice, columns) or, with slicing off, in plain
CSR. Every array is int32 on the link; 4-byte offsets bound a partition to 2^31 entries. All arrays
of a partition lie in one tensor, so that a partition is one copy, and weights in a second one. The
normalisation is not sent: `scales_of` forms it from the degrees of what arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate.prepared import prepare, prepare_parts, trust, trust_parts
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import DEFAULT_CAP
from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Layout of packed arrays, as the receiver needs it to unpack them.

    Attributes:
        num_rows, num_cols: shape of every piece.
        nnz: entries of each piece; the overlap first, then one per snapshot, or of a plain matrix.
        slices: slices of each piece, or None for plain CSR.
        snapshots: snapshots of a partition; 0 for a plain matrix.
        weighted: whether a second tensor carries weights: [nnz_over, S], then each snapshot's.
    """

    num_rows: int
    num_cols: int
    nnz: tuple[int, ...]
    slices: tuple[int, ...] | None
    snapshots: int
    weighted: bool


@dataclass(frozen=True, slots=True)
class PackedFrameTopology:
    """Packed topology.

    Attributes:
        tensors: int32[...] with the arrays of all pieces (rows of slices of all pieces, then
            offsets of all pieces, then columns of all pieces) and, where weighted, float32[...].
        layout: how to take them apart.
        words: 4-byte words of `tensors` together.
    """

    tensors: tuple[Tensor, ...]
    layout: PackedLayout
    words: int

    @property
    def nbytes(self) -> int:
        """Bytes on the link."""
        return 4 * self.words


def pack(
    parts: PartTopology | Csr, *, sliced: bool = True, cap: int = DEFAULT_CAP
) -> PackedFrameTopology:
    """Put a partition, or one whole snapshot, into the form that travels.

    Args:
        parts: a topology on the CPU that was checked before or made by dgbench.
        sliced: as sliced CSR, otherwise as plain CSR.
        cap: entries of a slice at most.

    Raises:
        InvalidInputError: a piece with 2^31 entries or more, or a topology on another device.
    """
    pieces = _pieces(parts)
    for piece in pieces:
        if piece.nnz >= 2**31 or piece.indptr.device.type != "cpu":
            raise InvalidInputError(
                f"a piece of {piece.nnz} entries on {piece.indptr.device} cannot be packed, "
                "allowed are fewer than 2^31 entries on the CPU",
                hint="take fewer snapshots per partition",
            )
    indptr, indices = [piece.indptr for piece in pieces], [piece.indices for piece in pieces]
    entries = sum(piece.nnz for piece in pieces)
    slices: tuple[int, ...] | None = None
    if sliced:
        native = extension(torch.device("cpu"))
        slices = tuple(native.count_pieces(indptr, cap))
        size = 2 * sum(slices) + len(pieces) + entries
        tensors = [torch.empty(size, dtype=torch.int32)]
        native.pack_pieces(indptr, indices, slices, cap, tensors[0])
    else:
        tensors = [torch.cat([a.to(torch.int32) for a in (*indptr, *indices)])]
    weighted = pieces[0].values is not None
    if weighted:
        tensors.append(torch.cat([p.values.reshape(-1) for p in pieces if p.values is not None]))
    layout = PackedLayout(
        num_rows=pieces[0].num_rows,
        num_cols=pieces[0].num_cols,
        nnz=tuple(piece.nnz for piece in pieces),
        slices=slices,
        snapshots=0 if isinstance(parts, Csr) else parts.num_snapshots,
        weighted=weighted,
    )
    return PackedFrameTopology(tuple(tensors), layout, sum(t.numel() for t in tensors))


def unpack(layout: PackedLayout, tensors: Sequence[Tensor]) -> PartTopology | Csr:
    """Take packed topology apart where it lies, without reading it back to the host.

    Columns and weights of the result are views of `tensors`, so those must stay as they are until
    its last use. The result is taken as sound: aggregation does not check it again.

    Args:
        layout: from `pack`.
        tensors: the tensors of the wire, on any one device.

    Returns:
        The partition, or the whole snapshot that was packed.

    Raises:
        InvalidInputError: tensors of another number or size than the layout says.
    """
    _check(layout, tensors)
    numbers = tensors[0]
    pieces = len(layout.nnz)
    head = numbers.numel() - sum(layout.nnz)
    indptr = _offsets(layout, numbers[:head])
    columns = numbers[head:].split(layout.nnz)
    values: list[Tensor | None] = [None] * pieces
    if layout.weighted:
        wide = max(1, layout.snapshots)
        values = list(tensors[1].split([layout.nnz[0] * wide, *layout.nnz[1:]]))
        if layout.snapshots and values[0] is not None:
            values[0] = values[0].view(layout.nnz[0], layout.snapshots)
    csrs = [Csr(indptr[i], columns[i], layout.num_cols, values[i]) for i in range(pieces)]
    parts = PartTopology(csrs[0], csrs[1:]) if layout.snapshots else csrs[0]
    if isinstance(parts, Csr):
        prepared = prepare(trust(parts))
    else:
        prepared = prepare_parts(trust_parts(parts))
    if layout.slices is not None:  # the paper's kernel takes the slices as they are
        prepared.slices[0] = _slices(layout, numbers[:head])
    return parts


def scales_of(parts: PartTopology | Csr, norm: str) -> tuple[Tensor, Tensor]:
    """Row and column scales of A-hat = R (A + I) C from the degrees of the topology itself.

    Args:
        parts: a partition of S snapshots, or one matrix (S = 1).
        norm: `sym` or `mean`, as `datasets.transforms.factors`.

    Returns:
        row_scale, col_scale: float32[N, S] each, on the device of the topology; equal to what
        `factors` gives for each snapshot.

    Raises:
        InvalidInputError: another norm.
    """
    if norm not in ("sym", "mean"):
        raise InvalidInputError(f"norm is {norm!r}; allowed: sym, mean")
    pieces = _pieces(parts)
    if pieces[0].values is None:
        degree = _lengths(pieces).add_(1).double()  # at least 1: the loop
        scale = (degree.rsqrt_() if norm == "sym" else degree.reciprocal_()).float()
    else:
        degree = _sums(pieces) + 1
        power = -0.5 if norm == "sym" else -1.0
        scale = torch.where(degree > 0, degree.clamp(min=1e-300) ** power, 0.0).float()
    return scale, (scale if norm == "sym" else torch.ones_like(scale))


def _pieces(parts: PartTopology | Csr) -> list[Csr]:
    return [parts] if isinstance(parts, Csr) else [parts.over, *parts.exclusive]


def _offsets(layout: PackedLayout, head: Tensor) -> Tensor:
    """int64[pieces, N + 1] row offsets of every piece from rows and offsets of its slices."""
    pieces, rows = len(layout.nnz), layout.num_rows
    if layout.slices is None:
        return head.view(pieces, rows + 1).long()
    row_indices, offsets = zip(*_slices(layout, head), strict=True)
    out = torch.empty(pieces, rows + 1, dtype=torch.int64, device=head.device)
    native, stream = extension(head.device), stream_of(head.device)
    native.unpack_offsets(list(row_indices), list(offsets), out, *stream)
    return out


def _slices(layout: PackedLayout, head: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Row and first entry of every slice, int32[slices] and int32[slices + 1], of each piece."""
    counts = layout.slices
    rows = head[: sum(counts)].split(counts)
    offsets = head[sum(counts) :].split([count + 1 for count in counts])
    return list(zip(rows, offsets, strict=True))


def _lengths(pieces: Sequence[Csr]) -> Tensor:
    """int64[N, S] entries of every snapshot's rows."""
    lengths = torch.stack([piece.indptr for piece in pieces], dim=1).diff(dim=0)  # [N, pieces]
    return lengths[:, :1] + lengths[:, 1:] if len(pieces) > 1 else lengths


def _sums(pieces: Sequence[Csr]) -> Tensor:
    """float64[N, S] sums of every snapshot's rows."""
    over, *rest = (_row_sums(piece) for piece in pieces)
    return over + torch.cat(rest, dim=1) if rest else over


def _row_sums(csr: Csr) -> Tensor:
    """float64[N, 1], or float64[N, S] for the overlap of weighted snapshots."""
    values = csr.values if csr.values.dim() == 2 else csr.values[:, None]
    lengths = csr.indptr.diff()
    rows = torch.repeat_interleave(
        torch.arange(csr.num_rows, device=lengths.device), lengths, output_size=csr.nnz
    )
    out = torch.zeros(csr.num_rows, values.shape[1], dtype=torch.float64, device=lengths.device)
    return out.index_add_(0, rows, values.double())


def _check(layout: PackedLayout, tensors: Sequence[Tensor]) -> None:
    expected = 1 + layout.weighted
    if len(tensors) != expected:
        raise InvalidInputError(f"{len(tensors)} tensors given, this layout has {expected}")
    pieces = len(layout.nnz)
    if layout.slices is None:
        head = pieces * (layout.num_rows + 1)
    else:
        head = 2 * sum(layout.slices) + pieces
    sizes = [head + sum(layout.nnz)]
    if layout.weighted:
        sizes.append(layout.nnz[0] * max(1, layout.snapshots) + sum(layout.nnz[1:]))
    for i, (tensor, size, dtype) in enumerate(
        zip(tensors, sizes, (torch.int32, torch.float32), strict=False)
    ):
        if tensor.numel() != size or tensor.dtype != dtype or tensor.dim() != 1:
            raise InvalidInputError(
                f"tensors[{i}] is {tensor.dtype}{list(tensor.shape)}, this layout has "
                f"{dtype}[{size}]"
            )
