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
    info = tmp_path / "torch_csr_system-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-csr-system\nVersion: 1.0\n")
    entry = "[dgbench.systems]\ntorch-csr = torch_csr_system:TorchCsrSystem\n"
    (info / "entry_points.txt").write_text(entry)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def test_a_plugin_trains_like_the_reference(installed, warm_python) -> None:
    done = subprocess.run(
        [*warm_python, "-c", CHECK], env=installed, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["passed"]
    assert found["samples"] >= 3
