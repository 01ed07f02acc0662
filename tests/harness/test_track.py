"""Races between commits: what is built, who runs when, and which commit is found."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_runs import MemoryRun, noisy, timed_rows

from dgbench.harness.compare import compare_states
from dgbench.harness.states import State
from dgbench.harness.track.bisect import Journal, find_commit, judge
from dgbench.harness.track.builds import Builder, BuildFailed
from dgbench.harness.track.race import take_turns
from dgbench.harness.track.revisions import Repository, Revision
from dgbench.lab.table import observation
from tests.small_repository import SmallRepository


def side(times, counts=(), **fields):
    """A side of an interleaved race."""
    observed = [observation(name, value) for name, value in dict(counts).items()]
    return State.of([MemoryRun(timed_rows("c", times, observed=observed, **fields), race="r")])


def word(found):
    (change,) = found.changes
    return change.word


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


# --- the search -----------------------------------------------------------------------------


def chain(count):
    """GOOD and the commits after it."""
    every = [Revision(f"{k:040x}", f"t{k}", f"commit {k}") for k in range(count + 1)]
    return every[0], every[1:]


class Builds:
    """A stand-in for builds and races, and what it has built."""

    def __init__(self, culprit, *, counter=0, slower=1.0, broken=(), spread=0.005):
        self.culprit, self.counter, self.slower = culprit, counter, slower
        self.broken, self.spread = set(broken), spread
        self.built, self.races = set(), 0

    def __call__(self, one, two, times):
        self.races += 1
        return compare_states(self.state(one, times), self.state(two, times),
                              control=self.state(one, times, again=1))  # fmt: skip

    def state(self, revision, times, again=0):
        place = int(revision.sha, 16)
        if place in self.broken:
            raise BuildFailed(revision, "does not build: error")
        self.built.add(place)
        bad = place >= self.culprit
        mean = self.slower if bad else 1.0
        times = noisy(mean, (self.races, place, again).__hash__(), 5 * times, self.spread)
        return side(times, {"exchanged": 4096 + self.counter * bad, "edges": 7})


@pytest.mark.parametrize("planted", [{"counter": 1}, {"slower": 1.05}], ids=["byte", "5 %"])
@pytest.mark.parametrize("count", [1, 7])
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


@settings(max_examples=25, deadline=None)
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


def test_kernels_compile_once_for_all_commits_that_share_their_sources(small, tmp_path):
    sources = ("int one;", None, "broken")
    shas = [small.commit(bytes_=k, **({"kernel__cpp": text} if text else {}))
            for k, text in enumerate(sources)]  # fmt: skip
    repository = Repository()
    build = Builder(repository)
    one, two, broken = (repository.revision(sha) for sha in shas)
    for revision in (one, two):
        path = build(revision).path
        assert (path / "plug_small_native.so").read_text() == "int one;"
        assert build.compiled == 1
    assert build.installed == 2
    with pytest.raises(BuildFailed):  # other sources are compiled anew
        build(broken)
    assert not list((tmp_path / "cache" / "track" / "checkouts").iterdir())
