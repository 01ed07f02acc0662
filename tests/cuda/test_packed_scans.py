"""The device's scans over packed rows against the host's, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import packed_gru_scan, packed_lstm_scan

CASES = [  # steps, rows, features, hidden, starts, shared memory, processors
    (5, 5, 4, 8, 6, None, 9),
    (4, 37, 3, 5, 20, None, 9),
    (6, 70, 6, 24, 0, None, 1),
    (6, 70, 5, 8, 33, 8000, 1),  # wide tiles, weights read through the caches
    (3, 20, 5, 24, 9, 6000, 1),  # small tiles, weights read through the caches
    (40, 30, 2, 4, 50, None, 1),  # more than one part of the weight gradients
    (1, 1, 1, 1, 1, None, 1),
]


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_packed_scans_and_their_gradients(native, gates, case, order, monkeypatch):
    steps, rows, features, hidden, starts, shared, processors = case
    if native.device == "cpu":
        monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
        if shared is not None:
            monkeypatch.setenv("EMULATED_SHARED", str(shared))
        if order == "reverse":
            monkeypatch.setenv("EMULATED_ORDER", "reverse")
    generator = torch.Generator().manual_seed(steps * 7 + rows)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights = [
        draw(features, gates * hidden) * 0.5,
        draw(hidden, gates * hidden) * 0.5,
        draw(gates * hidden),
    ]
    x = draw(steps, rows, features)
    kinds = torch.rand(steps, rows, generator=generator)
    begins = torch.where(kinds < 0.3, -2, -1).to(torch.int32)
    flat = begins.view(-1)
    place = torch.randperm(flat.numel(), generator=generator)[:starts]
    flat[place] = torch.arange(place.numel(), dtype=torch.int32)
    states = [draw(starts, hidden) for _ in range(gates - 2)]
    incoming = [draw(steps, rows, hidden) for _ in range(gates - 2)]

    leaves = [t.double().requires_grad_() for t in (x, *weights, *states)]
    host = (packed_gru_scan if gates == 3 else packed_lstm_scan)(*leaves[:4], begins, *leaves[4:])
    host = [host] if gates == 3 else list(host)
    loss = sum((o * g).sum() for o, g in zip(host, incoming, strict=True))
    expected = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)

    name = "gru" if gates == 3 else "lstm"
    sizes = (steps, rows, features, hidden, gates, 4)
    record = native.poisoned(native.module.scan_record_size(*sizes))
    workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
    given = [native.put(t) for t in (x, *weights)] + [None] * (gates - 2)  # no first states
    named = {"begins": native.put(begins)}
    named |= {k: native.put(s) for k, s in zip(("h_starts", "c_starts"), states, strict=False)}
    outputs = [native.poisoned(steps, rows, hidden) for _ in incoming]
    last = [native.poisoned(rows, hidden) for _ in incoming]
    ends = {"c_all": outputs[1]} if gates == 4 else {}
    native.call(f"{name}_scan_forward", *given, outputs[0], *last, record, **named, **ends)
    for found, exact in zip(outputs, host, strict=True):
        torch.testing.assert_close(found.cpu().double(), exact.detach(), rtol=2e-5, atol=2e-5)

    grads = [torch.full_like(t, math.nan) for t in given[:4]]
    to_starts = [torch.zeros_like(native.put(s)) for s in states]
    named |= {f"grad_{k}": g for k, g in zip(("h_starts", "c_starts"), to_starts, strict=False)}
    put = [native.put(g) for g in incoming]
    if gates == 4:
        named["grad_c_all"] = put[1]
    absent = [None] * (gates - 2)  # gradients of the last states, then of the first ones
    native.call(
        f"{name}_scan_backward",
        *given,
        record,
        put[0],
        *absent,
        *grads,
        *absent,
        workspace,
        **named,
    )
    for found, exact in zip([*grads, *to_starts], expected, strict=True):
        torch.testing.assert_close(found.cpu().double(), exact, rtol=1e-4, atol=1e-4)
