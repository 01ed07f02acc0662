"""Courses of a process: rings keep every peak, rows keep a course below 6 KB."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.probes.series import BUCKETS, BYTES, UNITS, Recording, Ring, pack, tell, unpack
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


@pytest.mark.parametrize(("gpu", "length", "spans"), [(False, 0.3, 0), (True, 900.0, 5000)])
def test_a_packed_course_is_small_and_comes_back(gpu, length, spans):
    made = recording(length, max(0.02, length / 3000), gpu=gpu)
    peaks = {name: max(v for v in ring.high if v is not None) for name, ring in made.rings.items()}
    packed = pack(made, length, told(spans, length) if spans else {})
    assert len(msgspec.json.encode(packed)) <= BYTES < 6000
    row = Row(id="a-r1", series=packed)
    assert decode(encode(row)) == row
    found = unpack(packed)
    assert set(found.tracks) == set(made.rings)
    for name, track in found.tracks.items():
        unit, scale, places = UNITS[name]
        assert track.unit == unit
        assert track.peak == pytest.approx(peaks[name] / scale, abs=0.51 * 10**-places)
    assert found.tracks["memory"].limit == 18 * 1024
    assert found.step_s * len(found.tracks["memory"].low) >= length - found.step_s
    if spans:
        for phase, share in (("compute", 0.6), ("update", 0.3)):
            seconds = sum(end - begin for name, begin, end in found.spans if name == phase)
            assert seconds == pytest.approx(share * length, abs=1e-4 * len(found.spans))
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
