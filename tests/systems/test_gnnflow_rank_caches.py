"""Caches of ranks: carried from round to round, set back at every epoch, and counted by a loop."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from test_gnnflow_ranked import FIRST, E, data, workload

from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.ranks import launch
from dgbench.systems.gnnflow.experiments.cache_checks import LoopedCache
from dgbench.systems.gnnflow.owners import IdentityHash, MachineLayout
from dgbench.systems.gnnflow.ranked import StreamRanks, StreamRankTrainer, train_ranked
from dgbench.systems.gnnflow.remote_access import NO_CACHES, GraphRankSettings
from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count
from dgbench.systems.gnnflow.system import GnnflowSystem

KINDS = ("node", "edge")
ROUNDS, EPOCHS = 3, 2
SHARES = {"node_cache": 0.4, "edge_cache": 0.2}
FORMS = tuple(product((True, False), repeat=2))
"""With and without reuse, with and without restoration."""


def noted(trainer: StreamRankTrainer) -> dict[str, list[Any]]:
    """Ids of every batch by kind, with a word where a round or an epoch begins."""
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    access = trainer.access

    def watch(name: str) -> None:
        begin = getattr(access, name)

        def told() -> None:
            begin()
            for each in found.values():
                each.append(name)

        setattr(access, name, told)

    for name in ("begin_round", "begin_epoch"):
        watch(name)
    for kind in (access._vertices, access._edges):

        def bring(wanted, machine_of, kind=kind, plain=kind.bring):
            found[kind.name].append(wanted.cpu().clone())
            plain(wanted, machine_of)

        kind.bring = bring
    return found


def played(
    comm: Communicator, layout: MachineLayout, model: str, how: dict[str, Any]
) -> dict[str, Any]:
    """Rounds of continuous training on a rank: losses, ids that it asked for, and its counters."""
    task = workload(model, chunks=1)
    owners = IdentityHash(layout.machines)
    settings = GraphRankSettings(layout, **how)
    trainer = StreamRankTrainer(comm, owners, task, data(task), settings, dtype=torch.float64)
    found = noted(trainer)
    rounds = rounds_by_count(E, ROUNDS, initial=FIRST / E)
    stream = Continuous(trainer, rounds, epochs=EPOCHS, evaluate=False)
    stream.begin()
    comm.meter.reset()
    losses = [loss for one in stream.play_all() for loss in one.losses]
    return {"losses": losses, "asked": found, "counters": dict(comm.meter.counters)}


def recounted(asked: list[Any], capacity: int, *, reuse: bool, restoration: bool) -> dict[str, int]:
    """Counts of a cache of this size, one id after the other."""
    loop = LoopedCache(capacity, "lru", 0.2)
    start = loop.snapshot()
    for one in asked:
        if isinstance(one, torch.Tensor):
            loop.fetch(one.tolist())
        elif one == "begin_round":
            if not reuse:
                loop.fill([])
            start = loop.snapshot()
        elif restoration:
            loop.restore(start)
    return loop.counts


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize(
    ("layout", "model"), [(MachineLayout(2), "tgat"), (MachineLayout(1, 2), "tgn")],
    ids=["two machines", "one machine"],
)  # fmt: skip
def test_caches_of_ranks_hit_as_often_as_a_plain_recount(layout: MachineLayout, model: str) -> None:
    """And change no loss, whatever is switched off."""
    task = workload(model, chunks=1)
    plain = GnnflowSystem().open(task, data=data(task), dtype=torch.float64)
    alone = Continuous(
        plain, rounds_by_count(E, ROUNDS, initial=FIRST / E), epochs=EPOCHS, evaluate=False
    )
    alone.begin()
    expected = [loss for one in alone.play_all() for loss in one.losses]
    sizes = {"node": data(task).num_nodes, "edge": E}
    hits = {}
    for reuse, restoration in FORMS:
        how = {**SHARES, "reuse": reuse, "restoration": restoration}
        found = launch(played, layout.ranks, (layout, model, how), timeout_s=120, threads=1)
        for rank in found:
            assert rank["losses"] == pytest.approx(expected, rel=1e-9)
            for kind in KINDS:
                capacity = round(SHARES[f"{kind}_cache"] * sizes[kind])
                asked, counters = rank["asked"][kind], rank["counters"]
                assert asked.count("begin_round") == ROUNDS
                assert asked.count("begin_epoch") == ROUNDS * EPOCHS
                counts = recounted(asked, capacity, reuse=reuse, restoration=restoration)
                assert counters[f"{kind}_requests"] == counts["unique"]
                assert counters[f"{kind}_hits"] == counts["unique_hits"]
                rows = sum(counters[f"{kind}_rows_{where}"] for where in ("local", "remote"))
                assert rows == counts["unique"] - counts["unique_hits"]
        hits[reuse, restoration] = sum(
            rank["counters"][f"{kind}_hits"] for rank in found for kind in KINDS
        )
    assert len(set(hits.values())) > 1  # a switch that changes nothing would be none
    assert hits[True, False] > hits[False, False]


@pytest.mark.machines_arithmetic
def test_ranks_without_caches_fetch_every_row() -> None:
    found = launch(played, 2, (MachineLayout(2), "tgat", dict(NO_CACHES)), timeout_s=120, threads=1)
    for rank in found:
        for kind in KINDS:
            ids = [one for one in rank["asked"][kind] if isinstance(one, torch.Tensor)]
            rows = sum(rank["counters"][f"{kind}_rows_{where}"] for where in ("local", "remote"))
            assert rows == sum(map(len, ids))
            assert f"{kind}_hits" not in rank["counters"]


def test_ranks_that_others_start_have_the_papers_caches() -> None:
    """3 % of the vertices and 3 per mille of the edges, set back at every epoch."""
    task = workload("tgat")
    trainer = StreamRanks().open(LocalCommunicator(), 1, task, data(task))
    shares = {"node": 0.03, "edge": 0.003}
    for kind in (trainer.access._vertices, trainer.access._edges):
        count = kind._source.num_rows
        assert kind._cache.capacity == max(1, round(shares[kind.name] * count))
        assert kind._cache.admission == 0.2
    found = noted(trainer)
    for epoch in range(2):
        StreamRanks().train_epoch(trainer, epoch)
    assert found["node"].count("begin_epoch") == 2


def test_a_race_sets_caches_back_at_every_epoch() -> None:
    """With room for everything the second epoch hits all that the first one had at its begin."""
    task, layout = workload("graphsage", chunks=1), MachineLayout(1)
    runs = {
        restoration: train_ranked(
            task,
            GraphRankSettings(
                layout, node_cache=1.0, edge_cache=1.0, admission=1.0, restoration=restoration
            ),
            data=data(task), first=FIRST, epochs=2,
        )
        for restoration in (True, False)
    }  # fmt: skip
    assert runs[True].losses == runs[False].losses
    hits = {on: run.counters[0]["node_hits"] for on, run in runs.items()}
    assert hits[True] < hits[False]  # one round: each epoch begins as cold as the first
