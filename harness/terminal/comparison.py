"""A comparison of two runs as text."""

from __future__ import annotations

from dgbench.harness.compare import WORDS, Change, Comparison
from dgbench.harness.terminal.text import WIDTH, wrapped


def comparison_text(found: Comparison, *, every: bool = False) -> str:
    """Headline, warnings, changes by size, SAME folded into a count, and the exit code last."""
    counts = ", ".join(f"{found.count(word)} {word}" for word in WORDS)
    floor = f"noise floor ±{100 * found.floor:.1f} %" if found.floor is not None else ""
    head = f"{found.a} -> {found.b}: {counts}"
    lines = [f"{head}; {floor}" if floor else f"{head}; no noise floor was measured"]
    if found.identity:
        lines.append("warning: the runs differ in more than time")
        lines += [wrapped(note, "  ", WIDTH) for note in found.identity[:12]]
        if len(found.identity) > 12:
            lines.append(f"  and {len(found.identity) - 12} more (--json lists all)")
    shown = [c for c in found.changes if every or c.word != "SAME" or c.counters]
    lines += [_line(change) for change in shown]
    folded = len(found.changes) - len(shown)
    if not found.changes:
        lines.append("The runs have no cell in common.")
    elif not shown:
        lines.append(f"Nothing outside the noise floor in {folded} cells.")
    elif folded:
        lines.append(f"SAME  {folded} more cells (--all lists them)")
    for names, run in ((found.only_a, found.a), (found.only_b, found.b)):
        if names:
            lines.append(f"only in {run}: {len(names)} cells")
    return "\n".join([*lines, found.why])


def _line(change: Change) -> str:
    text = f"{change.word}  {change.name}"
    if change.ratio is not None:
        text += f"   {percent(change.ratio.value)}"
        if change.ratio.low is not None and change.ratio.high is not None:
            low, high = percent(change.ratio.low), percent(change.ratio.high)
            text += f" [{low.removesuffix(' %')}, {high.removesuffix(' %')}]"
        text += f"   n {change.ratio.n}"
    else:
        text += f"   {change.status[0]} -> {change.status[1]}"
    if change.counters:
        differ = ", ".join(f"{k} {a} -> {b}" for k, (a, b) in change.counters.items())
        return f"{text}   counters differ: {differ}"
    return f"{text}   counters equal"


def percent(ratio: float) -> str:
    """A ratio as a signed change: `+8.4 %`."""
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
