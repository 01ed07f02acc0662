"""Rows as samples of the history: what is pooled, what is too few, and what asv is told."""

from __future__ import annotations

import shutil

import fake_run
import pytest
from passed_checks import PASSED

from dgbench.harness.samples import MIN_SAMPLES, PER_EVENT, RATIO, newest_samples
from dgbench.harness.store import Row, Store
from dgbench.lab.table import observation


def step_time(seconds):
    return observation("step_time", seconds, samples=[seconds])


def a_run(root, commit="a" * 40, dirty=False, started="2026-01-01", model="CPU", rounds=3,
          preset="quick", seconds=1.0):  # fmt: skip
    """A run of two systems over some rounds, and of one process with gains."""
    store = Store.create(root, {"preset": preset, "device": "cpu", "papers": ["pipad"]})
    with store:
        facts = {"code": {"commit": commit, "dirty": dirty}, "machine": {"cpu": {"model": model}}}
        common = {"run": store.run, "paper": "pipad", "preset": preset,
                  "provenance": store.add_provenance(facts)}  # fmt: skip
        for number in range(1, rounds + 1):
            for system, time in (("pygt", 0.4), ("pipad", 0.1)):
                store.append(
                    Row(id=f"{system}-r{number}", cell_hash=system, experiment="fig10",
                        params={"dataset": "x", "system": system}, group="x", round=number,
                        observed=[step_time(seconds * time * (1 + number / 100))],
                        checks=[PASSED], **common)
                )  # fmt: skip
        store.append(
            Row(id="turns-r1", cell_hash="turns", experiment="fig12", params={"dataset": "x"},
                observed=[
                    observation("speedup", 2.0, low=1.9, setting="fast"),
                    observation("throughput", 2e5, setting="fast"), observation("loss", 1.0),
                ],
                checks=[PASSED], **common)
        )  # fmt: skip
        store.update(state="done", started=f"{started}T00:00:00+00:00")
    return store.run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_rounds_gains_and_seconds_per_event_become_samples(runs, tmp_path):
    run = a_run(runs, rounds=6)
    found = newest_samples(tmp_path)
    assert list(found) == [
        "pipad/fig10 x: pipad / pygt", "pipad/fig12 x: speedup[setting=fast]",
        "pipad/fig12 x: throughput[setting=fast]",
    ]  # fmt: skip
    race, gain, per_event = found.values()
    assert (race.kind, race.values, race.runs) == (RATIO, pytest.approx([0.25] * 6), [run])
    assert race.lack == ""
    assert (gain.kind, gain.values) == (RATIO, [0.5])
    assert (per_event.kind, per_event.values) == (PER_EVENT, pytest.approx([5e-6]))
    assert str(MIN_SAMPLES) in gain.lack


def test_only_runs_of_the_same_code_and_machine_are_pooled(runs, tmp_path):
    first = a_run(runs, started="2026-01-01", seconds=2)
    a_run(runs, started="2026-01-02", commit="b" * 40)
    a_run(runs, started="2026-01-03", model="another CPU")
    a_run(runs, started="2026-01-04", preset="full")
    newest = a_run(runs, started="2026-01-05", seconds=3)
    a_run(runs, started="2026-01-06", preset="smoke")
    race = newest_samples(tmp_path)["pipad/fig10 x: pipad / pygt"]
    assert race.runs == [first, newest]
    assert len(race.values) == 6
    changed = [a_run(runs, started=f"2026-01-0{day}", dirty=True) for day in (7, 8)]
    assert newest_samples(tmp_path)["pipad/fig10 x: pipad / pygt"].runs == changed[1:]


def test_without_runs_the_kept_ones_are_read_and_toys_have_no_system_of_their_own(runs, tmp_path):
    fake_run.make_run(runs)
    assert newest_samples(tmp_path) == {}
    kept = a_run(tmp_path / "results" / "reference" / "machine")
    shutil.rmtree(runs)
    assert newest_samples(tmp_path)["pipad/fig10 x: pipad / pygt"].runs == [kept]
    own = a_run(runs)
    assert newest_samples(tmp_path)["pipad/fig10 x: pipad / pygt"].runs == [own]
