"""Probes are asked for by names that the harness writes."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.plan import Plan
from dgbench.harness.probes.cpu import MachineActivity
from dgbench.harness.probes.gpm import METRICS
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.store import Row, Store
from dgbench.lab.probes import PROBES, probe, sources
from dgbench.runtime.errors import UnknownKeyError

ROOT = Path(__file__).parents[2]
WRITERS = {"harness/runner/outcome.py", "harness/runner/run.py", "lab/probes.py"}


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


def string_lookups(path: Path) -> list[str]:
    """`.probes[...]` and `.probes.get(...)` of a file, whatever stands between the brackets."""
    found = []
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if "probes" in text else ():
        inner = None
        if isinstance(node, ast.Subscript):
            inner = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = node.func.value if node.func.attr == "get" else None
        if isinstance(inner, ast.Attribute) and inner.attr == "probes":
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_nobody_looks_probes_up_by_a_string():
    wrong = [
        place
        for folder in ("systems", "harness", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in WRITERS
        for place in string_lookups(path)
    ]
    assert not wrong, wrong


def test_utilisation_is_read_from_what_nvml_wrote():
    """T-GCN's and PiPAD's claims of utilisation find the rows of a device."""
    from dgbench.lab.paper import Claim
    from dgbench.systems.base.registry import get_paper

    probes = {"gpu_kernel_resident_percent": 42.0}
    params = {"what": "race", "dataset": "lastfm", "system": "tgcn"}
    race = Row(id="t", paper="tgcn", experiment="fig6", params=params, device="cuda", probes=probes)
    paper, name = get_paper("tgcn"), "tgcn-fig6-gpu-underused-small"
    claim = Claim(id=name, where="", statement="", kind="utilisation", value=None)
    assert paper.checks[name](claim, [race]).measured == 42.0
