"""Split of a step's compute into graph layers, recurrent layers and the rest, both ways.

Only instrumented runs use it (PiPAD, PPoPP 2023, Figure 4): methods of the cells are wrapped then
and only then, so that other runs pay nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import Node

from dgbench.runtime.meter import Meter

GRAPH: Final = "gnn"
RECURRENT: Final = "rnn"
REST: Final = "compute"

_UNORDERED: Final = 2**64 - 1  # the sequence number of nodes that only add up a leaf's gradient


class LayerPhases:
    """Charges the time of layers to the meter's phases `gnn` and `rnn`, the rest to `compute`.

    Forward: a covered method is a phase of its own; one within another counts for the inner one.
    Backward: autograd numbers its nodes as they are made, and its engine takes the ready node of
    the highest number first. As a node is made after those it feeds on, the backward pass runs
    through the numbers downwards, one by one. So it is enough to note the numbers between which a
    layer ran, and to turn the clock at the first node of each such stretch. Adding up a leaf's
    gradient belongs to the layer that made it.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._numbers: list[int] = []  # where a stretch begins, ascending
        self._names: list[str] = []  # the phase of each stretch
        self._open = REST

    def cover(self, owner: Any, method: str, phase: str) -> None:
        """Charge every call of this method of this one object to a phase."""
        plain = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            outer = self._open
            self._begin(phase)
            try:
                with self._meter.phase(phase):
                    return plain(*args, **kwargs)
            finally:
                self._begin(outer)

        setattr(owner, method, timed)

    def clear(self) -> None:
        """Forget the stretches of an earlier forward pass."""
        self._numbers.clear()
        self._names.clear()

    def mark(self, loss: Tensor) -> None:
        """Make the backward pass of `loss` turn the clock; call it outside of all phases."""
        open_phase = REST
        for number, node in sorted(_nodes(loss), key=lambda found: -found[0]):
            phase = self._phase(number)
            if phase != open_phase:
                node.register_prehook(_turning(partial(self._meter.turn, phase)))
                open_phase = phase

    def _begin(self, phase: str) -> None:
        self._open = phase
        self._numbers.append(torch.autograd._get_sequence_nr())
        self._names.append(phase)

    def _phase(self, number: int) -> str:
        i = bisect_right(self._numbers, number) - 1
        return REST if i < 0 else self._names[i]


def _turning(turn: Callable[[], None]) -> Callable[[Any], None]:
    def before(gradients: Any) -> None:
        turn()

    return before


def _nodes(loss: Tensor) -> list[tuple[int, Node]]:
    """(number, node) of the graph behind a tensor, without leaves; empty where there is none."""
    waiting = [] if loss.grad_fn is None else [loss.grad_fn]
    seen = set(waiting)
    found = []
    while waiting:
        node = waiting.pop()
        if (number := node._sequence_nr()) != _UNORDERED:
            found.append((number, node))
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                waiting.append(below)
    return found
