"""The experiments that train T-GCN: what a smoke run measures, and what the checks make of it."""

from __future__ import annotations

import pytest
from tgcn_rows import EXPERIMENTS, asked, smoke_rows

from dgbench.systems.tgcn import races

NAMES = ("fig6", "table2", "table3", "ablation")


@pytest.fixture(scope="module", autouse=True)
def _small():
    """Fewer events than a smoke run has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(races.EVENTS, "smoke", 160)
        patch.setitem(races.BATCH, "smoke", 10)
        patch.setattr(races, "INTERVAL", 60)
        yield


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_answers(name):
    experiment, rows = EXPERIMENTS[name], smoke_rows(name)
    assert rows
    assert all(gap <= 1e-9 for row in rows for gap in row.deviation.values())
    assert experiment.answer(rows)
    for figure in experiment.figures():
        assert figure.points(rows)
    for claim in experiment.claims:
        found = asked(claim.removeprefix("tgcn-"), rows)
        assert found.measured is not None or found.reason, claim


def test_cells_name_graphs_of_every_preset():
    for experiment in (EXPERIMENTS[name] for name in NAMES):
        for preset in ("smoke", "quick", "full", "paper"):
            for device in ("cpu", "cuda"):
                cells = experiment.cells(preset, device)
                assert len({str(sorted(c.params.items())) for c in cells}) == len(cells)
                for cell in cells:
                    races.task_of(str(cell.params["dataset"]), preset).check()
