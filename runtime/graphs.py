"""CUDA graphs: a fixed piece of work is recorded once and then launched with one call.

On small graphs a training step is mostly launches: a hundred small kernels of a few microseconds
each, every one of them started from Python. A captured graph starts them together (PiPAD, PPoPP
2023, section 4.4, uses it for the kernels outside the graph layers). Shapes and addresses in a
capture are fixed, so `Stage` records one graph per combination of input shapes and copies the
inputs to where the graph reads them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from dgbench.runtime.errors import InvalidInputError

MAX_GRAPHS: Final = 32
"""Graphs that one stage keeps; each holds the memory of everything between its ends."""

MAX_COPIES: Final = 4
"""Graphs of the same shapes, for a stage that is called again before its backward pass."""

Result: TypeAlias = Tensor | tuple[Tensor, ...]
Graphed = Callable[..., Result]


class _Slot:
    """One captured graph. Its results lie in memory that the next replay overwrites."""

    def __init__(self, graphed: Graphed) -> None:
        self.graphed = graphed
        self._node: weakref.ref | None = None

    @property
    def free(self) -> bool:
        """Whether no autograd graph needs the results of the last replay any more."""
        return self._node is None or self._node() is None

    def __call__(self, *tensors: Tensor) -> Result:
        result = self.graphed(*tensors)
        outputs = result if isinstance(result, tuple) else (result,)
        node = next((o.grad_fn for o in outputs if o.grad_fn is not None), None)
        self._node = None if node is None else weakref.ref(node)
        return result


class Stage:
    """A function of tensors that CUDA graphs may stand in for, forward and backward.

    Called on CUDA tensors with gradients wanted, it is captured at the first call of each
    combination of shapes and replayed from then on. In every other case (CPU, `enabled` off, no
    gradient wanted, a failed capture) the function is simply called, so results do not depend on
    it. A capture happens in the middle of training: it waits for the device, and no other thread
    may launch CUDA work meanwhile.

    The function must take and return tensors only, launch the same work for the same shapes, and
    read nothing from the device. All tensors it depends on are arguments, parameters included:
    what it closes over is frozen into the graph. Parameters are read where they lie, everything
    else is copied in.

    Results and gradients lie in the graph's own memory. A replay overwrites them as soon as
    nothing of the last result's autograd graph is alive, so they must not be kept beyond a step
    by `detach`, and gradients are to be dropped between steps (`zero_grad(set_to_none=True)`), not
    added up over several.

    Args:
        function: tensors -> a tensor or a tuple of tensors.
        enabled: whether to capture at all.
        name: what the stage is called in `reason`.

    Attributes:
        reason: why the last call that wanted gradients was not served by a graph, "" where it was.
        captures: graphs recorded so far.
        replays: calls served by a graph so far.
    """

    def __init__(
        self, function: Callable[..., Result], *, enabled: bool = True, name: str = "stage"
    ) -> None:
        self.function = function
        self.name = name
        self.enabled = enabled
        self.reason = "" if enabled else "CUDA graphs are switched off"
        self.captures = 0
        self.replays = 0
        self._failed = False
        self._slots: dict[tuple[Any, ...], list[_Slot]] = {}

    def __call__(self, *tensors: Tensor) -> Result:
        """The function's result on `tensors`.

        Raises:
            InvalidInputError: an argument that is not a tensor.
        """
        if not self.enabled or self._failed:
            return self.function(*tensors)
        _check(tensors)
        if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            return self.function(*tensors)
        self.reason = _no_graph(tensors)
        slot = None if self.reason else self._slot(tensors)
        if slot is None:
            return self.function(*tensors)
        self.replays += 1
        return slot(*tensors)

    def reset(self) -> None:
        """Give up all graphs and the memory they hold; the next call captures again."""
        self._slots.clear()
        self._failed = False

    def _slot(self, tensors: tuple[Tensor, ...]) -> _Slot | None:
        """A free graph for these shapes, captured now if there is none; None with a reason."""
        slots = self._slots.setdefault(shape_key(tensors), [])
        for slot in slots:
            if slot.free:
                return slot
        if len(slots) == MAX_COPIES:
            self.reason = f"{self.name}: {MAX_COPIES} calls wait for their backward pass"
            return None
        if sum(map(len, self._slots.values())) >= MAX_GRAPHS:
            self.reason = f"{self.name}: {MAX_GRAPHS} graphs are kept already"
            return None
        try:
            graphed = capture(self.function, tuple(map(_sample, tensors)))
        except Exception as error:
            # Whatever broke the capture (a read of the device, an operator that cannot be
            # captured), the function itself still works; one try is enough.
            self._failed = True
            self._slots.clear()
            self.reason = f"{self.name}: capture failed: {type(error).__name__}: {error}"
            return None
        self.captures += 1
        slots.append(_Slot(graphed))
        return slots[-1]


def shape_key(tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """What two calls must have in common to share a graph.

    Shapes, dtypes, devices and which inputs want gradients; for a parameter also its address,
    because the graph reads it where it lies (a copy into it would overwrite another's values).
    """
    return tuple(
        (
            tuple(t.shape),
            t.dtype,
            t.device,
            t.requires_grad,
            t.data_ptr() if isinstance(t, nn.Parameter) else 0,
        )
        for t in tensors
    )


def capture(function: Callable[..., Result], samples: tuple[Tensor, ...]) -> Graphed:
    """Record forward and backward of `function`; raises whatever the capture raises."""
    return torch.cuda.make_graphed_callables(function, samples, allow_unused_input=True)


def on_device(tensors: tuple[Tensor, ...]) -> bool:
    """Whether all tensors lie on CUDA devices."""
    return all(t.is_cuda for t in tensors)


def _check(tensors: tuple[Tensor, ...]) -> None:
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            raise InvalidInputError(
                f"argument {i} of a stage is a {type(tensor).__name__}, expected a torch.Tensor",
                hint="bind other arguments with functools.partial",
            )


def _no_graph(tensors: tuple[Tensor, ...]) -> str:
    """Why these arguments cannot be served by a graph, or ""."""
    if not on_device(tensors):
        return "CUDA graphs need tensors on a CUDA device"
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return "a larger graph is being captured"
    return ""


def _sample(tensor: Tensor) -> Tensor:
    """What the graph reads in place of `tensor`: a parameter itself, else a copy of its own.

    A copy, because the memory of an ordinary tensor is given to others once it is dropped.
    """
    if isinstance(tensor, nn.Parameter):
        return tensor
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
