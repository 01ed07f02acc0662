"""Limits of twins as evidence."""

import pytest

from dgbench.datasets.twins import limits
from dgbench.runtime.errors import DataError, UnknownKeyError

RULES = {
    "never": "pipad-tab1-flickr tgcn-tab1-edges pipad-s1-topology-slow-change esdg-s62-cdgcn-gd "
    "esdg-tab2-hyper-volume-tmgcn dgc-tab3-acc-stack-dysat gnnflow-fig11-replay tgcn-fig9-twitter",
    "direction": "pipad-fig10-avg-t-gcn pipad-fig12-load-balance esdg-s62-gd-gains-shrink "
    "dgc-s732-cf-speedup gnnflow-tab4-node-jaccard tgcn-fig7-layerwise",
    "allowed": "pipad-s41-space-csr pipad-fig10-pipad-best esdg-s1-volume-constant "
    "dgc-s41-equivalence gnnflow-s41-search-log-time tgcn-fig8-order nopaper-at-all",
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_of_claims(rule):
    for claim in RULES[rule].split():
        allowed, reason = limits.twin_rule(claim)
        assert (claim, allowed, bool(reason)) == (claim, rule, rule != "allowed")


def test_every_tag_has_a_reason_and_what_is_wrong_is_refused():
    assert all(limits.never(tag) for tag in limits.tags())
    with pytest.raises(UnknownKeyError) as caught:
        limits.never("acuracy")
    assert "accuracy" in caught.value.hint
    for text, word in (
        ("never: {}\nclaims: {p: [{match: [a], rule: never, tag: nothing}]}", "nothing"),
        ("never: {}\nclaims: {p: [{match: [a], rule: never}]}", "reason"),
        ("never: {}\nclaims: {p: [{match: [a], rule: maybe, reason: r}]}", "maybe"),
        ("never: {}\nclaims: {}\nmore: 1", "more"),
    ):
        with pytest.raises(DataError, match=word):
            limits.read_limits(text)
