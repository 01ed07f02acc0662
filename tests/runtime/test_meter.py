"""Phases that lie within each other share out the time; nothing is timed unless asked for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgbench.runtime import meter as module
from dgbench.runtime.meter import Meter, SpanLog, keep_spans

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
def test_every_second_belongs_to_the_innermost_phase_and_spans_add_up_to_it(program):
    clock, log = Clock(), SpanLog()
    keep_spans(log)
    meter = Meter(timing=True)
    keep_spans(None)
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        run(program, None)
    assert {name: s for name, s in meter.phases().items() if s} == want
    last, sums = 0, dict.fromkeys(want, 0)
    for name, begin, end in log.spans:
        assert last <= begin < end <= clock.now
        sums[name] += end - begin
        last = end
    assert sums == want


def test_without_timing_no_clock_is_read(monkeypatch):
    monkeypatch.setattr(module, "time", None)
    meter = Meter()
    with meter.phase("compute"):
        meter.turn("gnn")
    assert meter.phases() == {}


def test_many_marks_are_thinned_evenly() -> None:
    log = SpanLog()
    for number in range(10 * module.MARKS):
        log.mark("epoch", float(number))
    (kept,) = log.marks.values()
    assert 2 < len(kept) <= module.MARKS + 1
    assert len({b - a for a, b in itertools.pairwise(kept)}) == 1
