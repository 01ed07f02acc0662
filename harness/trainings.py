"""Whole trainings (preset `quality`), whose scores stand beside the speeds of other runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from dgbench.harness.store.store import Store
from dgbench.lab.arena_quality import WHOLE
from dgbench.runtime.errors import StoreError

log = logging.getLogger(__name__)

_PLACE = Path("results") / "reference"
KEPT: Final = next(
    (above / _PLACE for above in Path(__file__).resolve().parents if (above / _PLACE).is_dir()),
    Path(__file__).resolve().parents[1] / _PLACE,
)
"""Kept runs of the source tree, whatever the current folder is: dgbench is a part of the tree, or
is installed in an environment within it, as nox does."""


def whole_trainings(rows: Iterable[Any]) -> list[Any]:
    """Rows of whole trainings among rows."""
    return [row for row in rows if row.preset == WHOLE and row.experiment == WHOLE]


@cache
def kept_trainings(paper: str, root: Path = KEPT) -> tuple[Any, ...]:
    """Rows of whole trainings of a paper in the kept runs below a folder."""
    found: list[Any] = []
    for info in sorted(root.glob(f"*/{paper}/run.json")):
        try:
            found += whole_trainings(Store.open(info.parent).rows())
        except StoreError as error:
            log.warning("kept run %s: %s", info.parent, error)
    return tuple(found)


def with_trainings(rows: Sequence[Any], trained: Iterable[Any]) -> list[Any]:
    """Rows of a run, and whole trainings of other runs on the real data that it held.

    A run that trained models itself is judged by these alone; a twin, by no training on real data.

    Args:
        rows: all rows of a paper in a run. trained: whole trainings of the paper.
    """
    rows = list(rows)
    if whole_trainings(rows):
        return rows
    held: dict[Any, set[bool]] = {}
    for row in rows:
        held.setdefault(row.data.get("dataset"), set()).add(bool(row.data.get("twin")))
    return [*rows, *(row for row in trained if held.get(row.data.get("dataset")) == {False})]
