"""TGL's way of training: the losses of the reference, and a rebuild for every insertion."""

from __future__ import annotations

import pytest
import torch
from stream_tiny import tiny_stream, tiny_task

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError, UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Workload
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.tgl import RebuiltAccess, TglSystem


@pytest.mark.parametrize(
    "fields",
    [{"model": "tgat"}, {"model": "tgn", "undirected": False}, {"model": "dysat"},
     {"model": "graphsage", "edge_dim": 0}, {"model": "tgat", "closed": True, "window": 20.0}],
)  # fmt: skip
def test_losses_of_the_reference(fields: dict) -> None:
    task = tiny_task(**fields)
    data = tiny_stream(task, events=120)
    losses = []
    for trainer in (
        TglSystem().open(task, data=data, dtype=torch.float64, threads=2),
        StreamTrainer(task, data, PlainStream(task, data), dtype=torch.float64),
    ):
        trainer.insert(80)
        first = trainer.train(0, 80, epoch=0)
        trainer.insert(120)
        scores = trainer.evaluate_range(80, 120)
        losses.append([first, trainer.train(80, 120, epoch=1), scores.loss, scores.ap])
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


class Rows:
    """A cache that counts what it is asked for."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table, self.asked = table, 0

    def fetch(self, ids: torch.Tensor) -> torch.Tensor:
        self.asked += ids.numel()
        return self.table[ids]


def test_every_insertion_builds_everything_and_caches_are_asked() -> None:
    task, meter = tiny_task("tgat"), Meter()
    data = tiny_stream(task)
    nodes, edges = Rows(data.node_feat), Rows(data.edge_feat)
    cached = TglSystem().open(task, data=data, node_cache=nodes, edge_cache=edges, meter=meter)
    cached.insert(50)
    assert meter.counters["built_records"] == 100
    cached.insert(60)
    assert meter.counters["built_records"] == 100 + 120
    plain = TglSystem().open(task, data=data)
    plain.prepare()
    assert cached.train(0, 60) == plain.train(0, 60)
    assert min(nodes.asked, edges.asked) > 0


def test_bad_input_is_named() -> None:
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
