"""The scripts for a GPU machine, as far as a machine without one can play them through."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")


def run_steps(tmp_path, env, *steps: str) -> tuple[subprocess.CompletedProcess, Path]:
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", str(SCRIPTS / "gpu_run.sh"), *steps, str(out)],
        capture_output=True, text=True, timeout=60, env=env,
    )  # fmt: skip
    return done, out


def put_tool(tmp_path, name: str, body: str) -> None:
    tool = tmp_path / "tools" / name
    tool.write_text(f"#!/usr/bin/env bash\n{body}\n")
    tool.chmod(0o755)


def fake_machine(tmp_path, python: str) -> dict[str, str]:
    """An environment with tools that stand for a GPU machine's; `python` is a script's body."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, body in {"nvidia-smi": "echo GPU", "nvcc": "echo nvcc", "fake": python}.items():
        put_tool(tmp_path, name, body)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_")}
    return kept | {"PATH": path, "PYTHON": "fake", "TMPDIR": str(tmp_path)}


def test_a_run_that_the_clock_stopped_goes_on_and_one_that_ended_does_not_run_again(
    tmp_path,
) -> None:
    """A stand-in for dgbench is stopped in its first run, and ends with a failed cell later."""
    body = """echo "ran $*"
if [[ "$*" == *"dgbench run"*"--resume"* ]]; then exit 1; fi
if [[ "$*" == *"dgbench run"* ]]; then
  mkdir -p "${@: -1}/first" && touch "${@: -1}/first/run.json" && exit 124
fi"""
    env = fake_machine(tmp_path, body)
    done, out = run_steps(tmp_path, env, "ceilings")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 commands are left" in done.stdout
    done, out = run_steps(tmp_path, env, "ceilings")
    assert done.returncode == 1
    assert "nothing is left" in done.stdout
    log = (out / "ceilings.log").read_text().splitlines()
    assert log[-1].endswith(f"dgbench run --resume {out}/runs/ceilings/first")
    run_steps(tmp_path, env, "ceilings")
    assert (out / "ceilings.log").read_text().splitlines() == log
    assert (out / "build.log").read_text().count("ran") == 1
