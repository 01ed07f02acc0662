"""Verbs of claims on made-up races: what they find, and that every one of them can say no."""

from __future__ import annotations

from typing import Any

import pytest

from dgbench.harness.store.row import Row
from dgbench.lab.contests import Race
from dgbench.lab.paper import Claim
from dgbench.lab.table import observation
from dgbench.lab.verbs import (
    ahead_on_most,
    best_everywhere,
    equals,
    larger,
    mean,
    observed,
    spread,
)  # fmt: skip

RACE = Race(
    "fig1", by=("dataset", "model"), metric="step_time", none="no race ran", judged="ours",
    facts=lambda dataset, model: {"small": dataset == "g"},
    label=lambda dataset, model: f"{dataset} with {model}",
)  # fmt: skip


def claim(value: Any = None) -> Claim:
    return Claim(id="c", where="-", statement="-", kind="speedup", value=value, unit="x")


def row(system: str, dataset: str, model: str, number: int, seconds: float, **fields: Any) -> Row:
    params = {"dataset": dataset, "model": model, "system": system}
    return Row(
        id=f"{system}-{dataset}-{model}-r{number}", paper="toy", experiment="fig1", params=params,
        group=f"{dataset}/{model}", round=number,
        observed=[observation("step_time", seconds, samples=[seconds])], **fields,
    )  # fmt: skip


def race(**seconds: dict[tuple[str, str], float]) -> list[Row]:
    """Three rounds of every system on every workload, times 1 % apart."""
    return [
        row(system, *where, number, at * (1 + number / 100))
        for system, times in seconds.items()
        for where, at in times.items()
        for number in (1, 2, 3)
    ]


EVERYWHERE = race(
    slow={("g", "a"): 4.0, ("g", "b"): 6.0, ("h", "a"): 2.0},
    other={("g", "a"): 2.0, ("g", "b"): 3.0, ("h", "a"): 1.5},
    ours={("g", "a"): 1.0, ("g", "b"): 1.0, ("h", "a"): 1.0},
)


def turned(rows: list[Row]) -> list[Row]:
    """The same race with our system's times and the slow one's exchanged."""
    names = {"slow": "ours", "ours": "slow", "other": "other"}
    return [
        row(names[r.params["system"]], r.params["dataset"], r.params["model"], r.round, r.time)
        for r in rows
    ]


def test_the_extremes_say_where() -> None:
    both = spread(RACE("other", "ours"), RACE("slow", "ours"))(claim(), EVERYWHERE)
    assert both.measured == {"low": pytest.approx(1.5), "high": pytest.approx(6)}
    assert (both.direction, both.undecided) == (True, False)
    assert spread(RACE("slow", "ours"))(claim(), turned(EVERYWHERE)).direction is False


def test_the_best_is_ahead_of_every_rival_everywhere() -> None:
    best = best_everywhere(RACE, "ours", ("slow", "other"))
    found = best(claim(), EVERYWHERE)
    assert (found.measured, found.holds, found.undecided) == ("3 of 3 workloads", True, False)
    lost = best(claim(), turned(EVERYWHERE))
    assert (lost.measured, lost.holds) == ("0 of 3 workloads", False)
    level = race(slow={("g", "a"): 1.0}, ours={("g", "a"): 1.0}, other={("g", "a"): 2.0})
    open_ = best(claim(), level)
    assert (open_.holds, open_.undecided, open_.reason) == (
        True, True, "inside the noise on g with a",
    )  # fmt: skip


def test_one_ratio_is_larger_than_the_others_by_intervals() -> None:
    contests = {"b": RACE("slow", "ours", model="b"), "a": RACE("slow", "ours", model="a")}
    assert larger("b", contests)(claim(), EVERYWHERE).holds is True
    found = larger("a", contests)(claim(), EVERYWHERE)
    assert (found.holds, found.measured) == (False, {"b": "6x", "a": "2.8x"})


@pytest.mark.parametrize(
    "check",
    [mean(RACE("slow", "ours")), spread(RACE("slow", "ours")),
     best_everywhere(RACE, "ours", ("slow",)),
     ahead_on_most(RACE, "ours", ("slow",)), larger("x", {"x": RACE("slow", "ours")})],
)  # fmt: skip
def test_nothing_is_found_where_nothing_ran(check) -> None:
    for rows in ([], race(ours={("g", "a"): 1.0})):
        found = check(claim({"mean": 1.0, "low": 1.0}), rows)
        assert (found.measured, found.holds, found.reason) == (None, None, "no race ran")


def counted(**counts: int) -> list[Row]:
    return [
        Row(id=name, paper="toy", experiment="sizes", params={"dataset": name},
            observed=[observation("edges", count), observation("loss", count / 10)])
        for name, count in counts.items()
    ]  # fmt: skip


def test_counts_are_what_the_paper_prints_or_not() -> None:
    edges = equals(observed("sizes", "edges", dataset="g"), lambda table: table.get(), "counted")
    found = edges(claim(7), counted(g=7, h=8))
    assert (found.measured, found.holds, found.rows) == (7, True, ["g"])
    assert edges(claim(8), counted(g=7, h=8)).holds is False
    assert edges(claim(8), counted(h=8)).reason == "the experiment 'sizes' did not run"
