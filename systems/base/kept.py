"""Numbers of a task that one process made sure of, kept for others.

Losses of a training that an oracle confirmed are what later processes of its cell are compared
with: the arithmetic is the same, step by step, and comparing costs next to nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
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
        code = "" if package is None else code_of(package)
        self._path = kept_file((task, "confirmed", repr(setting), code, content_of(data)))
        self.known = self._read()

    @comparing()
    def keep(self, losses: Mapping[str, Sequence[float]], checks: Iterable[ResultCheck]) -> None:
        """Keep the losses of a process whose checks by an oracle all passed."""
        if all(check.passed for check in checks):
            write(self._path, {name: list(own) for name, own in losses.items()})

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
            found = _whole(self._path)
            kept = {str(name): [float(v) for v in own] for name, own in found.items()}
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
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


def kept_file(task: object) -> Path:
    """Where numbers of a task are kept, by the task and the code that made them."""
    from dgbench.datasets.store import cache_root

    found = hashlib.sha256(f"{task!r}\n{torch.__version__}\n{oracle_code()}".encode())
    return cache_root() / "tolerances" / f"{found.hexdigest()[:24]}.json"


def oracle_code() -> str:
    """Hash of the code that oracles consist of, read once."""
    base = Path(__file__).parent
    return code_of(base.parents[1] / "models", base.parent / "reference", base)


@cache
def code_of(*folders: Path) -> str:
    """Hash of all modules below some folders."""
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def read(path: Path) -> dict[str, float] | None:
    """Numbers by name, None where there are none that can be read."""
    try:
        return {str(name): float(value) for name, value in _whole(path).items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        return None


def write(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write numbers by name, with their checksum, at once or, where that cannot be, not at all."""
    with contextlib.suppress(OSError):  # they are made again
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        whole = {"numbers": numbers, "checksum": _checksum(numbers)}
        part.write_text(json.dumps(whole), encoding="utf-8")
        os.replace(part, path)


def _whole(path: Path) -> Mapping[str, Any]:
    """The numbers of a file that is as it was written; raises ValueError where it is not."""
    found = json.loads(path.read_bytes())
    if found["checksum"] != _checksum(found["numbers"]):
        raise ValueError(f"{path} was changed")
    return found["numbers"]


def _checksum(numbers: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(numbers).encode()).hexdigest()
