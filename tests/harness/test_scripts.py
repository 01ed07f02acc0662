"""The scripts for a GPU machine, as far as a machine without one can play them through."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dgbench.harness.plugins import get_paper

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")


def gpu_run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", str(SCRIPTS / "gpu_run.sh"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )


def commands_of(text: str) -> dict[str, str]:
    """Commands of a dry run by the name of their step."""
    return dict(line.split(": ", 1) for line in text.splitlines())


def test_a_dry_run_says_what_would_run_and_runs_nothing(tmp_path) -> None:
    out = tmp_path / "out"
    done = gpu_run("--dry-run", str(out))
    assert done.returncode == 0, done.stderr
    assert not out.exists()
    found = commands_of(done.stdout)
    assert len(found) == len(done.stdout.splitlines())  # no step is named twice
    for path in set(re.findall(r"(?:tests|scripts)/[\w/]+\.(?:py|sh)", done.stdout)):
        assert (ROOT / path).is_file(), path
    for command in found.values():
        if " -m dgbench r" in command:
            assert re.search(r" (run|reproduce) .*--device cuda .*--out", command)
    ignored = re.findall(r"--ignore (\S+)", found["tests"])
    assert ignored
    assert found["alone"].endswith(" ".join(ignored))


def test_every_experiment_of_a_device_is_measured_by_a_step() -> None:
    said = gpu_run("--dry-run").stdout
    named = set(re.findall(r"operators/(\w+)", said))
    known = {one.name: one for one in get_paper("operators").experiments}
    assert named <= set(known)
    assert {name for name, one in known.items() if not one.device} == named
    assert set(re.findall(r"reproduce (\w+)", said)) == {"pipad", "tgcn", "gnnflow", "dgc", "esdg"}


def test_steps_can_be_named_and_come_in_the_order_given(tmp_path) -> None:
    said = commands_of(gpu_run("--dry-run", "esdg", "ceilings", str(tmp_path / "out")).stdout)
    assert list(said) == ["build", "esdg", "ceilings"]
    usage = gpu_run("--help").stderr
    for step in commands_of(gpu_run("--dry-run").stdout):
        if step not in ("build", "none") and not step.startswith("calibrate"):
            assert re.search(rf"\b{step}\b", usage), step


@pytest.mark.parametrize("arguments", [("a", "b"), ("--help",), ("--dry-run", "esdg", "a", "b")])
def test_wrong_arguments_are_answered_with_the_usage(arguments) -> None:
    done = gpu_run(*arguments)
    assert done.returncode == 2
    assert "pipad, tgcn, gnnflow" in done.stderr
    assert "PYTHON" in done.stderr


@pytest.mark.parametrize(("exits", "status"), [(0, 0), (9, 1)])
def test_what_a_sanitizer_finds_fails_the_call_and_runs_again(exits, status, tmp_path) -> None:
    """Stand-ins for compute-sanitizer, which finds nothing or something, and for the driver."""
    env = fake_machine(tmp_path, 'echo "ran $*"')
    put_tool(tmp_path, "compute-sanitizer", f'echo "asked $*"; exit {exits}')
    driver = (
        'printf "#!/bin/sh\\necho cases right" >"$2/kernel_driver"; chmod +x "$2/kernel_driver"'
    )
    put_tool(tmp_path, "cmake", f'mkdir -p "$2"; {driver}')
    done, out = run_steps(tmp_path, env, "sanitizers")
    assert done.returncode == status, done.stdout + done.stderr
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        asked = (out / f"{tool}.log").read_text()
        assert re.search(rf"asked --tool {tool} .*/kernel_driver\n", asked), asked
        assert (out / "done" / tool).exists() == (exits == 0)
    assert (out / "done" / "none").exists()


def test_without_a_driver_nothing_counts_as_checked(tmp_path) -> None:
    env = fake_machine(tmp_path, 'echo "ran $*"')
    put_tool(tmp_path, "cmake", 'echo "no such target" >&2; exit 1')
    put_tool(tmp_path, "compute-sanitizer", "exit 0")
    done, out = run_steps(tmp_path, env, "sanitizers")
    assert done.returncode == 1
    assert "no such target" in done.stdout
    assert "is no program" in (out / "memcheck.log").read_text()
    assert not (out / "done" / "memcheck").exists()


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


def test_a_call_without_time_begins_nothing(tmp_path) -> None:
    env = fake_machine(tmp_path, 'echo "ran $*"')
    done, out = run_steps(tmp_path, env, "ceilings", "esdg")
    assert "nothing is left" in done.stdout
    done, out = run_steps(tmp_path, env | {"DGBENCH_SECONDS": "10"}, "ceilings", "dgc")
    assert "2 commands are left" in done.stdout  # a calibration, and the paper
    assert not (out / "dgc.log").exists()


def test_steps_leave_no_process(tmp_path) -> None:
    """A stand-in for Python answers at once, but leaves a process behind at every call."""
    env = fake_machine(
        tmp_path, 'sleep 300 >/dev/null 2>&1 & echo $! >>"$TMPDIR/left"; echo "ran $*"'
    )
    done, out = run_steps(tmp_path, env, "tests", "ceilings", "billion")
    assert done.returncode == 0, done.stdout + done.stderr
    for log in ("build.log", "tests.log", "ceilings.log", "billion.log"):
        assert "ran" in (out / log).read_text()
    running = [int(n) for n in (tmp_path / "left").read_text().split()]
    end = time.monotonic() + 20  # of 300 s; one that was killed a moment ago may still be there
    while (running := [n for n in running if alive(n)]) and time.monotonic() < end:
        time.sleep(0.05)
    for number in running:
        os.kill(number, 9)
    assert not running


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


PTXAS = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3fooIfEvPf' for 'sm_90'
ptxas info    : Function properties for _Z3fooIfEvPf
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 4352 bytes smem, 400 bytes cmem[0]
ptxas info    : Compiling entry function '_Z3barv' for 'sm_90'
ptxas info    : Function properties for _Z3barv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 352 bytes cmem[0]
"""


def test_registers_and_spills_are_read_from_the_assembler(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    tool = importlib.import_module("kernel_resources")
    foo, bar = tool.parse(PTXAS, "a.cu")
    assert (foo.kernel, foo.arch, foo.file) == ("_Z3fooIfEvPf", "sm_90", "a.cu")
    assert (foo.registers, foo.stack, foo.spill_stores, foo.spill_loads, foo.shared) == (
        64, 16, 12, 20, 4352)  # fmt: skip
    assert (bar.registers, bar.spill_stores, bar.shared) == (8, 0, 0)
    name = "void dgbench::(anonymous namespace)::rows<4, true, x::F<2>>(float const*, int)"
    assert tool.short(name) == "rows<4, true, x::F<2>>"
    assert tool.short("plain(int)") == "plain"
    monkeypatch.setattr(tool, "nvcc", lambda: "")
    monkeypatch.setattr(sys, "argv", ["kernel_resources.py"])
    assert tool.main() == 0  # where there is no compiler that is said, and is no failure


def test_a_batch_job_that_is_asked_to_stop_waits_for_the_report(tmp_path) -> None:
    run = tmp_path / "nox"
    run.write_text(
        "#!/usr/bin/env bash\n"
        f"trap 'sleep 0.5; echo \"$@\" >{tmp_path}/report; exit 130' TERM\n"
        f"touch {tmp_path}/began\n"
        "while :; do sleep 0.1; done\n"
    )
    run.chmod(0o755)
    job = subprocess.Popen(
        ["bash", str(SCRIPTS / "slurm_reproduce.sh"), "pipad", "--preset", "full"],
        env=os.environ | {"NOX": str(run), "SLURM_SUBMIT_DIR": str(tmp_path)},
    )
    while not (tmp_path / "began").exists():
        assert job.poll() is None
    job.terminate()
    assert job.wait(timeout=240) != 0
    assert (tmp_path / "report").read_text() == "-s reproduce -- pipad --preset full\n"
