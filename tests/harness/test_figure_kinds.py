"""Scaling, correctness and curves: what each must draw, must not draw, and says in one sentence."""

from __future__ import annotations

import fake_points
import fake_run
import pytest
from test_figure_layout import WIDE, cut, drawn, place, words

from dgbench.harness.figures import Context, draw_points
from dgbench.harness.figures.correctness import fastest, wrong
from dgbench.harness.figures.curves import curve_of
from dgbench.harness.figures.framed import series_looks
from dgbench.harness.figures.palette import INK, RED, SYSTEMS
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError

KINDS = ("scaling", "correctness", "curves")


def said(figure):
    return [text.replace("\n", " ") for text, _ in words(figure)]


def lines(axes, style="-"):
    """ESDG's lines of an axes with more than one point in a style, as lists of places."""
    return [
        list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in axes.lines
        if len(line.get_xdata()) > 1 and line.get_linestyle() == style
        and line.get_color() == SYSTEMS["esdg"].colour
    ]  # fmt: skip


@WIDE
@pytest.mark.parametrize("kind", KINDS)
def test_no_words_are_cut(kind, wide):
    make, options = fake_points.POINTS[kind]
    assert not cut(drawn(kind, make(), options, wide, fake_run.CONTEXT))


def test_forms_of_a_system_share_its_colour():
    found = series_looks(["tgcn, dealt", "tgcn", "tgcn, equal width", "some words", "tgl, cached"])
    mine = [found[n].mark for n in ("tgcn", "tgcn, dealt", "tgcn, equal width")]
    assert {m.colour for m in mine} == {SYSTEMS["tgcn"].colour}
    assert len({m.marker for m in mine}) == 3
    assert found["tgcn"].mark == SYSTEMS["tgcn"]
    assert found["tgcn, dealt"].title.endswith(", dealt")
    assert not found["tgl, cached"].mark.filled
    assert found["some words"].title == "some words"


# Scaling.

TO = {"topology": "two nodes", "most": 16}


def ranks(xs, projected=False, **more):
    return [{"series": "esdg", "x": x, "y": x**0.8, "projected": projected, **more} for x in xs]


@WIDE
@pytest.mark.parametrize("first", [1, 8])
def test_no_line_joins_what_was_measured_and_what_was_not(wide, first):
    there = [x for x in (1, 8, 16) if x >= first]
    figure = drawn("scaling", ranks((1, 2, 4)) + ranks(there, True), TO, wide)
    (axes,) = figure.axes
    (rule,) = {line.get_xdata()[0] for line in axes.lines if line.get_color() == INK}
    (solid,), (dashed,) = lines(axes), lines(axes, "--")
    assert max(x for x, _ in solid) < rule < min(x for x, _ in dashed)
    assert [len(solid), len(dashed)] == [3, len(there)]
    text = said(figure)
    assert {"measured", "projected", "ideal", "projected to: two nodes"} <= set(text)
    beside = {t.get_text(): t.get_window_extent() for t in axes.texts}
    assert beside["measured"].x1 < beside["projected"].x0


@WIDE
def test_projections_are_hollow_and_measurements_filled(wide):
    figure = drawn("scaling", ranks((1, 2)) + ranks((4, 8), True), TO, wide)
    marks = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", None)]
    assert [line.get_markerfacecolor() == "white" for line in marks] == [False, False, True, True]


def test_a_speed_below_the_dictionary_is_told_from_one_that_is_the_same():
    both = {"system": "gnnflow", "baseline": "TGL"}
    points = [
        {**both, "row": "alike", "value": 1.0, "low": 0.9, "high": 1.1},
        {**both, "row": "guessed", "value": 3.0, "low": 2.9, "high": 3.1, "below": "MRR 0.1"},
    ]
    (told,) = [text for text in said(drawn("speedup", points, {}, True)) if "hollow" in text]
    assert "guessed" in told
    assert "alike" not in told


@WIDE
def test_the_error_of_the_model_stands_in_the_plot_or_that_nobody_measured_it(wide):
    known = ranks((4, 8), True, model_error=0.17, model_error_on="4 exchanges")
    assert "model off by 17 % on 4 exchanges" in said(drawn("scaling", known, TO, wide))
    unknown = said(drawn("scaling", ranks((4, 8), True), TO, wide))
    assert "model's error: not measured" in unknown
    assert "projected, nothing measured" in unknown
    alone = said(drawn("scaling", ranks((1, 2)), {}, wide))
    assert not any("model" in text or "projected" in text for text in alone)


def test_a_projection_names_its_topology_and_ends_where_the_paper_ends():
    with pytest.raises(InvalidInputError, match="'topology'"):
        drawn("scaling", ranks((4, 8), True), {"most": 16}, True)
    with pytest.raises(InvalidInputError, match="32 ranks, the paper has 16"):
        drawn("scaling", ranks((16, 32), True), TO, True)
    with pytest.raises(InvalidInputError, match="at least 1"):
        drawn("scaling", ranks((0.5, 1)), {}, True)


@WIDE
def test_a_panel_without_measurements_says_so(wide):
    points = [*ranks((1, 2), panel="a"), *ranks((4, 8), True, panel="a"),
              *ranks((4, 8), True, panel="b")]  # fmt: skip
    assert "not measured" in said(drawn("scaling", points, TO, wide))


def test_scaling_is_told_in_one_sentence(tmp_path):
    make, options = fake_points.POINTS["scaling"]
    alt = draw_points(
        "scaling", "f", "t", make(), tmp_path, fake_run.CONTEXT, options, widths=()
    ).alt
    assert "Measured at 4 ranks: ESDG 2.8x" in alt
    assert "projected at 128 ranks" in alt
    assert "off by at most 17 %" in alt
    assert alt.endswith("2 failed.")
    plain = [p for p in make() if not p.get("projected")]
    measured = draw_points("scaling", "g", "t", plain, tmp_path, Context(), {}, widths=())
    assert "project" not in measured.alt


# Correctness.


def contenders():
    return [
        {"system": "gnnflow", "seconds": 0.02, "recall": 1.0, "leaks": 0.0},
        {"system": "tgl", "seconds": 0.03, "recall": 1.0, "leaks": 0.0},
        {"system": "quick", "seconds": 0.001, "recall": 0.9996, "leaks": 0.0},
    ]


def test_what_is_wrong_takes_no_part_in_fastest():
    points = contenders()
    assert [wrong(p, {}) for p in points] == [[], [], ["recall"]]
    assert [p["system"] for p in fastest(points, {}, None)] == ["gnnflow"]
    assert len(fastest([points[0], {**points[1], "seconds": 0.0203}], {}, 0.03)) == 2
    assert len(fastest([points[0], {**points[1], "low": 0.019}], {}, None)) == 2
    assert wrong({"system": "a", "seconds": 1.0, "deviation": 2e-5}, {}) == ["deviation"]
    assert not wrong({"system": "a", "deviation": 2e-5}, {"tolerance": 1e-4})
    assert [
        p["system"] for p in fastest([*points, {"system": "b", "seconds": 1e-6}], {}, None)
    ] == ["gnnflow"]  # who was not judged is not called right
    assert not wrong({"system": "a", "repeats": 0.0, "redraws": 3.0}, {})


@WIDE
def test_a_wrong_contender_is_a_red_cross_with_a_bold_cell(wide):
    figure = drawn("correctness", contenders(), {}, wide)
    text = said(figure)
    assert text.count("(wrong)") == 1
    assert text.count("fastest") == 1
    assert "\N{BALLOT X} 99.9 %" in text  # never rounded to 100 %
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [line.get_markeredgecolor() for line in crosses] == [RED]
    bold = [t for t in figure.axes[0].texts if t.get_text().startswith("\N{BALLOT X}")]
    assert [t.get_fontweight() for t in bold] == ["bold"]
    right, bad = place(figure, "fastest"), place(figure, "(wrong)")
    assert not right.overlaps(bad)


def test_half_width_has_three_checks_at_most():
    points = [{**p, "duplicates": 0.0, "repeats": 1.0} for p in contenders()]
    heads = {"recall", "leaks", "repeats", "same again"}
    assert heads <= set(said(drawn("correctness", points, {}, True)))
    half = set(said(drawn("correctness", points, {}, False)))
    assert len(heads & half) == 3


@WIDE
def test_a_check_that_nobody_made_says_so(wide):
    points = contenders()
    points[1]["recall"] = None
    text = " ".join(said(drawn("correctness", points, {}, wide)))
    assert "not judged" in text


def test_correctness_is_told_in_one_sentence(tmp_path):
    make, options = fake_points.POINTS["correctness"]
    alt = draw_points("correctness", "f", "t", make(), tmp_path, Context(), options, widths=()).alt
    assert "5 of 8 pass every check" in alt
    assert "fastest of these (recent, 1 hop): GNNFlow, 4.10 ms" in alt
    assert "wrong: another, released 1.2 (leaks, recall)" in alt
    assert alt.endswith("1 failed.")
    with pytest.raises(UnknownKeyError):
        drawn("correctness", contenders(), {"columns": ("beauty",)}, True)
    with pytest.raises(InvalidInputError, match="no column"):
        drawn("correctness", [{"system": "a", "seconds": 1.0}], {}, True)


# Curves.

START = {"start": "same seed", "ylabel": "accuracy"}


def runs(series="dgc", seeds=(0.0,), count=30, **more):
    return [
        {"series": series, "x": x, "y": 0.5 + 0.01 * x + d, "seconds": 2.0 * x, **more}
        for d in seeds
        for x in range(1, count + 1)
    ]


def test_a_curve_is_the_median_of_seeds_and_not_smoothed():
    curve = curve_of(runs(seeds=(0.0, 0.3, -0.1)))
    assert curve.ys == pytest.approx([0.5 + 0.01 * x for x in range(1, 31)])
    assert curve.high[0] - curve.low[0] == pytest.approx(0.4)
    assert curve.seeds == 3
    assert curve.seconds == [2.0 * x for x in range(1, 31)]
    assert curve.reached(0.6, True) == 9
    assert curve.reached(0.9, True) is None
    assert curve.reached(0.6, False) == 0
    jagged = [{"series": "a", "x": x, "y": float(x % 2)} for x in range(6)]
    assert curve_of(jagged).ys == [0, 1, 0, 1, 0, 1]
    assert curve_of(jagged).seconds is None


@WIDE
def test_epochs_and_seconds_share_y_and_the_reference_is_dashed_black(wide):
    points = runs() + [{**p, "seconds": None} for p in runs("reference", reference=True)]
    figure = drawn("curves", points, START, wide)
    one, two = figure.axes
    assert one.get_ylim() == two.get_ylim()
    assert [a.get_xlabel() for a in (one, two)] == ["epoch", "seconds of training"]
    (black,) = [line for line in one.lines if line.get_color() == "black"]
    assert black.get_linestyle() == "--"
    assert not [line for line in two.lines if line.get_color() == "black"]
    (mine,) = [line for line in one.lines if line.get_color() == SYSTEMS["dgc"].colour]
    assert mine.get_markevery() == (0, 7)  # of thirty; every tenth where there are forty
    text = said(figure)
    assert any(t.startswith("start: same seed; not timed: Reference") for t in text)
    assert "(from 0." in one.get_ylabel()


@WIDE
def test_the_time_to_a_target_is_dropped_to_the_axis(wide):
    points = runs(target=0.6) + runs("pygt", seeds=(-0.4,), target=0.6)
    figure = drawn("curves", points, {**START, "target_label": "60 %"}, wide)
    text = said(figure)
    assert "60 %" in text
    assert "20.0 s" in text  # the tenth epoch, two seconds each
    assert text.count("10") >= 1


@WIDE
def test_curves_without_times_have_one_panel_and_say_so(wide):
    points = [{k: v for k, v in p.items() if k != "seconds"} for p in runs()]
    figure = drawn("curves", points, START, wide)
    assert len(figure.axes) == 1
    assert any("kept no times" in t for t in said(figure))


def test_curves_are_told_in_one_sentence_and_say_how_they_start(tmp_path):
    points = runs(target=0.6) + runs("pygt", seeds=(-0.4,), target=0.6)
    points.append({"series": "pygt-g", "failed": "oom: 24 GiB"})
    alt = draw_points("curves", "f", "t", points, tmp_path, Context(), START, widths=()).alt
    assert alt == ("accuracy at the end: DGC 0.8, PyGT 0.4 (DGC best); target 0.6 reached by DGC "
                   "at 10 (20.0 s), PyGT never; 1 failed.")  # fmt: skip
    with pytest.raises(InvalidInputError, match="'start'"):
        draw_points("curves", "g", "t", points, tmp_path, Context(), {})
