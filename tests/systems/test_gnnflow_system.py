"""GNNFlow as a system: whatever is switched off, the same losses; caches that follow the rounds;
rounds of continuous training, and the old events that they replay."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stream_tiny import tiny_stream, tiny_task

from dgbench.harness.claims.ledger import load_ledger
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Workload
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.gnnflow import PAPER, GnnflowSystem
from dgbench.systems.gnnflow import access as access_module
from dgbench.systems.gnnflow.access import AccessSettings, StoreAccess
from dgbench.systems.gnnflow.experiments import fig8, round_race
from dgbench.systems.gnnflow.experiments.settings import (
    ALL,
    BY_NAME,
    GRAPHS,
    MODEL_OF,
    PRESETS,
    workload,
)
from dgbench.systems.gnnflow.replay import Replay
from dgbench.systems.gnnflow.rounds import Continuous, Round, rounds_by_count, rounds_by_time
from dgbench.systems.gnnflow.techniques import TECHNIQUES
from dgbench.systems.tgl import RebuiltAccess, TglSystem

EXACT = [one.name for one in TECHNIQUES if one.exact]
SHARES = AccessSettings(tau=4, node_cache=0.4, edge_cache=0.3)
SYSTEM = GnnflowSystem()


def task(model: str = "tgn", **fields) -> StreamWorkload:
    return tiny_task(model, **({"batch": 8} | fields))


def data_of(work: StreamWorkload) -> StreamData:
    return tiny_stream(work, events=90, nodes=12)


def losses(trainer) -> list[float]:
    """Of three rounds of two epochs after an initial part."""
    stream = Continuous(trainer, rounds_by_count(90, 3, initial=0.4), epochs=2)
    stream.begin(1)
    return [value for one in stream.play_all() for value in (one.ap, *one.losses)]


def opened(work: StreamWorkload, off=(), **options):
    switches = dict.fromkeys(off, False)
    return SYSTEM.open(work, data=data_of(work), switches=switches, settings=SHARES, **options)


@cache
def wanted(work: StreamWorkload) -> list[float]:
    """Losses of the reference."""
    data = data_of(work)
    return losses(StreamTrainer(work, data, PlainStream(work, data), dtype=torch.float64))


@pytest.mark.parametrize(
    ("model", "off", "fields"),
    [*((model, (), {}) for model in ("tgn", "tgat", "dysat", "graphsage", "gat")),
     *(("tgat", (name,), {}) for name in EXACT),
     ("tgn", EXACT, {}), ("tgn", EXACT, {"undirected": False}),
     ("tgn", (), {"node_dim": 0, "edge_dim": 0})],
)  # fmt: skip
def test_any_switch_gives_the_losses_of_the_reference(model, off, fields) -> None:
    work = task(model, **fields)
    one = opened(work, off, dtype=torch.float64)
    assert losses(one) == pytest.approx(wanted(work), rel=1e-9)
    kinds = {kind for kind in ("node", "edge") if f"{kind}_cache" not in off and not fields}
    assert set(one.access.caches) == kinds


@pytest.mark.parametrize(
    "fields",
    [{"model": "tgat"}, {"undirected": False}, {"model": "dysat"},
     {"model": "graphsage", "edge_dim": 0}, {"model": "tgat", "closed": True, "window": 20.0}],
)  # fmt: skip
def test_tgl_gives_the_losses_of_the_reference(fields: dict) -> None:
    work = task(**fields)
    one = TglSystem().open(work, data=data_of(work), dtype=torch.float64, threads=2)
    assert losses(one) == pytest.approx(wanted(work), rel=1e-9)


def test_chunk_scheduling_moves_borders_and_can_be_switched_off() -> None:
    work = task("tgn", chunks=4)
    assert losses(opened(work)) != losses(opened(work, ["chunk_scheduling"]))
    assert losses(opened(work, ["chunk_scheduling"])) == losses(opened(task("tgn")))


def test_replay_trains_on_more_events() -> None:
    work = task("tgn")
    data = data_of(work)
    trainer = SYSTEM.open(work, data=data, switches={"replay": True}, replay=0.5)
    stream = trainer.follow(rounds_by_count(90, 3, initial=0.4), epochs=1)
    stream.begin()
    assert [one.trained for one in stream.play_all()] == [27, 27, 27]
    assert SYSTEM.open(work, data=data).follow(rounds_by_count(90, 3)).replay is None


def access(off=(), settings=SHARES) -> StoreAccess:
    work = task("tgat")
    on = SYSTEM.switches(dict.fromkeys(off, False))
    return StoreAccess(work, data_of(work), on, settings=settings)


def contents(one: StoreAccess) -> dict[str, set[int]]:
    return {kind: set(cache.contents().tolist()) for kind, cache in one.caches.items()}


def fetch(one: StoreAccess, *ids: int) -> None:
    wanted = torch.tensor(ids)
    assert torch.equal(one.node_features(wanted), one.data.node_feat[wanted])
    assert torch.equal(one.edge_features(wanted), one.data.edge_feat[wanted])


def test_rounds_and_epochs_begin_with_what_switches_say() -> None:
    """As the last round left caches; without restoration on from each other; without reuse cold."""
    one = access()
    fetch(one, 1, 2, 3)
    one.begin_round()
    kept = contents(one)
    assert kept["edge"]
    for ids in ((4, 5, 6), (7, 8, 9)):
        one.begin_epoch()
        assert contents(one) == kept
        fetch(one, *ids)
        assert contents(one) != kept
    one.begin_round()
    assert contents(one) != kept
    one = access(["restoration"])
    one.begin_round()
    one.begin_epoch()
    fetch(one, 1, 2, 3)
    kept = contents(one)
    one.begin_epoch()
    assert contents(one) == kept
    one = access(["reuse"])
    fetch(one, 1, 2, 3)
    one.begin_round()
    assert contents(one) == {"node": set(), "edge": set()}


def test_bad_input_is_named() -> None:
    one = access()
    for first, last in ((1, 2), (0, 91), (0, -1)):
        with pytest.raises(InvalidInputError, match="events"):
            one.insert(first, last)
    one.insert(0, 5)
    with pytest.raises(InvalidInputError, match="events"):
        one.insert(0, 5)
    for bad in ({"node_cache": -0.1}, {"edge_cache": 1.1}, {"admission": 0.0}):
        with pytest.raises(InvalidInputError, match=next(iter(bad))):
            access(settings=AccessSettings(**bad))
    with pytest.raises(UnknownKeyError, match="in_plaice"):
        opened(task(), ["in_plaice"])
    other = Workload(dataset="covid19-england", model="tgcn_model")
    assert "streams" in SYSTEM.unsupported(other, "cpu")[0]
    assert SYSTEM.unsupported(task(), "cpu") == []


@pytest.mark.parametrize("name", [round_race.REBUILT, round_race.BARE, round_race.PUBLISHED])
def test_the_published_form_has_all_of_the_papers_techniques_and_none_of_ours(
    name, monkeypatch
) -> None:
    graph = BY_NAME["gdelt"]
    work = workload(graph, "tgn", "smoke", scale=fig8.SMALL)
    data = load_stream(work)
    trainer = round_race.open_contender(name, work, data, graph, "cpu")
    apart = {"replay", *round_race.SWITCHES[name]}  # old events are no part of Figure 8
    for one in TECHNIQUES:
        assert trainer.on[one.name] == (not one.ours) or one.name in apart, one.name
    assert not set(round_race.SWITCHES[name]) & {one.name for one in TECHNIQUES if one.ours}
    assert trainer.access.store.policy.name == "adaptive"
    searches = []
    monkeypatch.setattr(access_module, "sample_hops", lambda *_, **k: searches.append(k["search"]))
    nothing = torch.zeros(0, dtype=torch.int64)
    trainer.access.sample(nothing, nothing.double(), draw=0)
    assert searches == ["linear"]
    plus = round_race.open_contender(round_race.GNNFLOW, work, data, graph, "cpu")
    assert plus.access.store.policy.name == "grown"
    assert plus.on["fences"]


def test_settings_are_the_papers() -> None:
    ledger = {claim.id: claim for claim in load_ledger(PAPER.ledger)}
    assert set(MODEL_OF) == {"TGN", "TGAT", "DySAT", "GraphSAGE", "GAT"}
    for graph in GRAPHS:
        for name, dim in (("node", graph.node_dim), ("edge", graph.edge_dim)):
            printed = ledger[f"gnnflow-tab5-{name}-dim"].value.get(graph.title)
            assert dim == (printed if isinstance(printed, int) else 0)
    for graph, preset in product(ALL, PRESETS):
        work = workload(graph, "tgn", preset, seed=3).check()
        assert work.scale == (1.0 if graph.real or preset == "paper" else graph.scale(preset))


def test_every_insertion_builds_everything() -> None:
    task, meter = tiny_task("tgat"), Meter()
    trainer = TglSystem().open(task, data=tiny_stream(task), meter=meter)
    for last, built in ((50, 100), (60, 100 + 120)):
        trainer.insert(last)
        assert meter.counters["built_records"] == built


def test_bad_input_of_tgl_is_named() -> None:
    task, one = tiny_task("graphsage", edge_dim=0), torch.zeros(1, dtype=torch.int64)
    access = RebuiltAccess(task, tiny_stream(task))
    with pytest.raises(UnsupportedError, match="insert"):
        access.sample(one, one.double(), draw=0)
    access.insert(0, 10)
    for first, last in ((0, 10), (20, 30), (10, 5), (10, 61)):
        with pytest.raises(InvalidInputError, match="events"):
            access.insert(first, last)
    assert access.inserted == 10
    with pytest.raises(UnsupportedError, match="features"):
        access.edge_features(one)
    snapshots = Workload(dataset="covid19-england", model="tgcn_model")
    with pytest.raises(UnsupportedError, match="StreamWorkload"):
        TglSystem().open(snapshots)
    with pytest.raises(UnknownKeyError, match="reuse"):
        TglSystem().open(task, switches={"reuse": True})
    assert TglSystem().unsupported(task, "cpu") == []


# --- rounds and replay ----------------------------------------------------------------------------


TIMES = st.lists(st.integers(0, 40), max_size=60).map(sorted)


@given(TIMES, st.integers(1, 15), st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_rounds_by_time_are_whole_intervals_in_order(times, length, initial) -> None:
    t = torch.tensor(times, dtype=torch.float64)
    rounds = rounds_by_time(t, length, initial=initial)
    assert [one.number for one in rounds] == list(range(len(rounds)))
    interval = [(x - times[0]) // length for x in times]
    for one in rounds:
        assert one.events > 0
        assert len(set(interval[one.first : one.last])) == 1
        assert one.first == 0 or interval[one.first - 1] < interval[one.first]
    if rounds:
        assert rounds[-1].last == len(times)
        assert all(a.last == b.first for a, b in pairwise(rounds))
        assert rounds[0].first >= initial * len(times)
        before = [i for i in range(rounds[0].first) if i >= initial * len(times)]
        assert len({interval[i] for i in before}) <= 1  # the interval that `initial` ends in


@given(st.integers(1, 200), st.integers(1, 50), st.sampled_from([0.0, 0.3, 0.5]))
def test_rounds_by_count_share_evenly(events, count, initial) -> None:
    begin = round(initial * events)
    if count > events - begin:
        with pytest.raises(InvalidInputError, match="count"):
            rounds_by_count(events, count, initial=initial)
        return
    rounds = rounds_by_count(events, count, initial=initial)
    sizes = [one.events for one in rounds]
    assert (rounds[0].first, rounds[-1].last, len(rounds)) == (begin, events, count)
    assert sum(sizes) == events - begin
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(0, 50), st.integers(0, 30), st.sampled_from([0.0, 0.5, 1.0, 7.5]))
def test_replay_draws_old_events_once_and_in_order(first, events, ratio) -> None:
    replay = Replay(ratio, seed=3)
    old = replay.choose(first, first + events)
    assert old.dtype == torch.int64
    assert old.numel() == min(first, round(ratio * events))
    assert torch.equal(old, old.unique())
    assert not old.numel() or set(old.tolist()) <= set(range(first))
    assert torch.equal(old, replay.choose(first, first + events))
    draws = [Replay(1.0, seed).choose(at, at + 20) for seed in (1, 2) for at in (90, 91)]
    assert len({tuple(one.tolist()) for one in draws}) == 4


class Recorder:
    """Stands for a trainer: notes what is asked of it, and counts what it was trained on."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.meter = Meter()
        self.access = SimpleNamespace(
            begin_round=lambda: self.calls.append(("round",)),
            begin_epoch=lambda: self.calls.append(("epoch",)),
        )
        self.memory = 0

    def insert(self, last):
        self.calls.append(("insert", last))

    def mark_memory(self):
        return self.memory

    def restore_memory(self, state):
        self.calls.append(("restore", state))
        self.memory = state

    def reset_memory(self):
        self.memory = 0

    def train(self, first, last, *, epoch=0):
        return self.train_on(torch.arange(first, last), epoch=epoch)

    def train_on(self, events, *, epoch=0):
        self.meter.count("trained", events.numel())
        self.calls.append(("train", events.tolist(), epoch))
        self.memory += 1
        return 0.5

    def evaluate_range(self, first, last, *, remember=False):
        self.meter.count("scored", last - first)
        self.calls.append(("score", first, last, remember))
        self.memory += 10 * remember
        return SimpleNamespace(ap=0.75)


ROUNDS = [Round(0, 4, 6), Round(1, 6, 7), Round(2, 7, 10)]


def test_a_round_inserts_scores_and_trains_from_the_memories_of_its_begin() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=2)
    assert stream.begin(epochs=1) == [0.5]
    assert trainer.calls == [("insert", 4), ("train", [0, 1, 2, 3], 0)]
    trainer.calls.clear()
    found = stream.play()
    assert trainer.calls == [
        ("round",), ("insert", 6), ("score", 4, 6, False),
        ("epoch",), ("restore", 1), ("train", [4, 5], 0),
        ("epoch",), ("restore", 1), ("train", [4, 5], 1),
    ]  # fmt: skip
    assert (found.losses, found.ap, found.trained) == ([0.5, 0.5], 0.75, 2)
    # Scoring is no part of a round's cost.
    assert (found.counters["trained"], found.counters["scored"]) == (4, 0)
    assert found.retrain_s == found.update_s + found.train_s > 0
    assert [one.round.number for one in stream.play_all()] == [1, 2]
    with pytest.raises(InvalidInputError, match="rounds"):
        stream.play()


def test_training_in_every_second_round_takes_all_events_since() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=1, every=2)
    stream.begin()
    first, second, third = stream.play_all()
    assert (first.trained, second.trained, third.trained) == (0, 3, 0)
    trained = [call for call in trainer.calls if call[0] == "train"]
    assert trained == [("train", [4, 5, 6], 0)]
    assert ("restore", 0) in trainer.calls  # what round 0 began with, though it was scored since
    remembered = [call[3] for call in trainer.calls if call[0] == "score"]
    assert remembered == [True, False, True]
    trainer = Recorder()
    never = Continuous(trainer, ROUNDS, every=None).play_all()
    assert all((one.ap, one.trained, one.losses) == (0.75, 0, []) for one in never)
    assert "trained" not in trainer.meter.counters


def test_replay_comes_before_the_new_events() -> None:
    trainer = Recorder()
    stream = Continuous(trainer, ROUNDS, epochs=1, replay=Replay(1.0, seed=5), evaluate=False)
    stream.begin()
    found = stream.play()
    events = next(call[1] for call in trainer.calls if call[0] == "train")
    assert sorted(events)[-2:] == events[-2:] == [4, 5]
    assert len(events) == found.trained == 4
    assert found.ap is None


def test_bad_input_of_rounds_is_named() -> None:
    t = torch.arange(10, dtype=torch.float64)
    nan, inf = float("nan"), float("inf")
    cases = [("length", lambda x=x: rounds_by_time(t, x)) for x in (0, inf, nan)]
    cases += [("initial", lambda x=x: rounds_by_time(t, 1.0, initial=x)) for x in (-0.1, 1.1, nan)]
    cases += [("ratio", lambda x=x: Replay(x)) for x in (-1, nan, inf, True)]
    cases += [(name, lambda name=name: Continuous(Recorder(), ROUNDS, **{name: 0}))
              for name in ("epochs", "every")]  # fmt: skip
    cases += [("rounds", lambda: Continuous(Recorder(), []))]
    cases += [("range", lambda: Replay(1.0).choose(5, 4))]
    for name, call in cases:
        with pytest.raises(InvalidInputError, match=name):
            call()
    assert rounds_by_time(t[:0], 1.0) == []
