"""Rows and verdicts as tables: nothing is lost, and every form can be read again."""

from __future__ import annotations

import json

import fake_run
import pandas as pd
import pytest

from dgbench.harness.cli import main
from dgbench.harness.export import CLAIMS, claims_table, observations_table, rows_table, write_table
from dgbench.harness.store import Row, Store
from dgbench.lab.metrics import UNITS
from dgbench.lab.table import observation
from dgbench.runtime.errors import InvalidInputError, StoreError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fake_run.make_run(tmp_path_factory.mktemp("export"))


def test_observations_keep_every_number(run, tmp_path):
    rows = Store.open(run).rows()
    path = tmp_path / "observations.csv"
    write_table(observations_table(rows), path)
    read = pd.read_csv(path, keep_default_na=False)
    every = [(row, one) for row in rows for one in row.observations]
    assert len(read) == len(every) > 0
    for (_, line), (row, one) in zip(read.iterrows(), every, strict=True):
        assert (line["id"], line["metric"], line["unit"]) == (
            row.id,
            one.metric,
            UNITS[line["kind"]],
        )
        assert float(line["value"]) == one.value
        assert json.loads(line["samples"] or "[]") == one.samples
        for name, value in {**row.params, **one.dims}.items():
            assert str(line[f"dims.{name}"]) == str(value)


def test_rows_keep_what_is_told_of_a_process(run, tmp_path):
    rows = Store.open(run).rows()
    path = tmp_path / "rows.csv"
    write_table(rows_table(rows), path)
    read = pd.read_csv(path, keep_default_na=False)
    assert read["id"].tolist() == [row.id for row in rows]
    for (_, line), row in zip(read.iterrows(), rows, strict=True):
        for key, value in row.params.items():
            assert str(line[f"params.{key}"]) == str(value)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_claims_keep_their_order_and_verdicts(run, tmp_path, ending):
    paper = fake_run.toy_paper(run.parent)
    table = claims_table([paper], Store.open(run).rows())
    path = tmp_path / f"claims.{ending}"
    write_table(table, path)
    read = pd.read_csv(path) if ending == "csv" else pd.read_parquet(path)
    assert list(read.columns) == list(CLAIMS)
    assert read["id"].tolist() == table["id"].tolist()
    assert read["verdict"].tolist() == table["verdict"].tolist()


def test_parquet_takes_a_column_of_words_and_numbers(tmp_path):
    rows = [Row(id="a", probes={"gpu": 3.5}), Row(id="b", probes={"gpu": "no device"})]
    write_table(rows_table(rows), tmp_path / "mixed.parquet")
    read = pd.read_parquet(tmp_path / "mixed.parquet")
    assert read["probes.gpu"].tolist() == ["3.5", "no device"]


def test_latex_escapes_what_latex_reads(tmp_path):
    table = rows_table([Row(id="a_b", reason="100 % of {x} & y", params={"n_k": 1})])
    write_table(table, tmp_path / "rows.tex")
    text = (tmp_path / "rows.tex").read_text()
    for escaped in ("a\\_b", "100 \\% of \\{x\\} \\& y", "params.n\\_k"):
        assert escaped in text


def test_no_rows_give_a_table_with_a_head(tmp_path):
    write_table(rows_table([]), tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().startswith("id,run,paper,")


def test_an_ending_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"rows\.xls.*\.csv, \.parquet, \.tex"):
        write_table(rows_table([]), tmp_path / "rows.xls")


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        write_table(rows_table([]), tmp_path / "file" / "rows.csv")


def test_the_command_writes_the_file(run, tmp_path, capsys):
    out = tmp_path / "deep" / "rows.csv"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(out), "--run", str(run)])
    assert ended.value.code == 0
    assert f"written to {out}" in capsys.readouterr().out
    assert out.exists()


def test_the_command_names_what_is_allowed(run, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "x.csv"), "--run", str(run), "--what", "row"])
    assert ended.value.code == 2
    assert "what" in capsys.readouterr().err


def test_whole_numbers_beyond_64_bits_are_kept_as_words(tmp_path):
    table = observations_table(
        [Row(id=name, observed=[observation("edges", n)]) for name, n in (("a", 2**70), ("b", 1))]
    )
    for name in ("rows.csv", "rows.parquet", "rows.tex"):
        write_table(table, tmp_path / name)
    assert str(2**70) in (tmp_path / "rows.csv").read_text()
    assert str(2**70) in pd.read_parquet(tmp_path / "rows.parquet")["value"].tolist()
