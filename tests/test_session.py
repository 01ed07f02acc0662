"""Files that a test run leaves in the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tree_check import left_entries

TESTS = Path(__file__).parent


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


def test_a_run_that_leaves_a_file_fails_and_names_it(tmp_path):
    """With this suite's own conftest.py, over a tree of its own."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "fused.py", "skips.py", "tree_check.py", "warm.py"):
        (tests / name).write_text((TESTS / name).read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cuda\naddopts = -q\n")
    leaves = "from pathlib import Path\ndef test_it(): Path({!r}).mkdir(parents=True)\n"
    (tests / "test_one.py").write_text(leaves.format("results/.site-abcd"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1, ended.stdout
    assert "results/.site-abcd" in ended.stdout
