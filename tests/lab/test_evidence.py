"""Conditions of a finding, from the rows that it names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgbench.lab.evidence import conditions
from dgbench.lab.paper import Finding


def data_of(params: dict[str, Any], **data: Any) -> str:
    """Kind of data of a finding that rests on one row, of a claim about Wikipedia."""
    row = SimpleNamespace(
        id="one", experiment="quality", params=params, data=data, device="cpu", status="ok",
        cell_hash="c", round=1, provenance={}, gpus=0,
    )  # fmt: skip
    claim: Any = SimpleNamespace(workload={"datasets": "Wikipedia"})
    paper: Any = SimpleNamespace(experiments=(), graphs=SimpleNamespace(has=lambda name: False))
    return conditions(claim, Finding(rows=["one"]), [row], [], paper).data


@pytest.mark.parametrize(
    ("params", "data", "kind"),
    [
        ({"dataset": "wikipedia"}, {}, "real"),
        ({"dataset": "wikipedia"}, {"scale": 1.0}, "real"),
        ({"dataset": "wikipedia"}, {"scale": 0.99}, "part"),
        ({"dataset": "wikipedia"}, {"kind": "subset"}, "part"),
        ({"dataset": "enron"}, {}, "other"),
        ({"dataset": "wikipedia"}, {"twin": True, "scale": 1.0}, "twin"),
        ({}, {}, ""),
    ],
)
def test_data_of_a_row(params, data, kind):
    assert data_of(params, **data) == kind
