"""Races between commits, and searches for one, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.compare import Change
from dgbench.harness.quantities import percent, spread
from dgbench.harness.terminal.text import WIDTH, fitted, wrapped

VERDICTS = {"SLOW": "slower", "FAST": "faster", "SAME": "the same", "AMBG": "not decided"}


def race_text(race: Any, a: Any, b: Any, width: int = WIDTH) -> str:
    """Counters first, then each clock with its interval, floor and verdict; exit code last."""
    found = race.comparison
    lines = [wrapped(f"A {a}", "", width), wrapped(f"B {b}", "", width), ""]
    counted = [(c.name, name, *ab) for c in found.changes for name, ab in c.counters.items()]
    lines.append(f"Counters: {_counters(found, counted)}")
    lines += [f"  {cell}   {name} {one} -> {two} ({two - one:+d})"
              for cell, name, one, two in counted]  # fmt: skip
    clocks = [c for c in found.changes if c.ratio is not None]
    others = [c for c in found.changes if c.ratio is None and set(c.status) != {"ok"}]
    lines.append("Times, B over A:" if clocks else "Times: none was measured.")
    lines += [_clock(change) for change in clocks]
    lines += [f"  {c.name}   {c.status[0]} -> {c.status[1]}" for c in others]
    for side, names in race.lone.items():
        if names:
            cells = "1 cell" if len(names) == 1 else f"{len(names)} cells"
            lines.append(f"{cells} of the plan are only in {side.upper()} and were not raced")
    lines.append(f"Rows: {race.folder}")
    return fitted("\n".join([*lines, found.why]), width)


def search_text(found: Any, good: Any, bad: Any, cell: str, width: int = WIDTH) -> str:
    """The commit that was found, what it did, and whether a second race says so, too."""
    if found.culprit is None:
        said = found.judged[bad.sha].why
        return wrapped(f"{bad} is no worse than {good} in {cell}: {said}", "", width)
    lines = [f"First bad commit in {cell}:", f"  {found.culprit}",
             f"  against {good}: {found.judged[found.culprit.sha].why}",
             f"  against {found.before}, the last good one: {found.confirmed.why}"]  # fmt: skip
    if found.confirmed.word != "bad":
        lines.append("The second race does not confirm it: give more --rounds.")
    if found.suspects:
        lines.append("These lie between both and were left out; one of them may be it:")
        lines += _left_out(found, found.suspects)
    return "\n".join(wrapped(line, "", width) for line in lines)


def _left_out(found: Any, suspects: Sequence[Any]) -> list[str]:
    return [f"  {one}: {found.judged[one.sha].why}" for one in suspects]


def _counters(found: Any, counted: Sequence[Any]) -> str:
    if counted:
        return f"{len(counted)} differ"
    if not found.counters:
        return "none was kept by both"
    apart = sum(not c.paced for c in found.changes)
    said = f"all {len(found.counters)} are equal in {found.cells - apart} of {found.cells} cells"
    return f"{said}; the others worked for different lengths" if apart else said


def _clock(change: Change) -> str:
    ratio = change.ratio
    if ratio is None:
        return f"  {VERDICTS[change.word]:11} {change.name}"
    text = f"  {VERDICTS[change.word]:11} {change.name}   {percent(ratio.value)}"
    if ends := spread(ratio.low, ratio.high):
        text += f" {ends}"
    floor = "" if change.floor is None else f"   floor ±{100 * change.floor:.1f} %"
    return f"{text}{floor}   n {ratio.n}"
