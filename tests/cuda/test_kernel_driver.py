"""The driver of the kernels calls every launcher; over the stand-in runtime all of it is right."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import emulator
import pytest


def code_of(path: Path) -> str:
    return re.sub(r"//[^\n]*", "", path.read_text())


@pytest.fixture(scope="module")
def driver(request, tmp_path_factory) -> Path:
    if reason := emulator.missing():
        pytest.skip(reason)
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir("cuda_emulator") if cache else tmp_path_factory.mktemp("cuda_emulator")
    return emulator.build_driver(folder)


def run(driver: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(driver), *words], capture_output=True, text=True, timeout=280)


def test_the_driver_calls_every_launcher() -> None:
    declared = set()
    for path in emulator.SOURCES.glob("*/*.h"):
        declared |= set(re.findall(r"\b(dgb_\w+)\(", code_of(path)))
    called = set()
    for path in emulator.DRIVER.iterdir():
        called |= set(re.findall(r"\b(dgb_\w+)\b", code_of(path)))
    assert len(declared) > 50
    assert declared - called == set()
    assert called - declared == set()


@pytest.mark.nightly
def test_every_case_is_right(driver) -> None:
    names = run(driver, "--list").stdout.split()
    done = run(driver)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert all(int(re.search(r"right, (\d+) checks", line)[1]) > 0 for line in lines)
    assert last.startswith(f"{len(names)} of {len(names)} cases right")


@pytest.mark.nightly
def test_cases_are_run_by_name(driver) -> None:
    done = run(driver, "make_keys", "memory")
    assert [line.split()[0] for line in done.stdout.splitlines()[:-1]] == ["make_keys", "memory"]
    unknown = run(driver, "memory", "unknown")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no case 'unknown'" in unknown.stderr
