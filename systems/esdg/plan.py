"""Cut of a timeline into blocks, and the memory that the blocks need (ESDG, section 3.1).

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

A plan for a budget must know the dearest moment, not the usual one, so `device_cost` also has what
each model holds once, beside m_step, at each moment at which it may hold most: gradients under way,
the state after the block with its gradient, and for TM-GCN all rows that its window reads. There
a border has min(w - 1, steps so far) rows, and not w - 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dgbench.models import CdGcn, TimelineModel, TmGcn
from dgbench.runtime.errors import InvalidInputError

COO_BYTES = 20
"""Bytes of an entry as two int64 indices and a float32, which the paper's implementation holds."""

TORCH_LSTM_FLOATS = 30
"""Floats per hidden unit, vertex and step that torch's LSTM records on the CPU (measured)."""

SCORED_BYTES, SCORING_BYTES = 8, 32
"""Bytes of a pair that link prediction records, and those that it takes while scored."""


Moments = Callable[[int, float, float, bool], float]
"""Bytes per vertex that a block takes beside m_step at its dearest moment. Arguments: snapshots,
bytes per vertex of the border before and of that after, whether it is the last block."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """Bytes that one snapshot of a recorded block takes.

    Attributes:
        per_entry: of every stored entry of its matrix.
        per_vertex: of every vertex: activations, and row offsets where the layout has them.
        working_entry: of every entry of one snapshot, the largest.
        scoring_entry: the same, while that snapshot's pairs are scored and nothing else is added.
        moments: what a block takes once, borders being counted as they are held; None counts as the
            paper does, who has nothing beside m_step and the border after every block so far.
    """

    per_entry: float
    per_vertex: float
    working_entry: float = 0
    scoring_entry: float = 0
    moments: Moments | None = None

    def of(self, nnz: int, nodes: int) -> float:
        """m_step of one snapshot."""
        return self.per_entry * nnz + self.per_vertex * nodes

    def once(
        self, steps: int, before: float = 0.0, after: float = 0.0, *, last: bool = True
    ) -> float:
        """Bytes per vertex that a block takes beside m_step; arguments as of `Moments`."""
        return 0.0 if self.moments is None else self.moments(steps, before, after, last)


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
    *,
    twice: bool = True,
) -> float:
    """bsize * m_step + nb * m_ckpt; while block b is recorded the borders 1 .. b are kept.

    With blocks of equal cost that is the paper's formula; where T is no multiple of nb the first
    ones are longer, and fewer borders are kept beside them. With a cost that knows its moments the
    border after a block counts among those, and as kept only where the block was run before.

    Args:
        entries: stored entries of every snapshot.
        nodes: N.
        blocks: from `split_blocks`.
        cost, border: m_step and m_ckpt, or m_ckpt by the number of snapshots before the border.
        arrival: bytes per entry of the indices of one plain snapshot on its way.
        twice: the last block is run twice as well, so that there is a border after it.
    """
    steps = [cost.of(nnz, nodes) for nnz in entries]
    at = border if callable(border) else lambda stop: border if stop else 0.0
    vertices = max(1, nodes)
    kept = dearest = 0.0
    for block in blocks:
        last = block is blocks[-1]
        before, after = (at(end) / vertices for end in (block.start, block.stop))
        own = at(block.stop) if cost.moments is None or (last and twice) else 0.0
        once = max(
            cost.once(len(block), before, after, last=last) * nodes,
            cost.scoring_entry * max(entries[t] for t in block),
        )
        dearest = max(dearest, sum(steps[t] for t in block) + once + kept + own)
        kept += at(block.stop)
    return dearest + (arrival + cost.working_entry) * max(entries)


def fewest_blocks(steps: int, need: Callable[[list[range]], float], budget: int) -> list[range]:
    """As few blocks as `need` says to fit into `budget` bytes.

    Raises:
        InvalidInputError: no number of blocks fits; the message names the least that would.
    """
    best, at = math.inf, 1
    for count in range(1, steps + 1):
        blocks = split_blocks(steps, count)
        found = need(blocks)
        if found <= budget:
            return blocks
        if found < best:
            best, at = found, count
    raise _too_little(budget, steps, best, at)


def _too_little(budget: int, steps: int, best: float, blocks: int) -> InvalidInputError:
    return InvalidInputError(
        f"memory_bytes is {budget}; {steps} snapshots need at least {math.ceil(best)} bytes, with "
        f"{blocks} blocks",
        hint="give more memory, take fewer snapshots, or spread them over ranks",
    )


def fewest_equal_blocks(steps: int, step: float, border: float, budget: int) -> int:
    """Number of blocks that `peak_bytes` needs for snapshots and borders of one size, closed form.

    Args:
        steps: T. step, border: m_step of a cost without moments, m_ckpt. budget: bytes.

    Raises:
        InvalidInputError: no number of blocks fits.
    """
    counts = np.arange(1, steps + 1)
    size, longer = np.divmod(steps, counts)
    # Longer blocks come first: their last one, and the last of all, keep the most borders.
    peaks = size * step + counts * border
    peaks = np.maximum(peaks, (longer > 0) * ((size + 1) * step + longer * border))
    fits = np.flatnonzero(peaks <= budget)
    if not fits.size:
        raise _too_little(budget, steps, float(peaks.min()), int(counts[peaks.argmin()]))
    return int(counts[fits[0]])


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
    scored: int = 0,
    itemsize: int = 4,
) -> StepCost:
    """m_step of this implementation, and what a block takes once at its dearest moment:

    - its matrices in compressed rows, and their transposes: 4 bytes per entry, 4 more of values,
      8 per vertex, all twice; without precomputation also a copy in the order of rows by length.
      As `coordinates`: 16 bytes per entry and its value;
    - degree scales, 4 per vertex, unless entries are normalised or matrices are coordinates;
    - the paper's activations: features, what every layer aggregated, spatial outputs, and outputs
      of temporal halves but the last forward moment's alone, which `moments` counts;
    - where the first layer has a temporal half, the stack of a block's inputs, beside them;
    - for coordinates one matrix compressed.

    Args:
        model: one of the timeline models, with the stacked forward pass of this system.
        values: entries have values on the device.
        scales: the device forms degree scales.
        precompute: the first layer's aggregation does not run on the device.
        fused: LSTMs run as scans that record their input only.
        interleave: the last layer is made and scored in pieces.
        coordinates: matrices lie as int64 coordinates.
        pairs: that the head scores, per entry: two floats of each are recorded.
        scored: floats that the head records of every vertex: classes, 1 for a number, 0 for pairs.
        itemsize: of features, 4 or 8.
    """
    first, hidden = model.input_dims[0], model.output_dim
    floats = model.activation_dim + scored
    # Features stay where they arrived, beside their stack or what was aggregated from them here.
    floats += first if model.has_temporal(0) or not precompute else 0
    # Outputs of earlier temporal halves are gone before the backward pass begins.
    last = model.num_layers - 1
    floats -= sum(model.layer_dims[i] for i in range(last) if model.has_temporal(i))
    working = 0
    if not fused and isinstance(model, CdGcn):
        floats += TORCH_LSTM_FLOATS * sum(model.layer_dims)
        working = TORCH_LSTM_FLOATS * max(model.layer_dims)  # of a step, while it goes back
    # The head's gradient comes as that of sources, of targets, and their sum.
    scoring = max(3 * hidden, 2 * hidden + 2) if pairs else 2 * hidden
    moments = _plain_moments
    if isinstance(model, TmGcn):
        moments = partial(_window_moments, scored)
    elif isinstance(model, CdGcn):
        moments = partial(_scan_moments, scored)
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
        working_entry=8 + value if coordinates else 0,
        scoring_entry=SCORING_BYTES * pairs,
        moments=partial(_moments, moments, hidden, scoring, interleave, itemsize, working),
    )


class BlockPasses(NamedTuple):
    """A block as its moments see it, in floats per vertex.

    Attributes:
        steps: snapshots of the block. before, after: state that it reads and leaves.
        last: no block comes after it. hidden: outputs of a snapshot.
        scoring: gradients that the head hands back. interleave: scored in pieces.
    """

    steps: int
    before: float
    after: float
    last: bool
    hidden: int
    scoring: int
    interleave: bool


def _moments(
    of_model: Callable[[BlockPasses], float],
    hidden: int,
    scoring: int,
    interleave: bool,
    itemsize: int,
    working: float,
    steps: int,
    before: float,
    after: float,
    last: bool,
) -> float:
    """`Moments` of a model: bytes from floats, `working` of which every moment has."""
    before, after = before / itemsize, after / itemsize
    block = BlockPasses(steps, before, after, last, hidden, scoring, interleave)
    return itemsize * (of_model(block) + working)


# Floats per vertex beside what is recorded of every snapshot, the most of several moments. Where a
# block is not the last, the state after it is held in the backward pass with its gradient.


def _plain_moments(at: BlockPasses) -> float:
    """EvolveGCN: gradients from the head, of all outputs where they are scored at the end."""
    return at.scoring if at.interleave else at.scoring + at.hidden * (at.steps - 1)


def _scan_moments(scored: int, at: BlockPasses) -> float:
    """CD-GCN, whose last layer is made and scored in pieces of its own."""
    steps, before, after, last, hidden, _, interleave = at
    size = piece_length(steps) if interleave else steps
    pieces = -(-steps // size)
    states = 2 * hidden * (pieces - 1)
    # Outputs of the first layer, until the last piece has aggregated them and records its own.
    forward = hidden * steps - 3 * hidden * size + 2 * hidden
    # After the last piece's scan: gradients of its inputs and of what the activation was given,
    # instead of its outputs and of what the head recorded; and of the state before the piece,
    # which the first one of the timeline has not.
    begun = 2 * hidden if before or pieces > 1 else 0
    backward = (3 * hidden - scored) * size + begun + (0 if last else 2 * after)
    # Before the backward pass all of the state after the block is there.
    return states + max(forward, after, backward)


def _window_moments(scored: int, at: BlockPasses) -> float:
    """TM-GCN, whose window reads the rows before the block as well.

    Recorded are the inputs, twice, and 3 H of each snapshot, of which 2 H belong to the last layer.
    """
    steps, before, after, last, hidden, scoring, interleave = at
    series = hidden * steps
    rows = before + series  # that the window reads
    copied = after if after < rows else 0.0  # the state after is a part of them
    handed = 0.0 if last else 2 * after  # it and its gradient
    joined = 0.0 if last else rows  # the same gradient, among zeros
    sums = 0.0 if last else series + before  # where it meets the window's
    # Outputs of the window wait for the last snapshot, or all last gradients for the first one.
    outputs = series - hidden if interleave else hidden
    waiting = 0.0 if interleave else series - hidden
    of_window = max(  # the head has recorded nothing yet, or its record is gone
        rows + copied - series,  # the window's outputs are there, and the state after is cut out
        handed,  # gradients of the window's outputs, singly and stacked
        rows - series + handed + joined,  # through the window
        rows - 2 * series + handed + joined + sums,
    )
    return max(
        of_window - scored * steps,
        outputs + after,  # the end of the forward pass
        scoring + waiting + handed,  # the first gradients come from the head
    )


def step_cost(name: str, model: TimelineModel) -> StepCost:
    """Return m_step by the paper's figures, of this implementation, or of torch alone."""
    if name == "formula":
        return paper_cost(model)
    if name == "ours":
        return device_cost(model, pairs=0.2)
    return device_cost(model, fused=False, interleave=False, coordinates=True, pairs=0.2)


def device_bytes(
    cost: StepCost, model: TimelineModel, nodes: int, steps: int, entries: int, blocks: int,
    ranks: int, *, checkpoint: bool = True,
) -> float:  # fmt: skip
    """Bytes on the fullest of `ranks` devices; entries are spread evenly over the steps.

    In a block a rank has whole snapshots for one half of a layer and whole vertices for the other,
    1 / P of the block either way, rounded up to snapshots; borders are split by vertices.
    """
    size = -(-steps // blocks)
    mine = -(-size // ranks)
    per_step = cost.of(entries / steps, nodes)
    each = border_bytes(model, nodes)
    last = not checkpoint or blocks == 1
    around = 0.0 if last else each / max(1, nodes)
    once = cost.once(size, around, around, last=last) * nodes
    once = max(once, cost.scoring_entry * entries / steps)
    held = mine * per_step + cost.working_entry * entries / steps
    return held + (once + (blocks * each if checkpoint else 0)) / ranks
