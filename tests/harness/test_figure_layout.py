"""Words of figures: none is cut off, none covers another, and names stand where nothing else is."""

from __future__ import annotations

import importlib
import itertools

import fake_points
import pytest
from matplotlib.text import Text

from dgbench.harness.figures import Context
from dgbench.harness.figures.draw import DrawnFigure
from dgbench.harness.figures.panels import MIN_PANEL_INCHES, PanelGrid
from dgbench.harness.figures.style import FULL, fit_labels, styled, text_width
from dgbench.harness.report.pictures import WIDE as SHOWN
from dgbench.harness.report.pictures import images

WIDE = pytest.mark.parametrize("wide", [True, False])
LONG = "EvolveGCN without asynchronous"


def drawn(kind, points, options, wide, context=None):
    """A figure, drawn once so that everything has its place."""
    module = importlib.import_module(f"dgbench.harness.figures.{kind}")
    with styled():
        figure = module.draw(points, options, context or Context(run="1"), wide)
        figure.canvas.draw()
    return figure


def words(figure):
    """Every visible text of a figure with its box in pixels."""
    renderer = figure.canvas.get_renderer()
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in found]


def place(figure, text):
    """The box of the only text with these words."""
    boxes = [box for said, box in words(figure) if said == text]
    assert len(boxes) == 1, (text, [said for said, _ in words(figure)])
    return boxes[0]


def cut(figure):
    """Texts that reach beyond the left or right edge."""
    return [(t, b) for t, b in words(figure) if b.x0 < -1 or b.x1 > figure.bbox.x1 + 1]


@WIDE
@pytest.mark.parametrize("kind", ["speedup", "time_split", "limit_share"])
def test_long_labels_of_rows_are_not_cut(kind, wide):
    make, options = fake_points.POINTS[kind]
    points = [{**p, "row": f"{LONG}, {p['row']}", "twin": True} for p in make()]
    points = [{k: v for k, v in p.items() if k != "panel"} for p in points]
    assert not cut(drawn(kind, points, options, wide))


@WIDE
def test_long_labels_of_categories_are_not_cut_and_the_line_is_in_the_legend(wide):
    points = [
        {"series": "esdg", "x": f"{LONG} {i}", "y": 1.0 + i, "twin": True, "panel": "a"}
        for i in range(4)
    ]
    figure = drawn("sweep", points, {"hline": 1.0, "hline_label": "all on"}, wide)
    assert not cut(figure)
    said = [text.replace("\n", " ") for text, _ in words(figure)]
    assert f"{LONG} 3 (twin)" in said
    assert "all on" in said


def test_labels_take_two_lines_at_most_and_the_room_that_they_need():
    fitted, room = fit_labels(["short", LONG], most=1.2)
    assert fitted["short"] == "short"
    assert fitted[LONG].count("\n") == 1
    assert fitted[LONG].replace("\n", " ") == LONG
    assert room <= 1.4
    fitted, room = fit_labels(["x" * 60], most=1.2)
    assert fitted["x" * 60] == "x" * 60
    assert room >= text_width("x" * 60)
    assert fit_labels([], most=1.2)[0] == {}


def test_labels_leave_room_for_the_panel():
    long = " ".join(["operation"] * 40)
    fitted, room = fit_labels([long], most=1.2, limit=2.0)
    assert room < 2.3
    assert fitted[long].replace("\n", " ") == long
    grid = PanelGrid([None], wide=False, columns=1, heights=[1.0], labels=[long], right=0.5)
    ((_, axes),) = grid.axes(Context())
    assert axes.get_position().width * grid.width >= MIN_PANEL_INCHES - 0.01


def curves(names, xs=(1, 2, 4, 8), slope=1.0):
    return [
        {"series": name, "x": x, "y": (1 + i) * x**slope, "panel": "a panel"}
        for i, name in enumerate(names)
        for x in xs
    ]


@WIDE
def test_a_series_that_ends_early_is_named_in_the_legend_only(wide):
    names = [f"model {i}, projected" for i in range(5)]
    points = curves(names) + curves(["model 0, measured"], xs=(1, 2))
    figure = drawn("sweep", points, {}, wide)
    said = [text for text, _ in words(figure)]
    assert said.count("model 0, measured") == 1
    assert said.count("model 0, projected") == 2  # beside its line, too
    few = drawn("sweep", curves(["a"]) + curves(["b"], xs=(1, 2)), {}, wide)
    assert [text for text, _ in words(few)].count("b") == 1  # without a legend, at its end


@WIDE
def test_more_names_than_an_edge_can_hold_stand_in_the_legend(wide):
    names = [f"graph {i}" for i in range(9)]
    said = [text for text, _ in words(drawn("sweep", curves(names), {}, wide))]
    assert all(said.count(name) == 1 for name in names)


@WIDE
@pytest.mark.parametrize("count", [1, 2, 7, 11])
def test_long_names_of_a_legend_are_not_cut(wide, count):
    names = [f"{LONG} transfer, number {i}" for i in range(count)]
    figure = drawn("sweep", curves(names), {}, wide)
    assert not cut(figure)
    said = [text.replace("\n", " ") for text, _ in words(figure)]
    assert all(name in said for name in names)


@WIDE
@pytest.mark.parametrize("value", [1.0, 2.9, 8.0, 24.0])
@pytest.mark.parametrize("ylog", [True, False])
def test_words_of_a_line_stand_beside_the_panel_and_cover_nothing(wide, value, ylog):
    options = {"hline": value, "hline_label": "32 GiB", "ylog": ylog, "xlabel": "ranks"}
    figure = drawn("sweep", curves(["a", "b", "c"]), options, wide)
    mine, panel = place(figure, "32 GiB"), figure.axes[0].get_window_extent()
    assert mine.x0 >= panel.x1
    assert panel.y0 - 5 <= (mine.y0 + mine.y1) / 2 <= panel.y1 + 1
    for other in ("a", "b", "c", "a panel"):
        assert not mine.overlaps(place(figure, other)), other
    assert not cut(figure)


@WIDE
def test_a_line_with_too_many_words_is_explained_in_the_legend(wide):
    label = "what a very careful reader of the paper would call the most that can be expected"
    label = label[:40] if not wide else label
    figure = drawn("sweep", curves(["a"]), {"hline": 2.0, "hline_label": label}, wide)
    assert place(figure, label).y0 > figure.axes[0].get_window_extent().y1
    assert not cut(figure)


@WIDE
@pytest.mark.parametrize("slope", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("guide", [1.0, "log"])
def test_a_guide_keeps_away_from_the_data_and_inside_the_panel(wide, slope, guide):
    points = curves(["a", "b"], xs=(1, 4, 16, 64), slope=slope)
    flat = ((1, 1.0), (4, 2.5), (16, 3.0), (64, 3.1))
    for share in (0.25, 0.5, 0.75):
        points += [
            {"series": f"flat {share}", "x": x, "y": y * share, "panel": "a panel"} for x, y in flat
        ]
    figure = drawn("sweep", points, {"guide_slope": guide}, wide)
    axes = figure.axes[0]
    mine = place(figure, "slope 1" if guide == 1.0 else "log n")
    panel = axes.get_window_extent()
    assert panel.x0 <= mine.x0 <= mine.x1 <= panel.x1 + 1
    for first, second in itertools.pairwise(points):
        if first["series"] == second["series"]:
            for share in (i / 20 for i in range(21)):
                (xa, ya), (xb, yb) = axes.transData.transform(
                    [(first["x"], first["y"]), (second["x"], second["y"])]
                )
                x, y = xa + share * (xb - xa), ya + share * (yb - ya)
                assert not (mine.x0 < x < mine.x1 and mine.y0 < y < mine.y1)


@WIDE
def test_series_that_coincide_are_all_seen(wide):
    names = ["one process", "snapshot partition", "vertex partition"]
    points = [{"series": n, "x": x, "y": 1.0 / x} for n in names for x in range(1, 10)]
    figure = drawn("sweep", points, {"together": True, "xlog": False}, wide)
    marks = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", None)]
    where = {line.get_marker(): set() for line in marks}
    for line in marks:
        where[line.get_marker()].add(float(line.get_xdata()[0]))
    assert [len(spots) for spots in where.values()] == [3, 3, 3]
    assert len(set.union(*where.values())) == 9
    widths = {line.get_linewidth() for line in figure.axes[0].lines if line not in marks}
    assert len(widths) == 3
    assert any("thick to thin" in text for text, _ in words(figure))


@WIDE
def test_a_split_says_where_its_phases_are_from(wide):
    make, _ = fake_points.POINTS["time_split"]
    usual = " ".join(text for text, _ in words(drawn("time_split", make(), {}, wide)))
    assert "phases from a second, instrumented run" in usual
    assert "total without instruments" in usual
    options = {"phases_from": "phases timed in the same epochs"}
    other = " ".join(text for text, _ in words(drawn("time_split", make(), options, wide)))
    assert "phases timed in the same epochs" in other
    assert "instrument" not in other


def test_nothing_is_called_not_attributed_where_phases_fill_their_bar():
    bar = {"row": "a", "system": "esdg", "total": 1.0}
    full = [{**bar, "phase": "compute", "seconds": 0.6}, {**bar, "phase": "transfer",
                                                          "seconds": 0.4}]  # fmt: skip
    said = [text for text, _ in words(drawn("time_split", full, {}, True))]
    assert "not attributed" not in said
    less = [full[0], {**full[1], "seconds": 0.3}]
    assert "not attributed" in [text for text, _ in words(drawn("time_split", less, {}, True))]


def test_the_footer_of_a_split_says_no_less_than_its_bars_show():
    bar = {"row": "a", "system": "esdg", "phase": "compute", "seconds": 2.2, "total": 1.0}
    other = {**bar, "row": "b", "seconds": 0.9}

    def said(*points, **options):
        return " ".join(text for text, _ in words(drawn("time_split", points, options, True)))

    told = said({**bar, "slowdown": 0.387}, {**other, "slowdown": 0.1})
    assert "at most 120.0 % slower" in told
    assert "38.7 %" not in told
    assert "at most 38.7 % slower" in said({**other, "slowdown": 0.387})  # idle time, in no phase
    same = {"phases_from": "from later epochs"}
    assert "at most 120.0 % past their totals" in said(bar, other, **same)
    assert "past their totals" not in said(other, **same)
    assert "past their totals" not in said({**bar, "projected": True}, other, **same)
    assert "past their totals" not in said({**bar, "pipelined": True}, other, **same)


def test_values_below_zero_are_inside_the_panel():
    points = [{"series": "a", "x": x, "y": y} for x, y in ((2, -1.0), (4, 0.5))]
    figure = drawn("sweep", points, {"ylog": False}, True)
    low, high = figure.axes[0].get_ylim()
    assert low < -1.0
    assert high > 0.5


@pytest.mark.parametrize("count", [1, 4, 7, 25])
def test_all_dots_of_a_category_lie_within_its_row(count):
    points = [
        {"panel": "a", "series": f"s{n % 5}", "x": name, "y": float(n + 1)}
        for name in ("one", "two") for n in range(count)
    ]  # fmt: skip
    (axes,) = drawn("sweep", points, {"ylog": False, "sort": False}, True).axes
    places = [y for line in axes.lines if line.get_marker() not in ("None", None, "")
              for y in line.get_ydata()]  # fmt: skip
    assert len(places) == 2 * count
    assert sum(-0.5 < y < 0.5 for y in places) == sum(0.5 < y < 1.5 for y in places) == count


@WIDE
@pytest.mark.parametrize("kind", ["speedup", "failed_cells", "time_split", "claim_board"])
def test_footers_are_large_enough_to_be_read_and_lose_no_word(kind, wide):
    machine = "a machine whose name is as long as those that vendors like to give to their products"
    machine += ", and whose owner has added where in the building it can be found"
    make, options = fake_points.POINTS[kind]
    context = Context(
        machine=machine, run="0a1b2c3d", date="2026-01-02", noise=0.123, stamp="PARTIAL"
    )
    figure = drawn(kind, make(), options, wide, context)
    assert not cut(figure)
    said = " ".join(text for text, _ in words(figure))
    assert machine in said
    assert "noise floor ±12.3 %" in said
    smallest = min(t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip())
    pixels = smallest * 96 / 72
    assert pixels * (SHOWN / (96 * FULL) if wide else 1.3) >= 10
    stamp = place(figure, "PARTIAL")
    others = [box for text, box in words(figure) if text != "PARTIAL"]
    assert not any(stamp.overlaps(box) for box in others)


@pytest.mark.parametrize("put", [(), ("csv",), ("half.svg",), ("full.svg",), ("full.svg", "csv")])
def test_a_figure_whose_images_a_site_leaves_out_keeps_its_values(put, tmp_path):
    names = [f"f.{one}" if one == "csv" else f"f-{one}" for one in put]
    for name in names:
        (tmp_path / name).write_text('<svg width="72pt" height="36pt">')
    shown = images(".", tmp_path, DrawnFigure("f", "sweep", "f", "", "", [], names))
    there = any(name.endswith(".svg") for name in names)
    assert bool(shown["narrow"]) == bool(shown["size"]) == there
    assert ("./f.csv" in dict(shown["links"]).values()) == ("csv" in put)
