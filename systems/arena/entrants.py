"""Systems of the registry as contenders of the arena."""

from __future__ import annotations

from dgbench.lab.arena import Entrant
from dgbench.systems.base.registry import SYSTEMS, find_system, system_names, third_party
from dgbench.systems.base.system import System


def own_systems() -> dict[str, System]:
    """Systems of dgbench's own that load, by name; no plugin is imported."""
    others = third_party(SYSTEMS)
    found = {name: find_system(name) for name in system_names() if name not in others}
    return {name: system for name, system in found.items() if isinstance(system, System)}


def registered() -> dict[str, Entrant]:
    """Systems of dgbench's own as people read of them, by name."""
    return {
        name: Entrant(system.title, system.provenance, system.code)
        for name, system in own_systems().items()
    }
