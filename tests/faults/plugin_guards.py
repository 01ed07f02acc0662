"""Guards against plugins, altered data and clocks that jump, each with what breaks it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dgbench.datasets import store
from dgbench.datasets.sources import hashing
from dgbench.harness.runner import child, client, outcome, readable, server
from dgbench.harness.runner.same_data import SameData


class _Any:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _put(*modules: Any, **names: Any) -> Callable[[], None]:
    def broken() -> None:
        for module in modules:
            for name, value in names.items():
                setattr(module, name, value)

    return broken


def _no_blame() -> None:
    prepare = client.ForkServer._prepare
    client.ForkServer._prepare = lambda self, setup: (prepare(self, setup)[0], "")


def _wall_clock() -> None:
    clock = {"sleep": time.sleep, "monotonic": time.time, "perf_counter": time.time}
    server.time = client.time = SimpleNamespace(**clock)  # type: ignore[assignment]


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "samples may outlast the process": (
        _put(outcome, against_wall=lambda *_: []),
        "plugin lies about time",
    ),
    "samples need not be those of a loop": (
        _put(child, against_loops=lambda *_, **__: []),
        "plugin lies about time",
    ),
    "a measurement has any size": (
        _put(child, MEASUREMENT_BYTES=1 << 40),
        "plugin returns nonsense",
    ),
    "text is kept as it is": (
        _put(child, outcome, readable, readable=lambda text, letters=0: text),
        "plugin raises",
    ),
    "a log is kept whole": (_put(outcome, _shorten=lambda path: 0), "plugin prints"),
    "a log grows for ever": (_put(client, _size=lambda path: 0), "plugin prints"),
    "settings stay changed": (_put(server, _settings=dict), "plugin breaks at import"),
    "nothing is left out of a server": (_no_blame, "plugin breaks at import"),
    "prepared data is never read again": (
        _put(store, _read_seen=lambda target: _Any()),
        "prepared data between two cells",
    ),
    "damage is not told": (
        _put(child, DataWarning=type("Other", (Warning,), {})),
        "prepared data between two cells",
    ),
    "writes to data are not seen": (_put(store, watch_writes=lambda: None), "plugin changes"),
    "a time that was set back is believed": (
        _put(hashing, identity=lambda facts: (1, facts.st_size, facts.st_mtime_ns, 0)),
        "data file between two cells",
    ),
    "a twin replaces real data": (
        _put(SameData, check=lambda self, row: None),
        "a twin in its place",
    ),
    "the clock of the wall is used": (_wall_clock, "clock jumps"),
}
