"""Checks of claims can turn against them: each is asked on kept rows with other numbers."""

from __future__ import annotations

import pytest

from dgbench.systems.base.registry import find_paper
from tests.power import powerless


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["pipad", "esdg", "dgc", "gnnflow", "tgcn"])
def test_every_check_can_turn_against_its_claim(name, every):
    assert not powerless(find_paper(name), every)
