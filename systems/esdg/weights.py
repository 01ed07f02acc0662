"""The dense half of a layer for a run of snapshots, and the chain of weights that it may need.

Where weights evolve (EvolveGCN), a step's weight is hidden state and input of an LSTM at once, so
that both products of its cell are one: W_t = LSTM(W_{t-1}) is a scan without input whose recurrent
matrix is the sum of the two. Every rank computes the whole chain (ESDG, section 5.5), whatever its
share is, which makes it worth a compiled scan.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgbench.kernels_cuda.scan import lstm_scan
from dgbench.models import TimelineModel
from dgbench.models.dtdg.evolvegcn import EvolvingWeight
from dgbench.models.dtdg.evolvegcn_o import EvolveGcnTimeline
from dgbench.models.timeline import Carry

Links = tuple[Tensor, ...] | None
"""For each layer the weights of a run of steps, [steps, inputs, outputs]; None for fixed ones."""


def chain_run(
    model: TimelineModel, steps: int, carry: Carry, *, fused: bool = True
) -> tuple[Links, Carry]:
    """`TimelineModel.chain` with the links of all steps stacked.

    Args:
        model, steps, carry: as of `chain`.
        fused: by a compiled scan where the model has one to offer.
    """
    if fused and isinstance(model, EvolveGcnTimeline):
        first, carry_1 = _scan(model.layer_1, steps, carry[:2])
        second, carry_2 = _scan(model.layer_2, steps, carry[2:])
        return (first, second), (*carry_1, *carry_2)
    links, after = model.chain(steps, carry)
    if not links or links[0] is None:
        return None, after
    return tuple(torch.stack(weights) for weights in zip(*links, strict=True)), after


def spatial_run(
    model: TimelineModel, layer: int, aggregated: Tensor, links: Links, first: int = 0
) -> Tensor:
    """`TimelineModel.spatial` for consecutive snapshots at once.

    Args:
        model, layer: which half.
        aggregated: [steps, rows, input width], any number of steps and rows.
        links: of `chain_run`.
        first: position of the first of these steps in `links`.

    Returns:
        [steps, rows, spatial width].
    """
    if links is None:
        return model.spatial(layer, aggregated)
    run = tuple(weights[first : first + aggregated.shape[0]] for weights in links)
    return model.spatial(layer, aggregated, run)


def _scan(weight: EvolvingWeight, steps: int, carry: Carry) -> tuple[Tensor, Carry]:
    """Weights of `steps` steps transposed, [steps, out, in], and the next carry."""
    cell = weight.cell
    if not isinstance(cell, nn.LSTMCell):
        raise TypeError(f"a cell of type {type(cell).__name__} has no scan")
    start, memory = carry or (weight.initial, torch.zeros_like(weight.initial))
    width = start.shape[1]
    nothing = start.new_zeros(steps, start.shape[0], 1)
    found, last, memory = lstm_scan(
        nothing,
        start.new_zeros(1, 4 * width),
        (cell.weight_ih + cell.weight_hh).t(),
        cell.bias_ih + cell.bias_hh,
        start,
        memory,
    )
    return found.transpose(1, 2), (last, memory)
