"""Accuracy over time (Figure 9): cells, a small run, and what checks say of rows."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from interactions_tiny import tiny_interactions

from dgbench import datasets
from dgbench.systems.base import RunContext
from dgbench.systems.tgcn.checks import accuracy as checks
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.experiments.fig9 import DYGNN, JODIE, LARGE, OURS, Fig9


def row_of(values, dataset="wikipedia", number=0, **counters):
    return SimpleNamespace(
        id=f"row{number}", experiment="fig9", params={"dataset": dataset, "seed": 1},
        values=values, status="ok", counters={"pieces": 11, "events classify": 11, **counters},
        instrumented=False, deviation={}, data={"twin": False}, device="cpu", reason="",
    )  # fmt: skip


def pieces(kind: str, title: str, scores: list[float]) -> dict[str, float]:
    return {f"{kind} {title} {piece}": score for piece, score in enumerate(scores)}


def both(ours: list[float], theirs: list[float], other: str = DYGNN) -> dict[str, float]:
    found = {}
    for kind in fig9.TASKS:
        found |= pieces(kind, OURS, ours) | pieces(kind, other, theirs)
    return found


def test_a_lead_is_taken_over_the_pieces_that_both_have():
    row = row_of(pieces("link", OURS, [0.1, 0.6, 0.8]) | pieces("link", DYGNN, [0.9, 0.5]))
    lead = fig9.over([row], "link", OURS, DYGNN)
    assert (lead.value, lead.n) == (pytest.approx(10.0), 1)  # the first piece is left out
    assert lead.low == float("-inf")


def test_no_loss_is_decided_by_pieces():
    level = [0.5, 0.7, 0.72, 0.71, 0.69, 0.7, 0.71]
    good = row_of(both([x + 0.02 for x in level], level))
    found = checks.no_loss(None, [good])
    assert found.holds
    assert not found.undecided
    bad = row_of(both([x - 0.05 for x in level], level))
    assert not checks.no_loss(None, [bad]).holds
    wild = row_of(both([0.5, 0.9, 0.5, 0.9, 0.5, 0.9, 0.5], level))
    assert checks.no_loss(None, [wild]).undecided
    assert checks.no_loss(None, []).reason


def test_the_order_of_dygnn_and_jodie():
    ours = pieces("classify", DYGNN, [0.2, 0.6, 0.62, 0.61])
    row = row_of(ours | pieces("classify", JODIE, [0.2, 0.5, 0.5, 0.5]))
    found = checks.dygnn_over_jodie(None, [row])
    assert found.holds
    assert found.direction


def test_stable_where_late_pieces_are_as_good():
    row = row_of(pieces("classify", OURS, [0.1, 0.6, 0.61, 0.6, 0.6, 0.61, 0.6, 0.6, 0.6, 0.61]))
    assert checks.stable(None, [row]).holds
    row = row_of(pieces("classify", OURS, [0.1, 0.8, 0.8, 0.81, 0.7, 0.6, 0.6, 0.4, 0.41, 0.4]))
    assert not checks.stable(None, [row]).holds
    assert checks.stable(None, []).reason


def test_twitter_is_judged_against_the_largest_class_and_by_memory():
    values = pieces("classify", OURS, [0.1, 0.5, 0.52, 0.51]) | {"majority": 0.3}
    sizes = {"bytes DyGNN": 75 << 30, "bytes device": 32 << 30}
    assert checks.twitter(None, [row_of(values, LARGE, **sizes)]).holds
    values["majority"] = 0.6
    assert not checks.twitter(None, [row_of(values, LARGE, **sizes)]).holds
    assert checks.twitter(None, [row_of(values)]).reason


@pytest.mark.parametrize("name", ["college-msg", LARGE])
def test_a_small_run_scores_every_contender(monkeypatch, name):
    monkeypatch.setattr(datasets, "open_events", lambda *_: tiny_interactions(99, 30))
    monkeypatch.setitem(
        fig9.SIZES, "smoke", replace(fig9.SIZES["smoke"], graphs=(name,), events=99, width=5)
    )
    cell = Fig9().cells("smoke", "cpu")[0]
    found = Fig9().run(cell, RunContext(device="cpu", preset="smoke", threads=1))
    for kind in fig9.TASKS:
        rivals = () if name == LARGE else fig9.SIZES["smoke"].rivals[kind]
        for title in (OURS, *rivals):
            scores = [v for k, v in found.values.items() if k.startswith(f"{kind} {title} ")]
            assert scores
            assert all(0 <= score <= 1 for score in scores)
    if name == LARGE:
        assert found.counters[f"bytes {DYGNN}"] > found.counters["bytes device"]
    row = row_of(found.values, name, **found.counters)
    assert Fig9().answer([row]) if name != LARGE else not Fig9().answer([row])
    points = fig9.figure_points([row], "link")
    assert points
    first = [p for p in points if p["series"] == "tgcn"]
    seconds = [p["seconds"] for p in first]
    assert seconds == sorted(seconds)
    assert {p["seed"] for p in points} == {row.params["seed"]}


def test_every_preset_has_cells_and_claims_have_checks():
    for preset in fig9.SIZES:
        cells = Fig9().cells(preset, "cpu")
        assert len(cells) == len(fig9.SIZES[preset].graphs) * fig9.SIZES[preset].seeds
    assert set(Fig9.claims) == set(checks.CHECKS)
