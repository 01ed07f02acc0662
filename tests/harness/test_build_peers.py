"""Compiling contenders once: what is kept, what is replaced in a source, what is said."""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_peers.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout: scripts do not travel")


class FakePip:
    """Stands for pip: hands out a source release, makes an empty wheel of it, counts calls."""

    def __init__(self, setup: str) -> None:
        self.setup = setup
        self.calls: list[tuple[str, ...]] = []
        self.built = ""

    def __call__(self, *arguments: str, **environment: str) -> None:
        self.calls.append(arguments)
        if arguments[0] == "download":
            folder = Path(arguments[arguments.index("--dest") + 1])
            text = self.setup.encode()
            info = tarfile.TarInfo("peer-1.0/setup.py")
            info.size = len(text)
            with tarfile.open(folder / "peer-1.0.tar.gz", "w:gz") as packed:
                packed.addfile(info, io.BytesIO(text))
        elif arguments[0] == "wheel":
            self.built = (Path(arguments[-1]) / "setup.py").read_text()
            into = Path(arguments[arguments.index("--wheel-dir") + 1])
            into.mkdir()
            (into / "peer-1.0-py3-none-any.whl").write_text("")

    def count(self, what: str) -> int:
        return sum(call[0] == what for call in self.calls)


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("build_peers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "build_peers", module)  # its dataclass looks there
    spec.loader.exec_module(module)
    one = module.Peer("peer", "1.0", (("setup.py", "c++14", "c++20"),))
    monkeypatch.setattr(module, "PEERS", (one,))
    return module


def run(script, monkeypatch, setup: str, *arguments: object) -> tuple[int, FakePip]:
    pip = FakePip(setup)
    monkeypatch.setattr(script, "pip", pip)
    monkeypatch.setattr(sys, "argv", ["build_peers.py", *map(str, arguments)])
    return script.main(), pip


def test_a_wheel_is_compiled_once_and_installed_each_time(script, monkeypatch, tmp_path) -> None:
    code, pip = run(script, monkeypatch, "-std=c++14", "--into", tmp_path)
    assert code == 0
    assert pip.built == "-std=c++20"
    assert [path.name for path in tmp_path.iterdir()] == ["peer-1.0-py3-none-any.whl"]
    code, pip = run(script, monkeypatch, "-std=c++14", "--into", tmp_path)
    assert (code, pip.count("wheel"), pip.count("install")) == (0, 0, 1)


def test_a_source_that_changed_is_named(script, monkeypatch, tmp_path, capsys) -> None:
    code, pip = run(script, monkeypatch, "-std=c++17", "--into", tmp_path)
    assert (code, pip.count("wheel")) == (1, 0)
    assert "setup.py no longer has 'c++14'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
