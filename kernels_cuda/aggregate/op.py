"""Neighbour aggregation: sparse-dense products over one snapshot or over a whole partition.

Scaling by degree is factored out of the matrix, A-hat = R (A + I) C, so that an unweighted topology
carries no per-edge values and one copy of it serves all snapshots that share it (PiPAD, PPoPP 2023,
sections 3 and 4.2). A row is summed by one owner: results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_features, check_scale
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.aggregate.again import plain, remember, repeats
from dgbench.kernels_cuda.aggregate.choice import ProductVariant, choose, model
from dgbench.kernels_cuda.aggregate.prepared import (
    Arrays,
    Prepared,
    cuts_rows,
    prepare,
    prepare_parts,
    prepare_union,
)
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import InvalidInputError

_NO_ARRAYS: Final[Arrays] = (None,) * 7


def spmm(
    csr: Csr,
    x: Tensor,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    self_loop: bool = False,
    *,
    symmetric: bool = False,
) -> Tensor:
    """y = R (A [+ I]) C x: every row the sum over its in-neighbours.

    Differentiable in x; the backward pass multiplies by the transposed matrix, which is made at the
    first call that needs it and kept as long as `csr.indices` lives. So are the checks of the
    matrix: its arrays must not be changed behind torch's back. NaN and infinity spread as in IEEE
    arithmetic and are not looked for.

    Args:
        csr: matrix A, N x C; `values` float32[nnz] or None for ones.
        x: float32[C, F], F from 1 up. A strided x is copied first. float64 is taken too, slowly,
            for gradient checks.
        row_scale: float32[N], the diagonal of R, or None for ones.
        col_scale: float32[C], the diagonal of C, or None for ones.
        self_loop: add every vertex to its own sum, with weight 1 before scaling.
        symmetric: promise that A equals its transpose, so that backward uses the same arrays.

    Returns:
        float32[N, F] (the dtype of x).

    Raises:
        InvalidInputError: a shape, dtype, device or id that does not fit, named with the argument.
        UnsupportedError: CUDA tensors where the CUDA operators are not built.
    """
    if type(x) is Tensor and not symmetric:
        again = repeats.get((id(csr.indices), x.shape, self_loop))
        if again is not None and (y := again(csr, x, row_scale, col_scale)) is not None:
            return y
    prepared = prepare(csr)
    check_features(x, "x", 2, csr.num_cols, csr.indptr.device)
    _check_square(csr, "csr", self_loop, symmetric)
    rows = check_scale(row_scale, "row_scale", (csr.num_rows,), x)
    cols = check_scale(col_scale, "col_scale", (csr.num_cols,), x)
    if x.is_cpu and not (x.requires_grad and torch.is_grad_enabled()) and plain(x):
        # Views and a second choice of variant are half of the time of a small product.
        variant = choose(1, x.shape[1])
        lists = prepared.single(csr, x.dtype, variant.ordered)
        y = scratch.empty((csr.num_rows, x.shape[1]), x)
        x = (x.detach() if x.requires_grad else x).contiguous()
        call("spmm", x.device, *lists, x, y, rows, cols, self_loop, **_how(variant))
        if x.dtype == torch.float32 and prepared.settled(variant.ordered):
            remember(csr, lists, (x.shape, y.shape), self_loop, _how(variant))
        return y
    y = _apply(
        prepared,
        csr,
        x.unsqueeze(1),
        None if rows is None else rows.unsqueeze(1),
        None if cols is None else cols.unsqueeze(1),
        self_loop,
        symmetric,
    )
    return y.squeeze(1)


def aggregate_parts(
    parts: Any,
    x: Tensor,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    self_loop: bool = False,
    *,
    symmetric: bool = False,
) -> Tensor:
    """`spmm` for all S snapshots of a partition in one pass (PiPAD, 4.3).

    Features are coalescent: row v of x holds vertex v's features in all snapshots side by side, so
    one load of a shared neighbour serves all of them. The paper multiplies the overlap in one
    kernel and each exclusive part in another that adds atomically; here the owner of a row does
    all of its parts, so the output is written once, without zeroing and without atomics.

    Differentiable in x through the transposed parts, made once and kept like those of `spmm`.

    Args:
        parts: fields `over` (entries that all snapshots share; values None or float32[nnz, S]) and
            `exclusive` (S matrices, values None or float32[nnz_i]), such as `PartTopology`.
        x: float32[C, S, F]. A strided x is copied first; float64 as in `spmm`.
        row_scale: float32[N, S] or None.
        col_scale: float32[C, S] or None.
        self_loop: add every vertex to its own sums.
        symmetric: promise that every part equals its transpose.

    Returns:
        float32[N, S, F] (the dtype of x).

    Raises:
        InvalidInputError, UnsupportedError: as `spmm`.
    """
    prepared = prepare_parts(parts)
    row_scale, col_scale = _check_cube(
        parts.over, len(parts.exclusive), "parts", x, row_scale, col_scale
    )
    _check_square(parts.over, "parts.over", self_loop, symmetric)
    return _apply(prepared, parts.over, x, row_scale, col_scale, self_loop, symmetric)


def aggregate_union(
    union: Any,
    x: Tensor,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    self_loop: bool = False,
    *,
    symmetric: bool = False,
) -> Tensor:
    """`aggregate_parts` over the union of S snapshots, each entry of which is read once.

    Not in the paper, which takes snapshots apart. On a device an entry carries a bit for each
    snapshot that holds it, and a lane fetches a neighbour's columns only where one of its own
    snapshots does; on the CPU weights of 0 and 1 say the same. Differentiable in x through the
    transposed union, made once and kept like that of `spmm`.

    Args:
        union: fields `csr` (entries that any snapshot holds; values None or float32[nnz, S]),
            `mask` (int32[nnz], bit i for snapshot i) and `num_snapshots`, such as `UnionTopology`.
        x, row_scale, col_scale, self_loop, symmetric: as for `aggregate_parts`.

    Returns:
        float32[N, S, F] (the dtype of x).

    Raises:
        InvalidInputError, UnsupportedError: as `spmm`.
    """
    prepared, over = prepare_union(union)
    row_scale, col_scale = _check_cube(over, union.num_snapshots, "union", x, row_scale, col_scale)
    _check_square(over, "union.csr", self_loop, symmetric)
    return _apply(prepared, over, x, row_scale, col_scale, self_loop, symmetric)


def aggregate_parts_scatter(
    parts: Any,
    x: Tensor,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    self_loop: bool = False,
) -> Tensor:
    """`aggregate_parts` whose backward scatters from the untransposed parts.

    PiPAD does not describe its backward pass. This reading keeps one copy of the topology and adds
    each row's gradient to its neighbours; `aggregate_parts` keeps a transposed copy and gathers.
    Same values up to rounding; on the CPU threads own ranges of vertices, so the result is the same
    for any number of them. Columns must ascend inside every row.

    Arguments, result and errors as `aggregate_parts`; disordered columns raise InvalidInputError.
    """
    prepared = prepare_parts(parts, ascending=x.requires_grad)
    row_scale, col_scale = _check_cube(
        parts.over, len(parts.exclusive), "parts", x, row_scale, col_scale
    )
    _check_square(parts.over, "parts.over", self_loop, False)
    arrays = prepared.forward(parts.over, x.dtype, False)
    return torch.ops.dgbench.aggregate(
        *arrays, *_NO_ARRAYS, x.contiguous(), row_scale, col_scale, self_loop, True
    )


def degrees(csr: Csr) -> Tensor:
    """Row sums: of the values, or of ones.

    Returns:
        float32[N] on the device of `csr`. Sums are formed in double precision.

    Raises:
        InvalidInputError: a matrix that breaks the layout.
    """
    prepare(csr)
    device = csr.indptr.device
    out = torch.empty(csr.num_rows, dtype=torch.float32)
    values = None if csr.values is None else csr.values.detach().cpu()
    call("row_sums", out.device, csr.indptr.cpu(), values, out)
    return out.to(device)


def variant_of(x: Tensor) -> ProductVariant:
    """Variant of a product with x [C, S, F]."""
    return (choose if x.is_cpu else model)(x.shape[1], x.shape[2])


def _apply(
    prepared: Prepared,
    over: Csr,
    x: Tensor,
    row_scale: Tensor | None,
    col_scale: Tensor | None,
    self_loop: bool,
    symmetric: bool,
) -> Tensor:
    ordered = variant_of(x).ordered
    arrays = prepared.forward(over, x.dtype, ordered)
    back: Arrays = _NO_ARRAYS
    if x.requires_grad and torch.is_grad_enabled():
        back = arrays if symmetric else prepared.transposed(over, x.dtype, ordered)
    elif plain(x):  # torch's way to an operator takes 10 us, a third of a call on a small graph
        return _aggregate(
            *arrays, *_NO_ARRAYS, x.contiguous(), row_scale, col_scale, self_loop, False
        )
    return torch.ops.dgbench.aggregate(
        *arrays, *back, x.contiguous(), row_scale, col_scale, self_loop, False
    )


def _check_square(csr: Csr, name: str, self_loop: bool, symmetric: bool) -> None:
    if (self_loop or symmetric) and csr.num_rows != csr.num_cols:
        which = "self_loop" if self_loop else "symmetric"
        raise InvalidInputError(
            f"{name} is {csr.num_rows} x {csr.num_cols}, {which} needs a square matrix"
        )


def _check_cube(
    over: Csr,
    snapshots: int,
    argument: str,
    x: Tensor,
    row_scale: Tensor | None,
    col_scale: Tensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    check_features(x, "x", 3, over.num_cols, over.indptr.device)
    if x.shape[1] != snapshots:
        raise InvalidInputError(
            f"x holds {x.shape[1]} snapshots (its second size), {argument} holds {snapshots}"
        )
    return (
        check_scale(row_scale, "row_scale", (over.num_rows, snapshots), x),
        check_scale(col_scale, "col_scale", (over.num_cols, snapshots), x),
    )


# --- what torch sees ------------------------------------------------------------------------------
# The low-level registration costs half of what torch.library.custom_op does per call. The
# transposed lists are arguments because a backward pass only has what its forward pass was given.

_LISTS = "Tensor {0}indptr, Tensor {0}indices, Tensor? {0}values, Tensor? {0}ex_indptr, "
_LISTS += "Tensor? {0}ex_entries, Tensor? {0}ex_values, Tensor? {0}order"
_BACK = _LISTS.format("t_").replace("Tensor t_", "Tensor? t_")
_SCALES = "Tensor x, Tensor? row_scale, Tensor? col_scale, bool self_loop"

_library = torch.library.Library("dgbench", "FRAGMENT")
_library.define(f"aggregate({_LISTS.format('')}, {_BACK}, {_SCALES}, bool scatter) -> Tensor")
_library.define(f"aggregate_scatter({_LISTS.format('')}, {_SCALES}, SymInt columns) -> Tensor")


def _aggregate(*arguments: Any) -> Tensor:
    lists, (x, row_scale, col_scale, self_loop, _) = arguments[:7], arguments[14:]
    # On fresh pages a product of wide rows takes half as long again.
    y = scratch.empty((lists[0].numel() - 1, x.shape[1], x.shape[2]), x)
    x = x.detach() if x.requires_grad else x
    multiply(lists, x, y, row_scale, col_scale, self_loop)
    return y


def multiply(
    lists: Arrays,
    x: Tensor,
    y: Tensor,
    row_scale: Tensor | None,
    col_scale: Tensor | None,
    self_loop: bool,
) -> None:
    """Write y [N, S, F] = R (A + I) C x [C, S, F] over the lists of a prepared topology.

    One compiled call, past autograd and without checks of what is given: for `spmm` and its like,
    and for nodes of a graph that multiply several times. Scales are [N, S] and [C, S].
    """
    named = segments(lists, x) if cuts_rows(x.device) else _how(variant_of(x))
    if x.shape[1] == 1 and lists[3] is None:
        indptr, indices, values, *_, order = lists
        if values is not None and values.dim() > 1:
            values = values.view(-1)
        scales = [None if s is None else s.view(-1) for s in (row_scale, col_scale)]
        call(
            "spmm", x.device, indptr, indices, values, order, x.squeeze(1), y.squeeze(1), *scales,
            self_loop, **named,
        )  # fmt: skip
        return
    if lists[2] is not None and lists[2].dtype == torch.int32:
        named["bits"] = lists[2]
        lists = (*lists[:2], None, *lists[3:])
    call("aggregate_parts", x.device, *lists, x, y, row_scale, col_scale, self_loop, **named)


def _how(variant: ProductVariant) -> dict[str, Any]:
    """Arguments of a compiled product on the CPU that say its variant; {} for the model's."""
    if variant.registers or variant.ahead >= 0:
        return {"registers": variant.registers, "ahead": variant.ahead}
    return {}


def segments(lists: Arrays, x: Tensor) -> dict[str, Tensor]:
    """Room for the partial sums of rows that a device cuts; {} where it cuts none."""
    if lists[6] is None:
        return {}
    entries = lists[1].numel() + (0 if lists[4] is None else lists[4].numel())
    slots = extension(x.device).heavy_slots(lists[0].numel() - 1, entries)
    return {"partials": x.new_empty(slots, x.shape[1] * x.shape[2])}


def _aggregate_scatter(*arguments: Any) -> Tensor:
    lists, (x, row_scale, col_scale, self_loop, columns) = arguments[:7], arguments[7:]
    y = x.new_empty(columns, x.shape[1], x.shape[2])
    x = x.detach()
    call("aggregate_parts_scatter", x.device, *lists, x, y, row_scale, col_scale, self_loop)
    return y


def _fake_aggregate(*arguments: Any) -> Tensor:
    x = arguments[14]
    return x.new_empty(arguments[0].shape[0] - 1, x.shape[1], x.shape[2])


def _fake_scatter(*arguments: Any) -> Tensor:
    x = arguments[7]
    return x.new_empty(arguments[11], x.shape[1], x.shape[2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, row_scale, col_scale, ctx.self_loop, ctx.scatter = inputs[14:]
    ctx.columns = x.shape[0]
    ctx.save_for_backward(*inputs[:14], row_scale, col_scale)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *saved, row_scale, col_scale = ctx.saved_tensors
    forward, back = saved[:7], saved[7:]
    grad = grad.contiguous()
    if ctx.scatter:
        dx = torch.ops.dgbench.aggregate_scatter(
            *forward, grad, row_scale, col_scale, ctx.self_loop, ctx.columns
        )
    else:
        dx = torch.ops.dgbench.aggregate(
            *back, *forward, grad, col_scale, row_scale, ctx.self_loop, False
        )
    return (*(None,) * 14, dx, None, None, None, None)


_library.impl("aggregate", _aggregate, "CompositeExplicitAutograd")
_library.impl("aggregate_scatter", _aggregate_scatter, "CompositeExplicitAutograd")
torch.library.register_fake("dgbench::aggregate", _fake_aggregate, lib=_library)
torch.library.register_fake("dgbench::aggregate_scatter", _fake_scatter, lib=_library)
torch.library.register_autograd("dgbench::aggregate", _gradient, setup_context=_keep, lib=_library)
