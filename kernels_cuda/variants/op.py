"""Aggregation kernels of the papers under their own names, to race and to compare with.

The product's own operator is `aggregate.spmm`; these keep the structure that the papers describe.
`warp_clocks` runs the same kernels with a clock in every warp, for the balance of their load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._dispatch import call, capsule
from dgbench.kernels_cuda.aggregate.prepared import prepare, prepare_parts
from dgbench.kernels_cuda.build_info import extension, stream_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.csr.check import check_layout
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import DEFAULT_CAP, SlicedCsr, slice_unchecked
from dgbench.kernels_cuda.variants.memory_model import VECTOR_WIDTHS, thread_groups, vector_width
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


@dataclass(frozen=True, slots=True)
class SlicedParts:
    """A partition whose parts are cut into slices, ready for the paper's kernel.

    Attributes:
        over: entries that all snapshots share.
        exclusive: the remaining entries of each snapshot.
        bound: on the CPU the arrays as the compiled operator takes them, after the first product.
    """

    over: SlicedCsr
    exclusive: list[SlicedCsr]
    bound: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def num_snapshots(self) -> int:
        return len(self.exclusive)


def slice_parts(parts: PartTopology, cap: int = DEFAULT_CAP) -> SlicedParts:
    """Cut all parts into slices of at most `cap` entries; on CUDA this waits for the device.

    The parts are not checked: they come from `PartTopology.build` or from the link.

    Raises:
        InvalidInputError: a cap below 1.
    """
    if cap < 1:
        raise InvalidInputError(f"cap is {cap}, allowed are values from 1")
    cut = [slice_unchecked(part, cap) for part in (parts.over, *parts.exclusive)]
    return SlicedParts(cut[0], cut[1:])


def known_slices(parts: PartTopology | Csr, cap: int = DEFAULT_CAP) -> SlicedParts:
    """The parts, or one snapshot, in slices: as they arrived, or cut once and remembered.

    Args:
        parts: as for `slice_parts`.
        cap: entries of a slice at most, where they were not sliced before.
    """
    if isinstance(parts, Csr):
        known, pieces = prepare(parts).slices, [parts]
    else:
        known, pieces = prepare_parts(parts).slices, [parts.over, *parts.exclusive]
    if 0 in known:
        known[cap] = [(rows, offsets.long()) for rows, offsets in known.pop(0)]
    if cap not in known:
        cut = [slice_unchecked(piece, cap) for piece in pieces]
        known[cap] = [(s.row_indices, s.slice_offsets) for s in cut]
    # The columns are not remembered: they must not keep themselves alive.
    made = [
        SlicedCsr(rows, offsets, p.indices, p.values, cap, p.num_rows, p.num_cols)
        for (rows, offsets), p in zip(known[cap], pieces, strict=True)
    ]
    return SlicedParts(made[0], made[1:] or [_nothing(made[0])])


def _nothing(sliced: SlicedCsr) -> SlicedCsr:
    """A matrix without entries, of the same shape."""
    empty = sliced.row_indices.new_empty(0)
    offsets = sliced.slice_offsets.new_zeros(1)
    return SlicedCsr(empty, offsets, empty, None, sliced.cap, sliced.num_rows, sliced.num_cols)


def spmm_sliced(
    sliced: SlicedCsr,
    x: Tensor,
    *,
    out: Tensor | None = None,
    coalesce: bool = True,
    vector: bool | int = True,
    lanes: bool = False,
) -> Tensor:
    """y = A x by PiPAD's kernel (PPoPP 2023, 4.3): a warp per group of slices, atomic sums.

    On CUDA the order of the additions, and so the last bits, vary from run to run. On the CPU
    vector registers take a slice's columns where a warp's lanes do, and a thread owns rows.

    Args:
        sliced: the matrix, one that `slice_csr` made; values None, one per entry, or float32[nnz,
            S] where each of S blocks of d / S columns has weights of its own. Its columns are
            not checked again. Any cap: a warp stages 32 entries of a slice at a time.
        x: float32[num_cols, d]; rows may lie apart, columns must be adjacent.
        out: float32[num_rows, d] to add to, as x; a new zero matrix where None.
        coalesce: several slices per warp below width 32 (thread-aware slice coalescing).
        vector: floats that a lane loads at once. True takes two or four where the width calls for
            them (`memory_model.vector_width`), False one; 1, 2 or 4 is taken as said, if it
            divides d and the warp holds one slice. Addresses that are not aligned for it get fewer.
        lanes: on the CPU play the warp through lane by lane: exact in its structure, for tests, and
            slow.

    Returns:
        `out`, or the new float32[num_rows, d].

    Raises:
        InvalidInputError: shapes, dtypes, devices or a vector width that do not fit.
        UnsupportedError: a CUDA tensor where the CUDA operators are not built.
    """
    return _sliced(sliced, x, out, coalesce, vector, lanes, transposed=False)


def scatter_sliced(
    sliced: SlicedCsr,
    x: Tensor,
    *,
    out: Tensor | None = None,
    coalesce: bool = True,
    vector: bool | int = True,
    lanes: bool = False,
) -> Tensor:
    """y = A^T x from the slices of A: every entry's column gets the row of x of its slice.

    The paper leaves the backward pass open. This reading needs no second format: the warp holds its
    slice's row of x and adds it atomically to the rows of y that the entries name.

    Arguments, result and errors as `spmm_sliced`, with rows for columns: x is float32[num_rows, d],
    the result float32[num_cols, d].
    """
    return _sliced(sliced, x, out, coalesce, vector, lanes, transposed=True)


def aggregate_parts_sliced(
    parts: PartTopology | SlicedParts,
    x: Tensor,
    *,
    out: Tensor | None = None,
    cap: int = DEFAULT_CAP,
    coalesce: bool = True,
    vector: bool | int = True,
) -> Tensor:
    """All S snapshots of a partition as the paper does it: 1 + S launches over sliced parts.

    Args:
        parts: the factored normalisation scales features before and after. Sliced by
            `slice_parts` or here, once; parts that came sliced are taken as they came.
        x: float32[num_cols, S, F], contiguous.
        out: float32[num_rows, S, F] to add to, contiguous; a new zero cube where None.
        cap: entries of a slice at most, where the parts are not sliced yet.
        coalesce: as for `spmm_sliced`.
        vector: as for `spmm_sliced`, for True and False; the parts have two widths.

    Returns:
        `out`, or the new float32[num_rows, S, F].

    Raises:
        InvalidInputError: shapes that do not fit.
        UnsupportedError: a CUDA tensor where the CUDA operators are not built.
    """
    return _parts(spmm_sliced, parts, x, out, cap, coalesce, vector, transposed=False)


def scatter_parts_sliced(
    parts: PartTopology | SlicedParts,
    x: Tensor,
    *,
    out: Tensor | None = None,
    cap: int = DEFAULT_CAP,
    coalesce: bool = True,
    vector: bool | int = True,
) -> Tensor:
    """The transposed `aggregate_parts_sliced` from the same slices, for its backward pass.

    Arguments and errors as there, with x float32[num_rows, S, F]; gives float32[num_cols, S, F].
    """
    return _parts(scatter_sliced, parts, x, out, cap, coalesce, vector, transposed=True)


def spmm_gespmm(csr: Csr, x: Tensor, csc: Csr | None = None) -> Tensor:
    """y = A x in the manner of GE-SpMM, the aggregation of the paper's PyGT-G baseline; CUDA only.

    One warp per row and column tile, 32 entries staged at a time, two tiles per warp from width 64.
    A row of more than 512 entries is cut into parts of as many, which warps of their own add up
    atomically, so that its sums are not the same bits in every run.
    Differentiable in x where the transpose is given too: GE-SpMM reads CSR forward and CSC
    backward, and both have to be on the device.

    Args:
        csr: the matrix; its columns are not checked here.
        x: float32[num_cols, F], contiguous.
        csc: the transposed matrix (`transpose.transpose`), for the gradient.

    Returns:
        float32[num_rows, F].

    Raises:
        InvalidInputError: shapes, dtypes or devices that do not fit, or a gradient is wanted
            without `csc`.
        UnsupportedError: a CPU tensor, or the CUDA operators are not built.
    """
    check_kernel(csr, "csr", x)
    if not (x.requires_grad and torch.is_grad_enabled()):
        return _gespmm(csr, x, None)
    if csc is None:
        raise InvalidInputError(
            "csc is None, but x requires a gradient",
            hint="pass the transposed matrix, `transpose(csr)`",
        )
    check_layout(csc, "csc")
    if (csc.num_rows, csc.num_cols, csc.nnz) != (csr.num_cols, csr.num_rows, csr.nnz):
        raise InvalidInputError(
            f"csc is {csc.num_rows} x {csc.num_cols} with {csc.nnz} entries, the transpose of csr "
            f"is {csr.num_cols} x {csr.num_rows} with {csr.nnz}"
        )
    return _GeSpmm.apply(x, csr, csc)


def warp_clocks(
    matrix: SlicedCsr | Csr, x: Tensor, *, coalesce: bool = True, vector: bool | int = True
) -> Tensor:
    """When each warp of a kernel began and ended: PiPAD's for slices, GE-SpMM's for rows.

    For the load balance of PiPAD's figure 12; `balance.balance` says what follows from the clocks.
    The kernels are those of `spmm_sliced` and `spmm_gespmm` with two readings of a clock around a
    warp's work. Clocks of different multiprocessors are not comparable. On the CPU there are no
    warps to time; `memory_model.slice_work` and `row_work` count their steps instead.

    Args:
        matrix: slices, a warp per group of slices, or CSR, a warp per row.
        x: float32[num_cols, d].
        coalesce: as for `spmm_sliced`; for CSR not used.
        vector: as for `spmm_sliced`; for CSR not used.

    Returns:
        int64[warps, 3] on the CPU: begin and end in cycles, number of the multiprocessor.

    Raises:
        InvalidInputError: shapes, dtypes or devices that do not fit.
        UnsupportedError: a CPU tensor, or the CUDA operators are not built.
    """
    device = matrix.indices.device
    if device.type != "cuda":
        raise UnsupportedError(
            f"warp_clocks times a CUDA kernel, the matrix lies on {device}",
            hint="memory_model.slice_work and row_work count the steps of each warp",
        )
    native, stream = extension(device), stream_of(device)
    x = x.detach().contiguous()
    if isinstance(matrix, Csr):
        check_kernel(matrix, "matrix", x)
        warps = native.gespmm_warp_count(matrix.num_rows, x.shape[1], matrix.nnz)
        clocks = _clocks(warps, device)
        _gespmm(matrix, x, clocks)
        return clocks[clocks[:, 1] > clocks[:, 0]].cpu()  # some had no part of a long row
    _check(x, "x", matrix.num_cols, device)
    out = torch.zeros(matrix.num_rows, x.shape[1], device=device)
    if x.shape[1] == 0 or matrix.num_slices == 0:
        return torch.empty(0, 3, dtype=torch.int64)
    arguments = _arguments(matrix, x, out, coalesce, vector)
    clocks = _clocks(native.sliced_warp_count(*arguments), device)
    native.aggregate_sliced(*arguments, clocks, *stream)
    return clocks.cpu()


def _clocks(warps: int, device: torch.device) -> Tensor:
    return torch.zeros(warps, 3, dtype=torch.int64, device=device)


def _sliced(
    sliced: SlicedCsr,
    x: Tensor,
    out: Tensor | None,
    coalesce: bool,
    vector: bool | int,
    lanes: bool,
    *,
    transposed: bool,
) -> Tensor:
    rows, columns = sliced.num_rows, sliced.num_cols
    if transposed:
        rows, columns = columns, rows
    device = sliced.indices.device
    _check(x, "x", columns, device)
    d = x.shape[1]
    if sliced.values is not None and sliced.values.dim() != 1 and d % sliced.values.shape[1]:
        raise InvalidInputError(
            f"sliced.values has {sliced.values.shape[1]} weights of an entry for {d} columns of x, "
            "expected one, or one for each block of as many columns"
        )
    if out is None:
        out = torch.zeros(rows, d, device=x.device)
    _check(out, "out", rows, x.device)
    if out.shape[1] != d:
        raise InvalidInputError(f"out has {out.shape[1]} columns, x has {d}")
    if d == 0 or sliced.num_slices == 0:
        return out
    arguments = _arguments(sliced, x.detach(), out.detach(), coalesce, vector)
    name = "scatter_sliced" if transposed else "aggregate_sliced"
    clocks = (None,) if device.type == "cuda" and not transposed else ()
    call(f"play_{name}" if lanes else name, device, *arguments, *clocks)
    return out


def _arguments(
    sliced: SlicedCsr, x: Tensor, out: Tensor, coalesce: bool, vector: bool | int
) -> tuple[Any, ...]:
    """Arguments common to the compiled calls over slices."""
    d = x.shape[1]
    groups = thread_groups(d, coalesce)
    values = None if sliced.values is None else sliced.values.detach().reshape(-1)
    lists = sliced.row_indices, sliced.slice_offsets, sliced.indices, values
    return *lists, x, out, groups, _floats_per_lane(vector, d, groups)


def _floats_per_lane(vector: bool | int, d: int, groups: int) -> int:
    if isinstance(vector, bool):
        return vector_width(d) if vector and groups == 1 else 1
    if vector not in VECTOR_WIDTHS:
        raise InvalidInputError(f"vector is {vector}, allowed are True, False, 1, 2 and 4")
    if d % vector or (vector > 1 and groups > 1):
        raise InvalidInputError(
            f"vector is {vector} for a width of {d} and {groups} slices per warp; it must divide "
            "the width, and a warp with several slices loads one float per lane",
            hint="pass coalesce=False, or vector=True for a width that fits",
        )
    return vector


def _parts(
    product: Callable[..., Tensor],
    parts: PartTopology | SlicedParts,
    x: Tensor,
    out: Tensor | None,
    cap: int,
    coalesce: bool,
    vector: bool | int,
    *,
    transposed: bool,
) -> Tensor:
    rows, columns = parts.over.num_rows, parts.over.num_cols
    if transposed:
        rows, columns = columns, rows
    if x.dim() != 3 or x.shape[1] != parts.num_snapshots or not x.is_contiguous():
        raise InvalidInputError(
            f"x has shape {list(x.shape)}, expected contiguous "
            f"[{columns}, {parts.num_snapshots}, F]"
        )
    if isinstance(parts, PartTopology):
        parts = known_slices(parts, cap)
    width = x.shape[2]
    wide = x.reshape(x.shape[0], parts.num_snapshots * width)  # [N, S F]
    if out is None:
        out = torch.zeros(rows, parts.num_snapshots, width, device=x.device)
    elif list(out.shape) != [rows, *x.shape[1:]] or not out.is_contiguous():
        raise InvalidInputError(
            f"out has shape {list(out.shape)}, expected contiguous {[rows, *x.shape[1:]]}"
        )
    y = out.view(rows, wide.shape[1])
    if not launches(x.device):
        _check(wide, "x", columns, parts.over.indices.device)
        native = _bound(parts)
        multiply = native.scatter if transposed else native.aggregate
        multiply(capsule(wide.detach()), capsule(y.detach()), torch.get_num_threads())
        return out
    options = {"coalesce": coalesce, "vector": vector}
    product(parts.over, wide, out=y, **options)
    for i, part in enumerate(parts.exclusive):
        block = slice(i * width, (i + 1) * width)
        product(part, wide[:, block], out=y[:, block], **options)
    return out


def launches(device: torch.device) -> bool:
    """Return True where each part is a launch of its own; a CPU does all of them in one call."""
    return device.type != "cpu"


def _bound(parts: SlicedParts) -> Any:
    """The parts as the CPU's operator takes them; bound at the first call."""
    if not parts.bound:
        over = parts.over
        native = extension(over.indices.device).SlicedGroup(
            over.num_rows, over.num_cols, parts.num_snapshots
        )
        for piece in (over, *parts.exclusive):
            values = None if piece.values is None else piece.values.detach().reshape(-1)
            native.add(piece.row_indices, piece.slice_offsets, piece.indices, values)
        parts.bound.append(native)
    return parts.bound[0]


class _GeSpmm(torch.autograd.Function):
    """y = A x; the gradient is the same kernel over the transposed matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, csr: Csr, csc: Csr) -> Tensor:
        ctx.csc = csc
        return _gespmm(csr, x, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _gespmm(ctx.csc, grad, None), None, None


def _gespmm(csr: Csr, x: Tensor, clocks: Tensor | None) -> Tensor:
    x = x.detach().contiguous()  # inside autograd's forward it still wants a gradient
    y = torch.empty(csr.num_rows, x.shape[1], device=x.device)
    extension(x.device).spmm_gespmm(
        csr.indptr, csr.indices, csr.values, x, y, clocks, *stream_of(x.device)
    )
    return y


def check_kernel(csr: Csr, name: str, x: Tensor, kernel: str = "spmm_gespmm") -> None:
    """Raise UnsupportedError or InvalidInputError for what a kernel over whole rows cannot take."""
    check_layout(csr, name)
    _check(x, "x", csr.num_cols, csr.indptr.device)
    if x.device.type != "cuda":
        raise UnsupportedError(
            f"{kernel} is a CUDA kernel, x lies on {x.device}",
            hint="use dgbench.kernels_cuda.aggregate.spmm on the CPU",
        )
    if csr.values is not None and csr.values.dim() != 1:
        raise InvalidInputError(f"{name}.values must hold one value per entry")


def _check(x: Tensor, name: str, rows: int, device: torch.device) -> None:
    if x.dtype != torch.float32 or x.dim() != 2:
        raise InvalidInputError(
            f"{name} is {x.dtype} with {x.dim()} dimensions, expected torch.float32 with 2"
        )
    if x.shape[0] != rows:
        raise InvalidInputError(f"{name} has {x.shape[0]} rows, expected {rows}")
    if x.device != device:
        raise InvalidInputError(f"{name} lies on {x.device}, expected {device}")
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise InvalidInputError(
            f"{name} has stride {x.stride(1)} between columns, expected 1",
            hint="pass `.contiguous()`",
        )
