"""Aggregation over neighbours, of one snapshot and of several, against MKL's and DGL's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.lab.experiment import FigureSpec, Preset
from dgbench.lab.result_checks import close
from dgbench.lab.table import Table
from dgbench.systems.operators.graphs import PowerLawGraphs
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace, import_dgl

MKL = "torch CSR"
DGL = "DGL"
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
        "is unweighted and so reads no weights."
    )
    claims = ("operators-aggregate-best-peer",)
    workloads = workloads({"smoke": (2, 16), "quick": (2, 16, 64), None: WIDTHS})
    label = "{width} columns"
    sweep = ("width", "columns of the features")

    def case(self, params: Mapping[str, Any], preset: Preset) -> OperatorCase:
        graphs = PowerLawGraphs(params["vertices"])
        csr = graphs.weighted(graphs.keys(params["edges"]))
        width = params["width"]
        x = torch.rand(csr.num_rows, width, generator=torch.Generator().manual_seed(2))
        mkl, ones = torch_csr(csr), torch.ones(csr.nnz)
        calls: dict[str, Call] = {OURS: lambda _: spmm(csr, x), MKL: lambda _: mkl @ x}
        left_out = {}
        try:
            dgl = dgl_sum(csr)
            calls[DGL] = lambda _: dgl(x)
        except Exception as error:  # its libraries may not load
            left_out[DGL] = f"{type(error).__name__}: {error}".splitlines()[0]
        exact = {False: product(csr, csr.values, x), True: product(csr, ones, x)}
        moved = csr.nnz * (8 + 4 * width) + csr.num_rows * (8 + 4 * width)
        return OperatorCase(
            calls=calls,
            check=lambda name, _, y: close(
                "outputs", y, exact[name == DGL], TOLERANCE, against="float64 product of scipy"
            ),
            left_out=left_out,
            # Every gathered row and index counts as traffic, so that caches may exceed a copy.
            work=(("edge_rate", {}, csr.nnz), ("bandwidth", {}, moved)),
            observe=(("vertices", csr.num_rows, {}), ("edges", csr.nnz, {})),
        )

    def figures(self) -> list[FigureSpec]:
        title = "Aggregation over one snapshot: memory traffic against copying"
        limit = FigureSpec(
            kind="limit_share", name="aggregate_limit", title=title, points=self.limit_points
        )
        return [*super().figures(), limit]

    def limit_points(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Traffic of our aggregation over the copy bandwidth that the run measured."""
        machine = Table.of(row for row in rows if row.paper == "-")
        limits = machine.where("bandwidth", place="host", using="all")
        rates = Table.of(rows, experiment=self.name).where("bandwidth", method=OURS)
        return [
            {
                "row": f"{width} columns", "system": OURS, "value": median(found.values) / 1e9,
                "limit": limits[-1].value / 1e9, "limit_name": "copy bandwidth", "unit": "GB/s",
                "row_ids": [row.id for row in found.rows],
            }
            for width, found in (rates.by("width").items() if limits else ())
        ]  # fmt: skip


class Merged(OperatorRace):
    name = "merged"
    title = "Aggregation over eight snapshots"
    question = "How much faster are eight snapshots that share 90 % of their edges in one call?"
    reading = (
        "torch's CSR product takes the snapshots one by one. All unweighted; the scaled form of "
        "ours multiplies by R and C and adds the vertex itself, which its peer does not."
    )
    claims = ("operators-merged-one-by-one",)
    workloads = workloads({"smoke": (2,), "quick": (2, 6), None: (2, 6, 16)})
    label = "{width} columns"
    sweep = ("width", "columns of the features of a snapshot")

    def case(self, params: Mapping[str, Any], preset: Preset) -> OperatorCase:
        csrs = PowerLawGraphs(params["vertices"]).overlapping(params["edges"], SNAPSHOTS, SHARED)
        parts, mkl = PartTopology.build(csrs), [torch_csr(csr) for csr in csrs]
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

        def check(name: str, _: int, y: Any) -> Any:
            found = torch.stack(y, 1) if isinstance(y, list) else y
            wanted = exact.get(name, torch.stack(plain, 1))
            return close("outputs", found, wanted, TOLERANCE, against="float64 product of scipy")

        return OperatorCase(
            calls={
                OURS: lambda _: aggregate_parts(parts, x),
                scaled: lambda _: aggregate_parts(parts, x, scale, scale, True),
                MKL: lambda _: [m @ e for m, e in zip(mkl, each, strict=True)],
            },
            check=check,
            baselines=((OURS, (MKL,)), (scaled, (MKL,))),
            work=(("edge_rate", {}, sum(csr.nnz for csr in csrs)),),
            observe=(
                ("vertices", csrs[0].num_rows, {}),
                ("edges", sum(csr.nnz for csr in csrs), {}),
                ("snapshots", SNAPSHOTS, {}),
            ),
        )


def torch_csr(csr: Csr) -> Tensor:
    """torch's CSR with 32-bit ids, MKL's faster form; ones where it has no values."""
    values = torch.ones(csr.nnz) if csr.values is None else csr.values
    shape = (csr.num_rows, csr.num_cols)
    return torch.sparse_csr_tensor(csr.indptr.int(), csr.indices, values, shape)


def dgl_sum(csr: Csr) -> Callable[[Tensor], Tensor]:
    """DGL's unweighted copy_u_sum, its fast path."""
    dgl = import_dgl()
    none = torch.empty(0, dtype=torch.int64)
    graph = dgl.graph(("csc", (csr.indptr, csr.indices.long(), none)), num_nodes=csr.num_rows)
    graph = graph.formats(["csc"]).int()
    return lambda x: dgl.ops.copy_u_sum(graph, x)


def product(csr: Csr, values: Tensor, x: Tensor) -> Tensor:
    """The product in float64, by scipy."""
    arrays = (values.numpy().astype(np.float64), csr.indices.numpy(), csr.indptr.numpy())
    matrix = sparse.csr_matrix(arrays, shape=(csr.num_rows, csr.num_cols))
    return torch.from_numpy(matrix @ x.double().numpy())
