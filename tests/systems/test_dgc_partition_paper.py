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
from dgbench.systems.dgc.experiments.partition_rows import LABELS_ONCE
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


def test_labels_once_are_judged_whatever_our_refinement_sends():
    both = counted()
    both.observed += [
        seen(one.metric, one.value, **{**one.dims, "method": LABELS_ONCE})
        for one in both.observed
        if one.dims.get("method") == "chunks"
    ]
    for check in (checks.spatial_more, checks.mpnn_more):
        assert check(claim("x", ""), [both]).holds is True
        assert "our refinement" in check(claim("x", ""), [counted()]).reason
    for method, holds in ((LABELS_ONCE, False), ("chunks", True)):
        dims = {"model": TGCN, "ranks": 8, "method": method, "of": "temporal"}
        told = checks.spatial_more(claim("x", ""), [but(both, "exchanged", 41, **dims)])
        assert told.holds is holds
        assert "our refinement" not in told.reason


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
    share = checks.cost(claim("x", 4), rows)
    assert share.measured == pytest.approx(3.4, abs=0.1)
    assert share.target == 4
    assert checks.fusion_larger(claim("x", ""), rows).holds
    assert checks.amazon_generation(claim("x", ""), rows).holds
    assert checks.once(claim("x", "once"), rows).holds
    again = [but(rows[0], "partitions", 2), *rows[1:]]
    assert not checks.once(claim("x", "once"), again).holds
    dear = [costs(30.0, 40.0, name) for name in names]
    assert checks.cost(claim("x", 4), dear).measured > 40
    assert not checks.fusion_larger(claim("x", ""), dear).holds
    refined = [but(one, "preparation_time", 9.0, phase="refinement") for one in rows]
    assert checks.fusion_larger(claim("x", ""), refined).holds
    assert checks.cost(claim("x", 4), refined).measured == share.measured
    assert overhead(refined[0], PARTS) == pytest.approx(12.6 / 112.6)
    real = [costs(3.0, 0.5, "wikipedia"), *rows]
    for one in real[1:]:
        one.data["twin"] = True
    assert "Wikipedia" in checks.cost(claim("x", 4), real).reason
    assert "Amazon" not in checks.cost(claim("x", 4), real).reason
    for one in real[1:]:
        one.data["twin"] = False
    assert not checks.amazon_generation(claim("x", ""), dear).holds


def test_comparison_and_answer(wording):
    one = counted()
    found = list(compared([one]))
    assert len(found) == 6
    assert {c.ratio for c in found} == {c.over_papers for c in found} == {0.5, 0.6}
    near = but(one, "exchanged", 40, model="dysat", ranks=8, method="snapshots-contiguous")
    worse = [c.ratio for c in compared([near]) if c.best == "snapshots-contiguous"]
    assert worse == [1.25]  # contiguous snapshots count
    assert [c.over_papers for c in compared([near])].count(0.5) == 4
    assert all(c.balance == 1.02 and c.against_metis is None for c in found)
    wording(Partition().answer([one]))
    assert all(point["y"] > 0 for point in byte_points([one]))
    assert Partition().answer([]) == ""


def test_partitions_are_counted_and_put_back():
    from dgbench.systems.dgc import partition

    before = partition.partition_chunks
    with pytest.raises(Exception), counted_partitions() as made:  # noqa: B017
        partition.partition_chunks(None, None, 3)
    assert made == [3]
    assert partition.partition_chunks is before
