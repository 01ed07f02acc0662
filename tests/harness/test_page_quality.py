"""No page shows a speed of a stream's model without how well it predicts, and the dictionary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from undrawn_site import PARTS, site_of

from dgbench.harness.report import build
from dgbench.harness.report.run import load_run
from dgbench.harness.trainings import kept_trainings
from dgbench.lab.table import Table

STREAMS = ("gnnflow", "tgcn")
"""Papers whose systems train models on streams."""
KEPT = sorted(
    path.parent
    for path in Path(__file__).resolve().parents[2].glob("results/reference/*/*/run.json")
    if path.parent.name in (*STREAMS, "arena")
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, str]]:
    """A site of the kept runs on streams, and the text of all its pages."""
    if not KEPT:
        pytest.skip("no reference runs here")
    site = site_of([load_run(path) for path in KEPT], parts=(*PARTS, "compare"))
    return site, build._pages(site, tmp_path_factory.mktemp("site"))


def plain(page: str) -> str:
    """Text of a page without its tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def scores(site: Any, paper: str, seeds: int = 1) -> Iterator[tuple[str, str]]:
    """Of each (dataset, model) that was trained whole with so many seeds: its mean score, and the
    best of what trains nothing, in digits; straight from the rows."""
    rows = [row for run in site.runs for row in run.everything
            if row.paper == paper and row.preset == "quality"]  # fmt: skip
    every = Table.of(rows).where("mrr", statistic=None, of=None)
    for here in every.by("dataset").values():
        untrained = [sum(one.values) / len(one) for name, one in here.by("method").items() if name]
        for model, mine in here.where("mrr", method=None).by("model").items():
            if model and len(mine) >= seeds:
                yield f"{sum(mine.values) / len(mine):.3f}", f"{max(untrained):.3f}"


def timed_rows(site: Any, paper: str) -> set[str]:
    """Addresses of rows of a paper that have a time or a rate, as pages link to them."""
    return {
        run.row_href(row.id)
        for run in site.runs
        for row in run.everything
        if row.paper == paper and row.preset != "quality" and row.id in run.places
        and any(one.metric.endswith("_time") or one.metric == "throughput"
                for one in row.observations)
    }  # fmt: skip


def shows_speed(site: Any, paper: str, name: str, page: str, addresses: set[str]) -> bool:
    """Return True if a page links to a timed row of a paper, lists its rows, or repeats a sentence
    on its speed. Pages of datasets and machines name rows for what they used and lacked:
    there a factor with an interval is a speed."""
    if name.startswith(("datasets/", "machines/")):
        return re.search(r"\dx \[", plain(page)) is not None
    links = {re.sub(r"^(\.\./)+", "", link) for link in re.findall(r'href="([^"]+)"', page)}
    if links & addresses or any(a.partition("#")[0] == name for a in addresses):
        return True
    sections = [s for one in site.papers if one.name == paper for _, s in one.sections]
    said = [*(sentence for s in sections for sentence in s.found), *(s.headline for s in sections)]
    text = plain(page)
    return any(sentence in text for sentence in said if re.search(r"\dx\b", sentence))


@pytest.mark.parametrize("paper", STREAMS)
def test_every_page_with_a_speed_has_the_models_scores_and_the_dictionaries(
    world: tuple[Any, dict[str, str]], paper: str
) -> None:
    site, texts = world
    wanted = list(scores(site, paper))
    assert wanted
    addresses = timed_rows(site, paper)
    pages = {name: text for name, text in texts.items() if name.endswith(".html")}
    shown = [name for name, text in pages.items()
             if shows_speed(site, paper, name, text, addresses)]  # fmt: skip
    kinds = {name.partition("/")[0] for name in shown}
    assert {"index.html", "papers", "systems", "runs", "compare", "claims.html"} <= kinds
    for name in shown:
        text = plain(pages[name])
        if name in ("index.html", "papers/index.html", "papers/arena.html"):
            # a sentence: the lowest and the highest, of models and of what trains nothing
            assert "trains nothing" in text, name
            continue
        missing = [pair for pair in wanted if not all(number in text for number in pair)]
        assert not missing, (name, missing)


def test_each_stream_race_of_the_arena_has_its_own_score_or_the_dictionarys(
    world: tuple[Any, dict[str, str]],
) -> None:
    site, texts = world
    (arena,) = (one for one in site.papers if one.name == "arena")
    races = [race for _, section in arena.sections for race in section.arena
             if race.task.trained is not None and race.task.trained.floor]  # fmt: skip
    assert races
    for race in races:
        dataset, model = (race.case.settings[key] for key in ("dataset", "model"))
        rows = [row for run in site.runs for row in run.everything
                if row.paper == race.task.trained.paper and row.preset == "quality"]  # fmt: skip
        every = Table.of(rows).where("mrr", statistic=None, of=None, dataset=dataset)
        untrained = [sum(one.values) / len(one)
                     for name, one in every.by("method").items() if name]  # fmt: skip
        trained = every.where("mrr", method=None, model=model).values
        expected = [f"{sum(trained) / len(trained):.3f}"] if trained else []
        expected += [f"{max(untrained):.3f}"] if untrained else []
        shown = len(race.timed) > 1  # the first page has races of two or more
        for name in ("index.html", "papers/arena.html") if shown else ("papers/arena.html",):
            assert all(number in plain(texts[name]) for number in expected), (name, race.case.name)


def test_a_page_that_lost_its_scores_would_be_found(world: tuple[Any, dict[str, str]]) -> None:
    site, texts = world
    page = texts["papers/gnnflow.html"]
    bare = re.sub(r'<details class="box models".*?</details>', "", page, flags=re.S)
    bare = re.sub(
        r'<section class="experiment" id="exp-quality".*?</section>', "", bare, flags=re.S
    )
    assert shows_speed(site, "gnnflow", "papers/gnnflow.html", bare, timed_rows(site, "gnnflow"))
    assert any(number not in plain(bare) for pair in scores(site, "gnnflow") for number in pair)
