"""Rows and verdicts as tables: nothing is lost, and every form can be read again."""

from __future__ import annotations

import json

import fake_run
import pandas as pd
import pytest

from dgbench.harness.export import CLAIMS, claims_table, observations_table, write_table
from dgbench.harness.store import Store
from dgbench.lab.metrics import UNITS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fake_run.make_run(tmp_path_factory.mktemp("export"))


def test_observations_keep_every_number(run, tmp_path):
    rows = Store.open(run).rows()
    path = tmp_path / "observations.csv"
    write_table(observations_table(rows), path)
    read = pd.read_csv(path, keep_default_na=False)
    every = [(row, one) for row in rows for one in row.observed]
    assert len(read) == len(every) > 0
    for (_, line), (row, one) in zip(read.iterrows(), every, strict=True):
        unit = UNITS[line["kind"]]
        assert (line["id"], line["metric"], line["unit"]) == (row.id, one.metric, unit)
        assert float(line["value"]) == one.value
        assert json.loads(line["samples"] or "[]") == one.samples
        for name, value in {**row.params, **one.dims}.items():
            assert str(line[f"dims.{name}"]) == str(value)


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
