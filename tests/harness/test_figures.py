"""Colours are recomputed, every kind draws with failures in it, and the bytes never change."""

from __future__ import annotations

import importlib
import itertools
import math
import re

import fake_points
import fake_run
import pytest

from dgbench.harness.figures import Context, draw_points
from dgbench.harness.figures.colour import VISIONS, ciede2000, contrast, difference, lightness
from dgbench.harness.figures.draw import KINDS, DrawnFigure
from dgbench.harness.figures.noise import side
from dgbench.harness.figures.palette import (
    BASELINES,
    COMPARISON,
    GUESTS,
    INK,
    LINK,
    NOISE,
    PHASES,
    SECONDARY,
    SYSTEMS,
    VERDICTS,
    WHITE,
    close_colours,
    looks,
    series_looks,
)
from dgbench.harness.figures.style import (
    factor,
    failure_words,
    ratio_ticks,
    same,
    seconds_text,
    tick_text,
    with_interval,
)
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.statistics import ConfidenceInterval, verdict

HUES = {name: mark.colour for name, mark in SYSTEMS.items() if name != "reference"}
GREYS = [mark.colour for mark in BASELINES]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [  # from the published test data of CIEDE2000
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((50.0, -1.3802, -84.2814), (50.0, 0.0, -82.7485), 1.0000),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_difference_is_the_published_one(first, second, expected):
    assert ciede2000(first, second) == pytest.approx(expected, abs=1e-4)


def test_hues_are_told_apart_by_everyone_and_in_grey():
    for one, other in itertools.combinations(HUES.values(), 2):
        for vision in VISIONS:
            assert difference(one, other, vision) >= 12, (one, other, vision)
        assert abs(lightness(one) - lightness(other)) >= 6
    for hue, grey, vision in itertools.product(HUES.values(), GREYS, VISIONS):
        assert difference(hue, grey, vision) >= 9.9, (hue, grey, vision)


def test_guests_are_far_from_everything():
    for guest, other, vision in itertools.product(GUESTS, [*HUES.values(), *GREYS], VISIONS):
        assert difference(guest.colour, other, vision) >= 11.6


def test_marks_and_text_have_contrast():
    for colour in [*HUES.values(), *GREYS, *(g.colour for g in GUESTS)]:
        assert contrast(colour, WHITE) >= 3
    for text in (INK, SECONDARY, LINK):
        assert contrast(text, WHITE) >= 4.5
    for glyph in VERDICTS.values():
        assert contrast(glyph.edge, WHITE) >= 3
    assert all(contrast(colour, WHITE) >= 3 for colour in COMPARISON.values())


def test_words_of_a_comparison_are_told_apart_by_everyone_and_in_grey():
    fast, slow, alike = (COMPARISON[word] for word in ("FAST", "SLOW", "SAME"))
    for vision in VISIONS:
        assert difference(fast, slow, vision) >= 12
        assert difference(slow, alike, vision) >= 10
    assert abs(lightness(fast) - lightness(slow)) >= 6
    assert COMPARISON["AMBG"] == alike  # told apart by the sign in place of the mark


def test_phases_are_told_apart_by_colour_or_by_hatch():
    assert {name: PHASES[name][0] for name in ("compute", "communicate", "transfer", "sample",
                                               "update")} == {
        "compute": "#4F5967", "communicate": "#B98BB0", "transfer": "#E0A458",
        "sample": "#9CC5D8", "update": "#D9DDE3",
    }  # fmt: skip
    for (one, first), (other, second) in itertools.combinations(PHASES.values(), 2):
        if first == second:
            for vision in VISIONS:
                assert difference(one, other, vision) >= 10, (one, other, vision)
            assert abs(lightness(one) - lightness(other)) >= 10
    for (colour, _), hue, vision in itertools.product(PHASES.values(), HUES.values(), VISIONS):
        assert difference(colour, hue, vision) >= 6, (colour, hue, vision)
    assert contrast(SECONDARY, WHITE) >= 3  # the edge round every segment


def test_marks_are_seen_on_the_noise_band():
    for mark in [*SYSTEMS.values(), *BASELINES, *GUESTS]:
        for vision in VISIONS:
            assert difference(mark.colour, NOISE, vision) >= 12
    assert abs(lightness(NOISE) - lightness(WHITE)) >= 12


def test_markers_differ_wherever_colours_do():
    assert len({m.marker for m in SYSTEMS.values()}) == len(SYSTEMS)
    assert len({m.marker for m in BASELINES}) == len(BASELINES)


def test_a_colour_too_close_to_a_neighbour_is_reported():
    class Near:
        name, colour = "mine", "#3A8EF5"

    class Pale:
        name, colour = "pale", "#FFFF00"

    notes = close_colours([Near, Pale])
    assert any("mine" in n and "pipad" in n for n in notes)
    assert any("pale" in n and "3:1" in n for n in notes)


def test_a_system_keeps_its_colour_whatever_stands_beside_it():
    alone = looks(["pipad"], {})["pipad"].mark
    crowd = looks(["a", "b", "pipad", "c"], {})
    assert crowd["pipad"].mark == alone
    assert len({look.mark for look in crowd.values()}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_with_failures_and_the_same_bytes(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    points = make()
    if kind != "claim_board":
        assert any(p.get("failed") for p in points)
    drawn = [
        draw_points(
            kind, "f", "A title", points, tmp_path / name, fake_run.CONTEXT, options, widths=widths
        )
        for name, widths in (("a", ("full", "half")), ("b", ("half",)))
    ]
    assert set(drawn[0].files) == {
        "f-full.svg", "f-full.png", "f-half.svg", "f-half.png", "f.csv", "f.txt",
    }  # fmt: skip
    for name in drawn[1].files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert drawn[0].alt.endswith(".")
    flat = getattr(importlib.import_module(f"dgbench.harness.figures.{kind}"), "flat", list)
    assert len((tmp_path / "a" / "f.csv").read_text().splitlines()) == len(flat(points)) + 1
    svg = (tmp_path / "a" / "f-full.svg").read_text()
    assert "<dc:date>" not in svg
    assert not re.findall(r'(?:href|src)="https?:', svg)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"claim_board", "paper_vs_measured"}))
def test_only_failures_still_make_a_figure(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    keep = ("panel", "row", "system", "baseline", "step", "technique", "series", "x", "dataset",
            "model", "setting", "counter")  # fmt: skip
    points = [
        {k: v for k, v in p.items() if k in keep} | {"failed": "crash: signal 11"} for p in make()
    ]
    drawn = draw_points(
        kind, "f", "t", points, tmp_path, fake_run.CONTEXT, options,
        flavour="site", widths=("full", "half"),
    )  # fmt: skip
    assert not drawn.empty
    for width in ("full", "half"):
        assert (tmp_path / f"f-{width}.svg").stat().st_size > 1000


PROJECTING = {
    "speedup": lambda p: p["row"] == "HepTh" or p["system"] == "pygt-g",
    "time_split": lambda p: p["system"] == "pipad",
    "sweep": lambda p: p["x"] >= 64,
    "paper_vs_measured": lambda p: p["claim"].endswith("1"),
}


@pytest.mark.parametrize("kind", sorted(PROJECTING))
def test_projections_look_and_read_differently(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    plain = make()
    some = fake_points.projected(plain, PROJECTING[kind])
    assert sum(bool(p.get("projected")) for p in some) >= 1
    every = fake_points.projected(plain, lambda p: True)
    shown = {
        name: draw_points(
            kind, name, "t", points, tmp_path, fake_run.CONTEXT, options,
            flavour="site", widths=("full",),
        )
        for name, points in (("plain", plain), ("some", some), ("every", every))
    }  # fmt: skip
    svg = {name: (tmp_path / f"{name}-full.svg").read_text() for name in shown}
    assert len(set(svg.values())) == 3
    assert "projected" in (tmp_path / "some.csv").read_text().splitlines()[0]
    if kind != "paper_vs_measured":  # its marks say it, its sentence counts values of any kind
        assert "project" not in shown["plain"].alt
        assert "project" in shown["some"].alt
        assert "project" in shown["every"].alt


def test_a_projection_is_never_called_faster_or_the_same(tmp_path):
    common = {"system": "esdg", "baseline": "pygt", "projected": True}
    points = [{**common, "row": "a", "value": 1.001}, {**common, "row": "b", "value": 9.0}]
    noisy = Context(noise=0.05)
    drawn = draw_points("speedup", "f", "t", points, tmp_path, noisy, widths=())
    assert "faster" not in drawn.alt
    assert "the same" not in drawn.alt
    sure = {"value": 2.0, "low": 1.9, "high": 2.1, "projected": False}
    mixed = [*points, {**common, **sure, "row": "c"}]
    drawn = draw_points("speedup", "g", "t", mixed, tmp_path, noisy, widths=())
    assert "faster than PyGT on 1 of 1 workloads" in drawn.alt
    assert "2 more are projected" in drawn.alt


@pytest.mark.parametrize("kind", ["ablation", "limit_share", "failed_cells", "frontier"])
def test_other_kinds_refuse_projections(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    points = fake_points.projected(make(), lambda p: True)
    with pytest.raises(InvalidInputError, match="projected"):
        draw_points(kind, "f", "t", points, tmp_path, fake_run.CONTEXT, options)


def test_nothing_to_draw_is_said_not_drawn(tmp_path):
    drawn = draw_points("speedup", "f", "t", [], tmp_path, fake_run.CONTEXT)
    assert drawn.empty
    assert not list(tmp_path.iterdir())


def test_a_point_without_a_key_is_named(tmp_path):
    points = [{"row": "a", "system": "pipad", "baseline": "pygt"}]
    with pytest.raises(InvalidInputError, match=r"figure 'f', point 0 lacks 'value'"):
        draw_points("speedup", "f", "t", points, tmp_path, fake_run.CONTEXT)
    with pytest.raises(UnknownKeyError) as error:
        draw_points("speedups", "f", "t", points, tmp_path, fake_run.CONTEXT)
    assert "speedup" in error.value.hint


REPEATED = {
    "time_split": {"row": "a", "system": "pipad", "phase": "compute", "seconds": 1.0, "total": 2.0},
    "speedup": {"row": "a", "system": "pipad", "baseline": "pygt", "value": 2.0},
    "sweep": {"series": "pipad", "x": 8, "y": 1.0},
}


@pytest.mark.parametrize("kind", REPEATED)
def test_points_at_one_place_are_drawn_as_their_mean_with_its_interval(kind, tmp_path):
    first = REPEATED[kind] | {"row_ids": ["a-r1"]}
    number = {"time_split": "seconds", "speedup": "value", "sweep": "y"}[kind]
    points = [first, first | {number: 3.0, "row_ids": ["a-r2"]}]
    (drawn,) = draw_points(kind, "f", "t", points, tmp_path, fake_run.CONTEXT).points
    mean = math.sqrt(first[number] * 3) if kind == "speedup" else (first[number] + 3) / 2
    assert drawn[number] == pytest.approx(mean)
    assert drawn["low"] < drawn[number] < drawn["high"]
    assert drawn["row_ids"] == ["a-r1", "a-r2"]


@pytest.mark.parametrize(
    ("low", "high", "noise", "expected"),
    [
        (1.9, 2.1, 0.05, "faster"),
        (None, None, 0.05, "undecided"),
        (None, None, None, "undecided"),
        (1.01, 3.0, 0.05, "undecided"),
        (1.9, 2.1, 0.6, "undecided"),
    ],
)
def test_a_side_is_said_of_a_whole_interval_beside_a_control_that_ran_undisturbed(
    low, high, noise, expected
):
    for exchanged in (False, True):
        ends = (low, high) if not exchanged or low is None else (1 / high, 1 / low)
        point = {"value": 0.5 if exchanged else 2.0, "low": ends[0], "high": ends[1]}
        wanted = "slower" if exchanged and expected == "faster" else expected
        assert side(point, noise) == wanted
        said = {"faster": "SLOW", "slower": "FAST"}.get(wanted, "AMBG")  # of times, new over old
        assert verdict(ConfidenceInterval(point["value"], *ends, 5), noise or 0.0) == said


def test_a_category_holds_a_dot_for_each_process(tmp_path):
    points = [{"series": "pipad", "x": "Flickr", "y": y} for y in (1.0, 2.0)]
    assert len(draw_points("sweep", "f", "t", points, tmp_path, fake_run.CONTEXT).points) == 2


def test_a_value_that_is_no_number_becomes_a_failure(tmp_path):
    point = {"row": "a", "system": "pipad", "baseline": "pygt", "value": math.nan}
    drawn = draw_points("speedup", "f", "t", [point], tmp_path, fake_run.CONTEXT)
    assert drawn.points[0]["failed"].startswith("check")


def test_smoke_and_partial_are_stamped(tmp_path):
    make, options = fake_points.POINTS["limit_share"]
    stamped = Context(stamp="SMOKE, not a measurement")
    plain, smoke = (
        draw_points("limit_share", name, "t", make(), tmp_path, context, options, widths=("full",))
        for name, context in (("p", Context()), ("s", stamped))
    )
    red = "#c8371b"
    assert red not in (tmp_path / plain.files[0]).read_text()
    assert red in (tmp_path / smoke.files[0]).read_text()
    assert "SMOKE" in smoke.caption


def test_words_for_numbers():
    assert [tick_text(v) for v in (0.5, 2e4, 3e6, 1e11, 2e12)] == ["0.5", "20k", "3M", "100G", "2T"]
    assert factor(2.13) == "2.1x"
    assert with_interval(2.13, 1.94, 2.31) == "2.1x [1.9, 2.3]"
    assert with_interval(2.13, None, None) == "2.1x"
    assert seconds_text(0.0123) == "12.3 ms"
    assert seconds_text(125) == "2:05 min"
    assert same(1.03, 0.035)
    assert same(1 / 1.03, 0.035)
    assert not same(1.04, 0.035)
    assert not same(1.0, None)


def test_failures_shorten_but_keep_the_reason():
    point = {"failed": "oom: 21.9 of 24.0 GiB", "failed_system": "pipad"}
    titles = {"pipad": "PiPAD"}
    assert failure_words(point, titles, 9) == "PiPAD: OOM (21.9 of 24.0 GiB)"
    assert failure_words(point, titles, 0.8) == "PiPAD: OOM"
    assert failure_words(point, titles, 0.1) == "OOM"


@pytest.mark.parametrize("limits", [(0.8, 20), (0.9, 1.3), (1, 1e6), (0.001, 0.002), (3, 4)])
def test_ticks_are_few_plain_and_inside(limits):
    ticks = ratio_ticks(*limits)
    assert 2 <= len(ticks) <= 6
    assert all(limits[0] <= t <= limits[1] for t in ticks)


def test_series_of_one_subject_share_a_colour_and_printed_values_are_ticks(tmp_path):
    names = ["TM-GCN, measured", "CD-GCN, measured", "TM-GCN, projected", "CD-GCN, projected"]
    found = series_looks(names)
    marks = {name: look.mark for name, look in found.items()}
    assert marks[names[0]].colour == marks[names[2]].colour != marks[names[1]].colour
    assert marks[names[0]].filled
    assert not marks[names[2]].filled
    assert series_looks(["CSR", "COO"]) == looks(["CSR", "COO"])  # few words stay grey
    many = series_looks([f"graph {i}" for i in range(16)])
    assert len({(m.mark.colour, m.mark.marker) for m in many.values()}) == 16
    points = [{"series": n, "x": x, "y": x * 1.5} for n in names for x in (4, 16)]
    printed = [{"series": "TM-GCN, paper", "x": x, "y": x * 1.4, "paper": True} for x in (4, 16)]
    drawn = draw_points("sweep", "f", "t", points + printed, tmp_path, fake_run.CONTEXT, widths=())
    assert "paper" not in drawn.alt  # the sentence is about what was found here
    assert "TM-GCN, measured" in drawn.alt


def test_parts_of_a_system_wear_its_colour_and_differ():
    names = ["DGC w/o CF&SG", "PyGT-PSS", "DGC", "PGC, refined", "PSS, contiguous", "PSS"]
    for found in (series_looks(names), looks(names)):
        own = [found[name].mark for name in ("DGC", "DGC w/o CF&SG", "PGC, refined")]
        assert {mark.colour for mark in own} == {SYSTEMS["dgc"].colour}
        assert own[0].filled
        assert len(set(own)) == 3
        assert SYSTEMS["dgc"].colour not in {found[n].mark.colour for n in ("PyGT-PSS", "PSS")}
    beside = looks(["dgc", "DGC w/o SG", "DGC w/o CF&SG"], {})
    assert len({look.mark for look in beside.values()}) == 3
    hollow = series_looks([*"abcd", "e, one", "e, two", "e, three", "e, four"])
    assert len({look.mark for look in hollow.values()}) == 8


def test_curves_of_many_points_have_few_marks_and_names_in_the_legend(tmp_path):
    points = [{"series": n, "x": x, "y": min(1.0, x / 20)} for n in "abc" for x in range(1, 41)]
    plain, few = (
        draw_points(
            "sweep", name, "t", points, tmp_path, fake_run.CONTEXT, options, widths=("full",)
        )
        for name, options in (("plain", {}), ("few", {"marks": "few", "names": False}))
    )
    sizes = [(tmp_path / f"{name}-full.svg").stat().st_size for name in ("plain", "few")]
    assert sizes[1] < sizes[0]
    assert plain.alt == few.alt


def test_tables_call_systems_and_contenders_by_their_titles_and_points_keep_their_names():
    points = [{"system": "pipad", "baseline": "rebuild", "x": 4, "row": "pipad"}]
    drawn = DrawnFigure("f", "speedup", "F", "", "", points, titles={"rebuild": "Rebuilding"})
    assert drawn.shown == [{"system": "PiPAD", "baseline": "Rebuilding", "x": 4, "row": "pipad"}]
    assert drawn.points == points
