"""The soak: what grows is found and named, what only wavers is not, and a planted leak is red."""

from __future__ import annotations

import gc
import mmap
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import fake_papers
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.growth import MIN_READINGS, growth_of
from dgbench.harness.store import Store
from dgbench.runtime.errors import InvalidInputError

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def script():
    if not SCRIPTS.is_dir() or sys.platform != "linux":
        pytest.skip("needs a checkout, and Linux's /proc")
    sys.path.insert(0, str(SCRIPTS))
    try:
        import soak
    finally:
        sys.path.remove(str(SCRIPTS))
    return soak


# -- growth


def noise(count, seed, size=0.3):
    draw = random.Random(seed)
    return [100 + size * draw.gauss(0, 1) for _ in range(count)]


def judged(values, allowed=2.0):
    return growth_of("x", [60.0 * i for i in range(len(values))], values, allowed=allowed)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(20, 60))
def test_noise_does_not_grow_and_a_steady_leak_beside_it_does(seed, count):
    values = noise(count, seed)
    # Over 20 minutes noise may look like some growth an hour, which is what `allowed` is for.
    assert judged(values, allowed=6.0).word == "steady"
    leak = judged([v + 0.5 * i for i, v in enumerate(values)], allowed=6.0)
    assert leak.word == "grows"
    assert leak.slope == pytest.approx(30, abs=6)
    assert leak.low <= leak.slope <= leak.high


@pytest.mark.parametrize(
    "values",
    [
        [5.0] * 40,
        [1.0] * 4 + [9.0] * 36,  # a cache that fills while it warms up
        [5.0] * 20 + [900.0] + [5.0] * 19,
        [5.0 + i % 2 for i in range(40)],
        [9.0 - i / 10 for i in range(40)],
        [5.0] * 25 + [6.0] * 15,  # one step is one thing, and no leak
    ],
    ids=["constant", "warm", "outlier", "wave", "shrinks", "step"],
)
def test_what_settles_does_not_grow(values):
    assert judged(values).word == "steady"


def test_every_leak_is_as_large_as_it_is_allowed_to_be():
    values = [float(i // 5) for i in range(60)]  # 12 an hour, in whole numbers
    assert judged(values, allowed=4.0).word == "grows"
    assert judged(values, allowed=30.0).word == "steady"
    assert judged(values[:MIN_READINGS]).word == "too short"
    with pytest.raises(InvalidInputError, match="1 times and 2 values"):
        growth_of("x", [0.0], [1.0, 2.0], allowed=1.0)


# -- the runner


def soaked(script, folder, leak, cells=20):
    """A soak of a paper whose cells do nothing, in which the runner leaks after every cell."""
    held = []

    class Leaky(script.SoakWatch):
        def on_row(self, row):
            self.end = 0.0 if self.rows == cells - 1 else float("inf")  # rows end it, not a clock
            leak(held)
            super().on_row(row)

    paper = fake_papers.make_paper(
        fake_papers.cell("ok", number=1), fake_papers.cell("ok", number=2, group="other")
    )
    seen = script.soak(
        [paper],
        folder,
        minutes=1,
        every=0.0,
        lookup=fake_papers.lookup,
        watch=Leaky,
        modules=(),
        pairs=6,
    )
    return seen, held


def leak_all(held):
    """Of everything a little more; two MiB are far above what pages come and go."""
    held.append(os.open(os.devnull, os.O_RDONLY))
    # Pages of its own: from the heap it would get those that an earlier test gave back.
    pages = mmap.mmap(-1, 2 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.write(b"x" * len(pages))
    held.append(pages)
    stop = threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    held.append(stop)
    held.append(subprocess.Popen(["sleep", "600"], start_new_session=True))
    tempfile.mkstemp(prefix="left-")


def close(held):
    for one in held:
        if isinstance(one, int):
            os.close(one)
        elif isinstance(one, threading.Event):
            one.set()
        elif isinstance(one, subprocess.Popen):
            one.kill()
            one.wait()


COUNTS = ("descriptors", "threads", "temporary files", "processes left behind")


@pytest.mark.usefixtures("warm_starts")
def test_a_planted_leak_is_found_and_what_is_sound_is_not_blamed(script, tmp_path):
    before = dict(os.environ), tempfile.gettempdir()
    gc.collect()  # what earlier tests left is not given back while this one counts
    leaking, held = soaked(script, tmp_path / "soak", leak_all)
    assert (leaking.rows, leaking.bad, len(leaking.readings)) == (20 + 12, 0, 22)
    try:
        growth = script.judge(leaking.readings)
        words = {g.name: g.word for g in growth}
        memory = "memory of the runner, without rows"
        grown = {name: words[name] for name in (*COUNTS, memory)}
        assert grown == dict.fromkeys(grown, "grows")
        assert words["memory of the fork server"] == "steady"
        wrong = script.verdict(growth, leaking.readings, script.slower(leaking.beside))
        assert all(any(text.startswith(name) for text in wrong) for name in COUNTS)
        assert any(text.endswith("processes left behind at the end") for text in wrong)
    finally:
        close(held)
    assert (dict(os.environ), tempfile.gettempdir()) == before
    script.write(leaking.readings, tmp_path)
    assert len((tmp_path / "readings.csv").read_text().splitlines()) == 1 + len(leaking.readings)
    script.draw_readings(leaking.readings, growth, tmp_path / "soak.svg")
    assert "grows" in script.growth_table(growth)


def test_a_lap_is_in_the_order_of_full(script):
    made = [fake_papers.cell("ok", number=n, group="g") for n in (1, 2)]
    papers = [fake_papers.make_paper(*made)]
    plan = script.lap_of(script.draw_groups(papers, random.Random(1), set()), "3")
    steps = [(plan.cells[s.index].cell.params.get("number"), s.round) for s in plan.steps]
    assert steps == [(1, 1), (1, 1), (2, 1), (2, 2), (1, 2), (1, 2), (1, 3), (1, 3), (2, 3)]
    assert [c.control for c in plan.cells] == [False, True, False]
    assert {c.cell.group for c in plan.cells} == {"g lap 3"}
    with pytest.raises(InvalidInputError, match="no group left"):
        script.draw_groups(papers, random.Random(1), {("fake", "behave", "g")})


# -- old and new


def test_where_no_cell_runs_on_both_sides_there_is_no_verdict(script):
    with pytest.raises(InvalidInputError, match="no cell ran both"):
        script.slower({name: [] for name in script.TIMES})


@pytest.mark.usefixtures("warm_starts")
def test_old_and_new_run_the_same_cells_in_turns(script, tmp_path):
    seen, _ = soaked(script, tmp_path / "soak", lambda held: None, cells=3)
    assert set(seen.beside) == set(script.TIMES)
    assert all(len(found) >= 6 for found in seen.beside.values())
    assert all(old > 0 and new > 0 for found in seen.beside.values() for old, new in found)
    assert all(r.low is not None for r in script.slower(seen.beside).values())
    groups = [
        row.group for folder in ("runs", "new")
        for run in (tmp_path / "soak" / folder).iterdir()
        for row in Store.open(run).rows()
    ]  # fmt: skip
    shared = [g.partition(" lap ") for g in groups if " of " in g]
    old, new = ({(g, lap.split()[0]) for g, _, lap in shared if lap.endswith(side)}
                for side in ("old", "new"))  # fmt: skip
    assert old == new
    assert len(old) >= 6


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(12, 60), st.floats(0.5, 20))
def test_a_machine_that_slows_down_is_not_blamed_and_a_slow_old_run_is(script, seed, n, drift):
    draw = random.Random(seed)
    # The machine's speed wanders over an order of magnitude; both sides of a pair meet the same.
    pace = [drift ** (i / n) for i in range(n)]

    def beside(share):
        pairs = [(share * p * draw.uniform(0.97, 1.03), p * draw.uniform(0.97, 1.03)) for p in pace]
        return script.slower(dict.fromkeys(script.TIMES, pairs))

    readings = [{"temporary files": 0.0, "processes left behind": 0.0}] * 4
    assert script.verdict([], readings, beside(1.0)) == []
    wrong = script.verdict([], readings, beside(1.7))
    assert [text.partition(" is ")[0] for text in wrong] == list(script.TIMES)
    assert all(name in script.times_table(beside(1.7)) for name in script.TIMES)
