"""Two states of the history suite as text."""

from __future__ import annotations

from dgbench.harness.history import ORDER, BenchmarkChange, History, Number
from dgbench.harness.quantities import percent, spread
from dgbench.harness.terminal.text import WIDTH, fitted
from dgbench.runtime.statistics import median

FOLDED = {
    "NEW": "not in the baseline",
    "SKIP": "skipped, asv says why",
    "SAME": "",
}
"""Words that are folded into a count, and what is said of them."""


def history_text(found: History, *, every: bool = False, width: int = WIDTH) -> str:
    """Headline, what differs with the worst first, the rest folded into counts, exit code last."""
    counts = ", ".join(f"{found.count(word)} {word}" for word in ORDER if found.count(word))
    lines = [f"{found.a} -> {found.b}: {counts or 'nothing'}"]
    shown = [step for step in found.steps if every or step.word not in FOLDED]
    longest = max((len(step.name) for step in shown), default=0)
    lines += [_line(step, longest) for step in shown]
    for word, said in FOLDED.items():
        if not every and (count := found.count(word)):
            what = f"{count} {'more ' if shown else ''}benchmarks"
            lines.append(f"{word:6} {what}{f' {said}' if said else ''} (--all lists them)")
    return fitted("\n".join([*lines, found.why]), width)


def _line(step: BenchmarkChange, width: int) -> str:
    text = f"{step.word:6} {step.name:{width}}  {_shown(step.old):>12} -> {_shown(step.new):<12}"
    if step.ratio is not None and step.ratio.value != 1:
        text += f"  {percent(step.ratio.value)}"
        if said := spread(step.ratio.low, step.ratio.high):
            text += f" {said}   n {step.ratio.n}"
    return text.rstrip()


def _shown(value: Number) -> str:
    if value is None or value != value:  # failed or skipped
        return "none"
    if isinstance(value, list):
        return f"{median(value):.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
