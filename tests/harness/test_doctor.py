from __future__ import annotations

import pytest
import torch
from typer.testing import CliRunner

from dgbench.harness import doctor as doctor_module
from dgbench.harness.cli import app
from dgbench.harness.doctor import DoctorCheck, diagnose, healthy


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
    wanted = "python|torch|operators _cpu|operators _cuda|g++|nvcc|dgl|DGBENCH_DATA|datasets|cache"
    for name in [*wanted.split("|"), "results", "memory", "cpu", "load"]:
        assert name in names
    assert named(checks, "torch").state == "ok"
    assert torch.__version__ in named(checks, "torch").found
    for check in checks:
        assert check.found
        if check.state == "missing":
            assert check.hint, check


def test_a_look_that_fails_is_a_check(monkeypatch):
    def _memory():
        raise ZeroDivisionError("odd machine")

    monkeypatch.setattr(doctor_module, "_memory", _memory)
    check = named(diagnose(), "memory")
    assert (check.state, "odd machine" in check.found) == ("warn", True)


def test_only_what_is_needed_makes_it_unhealthy():
    assert healthy([DoctorCheck("gpu", "missing", "none", "x"), DoctorCheck("torch", "ok", "2.13")])
    assert not healthy([DoctorCheck("torch", "missing", "none", "x")])


def test_a_missing_need_is_exit_code_one(monkeypatch):
    monkeypatch.setattr(
        doctor_module,
        "diagnose",
        lambda: [DoctorCheck("torch", "missing", "none", "pip install torch")],
    )
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "pip install torch" in shown.output
