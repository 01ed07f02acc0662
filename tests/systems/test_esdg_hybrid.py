"""Groups of ranks that share snapshots by rows, against one process and the snapshot partition."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_esdg_spread import LIMIT_S, MODELS, data, workload

from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.collectives import Communicator, CountOnly, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.timeline import PlainTimeline, TimelineTask, timeline_model
from dgbench.systems.esdg.hybrid import HybridSplit
from dgbench.systems.esdg.hybrid_plan import (
    GroupShares,
    entries_held,
    least_group,
    part_bytes,
    row_blocks,
)
from dgbench.systems.esdg.partition import accumulate, block_ranges, sum_gradients
from dgbench.systems.esdg.volumes import hybrid_floats, hybrid_reads, snapshot_floats

Case = tuple[str, str, dict[str, Any]]
SIZES = (8, 11)
STEPS = 2


def cases(groups: tuple[int, ...]) -> list[Case]:
    """(model, task, options); with 3 blocks of 2 or 3 steps some groups have no step."""
    return [
        (
            model,
            task,
            {
                "group": group,
                "checkpoint": checkpoint,
                "blocks": blocks,
                "pieces": pieces,
                "precompute": pieces < 3,
                "fused": pieces != 2,
                "balance": "entries" if pieces == 2 else "rows",
            },
        )
        for model in MODELS
        for group in groups
        for checkpoint, blocks, pieces, task in (
            (True, 3, 1, "link"),
            (True, 1, 2, "class"),
            (False, 3, 3, "node"),
            (False, 3, 2, "link"),
        )
    ]


def train(comm: Communicator, todo: list[Case], sizes: Any, dtype: torch.dtype) -> list[Any]:
    """Losses, gradients, outputs and traffic of all cases on this rank."""
    found = []
    sequence = data(*sizes)
    for name, task_name, options in todo:
        work = workload(name, task_name)
        model = timeline_model(work).to(dtype)
        task = TimelineTask(sequence, work, dtype=dtype)
        options = dict(options)
        checkpoint, blocks = options.pop("checkpoint"), options.pop("blocks")
        split = HybridSplit(
            comm, model, sequence, sequence.num_nodes, dtype=dtype, task=task, **options
        )
        ranges = block_ranges(task.steps, blocks)

        def loss_of(times: range, out: torch.Tensor, split: Any = split, task: Any = task) -> Any:
            return split.loss_sum(times, out) / task.count

        optimiser = torch.optim.Adam(model.parameters(), lr=work.lr)
        losses = []
        for _ in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            comm.traffic.clear()
            loss = accumulate(split, ranges, loss_of, checkpoint=checkpoint)
            traffic = comm.all_traffic()
            sum_gradients(comm, list(model.parameters()))
            losses.append(float(comm.all_reduce(torch.tensor([loss], dtype=torch.float64))[0]))
            optimiser.step()
        gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
        with torch.no_grad():
            outputs, state = [], None
            for times in ranges:
                out, state = split.run(times, state)
                outputs += split.gather(times, out)
        sent = traffic.matrix("floats", operation="all_to_all")
        found.append((losses, gradients, torch.stack(outputs), sent, split.remote_pairs))
    return found


@cache
def plain(model: str, task: str, sizes: Any, dtype: torch.dtype) -> Any:
    trainer = PlainTimeline(workload(model, task), data(*sizes), dtype=dtype)
    losses = []
    for _ in range(STEPS):
        gradients = trainer.gradients()
        losses.append(trainer.train_epoch())
    return losses, gradients, torch.stack(list(trainer.outputs()))


def check(results: Any, todo: list[Case], sizes: Any, dtype: torch.dtype) -> None:
    close = {torch.float64: 1e-9, torch.float32: 1e-4}[dtype]
    for rank, found in enumerate(results):
        for (model, task, options), (losses, gradients, outputs, *_) in zip(
            todo, found, strict=True
        ):
            want = plain(model, task, sizes, dtype)
            told = f"rank {rank}, {model}, {task}, {options}"
            assert losses == pytest.approx(want[0], rel=min(close, 1e-5)), told
            for name, gradient in want[1].items():
                torch.testing.assert_close(
                    gradients[name],
                    gradient,
                    rtol=close,
                    atol=close * 0.1,
                    msg=lambda m, told=f"{told}, {name}": f"{told}: {m}",
                )
            torch.testing.assert_close(outputs, want[2], rtol=close, atol=close)


def run(ranks: int, todo: list[Case], sizes: Any, dtype: torch.dtype) -> Any:
    return launch(train, ranks, (todo, sizes, dtype), timeout_s=LIMIT_S, stall_s=20, threads=1)


@pytest.mark.parametrize(("ranks", "groups"), [(2, (1, 2)), (4, (1, 2, 4))])
def test_groups_train_as_one_process_does_and_send_what_the_formula_says(ranks, groups):
    todo = cases(groups)
    # Every option with some group, so that it stays short.
    todo = [case for i, case in enumerate(todo) if (i + i // 4) % 2 == 0]
    results = run(ranks, todo, SIZES, torch.float64)
    check(results, todo, SIZES, torch.float64)
    for i, (name, task, o) in enumerate(todo):
        sent, pairs = results[0][i][3:]
        steps = 7 if task != "class" else 8
        blocks = block_ranges(steps, o["blocks"])
        model = timeline_model(workload(name, task))
        topology = data(*SIZES).topology[:steps]
        remote = hybrid_reads(topology, 11, o["group"], balance=o["balance"])
        want = hybrid_floats(
            model,
            topology,
            11,
            blocks,
            ranks,
            o["group"],
            balance=o["balance"],
            remote_pairs=pairs,
            checkpoint=o["checkpoint"],
            precompute=o["precompute"],
        )
        assert sent.sum() == want
        assert (remote > 0) == (o["group"] > 1)
        if o["group"] == 1:
            assert want == snapshot_floats(model, 11, blocks, ranks, checkpoint=o["checkpoint"])
            assert pairs == 0
        if o["group"] == ranks and o["balance"] == "rows":
            # Rows are the vertices of the temporal half, so nothing is left to redistribute.
            passes = 3 if o["checkpoint"] else 2
            inside = sum(model.input_dims[1:]) * passes
            inside += 0 if o["precompute"] else model.input_dims[0] * (passes - 1)
            assert want == remote * inside + pairs * 2 * model.output_dim


def test_idle_groups_and_ranks_without_rows():
    """Three steps and three vertices: groups without a step, members without a row."""
    todo = [(m, t, {**o, "blocks": 1}) for m, t, o in cases((2, 4))[::2]]
    check(run(4, todo, (3, 3), torch.float64), todo, (3, 3), torch.float64)


def test_single_precision_stays_within_the_bar():
    todo = cases((2,))[::2]
    check(run(2, todo, SIZES, torch.float32), todo, SIZES, torch.float32)


def test_one_rank_needs_no_group():
    todo = cases((1,))
    check([train(LocalCommunicator(), todo, SIZES, torch.float64)], todo, SIZES, torch.float64)


def test_a_snapshot_too_large_for_one_rank_trains_on_two():
    """Each of two ranks has memory for a part of a snapshot's matrix, none for the whole."""
    topology = data(*SIZES).topology[:7]
    whole = max(part_bytes(csr, range(11)) for csr in topology)
    budget = whole * 2 // 3
    assert least_group(topology, 11, 4, whole) == 1
    assert least_group(topology, 11, 4, budget) == 2
    with pytest.raises(UnsupportedError, match="does not fit"):
        least_group(topology, 11, 4, 50)
    options = {"checkpoint": True, "blocks": 2, "balance": "entries"}
    small = [("tm_gcn", "link", {**options, "group": 2, "budget": budget})]
    check(run(2, small, SIZES, torch.float64), small, SIZES, torch.float64)
    model = timeline_model(workload("tm_gcn", "link"))
    with pytest.raises(UnsupportedError, match="budget is"):
        HybridSplit(LocalCommunicator(), model, data(*SIZES), 11, group=1, budget=budget)


def test_what_a_rank_holds_is_what_was_planned():
    topology, blocks = data(*SIZES).topology[:7], block_ranges(7, 2)
    for size, group in ((2, 2), (4, 2), (6, 3), (3, 1)):
        rows = row_blocks(topology, 11, group)
        held = entries_held(topology, blocks, rows, size)
        assert sum(held) == sum(csr.nnz for csr in topology)
        for rank in range(size):
            model = timeline_model(workload("tm_gcn", "class"))
            split = HybridSplit(CountOnly(rank, size), model, data(*SIZES), 11, group=group)
            split.prepare(blocks)
            assert sum(split.held_rows.entries.values()) == held[rank]


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=30), min_size=1, max_size=3),
    st.integers(1, 12),
)
def test_rows_are_cut_by_entries(readers, group):
    topology = []
    for rows in readers:
        indptr = torch.zeros(11, dtype=torch.int64)
        indptr[1:] = torch.bincount(torch.tensor(rows, dtype=torch.int64), minlength=10).cumsum(0)
        topology.append(Csr(indptr, torch.zeros(len(rows), dtype=torch.int32), 10))
    weight = [len(readers) + sum(rows.count(v) for rows in readers) for v in range(10)]
    blocks = row_blocks(topology, 10, group, "entries")
    assert [v for b in blocks for v in b] == list(range(10))
    assert len(blocks) == group
    for block in blocks:
        # A row goes where its middle lies, so half a row may hang over at each end.
        over = max((weight[v] for v in block), default=0)
        assert sum(weight[v] for v in block) <= sum(weight) / group + over
    equal = row_blocks(topology, 10, group)
    assert max(map(len, equal)) - min(map(len, equal)) <= 1


@given(
    st.integers(0, 9), st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)
)
def test_shares_cover_everything_once(steps, nodes, groups, group, pieces):
    rows = row_blocks([], nodes, group)
    shares = GroupShares(range(3, 3 + steps), tuple(rows), groups * group, pieces)
    assert [t for g in shares.steps for piece in g for t in piece] == list(range(3, 3 + steps))
    assert [v for own in shares.vertices for v in own] == list(range(nodes))
    home = 0
    for rank, own in enumerate(shares.vertices):
        index, member = divmod(rank, group)
        mine = sum(len(piece) for piece in shares.steps[index])
        home += mine * len(set(own) & set(rows[member]))
        for m, block in enumerate(rows):
            assert shares.overlap[m][rank] == len(set(own) & set(block))
    assert shares.kept == home


def test_wrong_arguments_are_named():
    model = timeline_model(workload("tm_gcn", "class"))
    make = lambda **o: HybridSplit(CountOnly(1, 4), model, data(*SIZES), 11, **o)  # noqa: E731
    for group in (0, 3, 8, True):
        with pytest.raises(InvalidInputError, match="group"):
            make(group=group)
    with pytest.raises(InvalidInputError, match="pieces"):
        make(group=2, pieces=0)
    with pytest.raises(UnknownKeyError, match="balance"):
        make(group=2, balance="luck")
