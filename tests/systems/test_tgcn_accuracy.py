"""Accuracy over time (Figure 9): cells, a small run, and what checks say of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from interactions_tiny import tiny_interactions
from tgcn_rows import asked, made, observation, ran

from dgbench import datasets
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, Table
from dgbench.systems.tgcn import accuracy_runs
from dgbench.systems.tgcn.accuracy_runs import DYGNN, JODIE, LARGE, OURS
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.experiments.fig9 import Fig9


def scores(kind: str, title: str, values: list[float]) -> list[Observation]:
    return [
        observation(fig9.SCORES[kind], value, task=kind, setting=title, piece=piece)
        for piece, value in enumerate(values)
    ]


def row(found: list[Observation], dataset: str = "wikipedia") -> Row:
    found = [
        *found,
        observation("parts", 11, of="pieces"),
        observation("edges", 11, task="classify"),
    ]
    return made("fig9", {"dataset": dataset, "seed": 1}, found, data={"twin": False})


def both(ours: list[float], theirs: list[float]) -> Row:
    return row([
        one
        for kind in fig9.TASKS
        for one in (*scores(kind, OURS, ours), *scores(kind, DYGNN, theirs))
    ])  # fmt: skip


def test_a_lead_is_taken_over_the_pieces_that_both_have():
    one = row(scores("link", OURS, [0.1, 0.6, 0.8]) + scores("link", DYGNN, [0.9, 0.5]))
    lead = fig9.over([one], "link", OURS, DYGNN)
    assert (lead.value, lead.n) == (pytest.approx(10.0), 1)  # the first piece is left out
    assert lead.low == float("-inf")


def test_no_loss_is_decided_by_pieces():
    level = [0.5, 0.7, 0.72, 0.71, 0.69, 0.7, 0.71]
    found = asked("fig9-no-accuracy-loss", [both([x + 0.02 for x in level], level)])
    assert found.holds
    assert not found.undecided
    assert not asked("fig9-no-accuracy-loss", [both([x - 0.05 for x in level], level)]).holds
    wild = both([0.5, 0.9, 0.5, 0.9, 0.5, 0.9, 0.5], level)
    assert asked("fig9-no-accuracy-loss", [wild]).undecided


def test_the_order_of_dygnn_and_jodie():
    ours, theirs = [0.2, 0.6, 0.62, 0.61], [0.2, 0.5, 0.5, 0.5]
    one = row(scores("classify", DYGNN, ours) + scores("classify", JODIE, theirs))
    found = asked("s64-dygnn-over-jodie", [one])
    assert found.holds
    assert found.direction


def test_stable_where_late_pieces_are_as_good():
    level = [0.1, 0.6, 0.61, 0.6, 0.6, 0.61, 0.6, 0.6, 0.6, 0.61]
    assert asked("fig9-stable-over-time", [row(scores("classify", OURS, level))]).holds
    falling = [0.1, 0.8, 0.8, 0.81, 0.7, 0.6, 0.6, 0.4, 0.41, 0.4]
    assert not asked("fig9-stable-over-time", [row(scores("classify", OURS, falling))]).holds


def test_twitter_is_judged_against_the_largest_class_and_by_memory():
    def said(chance: float, dataset: str = LARGE):
        found = scores("classify", OURS, [0.1, 0.5, 0.52, 0.51])
        found += [
            observation("accuracy", chance, task="classify", setting=accuracy_runs.MAJORITY),
            observation("memory", 75 << 30, setting=DYGNN, of="state"),
            observation("memory", 32 << 30, of="device"),
        ]
        return asked("fig9-twitter", [row(found, dataset)])

    assert said(0.3).holds
    assert not said(0.6).holds
    assert said(0.3, "wikipedia").measured is None


@pytest.mark.parametrize("name", ["college-msg", LARGE])
def test_a_small_run_scores_every_contender(monkeypatch, name):
    monkeypatch.setattr(datasets, "open_events", lambda *_: tiny_interactions(99, 30))
    monkeypatch.setitem(
        fig9.SIZES, "smoke", replace(fig9.SIZES["smoke"], graphs=(name,), events=99, width=5)
    )
    one = ran("fig9", {"dataset": name, "seed": 1})
    table = Table.of([one])
    for kind in fig9.TASKS:
        rivals = () if name == LARGE else fig9.SIZES["smoke"].rivals[kind]
        found = table.where(fig9.SCORES[kind], piece=lambda piece: piece is not None).by("setting")
        assert set(found) == {OURS, *rivals}
        assert all(0 <= score <= 1 for each in found.values() for score in each.values)
    if name == LARGE:
        needed = table.where("memory", setting=DYGNN).get()
        assert needed > table.where("memory", of="device").get()
    assert Fig9().answer([one]) if name != LARGE else not Fig9().answer([one])
    points = fig9.figure_points([one], "link")
    seconds = [p["seconds"] for p in points if p["series"] == "tgcn"]
    assert seconds
    assert seconds == sorted(seconds)
    assert {p["seed"] for p in points} == {1}


def test_every_preset_has_cells():
    for preset in fig9.SIZES:
        cells = Fig9().cells(preset, "cpu")
        assert len(cells) == len(fig9.SIZES[preset].graphs) * fig9.SIZES[preset].seeds
