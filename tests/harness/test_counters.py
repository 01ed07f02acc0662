"""The counters that the history suite keeps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "benchmarks" / "asv"

pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason="no checkout: benchmarks do not travel")


@pytest.fixture(scope="module")
def counters():
    sys.path.insert(0, str(SUITE))
    try:
        import counters
    finally:
        sys.path.remove(str(SUITE))
    return counters


def test_every_counter_is_listed_counted_and_kept(counters):
    found = counters.counted()
    assert tuple(found) == counters.NAMES
    assert all(isinstance(value, int) and value >= 0 for value in found.values())
    kept = json.loads((SUITE / "baseline.json").read_text())
    label = "counters.Counters.track_count('{}')"
    assert {label.format(name) for name in counters.NAMES} <= set(kept)
    worse = {n: v for n, v in found.items() if v > kept[label.format(n)]}
    assert not worse
