"""Small sequences for tests of DGC: random, uneven, with vertices that come, go and stand alone."""

from __future__ import annotations

import torch
from tiny_data import csr_of

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots


def sequence_of(edges: list[list[tuple[int, int]]], nodes: int, features: int = 2, seed: int = 0):
    """A sequence from the (destination, source) pairs of each snapshot; loops are left out."""
    draw, shape = torch.Generator().manual_seed(seed), (len(edges), nodes)
    return SnapshotSequence(
        [csr_of(((c, r) for r, c in pairs), nodes) for pairs in edges],
        torch.randn(*shape, features, generator=draw),
        torch.randn(shape, generator=draw),
        nodes,
        Origin("tiny", "twin"),
    )


def random_sequence(nodes: int, snapshots: int, most: int, seed: int) -> SnapshotSequence:
    """Snapshots of 0 to `most` edges among vertices of which the last is never used."""
    draw = torch.Generator().manual_seed(seed)
    edges = []
    for _ in range(snapshots):
        count = int(torch.randint(0, most + 1, (1,), generator=draw))
        ends = torch.randint(0, max(1, nodes - 1), (count, 2), generator=draw)
        edges.append([tuple(pair) for pair in ends.tolist()])
    return sequence_of(edges, nodes, seed=seed)


def tiny_workload(model: str = "tgcn_2layer", **fields) -> SequenceWorkload:
    return SequenceWorkload(
        **{"dataset": "tiny", "model": model, "hidden_dim": 4, "theta": 0.5, "lr": 1e-2} | fields
    )


def scattered(graph, workers: int, seed: int, *, moves: bool = False, units: int = 0) -> Placement:
    """Vertex-steps dealt out at random: sequences are cut anywhere; with `moves` each twice.

    Units are what a worker has, or so many that are drawn as well.
    """
    draw = torch.Generator().manual_seed(seed)
    structure, time, unit = (
        torch.randint(0, most, (graph.num_vertices,), generator=draw).int()
        for most in (workers, workers, units or 1)
    )
    return Placement(
        "chunks", workers, structure, time if moves else structure, unit if units else structure,
        units or workers,
    )  # fmt: skip


def placements(graph, workers: int, seed: int = 2) -> list[Placement]:
    """A placement of each kind: by snapshots, by sequences, by both, by chunks and cut anywhere."""
    draw = torch.Generator().manual_seed(seed)
    chunk = torch.randint(0, 6, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    owner = torch.randint(0, workers, (6,), generator=draw)
    return [
        by_snapshots(graph, workers), by_snapshots(graph, workers, contiguous=True),
        by_sequences(graph, workers), by_both(graph, workers),
        by_chunks(graph, chunk, 6, owner, workers), scattered(graph, workers, seed),
    ]  # fmt: skip
