"""Systems and papers as the harness sees them.

dgbench's own are imported here. Those of third parties never are: a process of its own imports each
of them, describes it, and answers calls of its checks, cells and figures under a time limit
(`process.py`); here stand `DescribedSystem` and a `Paper` that ask it (`described.py`). Only the
process of a cell imports a third party's system or paper for work.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint
from typing import Final

from dgbench.harness.plugins.described import DescribedSystem, describe_paper, describe_system
from dgbench.harness.plugins.process import PluginError, PluginProcess
from dgbench.lab.paper import Paper
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import registry
from dgbench.systems.base.registry import Broken, paper_names, system_names
from dgbench.systems.base.system import System

__all__ = [
    "Broken",
    "DescribedSystem",
    "PluginError",
    "describe_ahead",
    "find_paper",
    "find_system",
    "get_paper",
    "paper_names",
    "system_names",
    "taken_names",
]

_GROUPS: Final = {"system": registry.SYSTEMS, "paper": registry.PAPERS}


def find_system(name: str) -> System | DescribedSystem | Broken:
    """The system called `name`, described if it is a third party's. Raises UnknownKeyError."""
    point = registry.third_party(registry.SYSTEMS).get(name)
    return registry.find_system(name) if point is None else _described_system(point)


def find_paper(name: str) -> Paper | Broken:
    """The paper called `name`; a third party's is asked in its own process.

    Raises:
        UnknownKeyError: there is none of this name.
    """
    point = registry.third_party(registry.PAPERS).get(name)
    return registry.find_paper(name) if point is None else _described_paper(point)


def get_paper(name: str) -> Paper:
    """As `find_paper`. Raises UnknownKeyError, or DgbenchError if it is broken."""
    found = find_paper(name)
    if isinstance(found, Broken):
        raise DgbenchError(
            f"paper '{name}' cannot be loaded: {found.reason}", hint=f"it comes from {found.origin}"
        )
    return found


def contender_title(paper: str, name: str) -> str:
    """The title of a setting that a paper's rows name like a system; other names stay as they are.

    Of a third party's paper, which cannot be asked while it runs, all stay.
    """
    if paper not in paper_names() or paper in registry.third_party(registry.PAPERS):
        return name
    found = getattr(find_paper(paper), "contenders", {}).get(name)
    return found.title or name if found is not None else name


def describe_ahead() -> None:
    """Begin to import all third-party plugins side by side, where all are going to be asked for."""
    for kind, group in _GROUPS.items():
        for point in registry.third_party(group).values():
            _process(kind, point).start()


def taken_names() -> list[tuple[str, Broken]]:
    """Plugins that cannot be reached because of their name, each with its kind."""
    return [(kind, one) for kind, group in _GROUPS.items() for one in registry.taken_names(group)]


@cache  # for the length of a command, as what the processes say
def _process(kind: str, point: EntryPoint) -> PluginProcess:
    return PluginProcess(kind, point.name)


@cache
def _described_system(point: EntryPoint) -> DescribedSystem | Broken:
    try:
        return describe_system(_process("system", point))
    except PluginError as error:
        return Broken(point.name, registry.origin_of(point), str(error))


@cache
def _described_paper(point: EntryPoint) -> Paper | Broken:
    try:
        return describe_paper(_process("paper", point))
    except PluginError as error:
        return Broken(point.name, registry.origin_of(point), str(error))
