"""The dense half of GCN layers over a whole frame, with what follows it, as compiled operators.

PiPAD reuses a layer's weight for all snapshots of a frame (PPoPP 2023, section 4.2). On a CPU the
passes around the product cost more than the product: a frame of hidden rows leaves every cache, so
each separate activation, normalisation or gradient reads and writes it once more. Here a block of
rows is multiplied, cut off and summed up while it is in cache, forward and backward.

Float32 and float64 on the CPU, differentiable once, the same bits for every number of threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.workspace import scratch
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

EPS = 1e-5
"""Added to the variance, as `torch.nn.functional.batch_norm` does unless told otherwise."""


def frame_dense(a: Tensor, w: Tensor, relu: bool = False) -> Tensor:
    """a_t W_t for every snapshot t, or relu(a_t W_t).

    Args:
        a: float32 or float64 [T, N, F].
        w: [T, F, H].
        relu: cut off below zero.

    Returns:
        [T, N, H].

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit.
        UnsupportedError: tensors that are not on the CPU.
    """
    _check({"a": (a, 3), "w": (w, 3)})
    if list(w.shape[:2]) != [a.shape[0], a.shape[2]]:
        raise InvalidInputError(
            f"w has shape {list(w.shape)}, expected [{a.shape[0]}, {a.shape[2]}, H] for a "
            f"{list(a.shape)}"
        )
    return torch.ops.dgbench.frame_dense(a, w, relu)


def dense_norm(
    a: Tensor, w: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float = EPS
) -> Tensor:
    """Batch normalisation over all rows of relu(a W + bias), with its own mean and variance.

    Mean, variance and the sums of the gradient are joined in float64, so the result is nearer to
    float64 than that of torch's batch normalisation, which adds up float32 rows one by one.

    Args:
        a: float32 or float64 [..., F], two rows or more.
        w: [F, H].
        bias, gain, shift: [H].
        eps: added to the variance.

    Returns:
        [..., H].

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit, or fewer than two rows.
        UnsupportedError: tensors that are not on the CPU.
    """
    vectors = {"bias": bias, "gain": gain, "shift": shift}
    _check({"a": (a, a.dim()), "w": (w, 2)} | {name: (v, 1) for name, v in vectors.items()})
    if a.dim() < 2 or a.shape[-1] != w.shape[0]:
        raise InvalidInputError(f"a has shape {list(a.shape)}, expected [..., {w.shape[0]}]")
    for name, vector in vectors.items():
        if vector.shape[0] != w.shape[1]:
            raise InvalidInputError(
                f"{name} has shape {list(vector.shape)}, expected [{w.shape[1]}] for w "
                f"{list(w.shape)}"
            )
    flat = a.reshape(-1, a.shape[-1])
    if flat.shape[0] < 2:
        raise InvalidInputError(f"a has {flat.shape[0]} rows, two are needed for a variance")
    y, _, _ = torch.ops.dgbench.dense_norm(flat, w, bias, gain, shift, eps)
    return y.view(*a.shape[:-1], w.shape[1])


def _check(tensors: dict[str, tuple[Tensor, int]]) -> None:
    first = next(iter(tensors.values()))[0]
    for name, (tensor, dims) in tensors.items():
        if tensor.dim() != dims:
            raise InvalidInputError(
                f"{name} has shape {list(tensor.shape)}, expected {dims} dimensions"
            )
        if tensor.dtype not in FLOATS:
            raise InvalidInputError(f"{name} is {tensor.dtype}, allowed are float32 and float64")
        if tensor.device.type != "cpu":
            raise UnsupportedError(
                f"{name} is on '{tensor.device}', this operator is compiled for the CPU only",
                hint="use torch's own operators there",
            )
        if tensor.dtype != first.dtype:
            raise InvalidInputError(f"{name} is {tensor.dtype}, expected {first.dtype} as a")


# Registered the low-level way, which costs half of torch.library.custom_op per call.
_library = torch.library.Library("dgbench", "FRAGMENT")
_library.define("frame_dense(Tensor a, Tensor w, bool relu) -> Tensor")
_library.define(
    "frame_dense_backward(Tensor grad, Tensor out, Tensor a, Tensor w, bool relu, bool wants_a) "
    "-> (Tensor, Tensor)"
)
_library.define(
    "dense_norm(Tensor a, Tensor w, Tensor bias, Tensor gain, Tensor shift, float eps) "
    "-> (Tensor, Tensor, Tensor)"
)
_library.define(
    "dense_norm_backward(Tensor grad, Tensor hidden, Tensor a, Tensor w, Tensor gain, "
    "Tensor stats, bool wants_a) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _dense(*tensors: Tensor) -> list[Tensor]:
    return [t.detach().contiguous() for t in tensors]


def _frame_dense(a: Tensor, w: Tensor, relu: bool) -> Tensor:
    out = scratch.empty((a.shape[0], a.shape[1], w.shape[2]), a)
    call("frame_dense_forward", a.device, *_dense(a, w), relu, out)
    return out


def _fake_frame_dense(a: Tensor, w: Tensor, relu: bool) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], w.shape[2])


def _frame_dense_backward(
    grad: Tensor, out: Tensor, a: Tensor, w: Tensor, relu: bool, wants_a: bool
) -> tuple[Tensor, Tensor]:
    grad_a = scratch.empty(a.shape if wants_a else (0,), a)
    grad_w = w.new_empty(w.shape)
    wanted = grad_a if wants_a else None
    call("frame_dense_backward", a.device, *_dense(grad, out, a, w), relu, wanted, grad_w)
    return grad_a, grad_w


def _fake_frame_dense_backward(
    grad: Tensor, out: Tensor, a: Tensor, w: Tensor, relu: bool, wants_a: bool
) -> tuple[Tensor, Tensor]:
    return a.new_empty(a.shape if wants_a else (0,)), w.new_empty(w.shape)


def _keep_frame_dense(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, w, ctx.relu = inputs
    ctx.save_for_backward(output, a, w)


def _frame_dense_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    wants_a = ctx.needs_input_grad[0]
    grad_a, grad_w = torch.ops.dgbench.frame_dense_backward(
        grad, *ctx.saved_tensors, ctx.relu, wants_a
    )
    return grad_a if wants_a else None, grad_w, None


def _dense_norm(
    a: Tensor, w: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, hidden = (scratch.empty((a.shape[0], w.shape[1]), a) for _ in range(2))
    stats = a.new_empty((2, w.shape[1]), dtype=torch.float64)
    inputs = _dense(a, w, bias, gain, shift)
    call("dense_norm_forward", a.device, *inputs, eps, hidden, y, stats)
    return y, hidden, stats


def _fake_dense_norm(
    a: Tensor, w: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    shape = a.shape[0], w.shape[1]
    stats = a.new_empty((2, w.shape[1]), dtype=torch.float64)
    return a.new_empty(shape), a.new_empty(shape), stats


def _dense_norm_backward(
    grad: Tensor, hidden: Tensor, a: Tensor, w: Tensor, gain: Tensor, stats: Tensor, wants_a: bool
) -> tuple[Tensor, ...]:
    grads = _fake_dense_norm_backward(grad, hidden, a, w, gain, stats, False)
    grads = (scratch.empty(a.shape if wants_a else (0,), a), *grads[1:])
    grad = grad.detach()
    if grad.shape[1] > 1 and grad.stride(1) != 1:
        grad = grad.contiguous()
    inputs = _dense(hidden, a, w, gain, stats)
    wanted = grads[0] if wants_a else None
    call("dense_norm_backward", a.device, grad, *inputs, wanted, *grads[1:])
    return grads


def _fake_dense_norm_backward(
    grad: Tensor, hidden: Tensor, a: Tensor, w: Tensor, gain: Tensor, stats: Tensor, wants_a: bool
) -> tuple[Tensor, ...]:
    vectors = (gain.new_empty(gain.shape) for _ in range(3))
    return (a.new_empty(a.shape if wants_a else (0,)), w.new_empty(w.shape), *vectors)


def _keep_dense_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    a, w, _, gain, _, _ = inputs
    _, hidden, stats = output
    ctx.mark_non_differentiable(hidden, stats)
    ctx.save_for_backward(hidden, a, w, gain, stats)


def _dense_norm_gradient(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 6
    wants_a = ctx.needs_input_grad[0]
    grad_a, *others = torch.ops.dgbench.dense_norm_backward(grad, *ctx.saved_tensors, wants_a)
    return grad_a if wants_a else None, *others, None


for _name, _run, _fake in (
    ("frame_dense", _frame_dense, _fake_frame_dense),
    ("frame_dense_backward", _frame_dense_backward, _fake_frame_dense_backward),
    ("dense_norm", _dense_norm, _fake_dense_norm),
    ("dense_norm_backward", _dense_norm_backward, _fake_dense_norm_backward),
):
    _library.impl(_name, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dgbench::{_name}", _fake, lib=_library)
torch.library.register_autograd(
    "dgbench::frame_dense", _frame_dense_gradient, setup_context=_keep_frame_dense, lib=_library
)
torch.library.register_autograd(
    "dgbench::dense_norm", _dense_norm_gradient, setup_context=_keep_dense_norm, lib=_library
)
