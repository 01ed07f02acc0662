"""Basis of T-GCN's experiments, on small data: tails of degrees, probes, turns and frontiers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgbench.systems.base.interaction_checks import whole_times
from dgbench.systems.tgcn import frontier
from dgbench.systems.tgcn.degrees import MIN_TAIL, rescaled_gap, tail_of
from dgbench.systems.tgcn.methods import timed


def test_the_tail_of_a_power_law_is_found() -> None:
    numbers = np.random.default_rng(3)
    body = numbers.integers(1, 20, 4000)
    tail = np.floor(20 * (1 - numbers.random(4000)) ** (-1 / 1.5)).astype(np.int64)
    found = tail_of(np.concatenate([body, tail]))
    assert 14 <= found.least <= 40
    assert found.laws.exponent == pytest.approx(2.5, abs=0.15)
    assert found.laws.nearer == "power law"
    assert found.laws.power_gap < 0.05


def test_an_exponential_tail_is_none() -> None:
    drawn = 1 + np.floor(np.random.default_rng(4).exponential(30, 5000)).astype(np.int64)
    assert tail_of(drawn).laws.nearer == "exponential"


def test_too_few_or_equal_degrees_have_no_tail() -> None:
    assert tail_of(np.zeros(500, dtype=np.int64)) is None
    assert tail_of(np.arange(1, MIN_TAIL)) is None
    assert tail_of(np.full(500, 7)) is None


def test_scaled_degrees_do_not_differ() -> None:
    degrees = 2 * np.random.default_rng(5).integers(1, 50, 300)
    assert rescaled_gap(degrees, degrees // 2) == 0
    assert rescaled_gap(degrees, np.zeros_like(degrees)) == 1
    mixed = np.where(np.arange(300) % 2, degrees, 0)
    assert rescaled_gap(degrees, mixed) == pytest.approx(0.5, abs=0.1)
    assert rescaled_gap(degrees, degrees // 2, least=10**9) == 1  # nothing is left


def test_a_probe_does_not_end_among_events_of_one_time():
    t = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    assert whole_times(t, 0, 3) == 0
    assert whole_times(t, 1, 3) == 0  # 3.0 goes on
    assert whole_times(t, 2, 3) == 2
    assert whole_times(t, 5, 3) == 3
    assert whole_times(t, 6, 3) == 6  # all of one time
    assert whole_times(t, 7, 3) == 7  # the end of the stream


def test_turns_alternate_and_the_first_is_dropped() -> None:
    order: list[str] = []
    seconds: dict[str, list[float]] = {}
    for turn in (-1, 0, 1):
        timed({name: lambda name=name: order.append(name) for name in "ab"}, seconds, turn)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert {name: len(found) for name, found in seconds.items()} == {"a": 2, "b": 2}


def test_a_frontier_steps() -> None:
    table = frontier.ring_of(500)
    assert table.num_nodes == 500
    assert int(table.degrees.min()) > 0
    sample = frontier.walk("brs", 500, 40)
    assert sample.stats.draws == 40
    assert sample.stats.elements_scanned == 40 * 500  # the whole table, each step
    assert frontier.walk("sis", 500, 40).stats.elements_scanned == 0
    assert frontier.frontier_calls(frontier.MAX_FRONTIER + 1) == {}
