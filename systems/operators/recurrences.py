"""Recurrences in plain torch, and sequences of many lengths in the layouts that they run on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

GATES = {"gru": 3, "lstm": 4}


def gru_loop(x: Tensor, w_in: Tensor, w_hid: Tensor, bias: Tensor, h: Tensor) -> list[Tensor]:
    """States of a GRU: one product for the inputs of all steps, then a loop."""
    hidden = w_hid.shape[0]
    from_x = torch.addmm(bias, x.flatten(0, 1), w_in).view(*x.shape[:2], -1)
    w_zr, w_c = w_hid[:, : 2 * hidden], w_hid[:, 2 * hidden :]
    states = []
    for step in from_x:
        z, r = torch.sigmoid(torch.addmm(step[:, : 2 * hidden], h, w_zr)).chunk(2, dim=1)
        c = torch.tanh(torch.addmm(step[:, 2 * hidden :], r * h, w_c))
        h = c + z * (h - c)
        states.append(h)
    return states


def lstm_loop(x: Tensor, w_in: Tensor, w_hid: Tensor, bias: Tensor, h: Tensor) -> list[Tensor]:
    """States of an LSTM: one product for the inputs of all steps, then a loop."""
    from_x = torch.addmm(bias, x.flatten(0, 1), w_in).view(*x.shape[:2], -1)
    c = torch.zeros_like(h)
    states = []
    for step in from_x:
        i, f, g, o = torch.addmm(step, h, w_hid).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return states


LOOPS = {"gru": gru_loop, "lstm": lstm_loop}


def library_lstm(
    features: int, hidden: int, device: str = "cpu"
) -> Callable[[list[Tensor], object], tuple]:
    """`torch.nn.LSTM` as a function of ([w_in, w_hid, bias], steps)."""
    layer = torch.nn.LSTM(features, hidden, device=device)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")

    def run(weights: list[Tensor], x: object) -> tuple:
        w_in, w_hid, bias = weights
        # The gradient flows to our own weights through the transposes, a trifle.
        given = dict(zip(names, (w_in.T, w_hid.T, bias, torch.zeros_like(bias)), strict=True))
        return torch.func.functional_call(layer, given, (x,))

    return run


def random_weights(
    cell: str, features: int, hidden: int, generator: torch.Generator
) -> list[Tensor]:
    """[w_in, w_hid, bias] of a layer."""
    columns = GATES[cell] * hidden
    w_in = torch.randn(features, columns, generator=generator) * features**-0.5
    w_hid = torch.randn(hidden, columns, generator=generator) * hidden**-0.5
    return [w_in, w_hid, torch.randn(columns, generator=generator) * 0.1]


def random_lengths(count: int, mean: float, longest: int, seed: int) -> Tensor:
    """int64[count]: 1 and more, exponential with this mean, cut at `longest`."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(count).exponential_(1 / mean, generator=generator)
    return (1 + drawn.long()).clamp(max=longest)


def fill_rows(lengths: Sequence[int], longest: int) -> list[list[int]]:
    """Sequence numbers of every row: first fit among the last rows, for descending lengths."""
    rows: list[list[int]] = []
    free: list[int] = []
    for number, length in enumerate(lengths):
        for row in range(max(0, len(rows) - 256), len(rows)):
            if free[row] >= length:
                break
        else:
            row = len(rows)
            rows.append([])
            free.append(longest)
        rows[row].append(number)
        free[row] -= length
    return rows


@dataclass(frozen=True, eq=False)
class PackedSteps:
    """Sequences, several of them in a row, and the same padded to the longest.

    Attributes:
        lengths: int64[sequences].
        shape: steps of a row, rows.
        start, row: int64[sequences], where each begins.
        number, step: int64[steps], sequence of each step and its number inside.
    """

    lengths: Tensor
    shape: tuple[int, int]
    start: Tensor
    row: Tensor
    number: Tensor
    step: Tensor

    @classmethod
    def of(cls, lengths: Tensor, longest: int) -> PackedSteps:
        """First fit of sequences into rows of `longest` steps."""
        count = len(lengths)
        rows = fill_rows(lengths.tolist(), longest)
        start, row = torch.empty_like(lengths), torch.empty_like(lengths)
        for at, held in enumerate(rows):
            begins = lengths[held].cumsum(0) - lengths[held]
            start[held], row[held] = begins, at
        number = torch.repeat_interleave(torch.arange(count), lengths)
        step = torch.arange(len(number)) - (lengths.cumsum(0) - lengths)[number]
        return cls(lengths, (longest, len(rows)), start, row, number, step)

    @property
    def packed(self) -> Tensor:
        """int64[steps]: flat place of each step in [shape]."""
        return (self.start[self.number] + self.step) * self.shape[1] + self.row[self.number]

    @property
    def padded(self) -> Tensor:
        """int64[steps]: flat place of each step where each sequence is a column of its own."""
        return self.step * len(self.lengths) + self.number

    @property
    def free(self) -> tuple[Tensor, Tensor]:
        """First free step of each row that is not full, and these rows."""
        used = torch.zeros(self.shape[1], dtype=torch.int64).index_add_(0, self.row, self.lengths)
        rows = (used < self.shape[0]).nonzero().flatten()
        return used[rows], rows


@dataclass(frozen=True, eq=False)
class StepLayout:
    """Where a contender keeps the steps of sequences.

    Attributes:
        shape: of the steps. place: int64[steps], flat place of each step.
    """

    shape: tuple[int, ...]
    place: Tensor

    def spread(self, steps: Tensor) -> Tensor:
        """[steps, F] -> [*shape, F], zeros elsewhere."""
        flat = steps.new_zeros(math.prod(self.shape), steps.shape[1])
        return flat.index_copy(0, self.place, steps).view(*self.shape, -1)

    def gather(self, spread: Tensor) -> Tensor:
        """[*shape, F] -> [steps, F]."""
        return spread.flatten(0, len(self.shape) - 1).index_select(0, self.place)


def output_and_gradients(
    run: Callable[[list[Tensor]], Tensor],
    inputs: Sequence[Tensor],
    grad: Tensor | None = None,
    wanted: Sequence[int] | None = None,
) -> list[Tensor]:
    """One forward and backward pass: the output, and gradients of inputs.

    Args:
        grad: gradient of the output; None for that of its mean square.
        wanted: numbers of the inputs that need a gradient; None for all.
    """
    leaves = [one.detach() for one in inputs]
    needed = [leaves[i] for i in (range(len(leaves)) if wanted is None else wanted)]
    for leaf in needed:
        leaf.requires_grad_()
    out = run(leaves)
    if grad is None:  # its gradient has many digits, and costs one pass over the output
        found = torch.autograd.grad(out.square().mean(), needed)
    else:
        found = torch.autograd.grad(out, needed, grad)
    return [out.detach(), *found]
