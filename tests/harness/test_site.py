"""Reports and sites of runs: merged by evidence, numbers of rows, escaped, links resolved."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import fake_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_checker import broken_links, read_pages

from dgbench.harness.claims.verdict import GLYPHS, STRONG, WEAK, Verdict
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report import build, reuse
from dgbench.harness.report.build import build_report, build_site
from dgbench.harness.report.merge import assemble, merge_claims, strength
from dgbench.harness.report.parallel import side_by_side
from dgbench.harness.report.run import load_run
from dgbench.harness.store import Store
from dgbench.harness.store.files import from_checked, to_checked
from dgbench.runtime.errors import StoreError
from dgbench.systems.base import FigureSpec
from dgbench.systems.base.registry import find_paper

ROOT = Path(__file__).parents[2]
CLAIMS = 7


def verdict(glyph, source=""):
    strong = "strong" if glyph in STRONG else "weak" if glyph in WEAK else ""
    return Verdict(id="c0", verdict=GLYPHS[glyph], glyph=glyph, reason="", strength=strong,
                   source=source)  # fmt: skip


def run_named(slug, machine, started, label=""):
    return SimpleNamespace(
        slug=slug, machine_slug=machine, machine_name=f"the {machine}", device="cpu", limits={},
        machine={}, info={"started": started}, store=SimpleNamespace(run=slug), partial=False,
        label=label,
    )  # fmt: skip


def section(paper, verdicts):
    claims = [SimpleNamespace(id=f"c{n}") for n in range(len(verdicts))]
    found = SimpleNamespace(claims=claims, verdicts=verdicts)
    return SimpleNamespace(name=paper, paper=SimpleNamespace(name=paper, title=paper.upper()),
                           verdicts=found, headline="")  # fmt: skip


VERDICTS = [verdict(glyph, of) for glyph in GLYPHS for of in ("counted", "timed")]
runs_of_papers = st.lists(
    st.tuples(
        st.sampled_from("ab"),  # paper
        st.sampled_from("xyz"),  # machine
        st.integers(1, 3),  # day
        st.lists(st.sampled_from(VERDICTS), min_size=CLAIMS, max_size=CLAIMS),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(runs_of_papers, st.randoms(use_true_random=False))
def test_merging_counts_each_claim_once_by_the_strongest_and_newest_evidence(drawn, chance):
    shown = [
        (run_named(f"r{n}", machine, f"2026-01-0{day}"), section(paper, verdicts))
        for n, (paper, machine, day, verdicts) in enumerate(drawn)
    ]
    site = assemble(shown, [run for run, _ in shown], merged=True)
    assert [p.name for p in site.papers] == sorted({paper for paper, *_ in drawn})
    assert len(site.claims) == CLAIMS * len(site.papers) == sum(site.counts.values())
    mixed = chance.sample(shown, len(shown))
    again = assemble(mixed, [run for run, _ in mixed], merged=True)
    assert [(c.verdict, c.run.slug, [r.slug for r, _ in c.all]) for c in again.claims] == [
        (c.verdict, c.run.slug, [r.slug for r, _ in c.all]) for c in site.claims
    ]
    for paper in site.papers:
        mine = [(run, s) for run, s in shown if s.name == paper.name]
        assert sum(paper.counts.values()) == paper.total == CLAIMS
        for place, claim in enumerate(merge_claims(mine)):
            offered = [(run, s.verdicts.verdicts[place]) for run, s in mine]
            first = claim.all[0][1]
            best = (strength(first), claim.run.info["started"])
            assert best == max((strength(v), run.info["started"]) for run, v in offered)
            level = {v.side for _, v in claim.all if v.source == "timed"
                     and strength(v) == strength(first)}  # fmt: skip
            if first.source == "timed" and level >= {"for", "against"}:
                assert (claim.verdict.side, claim.verdict.glyph) == ("", "u")
            else:
                assert claim.verdict == first
            machines = [run.machine_slug for run, _ in claim.all]
            assert sorted(machines) == sorted({r.machine_slug for r, _ in offered})
            sides = {v.side for _, v in claim.all}
            assert bool(claim.disagreement) == ({"for", "against"} <= sides)


# Whole sites, of runs of the invented paper with one figure.


def change(path: Path, **facts) -> None:
    path.write_bytes(to_checked(from_checked(path) | facts))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two runs, one of them kept as a reference of another machine, and their site."""
    folder = tmp_path_factory.mktemp("site")
    patch = pytest.MonkeyPatch()
    patch.setenv("DGBENCH_CACHE", str(folder / "cache"))
    paper = fake_run.toy_paper(folder)
    first = fake_run.make_run(folder / "runs", seed=1)
    second = fake_run.make_run(folder / "elsewhere", seed=2, scale=1.5)
    origin = second / "provenance.json"
    text = json.dumps(from_checked(origin)).replace("Invented", "Other")
    origin.write_bytes(to_checked(json.loads(text)))
    kept = folder / "reference" / "other-machine" / "toy"
    kept.mkdir(parents=True)
    for name in ("run.json", "provenance.json"):
        shutil.copy(second / name, kept)
    (kept / "rows.jsonl.gz").write_bytes(gzip.compress((second / "rows.jsonl").read_bytes()))
    change(kept / "run.json", state="partial", note="stopped by the user", planned=40)
    out = folder / "out" / "site"
    build_site([first, kept], out, [paper])
    build_report(first, [paper])
    yield SimpleNamespace(folder=folder, paper=paper, first=first, kept=kept, out=out)
    patch.undo()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take no time: they are empty."""

    def empty(kind, name, title, *rest, **more):
        return DrawnFigure(name, kind, title, "", "", [], empty=True)

    monkeypatch.setattr(reuse, "draw_points", empty)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_file()}  # fmt: skip


def facts_of(folder: Path) -> dict:
    return json.loads((folder / "site.json").read_text())


def test_links_of_reports_and_sites_lead_somewhere_and_nothing_is_fetched(world):
    assert broken_links(world.out) == broken_links(world.first) == []


def test_every_claim_and_every_row_is_counted_once(world):
    claims = json.loads((world.first / "claims.json").read_text())
    for name in ("report.html", "papers/toy.html"):
        text = (world.first / name).read_text("utf-8")
        chips = re.findall(r'class="chip" data-glyph="[RdXSsOuv=-]".*?<b>(\d+)</b>', text)
        rows = re.findall(r'<tr id="toy-[^"]+" data-g="([^"]+)"', text)
        cells = re.findall(r'<a class="g [^"]*" href="#(toy-[^"]+)"', text)
        assert sum(map(int, chips)) == len(rows) == len(set(cells)) == len(claims) == 24
        assert sorted(rows) == sorted(c["glyph"] for c in claims)
    text = (world.first / "report.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(toy-[^`]+)`", text, re.M)) == sorted(c["id"] for c in claims)
    found = facts_of(world.out)
    assert found["claims"] == 24 == sum(found["counts"].values())
    run = load_run(world.first)
    for folder, pages, rows in (
        (world.first, run.row_pages, run.everything),
        (world.out, ["runs/other-machine-toy.html"], Store.open(world.kept).rows()),
    ):
        ids = [tag["id"] for name in pages for kind, tag in read_pages(folder)[name].tags
               if kind == "tr" and "id" in tag]  # fmt: skip
        assert sorted(ids) == sorted(f"row-{row.id}" for row in rows)
        assert next(r for r in rows if f"row-{r.id}" == ids[0]).status != "ok"  # failures first


def test_what_others_wrote_is_escaped(world):
    page = (world.first / "papers/toy.html").read_text("utf-8")
    assert "&lt;here Adam&gt;" in page
    for text in (page, (world.first / "report.html").read_text("utf-8")):
        assert "<b>by this much</b>" not in text
        assert "&lt;b&gt;by this much&lt;/b&gt;" in text
    assert "<b>by" not in (world.first / "report.md").read_text("utf-8")


def test_the_same_rows_give_the_same_bytes_with_and_without_the_cache(world, tmp_path, monkeypatch):
    before, drawn, real = contents(world.out), [], reuse._light
    monkeypatch.setattr(reuse, "_light", lambda job: drawn.append(job) or real(job))
    monkeypatch.setattr(reuse, "side_by_side", lambda work, items: [work(i) for i in items])
    build_site([world.kept, world.first, world.first], tmp_path / "warm", [world.paper])
    assert drawn == []
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cold"))
    build_site([world.first, world.kept], tmp_path / "cold-site", [world.paper])
    assert drawn
    assert contents(tmp_path / "warm") == contents(tmp_path / "cold-site") == before


class Broken(fake_run.Race):
    """An experiment whose answer and figure fail."""

    def figures(self):
        return [FigureSpec("speedup", "fig1", "Broken", self.answer)]

    def answer(self, rows):
        raise ValueError("no words")


def test_torn_partial_and_broken_runs_have_reports(tmp_path):
    path = fake_run.make_run(tmp_path, preset="smoke")
    with (path / "rows.jsonl").open("ab") as file:
        file.write(b'{"crc":"00000000","row":{"id":\n')
    plan = {"preset": "smoke", "device": "cpu", "cells": [{"hash": "c000"}, {"hash": "never"}]}
    (path / "plan.json").write_text(json.dumps(plan))
    paper = fake_run.toy_paper(tmp_path)
    build_report(path, [dataclasses.replace(paper, experiments=(Broken(),))])
    text = (path / "papers/toy.html").read_text("utf-8")
    for words in ("Smoke run", "1 of 2 cells", "1 damaged line", "ValueError: no words"):
        assert words in text


def test_a_lost_process_costs_nothing(caplog):
    here = os.getpid()

    def work(x):
        if os.getpid() != here:
            os._exit(9)
        return x

    assert side_by_side(work, [1, 2, 3]) == [1, 2, 3]
    if len(os.sched_getaffinity(0)) > 1:
        assert "one by one" in caplog.text


def test_a_build_that_fails_leaves_the_old_site(world, monkeypatch):
    before = contents(world.out)

    def fail(*arguments):
        raise StoreError("the disk is full")

    monkeypatch.setattr(build.pages, "reading", fail)
    with pytest.raises(StoreError):
        build_site([world.first], world.out, [world.paper])
    assert contents(world.out) == before
    assert [p.name for p in world.out.parent.iterdir()] == ["site"]


def test_stale_files_go_and_foreign_ones_stay(world, tmp_path):
    out = tmp_path / "site"
    shutil.copytree(world.out, out)
    build_site([world.first], out, [world.paper])
    assert not (out / "runs" / "other-machine-toy.html").exists()
    assert sorted(contents(out)) == json.loads((out / "site.json").read_text())["files"]
    (out / "mine.txt").write_text("keep me")
    before = contents(out)
    with pytest.raises(StoreError, match=r"mine\.txt"):
        build_site([world.first], out, [world.paper])
    assert contents(out) == before


def test_a_report_leaves_the_rest_of_its_folder_alone(world, undrawn, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(world.first, run)
    for name, text in (("papers/notes.txt", "mine"), ("papers/gone.html", "old")):
        (run / name).write_text(text)
    (run / "site.json").write_text('{"files": ["papers/gone.html"]}')
    build_report(run, [world.paper])
    assert (run / "papers/notes.txt").read_text() == "mine"
    assert not (run / "papers/gone.html").exists()
    outside = tmp_path / "outside.txt"
    outside.write_text("not ours")
    change(run / "site.json", files=["../outside.txt"])
    with pytest.raises(StoreError, match="outside"):
        build_report(run, [world.paper])
    assert outside.exists()


def test_the_committed_site_is_of_the_committed_rows():
    """Rows and the site made from them must not part."""
    site = ROOT / "results" / "site" / "site.json"
    if not site.is_file():
        pytest.skip("no committed site here")
    told = {run["slug"]: run["rows_sha256"] for run in facts_of(site.parent)["runs"]}
    kept = {}
    for folder in (p.parent for p in (ROOT / "results" / "reference").glob("*/*/run.json")):
        store = Store.open(folder)  # without decoding its rows
        if store.info["started"] >= find_paper(folder.name).since:
            rows = hashlib.sha256(store.row_bytes()).hexdigest()
            kept[f"{folder.parent.name}-{folder.name}"] = rows
    assert told == kept
    assert broken_links(site.parent) == []
