"""Pages of a site: numbers are those of rows, nothing is left out, and no speed without a score."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import fake_points
import fake_run
import pytest
from link_checker import broken_links

from dgbench import datasets
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.figures.style import with_interval
from dgbench.harness.report import build, subjects
from dgbench.harness.report.contests import all_races, tally
from dgbench.harness.report.merge import assemble
from dgbench.harness.report.run import load_run, slug
from dgbench.harness.report.sections import collect, put_figures, sketches_of
from dgbench.lab.compare import paired
from dgbench.lab.table import Table
from dgbench.systems.base import find_paper

REFERENCE = Path(__file__).resolve().parents[2] / "results/reference"
KEPT = ("intel-xeon-2-cores/gnnflow", "intel-xeon-2-cores/tgcn", "amd-epyc-2-cores/arena")
STREAMS = ("gnnflow", "tgcn")
"""Papers whose systems train models on streams."""
NOT_PAGES = r"^\.\./$|\.(log|svg|png|csv|parquet|json|jsonl|txt|md|css|js)$"
"""Files that a build writes beside the pages from rows and drawn figures; "../" is none drawn."""


def site_of(runs, papers=()):
    """The model of some runs, of installed papers but for those that are given by name; figures
    have points and are not drawn."""
    runs, shown = list(runs), []
    for run in runs:
        for name in run.papers:
            section = collect(dict(papers).get(name) or find_paper(name), run)
            drawn = [DrawnFigure(s.name, s.kind, s.title, "", "", s.points, empty=not s.points)
                     for s in sketches_of(section)]  # fmt: skip
            put_figures(section, drawn, run)
            shown.append((run, section))
    return assemble(shown, runs, merged=True, parts=("systems", "datasets"))


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
    site = site_of([run], {"toy": fake_run.toy_paper(folder)})
    return run, site, write(site, tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A site of some kept runs."""
    if not REFERENCE.is_dir():
        pytest.skip("no reference runs here")
    site = site_of([load_run(REFERENCE / name) for name in KEPT])
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


# The kept runs.


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
    on its speed. Pages of datasets name rows that used them: there a factor with an
    interval is a speed."""
    if name.startswith("datasets/"):
        return re.search(r"\dx \[", plain(page)) is not None
    timed = {
        run.row_href(row.id) for run in site.runs for row in run.everything
        if row.paper == paper and row.preset != "quality" and row.id in run.places
        and any(one.metric.endswith("_time") or one.metric == "throughput"
                for one in row.observed)
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
    assert {"index.html", "papers", "systems", "runs", "claims.html"} <= kinds
    for name in shown:
        text = plain(texts[name])
        if name in ("index.html", "papers/index.html", "papers/arena.html"):
            assert "trains nothing" in text, name  # both ends, in a sentence
        else:
            missing = [pair for pair in wanted if not all(number in text for number in pair)]
            assert not missing, (name, missing)
