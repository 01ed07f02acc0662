from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from fake_papers import cell, make_paper

from dgbench.harness.plan import Plan, PlannedCell, cell_hash, read_plan
from dgbench.runtime.errors import StoreError
from dgbench.systems.base import Cell


def order(plan):
    """`a1 b1 ...` as they would run."""
    return " ".join(
        f"{plan.cells[s.index].cell.params['how']}{s.round}{'i' if s.instrumented else ''}"
        for s in plan.steps
    )


def build(*cells, preset="smoke", device="cpu", **more):
    return Plan.build([make_paper(*cells)], None, preset, device, **more)


def test_contenders_are_interleaved_and_every_second_round_turned():
    plan = build(cell("a", repeats=3), cell("b", repeats=3), cell("c", group="alone"))
    assert order(plan) == "a1 b1 c1 b2 a2 a3 b3"


@pytest.mark.parametrize(("preset", "count"), [("smoke", 0), ("quick", 1), ("full", 1)])
def test_the_control_copies_a_timed_contender(preset, count):
    cells = [
        cell("once"),
        cell("lonely", repeats=5, group="l"),
        cell("a", repeats=5, phases=True),
        cell("b", repeats=5),
    ]
    plan = build(*cells, preset=preset)
    controls = [p for p in plan.cells if p.control]
    assert len(controls) == count
    for found in controls:
        assert found.cell.params == {"how": "a", "control": "aa"}
        assert found.cell.group == "g"
        assert found.cell.phases is False
        assert found.hash != plan.cells[plan.cells.index(found) - 1].hash


def test_the_hash_covers_content_and_nothing_else():
    one = cell("a", size=1)
    assert cell_hash(one, "quick", "cpu") == cell_hash(
        cell("a", repeats=9, timeout_s=1.0, memory_bytes=5, size=1), "quick", "cpu"
    )
    changed = (
        (cell("a", size=2), "quick", "cpu"), (cell("a", size=1, group="h"), "quick", "cpu"),
        (one, "full", "cpu"), (one, "quick", "cuda"), (one, "quick", "cpu"),
    )  # fmt: skip
    assert len({cell_hash(*each) for each in changed}) == 5
    flipped = Cell(paper="fake", experiment="behave", params={"size": 1, "how": "a"}, group="g")
    assert cell_hash(flipped, "quick", "cpu") == cell_hash(one, "quick", "cpu")


def test_a_cell_named_twice_runs_once_and_is_said():
    plan = build(cell("a"), cell("a"), cell("b"))
    assert order(plan) == "a1 b1"
    assert "twice" in plan.problems[0]


def test_without_a_gpu_every_cell_says_so_and_none_starts():
    plan = build(cell("a", repeats=5), device="cuda", gpus=0)
    assert [(p.status, bool(p.reason)) for p in plan.cells] == [("no-gpu", True)]
    assert plan.steps == []
    assert plan.runnable == []
    assert build(cell("a"), device="cuda", gpus=1).runnable


@pytest.mark.parametrize(
    ("device", "reason", "status"),
    [
        ("cpu", "needs a CUDA device", "no-gpu"),
        ("cpu", "tglite is not installed", "skipped"),
        ("cuda", "needs a meter", "skipped"),
    ],
)
def test_a_cell_that_says_why_it_cannot_run_takes_no_process(device, reason, status):
    refused = msgspec.structs.replace(cell("a"), unavailable=reason)
    plan = build(refused, cell("b"), device=device, gpus=1)
    assert order(plan) == "b1"
    assert (plan.cells[0].status, plan.cells[0].reason) == (status, reason)


def kept_plan():
    cell = Cell(paper="toy", experiment="one", params={"system": "a"}, group="g", repeats=3)
    planned = PlannedCell(cell=cell, hash=cell_hash(cell, "quick", "cpu"))
    return msgspec.to_builtins(Plan(preset="quick", device="cpu", cells=[planned]))


def read_again(plain):
    return read_plan(SimpleNamespace(run="7f3a91c2", read_plan=lambda: plain))


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.update(preset="quack"),
        lambda plan: plan.update(device="tpu"),
        lambda plan: plan.update(cells=None),
        lambda plan: plan["cells"][0].update(hash="0" * 16),
        lambda plan: plan["cells"][0].update(estimate_s=-1.0),
        lambda plan: plan["cells"][0]["cell"].update(repeats=10**12),  # steps without end
        lambda plan: plan["cells"][0]["cell"].update(timeout_s=0.0),
        lambda plan: plan["cells"][0]["cell"]["params"].update(system="b"),
    ],
)
def test_a_plan_that_nobody_made_is_refused(change):
    plain = kept_plan()
    change(plain)
    with pytest.raises(StoreError):
        read_again(plain)
    with pytest.raises(StoreError):
        read_again(None)
