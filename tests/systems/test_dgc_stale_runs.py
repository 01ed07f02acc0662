"""All workers in one process against the oracle and against ranks; the experiments' figures."""

from __future__ import annotations

import threading
from functools import partial

import pytest
import torch
from dgc_ranks import as_ranks
from dgc_rows import row_of
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tiny_data import tiny_sequence

from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import Measurement
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import (
    SequenceWorkload,
    vertex_steps,
)
from dgbench.systems.dgc.experiments.stale_points import mean, points, qualities
from dgbench.systems.dgc.placement import Placement, by_both
from dgbench.systems.dgc.stale import StaleRows, StaleSettings, summed
from dgbench.systems.dgc.stale_workers import Boundary, StaleWorkers, Workers
from dgbench.systems.dgc.trainer import ChunkRankTrainer

_one_at_a_time = threading.Lock()
MODELS = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")


def task_of(model: str, **fields) -> SequenceWorkload:
    base = {"dataset": "tiny", "model": model, "feature_dim": 3, "hidden_dim": 4, "lr": 0.05}
    return SequenceWorkload(**(base | fields))


def scattered(graph, workers: int, seed: int) -> Placement:
    """Vertex-steps dealt out at random: sequences are cut anywhere."""
    draw = torch.Generator().manual_seed(seed)
    worker = torch.randint(0, workers, (graph.num_vertices,), generator=draw).int()
    return Placement("chunks", workers, worker, worker, worker, workers)


def one_process(model: str, stale: StaleSettings | None, workers: int = 3, seed: int = 0):
    """The trainer, its oracle, and what ranks need to do the same."""
    data, task = tiny_sequence(nodes=30, edges=20, seed=seed), task_of(model)
    graph = vertex_steps(data, task)
    placement = scattered(graph, workers, seed)
    laid = Workers(task, data, graph, placement, attention=model == "dysat")
    plain = PlainSequences(task, data, graph=graph)
    return StaleWorkers(laid, stale), plain, (task, data, placement)


@pytest.mark.parametrize("model", MODELS)
def test_without_stale_rows_it_trains_as_the_oracle(model):
    trainer, plain, _ = one_process(model, None)
    torch.testing.assert_close(trainer.evaluate(), plain.evaluate(), rtol=1e-4, atol=1e-5)
    losses = [(trainer.train_epoch(), plain.train_epoch()) for _ in range(4)]
    torch.testing.assert_close(*torch.tensor(losses).T, rtol=1e-4, atol=1e-5)
    assert trainer.totals.rows == trainer.totals.plain_rows > 0
    assert trainer.totals.bytes == trainer.totals.plain_bytes


def _rank(comm, task, data, placement, stale, epochs):
    rows = StaleRows(comm, stale)
    with _one_at_a_time:  # threads draw parameters from one generator
        trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows)
    losses = [trainer.train_epoch() for _ in range(epochs)]
    return losses, rows.history, rows.cache_bytes, comm.traffic


class _Adding:
    """Threads as ranks only know the maximum; gradients need sums."""

    def __call__(self, comm, *args):
        def reduce(x, op):
            found = torch.stack(comm._board.share(comm.rank, x))
            return found.amax(0) if op == "max" else found.sum(0)

        comm._all_reduce = reduce
        return _rank(comm, *args)


@pytest.mark.parametrize(
    ("model", "stale"),
    [
        ("tgcn_2layer", StaleSettings()),
        ("dysat", StaleSettings(threshold=0.7)),
        ("dysat", StaleSettings(scope="global")),
        ("mpnn_lstm_bare", StaleSettings(states=False)),
        ("mpnn_lstm_bare", StaleSettings(reach="past")),
    ],
)
def test_one_process_sends_and_learns_what_ranks_do(model, stale):
    trainer, _, (task, data, placement) = one_process(model, stale)
    losses = [trainer.train_epoch() for _ in range(5)]
    ranks = as_ranks(3, _Adding(), task, data, placement, stale, 5)
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
        ranks = as_ranks(3, _Adding(), task, data, placement, stale, 5)
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
    with pytest.raises(InvalidInputError, match="change workers between the encoders"):
        Workers(task, data, graph, by_both(graph, 2), attention=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_readers_are_distinct_workers_beyond_the_own_one(triples):
    owner = {}
    triples = [(row, owner.setdefault(row, by), to) for row, by, to in triples]
    columns = [torch.tensor([t[k] for t in triples], dtype=torch.int64) for k in range(3)]
    found = Boundary.of(*columns, 4)
    expected: dict[int, set[int]] = {}
    for row, by, to in triples:
        if by != to:
            expected.setdefault(row, set()).add(to)
    assert found.rows.tolist() == sorted(expected)
    assert found.sender.tolist() == [owner[row] for row in sorted(expected)]
    assert found.readers.tolist() == [len(expected[row]) for row in sorted(expected)]
    assert found.pairs == sum(map(len, expected.values()))


def stale_row(
    observed: list[Observation], experiment: str = "table3", *, twin=False, graphs="wikipedia"
) -> Row:
    """A row of the experiments on stale aggregation."""
    names = {one.dims["dataset"]: None for one in observed if "dataset" in one.dims}
    data = {"twin": twin, "dataset": ", ".join(names or [graphs])}
    return row_of(experiment, {"graphs": graphs}, observed, data=data)


def row_of_runs(
    runs: dict[tuple[str, str, str], tuple[float, float]], epochs: int | None = None, **fields
) -> Row:
    """(graph, model, setting) -> (accuracy, share of rows saved)."""
    found = Measurement()
    for graph, model in {run[:2] for run in runs} if epochs else ():
        found.observe("epochs", epochs, dataset=graph, model=model)
    for (graph, model, setting), (accuracy, saved) in runs.items():
        observe = partial(found.observe, dataset=graph, model=model, setting=setting)
        observe("accuracy", accuracy)
        observe("scored", 400)
        observe("rows_sent", 1000, of="plain")
        observe("rows_sent", round(1000 * (1 - saved)))
        observe("exchanged", 8000, of="plain")
        observe("exchanged", round(8000 * (1 - saved)) + 40)
    return stale_row(found.observations, **fields)


def test_drops_and_savings_of_a_row():
    row = row_of_runs(
        {
            ("wikipedia", "dysat", "without"): (0.8, 0.0),
            ("wikipedia", "dysat", "0.5D"): (0.78, 0.4),
            ("wikipedia", "dysat", "adaptive"): (0.81, 0.6),
            ("email-eu-core", "dysat", "adaptive"): (0.7, 0.6),  # nothing to compare with
        }
    )
    found = points([row])
    assert [(p.setting, round(p.drop, 6), round(p.saved_rows, 6)) for p in found] == [
        ("0.5D", 2.0, 40.0),
        ("adaptive", -1.0, 60.0),
    ]
    assert found[0].noise == pytest.approx(2.0)
    assert found[0].saved_bytes == pytest.approx(39.5)
    whole = mean(found)
    assert (whole.drop, whole.saved_rows, whole.runs) == (pytest.approx(0.5), 50.0, 2)
    assert mean([]).runs == 0


def test_whole_trainings_stand_for_shorter_ones():
    def seeds(accuracy: float, epochs: int, graph: str = "wikipedia") -> list[Row]:
        runs = {(graph, "dysat", "without"): (0.8, 0.0), (graph, "dysat", "0.5D"): (accuracy, 0.5)}
        return [
            structs.replace(row_of_runs(runs, epochs), id=f"{graph}-{epochs}-r{seed}")
            for seed in range(1, 6)
        ]

    short, whole, other = seeds(0.7, 20), seeds(0.79, 100), seeds(0.6, 20, "email-eu-core")
    every = [*short, *whole, *other]
    assert [p.row.id for p in points(every)] == [row.id for row in (*whole, *other)]
    assert points(short) == [p for p in points(short) if p.drop > 9]
    assert len(points(short)) == 5  # alone they count
    assert str(qualities(every)) == str(qualities([*whole, *other]))


def seeded_rows(shift: dict[str, float], dictionary: float) -> list[Row]:
    """Five seeds of settings whose accuracy is 0.7 and `shift` more, beside a dictionary."""
    rows = []
    for seed in range(1, 6):
        scores = {setting: 0.7 + more + 1e-3 * seed * (1 + more) for setting, more in shift.items()}
        row = row_of_runs({("email-eu-core", "dysat", s): (v, 1.0) for s, v in scores.items()})
        row.params["seed"] = seed
        dims = {"dataset": "email-eu-core", "model": "dysat", "method": "last_value"}
        row.observed.append(observation("accuracy", dictionary, **dims))
        rows.append(row)
    return rows


def test_settings_are_judged_beside_fresh_rows_and_beside_dictionaries():
    shift = {"without": 0.0, "0.1D": 0.0, "0.5D": -0.1, "0.9D": -0.2}
    found = {key[2]: one for key, one in qualities(seeded_rows(shift, 0.55)).items()}
    assert {name: one.word for name, one in found.items()} == {
        "without": None, "0.1D": "same", "0.5D": "worse", "0.9D": "below the dictionary",
    }  # fmt: skip
    assert found["0.9D"].method == "last_value"
    assert qualities(seeded_rows(shift, 0.55)[1:]) == {}  # four seeds say nothing
    alone = {one.word for one in qualities(seeded_rows({"without": 0.0}, 0.9)).values()}
    assert alone == {"below the dictionary"}
