"""Use of a GPU: read from rows, shown on races that left it idle, never 0 where unknown."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from dgbench.harness.claims.evaluate import stamp_idle_gpu
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store import Row
from dgbench.harness.utilisation import IDLE_PERCENT, gpu_idle


def row(name="a-r1", sm=0.3, **probes):
    """A row of a race on a device, with what its probes said."""
    return Row(id=name, device="cuda", probes={"gpm_sm_active_percent": sm, **probes})


@pytest.mark.parametrize(
    ("values", "idle"),
    [([0.2, 0.4], (0.2, 0.4)), ([0.0], (0.0, 0.0)), ([IDLE_PERCENT], None), ([0.2, 55.0], None),
     ([], None), (["NVML error 3"], None), ([None], None), ([math.nan], None), ([True], None)],
)  # fmt: skip
def test_a_race_is_idle_where_no_row_reaches_the_limit_and_unknown_is_not_idle(values, idle):
    found = gpu_idle([row(f"{i}-r1", value) for i, value in enumerate(values)])
    assert (found and (found.low, found.high)) == idle
    if found:
        assert found.rows == tuple(f"{i}-r1" for i in range(len(values)))


def test_without_sm_active_the_share_with_a_kernel_stands_for_it():
    found = gpu_idle([row(sm="NVML error 3", gpu_kernel_resident_percent=6.0)])
    assert (found.low, found.high) == (6.0, 6.0)


@pytest.mark.parametrize(
    ("kind", "source", "sm", "stamped"),
    [("speedup", "timed", 0.3, True), ("throughput", "probed", 0.3, True),
     ("speedup", "timed", 45.0, False), ("speedup", "counted", 0.3, False)],
)  # fmt: skip
def test_a_verdict_says_that_its_race_left_the_gpu_idle(kind, source, sm, stamped):
    verdict = Verdict(id="x", verdict="direction only", glyph="d", source=source,
                      reason="right sign", rows=("a-r1",))  # fmt: skip
    rows = [row(sm=sm), row("other-r1", 99.0)]  # a row that it does not rest on
    found = stamp_idle_gpu(SimpleNamespace(kind=kind), verdict, rows)
    assert bool(found.gpu_idle) == (found.reason != verdict.reason) == stamped
    assert found.verdict == verdict.verdict
