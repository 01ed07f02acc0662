"""Plugins that cheat, and the honest one beside them: each cheat must lose its row.

A cheat is a system of at most 30 lines that is faster than it may be. `LEDGER` of each module
lists its cheats; `test_cheats.py` trains them in processes of their own, as any system is, and
asks for the state and the reason of its row. `DGBENCH_CHEATS=quick` does so in that preset.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgbench.lab.experiment import Measurement, RunContext

PRESET = os.environ.get("DGBENCH_CHEATS", "smoke")


@dataclass(frozen=True, slots=True)
class Cheat:
    """A plugin that cheats, and why its row has no numbers.

    Attributes:
        name: of its cell, unique over all modules.
        plugin: class of the system; the part of a trainer that cheats where there is `trains`.
        loses: words of the reason of its row; honest ones have none.
        rounds: processes of its cell; the last one cheats.
        trains: one process of a race with a trainer of that part; None: a race on frames.
    """

    name: str
    plugin: type[Any]
    loses: str = ""
    rounds: int = 1
    trains: Callable[[type[Any], RunContext], Measurement] | None = None
