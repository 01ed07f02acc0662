"""A third party's system installed beside dgbench: found, raced and checked as it is."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "plugin" / "torch_csr_system.py"

CHECK = """
import json
from dgbench.systems.base import Workload
from dgbench.lab.experiment import RunContext
from dgbench.systems.base.race import checked, timed
task = Workload(dataset="hepth", source="twin", scale=1 / 64, snapshots=18, model="tgcn_model",
                feature_dim=4, hidden_dim=8)
found = checked("torch-csr", task, RunContext("cpu", "smoke", 1))
speed = timed("torch-csr", task, RunContext("cpu", "smoke", 1, budget_s=0.05))
passed = all(check.passed for check in (*found.checks, *speed.checks))
print(json.dumps({"passed": passed, "samples": len(speed.steady)}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the example is an installed package, as pip would leave it."""
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    broken = tmp_path / "broken_system.py"
    broken.write_text("raise RuntimeError('this plugin is broken on purpose')\n")
    info = tmp_path / "torch_csr_system-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-csr-system\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dgbench.systems]\n"
        "torch-csr = torch_csr_system:TorchCsrSystem\n"
        "broken = broken_system:Nothing\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def run(python: list[str], env: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        [*python, *command], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plugin_is_listed_and_a_broken_one_is_not_fatal(installed, warm_python) -> None:
    found = run(warm_python, installed, "-m", "dgbench", "list", "--json")
    assert json.loads(found)
    for one in ('"torch-csr"', "this plugin is broken on purpose", '"pipad"'):
        assert one in found


def test_a_plugin_trains_like_the_reference(installed, warm_python) -> None:
    found = json.loads(run(warm_python, installed, "-c", CHECK))
    assert found["passed"]
    assert found["samples"] >= 3
