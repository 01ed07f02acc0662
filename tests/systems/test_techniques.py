"""Whose each technique of each system is: the paper's, or an addition of dgbench."""

from __future__ import annotations

import re

import pytest

from dgbench.systems.arena.entrants import own_systems
from dgbench.systems.pipad.ladders import OURS

OWN = {(name, one.name): one for name, system in own_systems().items() for one in system.techniques}
ADDED = re.compile(r"^(added|ours|dgbench)\b")
PAPER = re.compile(r"^(PiPAD|ESDG|DGC|GNNFlow|T-GCN|TGL|DyGNN|JODIE)\b")
RACED_WITH_OURS = {"pipad": set(OURS)}
"""Additions that are on by default: rows call the system with them by its registered name, and its
published form by another one."""


@pytest.mark.parametrize(("system", "name"), OWN, ids="-".join)
def test_a_technique_names_its_paper_or_is_ours(system: str, name: str) -> None:
    one = OWN[system, name]
    assert bool(ADDED.match(one.source)) is one.ours
    assert bool(PAPER.match(one.source)) is not one.ours


@pytest.mark.parametrize("system", sorted({system for system, _ in OWN}))
def test_what_is_ours_is_off_unless_asked_for(system: str) -> None:
    on = {name for (of, name), one in OWN.items() if of == system and one.ours and one.default}
    assert on == RACED_WITH_OURS.get(system, set())
