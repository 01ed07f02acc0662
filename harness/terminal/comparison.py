"""A comparison of two states as text."""

from __future__ import annotations

from dgbench.harness.claims.shown import digits
from dgbench.harness.compare import ASSUMED, WORDS, Change, Comparison
from dgbench.harness.quantities import percent, spread
from dgbench.harness.terminal.text import WIDTH, fitted, wrapped

MAX_NOTES = 12
APART = (
    "These runs were not interleaved, so drift of the machine is in every ratio and its interval; "
    "`dgbench ab` races two commits in one run."
)
MAX_UNDECIDED = 20
"""Lines of undecided cells; what is slower or faster is always listed."""


def comparison_text(found: Comparison, *, every: bool = False, width: int = WIDTH) -> str:
    """Headline, warnings, changes by size, SAME folded into a count, and the exit code last.

    What a single process a side leaves open is folded, too: it has a ratio and no interval.
    """
    counts = ", ".join(f"{found.count(word)} {word}" for word in WORDS)
    floor = f"noise floor ±{100 * found.floor:.1f} %" if found.floor is not None else ""
    head = f"{found.a} -> {found.b}: {counts}"
    assumed = f"no noise floor was measured, ±{100 * ASSUMED:.0f} % is assumed"
    lines = [f"{head}; {floor or assumed}"]
    if not found.interleaved:
        lines.append(wrapped(APART, "", width))
    if found.differs:
        what = ", ".join(found.differs)
        lines.append(f"warning: the two sides differ in more than time: {what}")
        lines += [wrapped(note, "  ", width) for note in found.identity[:MAX_NOTES]]
        if len(found.identity) > MAX_NOTES:
            lines.append(f"  and {len(found.identity) - MAX_NOTES} more (--json lists all)")
    shown = [c for c in found.changes if every or _tells(c)]
    if not every:
        opened = [c for c in shown if c.word == "AMBG" and not c.broke and not c.counters]
        late = {id(c) for c in opened[MAX_UNDECIDED:]}
        shown = [c for c in shown if id(c) not in late]
    listed = {id(c) for c in shown}
    lines += [_line(change) for change in shown]
    folded = [c for c in found.changes if id(c) not in listed]
    single = sum(c.word == "AMBG" and not c.decided for c in folded)
    alike = sum(c.word == "SAME" for c in folded)
    if not found.changes:
        lines.append("The two sides have no cell in common.")
    elif not shown:
        lines.append(f"Nothing outside the noise floor in {found.cells} cells.")
    if alike and shown:
        lines.append(f"SAME  {alike} more (--all lists them)")
    if opened := len(folded) - alike - single:
        lines.append(f"AMBG  {opened} more whose interval holds 1x (--all lists them)")
    if single:
        lines.append(
            f"AMBG  {single} of one process a side, which has no interval: give more runs a side, "
            "with commas (--all lists them)"
        )
    for names, run in ((found.only_a, found.a), (found.only_b, found.b)):
        if names:
            cells = "1 cell" if len(names) == 1 else f"{len(names)} cells"
            lines.append(f"only in {run}: {cells}")
            lines += [f"  {name}" for name in names] if every else []
    return fitted("\n".join([*lines, found.why]), width)


def _tells(change: Change) -> bool:
    """Return True if a change is worth a line of its own."""
    if change.counters or change.broke or change.word in ("SLOW", "FAST"):
        return True
    if change.word == "AMBG":
        return change.decided or change.status[0] != change.status[1]
    return False


def _line(change: Change) -> str:
    text = f"{change.word}  {change.name}"
    if change.ratio is not None:
        text += f"   {percent(change.ratio.value)}"
        if said := spread(change.ratio.low, change.ratio.high):
            text += f" {said}"
        if change.gain and change.values:
            text += f" ({digits(change.values[0])}x -> {digits(change.values[1])}x)"
        text += f"   n {change.ratio.n}"
    if change.ratio is None or change.status[0] != change.status[1]:
        text += f"   {change.status[0]} -> {change.status[1]}"
    if change.counters:
        differ = ", ".join(f"{k} {a} -> {b}" for k, (a, b) in change.counters.items())
        return f"{text}   counters differ: {differ}"
    return f"{text}   counters equal" if change.paced else f"{text}   counters of other lengths"
