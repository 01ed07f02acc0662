"""T-GCN's trainer: whatever is switched, wherever state lies, the losses of one plain device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tgcn_tiny import events, losses, opened, task

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.interaction_trainer import InteractionTrainer
from dgbench.systems.tgcn.grids import cut_vertices
from dgbench.systems.tgcn.intervals import Planner
from dgbench.systems.tgcn.regions import DeviceFull

EXACT = ("partition", "schedule", "overlap", "p2p", "affected")
PLACES = (
    {"devices": 2},
    {"devices": 3, "vertex_cut": "dealt"},
    {"devices": 4},
    {"resident": False},
    {"resident": False, "parts": 4},
    {"resident": False, "devices": 2, "parts": 3},
)


class Plain(InteractionTrainer):
    """The shared trainer on the intervals of another one."""

    def __init__(self, other) -> None:
        super().__init__(other.workload, other.data, dtype=torch.float64, order="intervals")
        self.other = other

    def groups(self, first, last, epoch=0):
        if first < self.data.train_end:
            return [[load.events] for load in self.other.loads(first, last)]
        return self.other.scoring_groups(first, last)


@pytest.fixture(scope="module", params=[("link", "mean"), ("link", "last"), ("classify", "mean")])
def known(request):
    """A task and the plain trainer's losses on it."""
    work = task(task=request.param[0], aggregate=request.param[1])
    one = opened(work)
    return work, losses(Plain(one)), one


def test_one_device_is_the_plain_trainer(known):
    work, wanted, one = known
    assert losses(one) == pytest.approx(wanted, abs=1e-12, rel=0)
    plain = Plain(opened(work))
    found = opened(work).gradients(2)
    for name, gradient in plain.gradients(2).items():
        assert torch.allclose(found[name], gradient, atol=1e-13, rtol=0), name
    assert torch.equal(opened(work, off=["overlap"]).evaluate(3), plain.evaluate(3))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_nothing_depends_on_where_state_lies(known, place):
    work, wanted, _ = known
    assert losses(opened(work, **place)) == pytest.approx(wanted, abs=1e-10, rel=0)


@pytest.mark.parametrize(
    "change", [*({"off": [name]} for name in EXACT), {"on": ["touched"]}], ids=str
)
@pytest.mark.parametrize("place", [{"devices": 4}, {"resident": False, "parts": 3}], ids=str)
def test_exact_switches_change_nothing(change, place):
    wanted = losses(opened())
    assert losses(opened(**change, **place)) == pytest.approx(wanted, abs=1e-10, rel=0)


def test_vertices_without_an_edge_are_computed_anew_only_where_parts_move_or_it_is_asked_for():
    named, whole = opened(), opened(off=["affected"])
    assert losses(named) == pytest.approx(losses(whole), abs=1e-10, rel=0)
    for trainer, every in ((named, False), (whole, True), (opened(devices=4), True),
                           (opened(devices=4, on=["touched"]), False)):  # fmt: skip
        trainer.train_epoch()
        loads = trainer.loads(0, trainer.data.train_end)
        assert all(sum(load.travelling) == trainer.data.events.num_nodes for load in loads) is every


def test_all_exact_switches_off_at_once():
    wanted = losses(opened())
    for devices in (1, 4):
        found = losses(opened(off=EXACT, devices=devices))
        assert found == pytest.approx(wanted, abs=1e-10, rel=0)


def test_single_precision_agrees_to_its_rounding():
    wanted = losses(opened(dtype=torch.float32))
    found = losses(opened(dtype=torch.float32, devices=4))
    assert found == pytest.approx(wanted, abs=1e-5, rel=0)


def test_sampling_keeps_half_of_every_neighbourhood():
    one = opened(task(intervals=None))
    one.prepare()
    kept, src = one.kept[0], one.data.events.src[: one.data.train_end]
    degree = torch.bincount(src)
    assert torch.equal(torch.bincount(src[kept], minlength=degree.numel()), (degree + 1) // 2)
    other = opened(off=["sis"])
    other.prepare()
    assert other.kept[0].numel() == kept.numel()
    whole = opened(off=["sampling"])
    whole.prepare()
    assert whole.kept[0].numel() == one.data.train_end


def test_the_same_seed_samples_the_same():
    first, second = opened(), opened()
    assert losses(first) == losses(second)
    assert torch.equal(first.kept[0], second.kept[0])


def test_a_stream_of_one_edge_and_empty_intervals():
    stream = EventStream.build([1], [1], [5.0], num_nodes=3)
    one = opened(task(intervals=9), stream=stream)
    assert np.isfinite(one.train_epoch()) or one.data.train_end == 0
    late = EventStream.build([0, 1, 2, 0], [1, 2, 0, 3], [0.0, 0.0, 0.0, 100.0], num_nodes=5)
    found = [losses(opened(task(intervals=4), stream=late, devices=d))[0] for d in (1, 2, 4)]
    assert found[1:] == pytest.approx(found[:1] * 2, abs=1e-12)


@settings(deadline=None, max_examples=12)
@given(
    count=st.integers(4, 60),
    vertices=st.integers(3, 15),
    intervals=st.integers(1, 9),
    devices=st.sampled_from([2, 3, 4]),
    cut=st.sampled_from(["equal", "edges", "dealt"]),
    seed=st.integers(0, 1000),
)
def test_any_stream_trains_alike_on_any_number_of_devices(
    count, vertices, intervals, devices, cut, seed
):
    stream = events(count, vertices, seed)
    work = task(intervals=intervals)
    wanted = losses(opened(work, stream=stream, vertex_cut=cut))[:2]
    found = losses(opened(work, stream=stream, vertex_cut=cut, devices=devices))[:2]
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


def test_more_parts_need_less_of_a_streaming_device():
    peaks = []
    for parts in (1, 4):
        one = opened(task(intervals=2), stream=events(400, 300), resident=False, parts=parts)
        one.train_epoch()
        peaks.append(one.accounts[0].peak)
    assert peaks[1] < peaks[0]


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
    single = opened()
    single.train_epoch()
    assert single.meter.counters["bytes_swapped"] == 0


def test_without_a_partition_vectors_pass_the_bus_every_time():
    here, there = opened(), opened(off=["partition"])
    here.train_epoch()
    there.train_epoch()
    assert here.meter.counters["bytes_d2h"] == 0
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 0}, "0 devices"),
        ({"devices": 2, "parts": 1}, "2 devices and 1 parts"),
        ({"resident": True, "parts": 3}, "3 parts on 1 devices"),
        ({"resident": True, "off": ["partition"]}, "without 'partition'"),
    ],
)
def test_options_out_of_range_are_named(options, message):
    with pytest.raises(InvalidInputError, match=message):
        opened(**options)


def test_unknown_words_are_named():
    with pytest.raises(UnknownKeyError, match="scoring"):
        opened(scoring="some")
    with pytest.raises(UnknownKeyError, match="vertex_cut"):
        opened(vertex_cut="some")
    with pytest.raises(InvalidInputError, match="no interval"):
        opened().run_step(torch.arange(3), scale=None)


# --- the plan -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    count=st.integers(1, 40),
    vertices=st.integers(2, 12),
    parts=st.integers(1, 4),
    cut=st.sampled_from(["equal", "dealt"]),
    touched=st.booleans(),
    negatives=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_plan_holds_every_pair_once(count, vertices, parts, cut, touched, negatives, seed):
    rng = np.random.default_rng(seed)
    src, dst, wrong = torch.from_numpy(rng.integers(0, vertices, size=(3, count)))
    t = torch.from_numpy(np.sort(rng.integers(0, 9, count)).astype(float))
    wrong = wrong if negatives else wrong[:0]
    cuts = torch.tensor([0, count // 3, count // 3, count])
    cut_into = cut_vertices(vertices, parts, cut=cut)
    planner = Planner(cut_into, touched=touched)
    plan = list(planner.plan(torch.arange(count), src, dst, wrong, t, cuts))
    names, bounds = cut_into.vertices(), cut_into.bounds.tolist()
    for interval in plan:
        mine = interval.events
        found, bad = [], []
        for i, j in itertools.product(range(parts), repeat=2):
            pairs = interval.grid(i, j)
            source, target = interval.shares[i], interval.shares[j]
            u = names[source.ids[: source.sources].long() + bounds[i]][pairs.src.long()]
            v = names[target.ids[target.targets :].long() + bounds[j]][pairs.dst.long()]
            both = list(zip(u.tolist(), v.tolist(), strict=True))
            found += both[: pairs.edges]
            bad += both[pairs.edges :]
        assert sorted(found) == sorted(zip(src[mine].tolist(), dst[mine].tolist(), strict=True))
        if negatives:
            expected = zip(src[mine].tolist(), wrong[mine].tolist(), strict=True)
            assert sorted(bad) == sorted(expected)
        for part, share in enumerate(interval.shares):
            ends = names[share.ids[: share.ends].long() + bounds[part]].tolist()
            for row, vertex in enumerate(ends):
                out, into = (mine[one[mine] == vertex] for one in (src, dst))
                assert (int(share.count_s[row]), int(share.count_g[row])) == (
                    out.numel(),
                    into.numel(),
                )
                if out.numel():
                    assert float(share.time_s[row]) == float(t[out].max())
                if into.numel():
                    assert float(share.time_g[row]) == float(t[into].max())
