"""The LSTM backward pass without a record: gates are made again, part by part of the vertices."""

from __future__ import annotations

import pytest
import torch

from dgbench.kernels_cuda.scan import op as scan

STEPS, VERTICES, FEATURES, HIDDEN = 3, 23, 4, 5
SHAPES = [(STEPS, VERTICES, FEATURES), (FEATURES, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,),
          (VERTICES, HIDDEN), (VERTICES, HIDDEN)]  # fmt: skip


def inputs(device: str, states: bool) -> list[torch.Tensor | None]:
    random = torch.Generator().manual_seed(7)
    found = [torch.randn(shape, generator=random).to(device) for shape in SHAPES]
    return found if states else [*found[:4], None, None]


def expected(given: list[torch.Tensor | None], up: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [None if t is None else t.cpu().requires_grad_() for t in given]
    outputs = scan.lstm_scan(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None]
    return list(torch.autograd.grad(outputs, wanted, [u.cpu() for u in up]))


@pytest.mark.parametrize("states", [True, False])
def test_parts_add_up_to_the_whole(native, monkeypatch, states):
    given = inputs(native.device, states)
    random = torch.Generator().manual_seed(8)
    shapes = (STEPS, VERTICES, HIDDEN), (VERTICES, HIDDEN), (VERTICES, HIDDEN)
    up = [torch.randn(shape, generator=random).to(native.device) for shape in shapes]
    right = expected(given, up)
    monkeypatch.setattr(scan, "MIN_PART", 8)
    monkeypatch.setattr(scan, "MAX_PARTS", 3)
    if native.device == "cpu":
        monkeypatch.setattr(scan, "extension", lambda device: native.module)
        monkeypatch.setattr(scan, "call", lambda name, device, *a: native.call(name, *a))
        size = native.module.scan_record_size
        monkeypatch.setattr(
            scan, "_record", lambda x, w, gates, keep: x.new_empty(size(*scan._sizes(x, w, gates)))
        )
    needed = [t is not None for t in given]
    grads = scan._grads(given[0], given[1:], needed)
    scan._lstm_backward_in_parts(tuple(up), tuple(given), grads, needed)
    found = [g.cpu() for g, wanted in zip(grads, needed, strict=True) if wanted]
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_is_recomputed_is_what_would_be_recorded():
    random = torch.Generator().manual_seed(3)
    shapes = [(4, 9001, 6), (6, 32), (8, 32), (32,)]
    results = []
    for recompute in (False, True):
        leaves = [torch.randn(s, generator=random.manual_seed(3)).cuda() for s in shapes]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        every, last, cell = scan.lstm_scan(*leaves, recompute=recompute)
        (every.square().sum() + last.sum() + cell.sum()).backward()
        results.append((every, last, cell, *(leaf.grad for leaf in leaves)))
        results[-1] += (torch.cuda.max_memory_allocated() - held,)
    *recorded, much = results[0]
    *made_again, less = results[1]
    assert less < much
    for one, other in zip(recorded, made_again, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)
