"""T-GCN's memory by count, and projected epochs against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tgcn_tiny import events, task

from dgbench.lab.laws import DECIDED
from dgbench.models.streaming import Dygnn
from dgbench.models.streaming.jodie import Jodie
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.interaction_checks import whole_times
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import plan
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.experiments.table1 import MIN_TAIL, rescaled_gap, tail_of
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.methods import timed
from dgbench.systems.tgcn.projection import EpochLoad, Pieces, even_load, project_epoch
from dgbench.systems.tgcn.scaling_runs import load_of, open_on, train_alike
from dgbench.systems.tgcn.schedule import make_schedule

TWITTER = plan.ModelSize(41_652_230, 1_468_365_182, features=1)
V100 = 32 * 2**30
SIZE = plan.ModelSize(1_000_000, 40_000_000)
PIECES = Pieces(pair_s=1e-6, row_s=2e-6)


@pytest.mark.parametrize("hidden", [8, 64])
def test_a_vertex_takes_what_its_state_takes(hidden) -> None:
    size = plan.ModelSize(10, 10, hidden)
    for name, model in (
        ("tgcn", Dygnn(hidden)),
        ("dygnn", Dygnn(hidden, propagation=True)),
        ("jodie", Jodie(hidden)),
    ):
        state, waits = model.new_state(10)
        assert (state.nbytes + waits.nbytes) / 10 == plan.state_bytes(size, name), name
    assert plan.state_bytes(size, "paper") == 5 * 4 * hidden + 16
    weights = sum(p.numel() * p.element_size() for p in Dygnn(hidden).parameters())
    assert plan.parameter_bytes(size) == 4 * weights


def test_activations_are_bounded_by_what_a_refresh_keeps() -> None:
    model, rows, kept = Dygnn(64), 500, dict[int, int]()
    state, waits = model.new_state(rows)
    waits.count_s += 1
    waits.count_g += 1

    def note(x: torch.Tensor) -> torch.Tensor:
        kept[x.untyped_storage().data_ptr()] = x.numel() * x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        new = model.refresh(state, waits)
    del new
    vectors = sum(kept.values()) / rows / (4 * 64)
    assert plan.ACTIVATIONS / 2 <= vectors <= plan.ACTIVATIONS


def test_even_grids_on_eight_devices_take_an_eighth_and_the_exchange() -> None:
    one = project_epoch(even_load(SIZE, plan.Cut()), PIECES, machine(size=1), size=SIZE)
    load = even_load(SIZE, plan.Cut(devices=8))
    found = project_epoch(load, PIECES, machine(), size=SIZE, overlap=False)
    assert found.pairs_s == pytest.approx(one.pairs_s / 8)
    assert found.rows_s == pytest.approx(one.rows_s / 8)
    # 7 swaps of what is read, 7 of what is added, on doubled links in both phases.
    nbytes = SIZE.vertices / 8 * SIZE.vector
    assert found.exchange_s == pytest.approx(7 * 3 * nbytes / 50e9, rel=0.01)
    assert found.moved == pytest.approx(8 * 7 * 3 * nbytes, rel=1e-6)
    hidden = project_epoch(load, PIECES, machine(), size=SIZE)
    assert hidden.exchange_s == pytest.approx(7 * 2 * nbytes / 50e9, rel=0.1)


def test_a_device_waits_for_those_that_send_to_it_only() -> None:
    """Full grids on two devices at different times overlap where they are not neighbours."""
    pairs = np.zeros((1, 4, 4))
    schedule = make_schedule(4, ring=range(4))
    first, second = schedule.assignments[:2]
    pairs[0, 0, first[0]] = pairs[0, 2, second[2]] = 1e6
    load = EpochLoad(pairs, np.zeros((1, 4)), np.zeros((1, 4)))
    options = {"size": SIZE, "schedule": schedule, "overlap": False}
    found = project_epoch(load, Pieces(1e-6, 0.0), machine(size=4), **options)
    assert found.pairs_s == pytest.approx(1.0)


def test_devices_train_alike_and_pass_on_what_the_formula_says() -> None:
    work = task(intervals=3, share=1.0)
    found = train_alike(work, interaction_data(events(), work), (1, 2, 3, 4), "dealt")
    assert found[1].swapped == found[1].expected == 0
    for one in found.values():
        assert one.deviation < 1e-10
        assert one.swapped == one.expected
    assert 0 < found[2].swapped < found[4].swapped


def test_a_load_holds_every_pair_and_row() -> None:
    work = task(intervals=3, share=1.0)
    data = interaction_data(events(), work)
    for devices in (1, 3):
        trainer = open_on(work, data, devices, "dealt")
        load = load_of(trainer)
        assert load.pairs.sum() == 2 * sum(kept.numel() for kept in trainer.kept)
        assert (load.visiting <= load.rows).all()
        assert load.rows.sum() == sum(one.rows for one in trainer.loads(0, data.train_end))
        trainer.close()


def test_bad_arguments_are_named() -> None:
    load = even_load(SIZE, plan.Cut(devices=2))
    for call in (
        lambda: plan.fewest(TWITTER, plan.Cut(), V100, "vertices"),
        lambda: plan.state_bytes(TWITTER, "tgn"),
    ):
        with pytest.raises(UnknownKeyError):
            call()
    for name, call in (
        ("size", lambda: plan.ModelSize(-1, 1)),
        ("intervals", lambda: plan.Cut(intervals=0)),
        ("parts", lambda: plan.Cut(devices=2, parts=2)),
        ("padding", lambda: plan.baseline_memory(TWITTER, "jodie", padding=0.5)),
        ("devices", lambda: project_epoch(load, PIECES, machine(size=4), size=SIZE,
                                          schedule=make_schedule(4))),
        ("time", lambda: Pieces(-1, 0)),
        ("share", lambda: even_load(SIZE, plan.Cut(devices=2), share=np.ones((3, 3)))),
        ("pairs", lambda: EpochLoad(np.ones((1, 2, 3)), np.ones((1, 2)), np.ones((1, 2)))),
        ("counts", lambda: balance(torch.zeros(1, 2, 3))),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            call()


# --- tails of degrees, probes, turns and frontiers ------------------------------------------------


def test_the_tail_of_a_power_law_is_found() -> None:
    numbers = np.random.default_rng(3)
    body = numbers.integers(1, 20, 4000)
    tail = np.floor(20 * (1 - numbers.random(4000)) ** (-1 / 1.5)).astype(np.int64)
    found = tail_of(np.concatenate([body, tail]))
    assert 14 <= found.least <= 40
    assert found.laws.exponent == pytest.approx(2.5, abs=0.15)
    assert found.laws.z > DECIDED
    assert found.laws.power_gap < 0.05


def test_other_degrees_have_another_tail_or_none() -> None:
    drawn = 1 + np.floor(np.random.default_rng(4).exponential(30, 5000)).astype(np.int64)
    assert tail_of(drawn).laws.z < -DECIDED
    for none in (np.zeros(500, dtype=np.int64), np.arange(1, MIN_TAIL), np.full(500, 7)):
        assert tail_of(none) is None


def test_scaled_degrees_do_not_differ() -> None:
    degrees = 2 * np.random.default_rng(5).integers(1, 50, 300)
    assert rescaled_gap(degrees, degrees // 2) == 0
    assert rescaled_gap(degrees, np.zeros_like(degrees)) == 1
    mixed = np.where(np.arange(300) % 2, degrees, 0)
    assert rescaled_gap(degrees, mixed) == pytest.approx(0.5, abs=0.1)
    assert rescaled_gap(degrees, degrees // 2, least=10**9) == 1  # nothing is left


def test_a_probe_does_not_end_among_events_of_one_time():
    t = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    # 3.0 goes on, then all is of one time, and then the stream ends.
    found = [whole_times(t, first, 3) for first in (0, 1, 2, 5, 6, 7)]
    assert found == [0, 0, 2, 3, 6, 7]


def test_turns_alternate_and_the_first_is_dropped() -> None:
    order: list[str] = []
    seconds: dict[str, list[float]] = {}
    for turn in (-1, 0, 1):
        timed({name: lambda name=name: order.append(name) for name in "ab"}, seconds, turn)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert {name: len(found) for name, found in seconds.items()} == {"a": 2, "b": 2}
