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
def calls(environment, monkeypatch):
    """Commands that the script would run; nothing is started."""
    found: list[list[str]] = []

    class Build:
        def __init__(self, command, **_):
            found.append(list(command))
            wheels = Path(command[command.index("--wheel-dir") + 1])
            (wheels / "dgbench-0-py3-none-any.whl").touch()

        def wait(self):
            return 0

        poll = wait

    def call(command):
        if "virtualenv" in command or "venv" in command:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
        found.append(list(command))

    monkeypatch.setattr(environment, "call", call)
    monkeypatch.setattr(environment.subprocess, "Popen", Build)
    monkeypatch.setattr(environment.subprocess, "run", lambda command, **_: found.append(command))
    monkeypatch.setattr(environment, "check_machine", lambda: None)
    return found


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


def test_a_second_session_installs_nothing(environment, calls, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(environment, "sources_fingerprint", lambda: "s1")
    assert environment.prepare(tmp_path / "env")
    # The build starts before the packages are installed, and its wheel comes last.
    words = [" ".join(map(str, command)) for command in calls]
    build = next(i for i, text in enumerate(words) if "--wheel-dir" in text)
    packages = next(i for i, text in enumerate(words) if environment.TORCH in text)
    assert build < packages < len(words) - 1
    assert words[-1].endswith(".whl")
    calls.clear()
    assert not environment.prepare(tmp_path / "env")
    assert calls == []
    # Other sources: built again, with the packages that are there.
    monkeypatch.setattr(environment, "sources_fingerprint", lambda: "s2")
    assert environment.prepare(tmp_path / "env")
    assert not any(environment.TORCH in command for command in calls)
    calls.clear()
    # Another torch: its packages.
    monkeypatch.setattr(environment, "TORCH", "torch==2.6")
    assert environment.prepare(tmp_path / "env")
    assert any("torch==2.6" in command for command in calls)
