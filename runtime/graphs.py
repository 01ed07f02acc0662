"""CUDA graphs: a fixed piece of work is recorded once and then launched with one call.

On small graphs a training step is mostly launches: a hundred small kernels of a few microseconds
each, every one of them started from Python. A captured graph starts them together (PiPAD, PPoPP
2023, section 4.4, uses it for the kernels outside the graph layers). Shapes and addresses in a
capture are fixed, so `CapturedStage` records one graph per combination of input shapes and copies
the inputs to where the graph reads them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from dgbench.runtime.errors import InvalidInputError, UnsupportedError

MAX_GRAPHS: Final = 32
"""Graphs that one stage keeps; each holds the memory of everything between its ends."""

MAX_COPIES: Final = 4
"""Graphs of the same shapes, for a stage that is called again before its backward pass."""

WARM_UPS: Final = 3
"""Calls of a function before its capture, so that libraries and kernels are loaded by then."""

Result: TypeAlias = Tensor | tuple[Tensor, ...]
Graphed = Callable[..., Result]


class _Slot:
    """One captured graph. Its results lie in memory that the next replay overwrites."""

    def __init__(self, graphed: Graphed) -> None:
        self.graphed = graphed
        self._node: weakref.ref | None = None

    @property
    def free(self) -> bool:
        """True if no autograd graph needs the results of the last replay any more."""
        return self._node is None or self._node() is None

    def __call__(self, *tensors: Tensor) -> Result:
        result = self.graphed(*tensors)
        outputs = result if isinstance(result, tuple) else (result,)
        node = next((o.grad_fn for o in outputs if o.grad_fn is not None), None)
        self._node = None if node is None else weakref.ref(node)
        return result


class CapturedStage:
    """A function of tensors that CUDA graphs may stand in for, forward and backward.

    Called on CUDA tensors with gradients wanted, it is captured at the first call of each
    combination of shapes and replayed from then on. In every other case (CPU, `enabled` off, no
    gradient wanted) the function is simply called, so results do not depend on it. A capture
    happens in the middle of training and waits for the device; other threads may go on using it.

    The function must take and return tensors only, launch the same work for the same shapes, and
    read nothing from the device. All tensors it depends on are arguments, parameters included:
    what it closes over is frozen into the graph. Parameters are read where they lie, everything
    else is copied in. During a capture the function is given an alias of each parameter (same
    memory, another tensor), and has to use that instead of the parameter.

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
        self._slots: dict[tuple[Any, ...], list[_Slot]] = {}

    def __call__(self, *tensors: Tensor) -> Result:
        """The function's result on `tensors`.

        Raises:
            InvalidInputError: an argument or a result that is not a tensor.
            UnsupportedError: the function could not be captured.
        """
        if not self.enabled:
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
        except InvalidInputError:
            raise
        except Exception as error:
            # Going on without a graph would be timed and shown as if there were one.
            raise UnsupportedError(
                f"the stage '{self.name}' could not be captured in a CUDA graph: "
                f"{type(error).__name__}: {error}",
                hint="switch CUDA graphs off to run it without",
            ) from error
        self.captures += 1
        slots.append(_Slot(graphed))
        return slots[-1]


def shape_key(tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Key that two calls must share to use the same graph.

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


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    """A function's forward and backward pass in two CUDA graphs, and what these read and write."""

    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph | None  # None where no result wants a gradient
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    grad_outputs: tuple[Tensor | None, ...]
    grad_inputs: tuple[Tensor | None, ...]


class _Replay(torch.autograd.Function):
    """One autograd node that launches a recording's forward graph, and its backward graph."""

    @staticmethod
    def forward(ctx: Any, recording: _Recording, *inputs: Tensor) -> tuple[Tensor, ...]:
        for place, given in zip(recording.inputs, inputs, strict=True):
            if place.data_ptr() != given.data_ptr():
                place.copy_(given)
        recording.forward.replay()
        ctx.recording = recording
        results = tuple(output.detach() for output in recording.outputs)
        constant = zip(results, recording.grad_outputs, strict=True)
        ctx.mark_non_differentiable(*(result for result, grad in constant if grad is None))
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        recording = ctx.recording
        for place, given in zip(recording.grad_outputs, grads, strict=True):
            if place is not None and place.data_ptr() != given.data_ptr():
                place.copy_(given)
        if recording.backward is not None:
            recording.backward.replay()
        return None, *(None if g is None else g.detach() for g in recording.grad_inputs)


def capture(function: Callable[..., Result], samples: tuple[Tensor, ...]) -> Graphed:
    """Record forward and backward of `function` on a device; raises whatever breaks the capture.

    Unlike `torch.cuda.make_graphed_callables` it lets other threads use the device meanwhile, and
    gives the caller's stream back where the end of a capture raises.

    Args:
        function: tensors -> a tensor or a tuple of tensors.
        samples: what the graphs read; leaves of which no autograd graph exists yet, for the
            gradient of an older one belongs to the stream that was current at its first use.
    """
    with torch.cuda.device(samples[0].device):
        stream = capture_stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            recording, alone = _record(function, samples, stream)

    def graphed(*tensors: Tensor) -> Result:
        results = _Replay.apply(recording, *tensors)
        return results[0] if alone else results

    return graphed


@functools.cache
def capture_stream(device: int) -> torch.cuda.Stream:
    """The stream of all captures on a device; libraries keep memory for every stream they see."""
    return torch.cuda.Stream(device)


def _record(
    function: Callable[..., Result], samples: tuple[Tensor, ...], stream: torch.cuda.Stream
) -> tuple[_Recording, bool]:
    """The recording, and whether the function gives one tensor instead of a tuple."""
    leaves = [sample for sample in samples if sample.requires_grad]

    def gradients(outputs: tuple[Tensor, ...], given: list[Tensor]) -> tuple[Tensor | None, ...]:
        wanted = [output for output in outputs if output.requires_grad]
        return torch.autograd.grad(wanted, leaves, given, allow_unused=True)

    for _ in range(WARM_UPS):
        outputs, alone = outputs_of(function(*samples))
        given = [torch.empty_like(output) for output in outputs if output.requires_grad]
        if given:
            gradients(outputs, given)
        del outputs
    # What another thread does is no part of a capture and does not end it: work of this thread
    # alone is held to the rules.
    options = {
        "pool": torch.cuda.graph_pool_handle(),
        "stream": stream,
        "capture_error_mode": "thread_local",
    }
    forward = torch.cuda.CUDAGraph()
    with torch.cuda.graph(forward, **options):
        outputs, alone = outputs_of(function(*samples))
    grad_outputs = tuple(torch.empty_like(o) if o.requires_grad else None for o in outputs)
    given = [grad for grad in grad_outputs if grad is not None]
    backward, found = None, (None,) * len(leaves)
    if given:
        backward = torch.cuda.CUDAGraph()
        with torch.cuda.graph(backward, **options):
            found = gradients(outputs, given)
    rest = iter(found)
    grads = tuple(next(rest) if sample.requires_grad else None for sample in samples)
    return _Recording(forward, backward, samples, outputs, grad_outputs, grads), alone


def outputs_of(result: Result) -> tuple[tuple[Tensor, ...], bool]:
    """The tensors that a stage's function gave, and whether it gave one that is in no tuple.

    Raises:
        InvalidInputError: something else is among them.
    """
    outputs = result if isinstance(result, tuple) else (result,)
    for i, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise InvalidInputError(
                f"result {i} of a stage is a {type(output).__name__}, expected a torch.Tensor"
            )
    return outputs, not isinstance(result, tuple)


def on_device(tensors: tuple[Tensor, ...]) -> bool:
    """Return True if all tensors are on CUDA devices."""
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
    """Tensor that the graph reads in place of `tensor`: a parameter's own memory, otherwise a copy.

    A copy, because the memory of an ordinary tensor is given to others once it is dropped. Of a
    parameter never the tensor itself: while an autograd graph of an earlier stage is alive, its
    gradient is accumulated on the stream of that stage, by default one that no capture may touch,
    and the capture of the backward pass would be invalidated.
    """
    own = tensor.detach()
    if not isinstance(tensor, nn.Parameter):
        own = own.clone()
    return own.requires_grad_(tensor.requires_grad)
