"""Closeness of the twins to measurements on the held sets, and to printed statistics.

The reference values are constants (measured once on the real data with the functions of
`statistics`), so that these tests run without data.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import pytest

from dgbench.datasets import twins
from dgbench.datasets.twins import statistics as stats
from dgbench.datasets.twins.params import params


class Real(NamedTuple):
    """One held set at its window: distinct pairs, 90th degree percentiles, overlaps, ..."""

    pairs: int
    out90: int
    in90: int
    overlap: float
    vertices: float
    presence: float
    mean_list: float
    hub_list: int
    growth: tuple[float, float, float]  # non-zeros at edge-life 2, 5, 10
    burst: float
    reciprocity: float | None
    sampled: tuple[float, float]


REAL = {
    "wikipedia": Real(18257, 44, 253, 0.175, 0.369, 0.307, 2.76, 606, (1.68, 3.24, 5.06), 0.43,
                      None, (0.60, 0.37)),
    "college-msg": Real(20296, 115, 90, 0.100, 0.334, 0.277, 3.72, 191, (1.83, 4.12, 7.67), 0.50,
                        0.64, (0.56, 0.20)),
    "email-eu-core": Real(24929, 1003, 887, 0.224, 0.703, 0.703, 14.7, 911, (1.61, 2.87, 4.37),
                          0.61, 0.71, (0.84, 0.30)),
    "enron": Real(3125, 1601, 1399, 0.289, 0.612, 0.455, 23.5, 484, (1.56, 2.76, 4.26), 0.65,
                  0.61, (0.84, 0.41)),
    "sx-mathoverflow": Real(239978, 29, 35, 0.045, 0.308, 0.156, 2.55, 898, (1.91, 4.42, 8.19),
                            0.47, 0.35, (0.60, 0.26)),
    "bitcoin-otc": Real(35592, 14, 12, 0.0, 0.225, 0.083, 1.98, 165, (2.00, 4.99, 9.98), 0.40,
                        0.79, (0.42, 0.21)),
    "epinions-2011-ratings": Real(912441, 69, 5, 0.0004, 0.151, 0.187, 1.61, 606,
                                  (1.96, 4.51, 7.63), 0.39, None, (0.54, 0.38)),
    "amazon-magazine": Real(88318, 2, 66, 5e-5, 0.083, 0.022, 1.16, 422, (2.00, 4.99, 9.87), 0.17,
                            None, (0.16, 0.12)),
    "amlsim-20k-fanin200cycle200": Real(117341, 10, 11, 2e-5, 0.070, 0.583, 3.90, 229,
                                        (2.00, 4.99, 9.95), -0.05, 0.005, (0.28, 0.10)),
}  # fmt: skip

# Where a twin misses the general tolerance, what it reaches; each is a known limit of the model.
PRESENCE = {"bitcoin-otc": 2.4}  # one-visit vertices stay too long
HUB_LIST = {"epinions-2011-ratings": 1.65}  # late hubs do not exist
GROWTH = {"enron": 0.16}
RECIPROCITY = {"college-msg": 0.25, "email-eu-core": 0.37}  # mail above .5 is not reached
SLOW = {"sx-mathoverflow", "epinions-2011-ratings"}

SETS = [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in REAL]


@functools.cache
def made(name):
    row = params(name)
    stream = twins.generate(name)
    src, dst, t = stream.src.numpy(), stream.dst.numpy(), stream.t.numpy()
    return src, dst, t, stats.windows(t, row.window, row.snapshots), row.snapshots


def within(found, real, factor):
    return real / factor <= found <= real * factor


@pytest.mark.parametrize("name", SETS)
def test_pairs_and_degrees(name):
    src, dst, *_ = made(name)
    real = REAL[name]
    assert stats.distinct_pairs(src, dst) == pytest.approx(real.pairs, rel=0.03)
    assert within(stats.degree_percentiles(src)[1], real.out90, 1.3)
    assert within(stats.degree_percentiles(dst)[1], real.in90, 1.5)


@pytest.mark.parametrize("name", SETS)
def test_overlap_of_snapshots(name):
    src, dst, _, window, count = made(name)
    real = REAL[name]
    found = stats.overlap(src, dst, window)
    if real.overlap < 0.001:
        assert found < 0.01
    else:
        assert within(found, real.overlap, 1.4)
    assert within(stats.vertex_overlap(src, dst, window), real.vertices, 1.35)
    assert within(stats.presence(src, dst, window, count), real.presence, PRESENCE.get(name, 1.6))


@pytest.mark.parametrize("name", SETS)
def test_growth_under_edge_life(name):
    src, dst, _, window, count = made(name)
    for life, real in zip((2, 5, 10), REAL[name].growth, strict=True):
        found = stats.edge_life_growth(src, dst, window, count, life)
        assert found == pytest.approx(real, rel=GROWTH.get(name, 0.12))


@pytest.mark.parametrize("name", SETS)
def test_block_lists(name):
    src, dst, *_ = made(name)
    mean, longest = stats.lists(src, dst)
    assert mean == pytest.approx(REAL[name].mean_list, rel=0.12)
    assert within(longest, REAL[name].hub_list, HUB_LIST.get(name, 1.3))


@pytest.mark.parametrize("name", SETS)
def test_bursts_and_replies(name):
    src, dst, t, *_ = made(name)
    real = REAL[name]
    assert stats.burstiness(src, dst, t) == pytest.approx(real.burst, abs=0.12)
    if real.reciprocity is not None:
        found = stats.reciprocity(src, dst)
        assert found == pytest.approx(real.reciprocity, abs=RECIPROCITY.get(name, 0.1))


@pytest.mark.parametrize("name", SETS)
def test_sampled_sets_of_adjacent_rounds(name):
    src, dst, _, window, _ = made(name)
    nodes, edges = stats.sampled_overlap(src, dst, window)
    assert nodes == pytest.approx(REAL[name].sampled[0], abs=0.08)
    assert edges == pytest.approx(REAL[name].sampled[1], abs=0.08)


def plain_sets(src, dst, rounds):
    """Vertices and earlier events that each round touches where every earlier event is taken."""
    for r in range(rounds.max() + 1):
        here = np.flatnonzero(rounds == r)
        earlier = {
            one for e in here for one in range(e)
            if {src[e], dst[e]} & {src[one], dst[one]}
        }  # fmt: skip
        yield {v for e in (*here, *earlier) for v in (src[e], dst[e])}, earlier


@pytest.mark.parametrize("seed", range(4))
def test_overlap_of_sampled_sets_is_that_of_plain_sets(seed):
    draw = np.random.default_rng(seed)
    src, dst = draw.integers(0, 7, (2, 20))
    rounds = np.sort(draw.integers(0, 9, 20))  # some are empty
    wanted = []
    for sets in zip(*plain_sets(src, dst, rounds), strict=True):
        pairs = [(a, b) for a, b in itertools.pairwise(sets) if a or b]
        wanted.append(np.mean([len(a & b) / len(a | b) for a, b in pairs]))
    assert stats.sampled_overlap(src, dst, rounds, fanout=40) == pytest.approx(wanted)
    assert stats.sampled_overlap(src[:0], dst[:0], rounds[:0]) == (0.0, 0.0)


class Card(NamedTuple):
    """Printed statistics of a dataset that is not held; None where nothing is printed or the
    specification records that the twin does not reach it."""

    scale: float
    pairs: float | None
    pairs_within: float
    hub: tuple[float | None, float | None]  # at this scale
    balance: tuple[float, float] | None = None
    gini: float | None = None
    reciprocity: float | None = None


CARDS = {
    "flickr": Card(0.03, 1.0, 0.01, (7.956e-4, None), gini=0.880, reciprocity=0.622),
    "youtube": Card(0.06, 1.0, 0.01, (0.00489, None), gini=0.729),
    "amz-automotive": Card(0.4, 1.0, 0.01, (None, None)),
    "epinions": Card(0.0732, 1.0, 0.01, (0.01186, None), (0.071, 0.271)),
    "hepth": Card(0.3, 0.86, 0.04, (None, None), gini=0.684),
    "reddit": Card(1.0, 0.1168, 0.02, (0.007, 0.086)),
    "lastfm": Card(0.5, 0.1199, 0.06, (None, None)),
    "mooc": Card(1.0, 0.4334, 0.02, (None, None)),
    "netflix": Card(0.007, 0.965, 0.02, (0.0021, None), (0.267, 0.148)),
    "amazon": Card(0.12, 0.984, 0.02, (0.00209, 0.000539), (0.277, 0.236)),
    "movie": Card(0.03, 0.965, 0.03, (0.00493, None), (0.22, 0.09)),
    "stack": Card(0.0209, None, 0.0, (0.00212, 0.00194), (0.136, 0.180), reciprocity=0.407),
    "twitter": Card(0.0005, 0.87, 0.04, (None, 0.00204), (0.20, 0.14), reciprocity=0.362),
}


@pytest.mark.parametrize("name", CARDS)
def test_printed_statistics(name):
    """Hubs of one seed vary by 12 to 20 %, so the tolerance on one draw is 30 %."""
    card = CARDS[name]
    stream = twins.generate(name, card.scale)
    src, dst = stream.src.numpy(), stream.dst.numpy()
    if card.pairs is not None:
        share = _pairs(name, src, dst) / len(src)
        assert share == pytest.approx(card.pairs, rel=card.pairs_within)
    for ids, hub in zip((src, dst), card.hub, strict=True):
        if hub is not None:
            assert stats.hub(ids) == pytest.approx(hub, rel=0.3)
    if card.balance is not None:
        for ids, target in zip((src, dst), card.balance, strict=True):
            assert stats.balance(stats.degrees(ids)) == pytest.approx(target, abs=0.03)
    if card.gini is not None:
        total = stats.degrees(np.concatenate([src, dst]))
        assert stats.gini(total) == pytest.approx(card.gini, abs=0.03)
    if card.reciprocity is not None:
        assert stats.reciprocity(src, dst) == pytest.approx(card.reciprocity, abs=0.12)


def _pairs(name, src, dst):
    if name == "hepth":  # printed for undirected pairs
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return stats.distinct_pairs(src, dst)


@pytest.mark.parametrize("name", ["reddit", "amazon", "youtube", "hepth"])
def test_scaling_keeps_the_shape(name):
    """A quarter and a sixteenth of a size keep pairs and balance. Presence moves by up to 28 % at
    a quarter, and more at a sixteenth, where short memories are only tens of events long. Where
    vertices scale with the root, the mean degree changes and presence with it."""
    row = params(name)
    top = min(1.0, 8e5 / row.events)
    seen = []
    for scale in (top, top / 4, top / 16):
        stream = twins.generate(name, scale)
        src, dst = stream.src.numpy(), stream.dst.numpy()
        window = stats.windows(stream.t.numpy(), row.window, row.snapshots)
        seen.append(
            (
                stats.distinct_pairs(src, dst) / len(src),
                stats.balance(stats.degrees(src)),
                stats.presence(src, dst, window, row.snapshots),
            )
        )
    for pairs, balance, _ in seen[1:]:
        assert pairs == pytest.approx(seen[0][0], abs=0.05)
        assert balance == pytest.approx(seen[0][1], abs=0.05)
    if row.exponent == 1:
        assert seen[1][2] == pytest.approx(seen[0][2], rel=0.3)
