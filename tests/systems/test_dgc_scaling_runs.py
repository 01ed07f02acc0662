"""Cells of DGC's races and curves on a tiny real graph: what rows hold, and what stops a cell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dgc_rows import kept
from dgc_tiny import random_sequence, sequence_of, tiny_workload
from tiny_data import tiny_sequence

from dgbench.systems.base import RunContext
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.dgc.experiments import race_runs
from dgbench.systems.dgc.experiments.fig12_rows import sent_shares
from dgbench.systems.dgc.experiments.race_rows import races
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    DGC,
    EVERY,
    EXACT,
    FUSED,
    PAPER_NAMES,
    PLACED,
    PLAIN,
    PSS,
    PTS,
    WIRE,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.sequence_oracle import NOTHING_SCORED, SequenceOracle

CONTEXT = RunContext(device="cpu", preset="smoke", threads=1)


def job(model: str = "tgcn_2layer") -> RaceJob:
    task = SequenceWorkload(dataset="email-eu-core", model=model, feature_dim=3, hidden_dim=4)
    chosen = {n: s for n, s in contenders().items() if n in (PTS, EXACT, DGC)}
    return RaceJob("email-eu-core", task, tiny_sequence(features=3), chosen)


def test_contenders_differ_by_what_their_names_say() -> None:
    every = contenders(*EVERY)
    assert tuple(every) == EVERY
    assert tuple(contenders()) == PAPER_NAMES
    for name in PLACED:
        plain, fused = every[name], every[FUSED[name]]
        assert plain.partition == fused.partition != "chunks"
        assert (plain.spatial_fusion, fused.spatial_fusion) == (False, True)
        assert (plain.temporal, fused.temporal) == ("padded", "packed")
    assert len({every[name].partition for name in PLACED}) == len(PLACED)
    assert every[PLAIN].partition == every[EXACT].partition == every[DGC].partition == "chunks"
    for name in (PLAIN, EXACT, DGC):
        assert (every[name].chunks.levels, every[name].chunks.refine) == (1, False)
    assert replace(every[ADDED], chunks=every[DGC].chunks) == every[DGC]
    assert every[ADDED].chunks.refine
    assert {n for n, s in every.items() if s.stale} == {DGC, ADDED}
    assert {s.wire for s in contenders(link="wire").values()} == {WIRE}


def test_a_race_keeps_every_turn_and_every_count() -> None:
    raced = race([job(), job("dysat")], 2, CONTEXT, least=2, budget_s=0.01)
    params = {"part": "race", "dataset": "email-eu-core", "ranks": 2, "link": "gloo"}
    row = kept(raced, "fig12", params)
    found = races([row], "fig12")
    assert [one.model for one in found] == ["tgcn_2layer", "dysat"]
    for one in found:
        assert set(one.names) == {PTS, EXACT, DGC}
        assert all(len(one.turns(n)) == 2 and min(one.turns(n)) > 0 for n in one.names)
        assert one.number("vertex_steps") > 0
        assert one.number("exchanged", PTS) > 0
        assert one.number("divergence", EXACT) >= 1
        assert one.has("row_share", DGC)
        assert 0 <= one.number("row_share", DGC) <= 1
        assert not one.has("row_share", EXACT)
        assert one.row.deviation[one.key] < 1e-5
    assert sent_shares([row]) == {}  # a twin's rows do not say what is held back


@pytest.mark.parametrize("model", ["tgcn_2layer", "dysat"])
def test_rows_of_scored_pairs_are_recounted(model, monkeypatch) -> None:
    """Ends of a pair meet at one worker: an honest race of links passes, a forgotten end fails."""
    names = (PSS, PTS, EXACT, DGC)
    task = tiny_workload(model, hidden_dim=8, task="link")
    chosen = {name: settings for name, settings in contenders().items() if name in names}
    made = RaceJob(task.dataset, task, random_sequence(30, 7, 60, 8), chosen)
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert [check.words for check in found.checks if not check.passed] == []
    rows = race_runs.EdgeRecount.rows
    monkeypatch.setattr(
        race_runs.EdgeRecount, "rows", lambda self, placement, shape, pairs: rows(
            self, placement, shape, pairs[:1].repeat(2, axis=0)
        ),
    )  # fmt: skip
    forgot = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert {c.system for c in forgot.checks if not c.passed and c.of == "counters"} <= set(names)
    assert any(not check.passed for check in forgot.checks)


def test_checks_of_a_task_that_scores_nothing_say_so() -> None:
    """On a network that never changes every vertex has an edge next: any trainer would pass."""
    ring = [(i, (i + 1) % 12) for i in range(12)]
    made = replace(job(), task=tiny_workload(hidden_dim=8), data=sequence_of([ring] * 5, 12))
    for task, said in ((made.task, True), (tiny_workload(hidden_dim=8, task="link"), False)):
        oracle = SequenceOracle(task, made.data)
        check = oracle.check_losses(oracle.losses, DGC)
        assert check.passed
        assert (NOTHING_SCORED in check.words) is said
    found = race([made], 2, CONTEXT, least=1, budget_s=0.01, clocked=0)
    assert any("next to nothing is scored" in note for note in found.notes)
