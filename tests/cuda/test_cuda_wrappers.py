"""The public operators on a CUDA device against themselves on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.kernels_cuda.scan import gru_scan, lstm_scan
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
from dgbench.runtime.graphs import CapturedStage
from dgbench.systems.pipad.wire import pack, scales_of, unpack

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("usable_device")]


def graph(seed: int, vertices: int, degree: int, *, weighted: bool = False) -> Csr:
    """A random square matrix with a hub in row 0 and empty rows at the end."""
    random = np.random.default_rng(seed)
    keys = random.integers(0, (vertices - 3) * vertices, vertices * degree)
    keys = np.unique(np.concatenate([keys, np.arange(vertices)]))
    indptr = np.zeros(vertices + 1, np.int64)
    np.cumsum(np.bincount(keys // vertices, minlength=vertices), out=indptr[1:])
    values = torch.from_numpy(random.normal(size=len(keys)).astype(np.float32))
    indices = torch.from_numpy((keys % vertices).astype(np.int32))
    return Csr(torch.from_numpy(indptr), indices, vertices, values if weighted else None)


def to_device(csr: Csr) -> Csr:
    values = None if csr.values is None else csr.values.cuda()
    return Csr(csr.indptr.cuda(), csr.indices.cuda(), csr.num_cols, values)


def close(device: Tensor, host: Tensor, bound: float = 2e-6) -> None:
    assert device.is_cuda
    difference = (device.cpu().double() - host.double()).norm()
    assert difference <= bound * max(host.double().norm().item(), 1e-3)


def snapshots(count: int, *, weighted: bool = False) -> list[Csr]:
    base = graph(0, 1500, 6)
    group = []
    for seed in range(count):
        own = graph(seed + 1, 1500, 2)
        keys = torch.cat([_keys(base), _keys(own)]).unique()
        indptr = torch.zeros(1501, dtype=torch.int64)
        indptr[1:] = torch.bincount(keys // 1500, minlength=1500).cumsum(0)
        generator = torch.Generator().manual_seed(seed)
        values = torch.rand(keys.numel(), generator=generator) if weighted else None
        group.append(Csr(indptr, (keys % 1500).int(), 1500, values))
    return group


def _keys(csr: Csr) -> Tensor:
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    return rows * csr.num_cols + csr.indices


@pytest.mark.parametrize("features", [1, 2, 6, 16, 33, 128])
@pytest.mark.parametrize("weighted", [False, True])
def test_spmm_and_its_gradient(features, weighted):
    csr = graph(features, 2000, 8, weighted=weighted)
    generator = torch.Generator().manual_seed(features)
    x = torch.randn(2000, features, generator=generator)
    scales = [torch.rand(2000, generator=generator) + 0.5 for _ in range(2)]
    host, device = x.clone().requires_grad_(), x.cuda().requires_grad_()
    y = spmm(csr, host, *scales, self_loop=True)
    z = spmm(to_device(csr), device, *[s.cuda() for s in scales], self_loop=True)
    close(z, y.detach())
    weight = torch.randn(y.shape, generator=generator)
    (y * weight).sum().backward()
    (z * weight.cuda()).sum().backward()
    close(device.grad, host.grad)


@pytest.mark.parametrize("operator", [aggregate_parts, aggregate_parts_scatter])
@pytest.mark.parametrize(("count", "features"), [(1, 4), (2, 2), (4, 16), (8, 2), (3, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_aggregate_parts_and_its_gradient(operator, count, features, weighted):
    group = snapshots(count, weighted=weighted)
    parts = PartTopology.build(group)
    moved = PartTopology.build([to_device(csr) for csr in group])
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(1500, count, features, generator=generator)
    scales = [torch.rand(1500, count, generator=generator) + 0.5 for _ in range(2)]
    host, device = x.clone().requires_grad_(), x.cuda().requires_grad_()
    y = operator(parts, host, *scales, self_loop=True)
    z = operator(moved, device, *[s.cuda() for s in scales], self_loop=True)
    close(z, y.detach())
    y.square().sum().backward()
    z.square().sum().backward()
    close(device.grad, host.grad, 5e-6)


@pytest.mark.parametrize("granularity", ["edge", "slice"])
def test_parts_union_and_slices_are_the_same_arrays(granularity):
    group = snapshots(4, weighted=True)
    moved = [to_device(csr) for csr in group]
    host, device = (PartTopology.build(g, granularity) for g in (group, moved))
    pairs = list(zip((host.over, *host.exclusive), (device.over, *device.exclusive), strict=True))
    unions = UnionTopology.build(group), UnionTopology.build(moved)
    assert torch.equal(unions[0].mask, unions[1].mask.cpu())
    pairs.append((unions[0].csr, unions[1].csr))
    for one, other in pairs:
        assert torch.equal(one.indptr, other.indptr.cpu())
        assert torch.equal(one.indices, other.indices.cpu())
        assert torch.equal(one.values, other.values.cpu())
        a, b = slice_csr(one), slice_csr(other)
        assert torch.equal(a.row_indices, b.row_indices.cpu())
        assert torch.equal(a.slice_offsets, b.slice_offsets.cpu())
    assert host.words() == device.words()
    assert host.jaccard() == device.jaccard()


@pytest.mark.parametrize("features", [2, 6, 16, 64, 128])
def test_the_papers_kernels(features):
    csr = graph(1, 2000, 8, weighted=True)
    moved = to_device(csr)
    x = torch.randn(2000, features, generator=torch.Generator().manual_seed(1))
    y = spmm(csr, x)
    close(spmm_gespmm(moved, x.cuda()), y)
    close(spmm_sliced(slice_csr(moved), x.cuda()), y)
    group = snapshots(4)
    x = torch.randn(1500, 4, features, generator=torch.Generator().manual_seed(2))
    parts = PartTopology.build([to_device(csr) for csr in group])
    close(aggregate_parts_sliced(parts, x.cuda()), aggregate_parts(PartTopology.build(group), x))


@pytest.mark.parametrize("scan", [gru_scan, lstm_scan])
@pytest.mark.parametrize(("features", "hidden"), [(16, 32), (32, 64), (64, 128), (2, 6)])
def test_scans_and_their_gradients(scan, features, hidden):
    gates = 3 if scan is gru_scan else 4
    generator = torch.Generator().manual_seed(hidden)
    shapes = [(12, 700, features), (features, gates * hidden), (hidden, gates * hidden)]
    shapes += [(gates * hidden,), (700, hidden)]
    inputs = [torch.randn(*s, generator=generator) * 0.3 for s in shapes]
    found = []
    for device in ("cpu", "cuda"):
        given = [t.to(device).detach().requires_grad_() for t in inputs]
        h_all, *last = scan(*given, all_steps=True)
        loss = h_all.square().sum() + sum(t.sum() for t in last)
        found.append([h_all, *last, *torch.autograd.grad(loss, given)])
    for host, device in zip(*found, strict=True):
        close(device, host.detach(), 2e-5)


def test_the_same_bits_every_time_and_on_another_stream():
    parts = PartTopology.build([to_device(csr) for csr in snapshots(4)])
    x = torch.randn(1500, 4, 16, device="cuda")
    seq, w = torch.randn(8, 3000, 16, device="cuda"), torch.randn(16, 96, device="cuda") * 0.3
    u, b = torch.randn(32, 96, device="cuda") * 0.3, torch.randn(96, device="cuda")
    first = None
    other = torch.cuda.Stream()
    for stream in (torch.cuda.current_stream(), other, torch.cuda.current_stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            weight = u.clone().requires_grad_()
            _, last = gru_scan(seq, w, weight, b)
            last.square().sum().backward()
            result = [aggregate_parts(parts, x, self_loop=True), last.detach(), weight.grad]
        stream.synchronize()
        first = first or result
        assert all(torch.equal(a, c) for a, c in zip(first, result, strict=True))


def test_operators_can_be_captured_into_a_graph():
    """A capture fails on any hidden synchronisation, allocation or use of the default stream."""
    csr = to_device(graph(1, 2000, 8))
    parts = PartTopology.build([to_device(c) for c in snapshots(4)])
    x, cube = torch.randn(2000, 16, device="cuda"), torch.randn(1500, 4, 16, device="cuda")
    seq, w = torch.randn(8, 300, 16, device="cuda"), torch.randn(16, 96, device="cuda")
    u, b = torch.randn(32, 96, device="cuda"), torch.randn(96, device="cuda")

    def work() -> list[Tensor]:
        return [
            spmm(csr, x),
            aggregate_parts(parts, cube, self_loop=True),
            gru_scan(seq, w, u, b)[1],
        ]

    expected = work()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph_ = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_):
        results = work()
    for result in results:
        result.fill_(float("nan"))
    graph_.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, c) for a, c in zip(results, expected, strict=True))


@pytest.mark.parametrize("vector", [1, 2, 4])
@pytest.mark.parametrize("features", [32, 64, 128])
def test_vector_loads_of_the_papers_kernel(features, vector):
    csr = graph(2, 2000, 8, weighted=True)
    x = torch.randn(2000, features, generator=torch.Generator().manual_seed(3))
    for cap in (8, 16, 32, 64):
        y = spmm_sliced(slice_csr(to_device(csr), cap), x.cuda(), vector=vector)
        close(y, spmm(csr, x))


@pytest.mark.parametrize("features", [2, 16, 64])
def test_the_papers_kernel_scatters_back(features):
    group = snapshots(4)
    parts = PartTopology.build([to_device(csr) for csr in group])
    x = torch.randn(1500, 4, features, generator=torch.Generator().manual_seed(4))
    host = x.clone().requires_grad_()
    aggregate_parts(PartTopology.build(group), host).backward(x)
    close(scatter_parts_sliced(slice_parts(parts), x.cuda()), host.grad)


@pytest.mark.parametrize("features", [2, 33, 64])
def test_gespmm_gathers_forward_and_backward(features):
    csr = graph(5, 2000, 8, weighted=True)
    x = torch.randn(2000, features, generator=torch.Generator().manual_seed(5))
    host, device = x.clone().requires_grad_(), x.cuda().requires_grad_()
    weight = torch.randn(2000, features, generator=torch.Generator().manual_seed(6))
    (spmm(csr, host) * weight).sum().backward()
    y = spmm_gespmm(to_device(csr), device, to_device(transpose(csr)))
    (y * weight.cuda()).sum().backward()
    close(device.grad, host.grad)


def test_clocks_of_warps_say_where_they_ran():
    csr = to_device(graph(6, 20_000, 8))
    x = torch.randn(20_000, 16, device="cuda")
    limit = torch.cuda.get_device_properties(0).multi_processor_count
    for matrix, warps in ((csr, csr.num_rows), (slice_csr(csr), None)):
        clocks = warp_clocks(matrix, x)
        assert warps is None or len(clocks) >= warps  # a hub has several
        found = balance(clocks)
        assert 1 < found.multiprocessors <= limit
        assert 0 < found.balanced <= found.actual


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sliced", [False, True])
def test_arrived_topology_is_used_without_a_look_by_the_host(weighted, sliced):
    group = snapshots(4, weighted=weighted)
    parts = PartTopology.build(group)
    wire = pack(parts, sliced=sliced)
    x = torch.randn(1500, 4, 16, generator=torch.Generator().manual_seed(7))
    rows, cols = scales_of(parts, "sym")
    host = x.clone().requires_grad_()
    y = aggregate_parts_scatter(parts, host, rows, cols, self_loop=True)
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
    close(z.detach(), y.detach())
    close(device.grad, host.grad, 5e-6)


def test_every_launch_of_a_partition_can_be_captured():
    """Unpacking included: no hidden wait, no memory but the allocator's, the caller's stream."""
    parts = PartTopology.build([to_device(csr) for csr in snapshots(4)])
    host = PartTopology.build(snapshots(4))
    wire = pack(host)
    arrived = [t.cuda() for t in wire.tensors]
    sliced = slice_parts(parts)
    csr = to_device(graph(1, 1500, 8))
    csc = transpose(csr)
    cube, flat = torch.randn(1500, 4, 16, device="cuda"), torch.randn(1500, 16, device="cuda")

    def work() -> list[Tensor]:
        found = unpack(wire.layout, arrived)
        one, two = cube.clone().requires_grad_(), flat.clone().requires_grad_()
        y = aggregate_parts_scatter(found, one, *scales_of(found, "mean"), self_loop=True)
        z = spmm_gespmm(csr, two, csc)
        grads = torch.autograd.grad([y, z], [one, two], [cube, flat])
        sums = [aggregate_parts_sliced(sliced, cube), scatter_parts_sliced(sliced, cube)]
        return [y.detach(), z.detach(), *grads, *sums]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        expected = work()
    torch.cuda.current_stream().wait_stream(side)
    graph_ = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_):
        results = work()
    for result in results:
        result.fill_(float("nan"))
    graph_.replay()
    torch.cuda.synchronize()
    for found, wanted in zip(results, expected, strict=True):
        close(found, wanted.cpu())  # sums of atomics differ in their last bits


def test_a_stage_replays_forward_and_backward():
    def work(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return gru_scan(x, w, u, b, all_steps=True)

    stage = CapturedStage(work, name="scan")
    generator = torch.Generator().manual_seed(8)
    shapes = [(16, 48), (16, 48), (48,)]
    weights = [torch.randn(*s, generator=generator) * 0.3 for s in shapes]
    parameters = [torch.nn.Parameter(w.cuda()) for w in weights]
    plain = [torch.nn.Parameter(w.cuda()) for w in weights]
    for seed in range(4):
        x = torch.randn(6, 300, 16, generator=torch.Generator().manual_seed(seed)).cuda()
        for leaves, function in ((parameters, stage), (plain, work)):
            states, last = function(x, *leaves)
            (states.square().sum() + last.sum()).backward()
        assert stage.reason == ""
        for mine, theirs in zip(parameters, plain, strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-5, atol=1e-5)
            with torch.no_grad():
                for leaf in (mine, theirs):
                    leaf -= 0.01 * leaf.grad
                    leaf.grad = None
    assert (stage.captures, stage.replays) == (1, 4)


def hubs(vertices: int = 30_000) -> Csr:
    """Rows that a device cuts: one that meets everybody, some of hundreds and of thousands."""
    lengths = np.random.default_rng(4).integers(0, 6, vertices)
    lengths[:9] = [vertices, 128, 129, 0, 1024, 1025, 4000, 1, 700]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    # Columns of a row step by a prime, so that none repeats; they need not ascend here.
    place = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)
    indices = (np.repeat(np.arange(vertices), lengths) * 31 + place * 7919) % vertices
    return Csr(torch.from_numpy(indptr), torch.from_numpy(indices.astype(np.int32)), vertices)


@pytest.mark.parametrize("features", [1, 6, 32, 130])
def test_long_rows_are_cut_and_give_the_same_bits_every_time(features):
    host = hubs()
    there = to_device(host)
    x = torch.randn(host.num_cols, features)
    leaf = x.cuda().requires_grad_()
    expected = x.clone().requires_grad_()
    y = spmm(there, leaf, self_loop=True)
    right = spmm(host, expected, self_loop=True)
    close(y.detach(), right.detach())
    grad = torch.randn_like(x)
    y.backward(grad.cuda())
    right.backward(grad)
    close(leaf.grad, expected.grad)
    with torch.no_grad():
        assert all(torch.equal(spmm(there, leaf, self_loop=True), y) for _ in range(3))
        close(spmm_row_owner(there, leaf), spmm(host, x))
        close(spmm_segments(there, leaf), spmm(host, x))
        if features <= 16:
            close(spmm_tiles(there, leaf), spmm(host, x))


def test_a_product_with_cut_rows_is_captured():
    there = to_device(hubs())
    x = torch.randn(there.num_cols, 16, device="cuda")
    expected = spmm(there, x)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        spmm(there, x)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        y = spmm(there, x)
    y.fill_(torch.nan)
    graph.replay()
    assert torch.equal(y, expected)
