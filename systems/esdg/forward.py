"""A block's forward pass, stacked over its snapshots, with fused recurrences.

The same as `TimelineModel.forward_block`, in an order that records less: torch's LSTM keeps gates
and cells of every step for its backward pass, ten times what the activations take; the compiled
scan keeps its input and runs the recurrence again. Layers with a temporal half are made for all
snapshots at once, so that the record of the activation is also the scan's input.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import lstm_scan
from dgbench.models import CdGcn, TimelineModel, TimelineState
from dgbench.models.aggregation import Aggregator
from dgbench.models.timeline import Carry


def fused_temporal(
    model: TimelineModel, layer: int, x: Tensor, carry: Carry
) -> tuple[Tensor, Carry]:
    """`model.temporal`, by a compiled scan where the model's recurrence is an LSTM."""
    if not isinstance(model, CdGcn):
        return model.temporal(layer, x, carry)
    h, c = carry or (None, None)
    out, h_last, c_last = lstm_scan(x, *model.scan_weights(layer), h, c)
    return out, (h_last, c_last)


def forward_block(
    model: TimelineModel, aggregator: Aggregator, times: range, state: TimelineState | None = None
) -> tuple[list[Tensor], TimelineState]:
    """Outputs [N, output_dim] of the snapshots `times`, and the state after them.

    Arguments as `TimelineModel.forward_block`.
    """
    state = state or TimelineState()
    links, chain = model.chain(len(times), state.chain)
    carries: list[Carry] = []
    hidden: list[Tensor] = []
    for layer in range(model.num_layers):
        aggregated = [
            aggregator.first(t) if layer == 0 else aggregator.apply(t, hidden[i])
            for i, t in enumerate(times)
        ]
        carry: Carry = ()
        if model.has_temporal(layer):
            # No link here: models whose weights differ from step to step have no temporal half.
            series = torch.stack(aggregated)
            del aggregated
            hidden.clear()
            before = state.layers[layer] if state.layers else ()
            out, carry = fused_temporal(model, layer, model.spatial(layer, series), before)
            del series
            hidden = list(out.unbind(0))
            del out
        else:
            hidden = [
                model.spatial(layer, a, link) for a, link in zip(aggregated, links, strict=True)
            ]
            del aggregated
        carries.append(carry)
    return hidden, TimelineState(chain, tuple(carries))
