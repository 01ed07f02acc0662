"""Memory of every chunk in every epoch (section 5.1.1: measured in the first, then relied on)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from dgbench.models.sequence import SequenceModel
    from dgbench.systems.dgc.plan import StructurePlan

RATE = 1e-2
"""Of the steps between the epochs, so that their numbers differ."""


def kept_by_chunks(
    model: SequenceModel, plan: StructurePlan, device: str, epochs: int, *, seed: int = 1
) -> Tensor:
    """Bytes that every group of a worker holds for its backward pass, int64[epochs, groups].

    The structure encoder runs group by group over made-up features, all rounds, and parameters are
    changed after every epoch. On a CUDA device it is what the allocator has given out after a
    group's rounds beyond before; elsewhere the tensors that autograd keeps, each memory once,
    parameters left out.
    """
    from dgbench.systems.dgc.neighbours import MatrixNeighbours

    target = torch.device(device)
    draw = torch.Generator().manual_seed(seed)
    rows = plan.rows.numel() + plan.halo.numel()
    features = torch.rand(rows, model.feature_dim, generator=draw).to(target)
    parts = []
    for group in plan.groups:
        csr = type(group.csr)(
            group.csr.indptr.to(target),
            group.csr.indices.to(target),
            group.csr.num_cols,
            None if group.csr.values is None else group.csr.values.to(target),
        )
        parts.append((group.columns.to(target), MatrixNeighbours(csr, group.loop.to(target))))
    parameters = [p for p in model.parameters() if p.requires_grad]
    out = torch.zeros(epochs, len(parts), dtype=torch.int64)
    for epoch in range(epochs):
        made = []
        for i, (columns, neighbours) in enumerate(parts):
            with _SavedBytes(target, parameters) as kept:
                x = features.index_select(0, columns)
                for k in range(len(model.round_dims)):
                    shown = model.show(k, x)
                    x = model.receive(k, neighbours, shown)
                    if k + 1 < len(model.round_dims):  # what others made stands in for itself
                        others = x.new_ones(columns.numel() - x.shape[0], x.shape[1])
                        x = torch.cat([x, others])
            out[epoch, i] = kept.bytes
            made.append(x.square().sum())
        torch.stack(made).sum().backward()
        with torch.no_grad():
            for p in parameters:
                if p.grad is not None:
                    p -= RATE * p.grad.sign()
                    p.grad = None
    return out


class _SavedBytes:
    """Bytes that a block leaves behind for the backward pass."""

    def __init__(self, device: torch.device, parameters: list[Tensor]) -> None:
        self.bytes = 0
        self._device = device
        self._seen = {p.untyped_storage().data_ptr() for p in parameters}
        self._hooks = saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def __enter__(self) -> _SavedBytes:
        if self._device.type == "cuda":
            self._before = torch.cuda.memory_allocated(self._device)
        else:
            self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._device.type == "cuda":
            self.bytes = torch.cuda.memory_allocated(self._device) - self._before
        else:
            self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor
