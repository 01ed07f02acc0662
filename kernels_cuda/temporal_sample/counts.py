"""Counting what sampling costs, the same on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import check_ids, check_vector
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError

if TYPE_CHECKING:
    from dgbench.kernels_cuda.temporal_store import TemporalStore


def count_walk(
    store: TemporalStore, nodes: Tensor, begins: Tensor, ends: Tensor
) -> tuple[Tensor, Tensor]:
    """Cost of the paper's walk along the list of blocks (Algorithm 1) for whole windows.

    Args:
        store: packed.
        nodes: int64[R]. begins, ends: float64[R]; records with begin <= time < end are wanted.

    Returns:
        int64[R] blocks looked at, and int64[R] times of records compared inside of them.

    Raises:
        InvalidInputError: another dtype or length, a vertex that is not there, another layout.
    """
    check_vector(nodes, "nodes", torch.int64)
    check_vector(begins, "begins", torch.float64, nodes.numel())
    check_vector(ends, "ends", torch.float64, nodes.numel())
    check_ids(nodes, "nodes", store.num_vertices)
    if store.layout != "packed":
        raise InvalidInputError(f"store has the layout {store.layout!r}, allowed is 'packed'")
    blocks, compared = torch.empty_like(nodes), torch.empty_like(nodes)
    extension(nodes.device).count_walk(store.handle, nodes, begins, ends, blocks, compared)
    return blocks, compared
