"""Predicted workloads: a frame's step, packed recurrences and scans (G), stale rows (H)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.scan import gru_scan, packed_gru_scan
from dgbench.kernels_cuda.scan.products import FLOAT32, SPLIT, splits
from dgbench.systems.operators.predictions.case import PredictedCase, against, at, differing

PEMS08 = (170, 16, 16, 32)
"""Vertices, steps of a frame, features, hidden."""
MOVIE = (289, 149_000, 32)
"""Steps of a row, packed rows, features and hidden."""
LONG = (289, 18_600, 32)
"""An eighth of these rows, so that what a backward pass needs fits twice."""
NARROW, WIDE = 6, 32
"""Hidden units of a frame's scan: one tile of tensor cores, and four."""
STALE = (10_000_000, 64, 0.2)
"""Rows, floats of a row, share that is sent."""
STEP = 1e-3


class Frame:
    """A graph convolution before a GRU over a frame, a linear head and the mean squared error.

    Args:
        device, dtype: of all that it holds; drawn in float32 on the CPU, the same everywhere.
    """

    def __init__(self, device: str, dtype: torch.dtype = torch.float32) -> None:
        vertices, steps, width, hidden = PEMS08
        draw = torch.Generator().manual_seed(8)
        dense = (torch.rand(vertices, vertices, generator=draw) < 0.02).float()
        self.dense = (dense / dense.sum(1, keepdim=True).clamp(min=1)).to(device, dtype)
        self.csr = Csr(
            torch.cat([torch.zeros(1), dense.sum(1).cumsum(0)]).long().to(device),
            dense.nonzero()[:, 1].int().to(device), vertices,
        )  # fmt: skip
        self.scale = (1 / dense.sum(1).clamp(min=1)).to(device)
        shapes = [(width, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,), (hidden, 1)]
        self.x, self.target, *weights = (
            torch.randn(shape, generator=draw).to(device, dtype)
            for shape in [(vertices, steps, width), (vertices, 1), *shapes]
        )
        self.parameters = [(0.2 * w).requires_grad_() for w in weights]

    def eager(self) -> Tensor:
        """The loss, every product, gate and step an operator of torch."""
        w, u, b, head = self.parameters
        (wz, wr, wc), (uz, ur, uc), (bz, br, bc) = (p.chunk(3, -1) for p in (w, u, b))
        h = self.x.new_zeros(self.x.shape[0], u.shape[0])
        for t in range(self.x.shape[1]):
            y = self.dense @ self.x[:, t]
            z = torch.sigmoid(y @ wz + h @ uz + bz)
            r = torch.sigmoid(y @ wr + h @ ur + br)
            c = torch.tanh(y @ wc + (r * h) @ uc + bc)
            h = z * h + (1 - z) * c
        return self._loss(h @ head)

    def fused(self) -> Tensor:
        """The same by one product for the whole frame and one scan."""
        w, u, b, head = self.parameters
        y = spmm(self.csr, self.x.flatten(1), row_scale=self.scale).view_as(self.x)
        _, h = gru_scan(y.transpose(0, 1), w, u, b)
        return self._loss(h @ head)

    def _loss(self, found: Tensor) -> Tensor:
        return (found - self.target).square().mean()

    def gradients(self, form: Callable[[], Tensor]) -> Tensor:
        """Of all parameters, in one row."""
        return torch.cat([g.flatten() for g in torch.autograd.grad(form(), self.parameters)])

    def step(self, form: Callable[[], Tensor]) -> None:
        """Forward, backward and a step of gradient descent."""
        grads = torch.autograd.grad(form(), self.parameters)
        with torch.no_grad():
            torch._foreach_add_(self.parameters, grads, alpha=-STEP)


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """A CUDA graph of one call; the call is made a few times before, aside of other work.

    The result holds the call: a graph reads what that reads, and holds none of it itself.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return partial(_launched, graph, run)


def _launched(graph: torch.cuda.CUDAGraph, _: Callable[[], object]) -> None:
    graph.replay()


def frames(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """The stated size is a small one, so it is never shrunk."""
    exact = Frame("cpu", torch.float64)
    right = partial(exact.gradients, exact.eager)
    for name, form in (("G1 eager", "eager"), ("G1 graph", "eager"), ("G1 fused", "fused")):
        frame = Frame(device)
        loss = getattr(frame, form)
        other = Frame(device)  # whose parameters no step has changed
        check = against(partial(other.gradients, getattr(other, form)), right)
        run: Callable[[], object] = partial(frame.step, loss)
        note = ""
        if name != "G1 eager":
            run, note = (captured(run), "") if device == "cuda" else (run, "no graphs on a CPU")
        yield name, PredictedCase(run, check, warm=True, note=note)


def packed(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    steps, rows, hidden = MOVIE
    rows = at(share, rows, 4)
    draw = torch.Generator(device).manual_seed(9)
    shapes = [(steps, rows, hidden), (hidden, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,)]
    x, *weights = (torch.randn(s, generator=draw, device=device).mul_(0.2) for s in shapes)
    begins = torch.rand(steps, rows, generator=draw, device=device) < 0.05
    weights = [w.requires_grad_() for w in weights]  # so that gates are kept for a backward pass

    def run(products: str) -> Tensor:
        return packed_gru_scan(x, *weights, begins, products=products)

    def right() -> Tensor:
        w, u, b = (one.detach().cpu().double() for one in weights)
        (wz, wr, wc), (uz, ur, uc), (bz, br, bc) = (p.chunk(3, -1) for p in (w, u, b))
        h, states = torch.zeros(rows, hidden, dtype=torch.float64), []
        for at_step, new in zip(x.cpu().double(), begins.cpu(), strict=True):
            h = torch.where(new[:, None], 0.0, h)
            z = torch.sigmoid(at_step @ wz + h @ uz + bz)
            r = torch.sigmoid(at_step @ wr + h @ ur + br)
            c = torch.tanh(at_step @ wc + (r * h) @ uc + bc)
            h = z * h + (1 - z) * c
            states.append(h)
        return torch.stack(states)

    for name, products in (("G2 fp32 tile", FLOAT32), ("G2 3xTF32", SPLIT)):
        if not _runs(products, x, weights[1]):
            continue
        forward = partial(run, products)
        yield name, PredictedCase(forward, against(lambda call=forward: call().detach(), right))


def scans(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """A GRU forward and backward, plain and split: small frames as a CUDA graph, and long rows."""
    vertices, steps, features, _ = PEMS08
    for hidden in (NARROW, WIDE):  # never shrunk, as a frame is small
        shape = (steps, vertices, features, hidden)
        yield from _both_products(f"G3 {hidden} wide", shape, device, whole=True)
    steps, rows, hidden = LONG
    yield from _both_products("G4", (steps, at(share, rows, 4), hidden, hidden), device)


def _runs(products: str, x: Tensor, w_hid: Tensor) -> bool:
    """Say if a device multiplies so and does not fall back. The CPU has one way for all names."""
    return products == FLOAT32 or x.device.type == "cpu" or splits(x, w_hid)


def _both_products(
    name: str, shape: tuple[int, int, int, int], device: str, whole: bool = False
) -> Iterator[tuple[str, PredictedCase]]:
    """The two ways to multiply. `whole`: a call is one CUDA graph."""
    steps, rows, features, hidden = shape
    draw = torch.Generator().manual_seed(12)
    shapes = [(steps, rows, features), (features, 3 * hidden), (hidden, 3 * hidden), (3 * hidden,)]
    drawn = [0.2 * torch.randn(s, generator=draw) for s in shapes]
    up = torch.randn(rows, hidden, generator=draw)

    def gradients(leaves: list[Tensor], products: str) -> Tensor:
        """Of x and of the weights, in one row."""
        _, last = gru_scan(*leaves, products=products)
        found = torch.autograd.grad(last, leaves, up.to(last))
        return torch.cat([g.flatten() for g in found])

    def right() -> Tensor:
        return gradients([one.double().requires_grad_() for one in drawn], FLOAT32)

    up = up.to(device)
    leaves = [one.to(device).requires_grad_() for one in drawn]
    for kind, products in (("float32", FLOAT32), ("3xTF32", SPLIT)):
        if not _runs(products, leaves[0], leaves[2]):
            continue
        call = partial(gradients, leaves, products)
        run = captured(call) if whole and device == "cuda" else call
        note = "" if not whole or device == "cuda" else "no graphs on a CPU"
        check = against(call, right)
        yield f"{name}, {kind}", PredictedCase(run, check, warm=whole, note=note)


def stale(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    """As DGC's exchange does it, by operators of torch."""
    rows, width, sent = at(share, STALE[0], 10), *STALE[1:]
    draw = torch.Generator(device).manual_seed(10)
    x, copy = (torch.randn(rows, width, generator=draw, device=device) for _ in range(2))
    chosen = torch.rand(rows, generator=draw, device=device) < sent
    note = "operators of torch, as DGC's exchange has them"

    def distances() -> Tensor:
        return torch.linalg.vector_norm(x - copy, dim=1)

    def exact() -> Tensor:
        return (x.double() - copy.double()).square().sum(1).sqrt()

    yield "H1 distances", PredictedCase(distances, against(distances, exact), note=note)
    kept = copy.clone()

    def pack() -> Tensor:
        places = chosen.nonzero().squeeze(1)
        packed = x.index_select(0, places)
        kept.index_copy_(0, places, packed)
        return packed

    def deviation() -> float:
        found = pack()
        whole = torch.where(chosen[:, None], x, copy)
        return max(differing(found, x[chosen]), differing(kept, whole))

    yield "H1 pack 20 %", PredictedCase(pack, deviation, note=note)
