"""ESDG on ranks: whatever the partition, the switches and the number of ranks, one process's
losses, gradients and outputs, and as many floats over every exchange as the formulas say."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from dgc_ranks import as_ranks
from esdg_tiny import MODELS, STEPS_TRAINED, data, plain, workload

from dgbench.runtime.collectives import Communicator, CountOnly, LocalCommunicator
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.systems.base.timeline import PlainTimeline, timeline_model
from dgbench.systems.esdg import volumes
from dgbench.systems.esdg.hybrid import HybridSplit
from dgbench.systems.esdg.hybrid_plan import least_group, part_bytes
from dgbench.systems.esdg.partition import block_ranges, consecutive
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.vertex_parts import VertexParts
from dgbench.systems.esdg.vertex_plan import pair_counts, read_counts, remote_reads

Case = tuple[str, str, dict[str, Any]]
SIZES = (8, 11)
"""8 steps and 11 vertices: neither divides by 4, and blocks of 2 or 3 leave ranks idle."""
KINDS = (
    ("link", {"checkpoint": False, "blocks": 3}),
    ("link", {"blocks": 3}),
    ("class", {"blocks": 3, "pieces": 2}),
    ("node", {"blocks": 3, "pieces": 3, "checkpoint": False, "precompute": False, "fused": True}),
)
BY_ENTRIES = (
    ("class", {"blocks": 1, "pieces": 2, "balance": "entries"}),
    ("link", {"checkpoint": False, "blocks": 3, "pieces": 2, "balance": "entries"}),
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
    """Gradients, traffic and counters of a rank's epoch, and its outputs after it."""

    losses: list[float]
    gradients: dict[str, torch.Tensor]
    floats: dict[str, int]
    links: dict[tuple[str, str], Any]
    counters: dict[str, float]
    remote_pairs: int
    outputs: torch.Tensor | None


def cases(size: int) -> list[Case]:
    """(model, task, options); with several groups, of two ranks and of all."""
    found: list[Case] = []
    for model in MODELS:
        for partition in ("snapshot", "vertex"):
            found += [(model, task, {"partition": partition, **o}) for task, o in KINDS]
        for group in sorted({1, 2, size} & set(range(1, size + 1))):
            shared = {"partition": "hybrid", "group": group}
            found += [(model, task, shared | o) for task, o in (*KINDS, *BY_ENTRIES)]
    return found


def owners(size: int, nodes: int) -> VertexParts:
    """Interleaved, so that much is remote."""
    return VertexParts(torch.arange(nodes) * 7 % size, size)


def train(
    comm: Communicator, todo: list[Case], sizes: tuple[int, int], dtype: Any, epochs: int
) -> list[RankResult]:
    """Results of all cases on this rank."""
    found = []
    for model, task, given in todo:
        options = dict(given)
        by, budget = options.pop("balance", ""), options.pop("budget", None)
        if options.get("partition") == "vertex":
            options["parts"] = owners(comm.size, sizes[1])
        trainer = SnapshotRankTrainer(
            comm, workload(model, task), data(*sizes), dtype=dtype, **options
        )
        if by:
            trainer.split = HybridSplit(
                comm, trainer.model, trainer.data, sizes[1], group=options["group"], dtype=dtype,
                task=trainer.task, norm=trainer.workload.norm, pieces=options.get("pieces", 1),
                balance=by, budget=budget,
            )  # fmt: skip
            trainer.split.prepare(trainer.blocks)
        gradients = trainer.gradients()
        comm.traffic.clear()
        comm.meter.reset()
        losses = [trainer.train_epoch() if epochs else trainer.accumulate()]
        matrix = comm.all_traffic()
        links = {
            (phase, unit): matrix.matrix(unit, operation="all_to_all", phase=phase)
            for phase in PHASES
            for unit in ("floats", "messages")
        }
        floats = {phase: int(links[phase, "floats"].sum()) for phase in PHASES}
        reduced = matrix.total("floats", operation="all_reduce", phase="backward")
        comm.barrier()  # threads show each other the traffic that they count
        assert reduced == volumes.gradient_floats(trainer.model, comm.size)
        counters = dict(comm.meter.counters)
        losses += [trainer.train_epoch() for _ in range(epochs - 1)]
        outputs = torch.stack(trainer.outputs()) if epochs else None
        pairs = getattr(trainer.split, "remote_pairs", 0)
        found.append(RankResult(losses, gradients, floats, links, counters, pairs, outputs))
        trainer.close()
    return found


def check(
    results: list[list[RankResult]], todo: list[Case], sizes: tuple[int, int] = SIZES,
    dtype: Any = torch.float64,
) -> None:  # fmt: skip
    """Compare all ranks with one process."""
    double = dtype == torch.float64
    for found in results:
        for (model, task, options), got in zip(todo, found, strict=True):
            want = plain(model, task, sizes, dtype)
            # Shipped graphs have weights and scales of single precision.
            close = 1e-6 if "difference" in options else 1e-9 if double else 1e-4
            what = f"{model}, {task}, {options}"
            assert got.losses == pytest.approx(want.losses, rel=min(close, 1e-5)), what
            assert set(got.gradients) == set(want.gradients)
            for name, gradient in want.gradients.items():
                torch.testing.assert_close(
                    got.gradients[name], gradient, rtol=close, atol=close,
                    msg=lambda m, what=what: f"{what}: {m}",
                )  # fmt: skip
            if got.outputs is not None:
                torch.testing.assert_close(got.outputs, want.outputs, rtol=close, atol=close)


def shared_by(size: int) -> list[Case]:
    """Cases of a group of two or four: each option of a model with either."""
    every = cases(4) if size == 4 else cases(2)
    return [case for i, case in enumerate(every) if (i + i // 4) % 2 == (size == 4)]


@cache
def trained_on(size: int) -> list[list[RankResult]]:
    return as_ranks(size, train, shared_by(size), SIZES, torch.float64, STEPS_TRAINED)


@cache
def switched(model: str) -> list[list[RankResult]]:
    todo = [(model, "link", {"blocks": 3, **o}) for o in SWITCHES]
    return as_ranks(4, train, todo, SIZES, torch.float64, 0)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_train_as_one_process_does(size):
    check(trained_on(size), shared_by(size))


@pytest.mark.parametrize("model", MODELS)
def test_every_switch_gives_the_same_gradients(model):
    check(switched(model), [(model, "link", dict(o)) for o in SWITCHES])


def test_one_rank_needs_no_group():
    todo = cases(1) + [(m, "link", {"blocks": 3, **SWITCHES[-1]}) for m in MODELS]
    check([train(LocalCommunicator(), todo, SIZES, torch.float64, STEPS_TRAINED)], todo)


@pytest.mark.parametrize("sizes", [(3, 3), (3, 1)])
def test_fewer_vertices_and_snapshots_than_ranks(sizes):
    """Ranks without a vertex, without a snapshot, and without either; members without a row."""
    todo = [(m, t, {**o, "blocks": 1}) for m, t, o in cases(4)[:: 2 if sizes[1] == 3 else 5]]
    check(as_ranks(4, train, todo, sizes, torch.float64, 1), todo, sizes)


def test_single_precision_stays_within_the_bar_for_twenty_steps():
    todo: list[Case] = [
        ("cd_gcn", "link", {"partition": p, "blocks": 2}) for p in ("snapshot", "vertex", "hybrid")
    ]
    results = as_ranks(2, train, todo, SIZES, torch.float32, 20)
    want = plain("cd_gcn", "link", SIZES, torch.float32, 20).losses
    for found in results:
        assert all(got.losses == pytest.approx(want, rel=1e-5) for got in found)
    todo = cases(2)[::3]
    check(as_ranks(2, train, todo, SIZES, torch.float32, STEPS_TRAINED), todo, dtype=torch.float32)


# Counted floats against formulas.


@pytest.mark.parametrize("size", [2, 4])
def test_trained_epochs_send_what_the_formulas_say(size):
    todo, results = shared_by(size), trained_on(size)
    for i, (model, task, o) in enumerate(todo):
        assert all(rank[i].floats == results[0][i].floats for rank in results)
        got, net = results[0][i], volumes.timeline(model)
        sent = sum(got.floats.values())
        steps = 8 if task == "class" else 7
        topology, blocks = data(*SIZES).topology[:steps], block_ranges(steps, o["blocks"])
        again = o.get("checkpoint", True)
        first = o.get("precompute", True)
        assert (got.floats["rerun"] > 0) == (again and sent > 0)
        if o["partition"] == "snapshot":
            assert sent == volumes.snapshot_floats(net, 11, blocks, size, checkpoint=again)
        elif o["partition"] == "vertex":
            parts = owners(size, 11)
            # lambda, vertex by vertex: parts other than the owner that read it.
            remote = 0
            for csr in topology:
                readers: dict[int, set[int]] = {}
                for u in range(11):
                    for v in csr.indices[csr.indptr[u] : csr.indptr[u + 1]].tolist():
                        readers.setdefault(v, set()).add(int(parts.owner[u]))
                remote += sum(len(r - {int(parts.owner[v])}) for v, r in readers.items())
            assert remote == remote_reads(topology, parts)
            pairs = got.remote_pairs
            assert sent == volumes.vertex_floats(
                net, remote, remote_pairs=pairs, checkpoint=again, precompute=first
            )
            assert (pairs > 0) == (task == "link")
            # A walk without data sends the same over every link.
            ends = PlainTimeline(workload(model, task), data()).task
            counted = volumes.count_vertex(
                model, list(read_counts(topology, parts)), window=3, checkpoint=again,
                pieces=o.get("pieces", 1), precompute=first, blocks=o["blocks"],
                pair_reads=list(pair_counts([ends.pairs(t)[0] for t in range(steps)], parts))
                if pairs else None,
            )  # fmt: skip
            for (phase, unit), matrix in got.links.items():
                assert (counted.matrix(unit, phase=phase) == matrix).all(), (model, o)
        else:
            group, by = o["group"], o.get("balance", "rows")
            pairs = got.remote_pairs
            remote = volumes.hybrid_reads(topology, 11, group, balance=by)
            assert sent == volumes.hybrid_floats(
                net, topology, 11, blocks, size, group, balance=by, remote_pairs=pairs,
                checkpoint=again, precompute=first,
            )  # fmt: skip
            assert (remote > 0) == (group > 1)
            if group == 1:
                assert sent == volumes.snapshot_floats(net, 11, blocks, size, checkpoint=again)
            if group == size and by == "rows":
                # Rows are the vertices of the temporal half, so nothing is left to redistribute.
                passes = 3 if again else 2
                inside = sum(net.input_dims[1:]) * passes
                inside += 0 if first else net.input_dims[0] * (passes - 1)
                assert sent == remote * inside + pairs * 2 * net.output_dim


@pytest.mark.parametrize("model", MODELS)
def test_volumes_of_the_switches(model):
    """Kept exchanges leave two passes of three; lean passes what follows the last temporal half."""
    rows = dict(zip(map(str, SWITCHES), switched(model)[0], strict=True))

    def floats(**options: Any) -> dict[str, int]:
        return rows[str(options)].floats

    net, blocks = volumes.timeline(model), block_ranges(7, 3)
    three = volumes.snapshot_floats(net, 11, blocks, 4)
    two = volumes.snapshot_floats(net, 11, blocks, 4, checkpoint=False)
    assert sum(floats().values()) == three
    for kept in (floats(reuse=True), floats(reuse=True, pieces=2)):
        assert sum(kept.values()) == two
        assert kept["rerun"] == 0
        assert kept["forward"] == kept["backward"]
    lean = floats(lean=True)
    assert lean["rerun"] == lean["backward"] == three // 3
    # All but the last block, and of that all but the last way back.
    dims = net.redistributed_dims
    width = sum(map(sum, dims))
    first = volumes.snapshot_floats(net, 11, blocks[:-1], 4) // 3
    assert lean["forward"] == (first * (width - dims[-1][1]) // width if dims else 0)
    both = floats(lean=True, reuse=True)
    assert sum(both.values()) == two
    assert both["forward"] == lean["forward"]
    late = floats(late=True)
    # What each layer but the first aggregates goes there, its temporal output comes back.
    narrow = sum(net.input_dims[1 : len(dims)]) + sum(back for _, back in dims)
    assert late["forward"] == late["rerun"] == late["backward"]
    assert late["forward"] == (three // 3 * narrow // width if dims else 0)
    each = floats(late=True, precompute=False)
    extra = three // 3 * net.input_dims[0] // width if dims else 0
    assert each["backward"] == late["backward"]
    assert each["forward"] == each["rerun"] == late["forward"] + extra
    assert floats(late=True, reuse=True, pieces=2) == {**late, "rerun": 0}
    scored = floats(scored=True)
    if model == "cd_gcn":
        # No way back from the last layer, but for ends of pairs that the step's owner lacks.
        back = dims[-1][1]
        lacked = back * _lacked(blocks)
        assert scored["forward"] == three // 3 * (width - back) // width
        assert scored["rerun"] == scored["backward"] == scored["forward"] + lacked
        assert floats(scored=True, late=True, reuse=True)["rerun"] == lacked
    else:  # what is scored is where it was made
        assert scored == floats()
    for shared in ({"partition": "vertex", "fused": True}, {"partition": "hybrid", "group": 2}):
        walked = floats(lean=True, **shared)
        assert walked["forward"] < walked["rerun"] or not dims


def _lacked(blocks: list[range]) -> int:
    """Ends of pairs, each once a step, that are not vertices of the step's owner among four."""
    task = PlainTimeline(workload("cd_gcn"), data()).task
    vertices, found = consecutive(range(11), 4), 0
    for times in blocks:
        for rank, steps in enumerate(consecutive(times, 4)):
            for t in steps:
                found += len(set(task.pairs(t)[0].flatten().tolist()) - set(vertices[rank]))
    return found


@pytest.mark.parametrize("model", MODELS)
def test_bytes_that_ranks_bring_and_keep(model):
    """20 n plain, 16 (a + r) + 4 n else, whichever is less; kept exchanges, own shares included."""
    edges = []
    for csr in data().topology:
        rows = torch.repeat_interleave(torch.arange(11), csr.indptr.diff())
        edges.append(set(zip(rows.tolist(), csr.indices.tolist(), strict=True)))

    def counted(name: str, **options: Any) -> float:
        at = SWITCHES.index(options)
        return sum(rank[at].counters.get(name, 0) for rank in switched(model))

    for options in ({"difference": True}, {"difference": False},
                    {"difference": True, "prefetch": True}):  # fmt: skip
        want, plains = 0, 0
        for times in block_ranges(7, 3):
            for own in consecutive(times, 4):
                for t in own:
                    whole = less = 20 * len(edges[t])
                    if options["difference"] and t > own.start:
                        less = 16 * len(edges[t] ^ edges[t - 1]) + 4 * len(edges[t])
                    want += min(whole, less)
                    plains += 2 * (less >= whole)
        assert counted("bytes_topology", **options) == 2 * want
        assert counted("snapshots_plain", **options) == plains
        assert counted("bytes_features", **options) == 2 * 7 * 11 * 2 * 8
    width = sum(map(sum, volumes.timeline(model).redistributed_dims))
    assert counted("reuse_bytes", reuse=True) == 8 * 7 * 11 * width


# Memory and bad input.


def test_a_snapshot_too_large_for_one_rank_trains_on_two():
    """Each of two ranks has memory for a part of a snapshot's matrix, none for the whole."""
    topology = data(*SIZES).topology[:7]
    whole = max(part_bytes(csr, range(11)) for csr in topology)
    budget = whole * 2 // 3
    assert least_group(topology, 11, 4, whole) == 1
    assert least_group(topology, 11, 4, budget) == 2
    with pytest.raises(UnsupportedError):
        least_group(topology, 11, 4, 50)
    shared = {"partition": "hybrid", "group": 2, "balance": "entries", "blocks": 2}
    todo = [("tm_gcn", "link", shared | {"budget": budget})]
    check(as_ranks(2, train, todo, SIZES, torch.float64, STEPS_TRAINED), todo)
    model = timeline_model(workload("tm_gcn"))
    with pytest.raises(UnsupportedError, match="budget"):
        HybridSplit(LocalCommunicator(), model, data(*SIZES), 11, group=1, budget=budget)


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
