"""EvolveGCN-O's weight evolution over a frame in one compiled call, with its gradient.

A step of the GRU form is a dozen products and element-wise operations on a matrix of a few kB, and
a frame has two layers of W steps: as single torch operations they cost far more than the graph work
of a small graph. The source of the model is Pareja et al., AAAI 2020, section 3.3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


def evolve_gru(
    initial: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, steps: int
) -> Tensor:
    """Weights of `steps` snapshots by `torch.nn.GRUCell`, the weight being input and hidden state.

    Differentiable in every tensor argument, once. Results do not depend on the number of threads.
    On CUDA any number of steps is one launch forward and four backward, and one more each where
    the gates are beyond the shared memory of a block.

    Args:
        initial: float32, on the CPU also float64, [M, O], the weight before the first step; its
            rows are the batch of the cell.
        w_ih, w_hh: [3 O, O], gates r, z, n in rows, as in `torch.nn.GRUCell`.
        b_ih, b_hh: [3 O].
        steps: T, 0 or more.

    Returns:
        [T, M, O]; the first is one step past `initial`.

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
        UnsupportedError: a device without compiled operators, or float64 on CUDA.
    """
    _check(initial, w_ih, w_hh, b_ih, b_hh, steps)
    return torch.ops.dgbench.evolve_gru(initial, w_ih, w_hh, b_ih, b_hh, steps)


def _check(
    initial: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, steps: int
) -> None:
    if initial.dim() != 2:
        raise InvalidInputError(f"initial has shape {list(initial.shape)}, expected [M, O]")
    if initial.dtype not in FLOATS:
        raise InvalidInputError(f"initial is {initial.dtype}, allowed are float32 and float64")
    if initial.device.type != "cpu" and initial.dtype != torch.float32:
        raise UnsupportedError(
            f"evolve_gru takes float32 on '{initial.device}', initial is {initial.dtype}",
            hint="pass float32, or use the model's own `evolve`",
        )
    if steps < 0:
        raise InvalidInputError(f"steps must be at least 0, got {steps}")
    out = initial.shape[1]
    wanted = {
        "w_ih": (w_ih, [3 * out, out]),
        "w_hh": (w_hh, [3 * out, out]),
        "b_ih": (b_ih, [3 * out]),
        "b_hh": (b_hh, [3 * out]),
    }
    for name, (tensor, shape) in wanted.items():
        if list(tensor.shape) != shape:
            raise InvalidInputError(
                f"{name} has shape {list(tensor.shape)}, expected {shape} for initial "
                f"{list(initial.shape)}"
            )
        if tensor.dtype != initial.dtype or tensor.device != initial.device:
            raise InvalidInputError(
                f"{name} is {tensor.dtype} on '{tensor.device}', expected {initial.dtype} on "
                f"'{initial.device}' as initial"
            )


_library = torch.library.Library("dgbench", "FRAGMENT")
_ARGUMENTS = "Tensor initial, Tensor w_ih, Tensor w_hh, Tensor b_ih, Tensor b_hh"
_library.define(f"evolve_gru({_ARGUMENTS}, SymInt steps) -> Tensor")
_library.define(
    f"evolve_gru_backward({_ARGUMENTS}, Tensor weights, Tensor grad) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _dense(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    return [t.detach().contiguous() for t in tensors]


def _workspace(weights: Tensor, backward: bool) -> list[Tensor]:
    """Memory that a device needs beside its results: the last argument of its operators."""
    if weights.device.type == "cpu":
        return []
    size = extension(weights.device).evolve_workspace_size(*weights.shape, backward)
    return [weights.new_empty(size)]


def _forward(*arguments: Any) -> Tensor:
    *tensors, _steps = arguments
    weights = _fake_forward(*arguments)
    scratch = _workspace(weights, backward=False)
    call("evolve_gru_forward", weights.device, *_dense(tuple(tensors)), weights, *scratch)
    return weights


def _fake_forward(*arguments: Any) -> Tensor:
    return arguments[0].new_empty((arguments[5], *arguments[0].shape))


def _backward(*tensors: Tensor) -> tuple[Tensor, ...]:
    grads = _fake_backward(*tensors)
    scratch = _workspace(tensors[5], backward=True)
    call("evolve_gru_backward", grads[0].device, *_dense(tensors), *grads, *scratch)
    return grads


def _fake_backward(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in tensors[:5])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:5], output)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return (*torch.ops.dgbench.evolve_gru_backward(*ctx.saved_tensors, grad), None)


_library.impl("evolve_gru", _forward, "CompositeExplicitAutograd")
_library.impl("evolve_gru_backward", _backward, "CompositeExplicitAutograd")
torch.library.register_fake("dgbench::evolve_gru", _fake_forward, lib=_library)
torch.library.register_fake("dgbench::evolve_gru_backward", _fake_backward, lib=_library)
torch.library.register_autograd("dgbench::evolve_gru", _gradient, setup_context=_keep, lib=_library)
