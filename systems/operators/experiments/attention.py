"""Attention over neighbours and over packed steps, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda import attention
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import close
from dgbench.models.attention import plain_attend_rows, plain_packed_attention
from dgbench.systems.operators.race import OURS, OperatorCase, OperatorRace, first_line, import_dgl
from dgbench.systems.operators.recurrences import (
    PackedSteps,
    StepLayout,
    output_and_gradients,
    random_lengths,
)

TOLERANCE, SLOPE = 1e-5, 0.2
TORCH, PYG, DGL = "torch scatter", "PyG GATConv", "DGL"
MASK, ZEROS = "torch SDPA, mask", "torch SDPA, zeros"
AGAINST = "float64 attention of torch"
Run = Callable[[list[Tensor]], Tensor]


def graph(vertices: int, degree: float, heads: int = 1, width: int = 32) -> dict[str, Any]:
    """Params of a graph."""
    return {"vertices": vertices, "degree": float(degree), "heads": heads, "width": width}


def steps(
    sequences: int, mean: int, longest: int, heads: int = 1, width: int = 32
) -> dict[str, Any]:
    """Params of sequences with exponential lengths."""
    return {
        "sequences": sequences, "mean": mean, "longest": longest, "heads": heads, "width": width,
    }  # fmt: skip


class Attention(OperatorRace):
    name = "attention"
    title = "Graph attention, forward and backward"
    question = "How fast is attention over neighbours, against torch, PyG and DGL?"
    reading = (
        "Values and scores of vertices are given; every contender makes scores of edges, a softmax "
        "with each vertex's own loop, weighted sums and all gradients. PyG runs its GATConv's own "
        "edge_updater and propagate; DGL the calls of its GATConv. Both have the loops stored."
    )
    claims = ("operators-attention-torch", "operators-attention-pyg", "operators-attention-dgl")
    devices = ("cpu", "cuda")
    workloads = {
        "smoke": (graph(300, 2, width=8), graph(200, 4, 2, 4)),
        "quick": (graph(20_000, 2), graph(8000, 12), graph(8000, 12, 4, 8)),
        None: (
            graph(200_000, 0.3),
            graph(100_000, 2),
            graph(40_000, 12),
            graph(8000, 60, width=64),
            graph(40_000, 12, 4, 8),
        ),
    }
    label = "{degree:g} neighbours, {heads} x {width}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        drawn = skewed_graph(params["vertices"], params["degree"])
        matrix = tuple(one.to(device) for one in drawn)
        rows, heads, width = params["vertices"], params["heads"], params["width"]
        generator = torch.Generator().manual_seed(11)
        shapes = [(rows, heads, width), (rows, heads), (rows, heads)]
        inputs = [torch.randn(shape, generator=generator) for shape in shapes]
        grad = torch.randn(shapes[0], generator=generator)
        runs: dict[str, Run] = {
            OURS: lambda given: attention.attend_rows(*matrix, *given, SLOPE),
            TORCH: lambda given: plain_attend_rows(*matrix, *given, SLOPE),
        }
        left_out = {}
        for name, make in ((PYG, pyg_attention), (DGL, dgl_attention)):
            try:
                runs[name] = make(matrix, params)
            except Exception as error:  # its libraries may not load
                left_out[name] = first_line(error)
        exact = output_and_gradients(
            lambda given: plain_attend_rows(*drawn, *given, SLOPE),
            [t.double() for t in inputs],
            grad.double(),
        )
        inputs, grad = [one.to(device) for one in inputs], grad.to(device)
        edges = len(matrix[1])
        # Forward, to the values and to the scores: each reads the graph, gathers a row an entry
        # (and a loop) and holds one a vertex.
        moved = 3 * (4 * edges + 8 * rows + 4 * heads * (width + 1) * (edges + 2 * rows))
        return OperatorCase(
            calls={
                name: lambda _, run=run: output_and_gradients(run, inputs, grad)
                for name, run in runs.items()
            },
            check=lambda name, _, found: close("outputs", found, exact, TOLERANCE, against=AGAINST),
            left_out=left_out,
            work=(("throughput", {"of": "edges"}, edges + rows), ("bandwidth", {}, moved)),
        )


class PackedAttention(OperatorRace):
    name = "packed_attention"
    title = "Attention over steps of sequences"
    question = "How fast is attention inside sequences that share a row, against torch's?"
    reading = (
        "torch's scaled_dot_product_attention either hides other sequences of a row by a mask, or "
        "pads every sequence to the longest. Making the layouts is not timed."
    )
    claims = ("operators-packed-attention-mask", "operators-packed-attention-zeros")
    devices = ("cpu", "cuda")
    workloads = {
        "smoke": (steps(40, 3, 8, width=8),),
        "quick": (steps(2000, 4, 16), steps(600, 10, 60)),
        None: (
            steps(12_000, 4, 16),
            steps(6000, 10, 60),
            steps(1000, 60, 120),
            steps(1000, 60, 120, 4, 8),
        ),
    }
    label = "mean {mean} of {longest} steps, {heads} x {width}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        heads, longest = params["heads"], params["longest"]
        lengths = random_lengths(params["sequences"], params["mean"], longest, seed=7)
        held = PackedSteps.of(lengths, longest)
        total, count = len(held.number), len(lengths)
        owner = torch.full((held.shape[0] * held.shape[1],), -1).index_copy(
            0, held.packed, held.number
        )
        sequence = owner.view(held.shape)
        inside = torch.arange(longest).unsqueeze(1) < lengths
        alone = torch.where(inside, torch.arange(count), -1)
        generator = torch.Generator().manual_seed(7)
        width = heads * params["width"]
        drawn = [torch.randn(total, width, generator=generator) for _ in range(4)]
        rows, zeros = (
            StepLayout(held.shape, held.packed),
            StepLayout((longest, count), held.padded),
        )
        forms: dict[str, tuple[Callable[..., Tensor], Tensor, StepLayout]] = {
            OURS: (attention.packed_attention, sequence, rows),
            MASK: (plain_packed_attention, sequence, rows),
            ZEROS: (plain_packed_attention, alone, zeros),
        }

        def passes(name: str, dtype: torch.dtype, place: str) -> Callable[[], list[Tensor]]:
            function, owners, layout = forms[name]
            owners = owners.to(place)
            *inputs, grad = (layout.spread(one.to(dtype)).to(place) for one in drawn)
            return lambda: output_and_gradients(
                lambda given: function(*given, owners, heads=heads), inputs, grad
            )

        def in_order(name: str, found: list[Tensor]) -> list[Tensor]:
            return [forms[name][2].gather(one.cpu()) for one in found]

        exact = in_order(ZEROS, passes(ZEROS, torch.float64, "cpu")())
        calls = {name: passes(name, torch.float32, device) for name in forms}
        # Two products of all pairs of steps of a sequence forward, four backward.
        products = 12.0 * float(lengths.square().sum()) * width
        return OperatorCase(
            calls={name: lambda _, call=call: call() for name, call in calls.items()},
            check=lambda name, _, found: close(
                "outputs", in_order(name, found), exact, TOLERANCE, against=AGAINST
            ),
            work=(("product_rate", {}, products),),
        )


def skewed_graph(vertices: int, degree: float) -> tuple[Tensor, Tensor]:
    """indptr and indices: skewed neighbours, exponential mean degrees, no loops."""
    generator = torch.Generator().manual_seed(3)
    rates = torch.empty(vertices).exponential_(1 / degree, generator=generator)
    counts = torch.poisson(rates, generator=generator).long().clamp(max=vertices // 2)
    drawn = torch.rand(int(counts.sum()), generator=generator)
    indices = (drawn**2 * vertices).long().clamp(max=vertices - 1)
    owner = torch.repeat_interleave(torch.arange(vertices), counts)
    indices = torch.where(indices == owner, (indices + 1) % vertices, indices)
    keys = torch.unique(owner * vertices + indices)
    indptr = torch.zeros(vertices + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(keys // vertices, minlength=vertices).cumsum(0)
    return indptr, (keys % vertices).int()


def ends_with_loops(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Senders and receivers of all edges and of a loop at each vertex, sorted by receiver."""
    own = torch.arange(len(indptr) - 1, device=indptr.device)
    senders = torch.cat([indices.long(), own])
    receivers = torch.cat([torch.repeat_interleave(own, indptr.diff()), own])
    order = receivers.argsort(stable=True)
    return senders[order], receivers[order]


def pyg_attention(matrix: tuple[Tensor, Tensor], params: Mapping[str, Any]) -> Run:
    """PyG's GATConv without the dense layer before it."""
    from torch_geometric.nn import GATConv

    edges = torch.stack(ends_with_loops(*matrix))
    layer = GATConv(1, params["width"], params["heads"], negative_slope=SLOPE, add_self_loops=False)
    layer = layer.to(matrix[0].device)

    def run(given: list[Tensor]) -> Tensor:
        values, source, target = given
        alpha = layer.edge_updater(edges, alpha=(source, target), edge_attr=None, size=None)
        return layer.propagate(edges, x=(values, values), alpha=alpha, size=None)

    return run


def dgl_attention(matrix: tuple[Tensor, Tensor], params: Mapping[str, Any]) -> Run:
    """The calls of DGL's GATConv without the dense layer before them."""
    dgl = import_dgl()
    fn = dgl.function
    held = dgl.graph(ends_with_loops(*matrix), num_nodes=params["vertices"])

    def run(given: list[Tensor]) -> Tensor:
        values, source, target = given
        with held.local_scope():
            held.srcdata.update({"ft": values, "el": source.unsqueeze(-1)})
            held.dstdata["er"] = target.unsqueeze(-1)
            held.apply_edges(fn.u_add_v("el", "er", "e"))
            score = functional.leaky_relu(held.edata.pop("e"), SLOPE)
            held.edata["a"] = dgl.nn.functional.edge_softmax(held, score)
            held.update_all(fn.u_mul_e("ft", "a", "m"), fn.sum("m", "ft"))
            return held.dstdata["ft"]

    return run
