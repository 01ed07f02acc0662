"""Limits of twins as evidence, and the lengthened sensor series."""

import numpy as np
import pytest

from dgbench.datasets.twins import limits
from dgbench.datasets.twins.flow import lengthen
from dgbench.runtime.errors import DataError, InvalidInputError, UnknownKeyError


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


def held(frames=288 * 10, sensors=6, kind=np.int16):
    """A daily wave with sensor levels and noise, like traffic."""
    rng = np.random.default_rng(0)
    wave = 1 + np.sin(np.arange(frames) * 2 * np.pi / 288)[:, None]
    flow = 100 * wave * np.arange(1, sensors + 1) + rng.normal(0, 20, (frames, sensors))
    return np.maximum(flow, 0).astype(kind)


def test_held_frames_stay_and_the_rest_follows_the_daily_profile():
    flow = held()
    out = lengthen(flow, 288 * 40, first=288 * 25)
    assert out.shape == (288 * 40, 6)
    assert out.dtype == flow.dtype
    assert np.array_equal(out[288 * 25 : 288 * 35], flow)
    assert out.min() >= 0
    new = out[: 288 * 25].reshape(25, 288, 6).mean(0)
    old = flow.reshape(10, 288, 6).mean(0)
    for sensor in range(6):
        assert np.corrcoef(new[:, sensor], old[:, sensor])[0, 1] > 0.97


def test_residual_persists_and_is_shared():
    """With a profile of level 1000 and spread about 50 nothing is cut at zero."""
    rng = np.random.default_rng(1)
    flow = 1000 + 50 * rng.normal(size=(288 * 30, 4))
    out = lengthen(flow, 288 * 200, first=0)[288 * 30 :]
    phase = out.reshape(-1, 288, 4)
    residual = (phase - phase.mean(0)).reshape(-1, 4)
    lag = np.corrcoef(residual[1:, 0], residual[:-1, 0])[0, 1]
    assert lag == pytest.approx(0.885, abs=0.02)
    assert np.corrcoef(residual[:, 1], residual[:, 3])[0, 1] == pytest.approx(0.49, abs=0.06)


def test_an_offset_start_keeps_the_time_of_day():
    flow = held()
    out = lengthen(flow[100:-88], 288 * 12, first=100)
    assert np.abs(out[:100].mean(0) / flow[:100].mean(0) - 1).max() < 0.1


def test_a_lengthened_series_is_the_same_again():
    assert np.array_equal(lengthen(held(), 4000, seed=3), lengthen(held(), 4000, seed=3))
    assert not np.array_equal(lengthen(held(), 4000, seed=3), lengthen(held(), 4000, seed=4))


@pytest.mark.parametrize(
    ("flow", "frames", "kwargs", "word"),
    [
        (held()[:100], 4000, {}, "at least a day"),
        (held()[:, 0], 4000, {}, "shape"),
        (held(), 100, {}, "must fit"),
        (held(), 4000, {"first": 3000}, "must fit"),
        (np.full((288, 2), np.nan), 4000, {}, "not finite"),
        (held(), 4000, {"persistence": 1.0}, "persistence"),
    ],
)
def test_bad_series_are_refused(flow, frames, kwargs, word):
    with pytest.raises(InvalidInputError, match=word):
        lengthen(flow, frames, **kwargs)
