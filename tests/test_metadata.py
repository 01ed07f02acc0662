"""Metadata of the project: every file says the same of it, and names what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import dgbench

ROOT = Path(__file__).resolve().parents[1]
tomllib = pytest.importorskip("tomllib")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
CODEMETA = json.loads((ROOT / "codemeta.json").read_text())
AUTHORS = "The dgbench authors"


def test_name_and_version_agree() -> None:
    version = PROJECT["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert {dgbench.__version__, CITATION["version"], CODEMETA["version"]} == {version}
    assert CODEMETA["name"] == PROJECT["project"]["name"] == "dgbench"
    assert CITATION["title"].startswith("dgbench:")


def test_licence_authors_and_python_agree() -> None:
    assert PROJECT["project"]["license"] == {"file": "LICENSE"}
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert CODEMETA["license"].rsplit("/", 1)[1] == CITATION["license"] == "Apache-2.0"
    assert [a["name"] for a in CITATION["authors"]] == [AUTHORS]
    assert [a["name"] for a in CODEMETA["author"]] == [AUTHORS]
    asked = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert CODEMETA["softwareRequirements"] == f"Python >= {asked}"
    oldest = PROJECT["tool"]["cibuildwheel"]["build"][0]
    assert oldest.startswith(f"cp{asked.replace('.', '')}-")


def test_wheels_are_portable_and_their_options_exist() -> None:
    settings = PROJECT["tool"]["cibuildwheel"]["config-settings"]
    assert settings["cmake.define.DGBENCH_PORTABLE"] == "ON"
    files = ("CMakeLists.txt", "cuda.cmake")
    cmake = "".join((ROOT / "kernels_cuda" / name).read_text() for name in files)
    for name in settings:
        if name.startswith("cmake.define."):
            option = name.removeprefix("cmake.define.")
            assert re.search(rf"\b(option|set)\({option}\b", cmake), option


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=str)
def test_workflows_name_scripts_and_sessions_that_exist(path: Path) -> None:
    steps = [s for job in yaml.safe_load(path.read_text())["jobs"].values() for s in job["steps"]]
    said = "\n".join(str(step.get("run", "")) for step in steps)
    for script in re.findall(r"(?:scripts|\.ci)/[\w./-]+", said):
        assert (ROOT / script).is_file(), script
    sessions = (ROOT / "noxfile.py").read_text()
    for session in re.findall(r"nox -s (\w+)", said):
        assert f"\ndef {session}(session" in sessions
    commands = (ROOT / "docs/command-line.md").read_text()
    for command in re.findall(r"\bdgbench (\w+)", said):
        assert f"dgbench {command}" in commands
