"""The search for failing examples: what it runs, keeps and says, and its exit codes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "search_examples.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout: scripts do not travel")

PROPERTIES = """
import os
from hypothesis import given, settings, strategies as st
settings.register_profile("search", database=None, print_blob=True, deadline=None)
settings.load_profile(os.environ["DGBENCH_EXAMPLES"])

@settings(max_examples=20)
@given(count=st.integers(0, 10), data=st.lists(st.booleans(), max_size=2))
def test_small(count, data):
    assert count <= LIMIT

def test_no_property():
    raise AssertionError("only property tests are run")
"""


def run(folder, *arguments):
    command = [sys.executable, str(SCRIPT), "--out", str(folder / "found"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def kept(folder):
    return sorted((folder / "found").glob("*")) if (folder / "found").exists() else []


def script():
    spec = importlib.util.spec_from_file_location("search_examples", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_failing_example_is_kept_with_what_repeats_it(tmp_path):
    (tmp_path / "test_one.py").write_text(PROPERTIES.replace("LIMIT", "3"))
    count, (failure,) = script().run_file([str(tmp_path / "test_one.py")], 7, timeout=200)
    assert count == 1
    text = failure.keep(tmp_path / "found").read_text()
    for part in ("::test_small", "seed: 7", "--hypothesis-seed=7", "@example(count=4, data=[])"):
        assert part in text
    assert "@reproduce_failure(" in text


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import os\nos._exit(3)", "no report"),
        ("import time\ntime.sleep(600)", None),
    ],
)
def test_a_process_that_crashes_is_a_failure_and_one_that_outlasts_the_time_is_none(
    tmp_path, body, words
):
    body = body.replace("\n", "\n    ")
    text = PROPERTIES.replace("assert count <= LIMIT", body)
    (tmp_path / "test_one.py").write_text(text)
    result = script().run_file([str(tmp_path / "test_one.py")], 1, timeout=240 if words else 4)
    if words is None:
        assert result is None
    else:
        count, (failure,) = result
        assert count == 0
        assert words in failure.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--minutes", "0"], "must be above 0"),
        (["--minutes", "nan"], "must be above 0"),
        (["--rounds", "0"], "must be at least 1"),
        (["--seed", "-1"], "must be 0 to"),
        (["empty"], "no property test"),
        (["nothing.py"], "refuses"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "test_none.py").write_text("def test_one(): pass\n")
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
