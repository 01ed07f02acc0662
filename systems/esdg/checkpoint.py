"""Gradient checkpoint over blocks of time (ESDG, section 3.1).

Forward, block by block: only the state at a block's end is kept. Backward, from the last block to
the first: the block's inputs are brought again, its forward pass is run again, now recorded, from
the state before it, and back-propagated with the gradient of the state after it. What comes out at
the state before it is the gradient for the block before. The state holds also the chain of evolving
weights, so that EvolveGCN's gradient runs through all blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor

from dgbench.models import TimelineState
from dgbench.models.aggregation import Aggregator
from dgbench.models.timeline import TimelineModel
from dgbench.runtime.meter import Meter

Load = Callable[[range, bool], AbstractContextManager[Aggregator]]
"""Brings a block's inputs; the flag says whether its forward pass is recorded."""

Forward = Callable[[Aggregator, range, TimelineState | None], tuple[list[Tensor], TimelineState]]
"""As `TimelineModel.forward_block`; a distributed run puts redistributions between the halves."""

Loss = Callable[[range, Sequence[Tensor]], Tensor]
"""A block's share of the loss from its outputs."""

Record = Callable[[Aggregator, range, TimelineState | None], tuple[Tensor, TimelineState]]
"""A block's share of the loss, scored as outputs are made, and the state after it."""

Lean = Callable[[range, TimelineState | None], TimelineState]
"""The state after a block from the one before it, bringing only what that needs."""


class BlockRunner:
    """Runs a model over blocks, keeping borders only.

    Args:
        model: whose `forward_block` is run where `forward` is not given.
        load: brings a block's inputs for the time of a `with`.
        loss: a block's share of the loss.
        recompute: off, the whole timeline is recorded at once, as one block, and no pass is run
            again; more than one block is then refused by the caller.
        keep_last: record the last block's first pass instead of running it again at once. The paper
            runs every block again.
        meter: counts `blocks_forward` and `blocks_rerun`.
        forward: instead of the model's own.
        record: instead of `forward` and `loss` where a pass is recorded.
        lean: None runs the first pass as the paper does: every block, whole. Else the last block,
            whose border nobody needs, has no first pass, and the others are run by
            `lean(block, state)`; where that is not simpler for a model, give `whole`.
        ahead: told, once a block has arrived, which one is wanted next.
    """

    def __init__(
        self,
        model: TimelineModel,
        load: Load,
        loss: Loss,
        meter: Meter,
        *,
        recompute: bool = True,
        keep_last: bool = False,
        forward: Forward | None = None,
        record: Record | None = None,
        lean: Lean | Literal["whole"] | None = None,
        ahead: Callable[[range], None] | None = None,
    ) -> None:
        self._load, self._loss, self._meter = load, loss, meter
        self._forward: Forward = model.forward_block if forward is None else forward
        self._record: Record = self._scored if record is None else record
        self._recompute, self.lean, self._ahead = recompute, lean, ahead
        self._keep_last = keep_last or lean is not None

    def gradients(self, blocks: Sequence[range]) -> float:
        """Add the loss's gradient to `.grad` of all parameters; the loss."""
        recorded = 1 if self._keep_last or not self._recompute else 0
        states = self._borders(blocks[: len(blocks) - recorded], blocks[-1])
        total = 0.0
        after: list[Tensor | None] = []
        for number in reversed(range(len(blocks))):
            rerun = self._recompute and not (self._keep_last and number == len(blocks) - 1)
            self._meter.count("blocks_rerun" if rerun else "blocks_forward")
            before = None if number == 0 else states[number - 1].detach()
            wanted = blocks[number - 1] if number else None
            value, after = self._backward(blocks[number], before, after, wanted)
            # A border is spent with its block.
            del states[max(0, number - 1) :]
            total += value
        return total

    @torch.no_grad()
    def outputs(self, blocks: Sequence[range]) -> list[Tensor]:
        """Outputs [N, D] of all steps, without history."""
        found: list[Tensor] = []
        state = None
        for number, block in enumerate(blocks):
            self._meter.count("blocks_forward")
            with self._load(block, False) as inputs, self._meter.phase("compute"):
                self._expect(blocks[number + 1] if number + 1 < len(blocks) else None)
                hidden, state = self._forward(inputs, block, state)
                state = compact(state)
                # A view of the arena would change under the caller once the block is given back.
                found += [h.clone() for h in hidden]
        return found

    @torch.no_grad()
    def _borders(self, blocks: Sequence[range], last: range) -> list[TimelineState]:
        """States after each of these blocks; `last` is the first one that is recorded."""
        states: list[TimelineState] = []
        lean = self.lean if callable(self.lean) else None
        if lean is not None:
            self._expect(last)
        for number, block in enumerate(blocks):
            self._meter.count("blocks_forward")
            before = states[-1] if states else None
            if lean is not None:
                with self._meter.phase("compute"):
                    states.append(compact(lean(block, before)))
                continue
            with self._load(block, False) as inputs, self._meter.phase("compute"):
                self._expect(blocks[number + 1] if number + 1 < len(blocks) else last)
                _, state = self._forward(inputs, block, before)
                states.append(compact(state))
                del _, state
        return states

    def _expect(self, block: range | None) -> None:
        if self._ahead is not None and block is not None:
            self._ahead(block)

    def _scored(
        self, inputs: Aggregator, block: range, before: TimelineState | None
    ) -> tuple[Tensor, TimelineState]:
        hidden, state = self._forward(inputs, block, before)
        return self._loss(block, hidden), state

    def _backward(
        self,
        block: range,
        before: TimelineState | None,
        after: list[Tensor | None],
        wanted: range | None,
    ) -> tuple[float, list[Tensor | None]]:
        """A block's loss, and its gradient at the state before it.

        Args:
            block: snapshots.
            before: leaves, None at the start of the timeline.
            after: gradient at every tensor of the state after it; [] at the end of the timeline.
            wanted: the block that is loaded next, or None.
        """
        with self._load(block, True) as inputs:
            with self._meter.phase("compute"), torch.enable_grad():
                self._expect(wanted)
                loss, state = self._record(inputs, block, before)
                roots, weights = [loss], [None]
                for tensor, grad in zip(state.tensors, after, strict=True) if after else ():
                    if grad is not None and tensor.requires_grad:
                        roots.append(tensor)
                        weights.append(grad)
                del state
                torch.autograd.backward(roots, weights)
            value = float(loss.detach())
        return value, [] if before is None else [_own(t.grad) for t in before.tensors]


def _own(grad: Tensor | None) -> Tensor | None:
    """A gradient of the size that it has: TM-GCN's is a view of that of all rows a window reads."""
    if grad is None or grad.untyped_storage().nbytes() == grad.nbytes:
        return grad
    return grad.clone()


def compact(state: TimelineState) -> TimelineState:
    """The state without history and without the rest of the storages its tensors are views of.

    TM-GCN hands on the last rows of a series: kept as a view it would keep the whole block.
    """
    return state.with_tensors([t.detach().clone() for t in state.tensors])
