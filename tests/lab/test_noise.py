"""Noise floors of claims: the A/A pairs that count for what an experiment measures."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.harness.store.row import Row
from dgbench.lab.compare import CONTROL
from dgbench.lab.noise import MIN_PAIRS, REFERENCE, NoisePairs
from dgbench.lab.table import observation
from dgbench.runtime.statistics import control_disturbed


def experiment(name: str, *claims: str, main: bool = False):
    return SimpleNamespace(name=name, claims=claims, main_race=object() if main else None)


PAPER = SimpleNamespace(
    name="p",
    experiments=(
        experiment("kernel", "small"),
        experiment("race", "fast", "both", main=True),
        experiment("long", "slow", "both"),
    ),
)
WHERE = [("p", "kernel"), ("p", "race"), ("p", "long"), REFERENCE, ("q", "race")]
RATIOS = st.lists(st.floats(0.5, 2.0), max_size=8)
PAIRS = st.fixed_dictionaries(dict.fromkeys(WHERE, RATIOS))


def floor(pairs, *experiments):
    return NoisePairs({where: some for where, some in pairs.items() if some}).floor(
        PAPER, experiments
    )


def several(ratio: float) -> list[float]:
    return [ratio, 1 / ratio] * MIN_PAIRS


def test_the_first_like_pairs_count():
    pairs = {("p", "kernel"): several(1.5), REFERENCE: several(1.02)}
    assert floor(pairs, "kernel") == pytest.approx(0.5)
    assert floor(pairs, "long") == pytest.approx(0.02)
    race = {**pairs, ("p", "race"): several(1.1)}
    assert floor(race, "long") == floor(race, "race") == floor(race) == pytest.approx(0.1)
    own = {**race, ("p", "long"): several(1.2)}
    assert floor(own, "long") == pytest.approx(0.2)
    assert floor(own, "long", "race") == pytest.approx(0.2)


def test_of_several_nodes_the_noisiest_that_ran_it_counts():
    def node(ratio: float, *ran: str):
        pairs = {REFERENCE: several(ratio)} if ratio else {}
        return NoisePairs(pairs), frozenset({REFERENCE, *(("p", name) for name in ran)})

    def floor_of(*nodes, of="kernel"):
        pooled = [one for pairs, _ in nodes for one in pairs.ratios.get(REFERENCE, ())]
        named = {f"n{number}": one for number, one in enumerate(nodes)}
        return NoisePairs({REFERENCE: pooled}, named).floor(PAPER, [of])

    quiet = [node(1.02, "kernel")] * 20
    assert floor_of(*quiet) == pytest.approx(0.02)
    # one pair in 21 is the noisy node's: less than all pairs together would notice
    assert floor_of(*quiet, node(1.5, "kernel")) == pytest.approx(0.5)
    assert floor_of(*quiet, node(1.5, "long")) == pytest.approx(0.02)
    assert floor_of(*quiet, node(0, "kernel")) == pytest.approx(0.02)
    assert floor_of(node(0, "kernel")) is None
    assert floor_of(node(1.02), node(1.1), of="long") == pytest.approx(0.1)


def test_lucky_pairs_are_not_below_the_median_of_like_ones():
    lucky = {("p", "long"): several(1.001), REFERENCE: [*several(1.1), *several(1.1)]}
    assert floor(lucky, "long") == pytest.approx(0.1)
    kernel = {("p", "long"): several(1.001), ("p", "kernel"): [*several(1.5), *several(1.5)]}
    assert floor(kernel, "long") == pytest.approx(0.001)


def test_few_pairs_are_those_of_another_and_at_last_all_of_the_run():
    few = {("p", "long"): [1.01] * (MIN_PAIRS - 1), ("p", "race"): several(1.1)}
    assert floor(few, "long") == pytest.approx(0.1)
    assert floor({("p", "kernel"): several(1.4)}, "long") == pytest.approx(0.4)
    assert floor({}, "long") is None


@given(PAIRS, st.sampled_from(WHERE), st.integers(0, 7), st.floats(1.0, 2.0))
def test_a_wider_pair_makes_no_floor_smaller(pairs, where, place, more):
    wider = {at: list(some) for at, some in pairs.items()}
    if place < len(wider[where]):
        ratio = wider[where][place]
        wider[where][place] = ratio * more if ratio >= 1 else ratio / more
    for name in ("kernel", "race", "long"):
        before = floor(pairs, name)
        assert before is None or floor(wider, name) >= before - 1e-12


def test_disturbed_pairs_count_only_where_there_are_too_few_others():
    def floor_of(count: int, ratio: float = 1.02) -> float:
        rows = [
            Row(id=str(n), paper="p", experiment="race", round=n, params=side,
                disturbed="a neighbour" if n == count and side else "",
                observed=[observation("step_time", 1.0, samples=[time])])
            for n in range(count + 1)
            for side, time in (({}, 1.0), ({CONTROL: "aa"}, 40.0 if n == count else ratio))
        ]  # fmt: skip
        return NoisePairs.of(rows).floor(PAPER, ["race"])

    assert floor_of(MIN_PAIRS) == pytest.approx(0.02)
    assert control_disturbed(floor_of(MIN_PAIRS - 1))
