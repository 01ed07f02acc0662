"""Files that a test run leaves in the tree."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

SEEN = ["results/.site-ab", "results/x/rows.csv", "harness/.hidden/file", "log.txt", ".cfg"]
UNSEEN = ["harness/new.py", "results/runs/one/run.json", "build/x", ".git/index", "a/.a.py.swp",
          ".hypothesis/examples/1", "tests/__pycache__/a.pyc"]  # fmt: skip


@pytest.mark.parametrize("name", ["", *SEEN, *UNSEEN])
def test_a_run_that_leaves_a_file_fails(tmp_path, monkeypatch, pytestconfig, name):
    conftest = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    for folder in ("results", "harness", "tests", "a"):
        (tmp_path / folder).mkdir()
    stash = {conftest.BEFORE: conftest.tree_check.left_entries(tmp_path)}
    session = SimpleNamespace(config=SimpleNamespace(stash=stash), exitstatus=pytest.ExitCode.OK)
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    if name:
        (tmp_path / name).write_text("")
    conftest.pytest_sessionfinish(session)
    assert bool(session.exitstatus) == bool(stash[conftest.LEFT]) == (name in SEEN)
