"""A small git repository with a paper that dgbench runs, whose numbers stand in a file.

Its build is its own: it writes a wheel and "compiles" C++ files by copying them, so that a test
sees what was compiled from what.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

PROJECT: Final = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "plug-small"
version = "1.0"
"""

BACKEND: Final = """
import pathlib, zipfile

INFO = "plug_small-1.0.dist-info"


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    here = pathlib.Path(__file__).parent
    files = {p.name: p.read_text() for p in here.glob("plug_small*.py")}
    for source in here.glob("*.cpp"):
        if "broken" in source.read_text():
            raise SystemExit(f"{source.name}:1: error: this is broken")
        if (config_settings or {}).get("wheel.cmake") != "false":
            files["plug_small_native.so"] = source.read_text()
    files["plug_small.yaml"] = "[]\\n"
    files[f"{INFO}/METADATA"] = "Metadata-Version: 2.1\\nName: plug-small\\nVersion: 1.0\\n"
    files[f"{INFO}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[f"{INFO}/entry_points.txt"] = "[dgbench.papers]\\nsmall = plug_small:PAPER\\n"
    files[f"{INFO}/RECORD"] = "".join(f"{name},,\\n" for name in files)
    name = "plug_small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name
"""

TOLD: Final = """
        # Seconds are the file's: nothing of this hangs on how fast a machine is.
        scale = 2 if cell.params["how"] == "two" else 1
        found.observe("step_time", SECONDS, samples=[SECONDS] * 3)
        found.observe("topology_sent", scale * BYTES)
"""
"""Observations of a cell of the paper."""

PAPER: Final = f"""
from pathlib import Path

from plug_small_numbers import BYTES, SECONDS

from dgbench.lab import result_checks
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Experiment, Measurement, Paper

PASSED = result_checks.ResultCheck(
    of="outputs", against="oracle", gap=1e-7, tolerance=1e-5, compared=9
)
result_checks._FORMED.add(result_checks._key(PASSED))  # as if an oracle had formed it


class Work(Experiment):
    paper, name = "small", "work"
    title, question, claims = "Work", "Does it work?", ()

    def cells(self, preset, device):
        place = {{"paper": self.paper, "experiment": self.name}}
        return [Cell(**place, params={{"how": how}}, group="all", repeats=2, timeout_s=60)
                for how in ("one", "two")]

    def run(self, cell, context):
        found = Measurement(checks=[PASSED])
{TOLD}
        return found


PAPER = Paper(
    name="small", title="Small", venue="a test", about="A paper of a test.", system="small",
    ledger=Path(__file__).with_name("plug_small.yaml"), experiments=(Work(),), checks={{}},
)
"""


class SmallRepository:
    """A repository at `top`, with a commit for every call of `commit`."""

    def __init__(self, top: Path) -> None:
        self.top = top
        top.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        for name, text in (("pyproject.toml", PROJECT), ("backend.py", BACKEND),
                           ("plug_small.py", PAPER)):  # fmt: skip
            (top / name).write_text(text)

    def git(self, *arguments: str) -> str:
        """Output of git, which reads nobody's settings."""
        who = {f"GIT_{r}_{k}": v for r in ("AUTHOR", "COMMITTER")
               for k, v in (("NAME", "Nobody"), ("EMAIL", "nobody@example.org"))}  # fmt: skip
        env = {**os.environ, **who, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *arguments], cwd=self.top, env=env, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(
        self, *, bytes_: int = 100, seconds: float = 1e-4, subject: str = "change", **files: str
    ) -> str:
        """Commit numbers, and files by name with `__` for a point; returns the hash."""
        numbers = f"BYTES, SECONDS = {bytes_}, {seconds}\n"
        (self.top / "plug_small_numbers.py").write_text(numbers)
        for name, text in files.items():
            (self.top / name.replace("__", ".")).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)
        return self.git("rev-parse", "HEAD")
