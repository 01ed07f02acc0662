"""ESDG's ledger, checks and experiments hang together, and its claims can be judged."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace

import pytest
from msgspec import structs
from paper_rows import entries_of, small_rows

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide, is_factor, tolerance_of
from dgbench.lab.evidence import Conditions
from dgbench.lab.printed import as_printed, printed
from dgbench.systems.base import Finding
from dgbench.systems.esdg import PAPER, claims
from dgbench.systems.esdg.claims import on_stand_ins
from dgbench.systems.esdg.experiments.settings import PAPERS_GRAPHS

PRESETS = ("smoke", "quick", "full", "paper")
LEDGER = load_ledger(PAPER.ledger)
BY_ID = {claim.id.removeprefix("esdg-"): claim for claim in LEDGER}
COUNTS = 67
SHOWN = {"fig5", "fig7"}
"""Experiments whose timed pairs are drawn beside projections; no claim rests on them."""

FACTORS = {
    "abs-strong-scaling", "abs-gd-transfer", "s62-cdgcn-gd",
    "s63-weak-tmgcn", "s63-weak-cdgcn", "s63-weak-evolvegcn",
    "s62-gd-order-smoothing", "fig5-node-boundary-drop",
    # Orders without a unit: a ratio of what is compared, neutral at 1.
    "s31-fewer-blocks-faster", "s62-gd-gains-shrink", "s41-vertex-volume-grows",
    "fig5-comm-bottleneck", "s63-recovers-with-nodes", "s1-sublinear-nodes",
    "s32-transfer-important", "s63-weak-drop", "tab2-cross-tmgcn", "tab2-cross-cdgcn",
    "tab2-egcn-superior",
}  # fmt: skip
TARGETS = {
    "abs-strong-scaling": 30.0, "abs-gd-transfer": 4.1, "abs-gd-overall": 40.0,
    "s62-cdgcn-gd": 2.0, "s63-weak-tmgcn": 125.0, "s63-weak-cdgcn": 79.0,
    "s63-weak-evolvegcn": 260.0, "s31-oom-below-8": 8.0, "s32-transfer-twice": 2.0,
    "s64-theta": 0.1,
}  # fmt: skip


def test_every_claim_has_exactly_one_check_of_its_own() -> None:
    assert len(LEDGER) == len(BY_ID) == COUNTS
    assert all(claim.id.startswith("esdg-") for claim in LEDGER)
    assert set(PAPER.checks) == {claim.id for claim in LEDGER}
    assert entries_of(claims, "TABLE") == COUNTS
    for name, check in PAPER.checks.items():
        own = inspect.unwrap(check)
        assert own.__module__.startswith("dgbench.systems.esdg.checks."), name


def test_factors_are_what_is_neutral_at_one() -> None:
    assert {name for name, claim in BY_ID.items() if is_factor(claim)} == FACTORS


def test_counts_are_exact_unless_the_printed_digits_leave_room() -> None:
    kinds = {"volume", "dataset_stat", "complexity"}
    for name, claim in BY_ID.items():
        if claim.kind not in kinds or (claim.unit or "").startswith("fraction"):
            continue
        if claim.tolerance is None:
            assert tolerance_of(claim) == 0, name
    for name, digits in (("tmgcn", {4: 5.184, 16: 6.48, 64: 6.804}),
                         ("cdgcn", {4: 13.824, 16: 17.28, 64: 18.144})):  # fmt: skip
        claim = BY_ID[f"tab2-volume-{name}"]
        for ranks, found in digits.items():
            paper = claim.value[ranks]
            assert as_printed(found, paper)
            assert claim.definition  # T and the number of passes were chosen so


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_printed_numbers_are_compared(name) -> None:
    claim, target = BY_ID[name], TARGETS[name]

    def verdict(value, **more):
        given = {"low": value * 0.99, "high": value * 1.01, **more}
        found = Conditions(device="cuda", gpus=128, data="real", processes=5, seeds=5)
        return decide(claim, Finding(measured=value, target=target, **given), found)

    if claim.bound == "upper":
        assert verdict(target / 2).glyph == "R"
        assert verdict(target * 1.6).glyph == "X"
        return
    assert verdict(target).glyph == "R"
    if name not in FACTORS:
        return
    assert verdict(target * 1.6).glyph == "d"
    assert verdict(0.5).glyph == "X"
    assert verdict(1.0, low=0.9, high=1.1).glyph == "u"


def test_a_saving_of_nothing_contradicts_no_saving() -> None:
    claim = BY_ID["abs-gd-overall"]
    found = Finding(measured=-1.0, low=-4.0, high=2.0, target=40.0)
    assert decide(claim, found).glyph == "u"
    worse = Finding(measured=-9.0, low=-12.0, high=-6.0, target=40.0)
    assert decide(claim, worse).agreement == "opposite"


DEFINED = {
    "s1-max-system", "s61-settings", "s62-gd-benefit-fraction", "s63-inter-node-share",
    "s65-idle-when-t-small", "s63-weak-sizes", "s63-weak-n", "s54-window-equivalence",
    "fig4-components", "tab2-volume-tmgcn", "tab2-volume-cdgcn",
}  # fmt: skip


def test_what_no_measurement_decides_is_by_definition() -> None:
    assert {name for name, claim in BY_ID.items() if claim.definition} == DEFINED


@pytest.mark.parametrize(
    ("text", "number", "half"),
    [
        (5.2, 5.2, 0.05), (5.0, 5.0, 0.05), (0, 0.0, 0.5), ("0.0", 0.0, 0.05), (125, 125.0, 0.5),
        ("653 M", 653e6, 0.5e6), ("2.1B", 2.1e9, 0.05e9), ("16M", 16e6, 0.5e6),
        ("63.8%", 63.8, 0.05), ("755 K", 755e3, 500.0),
    ],
)  # fmt: skip
def test_printed_digits(text, number, half) -> None:
    assert printed(text) == (pytest.approx(number), pytest.approx(half))
    assert as_printed(number + half, text)
    assert as_printed(number - half, text)
    assert not as_printed(number + 1.01 * half, text)


def test_other_graphs_take_no_part_in_claims_about_the_papers() -> None:
    names = ("epinions", "amlsim-20k-fanin200", "random", "sx-mathoverflow", "bitcoin-otc", None)
    rows = [SimpleNamespace(params={"dataset": name} if name else {}) for name in names]
    seen = []

    def check(claim, rows):
        seen.append([row.params.get("dataset") for row in rows])
        return Finding(reason="looked")

    wrapped = on_stand_ins(check)
    wrapped(BY_ID["s62-gd-gains-shrink"], rows)
    wrapped(BY_ID["s32-gd-bytes"], rows)  # a formula holds on any graph
    assert seen[0] == ["epinions", "amlsim-20k-fanin200", "random", None]
    assert seen[1] == list(names)
    assert not PAPERS_GRAPHS.has("amlsim-20k-fanin200")  # other data, which decides weakly
    assert PAPERS_GRAPHS.has("amlsim")


@pytest.mark.nightly
@pytest.mark.parametrize("experiment", PAPER.experiments, ids=lambda e: e.name)
def test_small_cells_run_and_can_be_drawn(experiment) -> None:
    rows = small_rows(experiment, 2)
    if not rows:
        pytest.skip("its data is not held here")
    for row in rows:
        assert row.observations or row.status != "ok"
        assert all(math.isfinite(one.value) for one in row.observations), row.observations
    for figure in experiment.figures():
        for point in figure.points(rows):
            printed_value = point.get("paper") or str(point.get("series")).endswith(", paper")
            assert "row_ids" in point or point.get("failed") or printed_value
    assert isinstance(experiment.answer(rows), str)
    quick = [structs.replace(row, preset="quick") for row in rows]
    for claim in LEDGER:
        assert isinstance(PAPER.checks[claim.id](claim, quick), Finding)
