"""The CUDA kernels against float64 references.

Each test runs twice (see conftest.py): over the kernels played through on the host, and on a device
where one is. Outputs are poisoned before each call; what a kernel leaves out shows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda import build_info

EXACT = 2e-6
"""Largest ||o - r|| / ||r|| of a float32 operator against its float64 reference."""


def close(found: Tensor, expected: np.ndarray, bound: float = EXACT) -> None:
    found = found.double().cpu().numpy()
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    scale = np.linalg.norm(expected)
    assert np.linalg.norm(found - expected) <= bound * max(scale, 1e-3)


def csr(dense: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr, indices and values of the entries of a dense matrix that are not 0."""
    present = dense != 0
    indptr = np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int64)
    return indptr, np.nonzero(present)[1].astype(np.int32), dense[present].astype(np.float32)


def random_snapshots(seed: int, rows: int, columns: int, count: int, hub: bool) -> np.ndarray:
    """Weighted dense snapshots [S, rows, columns] that share about half of their entries."""
    random = np.random.default_rng(seed)
    common = random.random((rows, columns)) < 0.15
    own = random.random((count, rows, columns)) < 0.08
    present = common | own
    if rows and hub:
        present[:, 0] = True
    if rows > 2:
        present[:, 2] = False
    return np.where(present, random.normal(size=present.shape) + 3, 0).astype(np.float32)


def parts_of(snapshots: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """indptr, ids and weights of the shared and of the merged exclusive entries."""
    count = len(snapshots)
    bits = (count - 1).bit_length()
    shared = (snapshots != 0).all(0)
    over_indptr, over_indices, _ = csr(shared.astype(np.float32))
    over_values = np.moveaxis(snapshots, 0, -1)[shared]  # [M, S]
    single = (snapshots != 0) & ~shared
    indptr, entries, values = [0], [], []
    for row in range(snapshots.shape[1]):
        for column, s in zip(*np.nonzero(single[:, row].T), strict=True):
            entries.append(column << bits | s)
            values.append(snapshots[s, row, column])
        indptr.append(len(entries))
    exclusive = [
        np.array(indptr, np.int64),
        np.array(entries, np.uint32).astype(np.int32),
        np.array(values, np.float32),
    ]
    return [over_indptr, over_indices, over_values], exclusive


CASES = [  # rows, columns, S, F, weighted, row scale, column scale, self loop, hub
    (1, 1, 1, 1, False, False, False, True, False),
    (40, 40, 1, 2, True, True, True, True, False),
    (40, 40, 2, 2, True, True, True, True, False),
    (37, 37, 8, 2, False, True, True, True, False),
    (37, 37, 4, 3, True, False, True, False, False),
    (30, 50, 3, 1, True, True, False, False, False),
    (30, 30, 4, 16, False, True, True, True, False),
    (20, 20, 5, 6, True, True, True, True, False),
    (9, 9, 8, 33, True, True, True, True, False),
    (5, 5, 2, 129, False, False, False, True, False),
    (3, 1500, 2, 2, True, True, True, False, True),
    (2, 1100, 3, 4, False, False, False, False, True),
    (3, 1200, 1, 31, True, False, False, False, True),
    (0, 4, 2, 2, False, False, False, False, False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_aggregate_parts_and_scatter(native, case):
    rows, columns, count, features, weighted, row_scaled, col_scaled, self_loop, hub = case
    random = np.random.default_rng(rows * 31 + columns + features)
    snapshots = random_snapshots(count + features, rows, columns, count, hub)
    if not weighted:
        snapshots = (snapshots != 0).astype(np.float32)
    over, exclusive = parts_of(snapshots)
    r = random.random((rows, count)) + 0.5 if row_scaled else None
    c = random.random((columns, count)) + 0.5 if col_scaled else None
    full = snapshots.astype(np.float64)
    if self_loop:
        full = full + np.eye(rows, columns)
    if r is not None:
        full = full * r.T[:, :, None]
    if c is not None:
        full = full * c.T[:, None, :]
    lists = [
        native.put(over[0]),
        native.put(over[1]),
        native.put(over[2]) if weighted else None,
        native.put(exclusive[0]) if len(exclusive[1]) else None,
        native.put(exclusive[1]) if len(exclusive[1]) else None,
        native.put(exclusive[2]) if weighted and len(exclusive[1]) else None,
        None,
    ]
    scales = [None if s is None else native.put(s, torch.float32) for s in (r, c)]

    x = random.normal(size=(columns, count, features)).astype(np.float32)
    y = native.poisoned(rows, count, features)
    native.call("aggregate_parts", *lists, native.put(x), y, *scales, self_loop)
    close(y, np.einsum("srk,ksf->rsf", full, x.astype(np.float64)))

    x = random.normal(size=(rows, count, features)).astype(np.float32)
    back = native.poisoned(columns, count, features)
    native.call("aggregate_parts_scatter", *lists, native.put(x), back, *scales, self_loop)
    close(back, np.einsum("srk,rsf->ksf", full, x.astype(np.float64)))


@pytest.mark.parametrize("features", [1, 2, 3, 4, 6, 8, 16, 31, 32, 33, 64, 128, 130])
def test_spmm_and_the_gespmm_baseline(native, features):
    random = np.random.default_rng(features)
    dense = random_snapshots(features, 45, 45, 1, hub=False)[0]
    indptr, indices, values = csr(dense)
    x = random.normal(size=(45, features)).astype(np.float32)
    for weights in (values, None):
        matrix = dense if weights is not None else (dense != 0).astype(np.float32)
        arrays = [native.put(indptr), native.put(indices)]
        arrays.append(None if weights is None else native.put(weights))
        y = native.poisoned(45, features)
        native.call("spmm", *arrays, None, native.put(x), y, None, None, False)
        close(y, matrix.astype(np.float64) @ x)
        y = native.poisoned(45, features)
        native.call("spmm_gespmm", *arrays, native.put(x), y, None)
        close(y, matrix.astype(np.float64) @ x)


def test_an_odd_base_address_takes_scalar_loads(native):
    """Rows of x begin four bytes past a vector's boundary; the kernel must not load vectors."""
    dense = random_snapshots(3, 20, 20, 1, hub=False)[0]
    indptr, indices, values = (native.put(a) for a in csr(dense))
    x = np.random.default_rng(1).normal(size=(20, 8)).astype(np.float32)
    room = native.put(np.concatenate([[0], x.ravel()]), torch.float32)
    y = native.poisoned(20 * 8 + 1)[1:].view(20, 8)
    native.call("spmm", indptr, indices, values, None, room[1:].view(20, 8), y, None, None, False)
    close(y, dense.astype(np.float64) @ x)


def test_a_hub_row_gives_the_same_bits_every_time(native):
    random = np.random.default_rng(5)
    indices = native.put(random.integers(0, 50, 5000), torch.int32)
    indptr = native.put(np.array([0, 10, 4990, 5000]), torch.int64)
    x = native.put(random.normal(size=(50, 12)), torch.float32)
    results = []
    for _ in range(3):
        y = native.poisoned(3, 12)
        native.call("spmm", indptr, indices, None, None, x, y, None, None, False)
        results.append(y)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def cell_reference(gates: int, x, w_in, w_hid, bias, h, c) -> tuple[Tensor, Tensor, Tensor]:
    """Every step written out; autograd gives the gradients."""
    states = []
    hidden = w_hid.shape[0]
    for step in x:
        if gates == 3:
            a = step @ w_in + bias
            u = h @ w_hid[:, : 2 * hidden]
            z = torch.sigmoid(a[:, :hidden] + u[:, :hidden])
            r = torch.sigmoid(a[:, hidden : 2 * hidden] + u[:, hidden:])
            n = torch.tanh(a[:, 2 * hidden :] + (r * h) @ w_hid[:, 2 * hidden :])
            h = z * h + (1 - z) * n
        else:
            a = step @ w_in + bias + h @ w_hid
            i, f, g, o = a.chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states) if states else x.new_zeros(0, *h.shape), h, c


SCANS = [  # steps, vertices, features, hidden, shared memory, processors
    (3, 5, 4, 8, None, 9),
    (4, 37, 3, 5, None, 9),
    (2, 150, 6, 32, None, 1),
    (2, 70, 16, 40, None, 1),
    (3, 70, 5, 8, 8000, 1),  # wide tiles, weights read through the caches
    (3, 20, 5, 24, 6000, 1),  # small tiles, weights read through the caches
    (0, 4, 2, 3, None, 1),
    (1, 1, 1, 1, None, 1),
    (40, 30, 2, 4, None, 1),  # more than one part of the weight gradients
]


@pytest.mark.parametrize("gates", [3, 4], ids=["gru", "lstm"])
@pytest.mark.parametrize("case", SCANS, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_scans_and_their_gradients(native, gates, case, order, monkeypatch):
    steps, vertices, features, hidden, shared, processors = case
    if native.device == "cpu":
        monkeypatch.setenv("EMULATED_PROCESSORS", str(processors))
        if shared is not None:
            monkeypatch.setenv("EMULATED_SHARED", str(shared))
        if order == "reverse":
            monkeypatch.setenv("EMULATED_ORDER", "reverse")
    generator = torch.Generator().manual_seed(steps * 7 + vertices)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    x = draw(vertices, steps, features).transpose(0, 1)  # a view: vertices outermost in memory
    w_in, w_hid = draw(features, gates * hidden) * 0.5, draw(hidden, gates * hidden) * 0.5
    bias, h0, c0 = draw(gates * hidden), draw(vertices, hidden), draw(vertices, hidden)
    grad_all, grad_h = draw(steps, vertices, hidden), draw(vertices, hidden)
    grad_c = draw(vertices, hidden)

    inputs = [t.double().requires_grad_() for t in (x, w_in, w_hid, bias, h0, c0)]
    all_ref, h_ref, c_ref = cell_reference(gates, *inputs)
    loss = (all_ref * grad_all).sum() + (h_ref * grad_h).sum()
    if gates == 4:
        loss = loss + (c_ref * grad_c).sum()
    expected = torch.autograd.grad(loss, inputs, allow_unused=True)

    name = "gru" if gates == 3 else "lstm"
    put = [t.to(native.device) for t in (x, w_in, w_hid, bias, h0, c0)]
    sizes = (steps, vertices, features, hidden, gates, 4)
    record = native.poisoned(native.module.scan_record_size(*sizes))
    workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
    h_all, h_last, c_last = (native.poisoned(*t.shape) for t in (grad_all, grad_h, grad_h))
    given = put[:5] if gates == 3 else put
    last = [h_last] if gates == 3 else [h_last, c_last]
    native.call(f"{name}_scan_forward", *given, h_all, *last, record)
    close(h_all, all_ref.detach().numpy())
    close(h_last, h_ref.detach().numpy())
    if gates == 4:
        close(c_last, c_ref.detach().numpy())

    grads = [torch.full_like(t, math.nan) for t in given]
    incoming = [grad_all, grad_h] if gates == 3 else [grad_all, grad_h, grad_c]
    incoming = [t.to(native.device) for t in incoming]
    native.call(f"{name}_scan_backward", *given, record, *incoming, *grads, workspace)
    for found, reference in zip(grads, expected, strict=False):
        reference = torch.zeros_like(found) if reference is None else reference
        close(found, reference.detach().double().cpu().numpy(), 2e-5)


def test_scans_without_optional_arrays(native):
    """No first state, no h_all, no record; backward with only grad_h_last and only grad_w_hid."""
    generator = torch.Generator().manual_seed(3)
    x, w_in, w_hid, bias, grad = (
        torch.randn(*s, generator=generator) for s in [(3, 9, 2), (2, 12), (4, 12), (12,), (9, 4)]
    )
    zero = torch.zeros(9, 4).double()
    w = w_hid.double().requires_grad_()
    _, h_ref, _ = cell_reference(3, x.double(), w_in.double(), w, bias.double(), zero, zero)
    (expected,) = torch.autograd.grad((h_ref * grad).sum(), w)
    given = [t.to(native.device) for t in (x, w_in, w_hid, bias)]
    h_last = native.poisoned(9, 4)
    native.call("gru_scan_forward", *given, None, None, h_last, None)
    close(h_last, h_ref.detach().numpy())
    sizes = (3, 9, 2, 4, 3, 4)
    record = native.poisoned(native.module.scan_record_size(*sizes))
    native.call("gru_scan_forward", *given, None, None, h_last, record)
    workspace = native.poisoned(native.module.scan_workspace_size(*sizes))
    out = native.poisoned(4, 12)
    native.call(
        "gru_scan_backward",
        *given,
        None,
        record,
        None,
        grad.to(native.device),
        None,
        None,
        out,
        None,
        None,
        workspace,
    )
    close(out, expected.numpy(), 2e-5)
    with pytest.raises(ValueError, match="record is None"):
        native.call("gru_scan_backward", *given, *[None] * 9, workspace)


def test_slices_overlap_and_union_equal_the_host(native):
    cpu = build_info.extension(torch.device("cpu"))
    snapshots = random_snapshots(9, 300, 80, 3, hub=True)
    matrices = [csr(snapshot) for snapshot in snapshots]
    indptr = [torch.from_numpy(m[0]) for m in matrices]
    indices = [torch.from_numpy(m[1]) for m in matrices]
    values = [torch.from_numpy(m[2]) for m in matrices]

    def both(name: str, *arguments):
        """Call the host's and the device's function; `arguments` end up written on both."""
        moved = [
            [t.clone().to(native.device) for t in a]
            if isinstance(a, list)
            else (a.clone().to(native.device) if isinstance(a, Tensor) else a)
            for a in arguments
        ]
        getattr(cpu, name)(*arguments)
        native.call(name, *moved)
        for host, device in zip(arguments, moved, strict=True):
            if not isinstance(host, list):
                host, device = [host], [device]
            for one, other in zip(host, device, strict=True):
                assert not isinstance(one, Tensor) or torch.equal(one, other.cpu())

    for cap in (1, 32):
        first = torch.zeros(301, dtype=torch.int64)
        both("count_slices", indptr[0], cap, first[1:].clone())
        cpu.count_slices(indptr[0], cap, first[1:])
        first = first.cumsum(0)
        slices = int(first[-1])
        rows, offsets = torch.zeros(slices, dtype=torch.int32), torch.zeros(slices + 1).long()
        both("fill_slices", indptr[0], first, cap, rows, offsets)
    for cap in (0, 4):
        over = torch.zeros(301, dtype=torch.int64)
        cpu.count_shared(indptr, indices, cap, over[1:])
        both("count_shared", indptr, indices, cap, torch.zeros(300, dtype=torch.int64))
        over = over.cumsum(0)
        shared = int(over[-1])
        assert shared > 100
        rest = [torch.zeros(i.numel() - shared, dtype=torch.int32) for i in indices]
        weights = [torch.zeros(r.numel()) for r in rest]
        columns, shared_values = torch.zeros(shared, dtype=torch.int32), torch.zeros(shared, 3)
        both("split", indptr, indices, values, cap, over, columns, shared_values, rest, weights)
    united = torch.zeros(301, dtype=torch.int64)
    cpu.count_union(indptr, indices, united[1:])
    both("count_union", indptr, indices, torch.zeros(300, dtype=torch.int64))
    united = united.cumsum(0)
    size = int(united[-1])
    ids, mask = torch.zeros(size, dtype=torch.int32), torch.zeros(size, dtype=torch.int32)
    both("unite", indptr, indices, values, united, ids, mask, torch.zeros(size, 3))
    both("check_csr", indptr[0], indices[0], 80, torch.full((3,), -1, dtype=torch.int64))
    found = native.put([-1, -1, -1], torch.int64)
    wrong = native.put([0, 2], torch.int64), native.put([1, 1], torch.int32)
    native.call("check_csr", *wrong, 1, found)
    assert found.tolist() == [-1, 0, 0]


def test_the_build_says_what_it_was_built_for(native):
    assert native.module.probe() == ""
    assert native.module.build_info()["architectures"]
