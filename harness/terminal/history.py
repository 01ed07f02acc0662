"""Two states of the history suite as text."""

from __future__ import annotations

from dgbench.harness.history import ORDER, History, Number, Step
from dgbench.harness.terminal.comparison import percent
from dgbench.runtime.statistics import median


def history_text(found: History, *, every: bool = False) -> str:
    """Headline, what differs with the worst first, SAME folded into a count, exit code last."""
    counts = ", ".join(f"{found.count(word)} {word}" for word in ORDER if found.count(word))
    lines = [f"{found.a} -> {found.b}: {counts or 'nothing'}"]
    shown = [step for step in found.steps if every or step.word != "SAME"]
    width = max((len(step.name) for step in shown), default=0)
    lines += [_line(step, width) for step in shown]
    if folded := len(found.steps) - len(shown):
        lines.append(f"SAME   {folded} {'more ' if shown else ''}benchmarks (--all lists them)")
    why = "a benchmark is worse, fails or is gone" if found.exit_code else "nothing is worse"
    return "\n".join([*lines, f"exit {found.exit_code}: {why}"])


def _line(step: Step, width: int) -> str:
    text = f"{step.word:6} {step.name:{width}}  {_shown(step.old):>12} -> {_shown(step.new):<12}"
    if step.ratio is not None and step.ratio.value != 1:
        text += f"  {percent(step.ratio.value)}"
        if step.ratio.low is not None and step.ratio.high is not None:
            text += f" [{percent(step.ratio.low)}, {percent(step.ratio.high)}]"
    return text.rstrip()


def _shown(value: Number) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"{median(value):.4g}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
