"""Ways for a plugin to raise, when it opens and when it is asked what the matter is."""

from __future__ import annotations

import sys
from typing import Any

from dgbench.runtime.errors import CheckFailed, DgbenchError
from dgbench.systems.base import Cell, RunContext
from tests.faults.plugins import harm


class Mute(Exception):
    """It cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@harm("crash", "RuntimeError: the device is on fire")
def at_open(cell: Cell, context: RunContext) -> Any:
    raise RuntimeError("the device is on fire")


@harm("crash", "Mute")
def without_words(cell: Cell, context: RunContext) -> Any:
    raise Mute


@harm("crash", "ValueError: half a letter")
def with_half_a_letter(cell: Cell, context: RunContext) -> Any:
    raise ValueError("half a letter \udcff here")


@harm("crash", "ValueError: red alert")
def in_colour(cell: Cell, context: RunContext) -> Any:
    raise ValueError("\x1b[31mred\x1b[0m \x1b]8;;http://x\x07alert\x00\r\n")


@harm("crash", "ValueError: xxx", "40,000,000 letters")
def at_length(cell: Cell, context: RunContext) -> Any:
    raise ValueError("x" * 40_000_000)


@harm("crash", "SystemExit: 0")
def by_leaving(cell: Cell, context: RunContext) -> Any:
    sys.exit(0)


@harm("crash", "KeyboardInterrupt")
def as_if_by_ctrl_c(cell: Cell, context: RunContext) -> Any:
    raise KeyboardInterrupt


@harm("crash", "GeneratorExit")
def generator_exit(cell: Cell, context: RunContext) -> Any:
    raise GeneratorExit


@harm("crash", "RecursionError")
def too_deep(cell: Cell, context: RunContext) -> Any:
    return too_deep(cell, context)


@harm("crash", "StopIteration")
def stop_iteration(cell: Cell, context: RunContext) -> Any:
    raise StopIteration


@harm("not-supported", "package '7' is missing or broken")
def import_error_with_a_number(cell: Cell, context: RunContext) -> Any:
    raise ImportError("no", name=7)


@harm("crash", "it is late (['tomorrow'])")
def a_hint_that_is_a_list(cell: Cell, context: RunContext) -> Any:
    error = DgbenchError("it is late")
    error.hint = ["tomorrow"]  # type: ignore[assignment]
    raise error


@harm("check", "all is wrong")
def a_deviation_of_words(cell: Cell, context: RunContext) -> Any:
    raise CheckFailed("all is wrong", deviation={"loss": "much", "output": 0.5})  # type: ignore


@harm("crash", "ValueError: second")
def in_a_circle(cell: Cell, context: RunContext) -> Any:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise second
