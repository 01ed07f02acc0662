"""No time and no ratio is of an instrumented process: its clocks measure the probes, too."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.store import Store
from dgbench.lab.metrics import metric
from dgbench.systems.base import get_paper
from tests.golden.record import remembering

KEPT = Path(__file__).parents[2] / "results" / "reference"
RUNS = [*{p.parent.name: p.parent for p in sorted(KEPT.glob("*/*/run.json"), reverse=True)
          if p.parent.name != "operators"}.values()]  # fmt: skip
"""A run of each paper."""

SPLITS = ("time_split",)
"""Kinds of figures that are made of instrumented processes, and say so."""
SHARES = {("pipad", "fig3"), ("pipad", "fig4")}
"""Experiments whose answer is a share of a step's phases."""
SHARE_CLAIMS = {"pipad-s1-transfer-share-approx", "pipad-fig3-transfer-share"}
"""Claims about such a share."""


def slow(row):
    """The row of an instrumented process in which everything took ten times as long."""
    observed = [
        msgspec.structs.replace(one, value=10 * one.value, samples=[10 * s for s in one.samples])
        if not metric(one.metric).exact
        else one
        for one in row.observations
    ]
    return msgspec.structs.replace(row, id=f"{row.id}i", instrumented=True, observed=observed)


@pytest.mark.skipif(not RUNS, reason="no checkout: kept runs do not travel")
@pytest.mark.parametrize("folder", RUNS, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_nothing_but_phases_looks_at_an_instrumented_process(folder):
    paper = get_paper(folder.name)
    kept = [row for row in Store.open(folder).rows() if row.paper == paper.name]
    plain = [row for row in kept if not row.instrumented]
    both = plain + [slow(row) for row in plain if row.ok]
    with remembering():
        looked = [
            claim.id
            for claim in load_ledger(paper.ledger)
            if claim.id not in SHARE_CLAIMS
            and paper.checks[claim.id](claim, both) != paper.checks[claim.id](claim, plain)
        ]
    for experiment in paper.experiments:
        if (folder.name, experiment.name) in SHARES:
            continue
        mine = [row for row in plain if row.experiment == experiment.name]
        beside = [row for row in both if row.experiment == experiment.name]
        looked += [
            f"{experiment.name}: {figure.name}"
            for figure in experiment.figures()
            if figure.kind not in SPLITS and figure.points(beside) != figure.points(mine)
        ]
        if experiment.answer(beside) != experiment.answer(mine):
            looked.append(f"{experiment.name}: its answer")
    assert looked == []
