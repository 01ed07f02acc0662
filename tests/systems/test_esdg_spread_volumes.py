"""Counted floats of the partitions against their formulas and against the paper's Table 2."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from test_esdg_spread import LIMIT_S, MODELS, data, workload

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.ranks import launch
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_parts import METHODS, VertexParts, split_vertices
from dgbench.systems.esdg.vertex_plan import remote_reads
from dgbench.systems.esdg.volumes import (
    PAPER_NODES,
    PAPER_STEPS,
    count_snapshot,
    gradient_floats,
    snapshot_floats,
    timeline,
    vertex_floats,
)

TABLE_2 = {
    "tm_gcn": {4: 5_184_000_000, 16: 6_480_000_000, 64: 6_804_000_000},
    "cd_gcn": {4: 13_824_000_000, 16: 17_280_000_000, 64: 18_144_000_000},
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ranks", [1, 4, 16, 64])
def test_the_papers_volumes(model, ranks):
    # Ranks of EvolveGCN evolve the weights of all steps and send nothing: a step each will do.
    fewer = {"steps": 64} if model == "evolvegcn_o" else {}
    counted = count_snapshot(model, size=ranks, **fewer)
    want = TABLE_2.get(model, {}).get(ranks, 0)
    assert counted.total("floats") == want
    assert counted.total("bytes") == 4 * want
    for phase in ("forward", "rerun", "backward"):
        assert counted.total("floats", phase=phase) == want // 3
    if ranks <= 16:
        whole = count_snapshot(model, size=ranks, checkpoint=False, **fewer)
        assert whole.total("floats") == want * 2 // 3


@pytest.mark.parametrize(
    ("steps", "nodes", "ranks", "blocks", "pieces"),
    [
        (7, 11, 4, 1, 1),
        (7, 11, 4, 3, 2),
        (3, 2, 5, 2, 3),
        (1, 1, 3, 1, 1),
        (192, 1_000_000, 128, 1, 1),
    ],
)
def test_uneven_shares_are_counted_to_the_float(steps, nodes, ranks, blocks, pieces):
    counted = count_snapshot(
        "cd_gcn", size=ranks, steps=steps, num_nodes=nodes, blocks=blocks, pieces=pieces
    )
    # Said again in another way: every float of a step goes to each vertex's owner unless it is at
    # home, there and back.
    found = 0
    for times in block_ranges(steps, blocks):
        parts = [len(p) for p in block_ranges_or_empty(len(times), ranks)]
        chunks = [len(p) for p in block_ranges_or_empty(nodes, ranks)]
        found += sum(s * c for p, s in enumerate(parts) for q, c in enumerate(chunks) if p != q)
    assert counted.total("floats") == 96 * found
    ranges = block_ranges(steps, blocks)
    assert snapshot_floats(timeline("cd_gcn"), nodes, ranges, ranks) == 96 * found


def block_ranges_or_empty(total: int, parts: int) -> list[range]:
    cuts = [total // parts * i + min(i, total % parts) for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts)]


def epoch_traffic(comm: Communicator, todo: list[Any]) -> list[Any]:
    """Floats of one epoch of every case, over all ranks."""
    found = []
    for model, task, options in todo:
        options = dict(options)
        if options["partition"] == "vertex":
            options["parts"] = VertexParts(torch.arange(11) % comm.size, comm.size)
        trainer = SnapshotRankTrainer(comm, workload(model, task), data(), **options)
        comm.traffic.clear()
        trainer.accumulate()
        matrix = comm.all_traffic()
        exchanged = {
            phase: matrix.total("floats", operation="all_to_all", phase=phase)
            for phase in ("forward", "rerun", "backward")
        }
        reduced = matrix.total("floats", operation="all_reduce", phase="backward")
        parameters = sum(p.numel() for p in trainer.model.parameters())
        assert gradient_floats(trainer.model, comm.size) == 2 * (comm.size - 1) * parameters
        found.append((exchanged, reduced, parameters, getattr(trainer.split, "remote_pairs", 0)))
    return found


def test_trained_epochs_send_what_the_formulas_say():
    todo = [
        (
            model,
            task,
            {"partition": p, "checkpoint": c, "blocks": 2, "pieces": k, "precompute": pre},
        )
        for model in MODELS
        for p in ("snapshot", "vertex")
        for task, c, k, pre in (("link", True, 1, True), ("class", False, 2, False))
    ]
    ranks = 3
    results = launch(epoch_traffic, ranks, (todo,), timeout_s=LIMIT_S, stall_s=20, threads=1)
    owner = torch.arange(11) % ranks
    for i, (model, task, o) in enumerate(todo):
        assert all(r[i] == results[0][i] for r in results)
        exchanged, reduced, parameters, pairs = results[0][i]
        steps = 7 if task == "link" else 8
        net = timeline(model)
        assert reduced == 2 * (ranks - 1) * parameters
        assert (exchanged["rerun"] > 0) == (o["checkpoint"] and sum(exchanged.values()) > 0)
        if o["partition"] == "snapshot":
            blocks = block_ranges(steps, 2)
            want = snapshot_floats(net, 11, blocks, ranks, checkpoint=o["checkpoint"])
        else:
            # lambda, vertex by vertex: parts other than the owner that read it.
            remote = 0
            for csr in data().topology[:steps]:
                readers: dict[int, set[int]] = {}
                for u in range(11):
                    for v in csr.indices[csr.indptr[u] : csr.indptr[u + 1]].tolist():
                        readers.setdefault(v, set()).add(int(owner[u]))
                remote += sum(len(r - {int(owner[v])}) for v, r in readers.items())
            assert remote == remote_reads(data().topology[:steps], VertexParts(owner, ranks))
            want = vertex_floats(
                net,
                remote,
                remote_pairs=pairs,
                checkpoint=o["checkpoint"],
                precompute=o["precompute"],
            )
            assert (pairs > 0) == (task == "link")
        assert sum(exchanged.values()) == want


@pytest.mark.parametrize("method", METHODS)
def test_parts_cover_all_vertices(method):
    if method in ("pymetis", "kahypar"):
        pytest.importorskip(method)
    for size in (1, 2, 4, 20):
        parts = split_vertices(data().topology, size, method)
        assert sum(parts.sizes) == 11
        assert torch.equal(parts.order.sort().values, torch.arange(11))
        assert torch.equal(parts.position[parts.order], torch.arange(11))
        for part in range(size):
            assert (parts.owner[parts.vertices(part)] == part).all()
        assert torch.equal(parts.owner, split_vertices(data().topology, size, method).owner)


def test_wrong_arguments_are_named():
    with pytest.raises(UnknownKeyError, match="method"):
        split_vertices(data().topology, 2, "dice")
    with pytest.raises(InvalidInputError, match="parts"):
        split_vertices([], 2)
    with pytest.raises(InvalidInputError, match="owner"):
        VertexParts(torch.tensor([0, 2]), 2)
    with pytest.raises(InvalidInputError, match="timeline"):
        count_snapshot("tgcn_model", size=2)
    assert (PAPER_STEPS, PAPER_NODES) == (192, 1_000_000)
