"""Helpers of the checks of races: selection of their rows, and words for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    TITLES,
    RaceRecord,
    dataset_title,
)


def where(found: Sequence[RaceRecord]) -> str:
    """Graphs and ranks of races in words."""
    names = dict.fromkeys(dataset_title(one.dataset, one.twin) for one in found)
    return f"on {', '.join(names)}; {found[0].row.params['ranks']} ranks"


def rows_of(found: Sequence[RaceRecord]) -> list[Any]:
    """The rows that races rest on, each once."""
    return list({one.row.id: one.row for one in found}.values())


def in_order(one: RaceRecord) -> str:
    """The baselines from the shortest epoch to the longest: `PTS < PSS < PSS-TS`."""
    return " < ".join(TITLES[name] for name in sorted(BASELINE_NAMES, key=one.epoch))


def sent_words(one: RaceRecord) -> str:
    """Counted megabytes of the baselines in words."""
    sent = ", ".join(
        f"{TITLES[b]} {one.number('exchanged', b) / 1e6:.2g} MB" for b in BASELINE_NAMES
    )
    return f"counted on {dataset_title(one.dataset)}: {sent}"
