"""GNNFlow as a system: whatever is switched off, the same losses; caches that follow the rounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from stream_tiny import tiny_stream, tiny_task

from dgbench.datasets import EventStream
from dgbench.harness.claims.ledger import load_ledger
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Workload
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, load_stream, stream_data
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
from dgbench.systems.gnnflow.rounds import Continuous, rounds_by_count
from dgbench.systems.gnnflow.techniques import TECHNIQUES
from dgbench.systems.tgl import RebuiltAccess, TglSystem

EXACT = [one.name for one in TECHNIQUES if one.exact]
SHARES = AccessSettings(tau=4, node_cache=0.4, edge_cache=0.3)
SYSTEM = GnnflowSystem()


def events(count: int = 90, vertices: int = 12) -> EventStream:
    """Few vertices, many ties in time, self edges and repeated pairs; vertex 0 has no edge."""
    rng = np.random.default_rng(7)
    ends = rng.integers(1, vertices, size=(2, count))
    return EventStream.build(*ends, np.sort(rng.integers(0, count // 3, count)), num_nodes=vertices)


def task(model: str = "tgn", **fields) -> StreamWorkload:
    return tiny_task(model, **({"batch": 8} | fields))


def losses(trainer) -> list[float]:
    """Of three rounds of two epochs after an initial part."""
    stream = Continuous(trainer, rounds_by_count(90, 3, initial=0.4), epochs=2)
    stream.begin(1)
    return [value for one in stream.play_all() for value in (one.ap, *one.losses)]


def opened(work: StreamWorkload, off=(), **options):
    switches = dict.fromkeys(off, False)
    return SYSTEM.open(
        work, data=stream_data(events(), work), switches=switches, settings=SHARES, **options
    )


def plain(work: StreamWorkload) -> StreamTrainer:
    data = stream_data(events(), work)
    return StreamTrainer(work, data, PlainStream(work, data), dtype=torch.float64)


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
    assert losses(one) == pytest.approx(losses(plain(work)), rel=1e-9)
    kinds = {kind for kind in ("node", "edge") if f"{kind}_cache" not in off and not fields}
    assert set(one.access.caches) == kinds


def test_chunk_scheduling_moves_borders_and_can_be_switched_off() -> None:
    work = task("tgn", chunks=4)
    assert losses(opened(work)) != losses(opened(work, ["chunk_scheduling"]))
    assert losses(opened(work, ["chunk_scheduling"])) == losses(opened(task("tgn")))


def test_replay_trains_on_more_events() -> None:
    work = task("tgn")
    data = stream_data(events(), work)
    trainer = SYSTEM.open(work, data=data, switches={"replay": True}, replay=0.5)
    stream = trainer.follow(rounds_by_count(90, 3, initial=0.4), epochs=1)
    stream.begin()
    assert [one.trained for one in stream.play_all()] == [27, 27, 27]
    assert SYSTEM.open(work, data=data).follow(rounds_by_count(90, 3)).replay is None


def access(off=(), settings=SHARES) -> StoreAccess:
    work = task("tgat")
    on = SYSTEM.switches(dict.fromkeys(off, False))
    return StoreAccess(work, stream_data(events(), work), on, settings=settings)


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


@pytest.mark.parametrize(
    "fields",
    [{"model": "tgat"}, {"model": "tgn", "undirected": False}, {"model": "dysat"},
     {"model": "graphsage", "edge_dim": 0}, {"model": "tgat", "closed": True, "window": 20.0}],
)  # fmt: skip
def test_tgl_gives_the_losses_of_the_reference(fields: dict) -> None:
    task = tiny_task(**fields)
    data, losses = tiny_stream(task), []
    for trainer in (
        TglSystem().open(task, data=data, dtype=torch.float64, threads=2),
        StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64),
    ):
        trainer.insert(40)
        first = trainer.train(0, 40, epoch=0)
        trainer.insert(60)
        scores = trainer.evaluate_range(40, 60)
        losses.append([first, trainer.train(40, 60, epoch=1), scores.loss, scores.ap])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


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
