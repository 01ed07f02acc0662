"""Courses of a process: rings keep every peak, rows keep a course below 6 KB."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.probes.cpu import CPU_S, TreeTime
from dgbench.harness.probes.series import (
    BUCKETS,
    BYTES,
    UNITS,
    Recording,
    Ring,
    pack,
    tell,
    unpack,
)
from dgbench.harness.report.series import over_time_points
from dgbench.harness.store import Row
from dgbench.harness.store.row import decode, encode
from dgbench.runtime.meter import SpanLog

readings = st.lists(
    st.tuples(st.floats(0, 3000), st.floats(-1e6, 1e6)), min_size=1, max_size=300
).map(sorted)


@settings(deadline=None, max_examples=60)
@given(readings)
def test_a_ring_is_short_and_keeps_the_extremes_of_every_piece_of_time(points):
    ring = Ring()
    for seconds, value in points:
        ring.add(seconds, value)
    assert len(ring) <= BUCKETS
    assert len(ring.low) == len(ring.high)
    want: dict[int, list[float]] = {}
    for seconds, value in points:
        want.setdefault(int(seconds / ring.step), []).append(value)
    for place in range(len(ring)):
        values = want.get(place)
        assert ring.low[place] == (min(values) if values else None)
        assert ring.high[place] == (max(values) if values else None)


def recording(length=20.0, period=0.02, *, gpu=False, limit=18 << 30):
    made = Recording(begin=100.0)
    made.limits |= {"memory": float(limit), "cpu": 200.0, "gpu_power": 700e3}
    names = ["gpu_memory", "gpu_power", "gpu_sm_clock", "gpm_sm_active", "gpm_pcie_rx"] * gpu
    for i in range(int(length / period)):
        now = 100.0 + i * period
        made.add("memory", now, (300 + 7 * i % 911) * 2.0**20)
        made.add("cpu", now, 100.0 + 90 * ((i * 37) % 100) / 100)
        for place, name in enumerate(names):
            made.add(name, now, 100.0 * place + i % (500 + place))
    return made


def told(count=5000, length=20.0, begin=100.0):
    log = SpanLog()
    each = length / count
    for i in range(count):
        at = begin + i * each
        log.add("compute", at, at + 0.6 * each)
        log.add("update", at + 0.6 * each, at + 0.9 * each)
    for i in range(300):
        log.mark("epoch", begin + i * length / 300)
    return tell(log)


@pytest.mark.parametrize(
    ("gpu", "length", "spans"), [(False, 0.3, 0), (True, 20.0, 3), (True, 900.0, 5000)]
)
def test_a_packed_course_is_small_and_comes_back(gpu, length, spans):
    made = recording(length, max(0.02, length / 3000), gpu=gpu)
    peaks = {name: max(v for v in ring.high if v is not None) for name, ring in made.rings.items()}
    packed = pack(made, length, told(spans, length) if spans else {})
    assert len(msgspec.json.encode(packed)) <= BYTES < 6000
    with_course = row(series=packed)
    assert decode(encode(with_course)) == with_course
    found = unpack(packed)
    assert set(found.tracks) == set(made.rings)
    for name, track in found.tracks.items():
        unit, scale, places = UNITS[name]
        assert track.unit == unit
        assert track.peak == pytest.approx(peaks[name] / scale, abs=0.51 * 10**-places)
    assert found.tracks["memory"].limit == 18 * 1024
    assert found.step_s * len(found.tracks["memory"].low) >= length - found.step_s
    if spans:
        seconds: dict[str, float] = {}
        for name, begin, end in found.spans:
            assert -1e-9 <= begin <= end <= length + 1e-3
            seconds[name] = seconds.get(name, 0.0) + end - begin
        # Rounding of begins and ends is all that is lost.
        room = 1e-4 * len(found.spans)
        assert seconds["compute"] == pytest.approx(0.6 * length, abs=room)
        assert seconds["update"] == pytest.approx(0.3 * length, abs=room)
        assert (found.merged > 0) == (found.resolution_s > 0) == (spans == 5000)
        assert found.strides["epoch"] > 1


def test_what_is_short_empty_or_broken_is_no_course():
    assert pack(None, 1.0) == pack(Recording(), 1.0) == pack(recording(0.1), 0.1) == {}
    for broken in ({}, {"a": 1}, {"step_s": 1, "seconds": 1, "tracks": {"memory": {}}},
                   {"tracks": 3}):  # fmt: skip
        assert unpack(broken) is None
    ring = Ring()
    ring.add(-0.1, 5.0)
    ring.add(0.1, float("nan"))
    assert len(ring) == 0


def row(**more):
    return Row(id="a-r1", cell_hash="a", paper="p", experiment="e", params={"system": "x"},
               group="g", samples=[1.0], **more)  # fmt: skip


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 2), st.floats(1e-3, 3)), max_size=80),
    st.integers(4, 40),
)
def test_merging_spans_keeps_the_seconds_of_each_phase(parts, limit):
    log, at, want = SpanLog(limit), 1000.0, {}
    for name, pause, length in parts:
        log.add(name, at + pause, at + pause + length)
        want[name] = want.get(name, 0.0) + length
        at += pause + length
    spans = log.spans
    assert len(spans) <= limit
    assert [begin for _, begin, _ in spans] == sorted(begin for _, begin, _ in spans)
    found: dict[str, float] = {}
    for name, begin, end in spans:
        assert 1000.0 <= begin <= end <= at + 1e-6
        found[name] = found.get(name, 0.0) + end - begin
    assert found == {name: pytest.approx(seconds, abs=1e-6) for name, seconds in want.items()}
    assert log.merged == len(parts) - len(spans) if not log.resolution else log.seen == len(parts)


def test_a_log_keeps_few_marks_at_even_steps():
    log = SpanLog()
    for i in range(1000):
        log.mark("epoch", float(i))
    assert log.strides["epoch"] == 32
    assert log.marks["epoch"] == [32.0 * i for i in range(32)]


def test_processor_time_of_a_tree_is_a_difference_of_clocks(monkeypatch):
    tree = SimpleNamespace(pid=7, last=[7])
    clocks = {7: 0.5}
    monkeypatch.setattr("dgbench.harness.probes.cpu.cpu_seconds", clocks.get)
    busy = TreeTime(tree, 10.0)
    assert busy.percent(10.0 + CPU_S / 2) is None
    assert busy.percent(11.0) == pytest.approx(50.0)
    tree.last, clocks[8] = [7, 8], 30.0  # found late: what it did before is no peak
    clocks[7] = 1.5
    assert busy.percent(12.0) == pytest.approx(100.0)
    clocks[8] = 31.0
    assert busy.percent(13.0) == pytest.approx(100.0)
    clocks.clear()
    assert busy.percent(14.0) is None


def test_the_figure_over_time_shows_the_systems_of_a_race_that_ran_longest():
    def course(system, length, *, spans=5, experiment="race", **params):
        packed = pack(recording(length), length, told(spans, length) if spans else {})
        return Row(id=f"{experiment}-{system}-r1", cell_hash=f"{experiment}{system}", series=packed,
                   paper="pipad", experiment=experiment, group="g", round=1,
                   params={"system": system, "dataset": "hepth", **params},
                   instrumented=bool(spans))  # fmt: skip

    lengths = {"pygt": 4.0, "pipad": 2.0, "pygt-g": 3.0, "pygt-r": 3.5, "x": 1.0}
    rows = [course(system, length) for system, length in lengths.items()]
    rows += [course("pygt", 9.0, experiment="alone"), course("pipad", 50.0, control="aa")]
    rows += [course(s, 30.0, spans=0, experiment="unwatched") for s in ("pygt", "pipad")]
    points = over_time_points([*rows, Row(id="none", paper="pipad")])
    assert list(dict.fromkeys(p["panel"] for p in points)) == ["PiPAD", "PyGT", "PyGT-R", "PyGT-G"]
    assert all(p["row_ids"][0].startswith("race-") for p in points)
    assert {p["row"] for p in points} == {"memory", "cpu", "phases", "marks"}
