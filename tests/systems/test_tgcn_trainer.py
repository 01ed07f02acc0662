"""T-GCN's trainer: whatever is switched, sampled or replaced, wherever state lies, the losses of
one plain device; training sets from the pools of Algorithm 4."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tgcn_tiny import SYSTEM, events, losses, opened, task

from dgbench.datasets import EventStream
from dgbench.kernels_cuda.edge_sampling import EdgeTable
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import Workload
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.tgcn.pools import sample_pools, sample_subgraphs
from dgbench.systems.tgcn.program import Program, run
from dgbench.systems.tgcn.recounts import check_sample
from dgbench.systems.tgcn.regions import DeviceFull
from dgbench.systems.tgcn.whole_state import WholeState

TASKS = (("link", "mean"), ("link", "last"), ("classify", "mean"))
EXACT = ("partition", "schedule", "overlap", "p2p", "affected")
STREAMED: dict[str, Any] = {"resident": False, "parts": 3}
CHANGES: list[dict[str, Any]] = [
    {}, {"devices": 2}, {"devices": 3, "vertex_cut": "dealt"}, {"devices": 4}, {"resident": False},
    {"resident": False, "parts": 4}, {**STREAMED, "devices": 2}, {"off": EXACT},
    {"off": EXACT, "devices": 4},
    *({**place, "off": [name]} for place in ({"devices": 4}, STREAMED) for name in EXACT),
    *({**place, "on": ["touched"]} for place in ({"devices": 4}, STREAMED)),
]  # fmt: skip


class Plain(InteractionTrainer):
    """The shared trainer on the intervals of another one."""

    def __init__(self, other) -> None:
        super().__init__(other.workload, other.data, dtype=torch.float64, order="intervals")
        self.other = other

    def groups(self, first, last, epoch=0):
        if first < self.data.train_end:
            return [[load.events] for load in self.other.loads(first, last)]
        return self.other.scoring_groups(first, last)


@cache
def wanted(kind: str, aggregate: str) -> list[float]:
    """Losses of the plain trainer."""
    return losses(Plain(opened(task(task=kind, aggregate=aggregate))))


PLACES = CHANGES[::4]
"""Changes that the other tasks are trained with, too."""


@pytest.mark.parametrize(
    ("kind", "change"),
    [*product(TASKS[:1], CHANGES), *product(TASKS[1:], PLACES)], ids=str,
)  # fmt: skip
def test_nothing_depends_on_switches_and_places(kind, change):
    trainer = opened(task(task=kind[0], aggregate=kind[1]), **change)
    assert losses(trainer) == pytest.approx(wanted(*kind), abs=1e-10, rel=0)


def test_a_stream_of_one_edge_and_empty_intervals():
    stream = EventStream.build([1], [1], [5.0], num_nodes=3)
    one = opened(task(intervals=9), stream=stream)
    assert np.isfinite(one.train_epoch()) or one.data.train_end == 0
    late = EventStream.build([0, 1, 2, 0], [1, 2, 0, 3], [0.0, 0.0, 0.0, 100.0], num_nodes=5)
    found = [losses(opened(task(intervals=4), stream=late, devices=d))[0] for d in (1, 2, 4)]
    assert found[1:] == pytest.approx(found[:1] * 2, abs=1e-12)


@settings(deadline=None, max_examples=10)
@given(
    count=st.integers(4, 60),
    vertices=st.integers(3, 15),
    intervals=st.integers(1, 9),
    devices=st.sampled_from([1, 2, 3, 4]),
    cut=st.sampled_from(["equal", "edges", "dealt"]),
    on=st.sampled_from([(), ("touched",)]),
    seed=st.integers(0, 1000),
)
def test_any_stream_trains_as_the_plain_trainer(count, vertices, intervals, devices, cut, on, seed):
    how = {"stream": events(count, vertices, seed), "vertex_cut": cut, "on": on}
    # The shared trainer waits for events of one time that are not sampled, if times are strict.
    work = task(intervals=intervals, strict_time=False)
    wanted = losses(Plain(opened(work, **how)))[:2]
    found = losses(opened(work, devices=devices, **how))[:2]
    assert found == pytest.approx(wanted, abs=1e-10, rel=0)


def test_a_small_device_streams_and_a_smaller_one_says_so():
    stream = events(200, 2000)
    large = opened(task(hidden_dim=16), stream=stream)
    wanted = losses(large)
    state = large.accounts[0].peaks["R1 state"]
    limit = large.accounts[0].peaks["R1 parameters"] + state
    one = opened(task(hidden_dim=16), stream=stream, memory_bytes=limit, on=["touched"])
    assert not one.resident
    assert losses(one) == pytest.approx(wanted, abs=1e-10, rel=0)
    assert one.accounts[0].peak <= limit
    with pytest.raises(DeviceFull, match="R1 state"):
        opened(task(hidden_dim=16), stream=stream, memory_bytes=limit - 1, resident=True)


def test_what_travels_is_counted():
    one = opened(devices=4, on=["touched"])
    one.train_epoch()
    loads = one.loads(0, one.data.train_end)
    rows = sum(sum(load.travelling) for load in loads)
    sent = 3 * rows * 3 * one.workload.hidden_dim * 8  # G - 1 times three vectors
    assert one.meter.counters["bytes_swapped"] == sent
    assert one.meter.counters["phases"] == 4 * len(loads)
    assert one.meter.counters["edges"] == one.kept[0].numel()
    whole = opened(devices=4)
    whole.train_epoch()
    assert whole.meter.counters["bytes_swapped"] == 3 * 23 * len(loads) * 3 * 6 * 8
    here, there = opened(), opened(off=["partition"])
    here.train_epoch()
    there.train_epoch()
    assert here.meter.counters["bytes_swapped"] == here.meter.counters["bytes_d2h"] == 0
    # Without a partition vectors pass the bus every time.
    assert there.meter.counters["bytes_d2h"] > 0
    assert there.meter.counters["bytes_h2d"] > 2 * here.meter.counters["bytes_h2d"]


def test_scoring_in_t_batches_is_scoring_edge_by_edge():
    one = opened(scoring="t-batches")
    one.train_epoch()
    plain = InteractionTrainer(one.workload, one.data, dtype=torch.float64, order="events")
    plain.model.load_state_dict(one.model.state_dict())
    plain.vertices.copy_(one.vertices)
    plain.pending.copy_(one.pending)
    first, last = one.data.train_end, len(one.data.events)
    found, wanted = one.evaluate_range(first, last), plain.evaluate_range(first, last)
    assert (found.ap, found.loss) == pytest.approx((wanted.ap, wanted.loss), abs=1e-6)


def test_bad_arguments_are_named():
    for name, options in (
        ("devices", {"devices": 0}), ("parts", {"devices": 2, "parts": 1}),
        ("parts", {"resident": True, "parts": 3}),
        ("partition", {"resident": True, "off": ["partition"]}),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            opened(**options)
    for name, call in (
        ("scoring", lambda: opened(scoring="some")), ("ring", lambda: opened(on=["ring"])),
        ("vertex_cut", lambda: opened(vertex_cut="some")),
    ):  # fmt: skip
        with pytest.raises(UnknownKeyError, match=name):
            call()
    with pytest.raises(InvalidInputError):
        opened().run_step(torch.arange(3), scale=None)
    assert not SYSTEM.unsupported(task(), "cpu")
    frames = Workload(dataset="covid19-england", model="tgcn_model")
    for other in (frames, task(model="jodie"), task(propagation=True)):
        assert SYSTEM.unsupported(other, "cpu")


@pytest.mark.parametrize("method", ["sis", "its_bitmap", "alias", "reservoir", "keep_share"])
def test_sampling_keeps_half_of_every_neighbourhood(method):
    one = opened(task(intervals=None), program=Program(method))
    one.prepare()
    kept, src = one.kept[0], one.data.events.src[: one.data.train_end]
    half = (torch.bincount(src) + 1) // 2
    assert torch.equal(torch.bincount(src[kept], minlength=half.numel()), half)
    whole = opened(off=["sampling"])
    whole.prepare()
    assert whole.kept[0].numel() == one.data.train_end


class Halves(Program):
    """Two sets, cut into two, with a count of what is trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[tuple[int, int]] = []

    def sampling(self, edges):
        return [torch.arange(first, len(edges), 2) for first in (0, 1)]

    def cuts(self, edges):
        return torch.tensor([0, 3, len(edges)])

    def train(self, grids, devices):
        self.trained.append((grids.events.numel(), devices))
        return super().train(grids, devices)


def test_sets_take_turns_and_cuts_and_training_can_be_replaced():
    program = Halves()
    one = opened(program=program, devices=2)
    first, second, third = run(one, epochs=3)
    assert first != second
    assert third < first
    assert [kept.numel() for kept in one.kept] == [48, 47]
    assert program.trained == [(3, 2), (45, 2), (3, 2), (44, 2), (3, 2), (45, 2)]


@pytest.mark.parametrize(
    "found",
    [[], torch.tensor([3, 1]), torch.tensor([0, 500]), torch.tensor([0.5]), [torch.tensor([-1])]],
    ids=["none", "falling", "beyond", "floats", "negative"],
)
def test_a_sample_that_is_none_is_refused(found):
    class Wrong(Program):
        def sampling(self, edges):
            return found

    with pytest.raises(InvalidInputError, match="sampling"):
        opened(program=Wrong()).prepare()


class Cut(Program):
    """All edges of a range, cut where it is told."""

    def __init__(self, bounds: list[int]) -> None:
        super().__init__()
        self.bounds = bounds

    def sampling(self, edges):
        return torch.arange(self.bounds[0], self.bounds[-1])

    def cuts(self, edges):
        return torch.tensor(self.bounds) - self.bounds[0]


def _columns(trainer):
    return trainer.vertices.columns() | trainer.pending.columns()


@pytest.mark.parametrize(("kind", "aggregate"), TASKS)
def test_states_are_those_of_all_edges(kind, aggregate):
    """With a learning rate by which no parameter moves."""
    work = task(lr=1e-300, task=kind, aggregate=aggregate, intervals=7)
    whole = opened(work, program=WholeState())
    whole.train_epoch()
    loads = whole.loads(0, whole.data.train_end)
    bounds = [int(one.events[0]) for one in loads] + [int(loads[-1].events[-1]) + 1]
    every = opened(work, program=Cut(bounds))
    every.train_epoch()
    for name, column in _columns(whole).items():
        assert torch.allclose(column, _columns(every)[name], atol=1e-12), name
    own = opened(work)
    own.train_epoch()
    assert not torch.equal(own.vertices.embedding, whole.vertices.embedding)


# --- pools ----------------------------------------------------------------------------------------


def pooled(on=("union",), **options):
    return opened(stream=events(400, 40), on=on, **options)


@pytest.mark.parametrize("kind", [None, "layer"])
@pytest.mark.parametrize("off", [(), ("sis",)])
def test_pools_are_part_of_a_whole_run(kind, off):
    one = pooled(program=Program(kind=kind), off=off)
    count = one.data.train_end
    trained = losses(one, epochs=2)
    assert one.kept[0].numel() == (count + 1) // 2
    sample, counted = one.program.pooled, one.meter.counters
    assert counted["sample_roots"] == sample.roots.numel()
    assert counted["pool_edges"] == int(sample.pools.sum())
    assert counted["drawn_edges"] == int(((sample.pools + 1) // 2).sum()) == int(sample.drawn.sum())
    assert counted["drawn_edges"] > one.kept[0].numel()  # several reach the same edges
    assert all(check.passed for check in check_sample(one, "tgcn"))
    four = pooled(program=Program(kind=kind), off=off, devices=4)
    assert losses(four, epochs=2) == pytest.approx(trained, abs=1e-9, rel=0)
    other = pooled(on=())
    other.prepare()
    assert other.program.pooled is None
    assert not torch.equal(other.kept[0], one.kept[0])


def test_subgraphs_are_trained_on_in_turns():
    one = pooled(program=Program(kind="subgraph"))
    first, second, third = (one.train_epoch() for _ in range(3))
    assert len(one.kept) > 1
    assert len({first, second, third}) == 3


def table_of(edges) -> EdgeTable:
    src, dst = (torch.tensor(end) for end in zip(*edges, strict=True))
    count = 1 + int(torch.cat([src, dst]).max())
    t = torch.arange(len(edges)).double()
    return EdgeTable.build(src, dst, t, count, undirected=True)


GRAPH = [(0, 1), (0, 1), (1, 2), (2, 3), (0, 2), (3, 4), (4, 4), (1, 4)]


def algorithm4(seed: int, layers: int = 2) -> frozenset[int]:
    """The training set by plain Python: a pool is a list, a draw `random.sample`."""
    dice, found = random.Random(seed), set()
    roots = list(range(5))
    dice.shuffle(roots)
    wanted = (len(GRAPH) + 1) // 2
    for root in roots:
        reached, drawn = {root}, set()
        for _ in range(layers):
            pool = [
                (eid, far)
                for eid, (u, v) in enumerate(GRAPH)
                for near, far in ((u, v), (v, u))
                if near in reached
            ]
            taken = dice.sample(pool, (len(pool) + 1) // 2)
            drawn |= {eid for eid, _ in taken}
            reached = {far for _, far in taken}
        fresh = sorted(drawn - found)
        found |= set(dice.sample(fresh, min(len(fresh), wanted - len(found))))
        if len(found) == wanted:
            break
    return frozenset(found)


def test_training_sets_have_the_distribution_of_algorithm_4():
    table, count = table_of(GRAPH), 1000
    ours = [frozenset(sample_pools(table, 0.5, seed=k).edges.tolist()) for k in range(count)]
    plain = [algorithm4(seed) for seed in range(count)]
    assert {len(one) for one in ours} == {4}
    sets = set(ours) | set(plain)
    distance, degrees = 0.0, 0
    for one in sets:
        a, b = ours.count(one), plain.count(one)
        if a + b >= 12:
            distance, degrees = distance + (a - b) ** 2 / (a + b), degrees + 1
    assert degrees > 20
    # Chi-square of two samples: its mean is `degrees`, its deviation the root of twice that.
    assert distance < degrees + 5 * (2 * degrees) ** 0.5


def test_arguments_of_pools_are_checked():
    table = table_of(GRAPH)
    directed = EdgeTable.build(*(torch.tensor([0, 1]),) * 2, torch.arange(2).double(), 2)
    with pytest.raises(UnknownKeyError, match="kind"):
        sample_pools(table, 0.5, kind="all")
    with pytest.raises(UnknownKeyError, match="kind"):
        Program(kind="all")
    for wrong in ((directed, 0.5), (table, 0.0), (table, 1.5)):
        with pytest.raises(InvalidInputError):
            sample_pools(*wrong)
    assert all(one.numel() for one in sample_subgraphs(table, frontier=3, count=2, seed=1))
    assert opened().on["union"] is False
