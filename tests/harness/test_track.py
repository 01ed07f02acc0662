"""Races between commits: what is built, who runs when, and which commit is found."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.compare import compare_states
from dgbench.harness.states import State
from dgbench.harness.store import Row
from dgbench.harness.terminal.tracking import search_text
from dgbench.harness.track.bisect import Journal, find_commit, judge
from dgbench.harness.track.builds import Builder, BuildFailed
from dgbench.harness.track.race import take_turns
from dgbench.harness.track.revisions import Repository, Revision
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError
from tests.small_repository import SmallRepository


class Memory:
    """A run in memory: one side of an interleaved race, or of none."""

    def __init__(self, times, counts, *, race="r", status="ok"):
        self.run, self.path, self.info = "0a1b2c3d", "/nowhere", {"race": race}
        self._rows = [
            Row(id=f"c-r{i}", cell_hash="c", paper="toy", experiment="fig1", params={"k": "one"},
                group="g", round=i, status=status,
                observed=[observation("step_time", t, samples=[t]),
                          *(observation(name, value) for name, value in counts.items())])
            for i, t in enumerate(times, 1)
        ]  # fmt: skip

    def rows(self):
        return self._rows

    def provenance(self):
        return {}


def side(times, counts=(), **more):
    return State.of([Memory(times, dict(counts), **more)])


def clock(mean, seed, rounds, spread=0.01, drift=0.0):
    """Seconds of each round by a stand-in clock, of a machine that gets slower."""
    draw = random.Random(seed)
    return [mean * math.exp(drift * k) * draw.lognormvariate(0, spread) for k in range(rounds)]


def word(found):
    (change,) = found.changes
    return change.word


# --- comparison of both sides ---------------------------------------------------------------


def test_pairs_see_through_drift_and_runs_of_their_own_do_not():
    rounds = 8
    draws = [clock(mean, seed, rounds, drift=0.2) for mean, seed in ((1, 1), (1.05, 2), (1, 3))]
    a, b, again = (side(times) for times in draws)
    paired = compare_states(a, b, control=again)
    assert paired.interleaved
    assert word(paired) == "SLOW"
    (change,) = paired.changes
    assert change.ratio.low < 1.05 < change.ratio.high
    assert change.ratio.n == rounds
    assert word(compare_states(side(draws[0], race=""), side(draws[1], race=""))) == "AMBG"


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.floats(1e-3, 1e3)] * 3), min_size=2, max_size=12))
def test_ratio_and_floor_are_those_of_the_rounds(rounds):
    first, second, again = (list(times) for times in zip(*rounds, strict=True))
    found = compare_states(side(first), side(second), control=side(again))
    (change,) = found.changes
    logs = [math.log(b / a) for a, b in zip(first, second, strict=True)]
    assert math.log(change.ratio.value) == pytest.approx(sum(logs) / len(logs), abs=1e-9)
    swapped = compare_states(side(first), side(again)).changes[0].ratio
    reach = max(abs(math.log(swapped.low)), abs(math.log(swapped.high)))
    assert change.floor == pytest.approx(math.expm1(reach), rel=1e-6)


# --- who runs when --------------------------------------------------------------------------


class Waiting:
    """A side that waits with its turns one after the other, and notes when it ran."""

    def __init__(self, name, turns, log):
        self.name, self.turns, self.log, self.place = name, turns, log, -1

    def turn(self):
        self.place += 1
        return self.turns[self.place] if self.place < len(self.turns) else None

    def tell(self, go):
        self.log.append((self.name, self.turns[self.place]))


def test_sides_take_turns_process_by_process_and_even_rounds_run_backwards():
    steps = [(0, 1), (1, 1), (1, 2), (0, 2)]
    log = []
    sides = {name: Waiting(name, steps, log) for name in ("a", "b", "control")}
    take_turns(sides, {step: k for k, step in enumerate(steps)}, lambda text: None)
    order = "".join(name[0] for name, _ in log)
    assert order == "abc" * 2 + "cba" * 2
    assert [turn for _, turn in log] == [step for step in steps for _ in range(3)]


@given(st.lists(st.sets(st.integers(0, 7)), min_size=2, max_size=3))
def test_a_side_that_leaves_turns_out_stops_no_other(left_out):
    steps = [(cell, number) for number in (1, 2) for cell in range(4)]
    log = []
    sides = {
        str(k): Waiting(str(k), [s for i, s in enumerate(steps) if i not in gone], log)
        for k, gone in enumerate(left_out)
    }
    take_turns(sides, {step: k for k, step in enumerate(steps)}, lambda text: None)
    places = [steps.index(turn) for _, turn in log]
    assert places == sorted(places)
    assert len(log) == sum(len(one.turns) for one in sides.values())


# --- the search -----------------------------------------------------------------------------


def chain(count):
    """GOOD and the commits after it."""
    every = [Revision(f"{k:040x}", f"t{k}", f"commit {k}") for k in range(count + 1)]
    return every[0], every[1:]


class Builds:
    """A stand-in for builds and races: a counter, and a clock that needs no time.

    `built` holds each commit that was built, and `races` counts races.
    """

    def __init__(self, culprit, *, counter=0, slower=1.0, broken=(), spread=0.005):
        self.culprit, self.counter, self.slower = culprit, counter, slower
        self.broken, self.spread = set(broken), spread
        self.built, self.races, self.stop_at = set(), 0, None

    def __call__(self, one, two, times):
        self.races += 1
        if self.races == self.stop_at:
            raise KeyboardInterrupt
        return compare_states(self.state(one, times), self.state(two, times),
                              control=self.state(one, times, again=1))  # fmt: skip

    def state(self, revision, times, again=0):
        place = int(revision.sha, 16)
        if place in self.broken:
            raise BuildFailed(revision, "does not build: error")
        self.built.add(place)
        bad = place >= self.culprit
        mean = self.slower if bad else 1.0
        times = clock(mean, (self.races, place, again).__hash__(), 5 * times, self.spread)
        return side(times, {"exchanged": 4096 + self.counter * bad, "edges": 7})


@pytest.mark.parametrize("planted", [{"counter": 1}, {"slower": 1.05}], ids=["byte", "5 %"])
@pytest.mark.parametrize("count", [1, 2, 7, 13])
def test_every_planted_commit_is_found_in_log2_builds(tmp_path, count, planted):
    for culprit in range(1, count + 1):
        good, commits = chain(count)
        builds = Builds(culprit, **planted)
        found = find_commit(good, commits, builds, Journal(tmp_path / f"{culprit}.json"))
        assert found.culprit == commits[culprit - 1]
        assert found.before == ([good, *commits])[culprit - 1]
        assert found.confirmed.word == "bad"
        assert found.exit_code == 0
        assert len(builds.built) <= math.ceil(math.log2(count + 1)) + 1
        assert commits[culprit - 1].short in search_text(found, good, commits[-1], "toy")


def test_a_counter_decides_before_the_clock_does(tmp_path):
    class Both(Builds):
        def state(self, revision, times, again=0):
            found = super().state(revision, times, again)
            if int(revision.sha, 16) >= 3:  # later than the counter, and slower
                for row in found.rows:
                    row.observed[0] = observation("step_time", 3 * row.time, samples=[3 * row.time])
            return found

    good, commits = chain(6)
    found = find_commit(good, commits, Both(2, counter=1), Journal(tmp_path / "a.json"))
    assert found.culprit == commits[1]
    assert "-> 4097" in found.judged[commits[1].sha].why
    found = find_commit(
        good, commits, Both(2, counter=1), Journal(tmp_path / "b.json"), metric="time"
    )
    assert found.culprit == commits[2]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_commits_that_do_not_build_are_left_out_with_a_reason(tmp_path_factory, data):
    count = data.draw(st.integers(2, 14))
    culprit = data.draw(st.integers(1, count))
    broken = data.draw(st.sets(st.integers(1, count - 1)))
    good, commits = chain(count)
    builds = Builds(culprit, counter=1, broken=broken)
    journal = Journal(tmp_path_factory.mktemp("s") / "journal.json")
    # Counters alone decide: noise of clocks would leave out commits that do build.
    found = find_commit(good, commits, builds, journal, metric="exchanged")
    first = min(k for k in range(culprit, count + 1) if k not in broken)
    last = max([0, *(k for k in range(1, culprit) if k not in broken)])
    assert found.culprit == commits[first - 1]
    assert found.before == ([good, *commits])[last]
    assert [int(one.sha, 16) for one in found.suspects] == list(range(last + 1, first))
    assert found.exit_code == int(bool(found.suspects))
    assert all("not build" in found.judged[one.sha].why for one in found.suspects)
    assert len(builds.built) <= math.ceil(math.log2(count + 1)) + 1 + len(broken)


def race_of(slow, swing=1.001):
    """Sides a clock cannot tell apart where runs of one commit swing as far as they differ."""
    again = [swing if k % 2 else 1 / swing for k in range(10)]
    return compare_states(side([1.0] * 10), side([slow] * 10), control=side(again))


def test_a_race_that_cannot_see_the_change_calls_no_commit_good():
    blind = race_of(1.05, swing=1.2)
    assert (word(blind), judge(blind)) == ("SAME", None)
    assert judge(blind, smallest=1.0).word == "good"
    assert judge(race_of(1.05)).word == "bad"
    assert judge(race_of(1.0)).word == "good"
    crashed = side([1.0] * 3, {"exchanged": 7}, status="crash")
    assert judge(compare_states(side([1.0] * 3), crashed)).word == "skipped"


# --- git and builds -------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small repository that is the current folder, with a cache and runs of its own."""
    repository = SmallRepository(tmp_path / "small")
    monkeypatch.chdir(repository.top)
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DGBENCH_RESULTS", str(tmp_path / "runs"))
    return repository


def test_commits_are_read_along_first_parents(small):
    shas = [small.commit(bytes_=k, subject=f"number {k}") for k in range(4)]
    small.git("checkout", "--quiet", "-b", "side", shas[1])
    aside = small.commit(bytes_=9)
    small.git("checkout", "--quiet", "main")
    repository = Repository()
    good, bad = repository.two(shas[0], "main")
    assert [one.sha for one in repository.between(good, bad)] == shas[1:]
    assert bad.subject == "number 3"
    with pytest.raises(InvalidInputError):
        repository.between(*repository.two(aside, "main"))
    assert not repository.dirty
    (small.top / "plug_small.py").write_text("")
    assert repository.dirty


def test_kernels_compile_once_for_all_commits_that_share_their_sources(small, tmp_path):
    shas = [
        small.commit(bytes_=1, kernel__cpp="int one;"),
        small.commit(bytes_=2),
        small.commit(bytes_=3, kernel__cpp="int two;"),
        small.commit(bytes_=4, kernel__cpp="int one;"),
        small.commit(bytes_=5, kernel__cpp="broken"),
    ]
    repository = Repository()
    build = Builder(repository)
    one, two, three, four, broken = (repository.revision(sha) for sha in shas)
    for revision, source, compiled in (
        (one, "int one;", 1), (two, "int one;", 1), (three, "int two;", 2), (four, "int one;", 2),
    ):  # fmt: skip
        path = build(revision).path
        assert (path / "plug_small_native.so").read_text() == source
        assert build.compiled == compiled
    assert build.installed == 4
    again = Builder(repository)
    assert again(three).path.is_dir()
    assert again.installed == 0
    with pytest.raises(BuildFailed):
        build(broken)
    assert not list((tmp_path / "cache" / "track" / "checkouts").iterdir())
