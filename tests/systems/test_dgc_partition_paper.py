"""Experiments and checks on partitions: rows of a small graph, and checks that can fail."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dgbench.systems.base import Claim
from dgbench.systems.dgc.checks import partition as checks
from dgbench.systems.dgc.experiments.fig17 import PARTS, counted_partitions, overhead
from dgbench.systems.dgc.experiments.partition import Partition, byte_points, compared
from dgbench.systems.dgc.experiments.partition_ablation import VARIANTS
from dgbench.systems.dgc.experiments.settings import GRAPHS, MODELS


def row(experiment, dataset="wikipedia", counters=None, values=None, twin=False):
    return SimpleNamespace(
        experiment=experiment,
        params={"dataset": dataset, "model": "tgcn_2layer"},
        id=f"{experiment}/{dataset}",
        status="ok",
        reason="",
        instrumented=False,
        values=values or {},
        counters=counters or {},
        data={"twin": twin},
        deviation={},
        device="cpu",
    )


def counted(**changes):
    counters = {"longest": 20}
    values = {}
    for model in MODELS:
        for size in (4, 8):
            for name in ("snapshots", "snapshots-contiguous", "sequences", "both", "chunks"):
                key = f"{model} {size} {name}"
                bytes_ = {"mpnn_lstm_bare": 60, "both": 90}.get(model, 50)
                counters |= {
                    f"bytes {key}": bytes_ if name == "chunks" else 100,
                    f"spatial {key}": 40,
                    f"temporal {key}": 10,
                    f"exchanges spatial {key}": 2,
                    f"exchanges temporal {key}": 1,
                    f"most heard {key}": 18 if model == "dysat" else 1,
                    f"stages {key}": 1,
                }
                values |= {f"balance {key}": 1.02, f"span {key}": 1.0}
    return row("partition", counters=counters | changes, values=values)


def claim(name: str, value) -> Claim:
    return Claim(id=f"dgc-{name}", where="", statement="", kind="volume", value=value)


TWICE = claim("s41-spatial-weight-twice", {"spatial": 2, "temporal": 1})


@pytest.mark.parametrize(
    ("check", "asked", "change"),
    [
        (checks.spatial_twice, TWICE, {"exchanges spatial tgcn_2layer 4 chunks": 1}),
        (checks.spatial_more, claim("x", ""), {"temporal tgcn_2layer 8 chunks": 41}),
        (checks.attention_neighbours, claim("x", ""), {"most heard tgcn_2layer 8 snapshots": 2}),
        (checks.attention_neighbours, claim("x", ""), {"most heard dysat 8 snapshots": 17}),
        (checks.mpnn_more, claim("x", ""), {"bytes dysat 4 chunks": 70}),
    ],
)
def test_counted_claims_hold_and_fail(check, asked, change):
    assert check(asked, [counted()]).holds
    assert not check(asked, [counted(**change)]).holds
    assert check(asked, []).measured is None


def test_equivalence_holds_and_fails():
    name = next(iter(VARIANTS))
    good = row(
        "partition_ablation",
        counters={"weight": 9, f"inside {name}": 5, f"between {name}": 4},
    )
    asked = claim("s41-equivalence", "")
    assert checks.equivalence(asked, [good]).holds
    good.counters[f"between {name}"] = 5
    assert not checks.equivalence(asked, [good]).holds


def costs(fusion: float, generation: float, dataset: str, epoch: float = 1.0):
    values = dict.fromkeys((f"{part}_s" for part in PARTS), 0.0)
    values |= {"fusion_s": fusion, "generation_s": generation, "epoch_s": epoch}
    return row("fig17", dataset, {"partitions": 1, "epochs": 6}, values | {"assignment_s": 0.1})


def test_costs_hold_and_fail():
    names = [graph.name for graph in GRAPHS]
    rows = [costs(3.0, 0.2 if name == "amazon" else 0.5, name) for name in names]
    rows[names.index("amazon")].values["assignment_s"] = 0.4
    assert overhead(rows[0]) == pytest.approx(3.6 / 103.6)
    assert checks.cost(claim("x", 4), rows).holds
    assert checks.fusion_larger(claim("x", ""), rows).holds
    assert checks.amazon_generation(claim("x", ""), rows).holds
    assert checks.once(claim("x", "once"), rows).holds
    rows[0].counters["partitions"] = 2
    assert not checks.once(claim("x", "once"), rows).holds
    dear = [costs(30.0, 40.0, name) for name in names]
    assert not checks.cost(claim("x", 4), dear).holds
    assert not checks.fusion_larger(claim("x", ""), dear).holds
    assert not checks.amazon_generation(claim("x", ""), dear).holds


def test_comparison_and_answer():
    one = counted()
    found = list(compared([one]))
    assert len(found) == 6
    assert {c.ratio for c in found} == {0.5, 0.6}
    assert all(c.balance == 1.02 and c.against_metis is None for c in found)
    assert "less than the best" in Partition().answer([one])
    assert all(point["y"] > 0 for point in byte_points([one]))
    assert Partition().answer([]) == ""


def test_partitions_are_counted_and_put_back():
    from dgbench.systems.dgc import partition

    before = partition.partition_chunks
    with pytest.raises(Exception), counted_partitions() as made:  # noqa: B017
        partition.partition_chunks(None, None, 3)
    assert made == [3]
    assert partition.partition_chunks is before
