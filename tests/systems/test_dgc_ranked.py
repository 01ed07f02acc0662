"""DGC on ranks: processes that race, and all workers in one process."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from dgc_ranks import as_ranks
from dgc_tiny import random_sequence, scattered, sequence_of, tiny_workload
from tiny_data import tiny_sequence

from dgbench.lab.result_checks import largest
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.dgc.experiments import race_runs
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    DGC,
    EVERY,
    EXACT,
    FUSED,
    PAPER_NAMES,
    PLACED,
    PLAIN,
    PSS,
    PTS,
    WIRE,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.placement import by_both, by_sequences
from dgbench.systems.dgc.ranked import PHASES, train_ranked
from dgbench.systems.dgc.sequence_oracle import NOTHING_SCORED, SequenceOracle
from dgbench.systems.dgc.settings_run import BASELINES, LADDER, ChunkRankSettings
from dgbench.systems.dgc.stale import StaleRows, StaleSettings, summed
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.turns import WARM, take_rank_turns
from dgbench.systems.dgc.volumes import count_traffic, shape_of

CHUNKS = ChunkSettings(per_worker=2, workload="edges")
DATA = random_sequence(30, 7, 60, 8)


def entrants():
    return {
        **BASELINES,
        **{name: replace(one, chunks=CHUNKS) for name, one in LADDER.items()},
        "contiguous": ChunkRankSettings(partition="snapshots-contiguous"),
        "once": ChunkRankSettings(chunks=CHUNKS, precompute=True),
        "little memory": ChunkRankSettings(chunks=CHUNKS, memory_limit_bytes=4000),
    }


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_contenders_take_turns_and_agree(transport):
    model = "tgcn_2layer" if transport == "auto" else "dysat"
    ranks = 2 if transport == "auto" else 3  # which share two cores evenly, or wake by sockets
    work = tiny_workload(model, hidden_dim=8, task="link" if transport == "auto" else "active")
    found = take_rank_turns(
        work, DATA, ranks, entrants(), least=3, budget_s=0.05, timeout_s=90, transport=transport
    )
    oracle = PlainSequences(work, DATA)
    output, gradients = oracle.evaluate(), oracle.gradients()
    losses = [oracle.train_epoch() for _ in range(WARM + 3)]
    assert found.carrier == ("shared memory" if transport == "auto" else "Gloo")
    for name, chosen in entrants().items():
        assert len(found.seconds[name]) >= 3
        assert min(found.seconds[name]) > 0
        assert set(found.phases[name]) == set(PHASES)
        assert len(found.shares[name]) == len(found.work_s[name]) == ranks
        assert found.divergence(name) >= 1
        assert 0 <= found.accuracy[name] <= 1
        assert len(found.losses[name]) == len(found.seconds[name]) + WARM
        if chosen.stale is not None:
            assert len(found.stale[name]) == len(found.losses[name])
            assert found.stale[name][0].held == 0
            continue
        assert found.stale[name] == []
        assert relative(found.output[name], output) < 1e-5
        assert largest(found.gradients[name], gradients) < 1e-5
        assert found.losses[name][: len(losses)] == pytest.approx(losses, rel=1e-5)
    assert found.traffic["contiguous"].total() < found.traffic["PyGT-PSS"].total()
    assert found.stages["PyGT-PTS"] == 1
    assert found.counters["once"].get("structure0_rows_forward", 0) == 0


def test_a_run_says_what_it_did():
    work = tiny_workload("mpnn_lstm_bare", hidden_dim=8)
    placement = by_sequences(vertex_steps(DATA, work), 2)
    stale = ChunkRankSettings(partition="sequences", stale=StaleSettings(threshold=0.5))
    run = train_ranked(work, 2, stale, epochs=5, data=DATA, accuracy=True, placement=placement)
    assert len(run.losses) == len(run.accuracy) == 5
    assert len(run.samples) + run.warmup == 5
    assert len(run.stale) == 5
    assert sum(epoch.held for epoch in run.stale[1:]) > 0
    assert len(run.work_s) == len(run.phases) == 2
    assert run.stages == 1
    assert run.prepare_s >= run.partition_s >= 0
    whole = count_traffic(DATA, vertex_steps(DATA, work), placement, shape_of(sequence_model(work)))
    assert 0 < run.stale[0].sent_floats * 4 == whole.bytes(direction="forward")
    exact = train_ranked(
        work, 2, ChunkRankSettings(partition="sequences", store=True), epochs=3, data=DATA
    )
    assert len(exact.phases) == 3
    assert len(exact.work_s) == 2
    oracle = PlainSequences(work, DATA)
    assert exact.losses == pytest.approx([oracle.train_epoch() for _ in range(3)], rel=1e-5)
    for name, value in oracle.state().items():
        torch.testing.assert_close(exact.state[name], value, rtol=1e-3, atol=1e-5)


def test_one_rank_runs_in_this_process():
    work = tiny_workload(hidden_dim=8)
    run = train_ranked(work, 1, ChunkRankSettings(chunks=CHUNKS), budget_s=0.02, data=DATA)
    oracle = PlainSequences(work, DATA)
    assert run.losses == pytest.approx([oracle.train_epoch() for _ in run.losses], rel=1e-5)
    assert run.traffic.total() == 0
    assert run.divergence == 1
    turns = take_rank_turns(work, DATA, 1, {"a": BASELINES["PyGT-PSS"]}, least=3, budget_s=0.01)
    assert turns.losses["a"][:3] == pytest.approx(run.losses[:3], rel=1e-5)


def test_what_cannot_be_run_is_refused():
    work = tiny_workload()
    for arguments in ({"size": 0}, {"size": 1, "epochs": 0}, {"size": 1, "budget_s": 0.0}):
        with pytest.raises(InvalidInputError, match=list(arguments)[-1]):
            train_ranked(work, data=DATA, **arguments)
    with pytest.raises(InvalidInputError, match="contenders"):
        take_rank_turns(work, DATA, 2, {})
    with pytest.raises(InvalidInputError, match="store"):
        take_rank_turns(work, DATA, 2, {"a": ChunkRankSettings(store=True)})


CONTEXT = RunContext(device="cpu", preset="smoke", threads=1)


def job(model: str = "tgcn_2layer") -> RaceJob:
    task = SequenceWorkload(dataset="email-eu-core", model=model, feature_dim=3, hidden_dim=4)
    chosen = {n: s for n, s in contenders().items() if n in (PTS, EXACT, DGC)}
    return RaceJob("email-eu-core", task, tiny_sequence(features=3), chosen)


def test_contenders_differ_by_what_their_names_say() -> None:
    every = contenders(*EVERY)
    assert tuple(every) == EVERY
    assert tuple(contenders()) == PAPER_NAMES
    for name in PLACED:
        plain, fused = every[name], every[FUSED[name]]
        assert plain.partition == fused.partition != "chunks"
        assert (plain.spatial_fusion, fused.spatial_fusion) == (False, True)
        assert (plain.temporal, fused.temporal) == ("padded", "packed")
    assert len({every[name].partition for name in PLACED}) == len(PLACED)
    assert every[PLAIN].partition == every[EXACT].partition == every[DGC].partition == "chunks"
    for name in (PLAIN, EXACT, DGC):
        assert (every[name].chunks.levels, every[name].chunks.refine) == (1, False)
    assert replace(every[ADDED], chunks=every[DGC].chunks) == every[DGC]
    assert every[ADDED].chunks.refine
    assert {n for n, s in every.items() if s.stale} == {DGC, ADDED}
    assert {s.wire for s in contenders(link="wire").values()} == {WIRE}


@pytest.mark.parametrize("model", ["tgcn_2layer", "dysat"])
def test_rows_of_scored_pairs_are_recounted(model, monkeypatch) -> None:
    """Ends of a pair meet at one worker: an honest race of links passes, a forgotten end fails."""
    names = (PSS, PTS, EXACT, DGC)
    task = tiny_workload(model, hidden_dim=8, task="link")
    chosen = {name: one for name, one in contenders().items() if name in names}
    made = RaceJob(task.dataset, task, random_sequence(30, 7, 60, 8), chosen)
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert [check.words for check in found.checks if not check.passed] == []
    rows = race_runs.EdgeRecount.rows
    monkeypatch.setattr(
        race_runs.EdgeRecount, "rows", lambda self, placement, shape, pairs: rows(
            self, placement, shape, pairs[:1].repeat(2, axis=0)
        ),
    )  # fmt: skip
    forgot = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert {c.system for c in forgot.checks if not c.passed and c.of == "counters"} <= set(names)
    assert any(not check.passed for check in forgot.checks)


def test_checks_of_a_task_that_scores_nothing_say_so() -> None:
    """On a network that never changes every vertex has an edge next: any trainer would pass."""
    ring = [(i, (i + 1) % 12) for i in range(12)]
    made = replace(job(), task=tiny_workload(hidden_dim=8), data=sequence_of([ring] * 5, 12))
    for task, said in ((made.task, True), (tiny_workload(hidden_dim=8, task="link"), False)):
        oracle = SequenceOracle(task, made.data)
        check = oracle.check_losses(oracle.losses, DGC)
        assert check.passed
        assert (NOTHING_SCORED in check.words) is said
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert any("next to nothing is scored" in note for note in found.notes)


_one_at_a_time = threading.Lock()


def task_of(model: str, **fields) -> SequenceWorkload:
    base = {"dataset": "tiny", "model": model, "feature_dim": 3, "hidden_dim": 4, "lr": 0.05}
    return SequenceWorkload(**(base | fields))


def one_process(model: str, stale: StaleSettings | None, workers: int = 3, seed: int = 0):
    """The trainer, its oracle, and what ranks need to do the same."""
    data, task = tiny_sequence(nodes=30, edges=20, seed=seed), task_of(model)
    graph = vertex_steps(data, task)
    placement = scattered(graph, workers, seed)
    laid = Workers(task, data, graph, placement, attention=model == "dysat")
    plain = PlainSequences(task, data, graph=graph)
    return StaleWorkers(laid, stale), plain, (task, data, placement)


def _rank(comm, task, data, placement, stale, epochs):
    rows = StaleRows(comm, stale)
    with _one_at_a_time:  # threads draw parameters from one generator
        trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows)
    losses = [trainer.train_epoch() for _ in range(epochs)]
    return losses, rows.history, rows.cache_bytes, comm.traffic


@pytest.mark.parametrize(
    ("model", "stale"),
    [
        ("tgcn_2layer", StaleSettings()),
        ("dysat", StaleSettings(threshold=0.7)),
        ("dysat", StaleSettings(scope="global")),
        ("mpnn_lstm_bare", StaleSettings(reach="past")),
    ],
)
def test_one_process_sends_and_learns_what_ranks_do(model, stale):
    trainer, _, (task, data, placement) = one_process(model, stale)
    losses = [trainer.train_epoch() for _ in range(5)]
    ranks = as_ranks(3, _rank, task, data, placement, stale, 5)
    for rank in ranks:
        torch.testing.assert_close(torch.tensor(rank[0]), torch.tensor(losses), rtol=1e-4, atol=0)
    history = summed([rank[1] for rank in ranks])
    assert [(e.sent, e.held, e.sent_floats, e.index_bytes, e.rows) for e in history] == [
        (e.sent, e.held, e.sent_floats, e.index_bytes, e.rows) for e in trainer.history
    ]
    assert min(losses) > 0
    assert any(epoch.held for epoch in history)
    assert all(0 < epoch.sent < epoch.sent + epoch.held for epoch in history[1:])
    assert sum(rank[2] for rank in ranks) == trainer.cache_bytes
    moved = sum(
        rank[3].total("bytes", operation=operation)
        for rank in ranks
        for operation in ("all_to_all", "sizes")
    )
    assert moved == trainer.totals.bytes


def test_rows_that_move_to_the_attention_are_held_back_as_well():
    data, task = tiny_sequence(nodes=30, edges=20, seed=0), task_of("dysat")
    graph = vertex_steps(data, task)
    placement = by_both(graph, 3)
    moved = int((placement.structure != placement.time).sum())
    oracle = PlainSequences(task, data, graph=graph)
    exact = [oracle.train_epoch() for _ in range(5)]
    found = {}
    for moves in (None, False):
        stale = StaleSettings(threshold=0.8, moves=moves).of_model(attention=True)
        ranks = as_ranks(3, _rank, task, data, placement, stale, 5)
        history = summed([rank[1] for rank in ranks])
        found[moves] = [epoch.rows["move"] for epoch in history], ranks[0][0]
    rows, losses = found[None]
    assert rows[0] == (moved, 0)
    assert {sent + held for sent, held in rows} == {moved}
    assert moved / 10 < sum(held for _, held in rows) / 4 < moved
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(exact), rtol=0.05, atol=0)
    rows, losses = found[False]
    assert rows == [(moved, 0)] * 5
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(exact), rtol=1e-4, atol=0)


def test_rows_that_change_workers_between_the_encoders_are_refused():
    data, task = tiny_sequence(), task_of("dysat")
    graph = vertex_steps(data, task)
    with pytest.raises(InvalidInputError):
        Workers(task, data, graph, by_both(graph, 2), attention=True)
