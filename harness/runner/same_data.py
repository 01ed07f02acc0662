"""Check that the contenders of a group used the same data and reached the same device."""

from __future__ import annotations

from collections.abc import Iterable

from dgbench.harness.store import Row

Key = tuple[str, str, str, str]


class SameData:
    """Data and device of each group of a run, by its first row.

    With `source="auto"` a cell takes the real data where it is held and else its twin. Files that
    appear or vanish in the middle of a run would let a ratio compare the one with the other. So
    would a contender that falls back to the CPU unasked beside one that works on a device.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        """Take over the rows that a run has already."""
        self._first: dict[Key, Row] = {}
        self._devices: dict[tuple[str, str, str], Row] = {}
        for row in rows:
            self._reference(row)
            self._timed(row)

    def check(self, row: Row) -> None:
        """Make a row that used other data or another device than its group a `check` row.

        Only timed rows that were asked for on a device are compared by it: others declare the CPU.
        """
        timed = self._timed(row)
        if timed.device != row.device:
            self._refuse(
                row,
                f"its work ran on '{row.device}', that of {timed.id} of its group on "
                f"'{timed.device}'",
            )
            return
        first = self._reference(row)
        if first is row:
            return
        if bool(first.data["twin"]) != bool(row.data["twin"]) and _asked(first) == _asked(row):
            now, before = (_kind(r) for r in (row, first))
            self._refuse(
                row,
                f"it used {now} of '{row.data['dataset']}', and {first.id} of its group {before}",
            )

    def _refuse(self, row: Row, reason: str) -> None:
        row.status, row.reason, row.checks = "check", reason, []
        row.observed = []

    def _timed(self, row: Row) -> Row:
        """The first timed row of its group that was asked for on a device; else the row itself."""
        if not row.ok or row.time is None or row.touched.get("asked") != "cuda":
            return row
        return self._devices.setdefault((row.paper, row.experiment, row.group), row)

    def _reference(self, row: Row) -> Row:
        """The first row of its group and dataset; the row itself where it says too little."""
        if not row.ok or not isinstance(row.data.get("dataset"), str) or "twin" not in row.data:
            return row
        key = (row.paper, row.experiment, row.group, row.data["dataset"])
        return self._first.setdefault(key, row)


def _asked(row: Row) -> tuple:
    """Data that a cell requests, whatever its contender."""
    return tuple(row.params.get(name) for name in ("dataset", "source", "scale"))


def _kind(row: Row) -> str:
    return "the twin" if row.data["twin"] else "the real data"
