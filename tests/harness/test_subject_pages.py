"""Pages of systems, datasets and machines: nothing is left out, made up or linked to nowhere."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import fake_points
import fake_run
import pytest
from undrawn_site import PARTS, site_of

from dgbench import datasets
from dgbench.harness.figures.style import with_interval
from dgbench.harness.report import datasets as dataset_pages
from dgbench.harness.report import machines as machine_pages
from dgbench.harness.report import subjects
from dgbench.harness.report import systems as system_pages
from dgbench.harness.report.contests import OUTCOMES, all_races, sentence, tally
from dgbench.harness.report.pages import assets, environment
from dgbench.harness.report.run import load_run, slug
from dgbench.harness.store import Row
from dgbench.harness.utilisation import IDLE
from dgbench.lab.compare import paired
from dgbench.lab.noise import NoisePairs
from dgbench.systems.base import Broken

REFERENCES = sorted(
    path.parent
    for path in Path(__file__).resolve().parents[2].glob("results/reference/*/*/rows.jsonl.gz")
)
def write(site):
    env = environment(site)
    found = {}
    for module in (system_pages, dataset_pages, machine_pages):
        found |= module.pages(site, env)
    return found


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    run = load_run(fake_run.make_run(folder))
    site = site_of([run], {"toy": fake_run.toy_paper(folder)})
    return run, site, write(site)


@pytest.fixture(scope="module")
def real():
    if not REFERENCES:
        pytest.skip("no reference runs here")
    site = site_of([load_run(path) for path in REFERENCES])
    return site, write(site)


def with_rows(site, run, rows, folder):
    """The toy site with further rows in its run."""
    more = dataclasses.replace(
        run,
        rows=[*run.rows, *rows],
        everything=[*run.everything, *rows],
        places=run.places | {row.id: 0 for row in rows},
    )
    return site_of([more], {"toy": fake_run.toy_paper(folder)})


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.sources = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.sources += [found[k] for k in ("src", "srcset") if k in found]


def plain(text):
    """Visible text of a page, without its style and script."""
    text = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def check_links(site, texts):
    """Every link leads to a page, a row, an experiment or a claim that is there."""
    parsed = {name: Page(text) for name, text in texts.items()}
    others = {
        site.front: set(),
        "claims.html": set(),
        "papers/index.html": set(),
        "runs/index.html": set(),
        "how-to-read.html": set(),
    }
    for paper in site.papers:
        found = {f"exp-{e.name}" for e in paper.paper.experiments}
        others[f"papers/{paper.name}.html"] = found | {c.claim.id for c in paper.claims}
    for run in site.runs:
        for number, page in enumerate(run.row_pages):
            ids = {f"row-{key}" for key, place in run.places.items() if place == number}
            others[page] = ids
    outside = {"rows.jsonl", "provenance.json", "claims.json", "report.md"}
    for name, page in parsed.items():
        assert len(page.ids) == len(set(page.ids)), name
        shared = "../assets/script.js"  # written beside the pages by the build
        assert all(s.startswith("data:") or s == shared for s in page.sources), name
        for link in page.links:
            if re.match(r"https?://", link):
                assert name.startswith("datasets/"), link
                continue
            target, _, anchor = link.partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            path = path if target else name
            if path in outside:
                continue
            assert path in parsed or path in others, (name, link)
            if anchor:
                ids = parsed[path].ids if path in parsed else others[path]
                assert anchor in ids, (name, link)


def test_factors_are_those_of_the_rows(toy):
    run, _, texts = toy
    page = plain(texts["systems/pipad.html"])
    asked = 0
    for model in fake_points.MODELS[:2]:
        for dataset in fake_points.DATASETS:
            where = {"dataset": dataset, "model": model}
            ratio = paired(run.rows, {"system": "pygt", **where}, {"system": "pipad", **where})
            if ratio is not None:
                text = f"{with_interval(ratio.value, ratio.low, ratio.high)} , n = {ratio.n}"
                asked += text in page
    assert asked == 10
    assert len(re.findall(r"x \[[\d., ]+\] , n =", page)) == asked


def test_both_sides_of_a_race_see_it_and_failures_count(toy):
    _, site, texts = toy
    races = all_races(site, subjects.Systems())
    mine = [r for r in races if r.own == "pipad"]
    theirs = [r for r in races if r.own == "pygt"]
    assert len(mine) == len(theirs) == 12
    assert tally(mine)["faster"] == tally(theirs)["slower"] == 10
    assert tally(mine)["other failed"] == tally(theirs)["failed"] == 2
    assert "PiPAD against other systems: faster in 10 of 12 races" in texts["systems/pipad.html"]
    assert "PyGT against other systems: faster in 0 of 12 races" in texts["systems/pygt.html"]
    page = plain(texts["systems/pygt.html"])
    assert "2 failed" in page
    assert "out of memory: 21.9 of 24.0 GiB" in page


def test_real_pages_have_links_rows_and_subjects(real):
    site, texts = real
    check_links(site, texts)
    for run in site.runs:
        assert f"machines/{run.machine_slug}.html" in texts
        for row in run.rows:
            if name := row.system:
                assert f"systems/{slug(name)}.html" in texts
            for name in subjects.datasets_of(row):
                assert f"datasets/{slug(name)}.html" in texts
    assert not {name: len(text) for name, text in texts.items() if len(text) > 500_000}
    for name, text in texts.items():
        body = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)
        assert not re.search(r"\b(nan|undefined)\b|>None\b(?! of| is)|None[,;)]", body), name


def test_real_factors_and_limits_come_from_rows(real):
    site, texts = real
    systems = subjects.Systems()
    for name in systems.loaded:
        allowed = {
            r.factor.removeprefix("would be ").removesuffix(f", {IDLE}")
            for r in all_races(site, systems)
        }
        for paper in site.papers:
            for _, section in paper.sections:
                for part in section.sections:
                    for figure in part.figures:
                        if figure.kind == "ablation":
                            allowed |= {
                                with_interval(p["gain"], p.get("gain_low"), p.get("gain_high"))
                                for p in figure.points
                                if p.get("gain")
                            }
        found = set(re.findall(r"[\d.]+x \[[\d.]+, [\d.]+\]", plain(texts[f"systems/{name}.html"])))
        assert found <= allowed
    for machine in site.machines:
        page = plain(texts[f"machines/{machine.slug}.html"])
        for run in machine.runs:
            for value in run.limits.values():
                assert machine_pages.limit_number(value) in page


def test_what_is_not_known_is_said(toy, tmp_path):
    run, site, _ = toy
    ghost = Row(
        id="gh-r1", run=run.store.run, cell_hash="gh", paper="toy", experiment="fig1",
        params={"system": "ghost, haunted", "dataset": "no <b>where</b>", "model": "MPNN-LSTM"},
        data={"dataset": "no <b>where</b>", "twin": False, "note": "<i>drawn</i>"}, seconds=1.0,
    )  # fmt: skip
    haunted = with_rows(site, run, [ghost], tmp_path)
    texts = write(haunted)
    check_links(haunted, texts)
    page = texts["systems/ghost.html"]
    assert "No system called 'ghost' is installed" in page
    assert "in no race here" in page
    where = texts[f"datasets/{slug('no <b>where</b>')}.html"]
    assert "No card called" in where
    assert "<b>where" not in where
    assert "<i>drawn" not in where
    assert "ghost" in texts["systems/index.html"]


def test_a_plugin_that_does_not_load_has_a_page(toy, monkeypatch):
    _, site, _ = toy
    find = subjects.find_system
    broken = Broken("pygt", "dgbench.systems.pygt (dgbench)", "ImportError: no torch <sparse>")
    monkeypatch.setattr(subjects, "find_system", lambda n: broken if n == "pygt" else find(n))
    page = write(site)["systems/pygt.html"]
    assert "does not load: ImportError: no torch &lt;sparse&gt;" in page
    assert "faster in 0 of 12 races" in page


def test_a_run_of_nothing_has_pages(toy, tmp_path):
    run, _, _ = toy
    empty = dataclasses.replace(
        run, rows=[], everything=[], places={}, limits={}, noise_pairs=NoisePairs({})
    )
    site = site_of([empty], {"toy": fake_run.toy_paper(tmp_path)}, merged=False)
    texts = write(site)
    check_links(site, texts)
    assert "No row of this run names a dataset" in texts["datasets/index.html"]
    page = plain(texts[f"machines/{run.machine_slug}.html"])
    assert "nothing ran" in page
    assert "Not measured in" in page
    assert "Nothing of it ran in this run" in plain(texts["systems/pipad.html"])
    assert "systems/esdg.html" not in texts  # installed, and without a part in this run


def test_rows_that_were_compared_with_nothing_race_nowhere(real):
    """T-GCN's kept run on the H200 is of schema 1, which told no comparison."""
    site, _ = real
    races = [
        race for race in all_races(site, subjects.Systems())
        if race.factor and race.run.device == "cuda" and race.run.papers == ["tgcn"]
    ]  # fmt: skip
    rows = {row.id: row for r in races for row in r.run.rows if row.device == "cuda"}
    assert not any(rows[name].ok for r in races for name in r.point["row_ids"] if name in rows)
    (tgcn,) = (one for one in site.papers if one.paper.name == "tgcn")
    assert IDLE not in tgcn.headline
