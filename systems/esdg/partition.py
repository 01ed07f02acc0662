"""Who owns which snapshots and which vertices, and the pass over blocks that all partitions share.

ESDG (SC 2021), section 4.2: for the graph half of a layer a rank owns a contiguous
share of the snapshots, for the temporal half a share of the vertices. With checkpoints (4.2) all
ranks work on one block at a time and each owns a contiguous share of that block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dgbench.models import TimelineModel, TimelineState
from dgbench.runtime.collectives import Communicator, equal_parts
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.systems.esdg.checkpoint import compact

LossOf = Callable[[range, Tensor], Tensor]
"""(times of a block, output of `PartitionedPass.run`) -> this rank's share of the loss."""


def block_ranges(steps: int, blocks: int) -> list[range]:
    """`steps` snapshots in `blocks` consecutive, nearly equal runs, none of them empty.

    Raises:
        InvalidInputError: no block, or more blocks than snapshots.
    """
    if not 1 <= blocks <= max(1, steps):
        raise InvalidInputError(
            f"'blocks' is {blocks}, allowed: 1 to {max(1, steps)}, the number of snapshots"
        )
    return consecutive(range(steps), blocks)


def consecutive(whole: range, parts: int) -> list[range]:
    """A range in nearly equal consecutive parts, the first ones longer by one, or empty."""
    found, first = [], whole.start
    for length in equal_parts(len(whole), parts):
        found.append(range(first, first + length))
        first += length
    return found


@dataclass(frozen=True)
class BlockShares:
    """Partition of a block over P ranks.

    Attributes:
        times: the block.
        num_nodes: N.
        size: P.
        pieces: into how many runs each rank's share of the steps is cut, so that one piece can
            travel while another is computed. 1: the share as a whole.
        steps: [rank][piece] -> the steps, in order of time; shares may be empty.
        vertices: rank -> its range of vertices.
    """

    times: range
    num_nodes: int
    size: int
    pieces: int = 1
    steps: list[list[range]] = field(init=False)
    vertices: list[range] = field(init=False)

    def __post_init__(self) -> None:
        check_count("'pieces'", self.pieces)
        steps = [consecutive(own, self.pieces) for own in consecutive(self.times, self.size)]
        object.__setattr__(self, "steps", steps)
        object.__setattr__(self, "vertices", consecutive(range(self.num_nodes), self.size))


class PartitionedPass(ABC):
    """A rank's part of a model's pass over a block of snapshots.

    All ranks call the same methods with the same blocks in the same order. What is propagated
    backwards must depend on every exchange that was made, for a backward pass that leaves one out
    would leave the others waiting.

    Attributes:
        comm: this rank's end of the group.
        model: replicated, equal on all ranks.
        wanted: block that is loaded after the one that is loaded next; None: not known. Its inputs
            may come while that one computes.
    """

    comm: Communicator
    model: TimelineModel
    wanted: range | None = None

    @abstractmethod
    def run(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        """This rank's outputs of a block and its part of the state after it.

        Args:
            times: consecutive snapshots, at least one.
            state: this rank's after the snapshot before; None at the start of the timeline.

        Returns:
            Outputs of what the rank holds, [.., output_dim], as the split's own `loss_sum` and
            `gather` take them, and the state.
        """

    def border(self, times: range, state: TimelineState | None, *, lean: bool) -> TimelineState:
        """The state alone, of a block that `again` will be called for; loads what it needs.

        Args:
            times, state: as of `run`.
            lean: leave out what the state does not need, exchanges included. Off, what `run`
                exchanges is exchanged.
        """
        if lean and not any(map(self.model.has_temporal, range(self.model.num_layers))):
            # The weights evolve whatever the snapshots are.
            _, chain = self.model.chain(len(times), state.chain if state else ())
            return TimelineState(chain, ((),) * self.model.num_layers)
        with self.load(times, recorded=False):
            return self.run(times, state)[1]

    def again(self, times: range, state: TimelineState | None) -> tuple[Tensor, TimelineState]:
        """As `run`, of a block whose `border` was asked for in this pass over the timeline."""
        return self.run(times, state)

    def load(self, times: range, *, recorded: bool) -> AbstractContextManager[None]:
        """The time in which a block's inputs are there; `recorded` if for a backward pass."""
        return nullcontext()


def accumulate(
    split: PartitionedPass,
    blocks: Sequence[range],
    loss_of: LossOf | None,
    *,
    checkpoint: bool,
    lean: bool = False,
) -> float:
    """Add this rank's part of the gradient to `.grad` of the parameters.

    With `checkpoint` (section 3.1) a forward pass keeps the state at the blocks' borders only; then
    the blocks are run again from the last to the first, recorded, and propagated backwards with
    the gradient that came from the block behind. The re-run repeats its exchanges and counts them
    as the phase `rerun`: three passes in all, the reading under which Table 2 comes out, so the
    last block is run twice as well.

    Args:
        split: how the work is dealt out.
        blocks: of the timeline, in order.
        loss_of: this rank's share of the loss of a block, which depends on what it is given or on
            nothing; None: outputs count for nothing, which leaves the exchanges as they are.
        checkpoint: whether to run again instead of recording the whole timeline.
        lean: let the forward pass of a checkpoint do only what the borders need, see
            `PartitionedPass.border`; the last block then has none at all.

    Returns:
        This rank's share of the loss.
    """
    if not checkpoint:
        state, loss, roots = None, 0.0, _Roots()
        with ExitStack() as loaded:
            for times in blocks:
                loaded.enter_context(split.load(times, recorded=True))
                out, state = split.run(times, state)
                loss += roots.add(out, loss_of and loss_of(times, out))
                del out
            roots.backward()
        return loss
    kept: list[TimelineState | None] = [None]
    with torch.no_grad():
        # What follows the last border nobody asks for.
        for number, times in enumerate(blocks[: len(blocks) - 1 if lean else None]):
            split.wanted = blocks[min(number + 1, len(blocks) - 1)]
            kept.append(compact(split.border(times, kept[-1], lean=lean)))
    loss, coming = 0.0, None
    for number in reversed(range(len(blocks))):
        times, before = blocks[number], kept[number]
        state = before and before.detach()
        split.wanted = blocks[number - 1] if number else None
        with split.load(times, recorded=True):
            with split.comm.phase("rerun"):
                out, after = split.again(times, state)
                roots = _Roots()
                loss += roots.add(out, loss_of and loss_of(times, out))
            if coming is not None:
                roots.add_gradients(after.tensors, coming)
            del out, after
            roots.backward()
        del kept[number:]
        coming = [t.grad for t in state.tensors] if state else None
    return loss


class _Roots:
    """Where a backward pass begins."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._gradients: list[Tensor] = []

    def add(self, out: Tensor, loss: Tensor | None) -> float:
        if loss is None or not loss.requires_grad:
            # Nothing to score here (a rank without snapshots, or no loss at all), but every
            # exchange has to run backwards on every rank.
            self._append(out, out.new_zeros(()).expand_as(out))
            return 0.0 if loss is None else float(loss)
        self._append(loss, torch.ones_like(loss))
        return float(loss.detach())

    def add_gradients(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            if gradient is not None:
                self._append(tensor, gradient)

    def backward(self) -> None:
        torch.autograd.backward(self._tensors, self._gradients)

    def _append(self, tensor: Tensor, gradient: Tensor) -> None:
        if tensor.requires_grad:
            self._tensors.append(tensor)
            self._gradients.append(gradient)


def sum_gradients(comm: Communicator, parameters: Sequence[Tensor]) -> None:
    """Replace `.grad` of replicated parameters by its sum over the ranks, in one all-reduce.

    This is also what EvolveGCN's chain of weights needs (5.5): each rank has propagated the part of
    its own snapshots through the whole chain, and propagation is linear.
    """
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    if not grads:
        return
    with comm.phase("backward"):
        whole = comm.all_reduce(torch.cat([g.reshape(-1) for g in grads]))
    for p, part in zip(parameters, whole.split([p.numel() for p in parameters]), strict=True):
        p.grad = part.view_as(p).clone()
