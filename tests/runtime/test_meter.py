"""Phases that lie within each other share out the time; nothing is timed unless asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.runtime import meter as module
from dgbench.runtime.meter import Meter, SpanLog, keep_spans, kept_spans
from dgbench.runtime.ranks import launch

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


@pytest.fixture
def log():
    """A log that meters of this process tell of their phases, as in an instrumented process."""
    made = SpanLog()
    keep_spans(made)
    yield made
    keep_spans(None)


@given(st.lists(trees, max_size=5))
def test_spans_lie_one_after_another_and_add_up_to_the_phases(program):
    clock = Clock()
    made = SpanLog()
    keep_spans(made)
    meter = Meter(timing=True)
    keep_spans(None)

    def run(parts):
        for part in parts:
            if isinstance(part, int):
                clock.now += part
            elif isinstance(part, str):
                meter.turn(part)
            else:
                with meter.phase(part[0]):
                    run(part[1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        run(program)
    sums: dict[str, int] = {}
    last = 0
    for name, begin, end in made.spans:
        assert last <= begin < end <= clock.now
        sums[name] = sums.get(name, 0) + end - begin
        last = end
    assert sums == {name: s for name, s in meter.phases().items() if s}


def test_all_meters_of_a_process_tell_its_log_and_marks_do(monkeypatch, log):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    first, second, untimed = Meter(timing=True), Meter(), Meter()
    second.timing = True  # experiments switch clocks on later
    for meter in (first, second, untimed):
        with meter.phase("gnn"):
            clock.now += 1
        meter.mark("epoch")
        meter.reset()
    assert log.spans == [("gnn", 0, 1), ("gnn", 1, 2)]
    assert log.marks == {"epoch": [1, 2, 3]}


def test_without_a_log_a_mark_reads_no_clock(monkeypatch):
    assert kept_spans() is None
    monkeypatch.setattr(module, "time", None)
    Meter(timing=True).mark("epoch")


def _a_phase(comm):
    with comm.meter.phase("compute"):
        sum(range(1000))
    comm.meter.mark("epoch")
    return comm.rank


def test_one_rank_hands_its_phases_to_the_process_that_launched_it(log):
    with Meter(timing=True).phase("transfer"):
        sum(range(1000))
    assert launch(_a_phase, 2, threads=1, timeout_s=120) == [0, 1]
    assert [name for name, _, _ in log.spans] == ["transfer", "compute"]
    assert log.spans[0][2] <= log.spans[1][1]
    assert len(log.marks["epoch"]) == 1
    assert log.of == "rank 0"
