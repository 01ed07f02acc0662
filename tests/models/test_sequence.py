"""Attention over packed rows against a loop, and what models cut for chunks refuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from dense_frames import DenseFrame

from dgbench.models import (
    Starts,
    attention,
    build_model,
    packed_attention,
)  # fmt: skip
from dgbench.runtime.errors import InvalidInputError, UnsupportedError


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("at_once", [1, 100])
def test_attention_over_packed_rows_is_a_loop(causal, heads, at_once, monkeypatch):
    monkeypatch.setattr(attention, "PAIRS_AT_ONCE", at_once)
    draw = torch.Generator().manual_seed(heads)
    q, k, v = (torch.randn(6, 3, 4, generator=draw).double().requires_grad_() for _ in range(3))
    sequence = torch.tensor([[0, 2, 4], [0, 2, 5], [0, 3, 6], [1, 3, 7], [1, 3, -1], [-1, 3, -1]])
    found = packed_attention(q, k, v, sequence, heads=heads, causal=causal)
    width, exact = 4 // heads, {}
    for n in range(3):
        for t in range(6):
            if sequence[t, n] < 0:
                continue
            own = [
                s for s in range(6) if sequence[s, n] == sequence[t, n] and (s <= t or not causal)
            ]
            parts = []
            for h in range(heads):
                at = slice(h * width, (h + 1) * width)
                score = torch.stack([(q[t, n, at] * k[s, n, at]).sum() for s in own]) / width**0.5
                alpha = torch.softmax(score, 0)
                parts.append(sum(a * v[s, n, at] for a, s in zip(alpha, own, strict=True)))
            exact[t, n] = torch.cat(parts)
    for (t, n), value in exact.items():
        torch.testing.assert_close(found[t, n], value, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(sum(found[at].square().sum() for at in exact), [q, k, v])
    theirs = torch.autograd.grad(sum(e.square().sum() for e in exact.values()), [q, k, v])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_mistakes_are_named():
    build = partial(build_model, "dysat", feature_dim=2, hidden_dim=6, task="link")
    frame = DenseFrame.drawn(steps=5, nodes=7, width=2, seed=11)  # has no `attend`
    for error, words, call in (
        (InvalidInputError, "hidden_dim is 6", lambda: build(heads=4)),
        (InvalidInputError, "positions must be at least 0", lambda: build(positions=-1)),
        (UnsupportedError, "`attend`", lambda: build().double().forward_frame(frame, range(5))),
        (InvalidInputError, "3 positions",
         lambda: build(positions=3).temporal(torch.zeros(5, 1, 6))),
        (InvalidInputError, "carries no state",
         lambda: build().temporal(torch.zeros(2, 1, 6), None, Starts(torch.zeros(2, 1), ()))),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()
