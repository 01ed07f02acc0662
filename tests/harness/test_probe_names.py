"""Probes are asked for by names that the harness writes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.plan import Plan
from dgbench.harness.probes.cpu import MachineActivity
from dgbench.harness.probes.gpm import METRICS
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.store import Store
from dgbench.lab.probes import PROBES, probe, sources
from dgbench.runtime.errors import UnknownKeyError


def test_a_name_that_nobody_writes_is_refused_with_the_nearest():
    with pytest.raises(UnknownKeyError) as caught:
        probe("gpu_kernel_resident")
    assert "gpu_kernel_resident_percent" in caught.value.hint
    with pytest.raises(UnknownKeyError):
        probe("gpu_util_percent")


def test_a_probe_reads_numbers_words_and_reasons():
    row = SimpleNamespace(probes={"energy_mj": 3, "gpu_throttle": ["a"], "gpm_dram_percent": "no"})
    assert probe("energy_mj").read(row) == 3.0
    assert probe("gpu_throttle").words(row) == ["a"]
    assert probe("gpu_throttle").read(row) is None
    dram = probe("gpm_dram_percent")
    assert dram.read(row) is None
    assert dram.refusal(row) == "no"
    assert probe("cpu_percent").read(row) is None
    assert probe("cpu_percent").refusal(row) == ""
    assert sources(row.probes) == ["nvml"]


@pytest.mark.usefixtures("warm_starts")
def test_everything_that_is_written_is_registered(tmp_path):
    plan = Plan.build([make_paper(cell("ok"))], None, "smoke", control="none")
    settings = {"limits": False, "modules": ("torch",), "lookup": lookup, "threads": 1}
    with Store.create(tmp_path) as store:
        run_plan(plan, store, listener=Listener(), **settings)
        (row,) = store.written()
    assert set(row.probes) <= set(PROBES)
    assert len(row.probes) >= 6
    assert {PROBES[name].source for name in row.probes} == {"process", "machine"}
    assert set(MachineActivity().probes(0.0)) <= {
        n for n, p in PROBES.items() if p.source == "machine"
    }
    assert set(METRICS) <= {n for n, p in PROBES.items() if p.source == "gpm"}
