"""Search for the commit that made a cell worse, by halves.

Counters are exact: a commit is worse where one of them grew over GOOD. Where none did, clocks
decide, raced interleaved against GOOD, outside the noise floor of the same race. The commit that is
found races the one before it once more.

BAD is taken at its word until it is the last one left, so that of n commits from GOOD to BAD, both
counted, at most ceil(log2(n)) + 1 are built; those that fail are left out and come on top.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from dgbench.harness.compare import Change, Comparison
from dgbench.harness.quantities import percent, spread
from dgbench.harness.store.files import write_whole
from dgbench.harness.track.builds import BuildFailed
from dgbench.harness.track.race import CannotRace
from dgbench.harness.track.revisions import Revision
from dgbench.runtime.errors import InvalidInputError

MAX_DOUBLINGS: Final = 2
"""Times that the rounds of a race are doubled where its interval holds both answers."""

SMALLEST: Final = 0.05
"""Change of a time that a search looks for: a race that cannot see it says of no commit that it is
good."""

Racing = Callable[[Revision, Revision, int], Comparison]
"""Builds two commits and races a cell of both, with rounds times so many."""


class Judgement(NamedTuple):
    """Outcome of one commit against another: `good`, `bad` or `skipped`, and why in words."""

    word: str
    why: str


@dataclass(slots=True)
class Bisection:
    """Result of a search.

    Attributes:
        culprit: the first bad commit, None where BAD is no worse than GOOD. before: the last good
            one. suspects: commits that were left out between both; any of them may be the one.
        judged: hash -> outcome of each commit that was tried. confirmed: the second race.
    """

    culprit: Revision | None = None
    before: Revision | None = None
    suspects: list[Revision] = field(default_factory=list)
    judged: dict[str, Judgement] = field(default_factory=dict)
    confirmed: Judgement | None = None

    @property
    def exit_code(self) -> int:
        """0 if one commit was found and confirmed, else 1."""
        whole = self.culprit is not None and not self.suspects
        return int(not (whole and self.confirmed is not None and self.confirmed.word == "bad"))


class Journal:
    """Outcomes of a search, on disk after each commit, so that it goes on where it was stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.judged: dict[str, Judgement] = {}
        if path.is_file():
            try:
                plain = json.loads(path.read_text(encoding="utf-8"))
                self.judged = {sha: Judgement(*found) for sha, found in plain.items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise InvalidInputError(
                    f"'{path}' is no journal of a search: {error}", hint="remove it to begin anew"
                ) from error

    def keep(self, sha: str, found: Judgement) -> Judgement:
        """Write an outcome down and return it."""
        self.judged[sha] = found
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, json.dumps(self.judged, indent=1).encode() + b"\n")
        return found


def find_commit(
    good: Revision,
    commits: Sequence[Revision],
    race: Racing,
    journal: Journal,
    metric: str = "",
    note: Callable[[str], object] = lambda text: None,
    smallest: float = SMALLEST,
) -> Bisection:
    """Find the first of `commits` that is worse than `good`.

    Args:
        commits: after `good`, oldest first; the last is BAD. race: of two commits.
        metric: the counter or clock to look at; any without. note: told of each outcome.
        smallest: relative change of a time below which a commit counts as good.

    Raises:
        InvalidInputError: a metric that the cell does not have.
        BuildFailed: GOOD or BAD cannot be built or run.
    """
    found = Bisection(judged=journal.judged)

    def try_commit(one: Revision) -> Judgement:
        if one.sha not in journal.judged:
            journal.keep(one.sha, _judged(good, one, race, metric, smallest))
        outcome = journal.judged[one.sha]
        note(f"{one}: {outcome.word}, {outcome.why}")
        return outcome

    low, high = -1, len(commits) - 1  # the last good and the first bad one, by their places
    tried_high = False
    while True:
        middle = _middle(commits, low, high, journal.judged, tried_high)
        if middle is None:
            break
        outcome = try_commit(commits[middle])
        if outcome.word == "bad":
            high, tried_high = middle, True
        elif outcome.word == "good":
            low = middle
    if not tried_high:
        outcome = try_commit(commits[high])
        if outcome.word == "skipped":
            raise BuildFailed(commits[high], f"cannot be judged: {outcome.why}")
        if outcome.word == "good":
            return found
    found.culprit = commits[high]
    found.before = commits[low] if low >= 0 else good
    found.suspects = list(commits[low + 1 : high])
    key = f"{found.before.sha}..{found.culprit.sha}"
    if key not in journal.judged:
        journal.keep(key, _judged(found.before, found.culprit, race, metric, smallest))
    found.confirmed = journal.judged.pop(key)
    note(f"{found.culprit} against {found.before}: {found.confirmed.word}, {found.confirmed.why}")
    return found


def judge(found: Comparison, metric: str = "", smallest: float = SMALLEST) -> Judgement | None:
    """Outcome of B against A in one cell; None where clocks cannot tell: where an interval holds
    both answers, or a floor hides a change of the size that is looked for.

    Raises:
        InvalidInputError: the cell has no such metric.
    """
    before, after = found.changes[0].status if found.changes else ("missing", "missing")
    if before != "ok":
        raise InvalidInputError(f"the cell ends as '{before}' in the good commit")
    if after != "ok":
        return Judgement("skipped", f"the cell ends as '{after}'")
    counts = {name: ab for c in found.changes for name, ab in c.counters.items()}
    known = set(found.counters) | {c.quantity or "time" for c in found.changes if c.ratio}
    if metric and metric not in known:
        raise InvalidInputError(
            f"the cell has no metric '{metric}'", hint=f"it has: {', '.join(sorted(known))}"
        )
    worse = {name: (a, b) for name, (a, b) in counts.items()
             if (b != a if metric else b > a) and metric in ("", name)}  # fmt: skip
    if worse:
        return Judgement("bad", ", ".join(f"{k} {a} -> {b}" for k, (a, b) in worse.items()))
    if metric in found.counters:
        return Judgement("good", f"{metric} is the same")
    clocks = [c for c in found.changes if c.ratio and metric in ("", c.quantity or "time")]
    if slow := [c for c in clocks if c.word == "SLOW"]:
        return Judgement("bad", _clock(slow[0]))
    if any(c.word == "AMBG" or (c.word == "SAME" and (c.floor or 0.0) > smallest) for c in clocks):
        return None
    return Judgement("good", _clock(clocks[0]) if clocks else "counters are the same")


def _judged(a: Revision, b: Revision, race: Racing, metric: str, smallest: float) -> Judgement:
    floor = ""
    for doubling in range(MAX_DOUBLINGS + 1):
        try:
            found = race(a, b, 2**doubling)
            outcome = judge(found, metric, smallest)
        except BuildFailed as error:
            if error.revision.sha == a.sha:
                raise
            return Judgement("skipped", str(error))
        except CannotRace as error:
            return Judgement("skipped", str(error))
        if outcome is not None:
            return outcome
        floor = "" if found.floor is None else f" (floor ±{100 * found.floor:.1f} %)"
    why = f"clocks cannot tell it from the good commit{floor}; give more --rounds"
    return Judgement("skipped", why)


def _middle(
    commits: Sequence[Revision], low: int, high: int, judged: Any, tried_high: bool
) -> int | None:
    """The commit to try next: the one nearest to the middle that was not left out."""
    places = [k for k in range(low + 1, high)
              if judged.get(commits[k].sha, ("",))[0] != "skipped"]  # fmt: skip
    # BAD itself costs a build where it was not tried: its half is the smaller one.
    size = high - low
    middle = low + (size // 2 if tried_high else (size + 1) // 2)
    return min(places, key=lambda k: abs(k - middle), default=None)


def _clock(change: Change) -> str:
    ratio = change.ratio
    if ratio is None:
        return ""
    said = f"{change.quantity or 'time'} {percent(ratio.value)}"
    if ends := spread(ratio.low, ratio.high):
        said += f" {ends}"
    return said if change.floor is None else f"{said}, floor ±{100 * change.floor:.1f} %"
