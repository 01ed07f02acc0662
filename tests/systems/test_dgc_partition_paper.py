"""Experiments and checks on partitions: rows of a small graph, and checks that can fail."""

from __future__ import annotations

from itertools import product

import pytest
from dgc_rows import but, row_of, seen

from dgbench.systems.base import Claim
from dgbench.systems.dgc.checks import partition as checks
from dgbench.systems.dgc.experiments.fig17 import PARTS, counted_partitions, overhead
from dgbench.systems.dgc.experiments.partition import Partition, byte_points, compared
from dgbench.systems.dgc.experiments.partition_ablation import VARIANTS
from dgbench.systems.dgc.experiments.settings import GRAPHS, MODELS


def row(experiment, dataset="wikipedia", observed=()):
    return row_of(experiment, {"dataset": dataset, "model": "tgcn_2layer"}, observed)


def counted():
    observed = [seen("vertex_steps", 20, of="longest")]
    methods = ("snapshots", "snapshots-contiguous", "sequences", "both", "chunks")
    for model, size, name in product(MODELS, (4, 8), methods):
        dims = {"model": model, "ranks": size, "method": name}
        chunks = 60 if model == "mpnn_lstm_bare" else 50
        observed += [
            seen("exchanged", chunks if name == "chunks" else 100, **dims),
            seen("exchanged", 40, of="spatial", **dims),
            seen("exchanged", 10, of="temporal", **dims),
            seen("exchanges", 2, of="spatial", **dims),
            seen("exchanges", 1, of="temporal", **dims),
            seen("remote_steps", 18 if model == "dysat" else 1, **dims),
            seen("stages", 1, **dims),
            seen("imbalance", 1.02, **dims),
            seen("span", 1.0, **dims),
        ]
    return row("partition", observed=observed)


def claim(name: str, value) -> Claim:
    return Claim(id=f"dgc-{name}", where="", statement="", kind="volume", value=value)


TGCN = "tgcn_2layer"
TWICE = claim("s41-spatial-weight-twice", {"spatial": 2, "temporal": 1})


@pytest.mark.parametrize(
    ("check", "asked", "change"),
    [
        (checks.spatial_twice, TWICE, ("exchanges", 1, TGCN, 4, "chunks", "spatial")),
        (checks.spatial_more, claim("x", ""), ("exchanged", 41, TGCN, 8, "chunks", "temporal")),
        (checks.attention_neighbours, claim("x", ""), ("remote_steps", 2, TGCN, 8, "snapshots")),
        (
            checks.attention_neighbours,
            claim("x", ""),
            ("remote_steps", 17, "dysat", 8, "snapshots"),
        ),
        (checks.mpnn_more, claim("x", ""), ("exchanged", 70, "dysat", 4, "chunks")),
    ],
)
def test_counted_claims_hold_and_fail(check, asked, change):
    assert check(asked, [counted()]).holds
    metric, value, model, size, name, *of = change
    dims = {"model": model, "ranks": size, "method": name} | ({"of": of[0]} if of else {})
    assert not check(asked, [but(counted(), metric, value, **dims)]).holds
    assert check(asked, []).measured is None


def test_equivalence_holds_and_fails():
    name = next(iter(VARIANTS))
    parts = [
        seen("edge_weight", w, of=of, setting=name) for of, w in (("inside", 5), ("between", 4))
    ]
    good = row("partition_ablation", observed=[seen("edge_weight", 9), *parts])
    asked = claim("s41-equivalence", "")
    assert checks.equivalence(asked, [good]).holds
    bad = but(good, "edge_weight", 5, of="between", setting=name)
    assert not checks.equivalence(asked, [bad]).holds


def costs(fusion: float, generation: float, dataset: str, epoch: float = 1.0):
    seconds = dict.fromkeys(PARTS, 0.0)
    seconds |= {"fusion": fusion, "generation": generation, "assignment": 0.1}
    observed = [seen("preparation_time", s, phase=part) for part, s in seconds.items()]
    observed += [seen("epoch_time", epoch), seen("partitions", 1), seen("epochs", 6)]
    return row("fig17", dataset, observed)


def test_costs_hold_and_fail():
    names = [graph.name for graph in GRAPHS]
    rows = [costs(3.0, 0.2 if name == "amazon" else 0.5, name) for name in names]
    amazon = names.index("amazon")
    rows[amazon] = but(rows[amazon], "preparation_time", 0.4, phase="assignment")
    assert overhead(rows[0]) == pytest.approx(3.6 / 103.6)
    assert checks.cost(claim("x", 4), rows).holds
    assert checks.fusion_larger(claim("x", ""), rows).holds
    assert checks.amazon_generation(claim("x", ""), rows).holds
    assert checks.once(claim("x", "once"), rows).holds
    again = [but(rows[0], "partitions", 2), *rows[1:]]
    assert not checks.once(claim("x", "once"), again).holds
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
