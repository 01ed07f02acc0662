"""A fuzz target: one reader of ours, what a right answer looks like, and where its inputs begin.

A target is a function of `tests/fuzz/targets/*.py` under `@target`. It returns where the input was
read, and raises a `DgbenchError` where it was refused. Any other exception is a crash;
`sane(condition, words)` raises `Nonsense` for an answer that is wrong.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import pkgutil
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


class Nonsense(AssertionError):
    """Input was accepted, and what came out of it is wrong."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader.

    Attributes:
        run: see the head of this file.
        begin: makes the first inputs. kind: `bytes`, `json` or `lines`, what mutations may use.
        tokens: words of the format, to be put anywhere.
    """

    name: str
    run: Callable[[bytes], object]
    begin: Callable[[], Iterable[bytes]]
    kind: str
    tokens: tuple[bytes, ...]

    def seeds(self) -> list[bytes]:
        """Where a search begins: the made inputs and the kept ones."""
        kept = (path.read_bytes() for path in sorted((CORPUS / self.name).glob("*")))
        return list(dict.fromkeys([*self.begin(), *kept]))


_FOUND: dict[str, Target] = {}


def target(
    name: str,
    *,
    seeds: Iterable[bytes] | Callable[[], Iterable[bytes]],
    kind: str = "bytes",
    tokens: Iterable[bytes] = (),
) -> Callable[[Callable[[bytes], object]], Callable[[bytes], object]]:
    """Register a function as the target `name`."""

    def register(function: Callable[[bytes], object]) -> Callable[[bytes], object]:
        begin = functools.cache(seeds) if callable(seeds) else lambda: list(seeds)
        _FOUND[name] = Target(name, function, begin, kind, tuple(tokens))
        return function

    return register


def targets() -> dict[str, Target]:
    """Every target by name."""
    from tests.fuzz import targets as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"tests.fuzz.targets.{module.name}")
    return dict(sorted(_FOUND.items()))


def sane(condition: object, words: str = "") -> None:
    """Raise `Nonsense` unless the condition holds."""
    if not condition:
        raise Nonsense(words)


@functools.cache
def scratch(name: str) -> Path:
    """A folder of this process, in memory where the machine has such a place."""
    memory = "/dev/shm"
    root = memory if os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix=f"dgbench-fuzz-{name}-", dir=root))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
