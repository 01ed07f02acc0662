"""TGL's way of training: the losses of the reference, and a rebuild for every insertion."""

from __future__ import annotations

import pytest
import torch

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Workload
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, stream_data
from dgbench.systems.tgl import RebuiltAccess, TglSystem


def workload(**fields) -> StreamWorkload:
    small = {"dataset": "wikipedia", "model": "tgat", "fanouts": (3, 2), "sampling": "uniform"}
    small |= {"node_dim": 4, "edge_dim": 3, "hidden_dim": 8, "time_dim": 4, "memory_dim": 6}
    return StreamWorkload(**(small | {"batch": 20} | fields))


def data(task: StreamWorkload, edges: int = 120):
    draw = torch.Generator().manual_seed(5)
    src = torch.randint(12, (edges,), generator=draw)
    dst = torch.randint(12, (edges,), generator=draw)
    t = torch.randint(60, (edges,), generator=draw).sort().values
    return stream_data(EventStream.build(src, dst, t, num_nodes=12), task)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "tgn", "fanouts": (4,), "sampling": "recent", "undirected": False},
        {"model": "dysat", "window": 10.0, "snapshots": 3},
        {"model": "graphsage", "edge_dim": 0},
        {"closed": True, "window": 20.0},
    ],
)
def test_losses_of_the_reference(fields: dict) -> None:
    task = workload(**fields)
    given = data(task)
    trainers = [
        TglSystem().open(task, data=given, dtype=torch.float64, threads=2),
        StreamTrainer(task, given, PlainStream(task, given), dtype=torch.float64),
    ]
    losses = []
    for trainer in trainers:
        trainer.insert(80)
        first = trainer.train(0, 80, epoch=0)
        trainer.insert(120)
        scores = trainer.evaluate_range(80, 120)
        losses.append([first, trainer.train(80, 120, epoch=1), scores.loss, scores.ap])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def test_every_insertion_builds_everything() -> None:
    task = workload()
    meter = Meter()
    trainer = TglSystem().open(task, data=data(task), meter=meter)
    trainer.insert(50)
    assert meter.counters["built_records"] == 100
    trainer.insert(60)
    assert meter.counters["built_records"] == 100 + 120


def test_caches_are_asked_for_features() -> None:
    task = workload()
    given = data(task)

    class Rows:
        asked = 0

        def __init__(self, table: torch.Tensor) -> None:
            self.table = table

        def fetch(self, ids: torch.Tensor) -> torch.Tensor:
            self.asked += ids.numel()
            return self.table[ids]

    nodes, edges = Rows(given.node_feat), Rows(given.edge_feat)
    cached = TglSystem().open(task, data=given, node_cache=nodes, edge_cache=edges)
    plain = TglSystem().open(task, data=given)
    for trainer in (cached, plain):
        trainer.prepare()
    assert cached.train(0, 60) == plain.train(0, 60)
    assert nodes.asked
    assert edges.asked


def test_events_come_once_and_in_order() -> None:
    task = workload()
    access = RebuiltAccess(task, data(task))
    nodes, times = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="insert"):
        access.sample(nodes, times, draw=0)
    access.insert(0, 10)
    for first, last in ((0, 10), (20, 30), (10, 5), (10, 121)):
        with pytest.raises(InvalidInputError, match="after 10 of 120"):
            access.insert(first, last)
    assert access.inserted == 10


def test_features_that_a_workload_does_not_have() -> None:
    task = workload(model="graphsage", edge_dim=0)
    with pytest.raises(UnsupportedError, match="no such features"):
        RebuiltAccess(task, data(task)).edge_features(torch.zeros(1, dtype=torch.int64))


def test_what_it_cannot_run() -> None:
    snapshots = Workload(dataset="covid19-england", model="tgcn_model")
    assert "StreamWorkload" in TglSystem().unsupported(snapshots, "cpu")[0]
    with pytest.raises(UnsupportedError, match="StreamWorkload"):
        TglSystem().open(snapshots)
    with pytest.raises(UnknownKeyError, match="reuse"):
        TglSystem().open(workload(), switches={"reuse": True})
    assert TglSystem().unsupported(workload(), "cpu") == []
