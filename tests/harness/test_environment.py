"""The environment that sessions of nox share: what makes it do work again, and what does not."""

from __future__ import annotations

import importlib.util
import json
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


def test_a_set_up_that_was_cut_off_goes_on(environment, calls, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(environment, "sources_fingerprint", lambda: "s1")
    whole = environment.install_packages

    def cut(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "install_packages", cut)
    with pytest.raises(KeyboardInterrupt):
        environment.prepare(tmp_path / "env")
    monkeypatch.setattr(environment, "install_packages", whole)
    assert environment.prepare(tmp_path / "env")
    record = json.loads((tmp_path / "env" / "dgbench-install.json").read_text())
    assert set(record) == {"python", "packages", "sources"}
    (tmp_path / "env" / "dgbench-install.json").write_text("{")  # cut in a write by others
    assert environment.prepare(tmp_path / "env")


def test_a_contender_without_a_release_is_left_out_and_named(
    environment, calls, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(environment, "sources_fingerprint", lambda: "s1")
    plain = environment.call

    def call(command):
        if any(str(word).startswith("dgl") for word in command):
            raise environment.SetupError("no matching distribution")
        plain(command)

    monkeypatch.setattr(environment, "call", call)
    assert environment.prepare(tmp_path / "env")
    assert "dgl==1.1.3 does not install here" in capsys.readouterr().out
    assert any("pymetis>=2025.2" in command for command in calls)


def test_what_is_missing_is_one_sentence_before_any_download(
    environment, tmp_path, monkeypatch, capsys
) -> None:
    started = []
    monkeypatch.setattr(environment, "call", started.append)
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(sys, "argv", ["environment.py", "--into", str(tmp_path / "env")])
    assert environment.main() == 1
    assert "no C++ compiler found" in capsys.readouterr().err
    monkeypatch.setattr(environment, "MIN_PYTHON", (99, 0))
    assert environment.main() == 1
    assert "dgbench needs Python 99.0 or newer" in capsys.readouterr().err
    assert started == []
