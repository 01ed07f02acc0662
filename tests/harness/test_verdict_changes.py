"""Changes since the first edition: each has its rule, and none is left out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dgbench.harness.claims.changes import changes, first_edition
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import GLYPHS, Verdict
from dgbench.systems.base.registry import find_paper
from tests.golden.record import PAPERS


def verdict(glyph: str, **fields) -> Verdict:
    return Verdict(id="c", verdict=GLYPHS[glyph], glyph=glyph, reason="a reason; more", **fields)


def test_the_first_edition_has_every_claim_of_the_five_papers():
    claims = {claim.id for name in PAPERS for claim in load_ledger(find_paper(name).ledger)}
    assert claims == set(first_edition())


@pytest.mark.parametrize("glyph", GLYPHS)
def test_every_change_has_a_rule(glyph):
    for claim, (before, _) in list(first_edition().items())[:200]:
        found = changes([("p", SimpleNamespace(id=claim), verdict(glyph, lacks=("a twin",)))])
        assert bool(found) == (before != GLYPHS[glyph])
        for one in found:
            assert one.rule
            assert (one.paper, one.claim, one.after) == ("p", claim, GLYPHS[glyph])


def test_a_claim_that_came_later_is_no_change():
    assert changes([("p", SimpleNamespace(id="new"), verdict("R"))]) == []
