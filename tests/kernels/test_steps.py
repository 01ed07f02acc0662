"""Whole training steps against the models' own plain forward, torch's autograd and torch's Adam."""

from __future__ import annotations

import pytest
import torch
from csr_cases import csr_of
from device_cases import csr_where
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.steps import (
    Adam,
    FlatParameters,
    FrameProduct,
    evolvegcn_step,
    mpnn_lstm_step,
    tgcn_model_step,
)
from dgbench.models import build_model
from dgbench.runtime.errors import InvalidInputError

MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")
UPDATES = 3


class Frame:
    """Random snapshots with self edges among them, and what a plain model reads of them."""

    def __init__(self, steps, nodes, features, density, seed, dtype=torch.float64):
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)

        self.dtype, self.nodes = dtype, nodes
        self.edges = torch.rand(steps, nodes, nodes, generator=draw) < density
        self.row, self.col = normal(steps, nodes), normal(steps, nodes)
        self.x, self.target = normal(steps, nodes, features), normal(steps, nodes)
        loops = torch.eye(nodes, dtype=dtype)
        self.mixed = self.row[:, :, None] * (self.edges.to(dtype) + loops) * self.col[:, None, :]
        self.aggregated = self.mixed @ self.x

    def first(self, t):
        return self.aggregated[t]

    def apply(self, t, h):
        return self.mixed[t] @ h

    def raw(self, t):
        return self.x[t]

    def csr(self, t):
        return csr_where(self.edges[t])

    def product(self, group, width):
        made = FrameProduct(self.nodes, self.dtype)
        for first in range(0, len(self.x), group):
            times = range(first, min(first + group, len(self.x)))
            csrs = [self.csr(t) for t in times]
            parts = csrs[0] if len(times) == 1 else PartTopology.build(csrs)
            scales = (s[first : times.stop].t().contiguous() for s in (self.row, self.col))
            made.add(parts, *scales, width)
        return made


class Pair:
    """A plain model and the same one under compiled steps, on one frame."""

    def __init__(self, kind, frame, hidden, *, every=False, group=2, decay=0.0, rate=1e-2):
        self.kind, self.frame, self.hidden, self.every = kind, frame, hidden, every
        steps, _, features = frame.x.shape
        shape = {"feature_dim": features, "hidden_dim": hidden, "frame": steps, "seed": 5}
        self.plain, self.other = (
            build_model(kind, task="node", cell="gru", **shape).to(frame.dtype) for _ in range(2)
        )
        draw = torch.Generator().manual_seed(9)
        for one, same in zip(self.plain.parameters(), self.other.parameters(), strict=True):
            with torch.no_grad():  # no bias is zero, no gain one
                one.add_(0.1 * torch.randn(one.shape, generator=draw).to(one.dtype))
                same.copy_(one)
        self.optimiser = torch.optim.Adam(self.plain.parameters(), lr=rate, weight_decay=decay)
        named = dict(self.other.named_parameters())  # in the order in which steps take them
        self.names, self.flat = list(named), FlatParameters(list(named.values()))
        self.adam = Adam(rate, decay=decay)
        self.product = frame.product(group, 1 if kind == "evolvegcn" else hidden)

    def plain_step(self):
        self.optimiser.zero_grad()
        outputs = self.plain.forward_frame(self.frame, range(len(self.frame.x)))
        scored = list(zip(outputs, self.frame.target, strict=True))
        losses = [self.plain.head.loss(h, y) for h, y in scored[0 if self.every else -1 :]]
        loss = torch.stack(losses).mean()
        loss.backward()
        grads = {name: p.grad.clone() for name, p in self.plain.named_parameters()}
        self.optimiser.step()
        return float(loss.detach()), grads, outputs[-1].detach()

    def step(self, adam=None, output=None):
        frame, options = self.frame, {"adam": adam, "output": output}
        if self.kind == "mpnn_lstm":
            given = (frame.aggregated, frame.x, self.product, frame.target[-1], self.hidden)
            return mpnn_lstm_step(self.flat, *given, **options)
        step, product = tgcn_model_step, ()
        if self.kind == "evolvegcn":
            step, product = evolvegcn_step, (self.product,)
        given = (frame.aggregated, *product, frame.target, self.hidden)
        return step(self.flat, *given, every=self.every, **options)

    def output(self):
        return self.frame.x.new_empty(self.frame.nodes, self.other.output_dim)


@given(
    kind=st.sampled_from(MODELS), steps=st.integers(1, 5), nodes=st.integers(1, 30),
    features=st.integers(1, 5), hidden=st.sampled_from([1, 2, 7, 8, 9, 17]),
    density=st.sampled_from([0.0, 0.1, 0.7, 1.0]), group=st.integers(1, 3), every=st.booleans(),
    decay=st.sampled_from([0.0, 0.1]), seed=st.integers(0, 99),
)  # fmt: skip
@example("tgcn_model", 1, 1, 1, 1, 0.0, 1, False, 0.0, 0)
@example("tgcn_model", 16, 60, 4, 8, 0.1, 2, True, 0.1, 1)
@example("evolvegcn", 1, 1, 1, 1, 1.0, 1, True, 0.0, 0)
@example("evolvegcn", 3, 600, 5, 9, 0.0, 2, True, 0.0, 1)
@example("mpnn_lstm", 2, 1, 1, 1, 1.0, 2, False, 0.1, 0)
@example("mpnn_lstm", 1, 2, 3, 17, 0.0, 1, False, 0.0, 1)
@settings(max_examples=25, deadline=None)
def test_steps_are_those_of_torch(
    kind, steps, nodes, features, hidden, density, group, every, decay, seed
):
    every = every and kind != "mpnn_lstm"
    if kind == "mpnn_lstm":
        assume(steps * nodes > 1)
    frame = Frame(steps, nodes, features, density, seed)
    pair = Pair(kind, frame, hidden, every=every, group=group, decay=decay)
    for _ in range(UPDATES):
        output = pair.output()
        before = pair.step(output=output)  # changes nothing
        found = pair.step(adam=pair.adam)
        assert found == before
        named = dict(zip(pair.names, pair.flat.gradients(), strict=True))
        loss, grads, last = pair.plain_step()
        assert found == pytest.approx(loss, rel=1e-9, abs=1e-12)
        assert torch.allclose(output, last, rtol=1e-8, atol=1e-10)
        # Where columns are nearly constant the norm's gradients are small differences.
        size = max(float(g.abs().max()) for g in grads.values()) + 1e-3
        for name, grad in grads.items():
            assert float((named[name] - grad).abs().max()) < 1e-8 * size, name
    for (name, one), same in zip(
        pair.plain.named_parameters(), pair.other.parameters(), strict=True
    ):
        # An update is rate * m / (sqrt(v) + 1e-8), which makes 1e-16 of a zero gradient 1e-8.
        assert float((one - same).detach().abs().max()) < 1e-6, name


@pytest.mark.parametrize("kind", MODELS)
def test_float32_keeps_as_many_digits_as_torch(kind):
    """Largest deviation of a gradient from float64, within five times of torch's own float32."""
    exact, narrow = (
        Pair(kind, Frame(16, 170, 16, 0.01, 3, dtype), 32, every=kind == "evolvegcn", group=8)
        for dtype in (torch.float64, torch.float32)
    )
    _, wanted, _ = exact.plain_step()
    _, torchs, _ = narrow.plain_step()
    narrow.step()
    found = dict(zip(narrow.names, narrow.flat.gradients(), strict=True))
    for name, grad in wanted.items():
        size = float(grad.norm())
        mine = float((found[name].double() - grad).norm()) / size
        theirs = float((torchs[name].double() - grad).norm()) / size
        assert mine < max(5 * theirs, 2e-6), name


@pytest.mark.parametrize("kind", MODELS)
def test_what_does_not_fit_is_refused_by_name(kind):
    pair = Pair(kind, Frame(3, 6, 2, 0.2, 0), 4)
    frame = pair.frame
    for name, spoil in (
        ("x", lambda: setattr(frame, "aggregated", frame.aggregated.float())),
        ("x", lambda: setattr(frame, "aggregated", frame.aggregated[0])),
        ("target", lambda: setattr(frame, "target", frame.target[:, :4])),
        ("flat", lambda: setattr(pair, "hidden", 5)),
        ("output", lambda: None),
        ("product", lambda: setattr(pair, "product", Frame(2, 6, 2, 0, 0).product(1, 4))),
    ):
        if name == "product" and kind == "tgcn_model":
            continue
        kept = frame.aggregated, frame.target, pair.hidden, pair.product
        spoil()
        output = pair.output()[:3] if name == "output" else None
        with pytest.raises(InvalidInputError, match=name):
            pair.step(output=output)
        frame.aggregated, frame.target, pair.hidden, pair.product = kept
    pair.step()


def test_broken_topologies_and_frames_of_one_row_are_refused():
    with pytest.raises(InvalidInputError, match="two rows"):  # they have no norm
        Pair("mpnn_lstm", Frame(1, 1, 2, 0.0, 0), 4).step()
    scale, fits = torch.ones(3), csr_of([[], [], []], 3)
    refuses(
        FrameProduct(3).add,
        {"topology": fits, "row_scale": scale, "col_scale": scale, "width": 1},
        ("topology", csr_of([[]], 1)), ("topology|column", csr_of([[7], [], []], 3)),
        ("row_scale", scale[:2]), ("col_scale", scale[None]),
    )  # fmt: skip
    pair = {"topology": PartTopology.build([fits, fits]), "row_scale": torch.ones(3, 2)}
    pair |= {"col_scale": torch.ones(3, 2), "width": 1}
    refuses(
        FrameProduct(3).add, pair, ("row_scale", torch.ones(2, 3)), ("col_scale", torch.ones(6))
    )
