"""Recurrent scans over packed rows: several sequences one behind the other in each row.

Temporal fusion of DGC (section 5.1.2) concatenates short sequences instead of padding them to the
longest. Where a sequence begins, the state before it must not reach it; the paper masks the state
in one gate, but a GRU would still pass it through its reset gate and its mixing, an LSTM through
its cell. Here the state itself is replaced before a step reads it, so every use is masked, forward
and backward, and the results equal those of each sequence run alone.

A sequence begins from zero or from a given state, such as one that another worker sent. The rest
is as in `scan`: differentiable once in every floating tensor, float32, on the CPU also float64, the
same bits for every number of threads.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from dgbench.kernels_cuda._dispatch import call
from dgbench.kernels_cuda.scan import op as scan
from dgbench.kernels_cuda.scan.op import GRU_GATES, LSTM_GATES
from dgbench.kernels_cuda.scan.products import number_of
from dgbench.runtime.errors import InvalidInputError

CONTINUES = -1
"""In `begins`: the sequence goes on."""
FROM_ZERO = -2
"""In `begins`: a sequence begins, its state is zero."""


def packed_gru_scan(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None = None,
    *,
    products: str | None = None,
) -> Tensor:
    """Run the GRU of `scan.gru_scan` over packed rows.

    Args:
        x: float32 or float64 [T, N, F]: N rows of T steps; strides as in `gru_scan`.
        w_in: [F, 3 H], columns in the order z, r, c.
        w_hid: [H, 3 H], columns as above.
        bias: [3 H].
        begins: [T, N]. bool or uint8: 1 where a sequence begins, from zero. Or int32: CONTINUES,
            FROM_ZERO, or k >= 0 where a sequence begins from row k of `h_starts`; a row of it
            serves one sequence at most. The first step of a row begins from zero also where it
            says CONTINUES.
        h_starts: [S, H], states that sequences begin from.
        products: on CUDA, how it multiplies (see `scan.products`).

    Returns:
        The state after every step, [T, N, H].

    Raises:
        InvalidInputError: a shape, dtype or device that does not fit, or a number in `begins` that
            is not allowed.
        UnsupportedError: a device without compiled operators, or float64 on CUDA.
    """
    scan._check(x, w_in, w_hid, bias, GRU_GATES, {})
    begins = _checked_begins(begins, x, w_hid, {"h_starts": h_starts})
    keep = scan._wants_grad(x, w_in, w_hid, bias, h_starts)
    return _gru(x, w_in, w_hid, bias, begins, h_starts, keep, number_of(products))[0]


def packed_lstm_scan(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None = None,
    c_starts: Tensor | None = None,
    *,
    products: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the LSTM of `scan.lstm_scan` over packed rows.

    Args:
        x: float32 or float64 [T, N, F]: N rows of T steps.
        w_in: [F, 4 H], columns in the order i, f, g, o.
        w_hid: [H, 4 H], columns as above.
        bias: [4 H].
        begins: [T, N], as in `packed_gru_scan`.
        h_starts, c_starts: [S, H] each, given together: the states that sequences begin from.
        products: as in `packed_gru_scan`.

    Returns:
        (h, c) after every step, [T, N, H] each.

    Raises:
        InvalidInputError: as in `packed_gru_scan`, or one of `h_starts` and `c_starts` alone.
        UnsupportedError: a device without compiled operators, or float64 on CUDA.
    """
    scan._check(x, w_in, w_hid, bias, LSTM_GATES, {})
    if (h_starts is None) != (c_starts is None):
        missing = "h_starts" if h_starts is None else "c_starts"
        raise InvalidInputError(
            f"{missing} is None, expected a tensor beside the other one",
            hint="a sequence that begins from a state needs both h and c",
        )
    begins = _checked_begins(begins, x, w_hid, {"h_starts": h_starts, "c_starts": c_starts})
    keep = scan._wants_grad(x, w_in, w_hid, bias, h_starts, c_starts)
    h_all, c_all, _ = _lstm(
        x, w_in, w_hid, bias, begins, h_starts, c_starts, keep, number_of(products)
    )
    return h_all, c_all


_known: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""Of an int32 `begins` that was looked through: its version and the starts it allows."""


def _checked_begins(
    begins: Tensor, x: Tensor, w_hid: Tensor, starts: dict[str, Tensor | None]
) -> Tensor:
    """`begins` as dense int32, its numbers known to be allowed for `starts`."""
    if not isinstance(begins, Tensor):
        raise InvalidInputError(f"begins is a {type(begins).__name__}, expected a torch.Tensor")
    if begins.shape != x.shape[:2]:
        raise InvalidInputError(
            f"begins has shape {list(begins.shape)}, expected {list(x.shape[:2])} for x "
            f"{list(x.shape)}"
        )
    if begins.device != x.device:
        raise InvalidInputError(f"begins is on '{begins.device}', expected '{x.device}' as x")
    count, hidden = None, w_hid.shape[0]
    for name, tensor in starts.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise InvalidInputError(f"{name} is a {type(tensor).__name__}, expected a torch.Tensor")
        count = tensor.shape[0] if count is None and tensor.dim() else count
        if list(tensor.shape) != [count, hidden]:
            expected = ["S" if count is None else count, hidden]
            raise InvalidInputError(f"{name} has shape {list(tensor.shape)}, expected {expected}")
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise InvalidInputError(
                f"{name} is {tensor.dtype} on '{tensor.device}', expected {x.dtype} on "
                f"'{x.device}' as x"
            )
    if begins.dtype in (torch.bool, torch.uint8):
        return torch.where(begins != 0, FROM_ZERO, CONTINUES).to(torch.int32)
    if begins.dtype != torch.int32:
        raise InvalidInputError(
            f"begins is {begins.dtype}, allowed are bool, uint8 and int32",
            hint="`first.bool()` marks the first step of every sequence",
        )
    _check_numbers(begins, count or 0)
    return begins.contiguous()


def _check_numbers(begins: Tensor, starts: int) -> None:
    """Packed rows serve many epochs: looked through once, as that waits for a device."""
    if begins.numel() == 0 or begins.is_meta:
        return
    if _known.get(begins) == (begins._version, starts):
        return
    low, high = (int(v) for v in torch.aminmax(begins))
    if low < FROM_ZERO or high >= starts:
        raise InvalidInputError(
            f"begins holds {low if low < FROM_ZERO else high}, allowed are {FROM_ZERO} (from "
            f"zero), {CONTINUES} (goes on) and rows of h_starts, of which there are {starts}"
        )
    if high >= 0:
        uses = torch.bincount(begins[begins >= 0].long())
        if int(uses.max()) > 1:
            raise InvalidInputError(
                f"begins starts {int(uses.max())} sequences from row {int(uses.argmax())} of "
                "h_starts, at most one is allowed",
                hint="repeat the row in h_starts",
            )
    _known[begins] = (begins._version, starts)


def _fake_gru(x, w_in, w_hid, bias, begins, h_starts, keep, products):
    h_all, _ = scan._states(x, w_hid, True)
    return h_all, scan._record(x, w_hid, GRU_GATES, keep)


def _fake_lstm(x, w_in, w_hid, bias, begins, h_starts, c_starts, keep, products):
    h_all, _ = scan._states(x, w_hid, True)
    return h_all, torch.empty_like(h_all), scan._record(x, w_hid, LSTM_GATES, keep)


def _fake_gru_backward(
    grad_h_all, x, w_in, w_hid, bias, begins, h_starts, record, needed, products
):
    return scan._grads(x, [w_in, w_hid, bias, h_starts], needed)


def _fake_lstm_backward(
    grad_h_all, grad_c_all, x, w_in, w_hid, bias, begins, h_starts, c_starts, record, needed,
    products,
):  # fmt: skip
    return scan._grads(x, [w_in, w_hid, bias, h_starts, c_starts], needed)


@scan._operator("packed_gru_scan", _fake_gru)
def _gru(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None,
    keep: bool,
    products: int,
) -> tuple[Tensor, Tensor]:
    h_all, h_last = scan._states(x, w_hid, True)
    record = scan._record(x, w_hid, GRU_GATES, keep)
    call(
        "gru_scan_forward",
        x.device,
        scan._rows(x),
        scan._in(w_in),
        scan._in(w_hid),
        scan._in(bias),
        None,
        h_all,
        h_last,
        scan._some(record),
        begins=begins,
        h_starts=scan._in(h_starts),
        **scan._multiplied(x, products),
    )
    return h_all, record


@scan._operator("packed_lstm_scan", _fake_lstm)
def _lstm(
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None,
    c_starts: Tensor | None,
    keep: bool,
    products: int,
) -> tuple[Tensor, Tensor, Tensor]:
    h_all, h_last = scan._states(x, w_hid, True)
    c_all = torch.empty_like(h_all)
    record = scan._record(x, w_hid, LSTM_GATES, keep)
    call(
        "lstm_scan_forward",
        x.device,
        scan._rows(x),
        scan._in(w_in),
        scan._in(w_hid),
        scan._in(bias),
        None,
        None,
        h_all,
        h_last,
        torch.empty_like(h_last),
        scan._some(record),
        begins=begins,
        h_starts=scan._in(h_starts),
        c_starts=scan._in(c_starts),
        c_all=c_all,
        **scan._multiplied(x, products),
    )
    return h_all, c_all, record


def _starts_grads(
    x: Tensor, dense: list[Tensor | None], needed: list[bool], states: int
) -> list[Tensor]:
    """Room as in `scan`; the last `states` hold starts, of which a row may serve no sequence."""
    grads = scan._grads(x, dense, needed)
    for grad in grads[len(grads) - states :]:
        grad.zero_()
    return grads


@scan._operator("packed_gru_scan_backward", _fake_gru_backward)
def _gru_backward(
    grad_h_all: Tensor | None,
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None,
    record: Tensor,
    needed: list[bool],
    products: int,
) -> list[Tensor]:
    grads = _starts_grads(x, [w_in, w_hid, bias, h_starts], needed, 1)
    *dense, to_h = scan._wanted(grads, needed)
    call(
        "gru_scan_backward",
        x.device,
        scan._rows(x),
        scan._in(w_in),
        scan._in(w_hid),
        scan._in(bias),
        None,
        scan._some(record),
        scan._in(grad_h_all),
        None,
        *dense,
        None,
        scan._workspace(x, w_hid, GRU_GATES),
        begins=begins,
        h_starts=scan._in(h_starts),
        grad_h_starts=to_h,
        **scan._multiplied(x, products),
    )
    return grads


@scan._operator("packed_lstm_scan_backward", _fake_lstm_backward)
def _lstm_backward(
    grad_h_all: Tensor | None,
    grad_c_all: Tensor | None,
    x: Tensor,
    w_in: Tensor,
    w_hid: Tensor,
    bias: Tensor,
    begins: Tensor,
    h_starts: Tensor | None,
    c_starts: Tensor | None,
    record: Tensor,
    needed: list[bool],
    products: int,
) -> list[Tensor]:
    grads = _starts_grads(x, [w_in, w_hid, bias, h_starts, c_starts], needed, 2)
    *dense, to_h, to_c = scan._wanted(grads, needed)
    call(
        "lstm_scan_backward",
        x.device,
        scan._rows(x),
        scan._in(w_in),
        scan._in(w_hid),
        scan._in(bias),
        None,
        None,
        scan._some(record),
        scan._in(grad_h_all),
        None,
        None,
        *dense,
        None,
        None,
        scan._workspace(x, w_hid, LSTM_GATES),
        begins=begins,
        h_starts=scan._in(h_starts),
        c_starts=scan._in(c_starts),
        grad_c_all=scan._in(grad_c_all),
        grad_h_starts=to_h,
        grad_c_starts=to_c,
        **scan._multiplied(x, products),
    )
    return grads


def _setup_gru(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:6], output[-1])
    ctx.products = inputs[-1]


def _differentiate_gru(ctx, grad_h_all, _record):
    *inputs, record = ctx.saved_tensors
    wants = ctx.needs_input_grad
    needed = [bool(wants[i]) for i in (0, 1, 2, 3, 5)]
    grads = _gru_backward(grad_h_all, *inputs, record, needed, ctx.products)
    *dense, starts = scan._wanted(grads, needed)
    return (*dense, None, starts, None, None)


def _setup_lstm(ctx, inputs, output) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], output[-1])
    ctx.products = inputs[-1]


def _differentiate_lstm(ctx, grad_h_all, grad_c_all, _record):
    *inputs, record = ctx.saved_tensors
    wants = ctx.needs_input_grad
    needed = [bool(wants[i]) for i in (0, 1, 2, 3, 5, 6)]
    grads = _lstm_backward(grad_h_all, grad_c_all, *inputs, record, needed, ctx.products)
    *dense, h_starts, c_starts = scan._wanted(grads, needed)
    return (*dense, None, h_starts, c_starts, None, None)


torch.library.register_autograd(
    "dgbench::packed_gru_scan", _differentiate_gru, setup_context=_setup_gru, lib=scan._library
)
torch.library.register_autograd(
    "dgbench::packed_lstm_scan", _differentiate_lstm, setup_context=_setup_lstm, lib=scan._library
)
