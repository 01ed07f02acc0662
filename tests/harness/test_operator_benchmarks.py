"""The front end of pytest-benchmark: limits of the machine, and the line of an operator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks" / "operators"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="no checkout: benchmarks do not travel")


@pytest.fixture
def front(monkeypatch):
    """The modules of the front end, and what they import beside them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import work

    spec = importlib.util.spec_from_file_location("operators_conftest", FOLDER / "conftest.py")
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    yield work, conftest
    for name in ("work", "graphs"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("more", "bound"), [({}, "copy"), ({"lines": 9}, "lines"), ({"products": 9}, "products")]
)
def test_an_operator_is_timed_beside_the_limit_that_bounds_it(front, monkeypatch, more, bound):
    work, conftest = front
    measured = work.limits(0.04)
    assert all(value > 0 for value in measured.values())
    monkeypatch.setattr(conftest, "limits", lambda: measured)
    kept: dict = {}

    def benchmark(function, *args):
        return function(*args)

    benchmark.extra_info = kept
    timed = conftest.timed.__wrapped__(benchmark)
    assert timed(work.Work("3 rows", 8_000, **more), torch.add, 1, 2) == 3
    assert (kept["bound"], kept["limit"]) == (bound, measured[bound])
    seconds = 2 * kept["amount"] / kept["limit"]  # half as fast as the machine
    one = SimpleNamespace(
        name="test_add", extra_info=kept, stats=SimpleNamespace(data=[seconds] * 9)
    )
    line = conftest._line(one, before=3 * seconds)
    assert (line[0], line[4], line[5]) == ("add", f"50 % of {bound}", "3.00x")
