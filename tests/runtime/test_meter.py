"""Phases that lie within each other share out the time; nothing is timed unless asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.runtime import meter as module
from dgbench.runtime.meter import Meter

NAMES = ["compute", "gnn", "rnn", "transfer"]


class Clock:
    """Time that passes only when told to."""

    def __init__(self):
        self.now = 0

    def perf_counter(self):
        return self.now


trees = st.recursive(
    st.integers(1, 5),  # time passes
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(NAMES), st.lists(inner, max_size=4)),  # a phase
        st.sampled_from(NAMES),  # a turn
        inner,
    ),
    max_leaves=20,
)


@given(st.lists(trees, max_size=5))
def test_every_second_belongs_to_the_innermost_phase(program):
    clock = Clock()
    meter = Meter(timing=True)
    want: dict[str, int] = {}

    def run(parts, now):
        for part in parts:
            if isinstance(part, int):
                clock.now += part
                if now is not None:
                    want[now] = want.get(now, 0) + part
            elif isinstance(part, str):
                meter.turn(part)
                now = part if now is not None else None
            else:
                with meter.phase(part[0]):
                    run(part[1], part[0])
        return now

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        run(program, None)
    assert {name: s for name, s in meter.phases().items() if s} == want


def test_without_timing_no_clock_is_read(monkeypatch):
    monkeypatch.setattr(module, "time", None)
    meter = Meter()
    with meter.phase("compute"):
        meter.turn("gnn")
    assert meter.phases() == {}


def test_an_error_ends_its_phase(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    meter = Meter(timing=True)

    def fail():
        with meter.phase("gnn"):
            clock.now += 2
            raise ValueError("inner")

    with meter.phase("compute"):
        clock.now += 1
        with pytest.raises(ValueError, match="inner"):
            fail()
        clock.now += 4
    assert meter.phases() == {"compute": 5, "gnn": 2}


def test_reset_forgets_everything():
    meter = Meter(timing=True)
    with meter.phase("compute"):
        meter.count("launches", 3)
        meter.spend("copy_busy", 1.5)
    assert meter.counters["launches"] == 3
    assert meter.spent == {"copy_busy": 1.5}
    meter.reset()
    assert (dict(meter.counters), dict(meter.spent), meter.phases()) == ({}, {}, {})
