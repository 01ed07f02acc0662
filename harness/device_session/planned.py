"""The plan of a device session as a table: what comes next, how long, what it answers."""

from __future__ import annotations

from collections.abc import Sequence

from dgbench.harness.device_session.units import CommandUnit, ExperimentUnit, Unit
from dgbench.harness.terminal.text import table
from dgbench.harness.terminal.verdicts import clock


def plan_text(units: Sequence[Unit], call_s: float) -> str:
    """Units in order with the call that each falls into.

    Args:
        units: what is left, in order. call_s: seconds of one call.
    """
    if not units:
        return "Nothing is left: every unit of the session is done."
    rows, total = [], 0.0
    for unit in units:
        what = unit.about if isinstance(unit, CommandUnit) else _experiment(unit)
        call = int(total // call_s) + 1
        total += unit.seconds
        name = unit.name if isinstance(unit, CommandUnit) else unit.id
        rows.append([str(call), clock(unit.seconds), clock(total), str(unit.answers), name, what])
    answers = sum(unit.answers for unit in units)
    calls = int(-(-total // call_s))
    head = (
        f"{len(units)} units left, {clock(total)}, {calls} calls of {clock(call_s)}: "
        f"at most\n{answers} claims are answered"
    )
    return f"{head}\n" + table(["call", "time", "until", "for", "unit", "what"], rows, {0, 1, 2, 3})


def _experiment(unit: ExperimentUnit) -> str:
    return f"processes: {sum(unit.processes)}, groups: {len(unit.groups)}"
