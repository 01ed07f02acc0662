"""The experiments that train T-GCN: what a smoke run measures, and what the checks make of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tgcn_rows import EXPERIMENTS, asked, made, observation, smoke_rows

from dgbench.systems.base import Measurement
from dgbench.systems.tgcn import races
from dgbench.systems.tgcn.experiments import table2

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


# What only a GPU can show, on rows made by hand.


def on_gpu(experiment, found, **params):
    return made(experiment, {"dataset": "lastfm", **params}, found, device="cuda")


def test_seconds_and_overlap_on_a_gpu():
    parts = {"io": 2.0, "wait": 1.0, "compute": 6.0}
    found = [observation("epoch_time", 10.0, setting="tgcn")]
    found += [observation("part_time", s, setting="tgcn", phase=p) for p, s in parts.items()]
    spans = [("copy", 0.0, 4.0), ("train", 1.0, 5.0)]
    regions = SimpleNamespace(timeline=SimpleNamespace(start=list, stop=lambda: spans))
    runner = SimpleNamespace(turn=list, trainer=SimpleNamespace(regions=[regions]))
    timed = Measurement()
    table2.observe_timeline(timed, runner)
    row = on_gpu("table2", [*found, *timed.observations])
    assert asked("tab2-tgcn-io", [row]).measured == {"Lastfm": 2.0}
    assert asked("tab2-tgcn-total", [row]).measured == {"Lastfm": 10.0}
    assert asked("tab2-dygnn-io", [row]).measured is None
    assert asked("tab2-both-parts-reduced", [row]).measured is None  # DyGNN did not run
    said = asked("s43-pingpong-no-conflict", [row])
    assert (said.measured, said.evidence) == (
        "75% to 75% of copy time beside training", "measured",
    )  # fmt: skip


def test_memory_on_a_gpu():
    held = {"held": 800_000_000, "driver": 900_000_000, "counted": 700_000_000}
    found = [observation("memory", nbytes, method=method) for method, nbytes in held.items()]
    said = asked("tab3-tgcn-memory", [on_gpu("table3", found, system="tgcn")])
    assert said.measured == {"Lastfm": 800.0}
    assert "LastFM 900 MB" in said.reason


def test_rates_on_a_gpu():
    twitter = [observation("edge_time", 2e-6, setting="tgcn"), observation("edges", 1_000)]
    row = made("fig6", {"dataset": "twitter", "what": "rate"}, twitter, device="cuda")
    said = asked("fig6-twitter-time", [row])
    assert (said.measured, said.target) == (pytest.approx(2940.0), 9237.4)
    copies = [
        observation("bandwidth", rate, link=link, size=1 << 28)
        for link, rate in (("gpu to gpu", 40e9), ("host to gpu", 12e9))
    ]
    copies.append(observation("links", 0, of="peers"))
    said = asked("s1-nvlink-faster-than-pcie", [made("schedule", {"kind": "copies"}, copies)])
    assert said.holds
    assert said.measured == {"GPU to GPU": 40.0, "host to GPU": 12.0}
    assert "no peers" in said.reason
