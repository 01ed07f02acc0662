"""No time and no ratio is of an instrumented process: its clocks measure the probes, too."""

from __future__ import annotations

import msgspec
import pytest

from dgbench.harness.claims.ledger import load_ledger
from dgbench.lab.metrics import metric
from dgbench.systems.base import get_paper
from tests.golden.record import KEPT, PAPERS, kept_runs

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
        for one in row.observed
    ]
    return msgspec.structs.replace(row, id=f"{row.id}i", instrumented=True, observed=observed)


@pytest.mark.skipif(not KEPT.is_dir(), reason="no checkout: kept runs do not travel")
@pytest.mark.parametrize("name", ["arena", *PAPERS])
def test_nothing_but_phases_looks_at_an_instrumented_process(name):
    paper = get_paper(name)
    run = next(iter(kept_runs(name).values()))
    kept = [row for row in run.everything if row.paper == name]
    plain = [row for row in kept if not row.instrumented]
    both = plain + [slow(row) for row in plain if row.ok]
    looked = [
        claim.id
        for claim in load_ledger(paper.ledger)
        if claim.id not in SHARE_CLAIMS
        and paper.checks[claim.id](claim, both) != paper.checks[claim.id](claim, plain)
    ]
    for experiment in paper.experiments:
        if (name, experiment.name) in SHARES:
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
