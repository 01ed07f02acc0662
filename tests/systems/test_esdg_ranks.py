"""ESDG on ranks: whatever the partition, the switches and the number of ranks, one process's
losses, gradients and outputs, and as many floats over every exchange as the formulas say."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from dgc_ranks import as_ranks
from esdg_tiny import MODELS, data, plain, workload

from dgbench.runtime.collectives import Communicator, CountOnly, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.base.timeline import PlainTimeline, timeline_model
from dgbench.systems.esdg import volumes
from dgbench.systems.esdg.hybrid import HybridSplit
from dgbench.systems.esdg.hybrid_plan import least_group, part_bytes, parts_of, row_blocks
from dgbench.systems.esdg.partition import block_ranges, consecutive
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import remote_reads

Case = tuple[str, str, dict[str, Any]]
SIZES = (8, 11)
"""8 steps and 11 vertices: neither divides by 4, and blocks of 2 or 3 leave ranks idle."""
KINDS = (
    ("link", {"checkpoint": False, "blocks": 3}),
    ("link", {"blocks": 3}),
    ("class", {"blocks": 3, "pieces": 2}),
    ("node", {"blocks": 3, "pieces": 3, "checkpoint": False, "precompute": False, "fused": True}),
)
SWITCHES = (
    {},
    {"reuse": True},
    {"reuse": True, "pieces": 2},
    {"lean": True},
    {"lean": True, "reuse": True},
    {"lean": True, "partition": "vertex", "fused": True},
    {"lean": True, "partition": "hybrid", "group": 2},
    {"difference": True},
    {"difference": False},
    {"difference": True, "prefetch": True},
    {"difference": True, "checkpoint": False, "precompute": False},
    {"late": True},
    {"late": True, "precompute": False},
    {"late": True, "reuse": True, "pieces": 2},
    {"late": True, "reuse": True, "precompute": False, "lean": True},
    {"scored": True},
    {"scored": True, "late": True, "reuse": True},
    {"scored": True, "pieces": 2, "lean": True},
)
PHASES = ("forward", "rerun", "backward")


class RankResult(NamedTuple):
    """Outputs of a rank, gradients of one pass with its traffic and counters, and its loss."""

    outputs: torch.Tensor
    gradients: dict[str, torch.Tensor]
    floats: dict[str, int]
    counters: dict[str, float]
    remote_pairs: int
    loss: float


def cases(size: int) -> list[Case]:
    """(model, task, options): every partition with every kind, models by turns."""
    ways = [{"partition": name} for name in ("snapshot", "vertex")]
    ways += [{"partition": "hybrid", "group": group} for group in sorted({1, 2, size})]
    every = [(task, way | options) for way in ways for task, options in KINDS]
    return [(MODELS[(i + i // 4 + size) % 3], *case) for i, case in enumerate(every)]


def owners(size: int, nodes: int) -> VertexParts:
    """Interleaved, so that much is remote."""
    return VertexParts(torch.arange(nodes) * 7 % size, size)


def train(comm: Communicator, todo: list[Case], sizes: tuple[int, int] = SIZES) -> list[RankResult]:
    """Results of all cases on this rank."""
    found = []
    for model, task, given in todo:
        options = dict(given)
        if options.get("partition") == "vertex":
            options["parts"] = owners(comm.size, sizes[1])
        trainer = SnapshotRankTrainer(
            comm, workload(model, task), data(*sizes), dtype=torch.float64, **options
        )
        outputs = torch.stack(trainer.outputs())
        comm.traffic.clear()
        comm.meter.reset()
        gradients, loss = trainer.gradients(), trainer.last_loss
        matrix = comm.all_traffic()
        floats = {p: matrix.total("floats", operation="all_to_all", phase=p) for p in PHASES}
        reduced = matrix.total("floats", operation="all_reduce", phase="backward")
        comm.barrier()  # threads show each other the traffic that they count
        assert reduced == volumes.gradient_floats(trainer.model, comm.size)
        counters, pairs = dict(comm.meter.counters), getattr(trainer.split, "remote_pairs", 0)
        found.append(RankResult(outputs, gradients, floats, counters, pairs, loss))
        trainer.close()
    return found


def check(results: list[list[RankResult]], todo: list[Case], sizes: Any = SIZES) -> None:
    """Compare all ranks with one process."""
    for found in results:
        for (model, task, options), got in zip(todo, found, strict=True):
            want = plain(model, task, sizes)
            # Shipped graphs have weights and scales of single precision.
            close = 1e-6 if "difference" in options else 1e-9
            what = f"{model}, {task}, {options}"
            assert got.loss == pytest.approx(want.losses[0], rel=close), what
            torch.testing.assert_close(
                {**got.gradients, "outputs": got.outputs},
                {**want.gradients, "outputs": want.outputs},
                rtol=close, atol=close, msg=lambda m, what=what: f"{what}: {m}",
            )  # fmt: skip


@cache
def trained_on(size: int) -> list[list[RankResult]]:
    return as_ranks(size, train, cases(size))


@cache
def switched(model: str) -> list[list[RankResult]]:
    return as_ranks(4, train, [(model, "link", {"blocks": 3, **o}) for o in SWITCHES])


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_train_as_one_process_does(size):
    check(trained_on(size), cases(size))


@pytest.mark.parametrize("model", MODELS)
def test_every_switch_gives_the_same_gradients(model):
    check(switched(model), [(model, "link", dict(o)) for o in SWITCHES])


@pytest.mark.parametrize(("sizes", "every"), [((3, 3), 1), ((3, 1), 3)])
def test_fewer_vertices_and_snapshots_than_ranks(sizes, every):
    """Ranks without a vertex, without a snapshot, and without either; members without a row."""
    todo = [(m, t, {**o, "blocks": 1}) for m, t, o in cases(4)[::every]]
    check(as_ranks(4, train, todo, sizes), todo, sizes)


# Counted floats against formulas.


@pytest.mark.parametrize("size", [2, 4])
def test_trained_epochs_send_what_the_formulas_say(size):
    todo, results = cases(size), trained_on(size)
    for i, (model, task, o) in enumerate(todo):
        assert all(rank[i].floats == results[0][i].floats for rank in results)
        got, net = results[0][i], volumes.timeline(model)
        sent, pairs = sum(got.floats.values()), got.remote_pairs
        steps = 8 if task == "class" else 7
        topology, blocks = data(*SIZES).topology[:steps], block_ranges(steps, o["blocks"])
        again, first = o.get("checkpoint", True), o.get("precompute", True)
        passes = {"checkpoint": again, "precompute": first}
        alike = volumes.snapshot_floats(net, 11, blocks, size, checkpoint=again)
        assert (got.floats["rerun"] > 0) == (again and sent > 0)
        if o["partition"] == "snapshot":
            assert sent == alike
        elif o["partition"] == "vertex":
            parts = owners(size, 11)
            remote = remote_reads(topology, parts)
            assert sent == volumes.vertex_floats(net, remote, remote_pairs=pairs, **passes)
            assert (pairs > 0) == (task == "link")
        else:
            group = o["group"]
            remote = remote_reads(topology, parts_of(row_blocks(topology, 11, group, "rows")))
            assert sent == volumes.hybrid_floats(
                net, topology, 11, blocks, size, group, remote_pairs=pairs, **passes
            )
            assert (remote > 0) == (group > 1)
            if group == 1:
                assert sent == alike
            if group == size:
                # Rows are the vertices of the temporal half, so nothing is left to redistribute.
                inside = sum(net.input_dims[1:]) * (3 if again else 2)
                inside += 0 if first else net.input_dims[0] * (2 if again else 1)
                assert sent == remote * inside + pairs * 2 * net.output_dim


@pytest.mark.parametrize("model", MODELS)
def test_volumes_of_the_switches(model):
    """Kept exchanges leave two passes of three; lean passes what follows the last temporal half."""

    def floats(**options: Any) -> tuple[int, ...]:
        """Of the first pass, of the one that runs again, and of the way back."""
        return tuple(switched(model)[0][SWITCHES.index(options)].floats.values())

    net, blocks = volumes.timeline(model), block_ranges(7, 3)
    dims = net.redistributed_dims
    width, each = sum(map(sum, dims)), volumes.snapshot_floats(net, 11, blocks, 4) // 3
    assert each * 2 == volumes.snapshot_floats(net, 11, blocks, 4, checkpoint=False)
    assert floats() == (each, each, each)
    assert floats(reuse=True) == floats(reuse=True, pieces=2) == (each, 0, each)
    # All but the last block, and of that all but the last way back.
    first = volumes.snapshot_floats(net, 11, blocks[:-1], 4) // 3
    lean = first * (width - dims[-1][1]) // width if dims else 0
    assert floats(lean=True) == (lean, each, each)
    assert floats(lean=True, reuse=True) == (lean, each - lean, each)
    # What each layer but the first aggregates goes there, its temporal output comes back.
    narrow = sum(net.input_dims[1 : len(dims)]) + sum(back for _, back in dims)
    late = each * narrow // width if dims else 0
    more = late + (each * net.input_dims[0] // width if dims else 0)
    assert floats(late=True) == (late, late, late)
    assert floats(late=True, precompute=False) == (more, more, late)
    assert floats(late=True, reuse=True, pieces=2) == (late, 0, late)
    if model == "cd_gcn":
        # No way back from the last layer, but for ends of pairs that the step's owner lacks.
        back = dims[-1][1]
        lacked, there = back * _lacked(blocks), each * (width - back) // width
        assert floats(scored=True) == (there, there + lacked, there + lacked)
        assert floats(scored=True, late=True, reuse=True)[1] == lacked
    else:  # what is scored is where it was made
        assert floats(scored=True) == floats()
    kept = sum(rank[1].counters.get("reuse_bytes", 0) for rank in switched(model))
    assert kept == 8 * 7 * 11 * width  # own shares included
    for shared in ({"partition": "vertex", "fused": True}, {"partition": "hybrid", "group": 2}):
        forward, again, _ = floats(lean=True, **shared)
        assert forward < again or not dims


def _lacked(blocks: list[range]) -> int:
    """Ends of pairs, each once a step, that are not vertices of the step's owner among four."""
    task = PlainTimeline(workload("cd_gcn"), data()).task
    vertices, found = consecutive(range(11), 4), 0
    for times in blocks:
        for rank, steps in enumerate(consecutive(times, 4)):
            for t in steps:
                found += len(set(task.pairs(t)[0].flatten().tolist()) - set(vertices[rank]))
    return found


# Memory and bad input.


def test_a_snapshot_too_large_for_one_rank_is_shared():
    """A rank has memory for a part of a snapshot's matrix, none for the whole."""
    topology, model = data(*SIZES).topology[:7], timeline_model(workload("tm_gcn"))
    whole = max(part_bytes(csr, range(11)) for csr in topology)
    budget = whole * 2 // 3
    assert [least_group(topology, 11, 4, limit) for limit in (whole, budget)] == [1, 2]
    HybridSplit(CountOnly(0, 2), model, data(*SIZES), 11, group=2, budget=budget)
    for split in (
        lambda: least_group(topology, 11, 4, 50),
        lambda: HybridSplit(LocalCommunicator(), model, data(*SIZES), 11, group=1, budget=budget),
    ):
        with pytest.raises(UnsupportedError):
            split()


def test_wrong_arguments_are_named():
    model = timeline_model(workload("tm_gcn", "class"))
    for error, options, name in (
        *((InvalidInputError, {"group": group}, "group") for group in (0, 3, 8, True)),
        (InvalidInputError, {"group": 2, "pieces": 0}, "pieces"),
        (UnknownKeyError, {"group": 2, "balance": "luck"}, "balance"),
    ):
        with pytest.raises(error, match=name):
            HybridSplit(CountOnly(1, 4), model, data(*SIZES), 11, **options)
    owner = torch.zeros(11, dtype=torch.int64)
    for error, options, name in (
        (UnknownKeyError, {"partition": "edges"}, "partition"),
        (InvalidInputError, {"parts": VertexParts(owner, 1)}, "parts"),
        (InvalidInputError, {"partition": "vertex", "parts": VertexParts(owner[:3], 1)}, "parts"),
        (InvalidInputError, {"difference": True, "aggregator": object()}, "aggregator"),
        (InvalidInputError, {"blocks": 9}, "blocks"),
    ):
        with pytest.raises(error, match=name):
            SnapshotRankTrainer(LocalCommunicator(), workload("tm_gcn", "class"), data(), **options)
    with pytest.raises(InvalidInputError, match="step"):
        SnapshotRankTrainer(LocalCommunicator(), workload("cd_gcn"), data()).output(7)
