"""Recount of what stream trainers did: sound ones pass, and what is planted is named."""

from __future__ import annotations

from typing import Any

import pytest
from stream_faults import DRAW_FAULTS, FAULTS
from test_stream_witness import OPENED, events_of, task_of, uniform_task

from dgbench.lab.result_checks import ResultCheck
from dgbench.systems.base.stream import StreamWorkload, stream_data
from dgbench.systems.base.stream_recount import recount_batches, recount_training


def recounted(task: StreamWorkload, kind: str, system: str = "plain") -> list[ResultCheck]:
    """Checks of a trainer after two rounds of two epochs."""
    data = stream_data(events_of(kind), task)
    trainer, rounds = OPENED[system](task, data), [(12, 30), (30, len(data.events))]
    trainer.insert(12)
    for first, last in rounds:
        trainer.insert(last)
        memory = trainer.mark_memory()
        for epoch in range(2):
            trainer.restore_memory(memory)
            trainer.train(first, last, epoch=epoch)
    found = recount_training("this one", trainer, task, rounds, 2)
    return found + recount_batches("this one", trainer, task)


def failed(checks: list[ResultCheck]) -> dict[str, str]:
    """Words of failed checks, by what was checked."""
    return {check.of: check.words for check in checks if not check.passed}


@pytest.mark.parametrize("kind", ["ties", "days", "distinct", "bipartite", "gaps"])
@pytest.mark.parametrize("system", OPENED)
def test_sound_trainers_pass(system, kind) -> None:
    checks = recounted(task_of(), kind, system)
    assert not failed(checks)
    names = {check.of for check in checks}
    assert names == {"steps", "memories", "events", "batches", "negatives", "neighbours"}
    assert "21 events" in " ".join(check.part for check in checks)


@pytest.mark.parametrize(
    "task",
    [uniform_task(), task_of("dysat"), task_of("graphsage"), task_of("tgn", strict_time=False),
     task_of("tgn", events=45, chunks=5), task_of("tgat", closed=True, window=9.0),
     task_of("tgn", fanouts=(3, 2), undirected=False)],
    ids=lambda task: task.model,
)  # fmt: skip
def test_other_workloads_pass(task) -> None:
    assert not failed(recounted(task, "ties"))


SEEN: dict[str, set[str]] = {
    "half of each batch is trained on": {"events", "batches", "negatives"},
    "every second event is trained on": {"steps", "events", "batches", "negatives"},
    "every second batch is left out": {"steps", "events", "batches", "negatives"},
    "the last batch is left out": {"steps", "events", "batches", "negatives"},
    "events of a batch come backwards": {"events", "batches", "negatives"},
    "batches part events of a time": {"batches"},
    "memories are never written": {"memories"},
    "memories of sources alone are written": {"memories"},
    "memories are written a batch late": {"memories"},
    "memories are written before a time is over": {"memories"},
    "times of update are a batch late": {"memories"},
    "times of update are a batch early": {"memories"},
    "negatives are one vertex": {"negatives"},
    "negatives are the destinations": {"negatives"},
    "negatives are the next destinations": {"negatives"},
    "negatives of a batch are alike": {"negatives"},
    "one negative in ten is the destination": {"negatives"},
    "neighbours are from a little later": {"neighbours"},
    "neighbours are from a little earlier": {"neighbours"},
    "neighbours are from the end of the batch": {"neighbours"},
    "neighbours are the oldest": {"neighbours"},
    "neighbours of one time come backwards": {"neighbours"},
    "a graph takes in all but one event": {"neighbours"},
}
"""Checks that name each fault; others of `stream_faults` are the witness's and the oracle's."""


@pytest.mark.parametrize("name", SEEN)
def test_a_planted_fault_is_named(name, monkeypatch) -> None:
    FAULTS[name](monkeypatch)
    assert SEEN[name] <= {
        of for kind in ("days", "ties") for of in failed(recounted(task_of(), kind))
    }


@pytest.mark.parametrize("name", DRAW_FAULTS)
def test_a_planted_fault_of_a_draw_is_named(name, monkeypatch) -> None:
    DRAW_FAULTS[name](monkeypatch)
    assert "neighbours" in failed(recounted(uniform_task(), "ties"))


def test_a_failed_check_says_how_much_was_done(monkeypatch) -> None:
    FAULTS["half of each batch is trained on"](monkeypatch)
    words: dict[str, Any] = failed(recounted(task_of(), "distinct"))
    assert "on 11" in words["events"]
    monkeypatch.undo()
    FAULTS["memories are never written"](monkeypatch)
    assert "0 of" in failed(recounted(task_of(), "distinct"))["memories"]
