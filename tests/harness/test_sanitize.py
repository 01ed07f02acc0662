"""The command over the sanitizers: what it reads in their logs, and that it cannot pass blindly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "sanitize.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout: scripts do not travel")

OVERFLOW = """=================================================================
==77==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000020 at pc 0x7f bp 0x7f
READ of size 4 at 0x602000000020 thread T0
    #0 0x7f1 in dgbench::place /home/a/kernels_cuda/temporal_store/cpu.cpp:228
    #1 0x7f2 in dgbench::insert /home/a/kernels_cuda/temporal_store/cpu.cpp:17
"""
UNDEFINED = """/a/kernels_cuda/scan/cpu.cpp:31:9: runtime error: signed integer overflow: 2 + 9
    #0 0x7f1 in dgbench::group_by /a/kernels_cuda/scan/cpu.cpp:31
"""
RACE = """==================
WARNING: ThreadSanitizer: data race (pid=78)
  Write of size 8 at 0x7b04 by thread T1:
    #0 dgbench::commit kernels_cuda/common/cpu_planted_faults.cpp:40 (_cpu.so+0x1)
==================
"""


@pytest.fixture
def sanitize(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("sanitize_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "build", lambda check: None)
    monkeypatch.setattr(module.Check, "missing", lambda check: "")
    return module


def play(module, monkeypatch, *, planted: dict[str, str], tests: str = "", status: int = 0) -> None:
    """Stand for the processes: what they write by the fault they commit, and over the tests."""

    def process(check, *arguments):
        said = tests if "pytest" in arguments else ""
        for kind, text in planted.items():
            said += text if f"'{kind}'" in arguments[-1] else ""
        (check.logs / "report.123").write_text(said)
        return status if "pytest" in arguments else 0

    monkeypatch.setattr(module, "python", process)


SEEN = {
    "overflow": OVERFLOW,
    "freed": OVERFLOW.replace("heap-buffer-overflow", "heap-use-after-free"),
    "undefined": UNDEFINED,
    "cast": UNDEFINED.replace(
        "signed integer overflow: 2 + 9",
        "1e+18 is outside the range of representable values of type 'int'",
    ),
    "vector": OVERFLOW.replace("heap-buffer-overflow", "ABRT"),
    "race": RACE,
}


def test_nothing_found_passes_and_the_table_says_so(sanitize, monkeypatch, capsys) -> None:
    play(sanitize, monkeypatch, planted=SEEN)
    assert sanitize.main([]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].split()[:6] == ["address", "6", "of", "6", "told", "passed"]
    assert said[2].split()[:6] == ["thread", "2", "of", "2", "told", "passed"]


@pytest.mark.parametrize("kind", ["overflow", "freed", "undefined", "cast", "vector"])
def test_a_sanitizer_that_sees_nothing_does_not_pass(sanitize, monkeypatch, capsys, kind) -> None:
    play(sanitize, monkeypatch, planted={**SEEN, kind: ""})
    assert sanitize.main(["address"]) == 1
    assert f"a planted fault was not seen: {kind}" in capsys.readouterr().err


def test_a_report_fails_although_the_tests_pass(sanitize, monkeypatch, capsys) -> None:
    play(sanitize, monkeypatch, planted=SEEN, tests=OVERFLOW + OVERFLOW)
    assert sanitize.main(["address"]) == 1
    said = capsys.readouterr()
    assert "temporal_store/cpu.cpp:228 (2 times)" in said.err
    assert said.out.splitlines()[1].split()[6] == "1"
