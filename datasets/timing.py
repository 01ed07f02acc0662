"""Speedup of opening the prepared form over reading the source."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from dgbench.datasets.catalogue import DatasetCard
from dgbench.datasets.opening import (
    build_events,
    build_snapshots,
    choose,
    open_events,
    open_snapshots,
    resolve,
)
from dgbench.datasets.sequence import SnapshotSpec
from dgbench.runtime.errors import InvalidInputError


def time_loads(card: DatasetCard, rounds: int = 5) -> list[dict[str, Any]]:
    """Time reading a dataset from its source against opening its prepared form.

    Reading stops where the container exists in memory; hashing the source and writing the
    prepared form are left out, which favours reading. Both see warm file caches. The load is
    the whole public call, with the check of the files' size and time of change.

    Args:
        card: a dataset that is held, or a twin at the default scale otherwise.
        rounds: repetitions; the median is reported.

    Returns:
        One dict per container (`events`, `snapshots`) with `what`, `parse_s`, `load_s` and
        `ratio`.
    """
    if rounds < 1:
        raise InvalidInputError(f"rounds is {rounds}; an integer >= 1 is allowed")
    choice = choose(card.name)
    rows = []
    if not card.static:
        rows.append(
            _row(
                "events",
                lambda: build_events(choice),
                lambda: open_events(card.name),
                rounds,
            )
        )
    spec = resolve(SnapshotSpec(card.name, feature_dim=_width(card)), choice)
    rows.append(
        _row(
            "snapshots",
            lambda: build_snapshots(choice, spec, fresh=True),
            lambda: open_snapshots(spec),
            rounds,
        )
    )
    return rows


def _width(card: DatasetCard) -> int:
    pipad = card.papers.get("pipad")
    return (pipad.feature_dim if pipad else None) or 2


def _row(
    what: str, parse: Callable[[], Any], load: Callable[[], Any], rounds: int
) -> dict[str, Any]:
    load()  # prepares it if need be
    parse_s = _median(parse, max(1, min(rounds, 3)))
    load_s = _median(load, rounds * 4)
    return {"what": what, "parse_s": parse_s, "load_s": load_s, "ratio": parse_s / load_s}


def _median(call: Callable[[], Any], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        kept = call()
        seconds.append(time.perf_counter() - start)
        del kept
    return statistics.median(seconds)
