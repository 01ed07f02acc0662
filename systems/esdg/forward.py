"""A block's forward pass, stacked over its snapshots, with fused recurrences.

The same as `TimelineModel.forward_block`, in an order that records less: torch's LSTM keeps gates
and cells of every step for its backward pass, ten times what the activations take; the compiled
scan keeps its input and runs the recurrence again. Layers with a temporal half are made for all
snapshots at once, so that the record of the activation is also the scan's input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import lstm_scan
from dgbench.models import CdGcn, TimelineModel, TimelineState, TmGcn
from dgbench.models.aggregation import Aggregator
from dgbench.models.timeline import Carry
from dgbench.systems.esdg.plan import piece_length

Temporal = Callable[[TimelineModel, int, Tensor, Carry], tuple[Tensor, Carry]]
Score = Callable[[int, Tensor], Tensor]
"""Summed loss of a snapshot's output [N, output_dim]."""


def fused_temporal(
    model: TimelineModel, layer: int, x: Tensor, carry: Carry
) -> tuple[Tensor, Carry]:
    """`model.temporal`, by a compiled scan where the model's recurrence is an LSTM."""
    if not isinstance(model, CdGcn):
        return plain_temporal(model, layer, x, carry)
    h, c = carry or (None, None)
    out, h_last, c_last = lstm_scan(x, *model.scan_weights(layer), h, c, recompute=True)
    return out, (h_last, c_last)


def plain_temporal(
    model: TimelineModel, layer: int, x: Tensor, carry: Carry
) -> tuple[Tensor, Carry]:
    """`model.temporal`, what it hands on cut free from the series it is the end of."""
    out, after = model.temporal(layer, x, carry)
    return out, tuple(c if c.untyped_storage().nbytes() == c.nbytes else c.clone() for c in after)


def forward_block(
    model: TimelineModel,
    aggregator: Aggregator,
    times: range,
    state: TimelineState | None = None,
    *,
    temporal: Temporal = fused_temporal,
) -> tuple[list[Tensor], TimelineState]:
    """Outputs [N, output_dim] of the snapshots `times`, and the state after them.

    Arguments as `TimelineModel.forward_block`.
    """
    state = state or TimelineState()
    links, chain = model.chain(len(times), state.chain)
    carries: list[Carry] = []
    hidden: list[Tensor] = []
    for layer in range(model.num_layers):
        before = state.layers[layer] if state.layers else ()
        hidden, carry = _layer(model, aggregator, layer, times, hidden, links, before, temporal)
        carries.append(carry)
    return hidden, TimelineState(chain, tuple(carries))


def scored_block(
    model: TimelineModel,
    aggregator: Aggregator,
    times: range,
    state: TimelineState | None,
    score: Score,
    *,
    temporal: Temporal = fused_temporal,
) -> tuple[Tensor, TimelineState]:
    """Summed loss of a block, a scalar, and the state after it, scored as outputs are made.

    Autograd runs the latest work first. Were the last layer made for all snapshots and then scored,
    gradients of all its outputs would be held before the first of them is used; here it is made and
    scored in pieces of time, and a piece's backward pass ends before the next one's begins. A piece
    is a snapshot, or where the layer is recurrent `piece_length` of them. A model without any
    temporal half goes snapshot by snapshot through all its layers.

    Args:
        model, aggregator, times, state, temporal: as `forward_block`.
        score: summed loss of one snapshot's output.
    """
    state = state or TimelineState()
    links, chain = model.chain(len(times), state.chain)
    last = model.num_layers - 1
    together = range(last) if any(map(model.has_temporal, range(last + 1))) else range(0)
    carries: list[Carry] = []
    hidden: list[Tensor] = []
    for layer in together:
        before = state.layers[layer] if state.layers else ()
        hidden, carry = _layer(model, aggregator, layer, times, hidden, links, before, temporal)
        carries.append(carry)
    sums: list[Tensor] = []
    size = piece_length(len(times)) if model.has_temporal(last) else 1
    carry = state.layers[last] if state.layers else ()
    for at in range(0, len(times), size):
        part = times[at : at + size]
        out, wanted = hidden[at : at + size], links[at : at + size]
        hidden[at : at + size] = [_NOTHING] * len(part)
        for layer in range(len(together), last + 1):
            out, carry = _layer(model, aggregator, layer, part, out, wanted, carry, temporal)
        sums += [score(t, h) for t, h in zip(part, out, strict=True)]
        del out
    carries += [()] * (last - len(carries)) + [carry]
    return torch.stack(sums).sum(), TimelineState(chain, tuple(carries))


_NOTHING: Final = torch.empty(0)


def _layer(
    model: TimelineModel,
    aggregator: Aggregator,
    layer: int,
    times: range,
    hidden: list[Tensor],
    links: list,
    before: Carry,
    temporal: Temporal,
) -> tuple[list[Tensor], Carry]:
    """One layer over `times`; empties `hidden`, its input."""
    aggregated = [
        aggregator.first(t) if layer == 0 else aggregator.apply(t, hidden[i])
        for i, t in enumerate(times)
    ]
    hidden.clear()
    if not model.has_temporal(layer):
        return [
            model.spatial(layer, a, link) for a, link in zip(aggregated, links, strict=True)
        ], ()
    # No link here: models whose weights differ from step to step have no temporal half.
    series = torch.stack(aggregated)
    del aggregated
    series = model.spatial(layer, series)
    out, carry = temporal(model, layer, series, before)
    del series
    return list(out.unbind(0)), carry


def kept_rows(model: TimelineModel, block: range) -> range | None:
    """Snapshots of a block whose aggregated features the state after it depends on.

    None: all of them, and their matrices (CD-GCN, whose second LSTM has seen everything).
    EvolveGCN's weights depend on no input; TM-GCN keeps the first layer's last w - 1 outputs.
    """
    if not any(map(model.has_temporal, range(model.num_layers))):
        return block[:0]
    if isinstance(model, TmGcn):
        return block[max(0, len(block) - (model.window - 1)) :]
    return None


def lean_state(
    model: TimelineModel,
    aggregator: Aggregator,
    block: range,
    state: TimelineState | None,
) -> TimelineState:
    """The state after a block from those snapshots only that `kept_rows` names.

    Args:
        model: one for which `kept_rows` is not None.
        aggregator: asked for `first` of those snapshots.
        block: snapshots.
        state: before it; None at the start of the timeline.
    """
    state = state or TimelineState()
    _, chain = model.chain(len(block), state.chain)
    layers: tuple[Carry, ...] = ((),) * model.num_layers
    if isinstance(model, TmGcn) and model.window > 1:
        rows = [model.spatial(0, aggregator.first(t)) for t in kept_rows(model, block) or ()]
        before = list(state.layers[0][0].unbind(0)) if state.layers else []
        layers = ((torch.stack((before + rows)[1 - model.window :]),), *layers[1:])
    return TimelineState(chain, layers)
