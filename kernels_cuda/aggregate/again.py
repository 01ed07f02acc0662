"""Products of `spmm` that are made again: what was checked and chosen before is taken as it was.

A product drives the interpreter's code for it out of the caches, and each further function costs
some microseconds when it comes back. So all that a repeated call asks stands in one closure, kept
as long as the matrix's `indices` live, and a compiled product holds the lists.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, empty_like
from torch.compiler import is_compiling
from torch.utils.dlpack import to_dlpack

from dgbench.kernels_cuda._dispatch import capsule
from dgbench.kernels_cuda.aggregate import choice
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.workspace import SMALLEST, scratch

Repeat = Callable[[Csr, Tensor, Tensor | None, Tensor | None], Tensor | None]
"""The product of a matrix with features and scales; None where anything but these is new."""
Key = tuple[int, torch.Size, bool]
"""Identity of `indices`, shape of x, and whether vertices are added to their own sums."""

repeats: Final[dict[Key, Repeat]] = {}
_owners: Final[dict[Key, weakref.ref[Tensor]]] = {}
atexit.register(repeats.clear)  # or the extension would call what matrices still hold a leak

# Not public in torch: a version without it always goes torch's way.
modes: Final = getattr(torch._C, "_len_torch_dispatch_stack", None)


def plain(x: Tensor) -> bool:
    """Return True if nobody watches or traces operators, so that torch need not hear of this."""
    return type(x) is Tensor and modes is not None and modes() == 0 and not is_compiling()


def remember(
    csr: Csr,
    lists: tuple[Any, ...],
    shape: tuple[torch.Size, torch.Size],
    self_loop: bool,
    how: Mapping[str, Any],
) -> None:
    """Let `repeats` hold a product in float32 that has just been made on the CPU.

    Args:
        csr: the matrix.
        lists: indptr, indices, values and order as the compiled product took them, of no later
            change.
        shape: of x and of y.
        self_loop: as there.
        how: arguments of the compiled product by name.
    """
    indptr, indices, values, num_cols = csr.indptr, csr.indices, csr.values, csr.num_cols
    arrays = [one for one in (indptr, indices, values) if one is not None]
    if any(one.is_inference() for one in arrays):
        return  # has no version to tell writes by
    versions = [one._version for one in arrays]
    # Not the tensors themselves: of `indices` that would be for ever.
    taken = [one.detach() if isinstance(one, Tensor) else one for one in lists]
    compiled = extension(indptr.device).KeptProduct
    multiply = compiled(*map(capsule, taken), num_cols, self_loop, **how).multiply
    (shape_x, shape_y), turn, threads = shape, choice.forgotten, torch.get_num_threads()
    kept, square = 4 * shape_y.numel() >= SMALLEST, shape_x == shape_y
    rows, width = shape_y
    key = id(indices), shape_x, self_loop

    def forget(dead: weakref.ref[Tensor]) -> None:
        if _owners.get(key) is dead:  # not of another tensor of the same identity
            del _owners[key]
            repeats.pop(key, None)

    of = weakref.ref(indices, forget)
    del indices, arrays  # nothing that `again` holds

    def again(
        csr: Csr, x: Tensor, row_scale: Tensor | None, col_scale: Tensor | None
    ) -> Tensor | None:
        if (
            of() is not csr.indices
            or csr.indptr is not indptr
            or csr.values is not values
            or csr.num_cols != num_cols
            or versions[0] != indptr._version
            or versions[1] != csr.indices._version
            or (values is not None and versions[2] != values._version)
            or x.requires_grad
            or (row_scale is not None and row_scale.requires_grad)
            or (col_scale is not None and col_scale.requires_grad)
            or torch.get_num_threads() != threads
            or choice.forgotten != turn
            or modes() != 0
            or is_compiling()
        ):
            return None
        if kept:
            y = scratch.empty(shape_y, x)
        else:  # three times as fast as `new_empty` with a shape
            y = empty_like(x) if square else x.new_empty(rows, width)
        try:  # every question that a tensor is asked takes as long as a small product
            multiply(
                to_dlpack(x),
                to_dlpack(y),
                None if row_scale is None else to_dlpack(row_scale),
                None if col_scale is None else to_dlpack(col_scale),
                threads,
            )
        except (TypeError, ValueError, RuntimeError):  # strided, another type or shape
            return None
        return y

    repeats[key], _owners[key] = again, of
