"""What fits in 80 columns, without colour, without UTF-8, and what the last lines say."""

from __future__ import annotations

import io
from types import SimpleNamespace

import fake_run
import pytest

from dgbench.harness.claims import evaluate
from dgbench.harness.plan import Plan
from dgbench.harness.store import Store
from dgbench.harness.terminal.planning import plan_head
from dgbench.harness.terminal.progress import Progress, describe, failure
from dgbench.harness.terminal.text import encodable, table
from dgbench.harness.terminal.verdicts import (
    clock,
    contradictions,
    ending,
    needs_text,
    paper_text,
    verdict_table,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    store = Store.open(fake_run.make_run(folder))
    return evaluate(fake_run.toy_paper(folder), store.rows()), store.rows()


def test_the_verdict_table_fits_and_adds_up(found):
    verdicts, _ = found
    text = verdict_table([verdicts, verdicts])
    lines = text.splitlines()
    assert lines[0] == ("paper     claims  reproduced  direction  contradicted  projected  not run")
    assert all(len(line) <= 80 for line in lines)
    for line in lines[1:]:
        _, claims, *counts = line.split()
        assert int(claims) == sum(map(int, counts))
    assert lines[-1].startswith("all ")
    assert int(lines[-1].split()[1]) == 2 * len(verdicts.verdicts)


def test_a_narrow_terminal_gets_blocks(found):
    verdicts, _ = found
    text = verdict_table([verdicts], width=60)
    assert all(len(line) < 40 for line in text.splitlines())
    assert "contradicted" in text


def test_nothing_is_cut_off(found):
    verdicts, _ = found
    text = "\n".join([contradictions([verdicts]), paper_text(verdicts), needs_text(verdicts)])
    assert "…" not in text
    assert "..." not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    for verdict in verdicts.verdicts:
        assert verdict.id in text


def test_the_four_last_lines(found):
    verdicts, rows = found
    lines = ending(
        seconds=192,
        cells=(22, 2, 0),
        rows=rows,
        papers=[verdicts],
        noise=0.035,
        gpu="",
        report="results/runs/x/report.html",
    )
    assert lines[0] == "Done in 3:12. 22 cells ok, 2 failed. Noise floor ±3.5 %."
    assert lines[1].startswith("No GPU here: ")
    assert lines[2] == "4 of 6 datasets are synthetic twins."
    assert lines[3] == "Report: results/runs/x/report.html"
    stopped = ending(
        seconds=2, cells=(3, 0, 1), rows=[], papers=[], noise=None, gpu="H1", report="r",
        stopped=(4, 9),
    )  # fmt: skip
    assert stopped[0].startswith("Stopped: 4 of 9 cells kept, 3 cells ok, 1 not run here.")
    assert "not measured" in stopped[0]
    assert stopped[1].startswith("Measured on H1")
    assert all(len(line) <= 80 for line in lines)


def test_without_utf8_look_alikes_are_written():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    text = encodable("±3.5 % − 2 ≈ 2 · “x” → 日", stream)
    assert text == '+-3.5 % - 2 ~ 2 - "x" -> ?'
    utf8 = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    assert encodable("±", utf8) == "±"


def _plan(tmp_path):
    paper = fake_run.toy_paper(tmp_path)
    return Plan.build([paper], ["fig1"], "quick", "cpu", control="none"), paper


def _row(planned, status="ok", reason="", turn=1):
    return SimpleNamespace(
        paper="toy", experiment="fig1", params=planned.cell.params, status=status, reason=reason,
        round=turn, seconds=1.5, cell_hash=planned.hash, data={"twin": True}, group="g",
    )  # fmt: skip


def test_progress_on_a_terminal_redraws_three_lines(tmp_path):
    plan, _ = _plan(tmp_path)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    progress = Progress(stream, live=True)
    progress.on_plan(plan, [])
    progress.on_start(plan.cells[0].cell, 3)
    progress.on_row(_row(plan.cells[0]))
    progress.on_row(_row(plan.cells[1], "oom", "21.9 of 24.0 GiB"))
    lines = progress.lines()
    assert len(lines) == 3
    assert lines[0].startswith("toy fig1 ")
    assert f"2/{len(plan.steps)}   ok 1  failed 1" in lines[0]
    assert lines[1].startswith("now    pair 3 of 5")
    assert "out of memory, 21.9 of 24.0 GiB" in lines[2]
    assert "(twin)" in lines[2]
    assert all(len(line) <= 79 for line in lines[:2])
    progress.on_end(None)
    stream.seek(0)
    written = stream.read()
    assert "\x1b[3A" in written
    assert "#" in written or "." in written


def test_progress_elsewhere_is_one_plain_line_a_row(tmp_path):
    plan, _ = _plan(tmp_path)
    stream = io.StringIO()
    progress = Progress(stream, live=False)
    progress.on_plan(plan, [])
    progress.on_start(plan.cells[0].cell, 1)
    progress.on_row(_row(plan.cells[0]))
    progress.on_row(_row(plan.cells[1], "crash", "signal 11"))
    progress.on_note("2 lines were set aside")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "\x1b" not in stream.getvalue()
    assert "toy/fig1" in lines[0]
    assert "crashed, signal 11" in lines[1]
    assert lines[2] == "note: 2 lines were set aside"


def test_the_plan_says_what_is_missing(tmp_path):
    plan, paper = _plan(tmp_path)
    plan.cells[0].status, plan.cells[0].reason = "no-gpu", "no NVIDIA GPU was found here"
    text = plan_head(plan, [paper], last_s=171)
    assert "23 cells, up to 5 pairs each" in text
    assert "(last time 2:51)" in text
    assert "of 24 claims can be checked without a GPU" in text
    assert "1 cells will not start: no NVIDIA GPU was found here" in text


def test_small_things():
    assert [clock(s) for s in (0.4, 59, 192, 3792)] == ["0:00", "0:59", "3:12", "1:03:12"]
    row = SimpleNamespace(params={"system": "a", "model": "m", "dataset": "d"}, data={}, group="g")
    assert describe(row) == "a | m | d"
    assert failure(SimpleNamespace(status="time", reason="")) == "time limit"
    text = table(["a", "b"], [["1", "long words"], ["22", "x"]], right={0})
    assert text.splitlines()[1] == " 1  long words"
