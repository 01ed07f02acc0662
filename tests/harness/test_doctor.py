from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from dgbench.harness import doctor as doctor_module
from dgbench.harness.cli import app
from dgbench.harness.doctor import DoctorCheck, diagnose


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path))


def named(checks, name):
    return next(c for c in checks if c.name == name)


def test_everything_is_looked_at_once():
    checks = diagnose()
    names = [c.name for c in checks]
    assert len(set(names)) == len(names)
    wanted = "python|torch|operators _cpu|g++|nvcc|datasets|cache|results|memory|cpu|load"
    assert set(wanted.split("|")) <= set(names)
    assert named(checks, "torch").state == "ok"
    assert torch.__version__ in named(checks, "torch").found
    for check in checks:
        assert check.found
        if check.state == "missing":
            assert check.hint, check


def test_a_missing_need_is_exit_code_one(monkeypatch):
    missing = DoctorCheck("torch", "missing", "none", "pip install torch")
    monkeypatch.setattr(doctor_module, "diagnose", lambda: [missing])
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "pip install torch" in shown.output
