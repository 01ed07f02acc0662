"""Files that a test run leaves in the tree."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tree_check import left_entries


def test_what_tests_leave_is_seen_and_what_people_and_tools_make_is_not(tmp_path):
    seen = ["results/.site-ab", "results/x/rows.csv", "harness/.hidden/file", "log.txt", ".cfg"]
    unseen = ["harness/new.py", "results/runs/one/run.json", "build/x", ".git/index",
              ".hypothesis/examples/1", "tests/__pycache__/a.pyc", "tests/.a.py.swp"]  # fmt: skip
    folders = ("results", "harness", "tests")
    for name in folders:
        (tmp_path / name).mkdir()
    before = left_entries(tmp_path)
    for name in (*seen, *unseen):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    assert left_entries(tmp_path) - before == {
        "results/.site-ab", "results/x", "results/x/rows.csv", "harness/.hidden", "log.txt", ".cfg",
    }  # fmt: skip


def test_a_run_that_leaves_a_file_fails(tmp_path, monkeypatch, pytestconfig):
    conftest = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    stash, code = {conftest.BEFORE: set()}, pytest.ExitCode
    session = SimpleNamespace(config=SimpleNamespace(stash=stash), exitstatus=code.OK)
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    conftest.pytest_sessionfinish(session)
    assert (session.exitstatus, stash[conftest.LEFT]) == (code.OK, [])
    (tmp_path / "results" / ".site-abcd").mkdir(parents=True)
    conftest.pytest_sessionfinish(session)
    assert session.exitstatus == code.TESTS_FAILED
    assert "results/.site-abcd" in stash[conftest.LEFT]
