"""Rows that ranks hold and tell each other, against dense products, and edges of the partition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_esdg_spread import LIMIT_S, MODELS, STEPS_TRAINED, data, plain, workload
from tiny_data import TinySequence, csr_of
from torch import Tensor

from dgbench.datasets.transforms import factors
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, CountOnly
from dgbench.runtime.collectives.exchange import PendingExchange
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import timeline_model
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex import VertexSplit
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import Gather, StepPlan, coordinates
from dgbench.systems.esdg.vertex_rows import HeldRows


class Letter(PendingExchange):
    """Pending exchange over a board: rows posted by the others are fetched in `wait`."""

    def __init__(self, board: dict[int, Any], rank: int, like: Tensor, rows: int) -> None:
        self.board, self.rank = board, rank
        self.received = like.new_empty((rows, *like.shape[1:]))

    def wait(self) -> None:
        parts = [self.board[p][0].split(self.board[p][1])[self.rank] for p in sorted(self.board)]
        self.received.copy_(torch.cat(parts))


class Post(CountOnly):
    """A rank whose group lives in one process: all begin an exchange before any waits for it."""

    def __init__(self, rank: int, size: int, board: dict[int, Any]) -> None:
        super().__init__(rank, size)
        self.board = board

    def _begin(self, x: Tensor, send: tuple[int, ...], receive: tuple[int, ...]) -> PendingExchange:
        self.board[self.rank] = x, list(send)
        return Letter(self.board, self.rank, x, sum(receive))


def dense(csr: Csr, norm: str) -> Tensor:
    rows, cols = coordinates(csr)
    weight = torch.ones(csr.nnz) if csr.values is None else csr.values
    found = torch.eye(csr.num_rows, dtype=torch.float64)
    found.index_put_((rows, cols), weight.double(), accumulate=True)
    r, c = factors(csr, norm)
    return r.double()[:, None] * found * c.double()


@st.composite
def sequences(draw: Any) -> tuple[TinySequence, VertexParts, range, str]:
    nodes, steps = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    vertex = st.integers(0, nodes - 1)
    topology = []
    for _ in range(steps):
        pairs = draw(st.lists(st.tuples(vertex, vertex), max_size=2 * nodes))
        weights = None
        if draw(st.booleans()):
            weights = {pair: 0.25 * (1 + i) for i, pair in enumerate(sorted(set(pairs)))}
        topology.append(csr_of(pairs, nodes, weights))
    size = draw(st.integers(1, 4))
    owner = draw(st.lists(st.integers(0, size - 1), min_size=nodes, max_size=nodes))
    generator = torch.Generator().manual_seed(1)
    sequence = TinySequence(
        topology,
        torch.randn(steps, nodes, 2, generator=generator),
        torch.zeros(steps, nodes),
        nodes,
    )
    first = draw(st.integers(0, steps))
    run = range(first, draw(st.integers(first, steps)))
    return (
        sequence,
        VertexParts(torch.tensor(owner), size),
        run,
        draw(st.sampled_from(["sym", "mean"])),
    )


@settings(deadline=None)
@given(sequences(), st.booleans())
def test_rows_of_all_ranks_are_the_dense_product(given_, precompute):
    """Forward and backward, for runs of no step and parts of no vertex too."""
    sequence, parts, run, norm = given_
    board: dict[int, Any] = {}
    held = [
        HeldRows(
            Post(p, parts.size, board),
            sequence,
            parts,
            member=p,
            norm=norm,
            dtype=torch.float64,
            precompute=precompute,
        )
        for p in range(parts.size)
    ]
    matrices = [dense(sequence.topology[t], norm) for t in run]
    generator = torch.Generator().manual_seed(2)
    h = torch.randn(
        len(run), sequence.num_nodes, 3, generator=generator, dtype=torch.float64
    ).requires_grad_()
    weight = torch.randn(h.shape, generator=generator, dtype=torch.float64)
    mine = [h[:, rows.rows] for rows in held]
    begun = [rows.start(run, x) for rows, x in zip(held, mine, strict=True)]
    found = [r.convolve(run, x, e) for r, x, e in zip(held, mine, begun, strict=True)]
    for p, (rows, y) in enumerate(zip(held, found, strict=True)):
        inputs = sequence.features[run.start : run.stop].double()
        for i, matrix in enumerate(matrices):
            torch.testing.assert_close(y[i], (matrix @ h[i])[rows.rows])
            want = matrix @ inputs[i] if precompute else inputs[i]
            torch.testing.assert_close(rows.inputs(run)[i], want[rows.rows])
        assert y.shape == (len(run), parts.sizes[p], 3)
        entries = sum(int(sequence.topology[t].indptr.diff()[rows.rows].sum()) for t in run)
        assert sum(rows.entries.values()) == entries
    loss = sum((y * weight[:, rows.rows]).sum() for rows, y in zip(held, found, strict=True))
    loss.backward()
    for i, matrix in enumerate(matrices):
        torch.testing.assert_close(h.grad[i], matrix.T @ weight[i])


def test_only_what_is_read_travels():
    """Vertex 3 reads 0 twice over, 1 reads itself, 4 nobody: one row goes, from part 0 to 1."""
    csr = csr_of([(0, 3), (0, 2), (2, 3)], 5)
    parts = VertexParts(torch.tensor([0, 0, 1, 1, 1]), 2)
    plans = [StepPlan.build(*coordinates(csr), parts, rank) for rank in (0, 1)]
    assert [p.receive for p in plans] == [(0, 0), (1, 0)]
    assert plans[0].send[1].tolist() == [0]
    assert plans[1].columns.tolist() == [2, 3, 4, 0]
    gather = Gather(CountOnly(2, 4), [plans[1], plans[1]], 3, base=1)
    assert gather.arriving == 2
    assert [p.tolist() for p in gather.places] == [[0], [1]]


def run_cases(comm: Communicator, todo: list[Any], sizes: Any) -> list[Any]:
    found = []
    for model, task, options in todo:
        options = dict(options)
        if options["partition"] == "vertex":
            owner = torch.arange(sizes[1]) * 7 % comm.size
            options["parts"] = VertexParts(owner, comm.size)
        trainer = SnapshotRankTrainer(
            comm, workload(model, task), data(*sizes), dtype=torch.float64, **options
        )
        comm.traffic.clear()
        losses = [trainer.train_epoch() for _ in range(STEPS_TRAINED)]
        found.append((losses, torch.stack(trainer.outputs()), comm.traffic.total("floats")))
    return found


@pytest.mark.parametrize("sizes", [(3, 1), (8, 11)])
def test_lean_passes_and_a_single_vertex_change_nothing_but_traffic(sizes):
    todo = [
        (model, task, {**kind, "blocks": 2, "lean": lean, "fused": fused})
        for model in MODELS
        for kind in ({"partition": "vertex"}, {"partition": "hybrid", "group": 2})
        for task, fused in (("link", True), ("class", False))[: 1 if sizes[1] == 1 else 2]
        for lean in (False, True)
    ]
    results = launch(run_cases, 4, (todo, sizes), timeout_s=LIMIT_S, stall_s=20, threads=1)
    for found in results:
        for (model, task, options), (losses, outputs, _) in zip(todo, found, strict=True):
            want = plain(model, task, sizes, torch.float64)
            assert losses == pytest.approx(want[0], rel=1e-9), (model, task, options)
            torch.testing.assert_close(outputs, want[2], rtol=1e-9, atol=1e-9)
    sent = [sum(rank[i][2] for rank in results) for i in range(len(todo))]
    for full, lean in zip(sent[::2], sent[1::2], strict=True):
        assert lean < full or full == 0 or sizes[1] == 1


def test_wrong_arguments_are_named():
    model = timeline_model(workload("tm_gcn", "class"))
    parts = VertexParts(torch.arange(11) % 2, 2)
    with pytest.raises(InvalidInputError, match="pieces"):
        VertexSplit(CountOnly(0, 2), model, data(), range(8), parts, pieces=0)
    with pytest.raises(InvalidInputError, match="parts"):
        VertexSplit(CountOnly(0, 3), model, data(), range(8), parts)
