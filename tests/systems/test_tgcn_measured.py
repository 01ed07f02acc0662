"""The ring of ranks is that of the links between them, measured at start or given."""

from __future__ import annotations

import pytest
import torch
from dgc_ranks import as_ranks
from pretended_nccl import launch_on_nccl
from tgcn_tiny import SYSTEM, events, losses, opened, task

from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.ranks import launch
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import measured
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.measured import MeasuredLinks, measure_links
from dgbench.systems.tgcn.ranked import GridRankTrainer, train_ranked
from dgbench.systems.tgcn.ring import best_ring, pairs, quality

ORDER = (0, 2, 1, 3)
"""The only ring of wide links below; a DGX-1's first four are all neighbours of each other."""


def wide_on(ring, wide=50e9, narrow=10e9) -> MeasuredLinks:
    """Links that are wide between neighbours on a ring."""
    size = len(ring)
    near = {frozenset((ring[k], ring[(k + 1) % size])) for k in range(size)}
    return MeasuredLinks(
        tuple(
            tuple(0.0 if i == j else wide if {i, j} in near else narrow for j in range(size))
            for i in range(size)
        )
    )


def neighbours(ring) -> set[frozenset[int]]:
    return {frozenset(pair) for side in pairs(ring) for pair in side}


@pytest.mark.parametrize("names", [range(8), (3, 1, 4, 0, 5, 7, 2, 6)])
def test_rates_alone_lead_to_the_doubled_links_of_a_dgx1(names):
    links = machine("dgx1-v100").relabelled(list(names))
    rates = [[links.bandwidth(i, j) if i != j else 0.0 for j in range(8)] for i in range(8)]
    # Measured rates are never quite alike.
    noise = [[1 - ((i * 8 + j) + (j * 8 + i)) % 7 / 100 for j in range(8)] for i in range(8)]
    noisy = [[rates[i][j] * noise[i][j] for j in range(8)] for i in range(8)]
    known = MeasuredLinks(tuple(map(tuple, noisy)))
    assert quality(links, best_ring(known)).not_doubled == 0


def test_noise_does_not_choose_a_ring():
    rates = [[1e9 * (1 + ((i + j) * 37 % 11) / 40) for j in range(4)] for i in range(4)]
    assert best_ring(MeasuredLinks(tuple(map(tuple, rates)))) == (0, 1, 2, 3)


def test_ranks_that_measure_pass_destinations_along_wide_links(monkeypatch):
    links = wide_on(ORDER)
    swaps = []

    def swap_seconds(comm, i, j, nbytes):
        if comm.rank == 0:
            swaps.append((i, j))
        comm.traffic.add("all_to_all", "forward", (comm.rank + 1) % 4, 1, nbytes, 1)
        return nbytes / links.rates[i][j] * (1 if comm.rank == i else 0.5)

    monkeypatch.setattr(measured, "swap_seconds", swap_seconds)
    work = task()
    data = interaction_data(events(), work)
    wanted = losses(opened(work))

    def ring(comm, on):
        switches = SYSTEM.switches({"measured_ring": on})
        trainer = GridRankTrainer(comm, work, data, switches, dtype=torch.float64)
        assert not comm.traffic.sent
        found = trainer.rounds.schedule.ring, any("measured" in note for note in trainer.notes)
        assert losses(trainer) == pytest.approx(wanted, abs=1e-9, rel=0)
        trainer.close()
        return found

    for found, noted in as_ranks(4, ring, True):
        assert neighbours(found) == neighbours(ORDER)
        assert noted
    every = {frozenset((i, j)) for i in range(4) for j in range(i)}
    assert {frozenset(pair) for pair in swaps} == every
    swaps.clear()
    for found, noted in as_ranks(4, ring, False):
        assert found == best_ring(machine(size=4))
        assert neighbours(found) != neighbours(ORDER)
        assert not noted
    assert not swaps


def test_ranks_send_along_links_that_are_given():
    work = task()
    data = interaction_data(events(), work)
    found = train_ranked(
        work, 4, data=data, dtype=torch.float64, timeout_s=120.0, links=wide_on(ORDER)
    )
    matrix = found.traffic.matrix(operation="all_to_all")
    sent = {frozenset((i, j)) for i in range(4) for j in range(4) if matrix[i, j]}
    assert sent == neighbours(ORDER)
    one = opened(work)
    assert found.losses == pytest.approx([one.train_epoch()], abs=1e-9, rel=0)


def test_virtual_devices_take_given_links():
    one = opened(devices=4, links=wide_on(ORDER))
    assert neighbours(one.rounds.schedule.ring) == neighbours(ORDER)
    assert losses(one) == pytest.approx(losses(opened()), abs=1e-9, rel=0)


def measure(comm, method):
    if method:
        comm.method = method
    found = measure_links(comm)
    return found, dict(comm.traffic.sent), dict(comm.meter.counters)


@pytest.mark.parametrize("start", [launch, launch_on_nccl])
def test_ranks_agree_on_what_they_measured(start):
    method = "collective" if start is launch else ""
    device = "cpu" if start is launch else "cuda"
    found = start(measure, 3, (method,), device=device, timeout_s=120.0, threads=1)
    links = found[0][0]
    assert links.size == 3
    assert all(one[0] == links for one in found)
    assert all(not one[1] and not one[2] for one in found)


def test_ranks_that_share_memory_measure_nothing():
    found = launch(measure, 2, ("shared",), timeout_s=120.0, threads=1)
    assert [one[0] for one in found] == [None, None]


@pytest.mark.parametrize(
    "rates", [((0.0, 1.0), (2.0, 0.0)), ((0.0, 0.0), (0.0, 0.0)), ((0.0, 1.0),)], ids=str
)
def test_rates_are_checked(rates):
    with pytest.raises(InvalidInputError, match="'rates'"):
        MeasuredLinks(rates)
    with pytest.raises(InvalidInputError, match="'links'"):
        opened(devices=2, links=wide_on(ORDER))
