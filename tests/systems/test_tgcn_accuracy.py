"""Accuracy over time (Figure 9): cells, a small run, and what checks say of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from interactions_tiny import tiny_interactions
from msgspec import structs
from tgcn_rows import asked, glyphs, judged, made, observation, ran

from dgbench import datasets
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, Table
from dgbench.systems.base.interaction_checks import whole_times
from dgbench.systems.tgcn import accuracy_runs
from dgbench.systems.tgcn.accuracy_runs import DYGNN, JODIE, LARGE, OURS
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.experiments.fig9 import Fig9


def scores(kind: str, title: str, values: list[float]) -> list[Observation]:
    return [
        observation(fig9.SCORES[kind], value, task=kind, setting=title, piece=piece)
        for piece, value in enumerate(values)
    ]


def row(found: list[Observation], dataset: str = "wikipedia", seed: int = 1, **data) -> Row:
    found = [
        *found,
        observation("parts", 11, of="pieces"),
        observation("edges", 11, task="classify"),
    ]
    about = {"dataset": dataset, "twin": False, **data}
    return made("fig9", {"dataset": dataset, "seed": seed}, found, data=about)


LEVEL = [0.5, 0.7, 0.72, 0.71, 0.69, 0.7, 0.71]


def seeds(lead, *, high=OURS, low=DYGNN, spread=0.002, count=5, **fields) -> list[Row]:
    """Runs of so many seeds in which one contender leads the other by about `lead`."""
    rows = []
    for seed in range(1, count + 1):
        by = lead + spread * (seed - (count + 1) / 2)
        found = scores("classify", high, [x + by for x in LEVEL]) + scores("classify", low, LEVEL)
        rows.append(row(found, seed=seed, **fields))
    return rows


def test_a_lead_is_taken_over_the_pieces_that_both_have():
    one = row(scores("link", OURS, [0.1, 0.6, 0.8]) + scores("link", DYGNN, [0.9, 0.5]))
    lead = fig9.over([one], "link", OURS, DYGNN)
    assert (lead.value, lead.seeds) == (pytest.approx(10.0), 1)  # the first piece is left out
    assert lead.low == float("-inf")
    assert fig9.over([one], "link", OURS, JODIE) is None


def test_a_seed_is_one_observation():
    gaps = {("a", seed): [0.01 * seed] * 1000 for seed in (1, 2, 3)}
    few = {key: each[:2] for key, each in gaps.items()}
    assert fig9.lead(gaps).low == pytest.approx(fig9.lead(few).low)  # more pieces tell no more
    both = {**gaps, **{("b", seed): [0.5 + 0.01 * seed] for seed in (1, 2, 3)}}
    wide = fig9.lead(both)
    assert wide.value == pytest.approx(27.0)
    assert wide.high - wide.low < 3  # graphs that differ are no noise


def test_no_loss_is_decided_by_seeds():
    assert glyphs("fig9-no-accuracy-loss", seeds(0.02)) == "S(S-)"
    assert glyphs("fig9-no-accuracy-loss", seeds(-0.02)) == "O(O-)"
    assert glyphs("fig9-no-accuracy-loss", seeds(0.0)) == "u(u-)"
    assert glyphs("fig9-no-accuracy-loss", seeds(-0.005)) == "O(O-)"  # half a point is a loss
    assert glyphs("fig9-no-accuracy-loss", seeds(0.05, count=1)) == "u(u-)"


def test_what_states_see_is_a_reading():
    both = [
        structs.replace(one, observed=[*one.observed, *other.observed[:7]])
        for one, other in zip(seeds(0.02), seeds(-0.02, high=accuracy_runs.WHOLE), strict=True)
    ]
    assert glyphs("fig9-no-accuracy-loss", both) == "v(SO)"


def test_the_order_of_dygnn_and_jodie():
    def said(lead, **fields):
        return glyphs("s64-dygnn-over-jodie", seeds(lead, high=DYGNN, low=JODIE, **fields))

    assert [said(0.02), said(-0.02), said(0.0)] == ["S", "O", "u"]
    assert said(0.02, count=4) == "S"
    assert said(0.02, dataset="reddit") == "R"
    assert said(-0.02, dataset="reddit") == "X"
    assert judged("s64-dygnn-over-jodie", seeds(0.02, high=DYGNN, low=JODIE, count=4))[1].lacks[
        0
    ] == ("4 of 5 seeds")


def test_stable_where_late_pieces_are_as_good():
    def said(late):
        pieces = [0.1, 0.6, 0.61, 0.6, 0.6, 0.6, 0.6, *late]
        return glyphs(
            "fig9-stable-over-time",
            [
                row(scores("classify", OURS, [x + k / 1e3 for x in pieces]), seed=k)
                for k in range(5)
            ],
        )

    assert said([0.7, 0.71, 0.7]) == "S"
    assert said([0.58, 0.59, 0.58]) == "O"  # two points less are less


def test_a_twin_does_not_block_real_graphs():
    twin = row(scores("classify", OURS, LEVEL), dataset=LARGE, twin=True)
    rows = seeds(0.02)
    assert glyphs("fig9-no-accuracy-loss", [*rows, twin]) == "S(S-)"
    assert judged("fig9-stable-over-time", [*rows, twin])[1].data == "other"
    assert judged("fig9-stable-over-time", [twin])[1].glyph == "-"


def test_twitter_is_judged_against_the_largest_class_and_by_memory():
    def said(chance: float, dataset: str = LARGE):
        found = scores("classify", OURS, [0.1, 0.5, 0.52, 0.51])
        found += [
            observation("accuracy", chance, task="classify", setting=accuracy_runs.MAJORITY),
            observation("memory", 75 << 30, setting=DYGNN, of="state"),
            observation("memory", 32 << 30, of="device"),
        ]
        return asked("fig9-twitter", [row(found, dataset, seed=k) for k in range(2)])

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


def test_a_probe_does_not_end_among_events_of_one_time():
    t = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0], dtype=torch.float64)
    assert whole_times(t, 0, 3) == 0
    assert whole_times(t, 1, 3) == 0  # 3.0 goes on
    assert whole_times(t, 2, 3) == 2
    assert whole_times(t, 5, 3) == 3
    assert whole_times(t, 6, 3) == 6  # all of one time
    assert whole_times(t, 7, 3) == 7  # the end of the stream


def test_every_preset_has_cells():
    for preset in fig9.SIZES:
        cells = Fig9().cells(preset, "cpu")
        real = [name for name in fig9.SIZES[preset].graphs if name != LARGE]
        twitter = len(fig9.SIZES[preset].graphs) - len(real)
        assert len(cells) == len(real) * fig9.SIZES[preset].seeds + twitter
