"""PiPAD's operators on a device: rivals, widths, vector loads, slices, balance, link; one table.

Bytes of a row are those that its access pattern asks for: every gathered neighbour row in whole
sectors of 32 bytes, the lists, and the result once; so a share of the copy rate above 1 is the
caches' work. Results are compared with a float64 product first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial

import torch
from gpu_measure import DeviceTable, error_of, limits, sequence
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import (
    aggregate_parts_sliced,
    scatter_parts_sliced,
    slice_parts,
    spmm_gespmm,
    spmm_sliced,
    warp_clocks,
)
from dgbench.kernels_cuda.variants.balance import balance
from dgbench.kernels_cuda.variants.memory_model import row_transactions
from dgbench.kernels_cuda.variants.row_owner import spmm_row_owner

TOLERANCE = 1e-5
COUNT = 4
"""Snapshots of a partition."""
CAPS = (8, 16, 32, 64)
DEVICE = "cuda"


class Checked:
    """A table of operators that are compared before they are timed."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        self.wrong = 0

    def run(
        self, group: str, name: str, bytes_: float, expected: Tensor, work: Callable[[], Tensor]
    ) -> None:
        error = error_of(work(), expected)
        if not error <= TOLERANCE:
            self.wrong += 1
            name = f"WRONG {name}"
        self.table.measure(group, name, work, bytes_, error)


def gathered(nnz: int, width: int) -> float:
    """Bytes of the neighbour rows that are asked for."""
    return 32.0 * nnz * row_transactions(width)


def product(csr: Csr, x: Tensor) -> Tensor:
    """A x in float64 by torch."""
    values = torch.ones(csr.nnz, device=x.device, dtype=torch.float64)
    return torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), values, size(csr)) @ x.double()


def size(csr: Csr) -> tuple[int, int]:
    return csr.num_rows, csr.num_cols


def gradient(parts: PartTopology, x: Tensor, grad: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    aggregate_parts_scatter(parts, x).backward(grad)
    return x.grad


def rivals(checked: Checked, csr: Csr) -> None:
    """The product's own operator, forward and backward, beside what else there is for it."""
    values = torch.ones(csr.nnz, device=DEVICE)
    library = torch.sparse_csr_tensor(csr.indptr.int(), csr.indices, values, size(csr))
    rows = torch.repeat_interleave(torch.arange(csr.num_rows, device=DEVICE), csr.indptr.diff())
    columns, back = csr.indices.long(), transpose(csr)

    def scattered(x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add_(0, rows, x.index_select(0, columns))

    def both(x: Tensor, grad: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        spmm(csr, x).backward(grad)
        return x.grad

    for width in (1, 2, 4, 6, 8, 16, 32, 64, 128, 256):
        x = torch.randn(csr.num_cols, width, device=DEVICE)
        y, moved = product(csr, x), gathered(csr.nnz, width) + 4.0 * csr.nnz + 4.0 * x.numel()
        one = partial(checked.run, f"rivals d={width}", bytes_=moved, expected=y)
        one("spmm", work=partial(spmm, csr, x))
        one("without segments", work=partial(spmm_row_owner, csr, x))
        one("cuSPARSE", work=lambda x=x: library @ x)
        one("select and scatter, as PyG", work=partial(scattered, x))
        if width in (16, 64):
            found = partial(both, torch.randn_like(x), x)
            checked.run(f"rivals d={width}", "spmm forward + backward", 2 * moved,
                        product(back, x), found)  # fmt: skip


def one_by_one(group: list[Csr], slabs: list[Tensor]) -> Tensor:
    return torch.stack([spmm(csr, x) for csr, x in zip(group, slabs, strict=True)], 1)


def widths(checked: Checked, group: list[Csr], parts: PartTopology) -> None:
    """The product's own operator and the paper's kernel over widths d = S F."""
    vertices, over = parts.over.num_rows, parts.over.nnz
    exclusive = sum(part.nnz for part in parts.exclusive)
    sliced = slice_parts(parts)
    transposes = [transpose(csr) for csr in group]
    for features in (1, 2, 4, 8, 16, 32, 64):
        d = COUNT * features
        x = torch.randn(vertices, COUNT, features, device=DEVICE)
        moved = gathered(over, d) + gathered(exclusive, features)
        moved += 4.0 * (over + exclusive) + 16.0 * vertices + 4.0 * x.numel()
        added = moved + 8.0 * x.numel()  # zeroed, and read before it is added to
        one = partial(checked.run, f"width d={d} (S={COUNT} F={features})")
        y = torch.stack([product(c, x[:, i]) for i, c in enumerate(group)], 1)
        one("one launch", moved, y, partial(aggregate_parts, parts, x))
        uncut = partial(one_by_one, group, [x[:, i].contiguous() for i in range(COUNT)])
        one("one by one", moved, y, uncut)
        one("paper's kernel", added, y, partial(aggregate_parts_sliced, sliced, x))
        alone = partial(aggregate_parts_sliced, sliced, x, coalesce=False)
        one("paper's, one slice a warp", added, y, alone)
        grad = torch.randn_like(x)
        dx = torch.stack([product(c, grad[:, i]) for i, c in enumerate(transposes)], 1)
        one("forward + backward, scattered", 2 * moved, dx, partial(gradient, parts, x, grad))
        one("paper's kernel, scattered", added, dx, partial(scatter_parts_sliced, sliced, grad))


def vectors_and_caps(checked: Checked, csr: Csr) -> None:
    """PiPAD's kernel over one matrix: floats per lane, then slice caps."""
    sliced = slice_csr(csr)
    for width in (32, 64, 128, 256):
        x = torch.randn(csr.num_cols, width, device=DEVICE)
        y, moved = product(csr, x), gathered(csr.nnz, width) + 4.0 * csr.nnz + 4.0 * x.numel()
        one = partial(checked.run, f"vectors d={width}", bytes_=moved, expected=y)
        for vector in (1, 2, 4):
            work = partial(spmm_sliced, sliced, x, vector=vector)
            one(f"slices, {vector} floats a lane", work=work)
        one("spmm", work=partial(spmm, csr, x))
        one("GE-SpMM like", work=partial(spmm_gespmm, csr, x))
    for width in (2, 6, 16):
        x = torch.randn(csr.num_cols, width, device=DEVICE)
        y, moved = product(csr, x), gathered(csr.nnz, width) + 4.0 * csr.nnz + 4.0 * x.numel()
        for cap in CAPS:
            work = partial(spmm_sliced, slice_csr(csr, cap), x)
            checked.run(f"caps d={width}", f"slices of {cap}", moved, y, work)


def balances(csr: Csr, out: str) -> list[str]:
    """Actual and balanced cycles of a warp per row and a warp per group of slices (figure 12)."""
    lines = []
    for width in (2, 6, 16, 64):
        x = torch.randn(csr.num_cols, width, device=DEVICE)
        matrices = [("CSR, a warp per row", csr)]
        matrices += [(f"slices of {cap}", slice_csr(csr, cap)) for cap in CAPS]
        for name, matrix in matrices:
            warp_clocks(matrix, x)  # warm
            found = balance(warp_clocks(matrix, x))
            lines.append(
                f"balance d={width:<4}{name:24}actual {found.actual:12.0f}  balanced "
                f"{found.balanced:12.0f} cycles  gap {found.gap:6.1%}  warps {found.warps}"
            )
            row = {"group": f"balance d={width}", "name": name, "gap": found.gap}
            row |= {"actual": found.actual, "balanced": found.balanced, "warps": found.warps}
            row |= {"places": found.places, "multiprocessors": found.multiprocessors}
            with open(out, "a") as file:
                file.write(json.dumps(row) + "\n")
    return lines


def arrival(table: DeviceTable, group: list[Csr]) -> None:
    """Measure the arrival of a partition: the link, and its assembly on the device."""
    from dgbench.systems.pipad.wire import pack, scales_of, unpack

    on_host = [Csr(c.indptr.cpu(), c.indices.cpu(), c.num_cols) for c in group]
    parts = PartTopology.build(on_host)
    wire = pack(parts)
    pinned = [t.pin_memory() for t in wire.tensors]
    arrived = [t.to(DEVICE) for t in wire.tensors]
    tag = f"arrival of S={len(group)}, {wire.words} words"

    def copy() -> None:
        for source, target in zip(pinned, arrived, strict=True):
            target.copy_(source, non_blocking=True)

    table.measure(tag, "copy from pinned memory", copy, wire.nbytes)
    table.measure(tag, "unpack", lambda: unpack(wire.layout, arrived), 2.0 * wire.nbytes)
    x = torch.randn(parts.over.num_rows, len(group), 16, device=DEVICE)

    def whole() -> Tensor:
        found = unpack(wire.layout, arrived)
        return aggregate_parts_scatter(found, x, *scales_of(found, "sym"), self_loop=True)

    table.measure(tag, "unpack, scales, merge, aggregate F=16", whole, 2.0 * wire.nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the raw samples, one JSON a line")
    parser.add_argument("--seconds", type=float, default=100, help="begin nothing after this long")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    torch.backends.cuda.matmul.allow_tf32 = False
    table = DeviceTable(options.out, options.seconds)
    checked = Checked(table)
    limits(table)
    group = sequence(200_000, 3_000_000, COUNT, 0.9)
    parts = PartTopology.build(group)
    rivals(checked, group[0])
    widths(checked, group, parts)
    vectors_and_caps(checked, group[0])
    lines = balances(group[0], options.out)
    arrival(table, group)
    arrival(table, sequence(22_000, 84_000, 8, 0.9))
    table.show()
    print("\n".join(lines))
    sys.exit(1 if checked.wrong else 0)


if __name__ == "__main__":
    main()
