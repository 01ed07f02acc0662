"""T-GCN on ranks: the losses, scores and parameters of one device, whatever travels how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dgc_ranks import as_ranks
from tgcn_tiny import SYSTEM, events, losses, opened, task
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import measured
from dgbench.systems.tgcn.feeding import StagedInterval
from dgbench.systems.tgcn.links import machine
from dgbench.systems.tgcn.measured import MeasuredLinks
from dgbench.systems.tgcn.ranked import GridRankTrainer, train_ranked
from dgbench.systems.tgcn.ring import best_ring, pairs, quality

ORDER = (0, 2, 1, 3)
"""The only ring of wide links below; a DGX-1's first four are all neighbours of each other."""
CASES: list[tuple[int, dict[str, str], tuple[str, ...], dict[str, Any]]] = [
    (1, {}, (), {}), (2, {}, (), {"vertex_cut": "dealt"}), (3, {}, (), {}), (4, {}, (), {}),
    (4, {"aggregate": "last"}, ("overlap", "affected"), {}), (4, {}, ("schedule",), {}),
    (2, {"task": "classify"}, (), {}),
]  # fmt: skip


@pytest.mark.parametrize(("ranks", "fields", "off", "options"), CASES, ids=str)
def test_ranks_train_as_one_device_does(ranks, fields, off, options):
    work = task(**fields)
    data = interaction_data(events(), work)
    one = opened(work)
    wanted = losses(one)
    virtual = opened(work, devices=ranks, off=off, **options)
    virtual.train_epoch()

    def train(comm) -> Any:
        switches = SYSTEM.switches(dict.fromkeys(off, False))
        trainer = GridRankTrainer(comm, work, data, switches, dtype=torch.float64, **options)
        found = [trainer.train_epoch()]
        swapped = trainer.meter.counters["bytes_swapped"]
        matrix = comm.all_traffic().matrix(operation="all_to_all")
        comm.barrier()  # threads show each other the traffic that they count
        scores = trainer.evaluate_range(data.train_end, len(data.events))
        ring = trainer.rounds.schedule.ring
        state = {name: value.clone() for name, value in trainer.state().items()}
        trainer.close()
        return [*found, scores.loss, scores.accuracy], swapped, matrix, ring, state

    results = as_ranks(ranks, train)
    for scored, _, matrix, ring, state in results:
        assert scored == pytest.approx(wanted, abs=1e-9, rel=0, nan_ok=True)
        for name, value in one.state().items():
            assert torch.allclose(state[name], value, atol=1e-9, rtol=0), name
        # What virtual devices pass on is sent, to partners alone.
        sent = {(i, j) for i in range(ranks) for j in range(ranks) if matrix[i, j]}
        assert int(matrix.sum()) == virtual.meter.counters["bytes_swapped"]
        near = {(ring[k], ring[(k + d) % ranks]) for k in range(ranks) for d in (1, ranks - 1)}
        assert sent <= near or "schedule" in off
    swapped = [one[1] for one in results]
    assert sum(swapped) == virtual.meter.counters["bytes_swapped"]


def test_processes_train_as_threads_do_and_send_along_links_that_are_given():
    work = task()
    data = interaction_data(events(), work)
    found = train_ranked(
        work, 4, data=data, dtype=torch.float64, timeout_s=240.0, links=wide_on(ORDER),
        score=(data.train_end, len(data.events)),
    )  # fmt: skip
    matrix = found.traffic.matrix(operation="all_to_all")
    sent = {frozenset((i, j)) for i in range(4) for j in range(4) if matrix[i, j]}
    assert sent == neighbours(ORDER)
    one = opened(work)
    scored = [*found.losses, found.scores.loss, found.scores.accuracy]
    assert scored == pytest.approx(losses(one), abs=1e-9, rel=0, nan_ok=True)
    assert found.edges == one.kept[0].numel()
    assert len(found.work_s) == 4
    virtual = opened(work, devices=4, links=wide_on(ORDER))
    assert neighbours(virtual.rounds.schedule.ring) == neighbours(ORDER)
    assert losses(virtual) == pytest.approx(losses(opened()), abs=1e-9, rel=0)


class LargestTensor(TorchDispatchMode):
    """Size in bytes of the largest tensor that an operator returned."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(found) if torch.is_tensor(x)]
        self.nbytes = max(self.nbytes, *sizes, 0)
        return found


@pytest.mark.parametrize("cut", ["equal", "dealt"])
def test_a_rank_makes_the_state_of_its_own_vertices_alone(cut):
    work, vertices = task(hidden_dim=16), 2**18
    ends = events()
    data = interaction_data(EventStream.build(ends.src, ends.dst, ends.t, num_nodes=vertices), work)

    def largest(comm) -> int:
        with LargestTensor() as seen:
            trainer = GridRankTrainer(comm, work, data, SYSTEM.switches(), vertex_cut=cut)
            trainer.reset_state()
        trainer.close()
        return seen.nbytes

    assert max(as_ranks(4, largest)) < vertices * work.hidden_dim * 4


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


@pytest.mark.parametrize("on", [True, False])
def test_ranks_that_measure_pass_destinations_along_wide_links(monkeypatch, on):
    links, swaps = wide_on(ORDER), []

    def swap_seconds(comm, i, j, nbytes):
        if comm.rank == 0:
            swaps.append(frozenset((i, j)))
        comm.traffic.add("all_to_all", "forward", (comm.rank + 1) % 4, 1, nbytes, 1)
        return nbytes / links.rates[i][j] * (1 if comm.rank == i else 0.5)

    monkeypatch.setattr(measured, "swap_seconds", swap_seconds)
    work = task()
    data = interaction_data(events(), work)
    wanted = losses(opened(work))

    def ring(comm):
        switches = SYSTEM.switches({"measured_ring": on})
        trainer = GridRankTrainer(comm, work, data, switches, dtype=torch.float64)
        assert not comm.traffic.sent
        assert any("measured" in note for note in trainer.notes) is on
        assert losses(trainer) == pytest.approx(wanted, abs=1e-9, rel=0)
        found = trainer.rounds.schedule.ring
        trainer.close()
        return found

    for found in as_ranks(4, ring):
        assert (neighbours(found) == neighbours(ORDER)) is on
        assert on or found == best_ring(machine(size=4))
    every = {frozenset((i, j)) for i in range(4) for j in range(i)}
    assert set(swaps) == (every if on else set())


def test_bad_arguments_are_named():
    for rates in (((0.0, 1.0), (2.0, 0.0)), ((0.0, 0.0), (0.0, 0.0)), ((0.0, 1.0),)):
        with pytest.raises(InvalidInputError, match="rates"):
            MeasuredLinks(rates)
    with pytest.raises(InvalidInputError, match="links"):
        opened(devices=2, links=wide_on(ORDER))
    data = interaction_data(events(), task())
    for name, ranks, switches in (("partition", 1, {"partition": False}), ("ranks", 0, {})):
        with pytest.raises(InvalidInputError, match=name):
            train_ranked(task(), ranks, data=data, switches=switches)


def test_ranks_keep_the_rows_and_grids_of_their_own_parts_alone():
    one = opened(devices=4)
    with open_link("cpu", Meter()) as link:
        for interval in one.program.partition(one.edges_of(torch.arange(one.data.train_end))):
            whole = StagedInterval.of(interval, link, 1)
            own = [StagedInterval.of(interval, link, 1, rank) for rank in range(4)]
            kept = sum(load.nbytes - load.events.nbytes for load in own)
            assert kept == whole.nbytes - whole.events.nbytes
            assert all(load.travelling == whole.travelling for load in own)
            held = {
                x.untyped_storage().nbytes() for p, _ in own[0].grids.values() for x in p.tensors()
            }
            assert sum(held) <= interval.src.nbytes
