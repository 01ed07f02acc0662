"""Predicted workloads: aggregation over partitions (A), differences (B) and label sweeps (F)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.aggregate import (
    aggregate_parts,
    aggregate_parts_scatter,
    aggregate_union,
    spmm,
)
from dgbench.kernels_cuda.aggregate.prepared import weights_of
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import Difference, encode, rebuild
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants import spmm_gespmm
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.operators.graphs import PowerLawGraphs, on_device
from dgbench.systems.operators.predictions.case import PredictedCase, against, at, differing

HEPTH = (22_000, 84_000, 4, 7, 16)
FLICKR = (2_300_000, 3_640_000, 8, 15, 2)
"""Vertices, entries of a snapshot, snapshots, edge-life, features: (life - snapshots + 1) / life of
the entries are shared by all."""
NARROW = (200_000, 13_200_000)
"""Vertices and entries of one weighted snapshot, rows and columns by rank^-0.75."""
AMLSIM = (1_000_000, 5_200_000, 0.23)
"""Vertices, entries, share of them that changes."""
MOVIE = (149_000, 289, 27_000_000)
"""Entities, steps of each, edges between entities in the same step: 43 M vertex-steps."""
SWEEPS = 4


def snapshots(
    vertices: int, entries: int, count: int, life: int, device: str, seed: int = 1
) -> list[Csr]:
    """Snapshots of a growing graph, each with the edges of the last `life` steps; power law."""
    fresh, steps = -(-entries // life), life + count - 1
    draw = torch.Generator(device).manual_seed(seed)
    keys = torch.empty(0, dtype=torch.int64, device=device)
    while keys.numel() < fresh * steps:
        ends = torch.rand(2, fresh * steps, generator=draw, dtype=torch.float64, device=device)
        rows, columns = (vertices * ends[0] ** 3).long(), (vertices * ends[1] ** 2).long()
        keys = torch.cat([keys, rows * vertices + columns]).unique()
    order = torch.randperm(keys.numel(), generator=draw, device=device)[: fresh * steps]
    born = keys[order].view(steps, fresh)
    return [from_keys(born[t : t + life].flatten().sort().values, vertices) for t in range(count)]


def from_keys(keys: Tensor, vertices: int) -> Csr:
    """The unweighted square matrix of ascending keys, on their device."""
    indptr = torch.zeros(vertices + 1, dtype=torch.int64, device=keys.device)
    indptr[1:] = torch.bincount(keys // vertices, minlength=vertices).cumsum(0)
    return Csr(indptr, (keys % vertices).int(), vertices)


def product(csr: Csr, x: Tensor) -> Tensor:
    """A x in float64 by torch."""
    values = torch.ones(csr.nnz, device=x.device, dtype=torch.float64)
    size = (csr.num_rows, csr.num_cols)
    return torch.sparse_csr_tensor(csr.indptr, csr.indices.long(), values, size) @ x.double()


def each(group: list[Csr], x: Tensor) -> Tensor:
    """All products in float64."""
    return torch.stack([product(csr, x[:, i]) for i, csr in enumerate(group)], 1)


def aggregation(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    draw = torch.Generator(device).manual_seed(5)

    def made(sizes: tuple[int, ...]) -> tuple[list[Csr], PartTopology, Tensor]:
        vertices, entries, count, life, width = sizes
        n = at(share, vertices, 40)
        group = snapshots(n, at(share, entries, 60), count, life, device)
        return group, PartTopology.build(group), torch.randn(
            n, count, width, generator=draw, device=device
        )  # fmt: skip

    group, parts, x = made(HEPTH)
    run = partial(aggregate_parts, parts, x)
    for name, warm in (("A1 small", True), ("A1 small, from memory", False)):
        yield name, PredictedCase(run, against(run, partial(each, group, x)), warm=warm)
    group, parts, x = made(FLICKR)
    right = partial(each, group, x)
    run = partial(aggregate_parts, parts, x)
    yield "A1 overlap and exclusive", PredictedCase(run, against(run, right))
    union = UnionTopology.build(group)
    note = "" if device == "cuda" else "on the CPU by weights of 0 and 1"
    run = partial(aggregate_union, union, x)
    yield "A1 union", PredictedCase(run, against(run, right), note=note)
    weighted = replace(union, csr=replace(union.csr, values=weights_of(union)))
    run = partial(aggregate_union, weighted, x)
    yield "A1 union by weights", PredictedCase(run, against(run, right))
    del run, union, weighted
    slabs = [x[:, i].contiguous() for i in range(x.shape[1])]
    for name, single in singles(group).items():
        run = partial(one_by_one, single, slabs)
        yield name, PredictedCase(run, against(lambda run=run: torch.stack(run(), 1), right))
    del slabs
    grad = torch.randn(x.shape, generator=draw, device=device)
    back = partial(each, [transpose(csr) for csr in group], grad)
    for name, operator in (
        ("A4 deterministic", aggregate_parts),
        ("A4 atomic", aggregate_parts_scatter),
    ):
        leaf = x.clone().requires_grad_()
        run = partial(gradient, operator(parts, leaf), leaf, grad)
        note = "" if device == "cuda" else "on the CPU this form uses no atomics"
        yield name, PredictedCase(run, against(run, back), note=note if "atomic" in name else "")


def narrow(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    graphs = PowerLawGraphs(at(share, NARROW[0]))
    csr = graphs.weighted(graphs.keys(at(share, NARROW[1])))
    back = on_device(transpose(csr), device)
    csr = on_device(csr, device)
    draw = torch.Generator(device).manual_seed(7)
    library = weighted_csr(csr)
    for width in (1, 2, 4, 8, 16):
        x = torch.randn(csr.num_rows, width, generator=draw, device=device)
        run = partial(spmm, csr, x)
        right = partial(weighted_product, csr, x)
        yield f"A5 {width} wide", PredictedCase(run, against(run, right))
        if width == 1:
            run = partial(torch.matmul, library, x)
            yield "A5 cuSPARSE", PredictedCase(run, against(run, right))
            run = partial(spmm, back, x)
            right = partial(weighted_product, back, x)
            yield "A5 1 wide, transposed", PredictedCase(run, against(run, right))


def weighted_csr(csr: Csr, dtype: torch.dtype = torch.float32) -> Tensor:
    """torch's CSR of a weighted matrix."""
    assert csr.values is not None
    size = (csr.num_rows, csr.num_cols)
    ids = csr.indptr.int(), csr.indices
    return torch.sparse_csr_tensor(*ids, csr.values.to(dtype), size, check_invariants=False)


def weighted_product(csr: Csr, x: Tensor) -> Tensor:
    """A x in float64 by torch."""
    return weighted_csr(csr, torch.float64) @ x.double()


def gradient(y: Tensor, leaf: Tensor, grad: Tensor) -> Tensor:
    """The backward pass alone."""
    return torch.autograd.grad(y, leaf, grad, retain_graph=True)[0]


def one_by_one(single: Any, slabs: list[Tensor]) -> list[Tensor]:
    """Snapshot after snapshot, from features that lie together, without joining the results."""
    return [single(i, slab) for i, slab in enumerate(slabs)]


def singles(group: list[Csr]) -> dict[str, Any]:
    """(number of the snapshot, x) -> product, by what others use for it."""
    size = (group[0].num_rows, group[0].num_cols)
    library = [
        torch.sparse_csr_tensor(c.indptr.int(), c.indices, x_ones(c), size, check_invariants=False)
        for c in group
    ]
    rows = [
        torch.repeat_interleave(torch.arange(size[0], device=c.indptr.device), c.indptr.diff())
        for c in group
    ]
    columns = [c.indices.long() for c in group]
    return {
        "A2 GE-SpMM-like": lambda i, x: spmm_gespmm(group[i], x),
        "A2 cuSPARSE": lambda i, x: library[i] @ x,
        "A2 PyG scatter": lambda i, x: torch.zeros_like(x).index_add_(
            0, rows[i], x.index_select(0, columns[i])
        ),
    }


def x_ones(csr: Csr) -> Tensor:
    return torch.ones(csr.nnz, device=csr.indptr.device)


def pair(vertices: int, entries: int, delta: float) -> tuple[Csr, Csr]:
    """Two snapshots, the second differing from the first by a share of its entries."""
    random = np.random.default_rng(int(1000 * delta))
    keys = np.unique(random.integers(0, vertices * vertices, entries))
    half = round(delta * keys.size / 2)
    kept = np.delete(keys, random.choice(keys.size, half, replace=False))
    new = np.union1d(kept, random.integers(0, vertices * vertices, half))
    old, new = (from_keys(torch.from_numpy(one), vertices) for one in (keys, new))
    return old, new


def over_link(device: str, old: Csr, sent: Difference) -> Callable[[], Csr]:
    """From the host to a matrix on the device, from memory staged as the link wants it.

    As in the system's own delivery, indices go ahead of the values: rebuilding reads no value.
    """
    link = open_link(device, Meter(device=device), arena=device != "cuda")
    parts = [link.stage_all(part) for part in (sent.tensors[:2], sent.tensors[2:])]

    def bring() -> Csr:
        tickets = [link.send(part) for part in parts]
        removed, added = tickets[0].wait()
        there = replace(sent, removed=removed, added=added, values=None)
        made = rebuild(old, there, check=False)
        (values,) = tickets[1].wait()
        for ticket in tickets:
            ticket.release()
        return replace(made, values=values)

    return bring


def differences(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    vertices, entries, delta = AMLSIM
    old, new = pair(at(share, vertices), at(share, entries), delta)
    there = on_device(old, device)
    sent = encode(old, new, fallback=False)
    base = encode(None, new)
    moved = sent.with_tensors([t.to(device) for t in sent.tensors])
    run = partial(rebuild, there, moved, check=False)

    def deviation() -> float:
        found = run()
        return max(differing(found.indices, new.indices), differing(found.indptr, new.indptr))

    yield "B1 rebuild", PredictedCase(run, deviation)

    for name, one in (("B1 transfer", sent), ("B1 plain transfer", base)):
        bring = over_link(device, there, one)
        yield (
            name,
            PredictedCase(bring, partial(arrives, bring, new), note="with values and the rebuild"),
        )


def arrives(bring: Callable[[], Csr], new: Csr) -> float:
    """Deviation of a matrix that was brought from the one that was sent."""
    found = bring()
    return max(differing(found.indices, new.indices), differing(found.indptr, new.indptr))


def vertex_steps(share: float, device: str) -> Csr:
    """Entities over time, entity by entity: each step with the ones before and after, and edges."""
    entities, steps, edges = at(share, MOVIE[0], 3), MOVIE[1], at(share, MOVIE[2])
    draw = torch.Generator(device).manual_seed(6)
    ends = torch.rand(2, edges, generator=draw, dtype=torch.float64, device=device)
    one, other = (entities * ends[0] ** 2).long(), (entities * ends[1]).long()
    when = torch.randint(steps, (edges,), generator=draw, device=device)
    apart = one != other
    one, other = ((e * steps + when)[apart] for e in (one, other))
    count = entities * steps
    early = torch.arange(count, device=device)
    early = early[early % steps != steps - 1]
    rows = torch.cat([one, early]), torch.cat([other, early + 1])
    keys = torch.cat([rows[0] * count + rows[1], rows[1] * count + rows[0]]).unique()
    return from_keys(keys, count)


def labels(share: float, device: str) -> Iterator[tuple[str, PredictedCase]]:
    csr = vertex_steps(share, device)
    here = Csr(csr.indptr.cpu(), csr.indices.cpu(), csr.num_cols) if share < 1 else csr
    # One block: on a device a round costs launches for each.
    how = {"cap": -(-csr.num_rows // 64), "sweeps": SWEEPS, "share": 0.0, "block": 1 << 26}
    run = partial(propagate_labels, csr, **how)

    def deviation() -> float:
        return differing(run().labels, propagate_labels(here, threads=1, **how).labels)

    note = f"a {SWEEPS}th of {SWEEPS} sweeps, with the check of the matrix"
    yield "F1", PredictedCase(run, deviation, per=SWEEPS, note=note)
