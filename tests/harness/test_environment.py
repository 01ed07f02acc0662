"""The environment that sessions of nox share: what makes it do work again, and what does not."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "environment.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no checkout")


@pytest.fixture
def environment(monkeypatch):
    """The script as a module of its own."""
    spec = importlib.util.spec_from_file_location("environment_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sources(tmp_path):
    """A small tree with one source, one compiled file and one bytecode file."""
    for name in (
        "kernels_cuda/op.cpp",
        "harness/a.py",
        "harness/_cpu.so",
        "harness/__pycache__/a.pyc",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_sources_that_did_not_change_have_one_fingerprint(
    environment, sources, monkeypatch
) -> None:
    first = environment.sources_fingerprint(sources)
    (sources / "harness/_cpu.so").write_text("compiled again")
    (sources / "harness/__pycache__/a.pyc").write_text("imported again")
    monkeypatch.setenv("DGBENCH_DATA", "/elsewhere")
    assert environment.sources_fingerprint(sources) == first
    seen = {first}
    (sources / "harness/a.py").write_text("edited")
    seen.add(environment.sources_fingerprint(sources))
    (sources / "harness/a.py").rename(sources / "harness/b.py")
    seen.add(environment.sources_fingerprint(sources))
    monkeypatch.setenv("CXXFLAGS", "-O0")
    seen.add(environment.sources_fingerprint(sources))
    assert len(seen) == 4
