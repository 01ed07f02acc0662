"""Invariants of every registered paper: ledger, checks, experiments, figures and techniques."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import msgspec
import pytest
from paper_rows import failed_rows

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import decide
from dgbench.harness.plan import Plan
from dgbench.lab.evidence import Conditions, Scope
from dgbench.systems.arena.entrants import own_systems
from dgbench.systems.base import Finding
from dgbench.systems.base.registry import get_paper
from dgbench.systems.pipad.ladders import OURS

CLAIMS = {"dgc": 104, "esdg": 67, "gnnflow": 101, "operators": 23, "pipad": 85, "tgcn": 82}
PRESETS = ("smoke", "quick", "full", "paper")
ALONE = {"pipad/preparation", "pipad/fig12", "pipad/epochs"}
"""Experiments whose cells are repeated for the spread over processes and are compared with none."""
SHOWN = {"esdg/fig5", "esdg/fig7", "dgc/fig5c"}
"""Experiments whose timed pairs are drawn beside projections; no claim rests on them."""

PAPERS = {name: get_paper(name) for name in CLAIMS}
LEDGERS = {name: load_ledger(paper.ledger) for name, paper in PAPERS.items()}
EXPERIMENTS = {f"{n}/{e.name}": e for n, paper in PAPERS.items() for e in paper.experiments}

per_paper = pytest.mark.parametrize("paper", PAPERS)
per_experiment = pytest.mark.parametrize("name", EXPERIMENTS)


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "papers"))
    monkeypatch.delenv("DGBENCH_DATA", raising=False)


@per_paper
def test_every_claim_has_a_check_and_a_name_of_its_own(paper) -> None:
    ids = [claim.id for claim in LEDGERS[paper]]
    assert len(ids) == len(set(ids)) == CLAIMS[paper]
    assert set(PAPERS[paper].checks) == set(ids)
    assert all(name.startswith(f"{paper}-") for name in ids)


class AskedName(str):
    """Name of an experiment that notes what it is compared with."""

    asked: ClassVar[set[str]] = set()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.asked.add(str.__str__(other))
        return str.__eq__(self, other)


@per_paper
def test_experiments_declare_the_claims_whose_checks_read_their_rows(paper) -> None:
    """A plan for a device orders experiments by the claims that they may decide."""
    declared = {e.name: set(e.claims) for e in PAPERS[paper].experiments}
    assert set().union(*declared.values()) <= {claim.id for claim in LEDGERS[paper]}
    rows = [
        msgspec.structs.replace(row, experiment=AskedName(row.experiment))
        for experiment in PAPERS[paper].experiments
        for row in failed_rows(experiment)
    ]
    for claim in LEDGERS[paper]:
        AskedName.asked.clear()
        PAPERS[paper].checks[claim.id](claim, rows)
        for name in AskedName.asked & set(declared):
            assert claim.id in declared[name], name


COUNTED = Conditions(source="counted")


@per_paper
def test_every_claim_can_be_judged(paper) -> None:
    """Strong and weak evidence decide either way, a twin what its rule leaves."""
    projected, twin = Conditions(source="projected", model="m"), Conditions(data="twin")
    twins = {"allowed": "RX", "direction": "SO", "never": "--"}
    for claim in LEDGERS[paper]:
        rule = twin_rule(claim.id)

        def glyph(holds=True, found=COUNTED, *, claim=claim, rule=rule, **more):
            finding = Finding(measured="words", holds=holds, **more)
            return decide(claim, finding, found, twin_rule=rule).glyph

        if claim.definition:
            assert glyph(False) == "=", claim.id
            continue
        decided = [glyph(), glyph(False), glyph(deviation=1e-3), glyph(undecided=True)]
        assert "".join(decided) == "RXdu", claim.id
        assert glyph(True, projected) + glyph(False, projected) == "SO", claim.id
        expected = twins[Scope.of(claim, rule).twin]
        assert glyph(True, twin) + glyph(False, twin) == expected, claim.id


@per_paper
def test_without_rows_every_claim_says_what_it_needs(paper) -> None:
    for claim in LEDGERS[paper]:
        found = PAPERS[paper].checks[claim.id](claim, [])
        assert isinstance(found, Finding)
        assert found.empty, claim.id
        assert found.reason, claim.id
    judged = evaluate(PAPERS[paper], [])
    assert not judged.warnings
    assert len(judged.verdicts) == CLAIMS[paper]
    assert {v.glyph for v in judged.verdicts} <= {"-", "="}


@per_experiment
def test_cells_are_distinct_and_pairs_share_a_group(name) -> None:
    experiment = EXPERIMENTS[name]
    for preset, device in product(PRESETS, ("cpu", "cuda")):
        cells = experiment.cells(preset, device)
        assert cells or (preset == "quick" and not experiment.claims)
        keys = {tuple(sorted((k, repr(v)) for k, v in cell.params.items())) for cell in cells}
        assert len(keys) == len(cells)
        for cell in cells:
            assert f"{cell.paper}/{cell.experiment}" == name
            if cell.repeats > 1:
                others = [c for c in cells if c.group == cell.group and c.repeats == cell.repeats]
                alone = cell.interleaved or name in ALONE
                assert len(others) > 1 or alone, f"{cell.params} has nothing to be paired with"
                assert cell.repeats >= 5 or preset == "smoke" or name in SHOWN


@per_experiment
def test_experiments_without_rows_and_with_failed_ones(name) -> None:
    """Cells that failed are drawn as gaps."""
    experiment = EXPERIMENTS[name]
    assert experiment.title
    assert experiment.question.endswith("?")
    figures, failed = experiment.figures(), failed_rows(experiment)
    assert all(figure.points([]) == [] for figure in figures)
    # Table 1 of PiPAD says without rows which graphs are at hand.
    assert experiment.answer([]) == "" or name == "pipad/table1"
    for point in (p for figure in figures for p in figure.points(failed)):
        printed = point.get("paper") or str(point.get("series")).endswith(", paper")
        assert printed or point.get("failed") == "oom: 21.9 of 24.0 GiB", point


# --- techniques -----------------------------------------------------------------------------------

SYSTEMS = own_systems()
RACED_WITH_OURS = {"pipad": set(OURS)}
"""Additions that are on by default: rows call the system with them by its registered name, and its
published form by another one."""


@pytest.mark.parametrize("name", [name for name, one in SYSTEMS.items() if one.techniques])
def test_what_is_ours_is_off_unless_asked_for(name: str) -> None:
    for one in SYSTEMS[name].techniques:
        assert one.source.startswith(("added", "ours", "dgbench")) is one.ours
    on = {one.name for one in SYSTEMS[name].techniques if one.ours and one.default}
    assert on == RACED_WITH_OURS.get(name, set())


# --- devices --------------------------------------------------------------------------------------

ON_THE_HOST = {
    "gnnflow": ("fig12", "fig14", "fig15", "table7", "sampling_ablation", "cache_ablation"),
    "tgcn": ("fig7",),
}
"""Rows of theirs once said 'cuda'."""


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_experiments_that_time_the_host_are_planned_there(name: str) -> None:
    wanted = ON_THE_HOST[name]
    plans = {
        device: Plan.build([get_paper(name)], wanted, "quick", device, control="none", gpus=1)
        for device in ("cpu", "cuda")
    }
    assert {planned.cell.device for planned in plans["cuda"].cells} == {"cpu"}
    assert {planned.cell.experiment for planned in plans["cuda"].cells} == set(wanted)
    hashes = {device: [planned.hash for planned in plan.cells] for device, plan in plans.items()}
    assert hashes["cpu"] == hashes["cuda"]  # the same cells, whatever the run was asked for
    assert plans["cuda"].on_cpu == len(plans["cuda"].runnable)
