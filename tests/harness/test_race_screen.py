"""The race table as a picture: what is drawn of which race, and where."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dgbench.harness.report import pages
from dgbench.harness.report.race_screen import LINES, race_screen, race_tabs
from dgbench.lab.arena import ArenaCase, ArenaTask, Entrant, QualitySource, races
from dgbench.lab.experiment import Measurement
from dgbench.lab.quality import score_spread

CASES = tuple(ArenaCase(f"c{n}", f"Graph {n}", ("quick",), {"dataset": "d", "model": "m"})
              for n in range(30))  # fmt: skip
TASK = ArenaTask(
    name="toy", version=1, title="Toying", what="a toy", quality="all", unit="toys", cases=CASES,
    entrants={"a": Entrant("A <b>", "released 1.0", "released"),
              "b": Entrant("B", "re-implemented"),
              "c": Entrant("C", "an approximation", exact=False)},
    contender="setting", time="operation_time", rate=("throughput", {"of": "items"}),
    factors={"first": ("b", "c"), "second": ("c", "a")},
)  # fmt: skip


def rows_of(task: ArenaTask, case: str, *turns: dict[str, float]) -> list[Any]:
    made = []
    for number, seconds in enumerate(turns, 1):
        found = Measurement()
        for name, taken in seconds.items():
            found.observe("operation_time", taken, samples=[taken] * 3, setting=name)
            found.observe("throughput", 100 / taken, setting=name, of="items")
        made.append(SimpleNamespace(
            id=f"{task.name}-{case}-r{number}", paper="arena", experiment=task.name,
            params={"task": task.label, "definition": task.digest, "case": case}, group=case,
            round=number, device="cpu", preset="quick", status="ok", reason="", time=None,
            instrumented=False, replaced=False, looks=0, deviation={}, notes=[], checks=[],
            data={}, observations=found.observations, run="r",
        ))  # fmt: skip
    return made


def race(task: ArenaTask = TASK, case: str = "c0", **times: float) -> Any:
    turns = [{name: d * t for name, t in times.items()} for d in (1.0, 1.1, 0.9)]
    return races(task, rows_of(task, case, *turns))[0]


def run_of(slug: str = "box", rows: list[Any] | None = None, **fields: Any) -> Any:
    return SimpleNamespace(
        measured="2026-01-02, commit 0123456789ab", machine_name=f"2 cores of {slug}",
        slug=f"{slug}-arena", everything=rows or [], smoke=False,
        noise=0.02, row_page="runs/run1.html", row_href=lambda name: f"runs/run1.html#{name}",
        rows=rows or [], machine_slug=slug, info={"preset": "quick"}, kept=True,
        **{"store": SimpleNamespace(path=Path("nowhere/arena"), provenance=dict), "device": "cpu",
           **fields},
    )  # fmt: skip


def shown(found: list[Any], fastest: list[Any] | None = None) -> Any:
    return SimpleNamespace(arena=found, fastest=fastest or [], headline="faster on some")


def site_of(*papers: tuple[str, list[tuple[Any, Any]]]) -> Any:
    runs = [run for _, sections in papers for run, _ in sections]
    made = [SimpleNamespace(name=name, sections=sections) for name, sections in papers]
    return SimpleNamespace(papers=made, runs=runs, merged=True)


def screen_of(found: list[Any], rows: list[Any] | None = None, **fields: Any) -> Any:
    return race_screen(site_of(("arena", [(run_of(rows=rows, **fields), shown(found))])))


def test_every_timed_contender_is_a_dot_of_its_kind_in_the_order_of_times() -> None:
    screen = screen_of([race(a=1.0, b=4.0, c=2.0), race(a=3.0, c=1.0)])
    dots = {dot.label.split(":")[0]: dot for dot in screen.lines[0].dots}
    assert {name: dot.kind for name, dot in dots.items()} == {
        "A <b>": "released", "B": "", "C": "approximate",
    }  # fmt: skip
    assert dots["A <b>"].at < dots["C"].at < dots["B"].at
    assert len(screen.lines[1].dots) == 2
    assert screen.lines[1].badges[0].warns  # an approximation leads


def test_a_training_is_never_shown_without_its_quality() -> None:
    task = replace(TASK, trained=QualitySource("p", "quality", "mrr", floor=True))
    found = [race(task, a=1.0, b=2.0)]
    screen = screen_of(found)
    assert screen.lines[0].quality.startswith("not trained")
    scored = []
    for seed in range(1, 7):
        made = Measurement()
        made.observe("mrr", 0.1 + 0.001 * seed, **({"method": "edgebank"} if seed == 6 else {}))
        scored.append(SimpleNamespace(
            id=f"q{seed}", paper="p", experiment="quality", preset="quality", status="ok",
            params={"dataset": "d", **({} if seed == 6 else {"model": "m", "seed": seed})},
            observations=made.observations, run="kept", instrumented=False, deviation={}, notes=[],
            round=1, group="q", device="cpu", reason="", time=None, checks=[], data={}, looks=0,
            replaced=False,
        ))  # fmt: skip
    screen = screen_of(found, scored)
    assert "EdgeBank" in screen.lines[0].quality
    spread = score_spread({n: 0.1 + 0.001 * n for n in range(1, 6)})
    assert f"±{spread.high - spread.value:.3f}" in screen.lines[0].quality
    assert screen.lines[0].badges[0].word == "below dictionary"


def test_the_picture_links_and_escapes_what_it_shows() -> None:
    screen = screen_of([race(a=1.0, b=4.0, c=2.0)])
    macro = pages.environment().get_template("races.html.j2").make_module({"root": ""})
    page = str(macro.race_picture(screen))
    dots = re.findall(r'<a class="dot[^>]*>', page)
    assert len(dots) == 3
    assert all('href="runs/run1.html#' in dot for dot in dots)
    assert "A <b>" not in page
    assert "A <b>" in screen.alt
    assert screen_of([]) is None


def test_each_machine_has_its_races_and_no_other_in_a_tab_of_its_own() -> None:
    """The machine that raced most is first; each tab is what a site of that machine would show."""
    few, many, papers = (run_of(name) for name in ("few", "many", "papers"))
    mine = {
        "few": [race(a=1.0, b=3.0), race(case="c1", a=1.0, b=5.0)],
        "many": [race(case=f"c{n}", a=2.0, b=1.0) for n in range(25)],
    }
    measured = [{"row": "r1"}]
    tabs = race_tabs(site_of(
        ("arena", [(few, shown(mine["few"])), (many, shown(mine["many"]))]),
        ("toy", [(papers, shown([], measured)), (many, shown([], measured)),
                 (run_of("void"), shown([], [{"row": None}]))]),
    ))  # fmt: skip
    assert [tab.slug for tab in tabs] == ["many", "few", "papers"]
    for tab in tabs[:2]:
        run = tab.screen.run
        (alone,) = race_tabs(site_of(("arena", [(run, shown(mine[run.machine_slug]))])))
        assert (tab.slug, tab.screen.sentence) == (run.machine_slug, alone.screen.sentence)
        assert len(tab.screen.lines) == min(LINES, len(mine[tab.slug]))
        assert [line.dots for line in tab.screen.lines] == [
            line.dots for line in alone.screen.lines[: len(tab.screen.lines)]
        ]
    assert tabs[2].screen is None
