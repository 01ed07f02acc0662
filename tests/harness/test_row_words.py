"""Params and data that a row holds in words are read in one place."""

from __future__ import annotations

from dgbench.harness.report.subjects import datasets_of
from dgbench.harness.store import Row
from dgbench.lab.table import observation


def row(params=None, **data):
    return Row(id="a-r1", params=params or {}, data=data)


def test_a_setting_behind_a_comma_is_no_part_of_the_system():
    assert row({"system": "tgcn, streamed"}).system == "tgcn"
    assert row({"system": "pygt-g"}).system == "pygt-g"
    assert row().system == ""


def test_a_row_names_datasets_once_and_none_where_it_read_none():
    mine = row({"dataset": "movie"}, dataset="wikipedia#1, wikipedia, stack")
    assert mine.datasets == ["wikipedia", "stack"]
    assert row({"dataset": "movie"}).datasets == ["movie"]
    assert row(dataset="none").datasets == row(dataset="all").datasets == row().datasets == []
    assert datasets_of(row(dataset="MathOverflow, sx-mathoverflow")) == ["sx-mathoverflow"]


def test_steady_iterations_are_those_of_the_process_itself():
    one = Row(id="a-r1", observed=[
        observation("operation_time", 9.0, samples=[9.0], method="x"),
        observation("step_time", 2.0, samples=[1.0, 2.0, 3.0]),
    ])  # fmt: skip
    assert (one.steady, one.time) == ([1.0, 2.0, 3.0], 2.0)
    assert (Row(id="b-r1", samples=[4.0]).steady, Row(id="c-r1").time) == ([4.0], None)
