"""Agreement of two runs as text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from dgbench.harness.claims.shown import digits
from dgbench.harness.quantities import percent, spread
from dgbench.harness.repeat import LEVEL, Agreement, Apart, RepeatedRatio, coverage
from dgbench.harness.terminal.text import WIDTH, fitted, listing, wrapped

MAX_LINES = 12
"""Lines of each kind; --all lists the rest."""


def agreement_text(found: Agreement, *, every: bool = False, width: int = WIDTH) -> str:
    """A line per paper, what is not the same, how often ratios agree, and the exit code last."""
    lines = [f"{found.a} and {found.b}: {_some(found.processes, 'process', 'processes')} in both"]
    lines += [wrapped(f"warning: {note}", "  ", width) for note in found.identity[:MAX_LINES]]
    lines.append(_by_paper(found, width))
    for names, run in ((found.only_a, found.a), (found.only_b, found.b)):
        if names:
            lines.append(f"only in {run}: {_some(len(names), 'process', 'processes')}")
            lines += _listed([f"  {name}" for name in names], every)
    counters = [one for one in found.apart if one.what != "status"]
    ended = [one for one in found.apart if one.what == "status"]
    if ended:
        lines.append(f"{_some(len(ended), 'process', 'processes')} ended differently")
        lines += _listed([_apart(one) for one in ended], every)
    if counters:
        lines.append(f"{_some(len(counters), 'counter')} of {found.counters} are not the same")
        lines += _listed([_apart(one) for one in counters], every)
    else:
        lines.append(f"all of {_some(found.counters, 'counter')} are the same")
    if found.paced:
        lines.append(
            f"  {found.paced} more say how many turns fitted into the time; the clock decides those"
        )
    lines += _ratios(found, every)
    lines.append(f"exit {found.exit_code}: {_why(found)}")
    return fitted("\n".join(lines), width)


def _by_paper(found: Agreement, width: int) -> str:
    pairs: dict[str, list[RepeatedRatio]] = defaultdict(list)
    for pair in found.pairs:
        pairs[pair.cluster[0]].append(pair)
    apart: dict[str, int] = defaultdict(int)
    for one in found.apart:
        apart[one.paper] += 1
    rows = []
    for paper in sorted({*pairs, *apart}):
        one = coverage(pairs[paper])
        share = f"{100 * one.share:.1f} %" if one.n else "-"
        rows.append(
            [paper, str(apart[paper]), str(len(pairs[paper])), str(one.n), str(one.agree), share]
        )
    if not rows:
        return "no ratios"
    header = ["paper", "not same", "ratios", "with interval", "agree", "share"]
    return listing(header, rows, width, set(range(1, 6)))


def _ratios(found: Agreement, every: bool) -> list[str]:
    cover = found.coverage
    bare = len(found.pairs) - cover.n
    lines = []
    if cover.n:
        lines.append(
            f"{cover.agree} of {cover.n} ratios agree within their intervals: "
            f"{100 * cover.share:.1f} % [{100 * cover.low:.1f}, {100 * cover.high:.1f}], "
            f"stated {100 * LEVEL:.0f} %"
        )
        # Chance alone parts one in twenty, so most of these are no news by themselves.
        lines += _listed([_pair(pair) for pair in found.disagree], every)
    if bare:
        lines.append(f"{_some(bare, 'ratio')} without an interval in one of the runs: not judged")
    return lines


def _pair(pair: RepeatedRatio) -> str:
    apart = percent(pair.apart.value)
    said = spread(pair.apart.low, pair.apart.high)
    far = f"{pair.size:.1f}" if math.isfinite(pair.size) else "all"
    return f"  {pair.name}   {digits(pair.a)}x, {digits(pair.b)}x   {apart} {said}   {far} widths"


def _apart(one: Apart) -> str:
    a, b = ("nothing" if value is None else value for value in (one.a, one.b))
    return f"  {one.name}   {one.what}: {a}, {b}"


def _why(found: Agreement) -> str:
    wrong = []
    if counters := sum(one.what != "status" for one in found.apart):
        wrong.append(_some(counters, "counter") + " not the same")
    if ended := len(found.apart) - counters:
        wrong.append(_some(ended, "process", "processes") + " ended differently")
    if alone := len(found.only_a) + len(found.only_b):
        wrong.append(_some(alone, "process", "processes") + " in one run only")
    if not found.same_ratios:
        wrong.append("ratios lie further apart than their intervals say")
    return ", ".join(wrong) or "the same numbers twice"


def _listed(lines: Sequence[str], every: bool) -> list[str]:
    if every or len(lines) <= MAX_LINES:
        return list(lines)
    return [*lines[:MAX_LINES], f"  and {len(lines) - MAX_LINES} more (--all lists them)"]


def _some(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}"
