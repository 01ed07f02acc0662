"""Label propagation on the device: the same labels, loads and counts as on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgbench.kernels_cuda import build_info
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import propagate_labels, sweep_salt

CPU = build_info.extension(torch.device("cpu"))

CASES = [  # vertices, degree, hub, cap, rounds, block, weighted, active only
    (1, 0, False, 1, 1, 1, False, False),
    (60, 4, False, 7, 2, 16, True, False),
    (300, 6, True, 20, 2, 64, False, True),
    (300, 30, False, 15, 4, 300, True, True),
    (700, 5, True, 3, 2, 1000, True, False),
    (5200, 1, True, 400, 1, 1 << 20, False, False),  # more labels at a hub than its table holds
    (90, 8, False, 1, 2, 32, True, True),
    # All but a few want the hub's label with the same gain: several runs are sorted and merged.
    (3000, 0, True, 40, 1, 3000, False, False),
    (3000, 0, True, 2999, 1, 1 << 20, True, False),
    (4000, 1, True, 700, 1, 2500, True, True),
]


def random_graph(random: np.random.Generator, vertices: int, degree: int, hub: bool) -> Csr:
    """Symmetric, with loops, doubled and isolated vertices."""
    pairs = random.integers(0, max(1, vertices * 9 // 10), (vertices * degree // 2, 2))
    if hub:
        spokes = np.arange(0, vertices, 1 if vertices > 1000 else 3)
        pairs = np.concatenate([pairs, np.stack([np.full_like(spokes, vertices // 2), spokes], 1)])
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    indptr = np.searchsorted(pairs[:, 0], np.arange(vertices + 1))
    indices = torch.from_numpy(pairs[:, 1].astype(np.int32))
    return Csr(torch.from_numpy(indptr).long(), indices.contiguous(), vertices)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
@pytest.mark.usefixtures("order")
def test_sweeps_equal_the_cpus(native, case, request):
    vertices, degree, hub, cap, rounds, block, weighted, active_only = case
    random = np.random.default_rng(vertices + degree)
    csr = random_graph(random, vertices, degree, hub)
    edge = vertex = None
    if weighted:
        edge = torch.from_numpy(random.integers(0, 4, csr.nnz).astype(np.int32))
        vertex = torch.from_numpy(random.integers(0, 3, vertices).astype(np.int32))
    weights = torch.ones(vertices) if vertex is None else vertex
    active = torch.ones(vertices, dtype=torch.uint8) if active_only else None
    host = [torch.arange(vertices, dtype=torch.int32), weights.long(), active]

    def placed(arrays: list[Tensor | None]) -> list[Tensor | None]:
        return [None if t is None else native.put(t.clone()) for t in arrays]

    graph, device = [csr.indptr, csr.indices, edge, vertex], placed(host)
    most, integers = min(block, vertices), {"dtype": torch.int32, "device": native.device}
    scratch: list[Any] = [torch.full((most,), -7, **integers) for _ in range(2)]
    scratch += [scratch[0].long(), torch.full((2 * most,), -7, **integers)]
    scratch += [torch.zeros(vertices, dtype=torch.int64, device=native.device)]
    changed = 0
    for sweep in range(4):
        salt = sweep_salt(5, sweep)
        moved, looked = CPU.label_sweep(*graph, *host, cap, salt, rounds, block, 1)
        counts = torch.zeros(3, dtype=torch.int64, device=native.device)
        given = (*placed(graph), *device, cap, salt, rounds, block, *scratch, counts)
        native.call("label_sweep", *given)
        assert counts.tolist() == [moved, looked, 0]
        for one, right in zip(device, host, strict=True):
            assert right is None or torch.equal(one.cpu(), right)
        assert not scratch[-1].any()
        changed += moved
    assert changed > 0 or vertices == 1
    if case == CASES[7] and native.device == "cpu":  # contested places are sorted by many blocks
        log = request.getfixturevalue("log")
        native.call("label_sweep", *given)
        assert min(call.value for call in log.calls("launch")) > 1


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("active_only", [False, True])
def test_runs_on_a_device_equal_those_on_the_cpu(active_only):
    csr = random_graph(np.random.default_rng(1), 20_000, 6, True)
    settings = {"cap": 90, "block": 4096, "active_only": active_only, "seed": 3}
    right = propagate_labels(csr, **settings)
    there = Csr(csr.indptr.cuda(), csr.indices.cuda(), csr.num_cols)
    found = propagate_labels(there, **settings)
    assert found.labels.device.type == "cuda"
    assert torch.equal(found.labels.cpu(), right.labels)
    assert (found.moved, found.looked) == (right.moved, right.looked)
    assert torch.equal(found.chunks()[0].cpu(), right.chunks()[0])


def test_sizes_that_contradict_each_other_are_refused(native):
    indptr, loads = native.put([0, 1, 2], torch.int64), native.put([1, 1], torch.int64)
    indices, labels = native.put([1, 0], torch.int32), native.put([0, 1], torch.int32)
    given = [indptr, indices, None, None, labels, loads, None, 5, 1, 2, 2, labels.clone(),
             labels.clone(), loads.clone(), labels.repeat(2), loads * 0,
             native.put([0, 0, 0], torch.int64)]  # fmt: skip
    native.call("label_sweep", *given)
    for at, wrong, name in [
        (0, indptr[:2], "indptr"), (5, loads[:1], "loads"), (7, 0, "cap"), (9, 3, "rounds"),
        (11, labels[:1], "wished"), (16, loads, "counts"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=name):
            native.call("label_sweep", *given[:at], wrong, *given[at + 1 :])
