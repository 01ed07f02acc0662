"""Versions known to be wrong: found where they are, never guessed, and each with a way out."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from dgbench.harness import doctor
from dgbench.harness.machine import known
from dgbench.harness.machine.known import EXTENSIONS, KNOWN, held_versions, wrong_here


def names(held: dict[str, str]) -> list[str]:
    return [entry.name for entry in wrong_here(held)]


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_every_entry_says_what_to_do_and_where_it_was_found(entry) -> None:
    assert entry.symptom
    assert entry.remedy
    assert re.search(r"issues? \d+|pull request \d+|advisory|measured here", entry.source)
    for versions in (*entry.wrong, *entry.beside.values()):
        assert SpecifierSet(versions)  # not "": every version is wrong of nothing we know


@pytest.mark.parametrize(
    ("held", "wrong"),
    [
        ({"python": "3.11.7"}, ["python"]),
        ({"python": "3.11.13"}, []),
        ({"python": "3.12.10"}, ["python"]),
        ({"python": "3.12.11"}, []),
        ({"python": "3.14.0"}, []),
        ({"dgl": "2.1.0", "torch": "2.13.0+cpu"}, ["dgl"]),
        ({"dgl": "2.1.0"}, []),  # without torch nothing is known of it
        ({"dgl": "2.1.0", "torch": "2.2.1"}, ["torch"]),
        ({"dgl": "1.1.3", "torch": "2.13.0+cpu"}, []),
        ({"torch": "2.9.1+cu128"}, ["torch"]),
        ({"torch": "2.10.0"}, []),
        ({"msgspec": "0.19.0", "python": "3.13.9"}, []),
        ({"msgspec": "0.19.0", "python": "3.14.0"}, ["msgspec"]),
        ({"nvcc": "13.0", "compute capability": "7.0"}, ["nvcc"]),
        ({"nvcc": "13.0", "compute capability": "10.0"}, []),
        ({"nvcc": "12.8", "compute capability": "7.0"}, []),
        ({"pyg-lib": "0.4.0+pt22cu121"}, ["pyg-lib"]),
        ({"torch-scatter": "2.1.2+pt25cu121", "torch": "2.13.0"}, ["torch-scatter"]),
        ({"torch-scatter": "2.1.2+pt213cpu", "torch": "2.13.0+cpu"}, []),
        ({"torch-scatter": "2.1.2", "torch": "2.13.0"}, []),  # it does not say
        ({"nanobind": "2.13.0"}, ["nanobind"]),
        ({"nanobind": "an unreadable one"}, []),
    ],
)
def test_versions_are_told_apart(held, wrong) -> None:
    assert names(held) == wrong


def test_what_the_bounds_refuse_has_no_entry() -> None:
    """An entry that no allowed version matches would never be seen."""
    tomllib = pytest.importorskip("tomllib")
    from pathlib import Path

    project = Path(__file__).parents[2] / "pyproject.toml"
    if not project.is_file():
        pytest.skip("no checkout")
    text = tomllib.loads(project.read_text())["project"]["dependencies"]
    oldest = {}
    for line in text:
        found = re.fullmatch(r"([\w-]+)>=([\d.]+).*", line)
        oldest[found[1]] = found[2]
    for entry in KNOWN:
        if entry.name in oldest:
            assert any(
                spec.version and Version(spec.version) >= Version(oldest[entry.name])
                for versions in entry.wrong
                for spec in SpecifierSet(versions)
            ), entry.name


def test_versions_are_read_from_what_is_here(monkeypatch) -> None:
    def version(name: str) -> str:
        if name in ("dgl", "torch-scatter"):
            return {"dgl": "2.1.0", "torch-scatter": "2.1.2+pt25cu121"}[name]
        raise known.PackageNotFoundError(name)

    monkeypatch.setattr(known, "version", version)
    gpus = [{"compute_capability": "10.0"}, {"compute_capability": "7.0"},
            {"compute_capability": "NVML: not supported"}, {}]  # fmt: skip
    held = held_versions(gpus, "Build cuda_13.0.r13.0/compiler.36424714_0")
    assert held.pop("python")
    assert held == {"dgl": "2.1.0", "torch-scatter": "2.1.2+pt25cu121", "nvcc": "13.0",
                    "compute capability": "7.0"}  # fmt: skip
    assert "nvcc" not in held_versions([], "")


def test_the_doctor_says_each_thing_once(monkeypatch) -> None:
    held = {"dgl": "2.1.0", "torch": "2.9.0", "python": "3.14.0"}
    monkeypatch.setattr(known, "held_versions", lambda gpus, nvcc: held)
    checks = {check.name: check for check in doctor._versions()}
    assert set(checks) == {"version of torch", "version of dgl"}
    assert checks["version of dgl"].state == "warn"
    assert "2.1.0" in checks["version of dgl"].found
    assert "dmlc/dgl issues" in checks["version of dgl"].found
    assert "dgl==1.1.3" in checks["version of dgl"].hint
    held.clear()
    (fine,) = doctor._versions()
    assert (fine.name, fine.state) == ("versions", "ok")


def test_extensions_are_named_as_the_index_has_them() -> None:
    assert all(re.fullmatch(r"[a-z-]+", name) for name in EXTENSIONS)
