"""One site of several runs: merged by evidence, whole or not at all, every link resolved.

Over 500 lines: its tests look at one built site, seconds to make.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import fake_run
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_checker import broken_links, read_pages
from undrawn_site import site_of

from dgbench.harness.claims.verdict import GLYPHS, OPEN, STRONG, WEAK, Verdict
from dgbench.harness.cli import main
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.report import build, reuse
from dgbench.harness.report.boards import machine_points
from dgbench.harness.report.build import build_report, build_site
from dgbench.harness.report.merge import (
    assemble,
    disagreement,
    merge_claims,
    over_machines,
    strength,
)
from dgbench.harness.report.pages import banners
from dgbench.harness.report.run import load_run
from dgbench.harness.store import Store
from dgbench.harness.store.files import from_checked, to_checked
from dgbench.lab.experiment import Contender
from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.systems.base.registry import find_paper

ROOT = Path(__file__).parents[2]
CLAIMS = 7


# Merging, on runs that are only names.


def verdict(glyph, claim="c0", source=""):
    strong = "strong" if glyph in STRONG else "weak" if glyph in WEAK else ""
    return Verdict(
        id=claim, verdict=GLYPHS[glyph], glyph=glyph, reason="", strength=strong, source=source
    )


VERDICTS = tuple(verdict(glyph, source=of) for glyph in GLYPHS for of in ("counted", "timed"))


def run_named(slug, machine, started):
    return SimpleNamespace(
        slug=slug, machine_slug=machine, machine_name=f"the {machine}", device="cpu", limits={},
        machine={}, info={"started": started}, store=SimpleNamespace(run=slug), partial=False,
        label="",
    )  # fmt: skip


def section(paper, verdicts):
    claims = [SimpleNamespace(id=f"c{n}") for n in range(len(verdicts))]
    found = SimpleNamespace(claims=claims, verdicts=verdicts)
    return SimpleNamespace(name=paper, paper=SimpleNamespace(name=paper, title=paper.upper()),
                           verdicts=found, headline="")  # fmt: skip


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


def shown_of(drawn):
    return [
        (run_named(f"r{n}", machine, f"2026-01-0{day}"), section(paper, verdicts))
        for n, (paper, machine, day, verdicts) in enumerate(drawn)
    ]


def plain(site):
    return [
        (c.paper, c.claim.id, c.verdict.glyph, c.run.slug, [r.slug for r, _ in c.all],
         c.disagreement) for c in site.claims
    ], [r.slug for r in site.runs], [m.slug for m in site.machines], [
        [r.slug for r, _ in p.sections] for p in site.papers]  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(runs_of_papers, st.randoms(use_true_random=False))
def test_merging_counts_every_claim_once_in_any_order(drawn, chance):
    shown = shown_of(drawn)
    site = assemble(shown, [run for run, _ in shown], merged=True)
    papers = {paper for paper, *_ in drawn}
    assert [p.name for p in site.papers] == sorted(papers)
    assert len(site.claims) == CLAIMS * len(papers) == sum(site.counts.values())
    assert list(site.counts) == list(GLYPHS)
    for paper in site.papers:
        assert [c.claim.id for c in paper.claims] == [f"c{n}" for n in range(CLAIMS)]
        assert sum(paper.counts.values()) == paper.total == CLAIMS
    mixed = list(shown)
    chance.shuffle(mixed)
    again = assemble(mixed, [run for run, _ in mixed][::-1], merged=True)
    assert plain(again) == plain(site)


@settings(deadline=None, max_examples=60)
@given(runs_of_papers)
def test_nothing_stronger_and_nothing_newer_was_passed_over(drawn):
    shown = shown_of(drawn)
    for paper in {s.name for _, s in shown}:
        mine = [(run, s) for run, s in shown if s.name == paper]
        for place, claim in enumerate(merge_claims(mine)):
            offered = [(run, s.verdicts.verdicts[place]) for run, s in mine]
            first = claim.all[0][1]
            best = (strength(first), claim.run.info["started"])
            assert best == max((strength(v), run.info["started"]) for run, v in offered)
            assert claim.run == claim.all[0][0]
            level = {v.side for _, v in claim.all if v.source == "timed"
                     and strength(v) == strength(first)}  # fmt: skip
            if first.source == "timed" and level >= {"for", "against"}:
                assert (claim.verdict.side, claim.verdict.glyph) == ("", "u")
            else:
                assert claim.verdict == first
            machines = [run.machine_slug for run, _ in claim.all]
            assert len(machines) == len(set(machines)) == len({r.machine_slug for r, _ in offered})
            ranks = [strength(v) for _, v in claim.all]
            assert ranks == sorted(ranks, reverse=True)
            sides = {v.side for _, v in claim.all}
            assert bool(claim.disagreement) == ({"for", "against"} <= sides)


def test_evidence_is_ranked_as_the_page_says():
    ranks = [strength(verdict(glyph)) for glyph in ("R", "S", "u", "-")]
    assert ranks == sorted(ranks, reverse=True)
    assert len(set(ranks)) == 4
    for glyphs in (STRONG, WEAK, OPEN):  # for and against alike
        assert len({strength(verdict(glyph)) for glyph in glyphs}) == 1
    assert strength(verdict("=")) == strength(verdict("-")) == 0


def test_a_speed_that_differs_between_machines_takes_neither_side():
    def over(first, second, label=""):
        here, there = run_named("h", "here", "2"), run_named("t", "there", "1")
        there.label = label
        return over_machines([(here, first), (there, second)])

    faster, slower = verdict("S", source="timed"), verdict("O", source="timed")
    for pair in ((faster, slower), (slower, faster)):  # neither side, whichever is newer
        found = over(*pair)
        assert (found.glyph, found.verdict, found.side) == ("u", GLYPHS["u"], "")
    assert over(faster, faster) == faster
    assert over(faster, verdict("u", source="timed")) == faster
    strong = verdict("X", source="timed")
    assert over(strong, faster) == strong  # stronger evidence decides
    assert over(faster, slower, label="theirs") == faster  # others' runs stand behind
    counted = verdict("S", source="counted")
    assert over(counted, verdict("O", source="counted")) == counted  # no matter of a machine


def test_machines_that_disagree_are_named_with_their_words():
    device, host = run_named("d", "device", "1"), run_named("h", "host", "2")
    words = disagreement([(device, verdict("X")), (host, verdict("s"))])
    assert "for it on the host (supported (direction))" in words
    assert "against it on the device (contradicted)" in words
    assert disagreement([(device, verdict("R")), (host, verdict("-"))]) == ""


# Whole sites, of runs of the invented paper with one figure.


def keep(run: Path, folder: Path) -> Path:
    """A run as a reference: packed rows, and no plan."""
    folder.mkdir(parents=True)
    for name in ("run.json", "provenance.json"):
        shutil.copy(run / name, folder)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress((run / "rows.jsonl").read_bytes()))
    return folder


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
    kept = keep(second, folder / "reference" / "other-machine" / "toy")
    change(kept / "run.json", state="partial", note="stopped by the user", planned=40)
    out = folder / "out" / "site"
    index = build_site([first, kept], out, [paper])
    yield SimpleNamespace(folder=folder, paper=paper, first=first, kept=kept, out=out, index=index)
    patch.undo()


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take no time: they are empty."""
    monkeypatch.setattr(
        reuse,
        "draw_points",
        lambda kind, name, title, *rest, **more: DrawnFigure(
            name, kind, title, "", "", [], empty=True
        ),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes()
            for p in sorted(folder.rglob("*")) if p.is_file()}  # fmt: skip


def test_every_link_of_every_page_resolves(world):
    assert world.index.name == "index.html"
    assert broken_links(world.out) == []


def test_a_broken_link_would_be_found(world, tmp_path):
    shutil.copytree(world.out, tmp_path / "site")
    front = tmp_path / "site" / "index.html"
    more = '<a href="no.html">a</a><a href="papers/toy.html#no">b</a><img src="https://x/y.png">'
    front.write_text(front.read_text("utf-8").replace("</body>", f"{more}</body>"), "utf-8")
    said = " ".join(broken_links(tmp_path / "site"))
    for words in ("no.html is no file", "toy.html#no is no place", "y.png would be fetched"):
        assert words in said


def test_the_front_page_counts_over_machines(world):
    text = world.index.read_text("utf-8")
    found = json.loads((world.out / "site.json").read_text())
    assert found["claims"] == 24 == sum(found["counts"].values())
    assert re.search(r"<h1>\d+ claims on performance, .* on 2 machines; weak", text)
    assert "Partial: " in text
    assert "stopped by the user" in text
    slug = "other-machine-toy"
    assert [run["slug"] for run in found["runs"]].count(slug) == 1
    page = read_pages(world.out)[f"runs/{slug}.html"]
    rows = Store.open(world.kept).rows()
    shown = [found["id"] for tag, found in page.tags if tag == "tr" and "id" in found]
    assert sorted(shown) == sorted(f"row-{r.id}" for r in rows)
    assert "results/reference/other-machine/toy" in (world.out / f"runs/{slug}.html").read_text()


def test_claimed_factors_of_machines_stand_in_one_panel(world):
    site = site_of([load_run(path) for path in (world.first, world.kept)], {"toy": world.paper})
    (paper,) = site.papers
    points = machine_points(paper)
    measured = {
        (shown.claim.id, run.machine_name): verdict.measured
        for shown in paper.claims
        for run, verdict in shown.all
    }
    assert points
    for point in points:
        assert point["value"] == measured[point["row"], point["series"]]
    names = [point["row"] for point in points]
    assert {names.count(name) for name in names} == {len(site.machines)} == {2}
    page = (world.out / "papers" / "toy.html").read_text("utf-8")
    for path in re.findall(r'(figures/machines/[^"]+\.svg)', page):
        assert (world.out / path).is_file()
    assert "figures/machines/toy" in page


def test_the_site_names_its_rows_and_its_files(world):
    found = json.loads((world.out / "site.json").read_text())
    told = {run["id"]: run["rows_sha256"] for run in found["runs"]}
    for path in (world.first, world.kept):
        store = Store.open(path)
        assert told[store.run] == hashlib.sha256(store.row_bytes()).hexdigest()
    assert sorted(contents(world.out)) == found["files"]


def test_pages_of_a_site_share_style_and_script_and_a_report_stands_alone(world):
    for name, page in read_pages(world.out).items():
        root = "../" * name.count("/")
        assert {f"{root}assets/style.css", f"{root}assets/script.js"} <= set(page.sources), name
        text = (world.out / name).read_text("utf-8")
        assert "<style>" not in text
        assert "<script>" not in text
    assert {"assets/style.css", "assets/script.js"} <= set(
        json.loads((world.out / "site.json").read_text())["files"]
    )
    build_report(world.first, [world.paper])
    for name, page in read_pages(world.first).items():
        assert not any("assets/" in source for source in page.sources), name
        assert "<style>" in (world.first / name).read_text("utf-8")
    assert not (world.first / "assets").exists()


def test_the_same_rows_give_the_same_bytes(world, tmp_path):
    build_site([world.kept, world.first, world.first], tmp_path / "again", [world.paper])
    assert contents(tmp_path / "again") == contents(world.out)


def test_figures_do_not_depend_on_the_cache(world, tmp_path, monkeypatch):
    before = contents(world.out)
    drawn = []
    real = reuse._light
    monkeypatch.setattr(reuse, "_light", lambda job: drawn.append(job) or real(job))
    monkeypatch.setattr(reuse, "side_by_side", lambda work, items: [work(i) for i in items])
    build_site([world.first, world.kept], tmp_path / "warm", [world.paper])
    assert drawn == []
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path / "cold"))
    build_site([world.first, world.kept], tmp_path / "cold-site", [world.paper])
    assert len(drawn) == 5
    assert contents(tmp_path / "warm") == contents(tmp_path / "cold-site") == before


def test_a_figure_whose_contenders_got_other_titles_is_another_one(world):
    points = [{"row": "a", "system": "x", "baseline": "y", "value": 2.0}]
    titles = ("X", "the same, without X", "")
    jobs = [
        reuse.FigureJob(
            reuse.Sketch("speedup", "fig", "A race", points, {}, {"x": Contender("", title)}),
            "figures", fake_run.CONTEXT,
        )
        for title in titles
    ]  # fmt: skip
    assert len({reuse._place(job) for job in jobs}) == len(titles)


def test_a_site_of_one_run_says_what_its_report_says(world, tmp_path):
    build_report(world.first, [world.paper])
    claims = json.loads((world.first / "claims.json").read_text())
    build_site([world.first], tmp_path / "one", [world.paper])
    counts = json.loads((tmp_path / "one" / "site.json").read_text())["counts"]
    assert counts == json.loads((world.first / "site.json").read_text())["counts"]
    assert counts == {g: sum(c["glyph"] == g for c in claims) for g in GLYPHS}
    assert broken_links(tmp_path / "one") == []
    assert broken_links(world.first) == []


def test_a_build_that_fails_leaves_the_old_site(world, monkeypatch):
    before = contents(world.out)

    def fail(*arguments):
        raise StoreError("the disk is full")

    for name in ("paper_page", "reading"):
        monkeypatch.setattr(build.pages, name, fail)
        with pytest.raises(StoreError, match="full"):
            build_site([world.first], world.out, [world.paper])
        assert contents(world.out) == before
        assert [p.name for p in world.out.parent.iterdir()] == ["site"]
        monkeypatch.undo()
        monkeypatch.setenv("DGBENCH_CACHE", str(world.folder / "cache"))


def test_a_swap_that_fails_puts_the_old_site_back(tmp_path, monkeypatch):
    from dgbench.harness.report.folders import swap

    old, new = tmp_path / "site", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    real = os.rename
    monkeypatch.setattr(os, "rename", _failing(real, new))
    with pytest.raises(StoreError, match="cannot write"):
        swap(new, old)
    assert (old / "name").read_text() == "site"


def _failing(real, source):
    def rename(a, b):
        if a == source:
            raise OSError(28, "No space left on device")
        return real(a, b)

    return rename


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
    for bad, words in ((tmp_path / "file", "is a file"), (world.folder / "runs", "no earlier")):
        with pytest.raises(StoreError, match=words):
            build_site([world.first], bad, [world.paper])


def test_a_report_leaves_the_rest_of_its_folder_alone(world, undrawn):
    notes = world.first / "papers" / "notes.txt"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("mine")
    rows = (world.first / "rows.jsonl").read_bytes()
    stale = world.first / "papers" / "gone.html"
    stale.write_text("old")
    (world.first / "site.json").write_text('{"files": ["papers/gone.html"]}')
    build_report(world.first, [world.paper])
    assert notes.read_text() == "mine"
    assert not stale.exists()
    assert (world.first / "rows.jsonl").read_bytes() == rows
    change(world.first / "site.json", files=["../outside.txt"])
    outside = world.first.parent / "outside.txt"
    outside.write_text("not ours")
    with pytest.raises(StoreError, match="outside"):
        build_report(world.first, [world.paper])
    assert outside.exists()
    outside.unlink()
    notes.unlink()
    (world.first / "site.json").unlink()


def test_mistakes_are_said(world, tmp_path):
    other = dataclasses.replace(world.paper, name="unheard")
    with pytest.raises(InvalidInputError, match="rows of toy"):
        build_site([world.first], tmp_path / "s", [other])
    with pytest.raises(InvalidInputError, match="at least one run"):
        build_site([], tmp_path / "s")
    with pytest.raises(StoreError, match="not the folder"):
        build_site([tmp_path], tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_each_machine_of_a_paper_names_day_and_commit(world):
    page = (world.out / "papers" / "toy.html").read_text("utf-8")
    for folder in (world.first, world.kept):
        run = load_run(folder)
        assert run.info["started"][:10] in run.measured
        assert f"{run.machine_name}</a> <small>{run.measured}" in page


def test_runs_older_than_what_judges_them_are_named_and_not_shown(world, tmp_path, undrawn):
    old = tmp_path / "reference" / "old-machine" / "toy"
    shutil.copytree(world.kept, old)
    change(old / "run.json", started="2025-01-02T03:04:05+00:00")
    paper = dataclasses.replace(world.paper, since="2025-06-01")
    build_site([world.first, old], tmp_path / "site", [paper])
    pages = {name: data.decode() for name, data in contents(tmp_path / "site").items()
             if name.endswith(".html")}  # fmt: skip
    assert [name for name, text in pages.items() if "old-machine" in name] == []
    assert {name for name, text in pages.items() if "2025-01-02" in text} == {"runs/index.html"}
    assert "reproduce toy" in pages["runs/index.html"]
    assert broken_links(tmp_path / "site") == []
    with pytest.raises(InvalidInputError, match=r"old-machine.* of 2025-01-02.* since 2025-06-01"):
        build_site([old], tmp_path / "none", [paper])
    assert not (tmp_path / "none").exists()


def test_rows_of_a_long_run_take_several_pages(world, monkeypatch):
    from dgbench.harness.report import run as run_module

    monkeypatch.setattr(run_module, "ROWS_A_PAGE", 50)
    run = load_run(world.first)
    assert [len(page) for page in run.pages][:-1] == [50] * (len(run.pages) - 1)
    rows = [row.id for page in run.pages for row in page]
    assert sorted(rows) == sorted(row.id for row in run.everything)
    assert run.row_pages[0] == run.row_page == f"runs/{run.slug}.html"
    for row in random.Random(1).sample(run.everything, 20):
        page = next(n for n, rows in enumerate(run.pages) if row in rows)
        assert run.row_href(row.id) == f"{run.row_pages[page]}#row-{row.id}"
    assert run.row_href("unknown") == run.row_page


def call(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["report", *words])
    return int(end.value.code or 0)


def test_mistakes_at_the_command_are_said(world, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DGBENCH_RESULTS", str(world.first.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for words, said in (
        (["unheard-of"], "unheard-of"),
        (["empty"], "there is no run in empty"),
        (["last", "--paper", "nothing"], "nothing"),
        ([str(world.kept)], "--out"),
        ([str(world.kept), str(tmp_path / "no")], "no"),
    ):
        assert call(*words) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert said in error
        assert "Traceback" not in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty"]


def test_runs_that_say_little_have_a_banner(world):
    run = load_run(world.first)
    empty = dataclasses.replace(run, rows=[], everything=[], torn=2)
    said = " ".join(banners(assemble([], [empty], merged=True)))
    assert "2 damaged lines were set aside" in said
    assert "Nothing ran" in said
    void = [msgspec.structs.replace(row, status="void") for row in run.rows]
    (said,) = banners(assemble([], [dataclasses.replace(run, rows=void)], merged=True))
    assert "Nothing counts" in said
    assert banners(assemble([], [run], merged=True)) == []
    left = dataclasses.replace(run, planned=31, left=7)
    (words,) = banners(assemble([], [left], merged=False))
    assert words == f"Partial: 24 of 31 cells; continue with dgbench run --resume {run.store.run}"
    trains = dataclasses.replace(run, left=7, left_trained=7, info={**run.info, "trained": 9})
    again = dataclasses.replace(trains, slug="another")
    (words,) = banners(assemble([], [trains, again], merged=True))  # one line for all runs
    assert words.count("of 9") == 2
    assert banners(assemble([], [trains, again], merged=True), trainings=False) == []
    both = assemble([], [trains, again], merged=True)
    (words,) = banners(both, [trains])  # a page speaks of its own runs alone
    assert words.count("of 9") == 1


def test_the_committed_site_is_of_the_committed_rows():
    """Rows and the site made from them must not part."""
    site = ROOT / "results" / "site" / "site.json"
    if not site.is_file():
        pytest.skip("no committed site here")
    told = {
        run["slug"]: run["rows_sha256"] for run in msgspec.json.decode(site.read_bytes())["runs"]
    }
    kept = {}
    for path in sorted((ROOT / "results" / "reference").glob("*/*/run.json")):
        run = load_run(path.parent)
        if any(run.info["started"] >= find_paper(name).since for name in run.papers):
            kept[run.slug] = hashlib.sha256(run.store.row_bytes()).hexdigest()
    assert told == kept
    weights = [p.stat().st_size for p in site.parent.rglob("*") if p.is_file()]
    assert sum(weights) < 20_000_000
    assert broken_links(site.parent) == []
    front = (site.parent / "index.html").read_text("utf-8")
    assert len(front.encode()) < 150_000
