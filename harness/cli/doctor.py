"""`dgbench doctor`: what works here and what to do about the rest."""

from __future__ import annotations

import sys

import typer


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


def _show(checks: list) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dgbench.harness.terminal.text import encodable

    console = Console(highlight=False)
    colours = {"ok": "green", "warn": "yellow", "missing": "red"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        found = Text(encodable(check.found, sys.stdout))
        if check.hint and check.state != "ok":
            found.append(encodable(f"\n{check.hint}", sys.stdout), style="dim")
        table.add_row(Text(check.state, style=colours[check.state]), Text(check.name), found)
    console.print(table)
    counts = [f"{sum(c.state == s for c in checks)} {s}" for s in ("ok", "warn", "missing")]
    console.print(f"{', '.join(counts)}")
