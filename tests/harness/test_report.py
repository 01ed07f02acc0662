"""Pages stand alone, escape what they show, count right, and survive a broken plugin."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import fake_run
import pytest
from link_checker import Page, broken_links, read_pages

from dgbench.harness.claims.shown import unit_rest
from dgbench.harness.report.build import build_report
from dgbench.harness.report.failures import without_result
from dgbench.harness.report.run import load_run, machine_name
from dgbench.harness.report.words import markdown, paper_value
from dgbench.harness.store import Row
from dgbench.lab.paper import Claim
from dgbench.runtime.errors import StoreError
from dgbench.systems.base import FigureSpec

PAGES = ("report.html", "papers/index.html", "papers/toy.html", "runs/index.html",
         "how-to-read.html")  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    path = fake_run.make_run(folder)
    report = build_report(path, [fake_run.light_paper(folder)])
    assert report.name == "report.html"
    return path


def pages(path: Path) -> dict[str, Page]:
    return read_pages(path)


def test_nothing_is_fetched_and_every_link_leads_somewhere(built):
    found = pages(built)
    assert set(PAGES) < set(found)
    assert broken_links(built) == []


def test_chips_rows_and_cells_count_the_same(built):
    for name in ("report.html", "papers/toy.html"):
        text = (built / name).read_text("utf-8")
        chip = r'class="chip" data-glyph="[RdXSsOuv=-]".*?<b>(\d+)</b>'
        chips = [int(n) for n in re.findall(chip, text)]
        rows = re.findall(r'<tr id="toy-[^"]+" data-g="([^"]+)"', text)
        cells = re.findall(r'<a class="g [^"]*" href="#(toy-[^"]+)"', text)
        assert all(chips)
        assert sum(chips) == len(rows) == len(cells) == len(set(cells)) == 24
        assert "24 of 24" in text


def test_the_headline_is_the_count(built):
    text = (built / "report.html").read_text("utf-8")
    claims = json.loads((built / "claims.json").read_text())
    assert len(claims) == 24
    (said,) = re.findall(r"<h1>(.*)</h1>", text)
    strong, weak = (
        [c["glyph"] for c in claims if c["strength"] == one] for one in ("strong", "weak")
    )
    numbers = [int(n) for n in re.findall(r"\d+", said.replace("2 cores", ""))]
    assert numbers[0] <= len(claims)
    assert numbers[-3] <= sum(glyph in "Ss" for glyph in weak)
    assert strong
    assert {"id", "verdict", "measured", "paper", "reason", "row"} <= set(claims[0])


def test_what_others_wrote_is_escaped(built):
    for name in ("report.html", "papers/toy.html"):
        text = (built / name).read_text("utf-8")
        assert "<b>by this much</b>" not in text
        assert "&lt;b&gt;by this much&lt;/b&gt;" in text
    text = (built / "papers/toy.html").read_text("utf-8")
    assert "&lt;here Adam&gt;" in text
    text = (built / "report.md").read_text("utf-8")
    assert "<b>by" not in text
    assert "&lt;b>by" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("fine, 2.1x [1.9, 2.3] on a_b", "fine, 2.1x [1.9, 2.3] on a_b"),
        ("a [link](javascript:a())", "a [link]\\(javascript:a())"),
        ("two\n\n# lines", "two # lines"),
        ("# a heading", "\\# a heading"),
        ("- an entry", "\\- an entry"),
        ("```", "\\```"),
        ("-3 %", "-3 %"),
    ],
)
def test_text_in_markdown_makes_no_html_link_or_line(text, shown):
    assert markdown(text) == shown


def test_a_paper_page_says_what_a_reader_must_know(built):
    text = (built / "papers/toy.html").read_text("utf-8")
    for words in (
        "Before you quote",
        "synthetic twins stand in",
        "released torch-geometric-temporal",
        "How we read it",
        "out of memory",
        "21.9 of 24.0 GiB",
        "Not run here. Run it with",
        "dgbench run toy/table9",
        "What this machine cannot run",
        "Our own check failed",
    ):
        assert words in text, words


def test_every_row_is_there_failures_first(built):
    run = load_run(built)
    page = pages(built)[run.row_page]
    rows = [found["id"] for tag, found in page.tags if tag == "tr" and "id" in found]
    assert sorted(rows) == sorted(f"row-{r.id}" for r in run.everything)
    assert next(r for r in run.everything if f"row-{r.id}" == rows[0]).status != "ok"
    for ending in (".csv", ".parquet"):
        assert (built / "runs" / f"{run.slug}{ending}").is_file()


def test_images_have_words(built):
    for page in pages(built).values():
        for tag, found in page.tags:
            if tag == "img":
                assert len(found["alt"]) > 20


def test_pages_are_small(built):
    sizes = {name: (built / name).stat().st_size for name in pages(built)}
    assert sizes.pop("report.html") < 600_000
    assert max(sizes.values()) < 300_000


def test_the_markdown_has_every_claim(built):
    text = (built / "report.md").read_text("utf-8")
    assert text.startswith("# ")
    assert len(re.findall(r"^\| `toy-", text, re.M)) == 24
    for image in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (built / image).is_file()


def test_a_second_report_is_the_same(built, tmp_path):
    before = {n: (built / n).read_bytes() for n in (*PAGES, "report.md", "claims.json")}
    build_report(built, [fake_run.light_paper(built.parent)])
    assert before == {n: (built / n).read_bytes() for n in before}


class Bare(fake_run.Race):
    """An experiment whose answer and figure fail."""

    def figures(self):
        return [FigureSpec("speedup", "fig1", "Broken", self._broken)]

    @staticmethod
    def _broken(rows):
        raise KeyError("gone")

    def answer(self, rows):
        raise ValueError("no words")


def test_partial_smoke_torn_and_broken_are_said(tmp_path):
    path = fake_run.make_run(tmp_path, preset="smoke")
    with (path / "rows.jsonl").open("ab") as file:
        file.write(b'{"crc":"00000000","row":{"id":\n')
    plan = {"preset": "smoke", "device": "cpu", "cells": [{"hash": "c000"}, {"hash": "never"}]}
    (path / "plan.json").write_text(json.dumps(plan))
    paper = replace(fake_run.toy_paper(tmp_path), experiments=(Bare(),))
    build_report(path, [paper])
    for name in PAGES:
        text = (path / name).read_text("utf-8")
        assert "Smoke run on tiny data" in text
        assert "Partial: 1 of 2 cells" in text
        assert "1 damaged line was set aside" in text
    assert "so far" in (path / "report.html").read_text("utf-8")
    assert "What is fastest" not in (path / "report.html").read_text("utf-8")
    text = (path / "papers/toy.html").read_text("utf-8")
    assert "cannot be drawn" in text
    assert "its answer cannot be formed: ValueError: no words" in text


def test_a_folder_that_is_no_run_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="not the folder of a run"):
        build_report(tmp_path, [])


def test_machines_and_units_in_words():
    cpu = {"cpu": {"model": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.7GHz", "usable": 2}}
    assert machine_name(cpu, "cpu") == "2 cores, Intel Xeon Platinum 8481C"
    gpu = cpu | {"gpus": [{"name": "NVIDIA T4"}]}
    assert machine_name(gpu, "cuda").startswith("NVIDIA T4, 2 cores")
    claim = Claim(id="a", where="1", statement="s", kind="speedup", value={"low": 1, "high": 9.57},
                  unit="x (end-to-end training time)")  # fmt: skip
    assert unit_rest(claim.unit) == "end-to-end training time"
    assert paper_value(claim) == "1 to 9.57x"


def test_cells_that_cannot_run_for_one_reason_share_a_line():
    def row(number, status, reason):
        return Row(
            id=f"{number}-r1", paper="p", experiment="e", cell_hash=str(number),
            params={"system": f"s{number}"}, status=status, reason=reason,
        )  # fmt: skip

    rows = [row(i, "no-gpu", "needs a device") for i in range(3)]
    rows += [row(9, "no-gpu", "another"), row(4, "crash", "bad"), row(5, "crash", "bad")]
    shown = without_result(rows)
    assert [cell["id"] for cell in shown] == ["0-r1", "9-r1", "4-r1", "5-r1"]
    assert shown[0]["what"].startswith("3 cells, such as")
    assert not shown[1]["what"].startswith("1 cell")


def test_the_race_that_is_called_main_heads_the_page():
    from dgbench.harness.figures.draw import DrawnFigure
    from dgbench.harness.report.races import main_race
    from dgbench.harness.report.sections import Section

    def race(name, main=False, projected=False):
        points = [{"row": "a", "system": "x", "baseline": "y", "value": 2.0,
                   "projected": projected}]  # fmt: skip
        return DrawnFigure(name, "speedup", name, "", "", points, main=main)

    def on_page(*figures):
        return [Section("e", "e", "", "", "", "", "", [f], [], [], 0) for f in figures]

    first, second = race("first"), race("second", main=True)
    assert main_race(on_page(first, second)) is second
    assert main_race(on_page(first, race("other"))) is first
    assert main_race(on_page(first, race("model", main=True, projected=True))) is first
    assert main_race(on_page(DrawnFigure("s", "sweep", "s", "", "", [{}]))) is None


def test_workloads_of_a_race_are_what_ran_whoever_was_the_baseline():
    from dgbench.harness.figures.draw import DrawnFigure
    from dgbench.harness.report.races import workloads

    def race(*points):
        keys = ("panel", "row", "baseline", "failed")
        shown = [dict(zip(keys, (*point, ""), strict=False)) for point in points]
        return DrawnFigure("race", "speedup", "Race", "", "", shown)

    models = race(("GCN", "a", "x"), ("GAT", "a", "x"), ("GAT", "a", "y"), ("GAT", "b", "x"))
    assert workloads(models) == 3
    assert workloads(race(("over x", "a", "x"), ("over y", "a", "y"), ("over y", "b", "y"))) == 2
    assert workloads(race((None, "a", "x"), (None, "b", "x", "oom: no room"))) == 1
    assert workloads(race()) == 0


def test_what_weak_verdicts_lack_is_counted():
    from types import SimpleNamespace

    from dgbench.harness.report.quote import _weak

    def said(*lacks):
        verdicts = [
            SimpleNamespace(strength="weak" if one else "strong", lacks=one) for one in lacks
        ]
        return _weak(SimpleNamespace(verdicts=verdicts))

    (one,) = said(("a twin",), ("a twin", "1 of 5 processes"), ())
    assert one.startswith("2 verdicts")
    assert "a twin (2), 1 of 5 processes (1)" in one
    assert said((), ()) == []


def test_a_label_that_says_twin_says_it_once():
    from types import SimpleNamespace

    from dgbench.harness.figures.style import Context
    from dgbench.harness.report.races import _race

    def task(row, panel=None):
        point = {"row": row, "system": "a", "baseline": "b", "value": 2.0, "twin": True}
        paper = SimpleNamespace(system="a")
        return _race(paper, panel, row, [point], Context(machine="m", device="cpu"))["task"]

    assert task("LastFM") == task("LastFM (twin)") == "LastFM (twin)"
    assert task("GCN", "LastFM (twin)") == "GCN, LastFM (twin)"
