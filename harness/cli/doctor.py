"""`dgbench doctor`: what works here and what to do about the rest."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dgbench.harness.doctor import DoctorCheck

_PAINT = {"ok": 32, "warn": 33, "missing": 31}
"""ANSI colours of states: green, yellow and red."""


def doctor(
    json: bool = typer.Option(False, "--json", help="Print the checks as JSON."),
) -> None:
    """Say what works here, what does not, and why.

    Ends with exit code 1 if something is missing that dgbench cannot do without.

    Example: dgbench doctor
    """
    from dgbench.harness.doctor import diagnose, healthy

    checks = diagnose()
    if json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(checks), indent=2).decode())
    else:
        _show(checks)
    if not healthy(checks):
        raise typer.Exit(1)


def _show(checks: list[DoctorCheck]) -> None:
    from dgbench.harness.terminal.text import (
        NARROW,
        colours,
        columns,
        encodable,
        fitted,
        say,
        wrapped,
    )

    width, painted = columns(), colours(sys.stdout)
    start = max(len(check.name) for check in checks) + 11
    for check in checks:
        head = f"{check.state:<8} {check.name}"
        if width < NARROW:
            indent = "    "
            text = f"{fitted(head, width)}\n{wrapped(check.found, indent, width)}"
        else:
            indent = " " * start
            text = wrapped(check.found, head.ljust(start), width, hanging=indent)
        if check.hint and check.state != "ok":
            text += "\n" + wrapped(check.hint, indent, width)
        if painted:
            rest = encodable(text[len(check.state) :], sys.stdout)
            print(f"\x1b[{_PAINT[check.state]}m{check.state}\x1b[0m{rest}")
        else:
            say(text)
    counts = [f"{sum(c.state == s for c in checks)} {s}" for s in ("ok", "warn", "missing")]
    say(fitted(", ".join(counts), width))
