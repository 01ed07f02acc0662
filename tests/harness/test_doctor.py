from __future__ import annotations

import json
import os
import subprocess
import sys

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


def test_old_torch_and_shadowed_nvml_are_said(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.5.1")
    check = next(doctor_module._torch())
    assert check.state == "missing"
    assert "2.6" in check.hint
    monkeypatch.setattr(
        doctor_module, "distribution", lambda name: type("D", (), {"version": "11.5"})()
    )
    assert next(doctor_module._deprecated_pynvml()).state == "warn"


def test_folders_that_cannot_be_used(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "file" / "below"))
    check = next(doctor_module._cache())
    assert check.state == "missing"
    assert "DGBENCH_CACHE" in check.hint
    monkeypatch.setattr(doctor_module, "FREE_BYTES", 1 << 60)
    assert next(doctor_module._results()).state == "warn"
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path / "nowhere"))
    assert next(doctor_module._data()).state == "missing"
    monkeypatch.delenv("DGBENCH_DATA")
    assert next(doctor_module._data()).state == "warn"


def test_packages_that_are_absent_or_broken(tmp_path, monkeypatch):
    absent = doctor_module._package("no-such", "no_such", "pip install no-such", "missing")
    assert (absent.state, absent.found) == ("missing", "not installed")
    (tmp_path / "broken_one.py").write_text("raise OSError('bad symbol torch_sparse')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(doctor_module, "version", lambda name: "1.2")
    broken = doctor_module._package("broken-one", "broken_one", "pip install it", "missing")
    assert "1.2 does not import: OSError: bad symbol" in broken.found
    assert doctor_module._temporal(broken).state == "warn"
    assert doctor_module._temporal(absent) is absent


def test_a_look_that_fails_is_a_check(monkeypatch):
    def _memory():
        raise ZeroDivisionError("odd machine")

    monkeypatch.setattr(doctor_module, "_memory", _memory)
    check = named(diagnose(), "memory")
    assert (check.state, "odd machine" in check.found) == ("warn", True)


def test_only_what_is_needed_makes_it_unhealthy():
    assert healthy([DoctorCheck("gpu", "missing", "none", "x"), DoctorCheck("torch", "ok", "2.13")])
    assert not healthy([DoctorCheck("torch", "missing", "none", "x")])


def test_the_command_prints_words_and_json():
    shown = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "80"})
    assert shown.exit_code == 0, shown.output
    assert "torch" in shown.output
    long = [line for line in shown.output.splitlines() if len(line) > 80]
    assert all("/" in line for line in long)  # a path is never cut
    machine = CliRunner().invoke(app, ["doctor", "--json"])
    assert {c["name"] for c in json.loads(machine.stdout)} >= {"python", "torch"}


def test_the_first_import_of_dgl_prints_nothing_and_writes_nothing_into_the_home_folder(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    code = (
        "from dgbench.harness import doctor\n"
        "doctor.CONTENDERS = {'dgl': doctor.CONTENDERS['dgl']}\n"
        "assert [check.name for check in doctor._contenders()] == ['dgl']\n"
    )
    kept = {name: value for name, value in os.environ.items() if name != "DGLBACKEND"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, env={**kept, "HOME": str(home)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert list(home.iterdir()) == []


def test_a_missing_need_is_exit_code_one(monkeypatch):
    monkeypatch.setattr(
        doctor_module,
        "diagnose",
        lambda: [DoctorCheck("torch", "missing", "none", "pip install torch")],
    )
    shown = CliRunner().invoke(app, ["doctor"])
    assert shown.exit_code == 1
    assert "pip install torch" in shown.output
