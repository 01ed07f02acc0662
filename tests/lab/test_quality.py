"""Quality of models by seed: pairs, intervals, the dictionary, and what is not said."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from dgbench.harness.claims.evaluate import stamp_quality
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.trainings import with_trainings
from dgbench.lab.main_race import MainRace, RaceComparison
from dgbench.lab.quality import (
    MIN_SEEDS,
    observed_quality,
    quality,
    scores_by_seed,
    seed_difference,
)  # fmt: skip
from dgbench.lab.table import Table, observation

SEEDS = range(1, MIN_SEEDS + 1)
WOBBLE = dict(zip(SEEDS, (-0.01, 0.01, 0.0, 0.01, -0.01), strict=True))


def about(mean: float, shift: float = 0.0) -> dict[int, float]:
    """Scores around a mean that vary with the seed, all in the same direction."""
    return {seed: mean + WOBBLE[seed] + shift * seed for seed in SEEDS}


def test_the_interval_is_that_of_a_paired_t_test():
    gaps = [0.1, 0.2, 0.15, 0.12, 0.18]
    first = dict(zip(SEEDS, (0.5 + gap for gap in gaps), strict=True))
    found = seed_difference(first, dict.fromkeys(SEEDS, 0.5))
    mean = sum(gaps) / 5
    error = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / 4 / 5)
    assert (found.value, found.n) == (pytest.approx(mean), 5)
    assert found.high - mean == pytest.approx(2.7764451 * error)
    assert mean - found.low == pytest.approx(2.7764451 * error)


def test_seeds_are_paired_and_too_few_say_nothing():
    # Over unpaired seeds the spread of 0.01 would hide a difference of 0.001.
    assert seed_difference(about(0.501, 1e-6), about(0.5)).side == 1
    other = {seed + 100: value for seed, value in about(0.5).items()}
    assert seed_difference(about(0.5), other) is None
    four = dict.fromkeys(list(SEEDS)[1:], 0.5)
    assert seed_difference(about(0.5), four) is None
    assert seed_difference(about(0.5) | {1: math.nan}, about(0.4)) is None
    assert quality("mrr", four, about(0.5)) is None
    assert quality("mrr", about(0.5)) is None


@pytest.mark.parametrize(
    ("mine", "word", "text"),
    [
        (about(0.6, 1e-6), "better", "better by 0.100"),
        (about(0.4, 1e-6), "worse", "worse by 0.100"),
        ({s: 0.5 - WOBBLE[s] for s in SEEDS}, "same", "same ["),
        (about(0.2, 1e-6), "below the dictionary", "below the dictionary: MRR 0.200 against 0.300"),
    ],
)
def test_four_verdicts(mine, word, text):
    dictionaries = {"edgebank": {None: 0.3}, "popularity": {None: 0.1}}
    found = quality("mrr", mine, about(0.5), dictionaries)
    assert found.word == word
    assert str(found).startswith(text)
    assert found.method == "edgebank"
    assert found.below == (word == "below the dictionary")


def test_the_dictionary_alone_decides_for_a_contender_without_a_reference():
    below = quality("mrr", about(0.2), None, {"edgebank": {None: 0.3}})
    assert (below.word, below.reference) == ("below the dictionary", None)
    above = quality("mrr", about(0.4), None, {"edgebank": {None: 0.3}})
    assert (above.word, str(above)) == (None, "")
    # An interval that holds the dictionary's score is not below it.
    assert quality("mrr", about(0.3), None, {"edgebank": {None: 0.3}}).word is None


def row_of(name: str, params: dict, *observed, experiment: str = "quality", **fields):
    return SimpleNamespace(
        id=name, paper="p", experiment=experiment, group="g", round=0, device="cpu",
        preset="full", status="ok", reason="", instrumented=False, params=params,
        observations=list(observed), deviation={}, data={}, **fields,
    )  # fmt: skip


def quality_rows(mean: float, dictionary: float) -> list:
    trained = [
        row_of(
            f"s{seed}", {"dataset": "d", "model": "tgn", "seed": seed},
            observation("mrr", mean + WOBBLE[seed]),
            observation("mrr", 0.99, statistic="optimistic"),
        )
        for seed in SEEDS
    ]  # fmt: skip
    plain = row_of(
        "b", {"dataset": "d"},
        observation("mrr", dictionary, method="edgebank"),
        observation("mrr", 0.1, method="popularity"),
    )  # fmt: skip
    other = row_of("x", {"dataset": "other"}, observation("mrr", 1.0, method="edgebank"))
    return [*trained, plain, other]


READER = observed_quality(contender={"model": "tgn"})
WORKLOAD = {"dataset": "d", "model": "tgn"}


def test_quality_is_read_from_rows_of_the_same_dataset():
    found = READER(quality_rows(0.2, 0.5), WORKLOAD)
    assert (found.below, found.method, found.method_score) == (True, "edgebank", 0.5)
    assert not READER(quality_rows(0.6, 0.5), WORKLOAD).below
    assert READER([], WORKLOAD) is None
    assert READER(quality_rows(0.2, 0.5), {"dataset": "d", "model": "tgat"}) is None
    table = Table.of(quality_rows(0.2, 0.5)).where("mrr", statistic=None, method=None)
    assert scores_by_seed(table) == pytest.approx(about(0.2))


def paper_with(reader):
    comparison = RaceComparison(
        subject="A", rival="B", ratio=lambda rows, workload: None, quality=reader
    )
    race = MainRace(verb="trains", comparisons=(comparison,))
    return SimpleNamespace(experiments=[SimpleNamespace(name="speed", main_race=race)])


@pytest.mark.parametrize(("mean", "said"), [(0.2, True), (0.6, False)])
def test_a_verdict_about_speed_says_what_the_model_has_learned(mean, said):
    timed = row_of("t", WORKLOAD, experiment="speed")
    rows = [timed, *quality_rows(mean, 0.5)]
    verdict = Verdict(
        id="c", verdict="reproduced", glyph="R", reason="1.9x", source="timed", rows=("t",)
    )
    claim = SimpleNamespace(kind="speedup")
    found = stamp_quality(paper_with(READER), claim, verdict, rows)
    assert ("the model predicts below the dictionary" in found.reason) == said
    assert (found.verdict, found.glyph) == ("reproduced", "R")
    for untouched in (
        stamp_quality(paper_with(None), claim, verdict, rows),
        stamp_quality(paper_with(READER), SimpleNamespace(kind="volume"), verdict, rows),
        stamp_quality(paper_with(READER), claim, verdict, [timed]),
        stamp_quality(paper_with(lambda *_: 1 / 0), claim, verdict, rows),
    ):
        assert untouched == verdict


def test_trainings_of_other_runs_stand_beside_speeds_on_the_same_real_data():
    kept = [
        SimpleNamespace(**{**vars(row), "preset": "quality", "data": {"dataset": "d"}})
        for row in quality_rows(0.2, 0.5)
    ]

    def timed(**data):
        return SimpleNamespace(**{**vars(row_of("t", WORKLOAD, experiment="speed")), "data": data})

    real, twin = timed(dataset="d", twin=False), timed(dataset="d", twin=True)
    assert READER(with_trainings([real], kept), WORKLOAD).below
    for rows in ([], [twin], [real, twin], [timed(dataset="other", twin=False)], [timed()]):
        assert with_trainings(rows, kept) == rows
    own = [real, *kept[:1]]
    assert with_trainings(own, kept) == own, "a run that trained models is judged by these"
