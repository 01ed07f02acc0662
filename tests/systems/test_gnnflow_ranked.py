"""Training by several ranks gives the losses, parameters and scores of one, whatever is switched.

Ranks are threads; one race forks them.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache, partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dgc_ranks import as_ranks

from dgbench.datasets.events import EventStream
from dgbench.kernels_cuda.temporal_sample import sample_neighbours
from dgbench.kernels_cuda.temporal_store import ADAPTIVE, TemporalStore
from dgbench.runtime import machine_memory
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError, InvalidInputError, UnsupportedError
from dgbench.runtime.machine_memory import PageLock
from dgbench.systems.base.stream import (
    StreamData,
    StreamTrainer,
    StreamWorkload,
    batches,
    stream_data,
)
from dgbench.systems.gnnflow import ranked
from dgbench.systems.gnnflow.experiments.cache_checks import LoopedCache
from dgbench.systems.gnnflow.owners import AssignedOwners, IdentityHash, MachineLayout
from dgbench.systems.gnnflow.ranked import (
    GraphPlacement,
    StreamRankedRun,
    StreamRankTrainer,
    race_ranked,
    train_ranked,
)
from dgbench.systems.gnnflow.remote_access import NO_CACHES, GraphRankSettings
from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count
from dgbench.systems.gnnflow.system import GnnflowSystem

MODELS = {
    "tgn": {"fanouts": (4,), "chunks": 2},
    "tgat": {"fanouts": (3, 2), "sampling": "uniform"},
    "dysat": {"fanouts": (3, 2), "sampling": "uniform", "window": 30.0, "snapshots": 2},
    "graphsage": {"fanouts": (3, 2), "sampling": "uniform", "undirected": False},
    "gat": {"fanouts": (3, 2), "sampling": "uniform"},
}
N, E, FIRST = 31, 200, 80


def workload(model: str, **fields: object) -> StreamWorkload:
    return StreamWorkload(
        **{
            "dataset": "tiny", "model": model, "node_dim": 5, "edge_dim": 3, "hidden_dim": 8,
            "time_dim": 4, "memory_dim": 6, "heads": 2, "batch": 42, "lr": 1e-2,
            **MODELS[model], **fields,
        }
    )  # fmt: skip


def data(task: StreamWorkload) -> StreamData:
    draw = torch.Generator().manual_seed(4)
    src = torch.randint(0, 20, (E,), generator=draw)
    dst = torch.randint(20, N - 1, (E,), generator=draw)
    t = torch.randint(0, E, (E,), generator=draw).sort().values
    return stream_data(EventStream.build(src, dst, t, num_nodes=N, num_src=20), task)


@cache
def alone(model: str) -> tuple[StreamRankedRun, tuple[float, ...]]:
    """One rank, and the losses of the system without ranks."""
    task = workload(model)
    run = train_ranked(
        task, GraphRankSettings(MachineLayout(1)), data=data(task),
        first=FIRST, epochs=2, score=(FIRST, E), dtype=torch.float64,
    )  # fmt: skip
    plain: StreamTrainer = GnnflowSystem().open(task, data=data(task), dtype=torch.float64)
    plain.insert(E)
    losses = []
    for epoch in range(2):
        plain.reset_memory()
        losses.append(plain.train(FIRST, E, epoch=epoch))
    return run, tuple(losses)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks are threads."""
    forked = ranked.on_ranks
    monkeypatch.setattr(
        ranked, "on_ranks",
        lambda train, ranks, given, **how: (as_ranks(ranks, train, *given), [])
        if ranks > 1 else forked(train, ranks, given, **how),
    )  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_one_rank_is_the_system_without_ranks(model: str) -> None:
    run, losses = alone(model)
    # 120 events: batches of 42, 42 and 36; TGN's first batch is a random number of chunks shorter.
    assert sum(losses) > 0
    if model != "tgn":
        for epoch, loss in enumerate(losses):
            a, b, c = run.losses[3 * epoch : 3 * epoch + 3]
            assert (42 * a + 42 * b + 36 * c) / 120 == pytest.approx(loss, rel=1e-12)
    assert run.traffic.total() == 0


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("model", MODELS)
def test_ranks_give_the_losses_of_one(model: str) -> None:
    task, (expected, _) = workload(model), alone(model)
    first = MachineLayout(1, 2) if model == "tgn" else MachineLayout(2)
    caches = {"node_cache": 0.3, "edge_cache": 0.1}
    sent = []
    forms = [(first, {}), (MachineLayout(2, 2), caches), (MachineLayout(2, 2), {"shared": False})]
    for layout, how in forms:
        run = train_ranked(
            task, GraphRankSettings(layout, **how), data=data(task), first=FIRST, epochs=2,
            score=(FIRST, E), ingest=30, dtype=torch.float64,
        )  # fmt: skip
        assert run.losses == pytest.approx(expected.losses, rel=1e-9)
        # Networks that see no times give many pairs the same score but for its last bits, which
        # hang on how many rows a product has: ties may break another way.
        ties = 2e-3 if model in ("dysat", "graphsage", "gat") else 1e-9
        assert run.scores.ap == pytest.approx(expected.scores.ap, rel=ties)
        assert run.scores.loss == pytest.approx(expected.scores.loss, rel=1e-9)
        for name, value in expected.state.items():
            assert torch.allclose(run.state[name], value, rtol=1e-7, atol=1e-9), name
        assert len(run.work_s) == len(run.sample_s) == layout.ranks
        if layout.machines > 1:
            assert run.counters[0]["targets_asked"] > 0
        sent.append(run.insert_traffic.total())
    # Shared, every record and row travels to a machine once, not once for each of its ranks.
    assert 0 < sent[1] < 0.6 * sent[2]


def test_partition_graph_and_schedule_change_no_loss() -> None:
    """The one race of forked ranks."""
    task, (expected, _) = workload("tgat"), alone("tgat")
    contenders = {
        "hash": GraphPlacement(GraphRankSettings(MachineLayout(2))),
        "cut": GraphPlacement(
            GraphRankSettings(MachineLayout(2), graph="rows"),
            AssignedOwners(torch.arange(N) // 11 % 2, 2),
        ),
        "whole": GraphPlacement(
            GraphRankSettings(MachineLayout(1, 2), schedule="random", graph="rows")
        ),
    }
    runs = race_ranked(task, contenders, data=data(task), first=FIRST, epochs=2, clocks=True)
    for run in runs.values():
        assert run.losses == pytest.approx(expected.losses, rel=1e-5)
        assert {"sample", "fetch", "compute", "communicate"} <= set(run.phases[0])


@pytest.mark.usefixtures("threads")
def test_ranks_hold_what_batches_of_a_long_time_value_write() -> None:
    """Few time values, each of several batches that read the same memories on every rank."""
    task = workload("tgn", batch=12, chunks=1)
    fine = data(task)
    coarse = replace(fine, events=replace(fine.events, t=(fine.events.t / 40).floor()))
    how = {"data": coarse, "first": FIRST, "score": (FIRST, E), "dtype": torch.float64}
    one, two = (
        train_ranked(task, GraphRankSettings(layout), **how)
        for layout in (MachineLayout(1), MachineLayout(2))
    )
    assert len(one.losses) > coarse.events.t[FIRST:].unique().numel()
    assert two.losses == pytest.approx(one.losses, rel=1e-9)
    assert two.scores.loss == pytest.approx(one.scores.loss, rel=1e-6)
    plain: StreamTrainer = GnnflowSystem().open(task, data=coarse, dtype=torch.float64)
    plain.insert(E)
    parts = batches(task, torch.arange(FIRST, E), coarse.events.t[FIRST:])
    total = sum(part.numel() * loss for part, loss in zip(parts, one.losses, strict=True))
    assert plain.train(FIRST, E) == pytest.approx(total / (E - FIRST), rel=1e-9)


@pytest.mark.usefixtures("threads")
def test_ranks_without_an_event_take_part() -> None:
    task = workload("tgn", batch=3, chunks=1)
    one, four = (
        train_ranked(
            task, GraphRankSettings(layout), data=data(task), first=E - 8, score=(FIRST, E),
            dtype=torch.float64,
        )
        for layout in (MachineLayout(1), MachineLayout(4))
    )  # fmt: skip
    assert one.events == [3, 2]
    assert four.losses == pytest.approx(one.losses, rel=1e-9)
    assert four.scores.ap == pytest.approx(one.scores.ap, rel=1e-9)


def test_what_cannot_be_trained_is_refused() -> None:
    task = workload("gat")
    one, two = (GraphPlacement(GraphRankSettings(MachineLayout(k))) for k in (1, 2))
    with pytest.raises(InvalidInputError, match="ranks"):
        race_ranked(task, {"a": one, "b": two}, data=data(task))
    for how in ({"epochs": 0}, {"first": 5, "last": 5}, {"ingest": 0}):
        with pytest.raises(InvalidInputError, match="events"):
            train_ranked(task, one.settings, data=data(task), **how)


# --- caches ---------------------------------------------------------------------------------------

KINDS = ("node", "edge")
ROUNDS, EPOCHS = 3, 2
SHARES = {"node_cache": 0.4, "edge_cache": 0.2}


def noted(trainer: StreamRankTrainer) -> dict[str, list[Any]]:
    """Ids of every batch by kind, with a word where a round or an epoch begins."""
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    access = trainer.access

    def note(every: list[list[Any]], what: Any, then: Any, *given: Any) -> None:
        for one in every:
            one.append(what)
        then(*given)

    for name in ("begin_round", "begin_epoch"):
        setattr(access, name, partial(note, [*found.values()], name, getattr(access, name)))
    for kind in (access._vertices, access._edges):
        kind.bring = lambda ids, *given, mine=found[kind.name], then=kind.bring: note(
            [mine], ids.cpu().clone(), then, ids, *given
        )
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
    stream = Continuous(
        trainer, rounds_by_count(E, ROUNDS, initial=FIRST / E), epochs=EPOCHS, evaluate=False
    )
    stream.begin()
    comm.meter.reset()
    losses = [loss for one in stream.play_all() for loss in one.losses]
    return {
        "losses": losses, "asked": found, "counters": dict(comm.meter.counters),
        "bytes": trainer.access.host_bytes, "notes": trainer.notes,
    }  # fmt: skip


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


def rows_fetched(rank: dict[str, Any], kind: str) -> int:
    return sum(rank["counters"][f"{kind}_rows_{where}"] for where in ("local", "remote"))


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize(
    ("layout", "model"), [(MachineLayout(2), "tgat"), (MachineLayout(1, 2), "tgn")],
    ids=["two machines", "one machine"],
)  # fmt: skip
def test_caches_of_ranks_hit_as_often_as_a_plain_recount(layout: MachineLayout, model: str) -> None:
    """And change no loss, whatever is switched off."""
    task = workload(model, chunks=1)
    plain = GnnflowSystem().open(task, data=data(task), dtype=torch.float64)
    whole = Continuous(
        plain, rounds_by_count(E, ROUNDS, initial=FIRST / E), epochs=EPOCHS, evaluate=False
    )
    whole.begin()
    expected = [loss for one in whole.play_all() for loss in one.losses]
    sizes = {"node": data(task).num_nodes, "edge": E}
    hits = {}
    for reuse, restoration in product((True, False), repeat=2):
        how = {**SHARES, "reuse": reuse, "restoration": restoration}
        found = as_ranks(layout.ranks, played, layout, model, how)
        for rank, kind in product(found, KINDS):
            assert rank["losses"] == pytest.approx(expected, rel=1e-9)
            capacity = round(SHARES[f"{kind}_cache"] * sizes[kind])
            asked, counters = rank["asked"][kind], rank["counters"]
            assert asked.count("begin_round") == ROUNDS
            assert asked.count("begin_epoch") == ROUNDS * EPOCHS
            counts = recounted(asked, capacity, reuse=reuse, restoration=restoration)
            assert counters[f"{kind}_requests"] == counts["unique"]
            assert counters[f"{kind}_hits"] == counts["unique_hits"]
            assert rows_fetched(rank, kind) == counts["unique"] - counts["unique_hits"]
        hits[reuse, restoration] = sum(
            rank["counters"][f"{kind}_hits"] for rank, kind in product(found, KINDS)
        )
    assert len(set(hits.values())) > 1  # a switch that changes nothing would be none
    assert hits[True, False] > hits[False, False]
    for rank, kind in product(
        as_ranks(layout.ranks, played, layout, model, dict(NO_CACHES)), KINDS
    ):
        ids = [one for one in rank["asked"][kind] if isinstance(one, torch.Tensor)]
        assert rows_fetched(rank, kind) == sum(map(len, ids))
        assert f"{kind}_hits" not in rank["counters"]


# --- one store for the ranks of a machine ---------------------------------------------------------


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize("layout", [MachineLayout(1, 2), MachineLayout(2, 2)])
def test_a_machine_keeps_its_records_and_rows_once(layout, monkeypatch) -> None:
    """Where no memory can be shared ranks keep copies and say so."""
    shared, copies = (
        as_ranks(layout.ranks, played, layout, "tgat", {"shared": on}) for on in (True, False)
    )
    monkeypatch.setattr(machine_memory, "machine_key", lambda: None)
    without = as_ranks(layout.ranks, played, layout, "tgat", {})
    losses = [[one["losses"] for one in found] for found in (shared, copies, without)]
    assert losses[0] == losses[1] == losses[2]
    assert all(any("a copy" in note for note in one["notes"]) for one in without)
    for machine in range(layout.machines):
        first, *others = layout.members(machine)
        assert shared[first]["bytes"]["records"] == copies[first]["bytes"]["records"] > 0
        for rank in others:
            assert shared[rank]["bytes"]["records"] == 0
            assert copies[rank]["bytes"]["records"] > 0
            assert without[rank]["bytes"]["records"] > 0
            assert layout.machines == 1 or shared[rank]["bytes"]["features"] == 0


# --- stores in files that another process follows -------------------------------------------------

VERTICES = 40


def edges(count: int) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(3)
    src, dst = (torch.randint(VERTICES, (count,), generator=draw) for _ in range(2))
    return src, dst, torch.randint(count, (count,), generator=draw).sort().values.double()


@pytest.fixture
def files():
    found = [os.memfd_create("test") for _ in range(4)]
    yield found
    for file in found:
        os.close(file)


def test_who_follows_sees_what_was_written_and_changes_nothing(files, tmp_path) -> None:
    """Sizes of the pools are told; what they hold is read where it lies, without a copy."""
    src, dst, t = edges(900)
    plain = TemporalStore(VERTICES, policy=ADAPTIVE, undirected=True)
    writer = TemporalStore(VERTICES, policy=ADAPTIVE, undirected=True, files=files)
    reader = TemporalStore(VERTICES, policy=ADAPTIVE, undirected=True, files=files, writes=False)
    for first in range(0, 900, 300):
        cut = slice(first, first + 300)
        for store in (plain, writer):
            store.insert(src[cut], dst[cut], t[cut], torch.arange(first, first + 300))
        reader.follow(writer.counts())
        assert reader.memory().records == plain.memory().records
        for vertex in range(VERTICES):
            for own, wanted in zip(*(s.neighbours(vertex) for s in (reader, plain)), strict=True):
                assert torch.equal(own, wanted)
        roots = (
            torch.arange(VERTICES),
            torch.full((VERTICES,), float(first + 200), dtype=torch.float64),
        )
        own, wanted = (
            sample_neighbours(store, *roots, fanout=4, policy="uniform")
            for store in (reader, plain)
        )
        assert torch.equal(own.eids, wanted.eids)
    writer.delete_edges(torch.tensor([5]))
    reader.follow(writer.counts())
    assert reader.num_records == writer.num_records == plain.num_records - 2
    one = torch.tensor([1])
    for change in (
        lambda: reader.insert(src, dst, t + 1000), lambda: reader.add_vertices(1),
        lambda: reader.delete_edges(one), lambda: reader.delete_vertices(one),
        lambda: writer.follow(writer.counts()), lambda: TemporalStore(VERTICES, files=files[:3]),
        lambda: TemporalStore(VERTICES, writes=False),
    ):  # fmt: skip
        with pytest.raises(InvalidInputError):
            change()
    with pytest.raises(UnsupportedError):
        writer.offload(1e9, tmp_path / "old")
    assert not (tmp_path / "old").exists()
    assert reader.num_records == writer.num_records


def test_pages_are_locked_as_far_as_they_are_in_use(monkeypatch) -> None:
    tensor, calls = torch.zeros(3 << 19, dtype=torch.float32), []  # 6 MiB
    driver = SimpleNamespace(
        cudaHostRegister=lambda at, nbytes, flags: calls.append((at, nbytes)) or 0,
        cudaHostUnregister=lambda at: calls.append(at),
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    PageLock(tensor, torch.device("cpu")).reach(tensor.nbytes)
    assert not calls
    lock, at, step = PageLock(tensor, torch.device("cuda")), tensor.data_ptr(), 2 << 20
    for used in (10, 20, step + 1, tensor.nbytes):
        lock.reach(used)
    assert calls == [(at, step), (at + step, step), (at + 2 * step, step)]
    lock.close()
    assert calls[3:] == [at, at + step, at + 2 * step]
    driver.cudaHostRegister = lambda *_: 712  # somebody has locked them already
    lock.reach(1)
    assert lock.nbytes == step
    driver.cudaHostRegister = lambda *_: 2
    with pytest.raises(DgbenchError):
        PageLock(tensor, torch.device("cuda")).reach(1)
