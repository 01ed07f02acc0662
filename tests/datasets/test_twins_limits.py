"""Limits of twins as evidence."""

import pytest

from dgbench.datasets.twins import limits
from dgbench.runtime.errors import DataError, UnknownKeyError


def test_fitted_counts_are_circular():
    for name in ("flickr", "youtube", "automotive", "epinions", "hepth"):
        rule, reason = limits.twin_rule(f"pipad-tab1-{name}")
        assert rule == "never"
        assert "circular" in reason
    assert limits.twin_rule("tgcn-tab1-edges")[0] == "never"


def test_change_rate_is_set_by_the_edge_life():
    assert limits.twin_rule("pipad-s1-topology-slow-change") == (
        "never",
        limits.never("change_rate"),
    )
    assert "edge-life" in limits.never("change_rate")


@pytest.mark.parametrize(
    ("claim", "rule"),
    [
        ("pipad-fig10-avg-t-gcn", "direction"),
        ("pipad-fig12-load-balance", "direction"),
        ("pipad-s41-space-csr", "allowed"),
        ("pipad-fig10-pipad-best", "allowed"),
        ("esdg-tab2-hyper-volume-tmgcn", "never"),
        ("esdg-s62-cdgcn-gd", "never"),
        ("esdg-s62-gd-gains-shrink", "direction"),
        ("esdg-s1-volume-constant", "allowed"),
        ("dgc-tab3-acc-stack-dysat", "never"),
        ("dgc-fig5a-vertices-parts", "never"),
        ("dgc-s732-cf-speedup", "direction"),
        ("dgc-s41-equivalence", "allowed"),
        ("gnnflow-fig11-replay", "never"),
        ("gnnflow-tab4-node-jaccard", "direction"),
        ("gnnflow-s41-search-log-time", "allowed"),
        ("tgcn-fig9-twitter", "never"),
        ("tgcn-fig7-layerwise", "direction"),
        ("tgcn-fig8-order", "allowed"),
        ("nopaper-at-all", "allowed"),
    ],
)
def test_rules_of_claims(claim, rule):
    found, reason = limits.twin_rule(claim)
    assert found == rule
    assert bool(reason) == (rule != "allowed")


def test_every_tag_has_a_reason_and_unknown_ones_a_suggestion():
    assert {"accuracy", "cut", "change_rate", "overlap_histogram", "fitted_count"} <= set(
        limits.tags()
    )
    assert all(len(limits.never(tag)) > 20 for tag in limits.tags())
    with pytest.raises(UnknownKeyError) as caught:
        limits.never("acuracy")
    assert "accuracy" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("never: {}\nclaims: {p: [{match: [a], rule: never, tag: nothing}]}", "nothing"),
        ("never: {}\nclaims: {p: [{match: [a], rule: never}]}", "a tag or a reason"),
        ("never: {}\nclaims: {p: [{match: [a], rule: maybe, reason: r}]}", "maybe"),
        ("never: {}\nclaims: {}\nmore: 1", "more"),
    ],
)
def test_rules_are_read_strictly(text, word):
    with pytest.raises(DataError, match=word):
        limits.read_limits(text)
