"""Recurrent scans: all T steps of a GRU or an LSTM over all vertices in one compiled call.

Once features are aggregated, vertices no longer exchange anything, so a block of vertices can run
through the whole frame while its state stays in cache: one pass over x, no intermediate in memory.
This is the point where PiPAD (PPoPP 2023, section 4.2) reuses the weights across the snapshots of a
frame, carried to its end. The backward pass makes states and gates again, block by block, from x.

Both operators are differentiable in every tensor argument (once), run on float32, on the CPU also
on float64, and give the same bits for every number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda._checks import FLOATS
from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.scan.products import number_of
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

GRU_GATES = 3
"""z, r, c."""
LSTM_GATES = 4
"""i, f, g, o."""


def gru_scan(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None = None,
    all_steps: bool = False,
    *,
    products: str | None = None,
) -> tuple[Tensor | None, Tensor]:
    """Run the GRU of the temporal graph convolutional network (T-GCN, section 3.3) over a frame.

    z = σ(x Wz + h Uz + bz), r likewise, c = tanh(x Wc + (r * h) Uc + bc), h' = z * h + (1 - z) * c.

    Args:
        x: float32 or float64 [T, N, F]. Any stride between steps and between vertices is read in
            place, so a permuted [N, T, F] costs no copy; features must be adjacent, else x is
            copied.
        w_in: [F, 3 H], columns in the order z, r, c.
        w_hid: [H, 3 H], columns as above.
        bias: [3 H].
        h0: [N, H], zero if absent.
        all_steps: also give the state after every step.
        products: on CUDA, how it multiplies (see `scan.products`).

    Returns:
        (h_all [T, N, H], or None without `all_steps`; h_last [N, H], which is h0 for T = 0).

    Raises:
        InvalidInputError: a shape, dtype, device or name that does not fit.
        UnsupportedError: a device without compiled operators, or float64 on CUDA.
    """
    _check(x, w_in, w_hid, bias, GRU_GATES, {"h0": h0})
    keep = _wants_grad(x, w_in, w_hid, bias, h0)
    h_all, h_last, _ = _gru(x, w_in, w_hid, bias, h0, all_steps, keep, number_of(products))
    return (h_all if all_steps else None), h_last


def lstm_scan(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None = None,
    c0: Tensor | None = None,
    all_steps: bool = True,
    *,
    recompute: bool = False,
    products: str | None = None,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Run an LSTM over a frame.

    i, f, o = σ(x W + h U + b), g = tanh(x W + h U + b), c' = f * c + i * g, h' = o * tanh(c').

    Args:
        x: float32 or float64 [T, N, F]; strides as in `gru_scan`.
        w_in: [F, 4 H], columns in the order i, f, g, o.
        w_hid: [H, 4 H], columns as above.
        bias: [4 H].
        h0: [N, H], zero if absent.
        c0: [N, H], zero if absent.
        all_steps: also give the state after every step.
        recompute: on CUDA, keep no gates (6 H floats per vertex and step) for the backward pass,
            which then makes them again for a part of the vertices at a time. The CPU always does.
        products: on CUDA, how it multiplies (see `scan.products`).

    Returns:
        (h_all [T, N, H], or None without `all_steps`; h_last [N, H]; c_last [N, H]).

    Raises:
        InvalidInputError: a shape, dtype, device or name that does not fit.
        UnsupportedError: a device without compiled operators, or float64 on CUDA.
    """
    _check(x, w_in, w_hid, bias, LSTM_GATES, {"h0": h0, "c0": c0})
    keep = not recompute and _wants_grad(x, w_in, w_hid, bias, h0, c0)
    h_all, h_last, c_last, _ = _lstm(
        x, w_in, w_hid, bias, h0, c0, all_steps, keep, number_of(products)
    )
    return (h_all if all_steps else None), h_last, c_last


def _wants_grad(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _check(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    gates: int,
    states: dict[str, Tensor | None],
) -> None:
    tensors = {"x": x, "w_in": w_in, "w_hid": w_hid, "bias": bias}
    tensors |= {name: state for name, state in states.items() if state is not None}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise InvalidInputError(
                f"{name} is a {type(tensor).__name__}, expected a torch.Tensor",
            )
    if x.dim() != 3:
        raise InvalidInputError(
            f"x has shape {list(x.shape)}, expected [T, N, F]",
            hint="stack the snapshots along a first dimension",
        )
    if x.dtype not in FLOATS:
        raise InvalidInputError(
            f"x is {x.dtype}, allowed are float32 and float64", hint="pass `x.float()`"
        )
    if x.dtype == torch.float64 and x.device.type == "cuda":
        raise UnsupportedError(
            "the scans have no float64 form on CUDA",
            hint="pass float32, or move the tensors to the CPU",
        )
    if w_hid.dim() != 2 or w_hid.shape[1] != gates * w_hid.shape[0]:
        raise InvalidInputError(
            f"w_hid has shape {list(w_hid.shape)}, expected [H, {gates} H]",
            hint=f"the {gates} gates stand side by side in the columns",
        )
    hidden = w_hid.shape[0]
    shapes = {
        "x": list(x.shape),
        "w_in": [x.shape[2], gates * hidden],
        "w_hid": [hidden, gates * hidden],
        "bias": [gates * hidden],
    }
    for name, tensor in tensors.items():
        shape = shapes.get(name, [x.shape[1], hidden])
        if list(tensor.shape) != shape:
            raise InvalidInputError(
                f"{name} has shape {list(tensor.shape)}, expected {shape} for x "
                f"{list(x.shape)} and w_hid {list(w_hid.shape)}"
            )
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise InvalidInputError(
                f"{name} is {tensor.dtype} on '{tensor.device}', expected {x.dtype} on "
                f"'{x.device}' as x"
            )


def _adjacent(x: Tensor) -> bool:
    return x.shape[2] <= 1 or x.stride(2) == 1


def _in(x: Tensor | None) -> Tensor | None:
    """A dense array without autograd history, as the extension takes it."""
    return None if x is None else x.detach().contiguous()


def _rows(x: Tensor) -> Tensor:
    return x.detach() if _adjacent(x) else x.detach().contiguous()


def _like_rows(x: Tensor) -> Tensor:
    grad = torch.empty_like(x)  # keeps the order of the dimensions of a permuted x
    return grad if _adjacent(grad) else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _sizes(x: Tensor, w_hid: Tensor, gates: int) -> tuple[int, ...]:
    steps, vertices, features = x.shape
    return steps, vertices, features, w_hid.shape[0], gates, x.element_size()


def _record(x: Tensor, w_hid: Tensor, gates: int, keep: bool) -> Tensor:
    """Allocate the record of the forward pass for the backward pass; empty on the CPU."""
    if not keep or x.device.type == "cpu":
        return x.new_empty(0)
    return x.new_empty(extension(x.device).scan_record_size(*_sizes(x, w_hid, gates)))


def _workspace(x: Tensor, w_hid: Tensor, gates: int) -> Tensor | None:
    count = extension(x.device).scan_workspace_size(*_sizes(x, w_hid, gates))
    return x.new_empty(count) if count else None


def _states(x: Tensor, w_hid: Tensor, all_steps: bool) -> tuple[Tensor, Tensor]:
    steps, vertices, hidden = x.shape[0], x.shape[1], w_hid.shape[0]
    h_all = x.new_empty((steps, vertices, hidden)) if all_steps else x.new_empty((0,))
    return h_all, x.new_empty((vertices, hidden))


def _multiplied(x: Tensor, products: int) -> dict[str, int]:
    """`products` as an argument by name, which the CPU's operators do not have."""
    return {} if x.device.type == "cpu" else {"products": products}


def _some(tensor: Tensor) -> Tensor | None:
    return tensor if tensor.numel() else None


# Registered the low-level way: a call costs half of what `torch.library.custom_op` takes, whose
# first one also loads the compiler of torch, most of a second in every process.
_library = torch.library.Library("dgbench", "FRAGMENT")

MIN_PART, MAX_PARTS = 4096, 32
"""Vertices whose gates a backward pass makes again at once, at least, and parts at most."""


def _operator(name: str, fake: Callable[..., Any]) -> Callable[[Callable], Callable]:
    """Register a function as the operator `dgbench::<name>` of every device."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _library.define(name + torch.library.infer_schema(function, mutates_args=()))
        _library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"dgbench::{name}", fake, lib=_library)
        return getattr(torch.ops.dgbench, name).default

    return register


def _fake_gru(x, w_in, w_hid, bias, h0, all_steps, keep, products):
    return (*_states(x, w_hid, all_steps), _record(x, w_hid, GRU_GATES, keep))


def _fake_lstm(x, w_in, w_hid, bias, h0, c0, all_steps, keep, products):
    h_all, h_last = _states(x, w_hid, all_steps)
    return h_all, h_last, torch.empty_like(h_last), _record(x, w_hid, LSTM_GATES, keep)


def _fake_gru_backward(grad_h_all, grad_h_last, x, w_in, w_hid, bias, h0, record, needed, products):
    return _grads(x, [w_in, w_hid, bias, h0], needed)


def _fake_lstm_backward(
    grad_h_all, grad_h_last, grad_c_last, x, w_in, w_hid, bias, h0, c0, record, needed, products
):
    return _grads(x, [w_in, w_hid, bias, h0, c0], needed)


@_operator("gru_scan", _fake_gru)
def _gru(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    all_steps: bool,
    keep: bool,
    products: int,
) -> tuple[Tensor, Tensor, Tensor]:
    h_all, h_last = _states(x, w_hid, all_steps)
    record = _record(x, w_hid, GRU_GATES, keep)
    call(
        "gru_scan_forward",
        x.device,
        _rows(x),
        _in(w_in),
        _in(w_hid),
        _in(bias),
        _in(h0),
        h_all if all_steps else None,
        h_last,
        _some(record),
        **_multiplied(x, products),
    )
    return h_all, h_last, record


@_operator("lstm_scan", _fake_lstm)
def _lstm(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    all_steps: bool,
    keep: bool,
    products: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    h_all, h_last = _states(x, w_hid, all_steps)
    c_last = torch.empty_like(h_last)
    record = _record(x, w_hid, LSTM_GATES, keep)
    call(
        "lstm_scan_forward",
        x.device,
        _rows(x),
        _in(w_in),
        _in(w_hid),
        _in(bias),
        _in(h0),
        _in(c0),
        h_all if all_steps else None,
        h_last,
        c_last,
        _some(record),
        **_multiplied(x, products),
    )
    return h_all, h_last, c_last, record


def _grads(x: Tensor, dense: list[Tensor | None], needed: list[bool]) -> list[Tensor]:
    """Room for the gradients of x and of the dense inputs; an empty one where none is needed."""
    out = [_like_rows(x) if needed[0] else x.new_empty(0)]
    for tensor, wanted in zip(dense, needed[1:], strict=True):
        if wanted and tensor is not None:
            out.append(torch.empty(tensor.shape, dtype=x.dtype, device=x.device))
        else:
            out.append(x.new_empty(0))
    return out


def _wanted(grads: list[Tensor], needed: list[bool]) -> list[Tensor | None]:
    return [g if wanted else None for g, wanted in zip(grads, needed, strict=True)]


@_operator("gru_scan_backward", _fake_gru_backward)
def _gru_backward(
    grad_h_all: Tensor | None,
    grad_h_last: Tensor | None,
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    record: Tensor,
    needed: list[bool],
    products: int,
) -> list[Tensor]:
    grads = _grads(x, [w_in, w_hid, bias, h0], needed)
    call(
        "gru_scan_backward",
        x.device,
        _rows(x),
        _in(w_in),
        _in(w_hid),
        _in(bias),
        _in(h0),
        _some(record),
        _in(grad_h_all),
        _in(grad_h_last),
        *_wanted(grads, needed),
        _workspace(x, w_hid, GRU_GATES),
        **_multiplied(x, products),
    )
    return grads


@_operator("lstm_scan_backward", _fake_lstm_backward)
def _lstm_backward(
    grad_h_all: Tensor | None,
    grad_h_last: Tensor | None,
    grad_c_last: Tensor | None,
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    record: Tensor,
    needed: list[bool],
    products: int,
) -> list[Tensor]:
    grads = _grads(x, [w_in, w_hid, bias, h0, c0], needed)
    if x.device.type != "cpu" and record.numel() == 0 and x.shape[0] * x.shape[1] > 0:
        steps = (grad_h_all, grad_h_last, grad_c_last)
        _lstm_backward_in_parts(
            steps, (x, w_in, w_hid, bias, h0, c0), grads, needed, **_multiplied(x, products)
        )
        return grads
    call(
        "lstm_scan_backward",
        x.device,
        _rows(x),
        _in(w_in),
        _in(w_hid),
        _in(bias),
        _in(h0),
        _in(c0),
        _some(record),
        _in(grad_h_all),
        _in(grad_h_last),
        _in(grad_c_last),
        *_wanted(grads, needed),
        _workspace(x, w_hid, LSTM_GATES),
        **_multiplied(x, products),
    )
    return grads


def _lstm_backward_in_parts(
    given: tuple[Tensor | None, ...],
    inputs: tuple[Tensor | None, ...],
    grads: list[Tensor],
    needed: list[bool],
    **products: int,
) -> None:
    """The gradients of `lstm_scan` without its record: gates are made again, part by part.

    Args:
        given: the gradients of h_all, h_last and c_last.
        inputs: x, w_in, w_hid, bias, h0, c0.
        grads: room for theirs; needed: which are wanted.
        products: how recurrences multiply, as `_multiplied` gives it.
    """
    x, weights = _rows(inputs[0]), [_in(w) for w in inputs[1:4]]
    states, grad_states = [_in(s) for s in inputs[4:]], [_in(g) for g in given[1:]]
    vertices, w_hid = x.shape[1], weights[1]
    length = max(MIN_PART, -(-vertices // MAX_PARTS))
    for begin in range(0, vertices, length):
        part = slice(begin, begin + length)
        here = x[:, part]
        h_last = x.new_empty(here.shape[1], w_hid.shape[0])
        record = _record(here, w_hid, LSTM_GATES, True)
        of_part = [None if s is None else s[part] for s in states]
        call(
            "lstm_scan_forward", x.device, here, *weights, *of_part, None, h_last,
            torch.empty_like(h_last), record, **products,
        )  # fmt: skip
        out = [grads[0][:, part] if needed[0] else None]
        # Sums over vertices: those of later parts are added to those of the first.
        sums = grads[1:4] if begin == 0 else [torch.empty_like(g) for g in grads[1:4]]
        out += _wanted(sums, needed[1:4])
        out += [
            g[part] if wanted else None for g, wanted in zip(grads[4:], needed[4:], strict=True)
        ]
        call(
            "lstm_scan_backward", x.device, here, *weights, *of_part, record,
            None if given[0] is None else given[0].detach()[:, part].contiguous(),
            *(None if g is None else g[part] for g in grad_states), *out,
            _workspace(here, w_hid, LSTM_GATES), **products,
        )  # fmt: skip
        if begin > 0:
            for total, more, wanted in zip(grads[1:4], sums, needed[1:4], strict=True):
                if wanted:
                    total += more


def _setup_gru(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)  # else an unused h_all would bring zeros of its size
    ctx.save_for_backward(*inputs[:5], output[-1])
    ctx.products = inputs[-1]


def _differentiate_gru(ctx, grad_h_all, grad_h_last, _record):
    *inputs, record = ctx.saved_tensors
    needed = [bool(n) for n in ctx.needs_input_grad[:5]]
    grads = _gru_backward(
        _step_grads(grad_h_all), grad_h_last, *inputs, record, needed, ctx.products
    )
    return (*_wanted(grads, needed), None, None, None)


def _setup_lstm(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6], output[-1])
    ctx.products = inputs[-1]


def _differentiate_lstm(ctx, grad_h_all, grad_h_last, grad_c_last, _record):
    *inputs, record = ctx.saved_tensors
    needed = [bool(n) for n in ctx.needs_input_grad[:6]]
    grads = _lstm_backward(
        _step_grads(grad_h_all), grad_h_last, grad_c_last, *inputs, record, needed, ctx.products
    )
    return (*_wanted(grads, needed), None, None, None)


def _step_grads(grad: Tensor | None) -> Tensor | None:
    return grad if grad is not None and grad.dim() == 3 else None


torch.library.register_autograd(
    "dgbench::gru_scan", _differentiate_gru, setup_context=_setup_gru, lib=_library
)
torch.library.register_autograd(
    "dgbench::lstm_scan", _differentiate_lstm, setup_context=_setup_lstm, lib=_library
)
