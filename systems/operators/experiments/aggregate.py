"""Aggregation over neighbours, of one snapshot and of several, against MKL's and DGL's; on a
device against cuSPARSE, DGL's, PyG's scatter and the kernels of papers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dgbench.kernels_cuda.aggregate import (
    aggregate_parts,
    aggregate_parts_scatter,
    aggregate_union,
    spmm,
)
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import (
    aggregate_parts_sliced,
    slice_parts,
    spmm_gespmm,
    spmm_sliced,
)
from dgbench.kernels_cuda.variants.row_owner import (
    TILED_WIDTH,
    spmm_row_owner,
    spmm_segments,
    spmm_tiles,
)
from dgbench.lab.experiment import Preset
from dgbench.lab.figure_forms import CopyShare
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import close
from dgbench.systems.operators.graphs import PowerLawGraphs, on_device
from dgbench.systems.operators.race import (
    OURS,
    Call,
    OperatorCase,
    OperatorRace,
    first_line,
    import_dgl,
)

MKL = "torch CSR"
DGL = "DGL"
SCATTER = "select and scatter, as PyG"
SEGMENTS, TILES = f"{OURS}, long rows in segments", f"{OURS}, equal tiles"
UNION = f"{OURS}, union by bits"
GESPMM, SLICED = "GE-SpMM like", "sliced, as PiPAD"
CAPS = (8, 16, 32, 64)
TOLERANCE = 1e-5
SIZES = {"smoke": (1000, 12_000), "quick": (20_000, 400_000), None: (100_000, 2_000_000)}
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128)
SNAPSHOTS, SHARED = 8, 0.9


def workloads(widths: Mapping[str | None, Sequence[int]]) -> dict[str | None, list[dict]]:
    """Power-law graphs of each preset's size, with features of these widths."""
    return {
        preset: [
            {"graph": "power_law", "vertices": size[0], "edges": size[1], "width": width}
            for width in widths[preset]
        ]
        for preset, size in SIZES.items()
    }


warnings.filterwarnings("ignore", message="Sparse")


class Aggregate(OperatorRace):
    name = "aggregate"
    title = "Aggregation over one snapshot"
    question = "How fast is a weighted aggregation against the best peer, by feature width?"
    reading = (
        "torch's CSR product (MKL where torch has it) with 32-bit ids, and DGL's copy_u_sum, which "
        "is unweighted and so reads no weights. On a device torch's product is cuSPARSE's, and "
        "selecting rows and adding them at their targets, as PyG does, is raced beside."
    )
    claims = ("operators-aggregate-best-peer",)
    devices = ("cpu", "cuda")
    workloads = workloads({"smoke": (2, 16), "quick": (2, 16, 64), None: WIDTHS})
    label = "{width} columns"
    sweep = ("width", "columns of the features")
    figure_forms = (
        CopyShare(
            "aggregate_limit", "Aggregation over one snapshot: memory traffic against copying",
            observed("bandwidth", per="width", method=OURS), row="{width} columns", system=OURS,
        ),
    )  # fmt: skip

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        graphs = PowerLawGraphs(params["vertices"])
        csr = graphs.weighted(graphs.keys(params["edges"]))
        width, ones = params["width"], torch.ones(csr.nnz)
        x = torch.rand(csr.num_rows, width, generator=torch.Generator().manual_seed(2))
        exact = {False: product(csr, csr.values, x), True: product(csr, ones, x)}
        csr, x = on_device(csr, device), x.to(device)
        mkl = torch_csr(csr)
        calls: dict[str, Call] = {OURS: lambda _: spmm(csr, x), MKL: lambda _: mkl @ x}
        if device != "cpu":
            scatter = scattered(csr)
            calls[SCATTER] = lambda _: scatter(x)
        left_out = {}
        try:
            dgl = dgl_sum(csr)
            calls[DGL] = lambda _: dgl(x)
        except Exception as error:  # its libraries may not load
            left_out[DGL] = first_line(error)
        moved = csr.nnz * (8 + 4 * width) + csr.num_rows * (8 + 4 * width)
        return OperatorCase(
            calls=calls,
            check=lambda name, _, y: close(
                "outputs", y, exact[name == DGL], TOLERANCE, against="float64 product of scipy"
            ),
            left_out=left_out,
            # Every gathered row and index counts as traffic, so that caches may exceed a copy.
            work=(
                ("throughput", {"of": "edges"}, csr.nnz),
                ("bandwidth", {}, moved),
                ("product_rate", {}, 2 * csr.nnz * width),
            ),
        )


class Merged(OperatorRace):
    name = "merged"
    title = "Aggregation over eight snapshots"
    question = "How much faster are eight snapshots that share 90 % of their edges in one call?"
    reading = (
        "torch's CSR product takes the snapshots one by one. All unweighted; the scaled form of "
        "ours multiplies by R and C and adds the vertex itself, which its peer does not. On a "
        "device PiPAD's kernel over slices, our own product one by one and the union of all, whose "
        "entries carry a bit for each snapshot, are raced beside."
    )
    claims = ("operators-merged-one-by-one",)
    devices = ("cpu", "cuda")
    workloads = workloads({"smoke": (2,), "quick": (2, 6, 16, 32), None: (2, 6, 16, 32)})
    label = "{width} columns"
    sweep = ("width", "columns of the features of a snapshot")

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        csrs = PowerLawGraphs(params["vertices"]).overlapping(params["edges"], SNAPSHOTS, SHARED)
        draw = torch.Generator().manual_seed(2)
        x = torch.rand(csrs[0].num_rows, SNAPSHOTS, params["width"], generator=draw)
        scale = torch.rand(csrs[0].num_rows, SNAPSHOTS, generator=draw)
        each = [x[:, s].contiguous() for s in range(SNAPSHOTS)]
        scaled = f"{OURS}, scaled"
        plain = [product(c, torch.ones(c.nnz), e) for c, e in zip(csrs, each, strict=True)]
        r = scale.double()[..., None]
        weighted = [
            product(c, torch.ones(c.nnz), (r[:, s] * e).double()) + r[:, s] * e
            for s, (c, e) in enumerate(zip(csrs, each, strict=True))
        ]
        exact = {scaled: r * torch.stack(weighted, 1)}
        csrs = [on_device(csr, device) for csr in csrs]
        x, scale, each = x.to(device), scale.to(device), [one.to(device) for one in each]
        parts, mkl = PartTopology.build(csrs), [torch_csr(csr) for csr in csrs]
        entries = sum(csr.nnz for csr in csrs)
        # Shared entries are read once; their rows are gathered for every snapshot.
        rows = entries + SNAPSHOTS * csrs[0].num_rows
        moved = 4 * (parts.words(sliced=False, with_values=False) + params["width"] * rows)
        calls: dict[str, Call] = {
            OURS: lambda _: aggregate_parts(parts, x),
            scaled: lambda _: aggregate_parts(parts, x, scale, scale, True),
            MKL: lambda _: [m @ e for m, e in zip(mkl, each, strict=True)],
        }
        if device != "cpu":
            sliced, union = slice_parts(parts), UnionTopology.build(csrs)
            calls |= {
                UNION: lambda _: aggregate_union(union, x),
                f"{OURS}, one by one": lambda _: [
                    spmm(*one) for one in zip(csrs, each, strict=True)
                ],
                SLICED: lambda _: aggregate_parts_sliced(sliced, x),
            }

        def check(name: str, _: int, y: Any) -> Any:
            found = torch.stack(y, 1) if isinstance(y, list) else y
            wanted = exact.get(name, torch.stack(plain, 1))
            return close("outputs", found, wanted, TOLERANCE, against="float64 product of scipy")

        return OperatorCase(
            calls=calls,
            check=check,
            baselines=(
                (OURS, tuple(n for n in calls if n not in (OURS, scaled))),
                (scaled, (MKL,)),
            ),
            work=(("throughput", {"of": "edges"}, entries), ("bandwidth", {}, moved)),
        )


class Variants(OperatorRace):
    name = "aggregation_variants"
    title = "Aggregation by the kernels of papers"
    question = "Which of the ways to share out rows among warps is the fastest, by width?"
    reading = (
        "Unweighted. A warp a row (row owner, GE-SpMM), or a group of slices of at most so many "
        "entries a warp (PiPAD), with 1, 2 or 4 floats a lane. Ours cuts long rows into segments, "
        "or gives every block as many rows and entries as any other (tiles, up to 16 columns); "
        "which of both it does is a rule on width and mean length."
    )
    devices = ("cuda",)
    workloads = workloads(
        {"smoke": (2, 32), "quick": (1, 8, 16, 64), None: (1, 2, 4, 6, 8, 16, 64, 128, 256)}
    )
    label = "{width} columns"
    sweep = ("width", "columns of the features")

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        graphs = PowerLawGraphs(params["vertices"])
        (csr,) = graphs.overlapping(params["edges"], 1, 1.0)
        width = params["width"]
        x = torch.rand(csr.num_rows, width, generator=torch.Generator().manual_seed(2))
        exact = product(csr, torch.ones(csr.nnz), x)
        csr, x = on_device(csr, device), x.to(device)
        calls: dict[str, Call] = {
            OURS: lambda _: spmm(csr, x),
            "a row a warp": lambda _: spmm_row_owner(csr, x),
            SEGMENTS: lambda _: spmm_segments(csr, x),
            GESPMM: lambda _: spmm_gespmm(csr, x),
            MKL: partial(by_library, torch_csr(csr), x),
        }
        if width <= TILED_WIDTH:
            calls[TILES] = lambda _: spmm_tiles(csr, x)
        for cap in CAPS:
            calls[f"slices of {cap}"] = partial(spmm_slices, slice_csr(csr, cap), x)
        for vector in (1, 2, 4):
            if width % (32 * vector) == 0:
                name = f"slices of 32, {vector} floats a lane"
                calls[name] = partial(spmm_slices, slice_csr(csr, 32), x, vector=vector)
        moved = csr.nnz * (4 + 4 * width) + csr.num_rows * (8 + 4 * width)
        return OperatorCase(
            calls=calls,
            check=lambda _, __, y: close(
                "outputs", y, exact, TOLERANCE, against="float64 product of scipy"
            ),
            work=(("throughput", {"of": "edges"}, csr.nnz), ("bandwidth", {}, moved)),
        )


class MergedBackward(OperatorRace):
    name = "merged_backward"
    title = "Gradient of an aggregation over eight snapshots"
    question = "Is the gradient faster from transposed parts, or scattered by atomic additions?"
    reading = (
        "The backward pass alone. Added up in a fixed order, from parts or from the union, or as "
        "additions come in."
    )
    devices = ("cuda",)
    workloads = Merged.workloads
    label = "{width} columns"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        csrs = PowerLawGraphs(params["vertices"]).overlapping(params["edges"], SNAPSHOTS, SHARED)
        draw = torch.Generator().manual_seed(2)
        shape = (csrs[0].num_rows, SNAPSHOTS, params["width"])
        x, grad = (torch.rand(shape, generator=draw) for _ in range(2))
        exact = torch.stack(
            [
                product(transpose(csr), torch.ones(csr.nnz), grad[:, s].contiguous())
                for s, csr in enumerate(csrs)
            ],
            1,
        )
        csrs = [on_device(csr, device) for csr in csrs]
        parts, union = PartTopology.build(csrs), UnionTopology.build(csrs)
        grad = grad.to(device)

        def backward(operator: Callable[..., Tensor], topology: Any) -> Call:
            leaf = x.to(device).requires_grad_()
            y = operator(topology, leaf)
            return lambda _: torch.autograd.grad(y, leaf, grad, retain_graph=True)[0]

        return OperatorCase(
            calls={
                OURS: backward(aggregate_parts, parts),
                "scattered": backward(aggregate_parts_scatter, parts),
                UNION: backward(aggregate_union, union),
            },
            check=lambda _, __, dx: close(
                "gradients", dx, exact, TOLERANCE, against="float64 product of scipy"
            ),
            work=(("throughput", {"of": "edges"}, sum(csr.nnz for csr in csrs)),),
        )


def spmm_slices(sliced: Any, x: Tensor, _: int, **how: Any) -> Tensor:
    """The product over slices; the turn does not matter."""
    return spmm_sliced(sliced, x, **how)


def by_library(matrix: Tensor, x: Tensor, _: int) -> Tensor:
    """The product by torch, on a device cuSPARSE's; the turn does not matter."""
    return matrix @ x


def scattered(csr: Csr) -> Callable[[Tensor], Tensor]:
    """The product by selecting rows and adding them at their targets, as PyG does."""
    ids = torch.arange(csr.num_rows, device=csr.indptr.device)
    rows, columns = torch.repeat_interleave(ids, csr.indptr.diff()), csr.indices.long()
    weights = None if csr.values is None else csr.values.unsqueeze(1)

    def run(x: Tensor) -> Tensor:
        picked = x.index_select(0, columns)
        out = x.new_zeros(csr.num_rows, x.shape[1])
        return out.index_add_(0, rows, picked if weights is None else picked * weights)

    return run


def torch_csr(csr: Csr) -> Tensor:
    """torch's CSR with 32-bit ids, MKL's faster form; ones where it has no values."""
    values = csr.values
    if values is None:
        values = torch.ones(csr.nnz, device=csr.indptr.device)
    shape = (csr.num_rows, csr.num_cols)
    return torch.sparse_csr_tensor(csr.indptr.int(), csr.indices, values, shape)


def dgl_sum(csr: Csr) -> Callable[[Tensor], Tensor]:
    """DGL's unweighted copy_u_sum, its fast path."""
    dgl = import_dgl()
    none = torch.empty(0, dtype=torch.int64, device=csr.indptr.device)
    graph = dgl.graph(("csc", (csr.indptr, csr.indices.long(), none)), num_nodes=csr.num_rows)
    graph = graph.formats(["csc"]).int()
    return lambda x: dgl.ops.copy_u_sum(graph, x)


def product(csr: Csr, values: Tensor, x: Tensor) -> Tensor:
    """The product in float64, by scipy."""
    arrays = (values.numpy().astype(np.float64), csr.indices.numpy(), csr.indptr.numpy())
    matrix = sparse.csr_matrix(arrays, shape=(csr.num_rows, csr.num_cols))
    return torch.from_numpy(matrix @ x.double().numpy())
