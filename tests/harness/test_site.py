"""Reports and sites of runs: merged by evidence, numbers of rows, escaped, links resolved."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import re
import shutil
import signal
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import fake_run
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_checker import broken_links, read_pages
from undrawn_site import site_of

from dgbench.harness.claims.verdict import GLYPHS, STRONG, WEAK, Verdict
from dgbench.harness.cli import main
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report import build, reuse
from dgbench.harness.report.boards import machine_points
from dgbench.harness.report.build import build_report, build_site
from dgbench.harness.report.folders import beside, swap
from dgbench.harness.report.merge import assemble, merge_claims, over_machines, strength
from dgbench.harness.report.pages import banners
from dgbench.harness.report.races import main_race, workloads
from dgbench.harness.report.run import load_run
from dgbench.harness.report.sections import Section
from dgbench.harness.report.words import markdown
from dgbench.harness.store import Store
from dgbench.harness.store.files import from_checked, to_checked
from dgbench.harness.terminal.answer import RunFacts, answers
from dgbench.runtime.errors import InvalidInputError, StoreError
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


def test_a_speed_that_differs_between_machines_takes_neither_side():
    def over(first, second, label=""):
        return over_machines([
            (run_named("h", "here", "2"), first), (run_named("t", "there", "1", label), second)
        ])  # fmt: skip

    faster, slower = verdict("S", "timed"), verdict("O", "timed")
    for pair in ((faster, slower), (slower, faster)):  # whichever is newer
        assert (over(*pair).glyph, over(*pair).side) == ("u", "")
    assert over(faster, faster) == over(faster, verdict("u", "timed")) == faster
    assert over(verdict("X", "timed"), faster) == verdict("X", "timed")  # stronger decides
    assert over(faster, slower, label="theirs") == faster  # others' runs stand behind
    counted = verdict("S", "counted")
    assert over(counted, verdict("O", "counted")) == counted  # no matter of a machine


# Whole sites, of runs of the invented paper with one figure.


def change(path: Path, **facts) -> None:
    path.write_bytes(to_checked(from_checked(path) | facts))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Two runs, one of them kept as a reference of another machine, and their site."""
    folder = tmp_path_factory.mktemp("site")
    patch = pytest.MonkeyPatch()
    patch.setenv("DGBENCH_CACHE", str(folder / "cache"))
    paper = fake_run.light_paper(folder)
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


def test_links_of_reports_and_sites_lead_somewhere_and_nothing_is_fetched(world, tmp_path):
    assert broken_links(world.out) == broken_links(world.first) == []
    copy = tmp_path / "site"
    shutil.copytree(world.out, copy)
    more = '<a href="no.html">a</a><a href="papers/toy.html#no">b</a><img src="https://x/y.png">'
    front = copy / "index.html"
    front.write_text(front.read_text("utf-8").replace("</body>", f"{more}</body>"), "utf-8")
    assert len(broken_links(copy)) == 3


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
    assert facts_of(world.first)["counts"] == {
        g: sum(c["glyph"] == g for c in claims) for g in GLYPHS
    }
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


def test_a_report_begins_with_the_answers_of_the_command(world):
    store = Store.open(world.first)
    said = answers([world.paper], store.rows(), RunFacts.of(store))
    text = (world.first / "report.md").read_text("utf-8")
    page = unescape((world.first / "report.html").read_text("utf-8"))
    assert said
    assert all(f"- {one}" in text and one in page for one in said)


def test_a_site_names_its_rows_and_its_files(world):
    found = facts_of(world.out)
    told = {run["id"]: run["rows_sha256"] for run in found["runs"]}
    assert told == {
        store.run: hashlib.sha256(store.row_bytes()).hexdigest()
        for store in map(Store.open, (world.first, world.kept))
    }
    assert sorted(contents(world.out)) == found["files"]


def test_what_others_wrote_is_escaped(world):
    page = (world.first / "papers/toy.html").read_text("utf-8")
    assert "&lt;here Adam&gt;" in page
    for text in (page, (world.first / "report.html").read_text("utf-8")):
        assert "<b>by this much</b>" not in text
        assert "&lt;b&gt;by this much&lt;/b&gt;" in text
    assert "<b>by" not in (world.first / "report.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a [link](javascript:a())", "a [link]\\(javascript:a())"),
        ("two\n\n# lines", "two # lines"),
        ("# a heading", "\\# a heading"),
        ("```", "\\```"),
        ("-3 %", "-3 %"),
    ],
)
def test_text_in_markdown_makes_no_html_link_or_line(text, shown):
    assert markdown(text) == shown


def test_claimed_factors_of_machines_are_those_of_their_verdicts(world):
    site = site_of([load_run(path) for path in (world.first, world.kept)], {"toy": world.paper})
    measured = {
        (shown.claim.id, run.machine_name): verdict.measured
        for shown in site.papers[0].claims for run, verdict in shown.all
    }  # fmt: skip
    points = machine_points(site.papers[0])
    assert {p["series"] for p in points} == {m.name for m in site.machines}
    assert all(p["value"] == measured[p["row"], p["series"]] for p in points)


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


class Broken(fake_run.LightRace):
    """An experiment whose answer and figure fail."""

    def figures(self):
        return [FigureSpec("speedup", "fig1", "Broken", self.answer)]

    def answer(self, rows):
        raise ValueError("no words")


def test_torn_partial_and_broken_runs_have_reports_that_say_so(tmp_path):
    path = fake_run.make_run(tmp_path, preset="smoke")
    with (path / "rows.jsonl").open("ab") as file:
        file.write(b'{"crc":"00000000","row":{"id":\n')
    plan = {"preset": "smoke", "device": "cpu", "cells": [{"hash": "c000"}, {"hash": "never"}]}
    (path / "plan.json").write_text(json.dumps(plan))
    paper = fake_run.light_paper(tmp_path)
    build_report(path, [dataclasses.replace(paper, experiments=(Broken(),))])
    for name in ("report.html", "papers/toy.html", "runs/index.html"):
        text = (path / name).read_text("utf-8")
        for words in ("Smoke run", "1 of 2 cells", "1 damaged line"):
            assert words in text
    text = (path / "papers/toy.html").read_text("utf-8")
    assert "cannot be drawn" in text
    assert "ValueError: no words" in text
    run = load_run(path)
    void = [msgspec.structs.replace(row, status="void") for row in run.rows]
    for rows in ([], void):
        nothing = dataclasses.replace(run, rows=rows, everything=rows)
        assert any("Nothing" in text for text in banners(assemble([], [nothing], merged=True)))


def race(name, *points, main=False):
    keys = ("panel", "row", "baseline", "failed", "projected")
    shown = [{"value": 2.0, "system": "s", **dict(zip(keys, point, strict=False))}
             for point in points]  # fmt: skip
    return DrawnFigure(name, "speedup", name, "", "", shown, main=main)


def test_the_main_race_of_a_page_is_one_that_was_measured():
    def page(*figures):
        return [Section("e", "e", "", "", "", "", "", [f], [], [], 0) for f in figures]

    point = (None, "a", "x", "")
    first, second = race("first", point), race("second", point, main=True)
    projected = race("model", (*point, True), main=True)
    assert main_race(page(first, second)) is second
    assert main_race(page(first, race("other", point))) is first
    assert main_race(page(first, projected)) is first
    assert main_race(page(DrawnFigure("s", "sweep", "s", "", "", [{}]))) is None


@pytest.mark.parametrize(
    ("points", "count"),
    [
        ([("GCN", "a", "x"), ("GAT", "a", "x"), ("GAT", "a", "y"), ("GAT", "b", "x")], 3),
        ([("over x", "a", "x"), ("over y", "a", "y"), ("over y", "b", "y")], 2),
        ([(None, "a", "x"), (None, "b", "x", "oom: no room")], 1),
        ([], 0),
    ],
)
def test_workloads_of_a_race_are_what_ran_whoever_was_the_baseline(points, count):
    assert workloads(race("race", *points)) == count


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
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", world.folder / "runs"):
        with pytest.raises(StoreError):
            build_site([world.first], bad, [world.paper])


def test_a_swap_that_fails_puts_the_old_site_back(tmp_path, monkeypatch):
    old, new, real = tmp_path / "site", tmp_path / "new", os.rename
    for folder in (old, new):
        folder.mkdir()
        (folder / "name").write_text(folder.name)

    def rename(a, b):
        if a == new:
            raise OSError(28, "No space left on device")
        return real(a, b)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(StoreError):
        swap(new, old)
    assert (old / "name").read_text() == "site"


def test_a_build_that_is_asked_to_end_leaves_no_folder(tmp_path):
    def build():
        with beside(tmp_path / "site") as folder:
            (folder / "page.html").write_text("half a page")
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit):
            build()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert list(tmp_path.iterdir()) == []


def test_a_report_leaves_the_rest_of_its_folder_alone(world, undrawn, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(world.first, run)
    rows = (run / "rows.jsonl").read_bytes()
    for name, text in (("papers/notes.txt", "mine"), ("papers/gone.html", "old")):
        (run / name).write_text(text)
    (run / "site.json").write_text('{"files": ["papers/gone.html"]}')
    build_report(run, [world.paper])
    assert (run / "papers/notes.txt").read_text() == "mine"
    assert not (run / "papers/gone.html").exists()
    assert (run / "rows.jsonl").read_bytes() == rows
    outside = tmp_path / "outside.txt"
    outside.write_text("not ours")
    change(run / "site.json", files=["../outside.txt"])
    with pytest.raises(StoreError, match="outside"):
        build_report(run, [world.paper])
    assert outside.exists()


def test_mistakes_are_named(world, tmp_path, monkeypatch, capsys):
    other = dataclasses.replace(world.paper, name="unheard")
    for runs, papers, error in (
        ([world.first], [other], InvalidInputError), ([], None, InvalidInputError),
        ([tmp_path], None, StoreError),
    ):  # fmt: skip
        with pytest.raises(error):
            build_site(runs, tmp_path / "s", papers)
    assert not (tmp_path / "s").exists()
    with pytest.raises(StoreError):
        build_report(tmp_path, [])
    monkeypatch.setenv("DGBENCH_RESULTS", str(world.first.parent))
    monkeypatch.chdir(tmp_path)
    for words in (["unheard-of"], ["last", "--paper", "nothing"], [str(world.kept)]):
        with pytest.raises(SystemExit) as end:
            main(["report", *words])
        assert end.value.code == 2
        assert capsys.readouterr().err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_runs_older_than_what_judges_them_are_named_and_not_shown(world, tmp_path, undrawn):
    old = tmp_path / "reference" / "old-machine" / "toy"
    shutil.copytree(world.kept, old)
    change(old / "run.json", started="2025-01-02T03:04:05+00:00")
    paper = dataclasses.replace(world.paper, since="2025-06-01")
    build_site([world.first, old], tmp_path / "site", [paper])
    pages = {name: data for name, data in contents(tmp_path / "site").items()
             if name.endswith(".html")}  # fmt: skip
    assert not [name for name in pages if "old-machine" in name]
    assert [name for name, text in pages.items() if b"2025-01-02" in text] == ["runs/index.html"]
    with pytest.raises(InvalidInputError, match="old-machine"):
        build_site([old], tmp_path / "none", [paper])


def test_the_committed_site_is_of_the_committed_rows():
    """Rows and the site made from them must not part."""
    site = ROOT / "results" / "site" / "site.json"
    if not site.is_file():
        pytest.skip("no committed site here")
    told = {run["slug"]: run["rows_sha256"] for run in facts_of(site.parent)["runs"]}
    kept = {}
    for path in sorted((ROOT / "results" / "reference").glob("*/*/run.json")):
        run = load_run(path.parent)
        if any(run.info["started"] >= find_paper(name).since for name in run.papers):
            kept[run.slug] = hashlib.sha256(run.store.row_bytes()).hexdigest()
    assert told == kept
    assert broken_links(site.parent) == []
