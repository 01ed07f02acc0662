"""Use of a GPU: read from rows, shown on races that left it idle, never 0 where unknown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dgbench.harness.claims.evaluate import TIMED_KINDS, stamp_idle_gpu
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.probes.gpm import METRICS
from dgbench.harness.probes.series import Recording, pack
from dgbench.harness.store import Row
from dgbench.harness.utilisation import COUNTERS, IDLE_PERCENT, counter_value, gpu_idle, mark_idle

BY_TITLE = {counter.title: counter for counter in COUNTERS}


def row(name="a-r1", sm=0.3, *, device="cuda", **more):
    """A row of a race on a device, with what its probes said."""
    probes = {"gpm_sm_active_percent": sm, "gpu_kernel_resident_percent": 6.0,
              "gpu_memory_peak_bytes": 3 * 2.0**30, "pcie_rx_bytes": -1,
              "nvlink_rx_bytes": "not offered: Not Supported"}  # fmt: skip
    told = probes if device == "cuda" else {"gpu": "no NVIDIA driver"}
    return Row(id=name, device=device, probes=told, **more)


def course(*percent):
    """The series of a process in which SM active took these values."""
    made = Recording(begin=0.0)
    for i, value in enumerate(percent):
        made.add("gpm_sm_active", 0.05 * i + 0.01, value)
    return pack(made, 0.05 * len(percent))


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        ([0.2, 0.4], (0.2, 0.4)),
        ([0.0], (0.0, 0.0)),
        ([19.99], (19.99, 19.99)),
        ([IDLE_PERCENT], None),
        ([0.2, 55.0], None),
        ([], None),
    ],
)
def test_a_race_is_idle_where_no_row_reaches_the_limit(values, idle):
    found = gpu_idle([row(f"{i}-r1", value) for i, value in enumerate(values)])
    assert (found and (found.low, found.high)) == idle
    if found:
        assert found.words.startswith("GPU idle: SM active ")
        assert found.rows == tuple(f"{i}-r1" for i in range(len(values)))


@pytest.mark.parametrize("reason", ["NVML error 3", None, float("nan"), True])
def test_without_sm_active_the_share_with_a_kernel_stands_for_it(reason):
    found = gpu_idle([row(sm=reason)])
    assert found.words == "GPU idle: kernel resident 6 %"
    without = row(sm=reason)
    del without.probes["gpu_kernel_resident_percent"]
    assert gpu_idle([without]) is None  # unknown is not idle


def test_a_peak_over_time_counts_more_than_the_mean_of_a_process():
    assert gpu_idle([row(sm=9.0, series=course(0.0, 3.0, 80.0, 2.0))]) is None
    found = gpu_idle([row(sm=30.0, series=course(1.0, 3.0, 8.0, 2.0))])
    assert found.high == 8.0


def test_a_counter_is_a_number_or_a_reason_and_never_zero_where_unknown():
    one = row()
    assert counter_value(one, BY_TITLE["memory, peak"]) == 3.0
    assert counter_value(one, BY_TITLE["PCIe in"]) == "the counter began again"
    assert counter_value(one, BY_TITLE["NVLink in"]) == "not offered: Not Supported"
    assert counter_value(one, BY_TITLE["tensor active"]) == "not read"
    assert counter_value(row(device="cpu"), BY_TITLE["power"]) == "no NVIDIA driver"
    one.probes["gpm"] = "it needs Hopper or later"  # rows of earlier versions
    assert counter_value(one, BY_TITLE["tensor active"]) == "it needs Hopper or later"
    assert {c.probe.name for c in COUNTERS if c.probe.source == "gpm"} <= set(METRICS)


def points_of(*rows, **more):
    point = {"system": "tgcn", "baseline": "jodie", "value": 300.0, "low": 200.0, "high": 400.0}
    return [{**point, "row": f"on {r.id}", "row_ids": [r.id], **more} for r in rows]


def test_factors_of_idle_races_are_marked_and_others_are_not():
    rows = [row("a-r1"), row("b-r1", 60.0), row("c-r1", device="cpu")]
    points = [*points_of(*rows), *points_of(rows[0], projected=True),
              {**points_of(rows[0])[0], "failed": "oom"}]  # fmt: skip
    marked = mark_idle(points, rows)
    assert [p.get("idle", "") for p in marked] == ["GPU idle: SM active 0.3 %", "", "", "", ""]
    assert all("idle" not in p for p in points)


@pytest.mark.parametrize(
    ("kind", "source", "sm", "stamped"),
    [
        ("speedup", "timed", 0.3, True),
        ("throughput", "probed", 0.3, True),
        ("speedup", "timed", 45.0, False),
        ("speedup", "counted", 0.3, False),
        ("speedup", "projected", 0.3, False),
        ("dataset_stat", "timed", 0.3, False),
    ],
)
def test_a_verdict_says_that_its_race_left_the_gpu_idle(kind, source, sm, stamped):
    verdict = Verdict(id="x", verdict="direction only", glyph="d", source=source,
                      reason="right sign", rows=("a-r1",))  # fmt: skip
    assert (kind in TIMED_KINDS) == (kind != "dataset_stat")
    rows = [row(sm=sm), row("other-r1", 99.0)]  # a row that it does not rest on
    found = stamp_idle_gpu(SimpleNamespace(kind=kind), verdict, rows)
    assert bool(found.gpu_idle) == stamped
    assert found.reason == ("right sign; GPU idle: SM active 0.3 %" if stamped else "right sign")
    assert found.verdict == verdict.verdict
