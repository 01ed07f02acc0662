"""Pages of a site: numbers are those of rows, nothing is left out, and no speed without a score."""

from __future__ import annotations

import dataclasses
import re
from html import unescape
from pathlib import Path

import fake_points
import fake_run
import pytest
from link_checker import broken_links
from undrawn_site import PARTS, site_of

from dgbench import datasets
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.figures.style import with_interval
from dgbench.harness.report import build, subjects
from dgbench.harness.report import machines as machine_pages
from dgbench.harness.report.contests import OUTCOMES, all_races, tally
from dgbench.harness.report.run import load_run, slug
from dgbench.harness.store import Row
from dgbench.harness.utilisation import IDLE
from dgbench.lab.compare import paired
from dgbench.lab.noise import NoisePairs
from dgbench.lab.table import Table
from dgbench.systems.base import Broken

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference"
KEPT = ("amd-epyc-2-cores/gnnflow", "intel-xeon-2-cores/tgcn", "amd-epyc-2-cores/arena",
        "amd-epyc-2-cores/pipad", "intel-xeon-2-cores/gnnflow", "nvidia-h200/tgcn")  # fmt: skip
STREAMS = ("gnnflow", "tgcn")
"""Papers whose systems train models on streams."""
NOT_PAGES = r"^\.\./$|\.(log|svg|png|csv|parquet|json|jsonl|txt|md|css|js)$"
"""Files that a build writes beside the pages from rows and drawn figures; "../" is none drawn."""


def write(site, folder):
    """Text of every page by its name; links between them resolve."""
    texts = {n: t for n, t in build._pages(site, folder).items() if n.endswith(".html")}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    assert broken_links(folder, NOT_PAGES) == []
    return texts


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    run = load_run(fake_run.make_run(folder))
    site = site_of([run], {"toy": fake_run.light_paper(folder)})
    return run, site, write(site, tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A site of some kept runs, whose comparisons are not drawn."""
    if not REFERENCE.is_dir():
        pytest.skip("no reference runs here")

    def points_of(kind, name, title, points, *rest, **more):
        return DrawnFigure(name, kind, title, "", "", points)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dgbench.harness.figures.compared.draw_points", points_of)
        site = site_of([load_run(REFERENCE / name) for name in KEPT], parts=(*PARTS, "compare"))
        return site, write(site, tmp_path_factory.mktemp("site"))


def plain(text):
    """Visible text of a page, without its style and script."""
    text = re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.S)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


# The invented run.


def test_factors_are_those_of_the_rows_and_every_subject_has_a_page(toy):
    run, _, texts = toy
    for row in run.rows:
        assert f"systems/{slug(row.params['system'])}.html" in texts
        assert f"datasets/{datasets.card(row.params['dataset']).name}.html" in texts
    assert f"machines/{run.machine_slug}.html" in texts
    page, factors = plain(texts["systems/pipad.html"]), []
    for model in fake_points.MODELS[:2]:
        for dataset in fake_points.DATASETS:
            where = {"dataset": dataset, "model": model}
            ratio = paired(run.rows, {"system": "pygt", **where}, {"system": "pipad", **where})
            if ratio is not None:
                factors.append(with_interval(ratio.value, ratio.low, ratio.high))
    assert len(factors) == 10
    assert re.findall(r"([\d.]+x \[[\d., ]+\]) , n =", page) == factors


def test_both_sides_of_a_race_see_it_and_failures_count(toy):
    _, site, texts = toy
    races = all_races(site, subjects.Systems())
    mine, theirs = ([r for r in races if r.own == name] for name in ("pipad", "pygt"))
    assert len(mine) == len(theirs) == 12
    assert tally(mine)["faster"] == tally(theirs)["slower"] == 10
    assert tally(mine)["other failed"] == tally(theirs)["failed"] == 2
    assert "faster in 10 of 12 races" in texts["systems/pipad.html"]
    assert "out of memory: 21.9 of 24.0 GiB" in plain(texts["systems/pygt.html"])


def test_what_is_not_known_is_escaped_and_has_a_page(toy, tmp_path, monkeypatch):
    run, _, _ = toy
    ghost = Row(
        id="gh-r1", run=run.store.run, cell_hash="gh", paper="toy", experiment="fig1",
        params={"system": "ghost, haunted", "dataset": "no <b>where</b>", "model": "MPNN-LSTM"},
        data={"dataset": "no <b>where</b>", "twin": False, "note": "<i>drawn</i>"}, seconds=1.0,
    )  # fmt: skip
    haunted = dataclasses.replace(
        run, rows=[*run.rows, ghost], everything=[*run.everything, ghost],
        places=run.places | {ghost.id: 0}, pages=[[ghost, *run.pages[0]], *run.pages[1:]],
    )  # fmt: skip
    find = subjects.find_system
    broken = Broken("pygt", "dgbench.systems.pygt (dgbench)", "ImportError: no torch <sparse>")
    monkeypatch.setattr(subjects, "find_system", lambda n: broken if n == "pygt" else find(n))

    def fails(self, workload, device):
        raise RuntimeError("plugin trouble")

    monkeypatch.setattr(type(subjects.Systems().loaded["pipad"]), "unsupported", fails)
    site = site_of([haunted], {"toy": fake_run.light_paper(tmp_path)})
    texts = write(site, tmp_path / "pages")
    assert "ghost" in texts["systems/ghost.html"]
    where = texts[f"datasets/{slug('no <b>where</b>')}.html"]
    assert "<b>where" not in where
    assert "<i>drawn" not in where
    assert "ImportError: no torch &lt;sparse&gt;" in texts["systems/pygt.html"]
    assert "RuntimeError: plugin trouble" in texts["systems/pipad.html"]


def test_a_run_of_nothing_has_pages(toy, tmp_path):
    run, _, _ = toy
    empty = dataclasses.replace(
        run, rows=[], everything=[], places={}, limits={}, noise_pairs=NoisePairs({})
    )
    site = site_of([empty], {"toy": fake_run.light_paper(tmp_path)}, merged=False)
    texts = write(site, tmp_path / "pages")
    assert "datasets/index.html" in texts
    assert "nothing ran" in plain(texts[f"machines/{run.machine_slug}.html"])
    assert "systems/esdg.html" not in texts  # installed, and without a part in this run


# The kept runs.


def test_outcomes_sum_up_and_projections_are_apart(real):
    site, _ = real
    races = all_races(site, subjects.Systems())
    for name in {race.own for race in races}:
        mine = [r for r in races if r.own == name]
        counts = tally(mine)
        assert tuple(counts) == OUTCOMES
        assert sum(counts.values()) == len(mine)
        assert counts["projected"] == sum(bool(r.point.get("projected")) for r in mine)
    # T-GCN's kept run on the H200 is of schema 1, which told no comparison.
    old = [r for r in races if r.factor and r.run.device == "cuda" and r.run.papers == ["tgcn"]]
    rows = {row.id: row for r in old for row in r.run.rows if row.device == "cuda"}
    assert not any(rows[name].ok for r in old for name in r.point["row_ids"] if name in rows)


def test_real_pages_have_all_subjects_and_no_broken_value(real):
    site, texts = real
    for run in site.runs:
        assert f"machines/{run.machine_slug}.html" in texts
        for row in run.rows:
            assert not row.system or f"systems/{slug(row.system)}.html" in texts
            assert all(f"datasets/{slug(n)}.html" in texts for n in subjects.datasets_of(row))
    for name, text in texts.items():
        if name.startswith(PARTS):
            assert not re.search(r"\b(nan|undefined)\b|\bNone[,;)]", plain(text)), name


def test_real_factors_and_limits_come_from_rows(real):
    site, texts = real
    systems = subjects.Systems()
    allowed = {
        r.factor.removeprefix("would be ").removesuffix(f", {IDLE}")
        for r in all_races(site, systems)
    }
    figures = [figure for paper in site.papers for _, section in paper.sections
               for part in section.sections for figure in part.figures]  # fmt: skip
    allowed |= {
        with_interval(p["gain"], p.get("gain_low"), p.get("gain_high"))
        for figure in figures if figure.kind == "ablation"
        for p in figure.points if p.get("gain")
    }  # fmt: skip
    for name in systems.loaded:
        page = plain(texts[f"systems/{name}.html"])
        assert set(re.findall(r"[\d.]+x \[[\d.]+, [\d.]+\]", page)) <= allowed
    for machine in site.machines:
        page = plain(texts[f"machines/{machine.slug}.html"])
        for run in machine.runs:
            assert all(machine_pages.limit_number(value) in page for value in run.limits.values())


def scores(site, paper):
    """Mean score of each (dataset, model) that was trained whole, and the best of what trains
    nothing, in digits; straight from the rows."""
    rows = [row for run in site.runs for row in run.everything
            if row.paper == paper and row.preset == "quality"]  # fmt: skip
    every = Table.of(rows).where("mrr", statistic=None, of=None)
    for here in every.by("dataset").values():
        untrained = [sum(one.values) / len(one) for name, one in here.by("method").items() if name]
        for model, mine in here.where("mrr", method=None).by("model").items():
            if model and len(mine):
                yield f"{sum(mine.values) / len(mine):.3f}", f"{max(untrained):.3f}"


def shows_speed(site, paper, name, page):
    """Return True if a page links to a timed row of a paper, lists its rows, or repeats a sentence
    on its speed. Pages of datasets and machines name rows for what they used and lacked:
    there a factor with an interval is a speed."""
    if name.startswith(("datasets/", "machines/")):
        return re.search(r"\dx \[", plain(page)) is not None
    timed = {
        run.row_href(row.id) for run in site.runs for row in run.everything
        if row.paper == paper and row.preset != "quality" and row.id in run.places
        and any(one.metric.endswith("_time") or one.metric == "throughput"
                for one in row.observations)
    }  # fmt: skip
    links = {re.sub(r"^(\.\./)+", "", link) for link in re.findall(r'href="([^"]+)"', page)}
    if links & timed or any(address.partition("#")[0] == name for address in timed):
        return True
    sections = [s for one in site.papers if one.name == paper for _, s in one.sections]
    said = [*(sentence for s in sections for sentence in s.found), *(s.headline for s in sections)]
    text = plain(page)
    return any(sentence in text for sentence in said if re.search(r"\dx\b", sentence))


@pytest.mark.parametrize("paper", STREAMS)
def test_every_page_with_a_speed_has_the_scores_of_models_and_dictionaries(real, paper):
    site, texts = real
    wanted = list(scores(site, paper))
    assert wanted
    shown = [name for name, text in texts.items() if shows_speed(site, paper, name, text)]
    kinds = {name.partition("/")[0] for name in shown}
    assert {"index.html", "papers", "systems", "runs", "compare", "claims.html"} <= kinds
    for name in shown:
        text = plain(texts[name])
        if name in ("index.html", "papers/index.html", "papers/arena.html"):
            assert "trains nothing" in text, name  # both ends, in a sentence
        else:
            missing = [pair for pair in wanted if not all(number in text for number in pair)]
            assert not missing, (name, missing)
