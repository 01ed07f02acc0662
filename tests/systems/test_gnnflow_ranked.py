"""Training by several ranks gives the losses, parameters and scores of one, whatever is switched.

Ranks are threads; one race forks them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dgc_ranks import as_ranks
from looped_cache import LoopedCache
from pretended_cuda import DEVICE, Pretended, pretended_cuda
from pretended_gnnflow import pretend
from stream_tiny import tiny_stream, tiny_task
from torch import Tensor

from dgbench.runtime import machine_memory
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError, InvalidInputError
from dgbench.runtime.machine_memory import PageLock
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, batches
from dgbench.systems.gnnflow import ranked
from dgbench.systems.gnnflow.experiments import round_race
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

# Ranks are threads or processes, which DGBENCH_FUSED does not reach.
pytestmark = [
    pytest.mark.machines_arithmetic,
    pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN"),
]
MODELS = ("tgn", "tgat", "dysat", "graphsage", "gat")
N, E, FIRST = 31, 200, 80


def workload(model: str, **fields: object) -> StreamWorkload:
    """A workload of three batches an epoch; borders of TGN's move."""
    how = {"tgn": {"fanouts": (4,), "chunks": 2}, "graphsage": {"undirected": False}}
    return tiny_task(model, **{"batch": 42, "heads": 2, **how.get(model, {}), **fields})


def data(task: StreamWorkload) -> StreamData:
    return tiny_stream(task, events=E, nodes=N - 1, lone=1)


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
    assert run.traffic.total() == 0 < sum(losses)
    for epoch, loss in enumerate(losses if model != "tgn" else ()):
        a, b, c = run.losses[3 * epoch : 3 * epoch + 3]
        assert (42 * a + 42 * b + 36 * c) / 120 == pytest.approx(loss, rel=1e-12)


def agree(run: StreamRankedRun, expected: StreamRankedRun, model: str) -> None:
    """Check that losses are the same up to rounding.

    After its first update TGN's losses hang on the last bits of a gradient, which another order of
    sums moves: with another code path of MKL they are alike to four digits.
    """
    assert run.losses[:1] == pytest.approx(expected.losses[:1], rel=1e-9)
    allowed = 1e-3 if model == "tgn" else 1e-9
    assert run.losses == pytest.approx(expected.losses, rel=allowed)
    assert run.scores.loss == pytest.approx(expected.scores.loss, rel=allowed)


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
        agree(run, expected, model)
        # Networks that see no times give many pairs the same score but for its last bits, which
        # hang on how many rows a product has: ties may break another way.
        ties = 2e-3 if model in ("dysat", "graphsage", "gat") else 1e-9
        assert model == "tgn" or run.scores.ap == pytest.approx(expected.scores.ap, rel=ties)
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
    two, rows = MachineLayout(2), partial(GraphRankSettings, graph="rows")
    contenders = {
        "hash": GraphPlacement(GraphRankSettings(two)),
        "cut": GraphPlacement(rows(two), AssignedOwners(torch.arange(N) // 11 % 2, 2)),
        "whole": GraphPlacement(rows(MachineLayout(1, 2), schedule="random")),
    }
    runs = race_ranked(task, contenders, data=data(task), first=FIRST, epochs=2, clocks=True)
    for run in runs.values():
        assert run.losses == pytest.approx(expected.losses, rel=1e-5)
        assert {"sample", "fetch", "compute", "communicate"} <= set(run.phases[0])


def trained(task: StreamWorkload, given: StreamData, ranks: int, first: int) -> StreamRankedRun:
    return train_ranked(
        task, GraphRankSettings(MachineLayout(ranks)), data=given, first=first, score=(FIRST, E),
        dtype=torch.float64,
    )  # fmt: skip


@pytest.mark.usefixtures("threads")
def test_ranks_hold_what_batches_of_a_long_time_value_write() -> None:
    """Few time values, each of several batches that read the same memories on every rank."""
    task = workload("tgn", batch=12, chunks=1)
    fine = data(task)
    coarse = replace(fine, events=replace(fine.events, t=(fine.events.t / 40).floor()))
    one, two = (trained(task, coarse, ranks, FIRST) for ranks in (1, 2))
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
    one, four = (trained(task, data(task), ranks, E - 8) for ranks in (1, 4))
    assert one.events == [3, 1]
    agree(four, one, "tgn")


def test_what_cannot_be_trained_is_refused() -> None:
    task = workload("gat")
    one, two = (GraphPlacement(GraphRankSettings(MachineLayout(k))) for k in (1, 2))
    with pytest.raises(InvalidInputError, match="ranks"):
        race_ranked(task, {"a": one, "b": two}, data=data(task))
    for how in ({"epochs": 0}, {"first": 5, "last": 5}, {"ingest": 0}):
        with pytest.raises(InvalidInputError, match="events"):
            train_ranked(task, one.settings, data=data(task), **how)


KINDS = ("node", "edge")
ROUNDS, EPOCHS = 3, 2
SHARES = {"node_cache": 0.4, "edge_cache": 0.2}


def rounds_of(trainer: Any) -> list[float]:
    """Losses of rounds of continuous training."""
    rounds = rounds_by_count(E, ROUNDS, initial=FIRST / E)
    stream = Continuous(trainer, rounds, epochs=EPOCHS, evaluate=False)
    stream.begin()
    if isinstance(trainer, StreamRankTrainer):
        trainer.comm.meter.reset()
    return [loss for one in stream.play_all() for loss in one.losses]


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


def played(
    comm: Communicator, layout: MachineLayout, model: str, how: dict[str, Any]
) -> dict[str, Any]:
    """Losses and counters of a rank, and the ids that it asked for."""
    task, owners = workload(model, chunks=1), IdentityHash(layout.machines)
    settings = GraphRankSettings(layout, **how)
    trainer = StreamRankTrainer(comm, owners, task, data(task), settings, dtype=torch.float64)
    asked = noted(trainer)
    losses = rounds_of(trainer)
    return {
        "losses": losses, "asked": asked, "counters": dict(comm.meter.counters),
        "bytes": trainer.access.host_bytes, "notes": trainer.notes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "model"), [(MachineLayout(2), "tgat"), (MachineLayout(1, 2), "tgn")],
    ids=["two machines", "one machine"],
)  # fmt: skip
def test_caches_of_ranks_hit_as_often_as_a_plain_recount(layout, model) -> None:
    """And change no loss, whatever is switched off."""
    task = workload(model, chunks=1)
    expected = rounds_of(GnnflowSystem().open(task, data=data(task), dtype=torch.float64))
    sizes = {"node": data(task).num_nodes, "edge": E}
    hits = {}
    both = product((True, False), repeat=2)
    ways = {on: {**SHARES, "reuse": on[0], "restoration": on[1]} for on in both}
    for name, how in (ways | {"none": dict(NO_CACHES)}).items():
        found = as_ranks(layout.ranks, played, layout, model, how)
        hits[name] = 0
        for rank, kind in product(found, KINDS):
            assert rank["losses"] == pytest.approx(expected, rel=1e-9)
            counters = rank["counters"]
            fetched = sum(counters[f"{kind}_rows_{where}"] for where in ("local", "remote"))
            asked = rank["asked"][kind]
            if name == "none":
                ids = [one for one in asked if isinstance(one, torch.Tensor)]
                assert fetched == sum(map(len, ids))
                continue
            hits[name] += counters[f"{kind}_hits"]
            capacity = round(SHARES[f"{kind}_cache"] * sizes[kind])
            counts = recounted(asked, capacity, reuse=name[0], restoration=name[1])
            assert counters[f"{kind}_requests"] == counts["unique"]
            assert counters[f"{kind}_hits"] == counts["unique_hits"]
            assert fetched == counts["unique"] - counts["unique_hits"]
    assert hits[True, False] > hits[False, False]
    assert hits[True, False] != hits[True, True]  # a switch that changes nothing would be none


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
    first = {layout.members(machine)[0] for machine in range(layout.machines)}
    kept = [[rank["bytes"]["records"] for rank in found] for found in (shared, copies, without)]
    assert min(*kept[1], *kept[2]) > 0
    for rank in range(layout.ranks):
        assert kept[0][rank] == (kept[1][rank] if rank in first else 0)
        assert {rank} <= first or layout.machines == 1 or not shared[rank]["bytes"]["features"]


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


# --- a device that is not here --------------------------------------------------------------------


def warmed(trainer: StreamTrainer) -> float:
    """Loss of a batch that warms up."""
    trainer.insert(E)
    loss = trainer.train(FIRST, FIRST + 42)
    trainer.reset_memory()
    return loss


def epochs(trainer: StreamTrainer) -> list[float]:
    return [trainer.train(FIRST, E, epoch=epoch) for epoch in range(2)]


def count_fetches(trainer: StreamTrainer) -> list[int]:
    """Notes 1 for each request for features by ids of the device."""
    noted: list[int] = []
    fetch = trainer.access._fetch

    def counted(kind: str, ids: Tensor) -> Tensor:
        noted.extend([1] * isinstance(ids, Pretended))
        return fetch(kind, ids)

    trainer.access._fetch = counted
    return noted


@pytest.mark.parametrize(
    ("model", "cached"), [*((model, True) for model in MODELS), ("tgn", False), ("tgat", False)]
)
def test_steps_stay_on_the_device(monkeypatch, model, cached):
    task, switches = workload(model), {"node_cache": cached, "edge_cache": cached}
    plain = GnnflowSystem().open(task, data=data(task), switches=switches)
    wanted = [warmed(plain), *epochs(plain)]
    with pretended_cuda(monkeypatch) as seen:
        pretend(monkeypatch)
        trainer = GnnflowSystem().open(task, device="cuda", data=data(task), switches=switches)
        losses = [warmed(trainer)]
        fetched = count_fetches(trainer)
        seen.noted.clear()
        losses += epochs(trainer)
        # The loss of an epoch is read. Without caches the host gathers rows, by ids it has to know.
        assert seen.noted["to_host"] == 2 + (0 if cached else len(fetched))
        assert fetched
        assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
        if trainer.memory is not None:
            assert trainer.memory.state().memory.device == DEVICE
            assert trainer.memory.state().mail_time.device == DEVICE
        assert 0 <= trainer.evaluate_range(FIRST, E).ap <= 1
    assert losses == pytest.approx(wanted, rel=1e-4)


def test_every_contender_fetches_from_the_same_page_locked_tables(monkeypatch):
    """A baseline that read pageable memory would lose by something that is no one's idea."""
    task = workload("tgat")
    graph = SimpleNamespace(node_cache=0.3, edge_cache=0.1, tau=64)
    names = (round_race.TGL, round_race.CACHED, round_race.BARE, round_race.PUBLISHED)
    copies: list[Tensor] = []  # into page-locked memory, as this machine has none

    def pinned(tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == one.data_ptr() for one in copies)

    with pretended_cuda(monkeypatch):
        pretend(monkeypatch)
        monkeypatch.setattr(Tensor, "pin_memory", lambda x: copies.append(x.clone()) or copies[-1])
        monkeypatch.setattr(Tensor, "is_pinned", pinned)
        given = round_race.with_locked_tables(data(task), "cuda")
        shared = list(copies)
        assert len(shared) == 2  # of vertices and of edges
        for name in names:
            trainer = round_race.open_contender(name, task, given, graph, "cuda")
            assert len(copies) == len(shared), name
            tables = dict(trainer.access._tables)
            if name == round_race.CACHED:
                tables = {
                    kind: getattr(trainer.access, f"_{kind}_cache").rows.table
                    for kind in ("node", "edge")
                }
            for kind, table in zip(("node", "edge"), shared, strict=True):
                assert tables[kind].data_ptr() == table.data_ptr(), name
