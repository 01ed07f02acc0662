"""The public operators on a CUDA device against themselves on the CPU, captured and unwaited."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from device_cases import csr_where, near, to_device
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.scan import gru_scan
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
from dgbench.kernels_cuda.variants.row_owner import spmm_row_owner, spmm_segments, spmm_tiles
from dgbench.systems.pipad.wire import pack, scales_of, unpack

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("usable_device")]
VERTICES = 1500


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def hubs(vertices: int, *, weighted: bool) -> Csr:
    """Rows that a device cuts: one that meets everybody, some of hundreds and of thousands."""
    lengths = np.random.default_rng(4).integers(0, 6, vertices)
    lengths[:9] = [vertices, 128, 129, 0, 1024, 1025, 4000, 1, 700]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = np.repeat(np.arange(vertices), lengths)
    # Columns of a row step by a prime, so that none repeats.
    columns = (rows * 31 + (np.arange(indptr[-1]) - indptr[rows]) * 7919) % vertices
    columns = torch.from_numpy(columns[np.lexsort((columns, rows))]).int()
    values = draw(6, columns.numel()) if weighted else None
    return Csr(torch.from_numpy(indptr), columns, vertices, values)


def snapshots(count: int, *, weighted: bool = False) -> list[Csr]:
    """Matrices that share most of their entries, with empty rows."""
    random, group = np.random.default_rng(count), []
    base = random.random((VERTICES, VERTICES)) < 0.004
    for seed in range(count):
        present = torch.from_numpy(base | (random.random(base.shape) < 0.001))
        present[-3:] = False
        values = draw(seed, *base.shape).abs() if weighted else None
        group.append(csr_where(present, values))
    return group


@pytest.mark.parametrize("features", [1, 6, 16, 32, 130])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_and_their_gradients(graphed, features, weighted):
    """Long rows are cut; bits are the same every time, on another stream and in a graph."""
    host = hubs(30_000, weighted=weighted)
    there, back = to_device(host), to_device(transpose(host))
    x, up = draw(1, host.num_cols, features), draw(2, host.num_cols, features)
    scales = [draw(s, host.num_cols).abs() + 0.5 for s in (3, 4)]
    leaf, expected = x.cuda().requires_grad_(), x.clone().requires_grad_()
    moved = [s.cuda() for s in scales]
    right = spmm(host, expected, *scales, self_loop=True)
    right.backward(up)
    on = up.cuda()
    first, again = graphed(lambda: [spmm(there, leaf.detach(), *moved, self_loop=True)])
    near(first[0], right.detach())
    assert torch.equal(first[0], again[0])
    y = spmm(there, leaf, *moved, self_loop=True)
    assert torch.equal(y, first[0])
    y.backward(on)
    near(leaf.grad, expected.grad)
    plain = spmm(host, x.requires_grad_())
    plain.backward(up)
    for form in (spmm_row_owner, spmm_segments, *([spmm_tiles] if features <= 16 else [])):
        near(form(there, leaf.detach()), plain.detach())
    leaf.grad = None
    y = spmm_gespmm(there, leaf, back)
    y.backward(on)
    near(y.detach(), plain.detach(), 1e-5)
    near(leaf.grad, x.grad, 1e-5)
    for cap, vector in ((8, 1), (32, 2), (64, 4)):
        if features % 32 == 0:
            near(spmm_sliced(slice_csr(there, cap), leaf.detach(), vector=vector), plain.detach())


def test_clocks_of_warps_say_where_they_ran():
    csr = to_device(hubs(20_000, weighted=False))
    limit = torch.cuda.get_device_properties(0).multi_processor_count
    for matrix, warps in ((csr, csr.num_rows), (slice_csr(csr), 0)):
        clocks = warp_clocks(matrix, torch.randn(20_000, 16, device="cuda"))
        assert len(clocks) >= warps  # a hub has several
        found = balance(clocks)
        assert 1 < found.multiprocessors <= limit
        assert 0 < found.balanced <= found.actual


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sliced", [False, True])
def test_arrived_topology_is_used_without_a_look_by_the_host(weighted, sliced):
    parts = PartTopology.build(snapshots(4, weighted=weighted))
    wire = pack(parts, sliced=sliced)
    x = draw(7, VERTICES, 4, 16)
    host = x.clone().requires_grad_()
    y = aggregate_parts_scatter(parts, host, *scales_of(parts, "sym"), self_loop=True)
    y.square().sum().backward()
    pinned = [t.pin_memory() for t in wire.tensors]
    device, unit = x.cuda().requires_grad_(), torch.ones((), device="cuda")
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        arrived = unpack(wire.layout, [t.to("cuda", non_blocking=True) for t in pinned])
        scales = scales_of(arrived, "sym")
        z = aggregate_parts_scatter(arrived, device, *scales, self_loop=True)
        z.square().sum().backward(unit)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    near(z.detach(), y.detach())
    near(device.grad, host.grad, 5e-6)


def test_every_launch_of_a_partition_can_be_captured(graphed):
    """Unpacking and scans included; sums of atomics differ in their last bits."""
    group = snapshots(4)
    parts = PartTopology.build([to_device(csr) for csr in group])
    wire = pack(PartTopology.build(group))
    arrived, sliced = [t.cuda() for t in wire.tensors], slice_parts(parts)
    cube, seq = draw(1, VERTICES, 4, 16).cuda(), draw(2, 8, 3000, 16).cuda()
    weights = [(draw(3, *shape) * 0.3).cuda() for shape in ((16, 96), (32, 96), (96,))]

    def work() -> list[Tensor]:
        found = unpack(wire.layout, arrived)
        one, u = cube.clone().requires_grad_(), weights[1].clone().requires_grad_()
        y = aggregate_parts_scatter(found, one, *scales_of(found, "mean"), self_loop=True)
        last = gru_scan(seq, weights[0], u, weights[2])[1]
        grads = [*torch.autograd.grad(y, one, cube), *torch.autograd.grad(last.sum(), u)]
        sums = [aggregate_parts_sliced(sliced, cube), scatter_parts_sliced(sliced, cube)]
        whole = aggregate_parts(parts, cube, self_loop=True)
        return [last.detach(), whole, y.detach(), *grads, *sums]

    expected, results = graphed(work)
    assert all(map(torch.equal, results[:2], expected[:2]))
    for one, right in zip(results, expected, strict=True):
        near(one, right.cpu())
