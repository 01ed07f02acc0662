"""DGC's synthetic graphs (Figures 13, 14): what is made, and what is claimed of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.checks import synthetic as checks
from dgbench.systems.dgc.experiments import fig14
from dgbench.systems.dgc.experiments.lifetimes import gini
from dgbench.systems.dgc.synthetic import (
    EDGES,
    ENDS,
    FAMILIES,
    VERTICES,
    Synthetic,
    _draw,
)


@given(st.integers(0, 500), st.integers(1, 30), st.floats(0, 3), st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_draws_add_up_and_spread_with_the_level(total, count, level, seed):
    found = _draw(np.random.default_rng(seed), total, count, level)
    assert found.sum() == total
    assert found.min() >= 0
    assert found.size == count
    if level == 0:
        assert found.max() - found.min() <= 1


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_totals_hold_and_only_one_thing_varies(family, ends):
    made = {
        level: Synthetic(family=family, level=level, ends=ends, scale=1 / 500)
        for level in (fig14.LEVELS[family][0], fig14.LEVELS[family][-1])
    }
    spreads = []
    for graph in made.values():
        data = graph.snapshots().check()
        assert len(data) == graph.steps
        steps = build_supergraph(list(data.topology))
        assert steps.num_vertices == pytest.approx(VERTICES / 500, rel=checks.CLOSE)
        assert sum(data.num_edges) == pytest.approx(EDGES / 500, rel=checks.CLOSE)
        assert all(csr.values is None for csr in data.topology)
        lengths = torch.diff(steps.start)
        spreads.append((gini(np.array(data.num_edges)), gini(lengths.numpy())))
    edges, lengths = (after - before for before, after in zip(*spreads, strict=True))
    varied, kept = (edges, lengths) if family == "spatial" else (lengths, edges)
    assert varied > 0.3
    assert abs(kept) < 0.1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"family": "other", "level": 0.1}, UnknownKeyError),
        ({"family": "spatial", "level": 0.1, "ends": "other"}, UnknownKeyError),
        ({"family": "spatial", "level": -0.1}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "scale": 0.0}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "scale": 1e-6}, InvalidInputError),
        ({"family": "spatial", "level": 0.1, "steps": 1}, InvalidInputError),
    ],
)
def test_fields_out_of_range_are_refused(fields, error):
    with pytest.raises(error):
        Synthetic(**fields).snapshots()


# Claims
