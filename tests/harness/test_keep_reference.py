"""Keeping a run: one folder a paper, nothing of the machine's disk, all or nothing."""

from __future__ import annotations

import dataclasses
import gzip
import importlib.util
from pathlib import Path

import fake_run
import msgspec
import pytest

from dgbench.harness.report.run import load_run
from dgbench.harness.store import Store

SCRIPT = Path(__file__).parents[2] / "scripts" / "keep_reference.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout: scripts do not travel")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("keep_reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def world(tmp_path_factory, script):
    """A run of two papers with paths and a long kernel name in it, kept."""
    folder = tmp_path_factory.mktemp("keep")
    run = fake_run.make_run(folder)
    toy = dataclasses.replace(fake_run.toy_paper(folder), experiments=(fake_run.Race(),))
    papers = {"toy": toy, "twin": dataclasses.replace(toy, name="twin")}
    with Store.open(run, writable=True) as store:
        key = store.add_provenance({"machine": {"system": "Linux 6.1.2-fc-x9", "cpu": {}},
                                    "environment": {"DATA": "/srv/data/here"}})  # fmt: skip
        store.add_provenance({"machine": {"system": "unused"}})
        more = {"paper": "twin", "provenance": key, "reason": "no /srv/data/x.csv, 3.5/4 GiB"}
        for row in store.rows()[1:40]:
            names = {"id": f"t{row.id}", "cell_hash": f"t{row.cell_hash}"}
            store.append(msgspec.structs.replace(row, **names, **more))
        store.update(command="dgbench reproduce toy twin --out /srv/out --preset quick")
        store.write_plan(
            {"cells": [{"hash": str(n), "cell": {"paper": "twin"}} for n in range(30)]}
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "get_paper", papers.__getitem__)
        return run, script.keep(run, "some-machine", folder / "reference")


def test_each_paper_has_its_rows_and_the_machine_s(world):
    whole, kept = world
    assert [p.name for p in kept] == ["toy", "twin"]
    rows = Store.open(whole).rows()
    for folder in kept:
        store = Store.open(folder)
        assert {r.paper for r in store.rows()} == {folder.name, "-"}
        assert len(store.rows()) == sum(r.paper in (folder.name, "-") for r in rows)
        assert any(r.params.get("control") == "aa" for r in store.rows())
        assert store.info["papers"] == [folder.name]
        run = load_run(folder)
        assert run.slug == f"some-machine-{folder.name}"
        assert run.noise is not None
        used = {r.provenance for r in store.rows()}
        assert set(store.provenance()) == used
    partial = load_run(kept[1])
    assert (partial.planned, partial.partial) == (30, True)


def test_nothing_says_where_it_was_measured(world):
    _, kept = world
    for folder in kept:
        rows = gzip.decompress((folder / "rows.jsonl.gz").read_bytes()).decode()
        texts = [rows] + [(folder / n).read_text() for n in ("run.json", "provenance.json")]
        assert "/srv" not in " ".join(texts)
        assert "-fc-" not in " ".join(texts)
    rows = Store.open(kept[1]).rows()
    assert any(r.reason == "no <path>, 3.5/4 GiB" for r in rows)
    command = Store.open(kept[0]).info["command"]
    assert command == "dgbench reproduce toy twin --preset quick"
    facts = Store.open(kept[1]).provenance()
    assert "Linux 6.1.2" in {f["machine"].get("system") for f in facts.values()}
