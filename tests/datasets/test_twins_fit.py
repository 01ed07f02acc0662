"""Closeness of the twins to measurements on the held sets, and to printed statistics.

The reference values are constants (measured once on the real data with the functions of
`statistics`), so that these tests run without data.
"""

from typing import NamedTuple

import pytest

from dgbench.datasets import twins
from dgbench.datasets.twins import statistics as stats
from dgbench.datasets.twins.params import params


class Real(NamedTuple):
    """One held set at its window."""

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
    "bitcoin-otc": Real(35592, 14, 12, 0.0, 0.225, 0.083, 1.98, 165, (2.00, 4.99, 9.98), 0.40,
                        0.79, (0.42, 0.21)),
    "amazon-magazine": Real(88318, 2, 66, 5e-5, 0.083, 0.022, 1.16, 422, (2.00, 4.99, 9.87), 0.17,
                            None, (0.16, 0.12)),
    "amlsim-20k-fanin200cycle200": Real(117341, 10, 11, 2e-5, 0.070, 0.583, 3.90, 229,
                                        (2.00, 4.99, 9.95), -0.05, 0.005, (0.28, 0.10)),
}  # fmt: skip

# Where a twin misses the general tolerance, what it reaches; each is a known limit of the model.
LIMITS = {
    ("bitcoin-otc", "presence"): 2.4,  # one-visit vertices stay too long
    ("enron", "growth"): 0.16,
    ("college-msg", "reciprocity"): 0.25,  # mail above .5 is not reached
    ("email-eu-core", "reciprocity"): 0.37,
}


SAMPLE = ("college-msg", "enron")


@pytest.mark.parametrize(
    "name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.nightly) for n in REAL]
)
def test_a_twin_is_close_to_what_was_measured(name):
    row, real, stream = params(name), REAL[name], twins.generate(name)
    src, dst, t = stream.src.numpy(), stream.dst.numpy(), stream.t.numpy()
    window, count = stats.windows(t, row.window, row.snapshots), row.snapshots

    def within(value, wanted, factor, what=""):
        factor = LIMITS.get((name, what), factor)
        assert wanted / factor <= value <= wanted * factor, what

    def near(value, wanted, what="", **by):
        by = {kind: LIMITS.get((name, what), size) for kind, size in by.items()}
        assert value == pytest.approx(wanted, **by), what

    near(stats.distinct_pairs(src, dst), real.pairs, rel=0.03)
    within(stats.degree_percentiles(src)[1], real.out90, 1.3)
    within(stats.degree_percentiles(dst)[1], real.in90, 1.5)
    if real.overlap < 0.001:
        assert stats.overlap(src, dst, window) < 0.01
    else:
        within(stats.overlap(src, dst, window), real.overlap, 1.4)
    within(stats.vertex_overlap(src, dst, window), real.vertices, 1.35)
    within(stats.presence(src, dst, window, count), real.presence, 1.6, "presence")
    for life, growth in zip((2, 5, 10), real.growth, strict=True):
        near(stats.edge_life_growth(src, dst, window, count, life), growth, "growth", rel=0.12)
    mean, longest = stats.lists(src, dst)
    near(mean, real.mean_list, rel=0.12)
    within(longest, real.hub_list, 1.3)
    near(stats.burstiness(src, dst, t), real.burst, abs=0.12)
    if real.reciprocity is not None:
        near(stats.reciprocity(src, dst), real.reciprocity, "reciprocity", abs=0.1)
    near(stats.sampled_overlap(src, dst, window), real.sampled, abs=0.08)
