"""Plant regressions in small repositories and see whether a bisection finds them on a real clock.

    python -m tests.planted_regression --trials 5 --percent 5

Each trial makes a repository of a few commits, each of which changes what a step counts and one of
which makes it count so many percent more: about 30 ms of additions, the same number on any machine.
`dgbench bisect` then has to name that commit by times alone, in at most log2(n) + 1 builds of n
commits, and confirm it by a second interleaved race. The suite tests the same search with a
stand-in clock, as no test may hang on time. Exit code 1 if a wrong commit was confirmed, if more
was built, or if fewer than half of the trials found theirs.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dgbench.harness.terminal.text import say, table
from dgbench.harness.terminal.tracking import search_text
from dgbench.harness.track.bisect import Bisection, Journal, find_commit
from dgbench.harness.track.builds import Builder, BuildFailed
from dgbench.harness.track.race import RaceRequest, new_folder_name, run_race
from dgbench.harness.track.revisions import Repository, Revision
from tests import small_repository

ADDITIONS = 500_000
"""Additions of a step before the regression."""
PAPER = small_repository.PAPER.replace("BYTES, SECONDS", "ADDITIONS").replace(
    small_repository.TOLD,
    """
        steady = measure_steady(lambda: sum(number for number in range(ADDITIONS)), budget_s=0.6)
        found.observe("step_time", steady.time, samples=steady.samples)
""",
)
CELL = "small/work one"


@dataclass(frozen=True)
class Trial:
    """Outcome of one search: the place of the planted commit and of the one that was named (None
    for none), whether that was confirmed, commits that were built, and seconds."""

    planted: int
    named: int | None
    confirmed: bool
    builds: int
    seconds: float

    @property
    def found(self) -> bool:
        """True if the planted commit, and no other, was named and confirmed."""
        return self.confirmed and self.named == self.planted

    @property
    def word(self) -> str:
        """The outcome in words."""
        if self.named is None:
            return "nothing found"
        where = "found" if self.named == self.planted else "another commit"
        return where if self.confirmed else f"{where}, not confirmed"


def plant(top: Path, commits: int, percent: float, place: int) -> small_repository.SmallRepository:
    """A repository whose commit at `place` (0 is the first, which is good) counts more."""
    repository = small_repository.SmallRepository(top)
    (top / "plug_small.py").write_text(PAPER)
    for number in range(commits):
        more = 1 + percent / 100 if number >= place else 1.0
        # One addition a commit, so that no two have the same files.
        count = round(ADDITIONS * more) + number
        (top / "plug_small_numbers.py").write_text(f"ADDITIONS = {count}\n")
        repository.git("add", "--all")
        repository.git("commit", "--quiet", "--message", f"number {number}")
    return repository


def search(folder: Path, commits: int, percent: float, place: int, rounds: int) -> Trial:
    """Plant a regression in a folder and search for it."""
    small = plant(folder / "small", commits, percent, place)
    with _inside(small.top, folder):
        repository = Repository()
        good, bad = (repository.revision(name) for name in (f"HEAD~{commits - 1}", "HEAD"))
        chain = repository.between(good, bad)
        build = Builder(repository, folder / "cache" / "track")

        def race(one: Revision, two: Revision, times: int) -> object:
            request = RaceRequest((CELL,), rounds * times, "smoke", "cpu", one=True)
            where = folder / "runs" / f"{new_folder_name(one, two)}-{times}"
            return run_race(build(one), build(two), request, where).comparison

        begin, journal = time.monotonic(), Journal(folder / "journal.json")
        try:
            found = find_commit(good, chain, race, journal, note=_say)
        except BuildFailed as error:  # clocks cannot tell even the last commit from the first
            _say(str(error))
            return Trial(place, None, False, build.installed, time.monotonic() - begin)
        seconds = time.monotonic() - begin
    say(search_text(found, good, bad, CELL))
    return Trial(place, _place(found, [good, *chain]), not found.exit_code, build.installed,
                 seconds)  # fmt: skip


def _place(found: Bisection, chain: Sequence[Revision]) -> int | None:
    if found.culprit is None:
        return None
    return [one.sha for one in chain].index(found.culprit.sha)


@contextlib.contextmanager
def _inside(top: Path, folder: Path) -> Iterator[None]:
    """In a repository, with a cache of its own."""
    before, cache = Path.cwd(), os.environ.get("DGBENCH_CACHE")
    os.environ["DGBENCH_CACHE"] = str(folder / "cache")
    os.chdir(top)
    try:
        yield
    finally:
        os.chdir(before)
        if cache is None:
            del os.environ["DGBENCH_CACHE"]
        else:
            os.environ["DGBENCH_CACHE"] = cache


def _say(text: str) -> None:
    say(f"  {text}", sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=5, help="searches (default 5)")
    parser.add_argument("--commits", type=int, default=8, help="of a repository (default 8)")
    parser.add_argument("--percent", type=float, default=5.0, help="more work (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="processes a side (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the planted commits' places")
    given = parser.parse_args()
    if given.trials < 1 or given.commits < 2 or given.rounds < 2 or given.percent <= 0:
        parser.error("needed: --trials >= 1, --commits >= 2, --rounds >= 2, --percent > 0")
    draw = random.Random(given.seed)
    allowed = math.ceil(math.log2(given.commits)) + 1
    trials = []
    for number in range(1, given.trials + 1):
        place = draw.randrange(1, given.commits)
        say(f"Trial {number}: {given.percent:g} % in number {place} of {given.commits}")
        with tempfile.TemporaryDirectory(prefix="planted-") as folder:
            trials.append(search(Path(folder), given.commits, given.percent, place, given.rounds))
        say(f"  {trials[-1].word}, {trials[-1].builds} builds, {trials[-1].seconds:.0f} s")
    rows = [[str(n), str(one.planted), "-" if one.named is None else str(one.named), one.word,
             str(one.builds), f"{one.seconds:.0f}"] for n, one in enumerate(trials, 1)]  # fmt: skip
    say(table(["trial", "planted", "named", "outcome", "builds", "seconds"], rows))
    found = sum(one.found for one in trials)
    wrong = [one for one in trials if one.confirmed and not one.found]
    most = max(one.builds for one in trials)
    say(f"Found {found} of {len(trials)}, {len(wrong)} wrong ones; at most {most} builds, "
        f"{allowed} allowed.")  # fmt: skip
    return int(bool(wrong) or most > allowed or 2 * found < len(trials))


if __name__ == "__main__":
    sys.exit(main())
