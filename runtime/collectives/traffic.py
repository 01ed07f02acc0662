"""Exact counts of what a rank sent: floats, bytes and messages per link, phase and operation.

A rank counts what it sends, so its counts are one row of the traffic matrix; `stack` puts the rows
of all ranks together. What a rank keeps for itself does not travel and is not counted: an exchange
of V floats in equal shares costs V (P - 1) / P (ESDG, SC 2021, section 6.4). The forward pass, the
re-run of a checkpointed forward pass and the backward pass are kept apart, because the published
volumes are their sum (Table 2, as we read it: three passes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import numpy as np

from dgbench.runtime.errors import InvalidInputError, unknown_key

Phase = Literal["forward", "rerun", "backward"]
Unit = Literal["floats", "bytes", "messages"]
Operation = Literal["all_to_all", "all_reduce", "all_gather", "broadcast", "sizes"]

PHASES: Final[tuple[Phase, ...]] = ("forward", "rerun", "backward")
UNITS: Final[tuple[Unit, ...]] = ("floats", "bytes", "messages")
OPERATIONS: Final[tuple[Operation, ...]] = (
    "all_to_all",
    "all_reduce",
    "all_gather",
    "broadcast",
    "sizes",
)


class Traffic:
    """Counts of one rank.

    Attributes:
        rank, size: whose counts these are, and among how many ranks.
        sent: (operation, phase) -> int64[3, P]: floats (elements of any dtype), bytes and messages
            sent to each rank. A pair of ranks that has nothing to tell costs no message.
    """

    def __init__(self, rank: int, size: int) -> None:
        if not 0 <= rank < size:
            raise InvalidInputError(f"'rank' is {rank}, allowed: 0 <= rank < {size}")
        self.rank, self.size = rank, size
        self.sent: dict[tuple[Operation, Phase], np.ndarray] = {}

    def add(
        self, operation: Operation, phase: Phase, to: int, floats: int, itemsize: int, messages: int
    ) -> None:
        """Count `messages` messages to rank `to` of `floats` elements in all."""
        if to == self.rank or not floats:
            return
        key = (operation, phase)
        counts = self.sent.get(key)
        if counts is None:
            counts = self.sent[key] = np.zeros((len(UNITS), self.size), dtype=np.int64)
        counts[0, to] += floats  # one by one: a tuple would be made an array first
        counts[1, to] += floats * itemsize
        counts[2, to] += messages

    def row(
        self, unit: Unit = "bytes", *, operation: str | None = None, phase: str | None = None
    ) -> np.ndarray:
        """int64[P], sent to each rank; of one operation or phase, or of all.

        Raises:
            UnknownKeyError: a unit, operation or phase that does not exist.
        """
        found = np.zeros(self.size, dtype=np.int64)
        for counts in self._select(operation, phase):
            found += counts[_index(unit)]
        return found

    def total(
        self, unit: Unit = "bytes", *, operation: str | None = None, phase: str | None = None
    ) -> int:
        """Sum of `row`."""
        return int(self.row(unit, operation=operation, phase=phase).sum())

    def counters(self) -> dict[str, int]:
        """Everything by name, links included: `all_to_all_bytes_forward_0to3`."""
        return {
            f"{operation}_{unit}_{phase}_{self.rank}to{to}": int(counts[i, to])
            for (operation, phase), counts in sorted(self.sent.items())
            for i, unit in enumerate(UNITS)
            for to in np.flatnonzero(counts[i]).tolist()
        }

    def copy(self) -> Traffic:
        """The counts as they are now."""
        found = Traffic(self.rank, self.size)
        found.sent = {key: counts.copy() for key, counts in self.sent.items()}
        return found

    def clear(self) -> None:
        """Forget all counts, as at the end of warm-up."""
        self.sent.clear()

    def _select(self, operation: str | None, phase: str | None) -> Iterator[np.ndarray]:
        for value, known, what in ((operation, OPERATIONS, "operation"), (phase, PHASES, "phase")):
            if value is not None and value not in known:
                raise unknown_key(what, value, known)
        for (op, ph), counts in self.sent.items():
            if operation in (None, op) and phase in (None, ph):
                yield counts


class TrafficMatrix:
    """Counts of all ranks of one group.

    Attributes:
        rows: one `Traffic` per rank, in order.
    """

    def __init__(self, rows: Sequence[Traffic]) -> None:
        if [row.rank for row in rows] != list(range(len(rows))) or any(
            row.size != len(rows) for row in rows
        ):
            found = [(row.rank, row.size) for row in rows]
            raise InvalidInputError(
                f"'rows' are of (rank, size) {found}, needed: every rank of one group, in order"
            )
        self.rows = list(rows)

    def matrix(
        self, unit: Unit = "bytes", *, operation: str | None = None, phase: str | None = None
    ) -> np.ndarray:
        """int64[P, P], [src, dst]; the diagonal is zero."""
        if not self.rows:
            return np.zeros((0, 0), dtype=np.int64)
        return np.stack([r.row(unit, operation=operation, phase=phase) for r in self.rows])

    def total(
        self, unit: Unit = "bytes", *, operation: str | None = None, phase: str | None = None
    ) -> int:
        """Sum over all links."""
        return int(self.matrix(unit, operation=operation, phase=phase).sum())


def stack(rows: Sequence[Traffic]) -> TrafficMatrix:
    """The traffic matrix of a group from the counts of its ranks, in order of rank.

    Raises:
        InvalidInputError: a rank is missing, twice there, or of another group.
    """
    return TrafficMatrix(rows)


def equal_parts(total: int, parts: int) -> list[int]:
    """`total` things in `parts` nearly equal shares; the first ones get one more.

    Raises:
        InvalidInputError: a negative total or no part.
    """
    if total < 0 or parts < 1:
        raise InvalidInputError(
            f"'total' is {total} and 'parts' {parts}; needed: total >= 0, parts >= 1"
        )
    share, more = divmod(total, parts)
    return [share + (i < more) for i in range(parts)]


def ring_share(numel: int, rank: int, size: int) -> tuple[int, int]:
    """(elements, messages) that `rank` sends to its successor in a ring all-reduce.

    Reduce-scatter and all-gather over `size` nearly equal chunks: in each half a rank passes on
    every chunk but one. Summed over the ranks this is 2 numel (size - 1).
    """
    if size == 1:
        return 0, 0
    chunks = equal_parts(numel, size)
    kept = (chunks[(rank + 1) % size], chunks[(rank + 2) % size])
    full = sum(1 for chunk in chunks if chunk)
    return 2 * numel - sum(kept), 2 * full - sum(1 for chunk in kept if chunk)


def _index(unit: str) -> int:
    if unit not in UNITS:
        raise unknown_key("unit", unit, UNITS)
    return UNITS.index(unit)
