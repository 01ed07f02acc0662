"""Log of the calls that kernels made to the emulated runtime (`EMULATED_LOG` of emulated/)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Logged(NamedTuple):
    """One call of the runtime.

    Attributes:
        name: launch, copy, record, await, allocate; wait and free, which the host waits in.
        device: that was current.
        stream: that it was given.
        value: address of a copy's target or of an event; blocks of a launch.
    """

    name: str
    device: int
    stream: int
    value: int


class DeviceLog:
    """The calls since the log was opened or cleared.

    Args:
        path: the file that `EMULATED_LOG` names.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def calls(self, *names: str) -> list[Logged]:
        """In order; all, or those of some names."""
        text = self._path.read_text() if self._path.exists() else ""
        lines = (line.split() for line in text.splitlines())
        found = [Logged(name, *map(int, numbers)) for name, *numbers in lines]
        return [one for one in found if not names or one.name in names]

    def clear(self) -> None:
        """Forget what was logged."""
        self._path.unlink(missing_ok=True)
