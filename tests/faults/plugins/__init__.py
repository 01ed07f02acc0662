"""Plugins that do harm. Each behaviour says what its row must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from tests.faults.papers import Behaviour


@dataclass(frozen=True, slots=True)
class Harm:
    """Expected row of a behaviour: its status, and words of its reason or notes.

    Attributes:
        how: where the behaviour is found. cell: further settings of its cell.
    """

    how: str
    status: str
    words: tuple[str, ...]
    cell: dict[str, Any] = field(default_factory=dict)


HARMS: dict[str, list[Harm]] = {}


def harm(status: str, *words: str, **cell: Any) -> Callable[[Behaviour], Behaviour]:
    """Register a behaviour with what its row must be."""

    def register(function: Behaviour) -> Behaviour:
        module = function.__module__
        found = Harm(f"{module}:{function.__name__}", status, words, cell)
        HARMS.setdefault(module, []).append(found)
        return function

    return register


def harms(module: ModuleType) -> list[Harm]:
    """All behaviours of a module, in its order."""
    return HARMS[module.__name__]
