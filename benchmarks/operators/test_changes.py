"""Differences of snapshots, groups of vertices, and the graph of all snapshots."""

from __future__ import annotations

import pytest
from graphs import million, snapshots, topology_bytes
from work import Work

from dgbench.kernels_cuda.difference import count_changes, encode, rebuild
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
from dgbench.kernels_cuda.supergraph import build_supergraph


def both() -> tuple[Work, list]:
    old, new = snapshots()[1:3]
    moved = topology_bytes(old) + topology_bytes(new)
    return Work(f"{million(old.nnz)} and {million(new.nnz)} entries", moved), [old, new]


def test_count_changes(timed):
    work, pair = both()
    removed, added = timed(work, count_changes, *pair)
    assert pair[0].nnz - removed + added == pair[1].nnz


def test_encode(timed):
    work, pair = both()
    sent = encode(*pair, values=False)
    work = Work(work.size, work.moved + sent.nbytes)
    assert timed(work, encode, *pair, values=False).nbytes == sent.nbytes


def test_rebuild(timed):
    work, (old, new) = both()
    sent = encode(old, new, values=False)
    work = Work(work.size, work.moved + sent.nbytes)
    assert timed(work, rebuild, old, sent).nnz == new.nnz


@pytest.mark.parametrize("form", [PartTopology, UnionTopology])
def test_overlap(timed, form):
    csrs = snapshots()
    moved = sum(topology_bytes(csr) for csr in csrs) + 4 * form.build(csrs).words()
    work = Work(f"{len(csrs)} snapshots, {million(sum(c.nnz for c in csrs))}", moved)
    assert timed(work, form.build, csrs).words() > 0


def test_label_propagation(timed):
    graph = build_supergraph(snapshots())
    cap, sweeps = -(-graph.num_vertices // 64), 3
    # every sweep reads the label of each neighbour, mostly far away
    lines = sweeps * graph.csr.nnz
    size = f"{million(graph.num_vertices)} vertices, {million(graph.csr.nnz)} entries"
    work = Work(size, sweeps * (topology_bytes(graph.csr) + 8 * graph.csr.nnz), lines=lines)
    run = timed(work, propagate_labels, graph.csr, graph.edge_weight, cap=cap, sweeps=sweeps,
                share=0.0)  # fmt: skip
    assert run.sweeps == sweeps
