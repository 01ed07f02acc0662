"""Help pages that fit the terminal, also one of 40 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperGroup

from dgbench.harness.terminal.text import NARROW, columns

_Context: Any = TyperGroup.context_class
_Formatter: Any = _Context.formatter_class


class HelpPage(_Formatter):
    """Help formatter for at most 80 columns; lists stand below each other where it is narrow."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "width": columns()})

    def write_dl(self, rows: Sequence[tuple[str, str]], *args: Any, **options: Any) -> None:
        """Write names with their explanations beside them, or below where it is narrow."""
        if self.width >= NARROW:
            super().write_dl(rows, *args, **options)
            return
        for name, text in rows:
            self.write_text(name)
            with self.indentation():
                self.write_text(text)


class HelpContext(_Context):
    """Context of a command whose help pages fit the terminal."""

    formatter_class = HelpPage


def fit_help(command: Any) -> None:
    """Let a command and all below it write their help pages to the terminal's width."""
    command.context_class = HelpContext
    for one in getattr(command, "commands", {}).values():
        fit_help(one)
