"""The commit that rows name: of the tree that the code lies in, or the one that is stated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dgbench.harness.machine.provenance import code_version

MODULE = sys.modules["dgbench.harness.machine.provenance"]
NAMED = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout of ours with one file that is committed and one that is not."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    for name in ("own", "installed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "provenance.py").write_text("")
    for command in (["init", "-q"], ["add", "pyproject.toml", "own"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *NAMED, *command], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "stated", "expected"),
    [
        ("installed", "5" * 40, "5" * 40),  # a wheel within another commit's tree
        ("installed", "", "tree"),
        ("own", "5" * 40, "tree"),  # a variable that was left from before
        ("own", " ", "tree"),
    ],
)
def test_what_is_stated_goes_before_an_enclosing_tree(
    tree: Path, monkeypatch: pytest.MonkeyPatch, folder: str, stated: str, expected: str
) -> None:
    monkeypatch.setattr(MODULE, "__file__", str(tree / folder / "provenance.py"))
    monkeypatch.setenv("DGBENCH_COMMIT", stated)
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=tree, text=True).strip()
    assert code_version()["commit"] == (head if expected == "tree" else expected)
