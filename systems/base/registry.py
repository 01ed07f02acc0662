"""Finding systems and papers: ours and those of third parties, all through entry points."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points

from dgbench.lab.paper import Paper
from dgbench.runtime.errors import DgbenchError, SignalExit, unknown_key
from dgbench.systems.base.system import System

SYSTEMS = "dgbench.systems"
PAPERS = "dgbench.papers"


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin that was found and could not be loaded."""

    name: str
    origin: str
    reason: str


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    """Entry points by name. A name of dgbench's own cannot be taken by another distribution."""
    return {point.name: point for point in sorted(_entries(group), key=_is_own)}


@cache
def _entries(group: str) -> tuple[EntryPoint, ...]:
    """Entry points of a group, but for those of distributions whose metadata cannot be read."""
    try:
        return tuple(entry_points(group=group))
    except Exception:  # one damaged file must not hide all others
        found: dict[str, list[EntryPoint]] = {}
        for dist in distributions():
            with suppress(Exception):
                found.setdefault(dist.name, [p for p in dist.entry_points if p.group == group])
        return tuple(point for points in found.values() for point in points)


def _is_own(point: EntryPoint) -> bool:
    """Return True if an entry point belongs to dgbench itself (or to no distribution at all)."""
    return point.dist is None or _distribution_name(point.dist) == "dgbench"


@cache
def _distribution_name(distribution: Distribution) -> str:
    """The name in the metadata, which a distribution parses anew whenever it is asked."""
    return distribution.name


def third_party(group: str) -> dict[str, EntryPoint]:
    """Entry points of other distributions by name: code that only its own cells may import."""
    return {name: point for name, point in _points(group).items() if not _is_own(point)}


def own_papers() -> frozenset[str]:
    """Names of dgbench's own papers."""
    return frozenset(name for name, point in _points(PAPERS).items() if _is_own(point))


def taken_names(group: str) -> list[Broken]:
    """Plugins that cannot be reached, because another one has their name."""
    points = _points(group)
    return [
        Broken(
            point.name,
            origin_of(point),
            f"its name is that of {origin_of(points[point.name])}, which is used instead",
        )
        for point in _entries(group)
        if point.name in points and point != points[point.name]
    ]


def origin_of(point: EntryPoint) -> str:
    """Where a plugin comes from: `module:attribute (distribution)`."""
    return f"{point.value} ({point.dist.name if point.dist else 'unknown package'})"


def _load(group: str, name: str) -> object | Broken:
    point = _points(group)[name]
    try:
        return point.load()
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:  # a plugin may fail in any way; never fatally
        return Broken(name, origin_of(point), f"{type(error).__name__}: {error}")


def system_names() -> list[str]:
    """Names of all systems, whether or not they load."""
    return sorted(_points(SYSTEMS))


def paper_names() -> list[str]:
    """Names of all papers, whether or not they load."""
    return sorted(_points(PAPERS))


def find_system(name: str) -> System | Broken:
    """The system called `name`, or why it does not load. Raises UnknownKeyError."""
    if name not in _points(SYSTEMS):
        raise unknown_key("system", name, _points(SYSTEMS))
    found = _load(SYSTEMS, name)
    if isinstance(found, Broken):
        return found
    try:
        system = found() if isinstance(found, type) else found
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:
        return Broken(name, str(found), f"{type(error).__name__}: {error}")
    if not isinstance(system, System):
        return Broken(name, str(found), "it is not a dgbench.systems.base.System")
    return system


def get_system(name: str) -> System:
    """The system called `name`. Raises UnknownKeyError, or DgbenchError if it is broken."""
    found = find_system(name)
    if isinstance(found, Broken):
        raise DgbenchError(
            f"system '{name}' cannot be loaded: {found.reason}",
            hint=f"it comes from {found.origin}",
        )
    return found


def find_paper(name: str) -> Paper | Broken:
    """The paper called `name`, or why it does not load. Raises UnknownKeyError."""
    if name not in _points(PAPERS):
        raise unknown_key("paper", name, _points(PAPERS))
    found = _load(PAPERS, name)
    if isinstance(found, (Broken, Paper)):
        return found
    return Broken(name, str(found), "it is not a dgbench.systems.base.Paper")


def get_paper(name: str) -> Paper:
    """The paper called `name`. Raises UnknownKeyError, or DgbenchError if it is broken."""
    found = find_paper(name)
    if isinstance(found, Broken):
        raise DgbenchError(
            f"paper '{name}' cannot be loaded: {found.reason}", hint=f"it comes from {found.origin}"
        )
    return found
