"""The search for failing examples: what it runs, keeps and says, and its exit codes."""

from __future__ import annotations

import importlib.util
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


@pytest.mark.nightly
@pytest.mark.parametrize("body", ["import os; os._exit(3)", "import time; time.sleep(600)"])
def test_a_process_that_crashes_is_a_failure_and_one_that_outlasts_the_time_is_none(tmp_path, body):
    text = PROPERTIES.replace("assert count <= LIMIT", body)
    (tmp_path / "test_one.py").write_text(text)
    crashes = "_exit" in body
    result = script().run_file([str(tmp_path / "test_one.py")], 1, timeout=240 if crashes else 4)
    assert (result is not None) == crashes
    assert not crashes or (result[0], len(result[1])) == (0, 1)
