"""The doctor: what it looks at, and the exit code of a missing need."""

from __future__ import annotations

from typer.testing import CliRunner

from dgbench.harness import doctor as doctor_module
from dgbench.harness.cli import app
from dgbench.harness.doctor import DoctorCheck, diagnose


def test_everything_is_looked_at_once(tmp_path, monkeypatch):
    for name in ("CACHE", "RESULTS", "DATA"):
        monkeypatch.setenv(f"DGBENCH_{name}", str(tmp_path))
    found = diagnose()
    checks = {check.name: check for check in found}
    assert len(checks) == len(found)
    wanted = "python|torch|operators _cpu|g++|nvcc|datasets|cache|results|memory|cpu|load"
    assert set(wanted.split("|")) <= set(checks)
    assert checks["torch"].state == "ok"
    assert all(one.found and (one.hint or one.state != "missing") for one in checks.values())


def test_a_missing_need_is_exit_code_one(monkeypatch):
    missing = DoctorCheck("torch", "missing", "none", "pip install torch")
    monkeypatch.setattr(doctor_module, "diagnose", lambda: [missing])
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "pip install torch" in shown.output
