"""Projected epochs against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.plan import Cut, ModelSize, trained
from dgbench.systems.tgcn.projection import (
    EpochLoad,
    Pieces,
    even_load,
    measure_machine,
    project_epoch,
)
from dgbench.systems.tgcn.ring import LITERAL
from dgbench.systems.tgcn.schedule import make_schedule

SIZE = ModelSize(1_000_000, 40_000_000)
PIECES = Pieces(pair_s=1e-6, row_s=2e-6)


def test_one_device_only_computes() -> None:
    load = even_load(SIZE, Cut(intervals=5))
    found = project_epoch(load, PIECES, machine(size=1), size=SIZE)
    pairs = 2 * trained(SIZE, Cut())
    assert found.pairs_s == pytest.approx(1e-6 * pairs)
    assert found.rows_s == pytest.approx(2e-6 * load.rows.sum() * 5)
    assert found.exchange_s == found.reduce_s == found.moved == 0
    assert found.seconds == found.pairs_s + found.rows_s + found.host_s


def test_even_grids_on_eight_devices_take_an_eighth_and_the_exchange() -> None:
    one = project_epoch(even_load(SIZE, Cut()), PIECES, machine(size=1), size=SIZE)
    load = even_load(SIZE, Cut(devices=8))
    found = project_epoch(load, PIECES, machine(), size=SIZE, overlap=False)
    assert found.pairs_s == pytest.approx(one.pairs_s / 8)
    assert found.rows_s == pytest.approx(one.rows_s / 8)
    # 7 swaps of what is read, 7 of what is added, on doubled links in both phases.
    nbytes = SIZE.vertices / 8 * SIZE.vector
    assert found.exchange_s == pytest.approx(7 * 3 * nbytes / 50e9, rel=0.01)
    assert found.moved == pytest.approx(8 * 7 * 3 * nbytes, rel=1e-6)
    hidden = project_epoch(load, PIECES, machine(), size=SIZE)
    assert hidden.exchange_s == pytest.approx(7 * 2 * nbytes / 50e9, rel=0.1)


def test_without_p2p_two_devices_share_a_switch() -> None:
    load = even_load(SIZE, Cut(devices=4), whole=True)
    options = {"size": SIZE, "overlap": False}
    on, off = (
        project_epoch(load, PIECES, machine(size=4), p2p=p2p, **options) for p2p in (True, False)
    )
    nbytes = SIZE.vertices / 4 * SIZE.vector
    assert off.exchange_s == pytest.approx(3 * 3 * nbytes * 2 / 12e9, rel=0.01)
    assert off.exchange_s > 4 * on.exchange_s
    assert off.moved == on.moved
    assert off.pairs_s == on.pairs_s


def test_a_full_grid_makes_others_wait() -> None:
    share = np.zeros((2, 2))
    share[0, 0] = 1.0
    load = even_load(SIZE, Cut(devices=2), share=share)
    found = project_epoch(load, PIECES, machine(size=2), size=SIZE)
    one = project_epoch(even_load(SIZE, Cut()), PIECES, machine(size=1), size=SIZE)
    assert found.pairs_s == pytest.approx(one.pairs_s)


def test_the_papers_ring_is_half_as_fast() -> None:
    load = even_load(SIZE, Cut(devices=8))
    options = {"size": SIZE, "overlap": False}
    best = project_epoch(load, PIECES, machine(), **options)
    literal = project_epoch(
        load, PIECES, machine(), schedule=make_schedule(8, ring=LITERAL), **options
    )
    assert literal.exchange_s == pytest.approx(2 * best.exchange_s, rel=0.01)


def test_intervals_that_repeat_are_what_they_are_written_out() -> None:
    rng = np.random.default_rng(1)
    pairs, rows = rng.integers(0, 99, (3, 4, 4)), rng.integers(0, 99, (3, 4))
    load = EpochLoad(pairs.astype(float), rows.astype(float), rows.astype(float), 3)
    long = EpochLoad(*(np.concatenate([x] * 3) for x in (load.pairs, load.rows, load.visiting)))
    assert load.intervals == long.intervals == 9
    found = [
        project_epoch(one, PIECES, machine(size=4), size=SIZE, schedule=make_schedule(4, "gather"))
        for one in (load, long)
    ]
    assert found[0].seconds == pytest.approx(found[1].seconds)
    assert found[0].moved == found[1].moved


def test_visitors_cost_on_every_device_that_trains_on_them() -> None:
    share = np.full((2, 2), 0.25)
    share[0, 1] = 0.0
    rows = Pieces(pair_s=0.0, row_s=0.0, visit_s=1e-6)
    load = even_load(SIZE, Cut(devices=2), share=share)
    found = project_epoch(load, rows, machine(size=2), size=SIZE)
    # Device 1 trains both parts, one after the other; device 0 only its own.
    assert found.pairs_s == pytest.approx(1e-6 * SIZE.vertices)
    assert rows.scaled(2).visit_s == 2e-6
    more = load.scaled(3, 2)
    assert (more.pairs == 3 * load.pairs).all()
    assert (more.visiting == 2 * load.visiting).all()


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


def test_a_machine_is_measured() -> None:
    found = measure_machine()
    assert found.bandwidth > 1
    assert found.arithmetic > 1


def test_bad_arguments_are_named() -> None:
    load = even_load(SIZE, Cut(devices=2))
    with pytest.raises(InvalidInputError, match="the load has 2 devices, the links 4"):
        project_epoch(load, PIECES, machine(size=4), size=SIZE, schedule=make_schedule(4))
    with pytest.raises(InvalidInputError, match="negative time"):
        Pieces(-1, 0)
    with pytest.raises(InvalidInputError, match="'share' is"):
        even_load(SIZE, Cut(devices=2), share=np.ones((3, 3)))
    with pytest.raises(InvalidInputError, match="'pairs' is"):
        EpochLoad(np.ones((1, 2, 3)), np.ones((1, 2)), np.ones((1, 2)))
