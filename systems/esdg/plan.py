"""How a timeline is cut into blocks, and what the blocks need in memory (ESDG, section 3.1).

With nb blocks of bsize = T / nb snapshots a device holds at its peak what the backward pass of one
block needs, and what every border keeps:

    bytes = bsize * m_step + nb * m_ckpt

which is least near nb = sqrt(T m_step / m_ckpt). Fewer blocks keep fewer borders and gain more from
the graph difference, so the smallest number that fits a budget is taken.

By the paper's figures m_step = 20 nnz + 4 N (widths of all activations), `paper_cost`. What is
measured with the matrices held as coordinates exceeds it by the stack of a block's inputs (8 N per
step where the first layer is recurrent), and once by one snapshot on its way (16 nnz), the same
compressed while it is multiplied by (12 nnz) and the pairs being scored; with a block of 40 steps
that is a tenth. `device_cost`, compressed rows and their transposes, has 16 nnz instead of 20 and
20 bytes more per vertex and step, for row offsets twice and scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dgbench.models import CdGcn, TimelineModel, TmGcn
from dgbench.runtime.errors import InvalidInputError

COO_BYTES = 20
"""Bytes of an entry as two int64 indices and a float32, which the paper's implementation holds."""

TORCH_LSTM_FLOATS = 30
"""Floats per hidden unit, vertex and step that torch's LSTM records on the CPU (measured)."""

SCORED_BYTES, SCORING_BYTES = 8, 32
"""Bytes of a pair that link prediction records, and those that it takes while scored."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Bytes that one snapshot of a recorded block takes.

    Attributes:
        per_entry: of every stored entry of its matrix.
        per_vertex: of every vertex: activations, and row offsets where the layout has them.
        working: of every vertex once, whatever the number of snapshots.
        states: 1 where gradients of borders count: one of the border after a block, two of that
            before it.
        working_entry: of every entry of one snapshot, the largest.
        piece: of every vertex, for each piece of the last layer but one: what its recurrence begins
            with.
        gradients: of every vertex and snapshot of one piece, in the backward pass.
        early: of `per_vertex`, what is given back before the backward pass begins.
    """

    per_entry: float
    per_vertex: float
    working: float = 0
    states: float = 0
    working_entry: float = 0
    piece: float = 0
    gradients: float = 0
    early: float = 0

    def of(self, nnz: int, nodes: int) -> float:
        """m_step of one snapshot."""
        return self.per_entry * nnz + self.per_vertex * nodes

    def once(self, steps: int) -> float:
        """Bytes per vertex that a block of `steps` snapshots takes beside m_step."""
        if not self.gradients:
            return self.working
        size = piece_length(steps)
        backward = self.gradients * size - self.early * steps
        return self.working + self.piece * (-(-steps // size) - 1) + max(0.0, backward)


def piece_length(steps: int) -> int:
    """Snapshots of a piece in which a block of `steps` makes and scores a recurrent last layer.

    Every further piece keeps the state it begins with, 2 H floats per vertex; every snapshot of a
    piece needs gradients of 3 H floats. Their sum is least near sqrt(2 steps / 3).
    """
    return max(1, min(steps, round(math.sqrt(steps / 1.5))))


def paper_cost(model: TimelineModel) -> StepCost:
    """m_step = 20 nnz + 4 N (sum of the activations' widths), the paper's layout."""
    return StepCost(COO_BYTES, 4 * model.activation_dim)


Border = float | Callable[[int], float]


def border_at(model: TimelineModel, nodes: int, itemsize: int = 4) -> Border:
    """m_ckpt by the number of snapshots before a border: TM-GCN has no more rows than those yet."""
    if isinstance(model, TmGcn):
        row = itemsize * nodes * model.hidden_dim
        return lambda stop: row * min(model.window - 1, stop)
    return border_bytes(model, nodes, itemsize)


def border_bytes(model: TimelineModel, nodes: int, itemsize: int = 4) -> int:
    """m_ckpt: what one border keeps. Evolving weights are few and left out, as in the paper."""
    return itemsize * nodes * model.state_dim()


def split_blocks(steps: int, count: int) -> list[range]:
    """`count` consecutive ranges over 0 .. steps - 1, longer ones first, none longer by two.

    Raises:
        InvalidInputError: a count outside 1 .. steps.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= steps:
        raise InvalidInputError(
            f"nb is {count!r}; an integer in 1 .. {steps} is allowed, one block per step at most"
        )
    size, longer = divmod(steps, count)
    ends = [size * b + min(b, longer) for b in range(count + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def peak_bytes(
    entries: Sequence[int],
    nodes: int,
    blocks: Sequence[range],
    cost: StepCost,
    border: Border,
    arrival: float = 0,
) -> float:
    """bsize * m_step + nb * m_ckpt; while block b is recorded the borders 1 .. b are kept.

    With blocks of equal cost that is the paper's formula; where T is no multiple of nb the first
    ones are longer, and fewer borders are kept beside them.

    Args:
        entries: stored entries of every snapshot.
        nodes: N.
        blocks: from `split_blocks`.
        cost, border: m_step and m_ckpt, or m_ckpt by the number of snapshots before the border.
        arrival: bytes per entry of the indices of one plain snapshot on its way.
    """
    steps = [cost.of(nnz, nodes) for nnz in entries]
    at = border if callable(border) else lambda stop: border if stop else 0.0
    kept = dearest = 0.0
    for block in blocks:
        kept += at(block.stop)
        after = at(block.stop) if block is not blocks[-1] else 0.0
        states = cost.states * (after + 2 * at(block.start))
        need = sum(steps[t] for t in block) + cost.once(len(block)) * nodes
        dearest = max(dearest, need + kept + states)
    return dearest + (arrival + cost.working_entry) * max(entries)


def choose_blocks(
    entries: Sequence[int],
    nodes: int,
    cost: StepCost,
    border: Border,
    budget: int,
    arrival: float = 0,
) -> list[range]:
    """As few blocks as fit into `budget` bytes; arguments as `peak_bytes`.

    Raises:
        InvalidInputError: no number of blocks fits; the message names the least that would.
    """
    steps = len(entries)
    best, at = math.inf, 1
    for count in range(1, steps + 1):
        blocks = split_blocks(steps, count)
        need = peak_bytes(entries, nodes, blocks, cost, border, arrival)
        if need <= budget:
            return blocks
        if need < best:
            best, at = need, count
    raise InvalidInputError(
        f"memory_bytes is {budget}; {steps} snapshots need at least {math.ceil(best)} bytes, with "
        f"{at} blocks",
        hint="give more memory, take fewer snapshots, or spread them over ranks",
    )


def best_count(steps: int, step: float, border: float) -> int:
    """The number of blocks of least memory, nearest whole number to sqrt(T m_step / m_ckpt)."""
    if border <= 0:
        return steps
    return max(1, min(steps, round(math.sqrt(steps * step / border))))


def device_cost(
    model: TimelineModel,
    *,
    values: bool = True,
    scales: bool = True,
    precompute: bool = True,
    fused: bool = True,
    interleave: bool = True,
    coordinates: bool = False,
    pairs: float = 0.0,
    itemsize: int = 4,
) -> StepCost:
    """m_step of this implementation, the most that a recorded block holds:

    - its matrices in compressed rows, and their transposes: 4 bytes per entry, 4 more of values,
      8 per vertex, all twice; without precomputation also a copy in the order of rows by length.
      As `coordinates`: 16 bytes per entry and its value;
    - degree scales, 4 per vertex, unless entries are normalised or matrices are coordinates;
    - the paper's activations: features, what every layer aggregated, spatial outputs, and outputs
      of temporal halves;
    - where the first layer has a temporal half, the stack of a block's inputs, beside them;
    - once, the gradients of a piece of the last layer; for TM-GCN the window's rows before the
      block, their gradient and that of the rows handed on; for coordinates one matrix compressed.

    Without `interleave` also the gradients of all last outputs, and of the input of the last
    layer's temporal half, but not the outputs of earlier ones.

    Args:
        model: one of the timeline models, with the stacked forward pass of this system.
        values: entries have values on the device.
        scales: the device forms degree scales.
        precompute: the first layer's aggregation does not run on the device.
        fused: LSTMs run as scans that record their input only.
        interleave: the last layer is made and scored in pieces.
        coordinates: matrices lie as int64 coordinates.
        pairs: that the head scores, per entry: two floats of each are recorded.
        itemsize: of features, 4 or 8.
    """
    last = model.num_layers - 1
    floats, working = model.activation_dim, 2 * model.output_dim
    if model.has_temporal(0):
        floats += model.input_dims[0]
    early = sum(model.layer_dims[i] for i in range(last) if model.has_temporal(i))
    gradients = model.output_dim + (model.spatial_dims[last] if model.has_temporal(last) else 0)
    pieces = interleave and model.has_temporal(last)
    if not interleave:
        floats += gradients - early
    if not fused and isinstance(model, CdGcn):
        floats += TORCH_LSTM_FLOATS * sum(model.layer_dims)
    value = 4 if values else 0
    if coordinates:
        per_entry, layout = 16 + value, 0
    else:
        copies = 2 if precompute else 3
        per_entry = copies * (4 + value)
        layout = 8 * copies + (0 if precompute else 4) + (4 if scales else 0)
    return StepCost(
        per_entry + SCORED_BYTES * pairs,
        layout + itemsize * floats,
        itemsize * working,
        states=float(isinstance(model, TmGcn)),
        working_entry=(8 + value if coordinates else 0) + SCORING_BYTES * pairs,
        piece=itemsize * 2 * model.output_dim if pieces else 0,
        gradients=itemsize * gradients if pieces else 0,
        early=itemsize * early,
    )
