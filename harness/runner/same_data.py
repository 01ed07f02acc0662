"""Whether the contenders of a group were given the same data."""

from __future__ import annotations

from collections.abc import Iterable

from dgbench.harness.store import Row

Key = tuple[str, str, str, str]


class SameData:
    """What each group of a run used of a dataset, by its first row.

    With `source="auto"` a cell takes the real data where it is held and else its twin. Files that
    appear or vanish in the middle of a run would let a ratio compare the one with the other.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Take over the rows that a run has already."""
        self._first: dict[Key, Row] = {}
        for row in rows:
            self._reference(row)

    def check(self, row: Row) -> None:
        """Make a row that used other data than the first of its group a `check` row."""
        first = self._reference(row)
        if first is row:
            return
        if bool(first.data["twin"]) != bool(row.data["twin"]) and _asked(first) == _asked(row):
            now, before = (_kind(r) for r in (row, first))
            row.status = "check"
            row.reason = (
                f"it used {now} of '{row.data['dataset']}', and {first.id} of its group {before}"
            )
            row.values, row.counters, row.phases, row.samples = {}, {}, {}, []

    def _reference(self, row: Row) -> Row:
        """The first row of its group and dataset; the row itself where it says too little."""
        if not row.ok or not isinstance(row.data.get("dataset"), str) or "twin" not in row.data:
            return row
        key = (row.paper, row.experiment, row.group, row.data["dataset"])
        return self._first.setdefault(key, row)


def _asked(row: Row) -> tuple:
    """What a cell asks for beside its contender."""
    return tuple(row.params.get(name) for name in ("dataset", "source", "scale"))


def _kind(row: Row) -> str:
    return "the twin" if row.data["twin"] else "the real data"
