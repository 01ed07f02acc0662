"""Rows are stamped by what their processes touched, not by what was asked for."""

from __future__ import annotations

import msgspec
import pytest
from fake_papers import cell, lookup, make_paper

from dgbench.harness.plan import Plan, cell_hash
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.runner.same_data import SameData
from dgbench.harness.store import Row, Store
from dgbench.lab.evidence import on_gpu
from dgbench.lab.table import observation
from dgbench.runtime import touched


@pytest.fixture(autouse=True)
def clean_record():
    touched.clear()
    yield
    touched.clear()


def run_on_cuda(tmp_path, server, *cells):
    """Rows of these cells, asked for on a device."""
    paper = make_paper(*cells)
    plan = Plan.build([paper], None, "smoke", "cuda", control="none", gpus=1)
    settings = {"limits": False, "watch": False, "lookup": lookup, "threads": 1, "server": server}
    with Store.create(tmp_path) as store:
        run_plan(plan, store, listener=Listener(), **settings)
        return {row.params["how"]: row for row in store.written()}, plan


def test_a_row_whose_work_reached_no_device_is_a_row_of_the_cpu(tmp_path, server):
    rows, plan = run_on_cuda(
        tmp_path, server, cell("ok"), cell("launch", group="l"), cell("rank_launch", group="r")
    )
    assert plan.device == "cuda"
    silent = rows["ok"]
    assert silent.ok, (silent.reason, silent.notes)
    assert silent.device == "cpu"
    assert silent.asked == "cuda"
    assert any("no work of it reached a device" in note for note in silent.notes)
    assert silent.cell_hash == cell_hash(cell("ok"), "smoke", "cuda")
    assert rows["launch"].device == rows["rank_launch"].device == "cuda"
    assert rows["launch"].touched["cuda"]["launches"] == 1
    assert rows["rank_launch"].touched["cuda"]["launches"] == 2  # one in each of two ranks
    assert on_gpu([rows["launch"]])
    assert not on_gpu([silent, rows["launch"]])


def test_a_twin_that_is_said_to_be_real_data_is_refused(tmp_path, server):
    rows, _ = run_on_cuda(tmp_path, server, cell("twin_as_real"), cell("untold_twin", group="u"))
    wrong = rows["twin_as_real"]
    assert wrong.status == "check"
    assert "opened the twin" in wrong.reason
    assert not wrong.observed
    untold = rows["untold_twin"]
    assert untold.ok
    assert untold.data["twin"] is True
    assert untold.touched["data"] == [
        {"dataset": "x", "kind": "twin", "scale": 0.5, "bundled": False}
    ]


def test_a_cell_of_the_cpu_runs_there_and_may_not_touch_a_device(tmp_path, server):
    good, bad = (msgspec.structs.replace(cell(how, group=how), device="cpu")
                 for how in ("ok", "launch"))  # fmt: skip
    rows, _ = run_on_cuda(tmp_path, server, good, bad)
    assert rows["ok"].ok
    assert rows["ok"].asked == rows["ok"].device == "cpu"
    assert not any("reached" in note for note in rows["ok"].notes)
    assert rows["launch"].status == "check"
    assert "reached 'cuda'" in rows["launch"].reason


def timed_row(number, device, asked="cuda"):
    timed = [observation("step_time", 1.0, samples=[1.0])]
    return Row(id=f"r{number}", group="g", observed=timed, device=device,
               touched={"device": device, "asked": asked})  # fmt: skip


def test_a_contender_that_fell_back_to_the_cpu_is_not_compared():
    first, alike, fallen, declared = (
        timed_row(1, "cuda"), timed_row(2, "cuda"), timed_row(3, "cpu"), timed_row(4, "cpu", "cpu")
    )  # fmt: skip
    same = SameData([first])
    for row in (alike, fallen, declared):
        same.check(row)
    assert alike.ok
    assert declared.ok
    assert fallen.status == "check"
    assert "ran on 'cpu'" in fallen.reason
    assert not fallen.observed
