"""Numbers of a task that one process made sure of, kept for others.

Losses of a training that an oracle confirmed are what later processes of its cell are compared
with: the arithmetic is the same, step by step, and comparing costs next to nothing.

They are kept in the memory of the process that runs the plan (`harness.runner.kept`), for one start
of a run, and nowhere on the disk. A cell gets those of its group and hands back what it made and
what it used: numbers of a cell that loads code of a third party are never kept, and one that used
others than it got loses its row.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from dgbench.lab.result_checks import LOOSEST, ResultCheck, close
from dgbench.runtime.touched import comparing
from dgbench.systems.base.conditioning import MIN_TOLERANCE

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

CONFIRMED: Final = "losses that the first process had confirmed"
SHARED_STEPS: Final = 3
"""Steps in which trainings that sum in another order are compared with one another."""
GROWTH: Final = 0.1
"""Share of the least tolerance that each step adds to it: on a device sums may have another order
every time."""
STALE_SHARE: Final = 0.5
"""A training with stale rows may part from the kept one by this share of what that one parts from
exact training: which rows it holds back hangs on thresholds."""


_known: Final[dict[str, dict[str, Any]]] = {}
_made: Final[dict[str, dict[str, Any]]] = {}
_used: Final[dict[str, dict[str, Any]]] = {}
_sealed = False


class KeptLosses:
    """Losses of trainings by name, kept between the processes of a cell once they are confirmed.

    Attributes:
        known: of every step by name; None where no process had them confirmed.
    """

    @comparing()
    def __init__(
        self, task: object, data: SnapshotSequence, setting: object, *, package: Path | None = None
    ) -> None:
        """Look for losses.

        Args:
            task, data: what is trained.
            setting: what else losses depend on, such as ranks, or the settings of stale rows.
            package: folder of the system's code, where its losses are not those of every system.
        """
        code = "" if package is None else str(package)
        self._key = kept_key((task, "confirmed", repr(setting), code, content_of(data)))
        self.known = self._read()

    @comparing()
    def keep(self, losses: Mapping[str, Sequence[float]], checks: Iterable[ResultCheck]) -> None:
        """Keep the losses of a process whose checks by an oracle all passed."""
        if all(check.passed for check in checks):
            write(self._key, {name: list(own) for name, own in losses.items()})

    @comparing()
    def checks(
        self, losses: Mapping[str, Sequence[float]], *, stale: Collection[str] = (), part: str = ""
    ) -> list[ResultCheck]:
        """Checks of all steps that the kept trainings took too, by name.

        An exact training that was not kept by its name is compared with the first steps of another
        exact one, and one with stale rows with the very first, which sends all of them.

        Args:
            losses: of every step, by name.
            stale: names of trainings that hold rows back.
            part: of what they are, put before the names.
        """
        known = self.known or {}
        exact = next((known[name] for name in known if name not in stale), [])
        found = []
        for name, own in losses.items():
            wanted = known.get(name) or exact[: 1 if name in stale else SHARED_STEPS]
            steps = range(min(len(own), len(wanted)))
            allowed = {str(i): min(LOOSEST, MIN_TOLERANCE * (1 + GROWTH * i)) for i in steps}
            for i in range(min(len(steps), len(exact))) if name in stale else ():
                apart = STALE_SHARE * abs(wanted[i] - exact[i]) / (abs(exact[i]) or 1.0)
                allowed[str(i)] = max(allowed[str(i)], min(LOOSEST, apart))
            words = ", ".join(word for word in (part, name, "step") if word)
            mine, kept = ({str(i): of[i] for i in steps} for of in (own, wanted))
            found.append(close("losses", mine, kept, allowed, against=CONFIRMED, part=words,
                               system=name))  # fmt: skip
        return found

    def _read(self) -> dict[str, list[float]] | None:
        try:
            found = read(self._key) or {}
            kept = {str(name): [float(v) for v in own] for name, own in found.items()}
        except (ValueError, TypeError):
            return None
        sane = all(own and all(map(math.isfinite, own)) for own in kept.values())
        return kept if kept and sane else None


def content_of(
    data: SnapshotSequence, count: int | None = None, state: Mapping[str, Any] | None = None
) -> str:
    """Hash of the first snapshots of a sequence, and of parameters where they are given."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if value is not None:
            found.update(memoryview(torch.as_tensor(value).detach().cpu().contiguous().numpy()))

    for name in sorted(state or {}):
        found.update(name.encode())
        add(state[name])  # type: ignore[index]
    for t in range(len(data) if count is None else min(count, len(data))):
        csr = data.topology[t]
        for part in (csr.indptr, csr.indices, csr.values, data.features[t]):
            add(part)
        add(None if data.targets is None else data.targets[t])
    return found.hexdigest()


def kept_key(task: object) -> str:
    """Name of numbers of a task."""
    return hashlib.sha256(f"{task!r}\n{torch.__version__}".encode()).hexdigest()[:32]


def read(key: str) -> dict[str, Any] | None:
    """Numbers by name, None where neither this process nor one before it made any."""
    if key in _made and not _sealed:
        return copy.deepcopy(_made[key])
    if key not in _known:
        return None
    _used[key] = copy.deepcopy(_known[key])
    return _used[key]


def write(key: str, numbers: Mapping[str, Any]) -> None:
    """Keep numbers by name for later processes of the group, in place of earlier ones."""
    _made[key] = dict(numbers)


def begin_kept(known: Mapping[str, dict[str, Any]], *, sealed: bool = False) -> None:
    """Begin a process with what the harness has kept; a sealed one reads nothing else."""
    global _sealed
    _sealed = sealed
    _known.clear()
    _known.update(known)
    _used.clear()
    _made.clear()


def kept_in_process() -> tuple[dict[str, Any], dict[str, Any]]:
    """Numbers that this process made, and those of the harness that it used, by key."""
    return _made, _used
