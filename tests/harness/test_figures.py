"""Figures: each kind draws with failures, and shows the numbers of its points in their places."""

from __future__ import annotations

import importlib
import itertools
import math
import re
from xml.etree import ElementTree

import fake_points
import fake_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.figures import draw_points
from dgbench.harness.figures.colour import VISIONS, difference, lightness
from dgbench.harness.figures.correctness import fastest, wrong
from dgbench.harness.figures.curves import curve_of
from dgbench.harness.figures.draw import KINDS
from dgbench.harness.figures.frontier import MAX_LINES, best
from dgbench.harness.figures.noise import side
from dgbench.harness.figures.palette import STATUS_WORDS, SYSTEMS, close_colours, looks
from dgbench.harness.figures.strips import coarser
from dgbench.harness.figures.style import styled
from dgbench.harness.figures.svg import number, short_path
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.runtime.statistics import ConfidenceInterval, verdict

NOISE = fake_run.CONTEXT.noise


def draw(kind, points, folder, options=None, context=fake_run.CONTEXT, **more):
    return draw_points(kind, "f", "A title", points, folder, context, options, **more)


def titled(name):
    return looks([name])[name].title


# Rows of a kind: key of its panels, label of a point's row, and the number in it.
ROWED = {
    "speedup": ("panel", lambda p: p["row"], lambda p: p["value"]),
    "across": ("panel", lambda p: p["row"], lambda p: p["value"]),
    "time_split": ("panel", lambda p: f"{p['row']} · {titled(p['system'])}",
                   lambda p: p["total"]),
    "failed_cells": ("model", lambda p: p["dataset"], lambda p: p["seconds"]),
    "ablation": ("panel", lambda p: f"+ {p['technique']}" if p["step"] else "all off",
                 lambda p: p["gain"] if p["step"] else p["seconds"]),
    "limit_share": ("panel", lambda p: f"{p['row']} · {titled(p['system'])}",
                    lambda p: p["value"]),
    "correctness": ("panel", lambda p: titled(p["system"]), lambda p: p["seconds"]),
    "changes": ("panel", lambda p: p["row"], lambda p: 100 * (p["value"] - 1)),
    "device_use": ("panel", lambda p: p["row"], lambda p: p["value"]),
}  # fmt: skip
UNITS = {"ms": 1e-3, "µs": 1e-6, "k": 1e3, "M": 1e6}


def says(text, value):
    """Return True if a text shows a value, as exactly as its digits can."""
    match = re.match(r"(<?) ?([+-]?\d+(?:\.(\d+))?) ?(ms|µs|k(?=/s)|M(?=/s))?",
                     text.replace("\N{MINUS SIGN}", "-"))  # fmt: skip
    if match is None:
        return text == "same" and 1 / (1 + NOISE) <= value <= 1 + NOISE
    unit = UNITS.get(match[4], 1.0)
    shown, half = float(match[2]) * unit, 0.51 * unit * 10.0 ** -len(match[3] or "")
    return value < shown if match[1] else abs(shown - value) <= half


def figure_of(kind, points, options):
    module = importlib.import_module(f"dgbench.harness.figures.{kind}")
    with styled():
        figure = module.draw(points, options, fake_run.CONTEXT, True)
        figure.canvas.draw()
    return figure


def panels(figure, names):
    """Axes by the title above them; the only ones where there is one panel."""
    if names == [None]:
        return {None: figure.axes[0]}
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def texts_by_row(figure, axes):
    """Texts of a panel by the label of their row, which may stand beside another panel."""
    marked = next(a for a in (axes, *figure.axes) if abs(a.bbox.y0 - axes.bbox.y0) < 1
                  and any(t.get_text() for t in a.get_yticklabels()))  # fmt: skip
    place = marked.get_yaxis_transform().transform
    labels = [t.get_text().replace("\n", " ").replace(" (twin)", "")
              for t in marked.get_yticklabels()]  # fmt: skip
    heights = {label: place((0, tick))[1]
               for label, tick in zip(labels, marked.get_yticks(), strict=True)}  # fmt: skip
    rows = {label: [] for label in heights}
    for text in axes.texts:
        box = text.get_window_extent()
        near = min(heights, key=lambda label: abs(heights[label] - (box.y0 + box.y1) / 2))
        rows[near].append(text.get_text().replace("\n", " "))
    return rows


def uneven(points, key, label):
    """The points, of whose second panel the first row is gone and the others are turned round."""
    names = list(dict.fromkeys(p.get(key) for p in points))
    if len(names) < 2:
        return points
    second = [p for p in points if p[key] == names[1]]
    second = [p for p in second[::-1] if label(p) != label(second[0])]
    return [p for p in points if p[key] != names[1]] + second


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ROWED)
def test_every_number_and_failure_stands_in_its_row(kind, turned):
    make, options = fake_points.POINTS[kind]
    key, label, value = ROWED[kind]
    points = [p for p in make() if not p.get("fold") and p.get("word") != "SAME"]
    points = uneven(points, key, label) if turned and kind != "ablation" else points
    figure = figure_of(kind, points, options)
    names = list(dict.fromkeys(p.get(key) for p in points))
    for panel, axes in panels(figure, names).items():
        said_of = texts_by_row(figure, axes)
        for point in (p for p in points if p.get(key) == panel):
            said = said_of[label(point)]
            if point.get("failed"):
                status = point["failed"].partition(":")[0]
                words = ("not read", "not offered", STATUS_WORDS.get(status, status))
                assert any(w in text for text in said for w in words), point
            else:
                assert any(says(text, value(point)) for text in said), (point, said)


def spots(kind, points):
    """Places in data where marks of these points must be; x is left out where it is no number."""
    for p in points:
        if p.get("failed") or p.get("reference"):
            continue
        if kind == "frontier":
            yield p["memory"] / 2**20, p["rate"]
        elif kind == "paper_vs_measured":
            yield p["paper"], p["measured"]
        else:
            yield (None if kind == "scaling" else p["x"]), p["y"]


@pytest.mark.parametrize("kind", ["sweep", "scaling", "frontier", "paper_vs_measured", "curves"])
def test_every_point_is_marked_in_its_panel(kind):
    make, options = fake_points.POINTS[kind]
    points = make()
    if kind == "sweep":
        points += [{**p, "panel": "another", "y": 3 * p["y"]} for p in points[::-1] if "y" in p]
    if kind == "curves":
        points = [p for p in points if p.get("seed") == 0]
    names = list(dict.fromkeys(p.get("panel") for p in points))
    shown = panels(figure_of(kind, points, options), names)
    for name in names:
        mine = [p for p in points if p.get("panel") == name]
        axes = next(a for title, a in shown.items() if str(title).startswith(str(name)))
        marks = [xy for line in axes.lines
                 for xy in zip(line.get_xdata(), line.get_ydata(), strict=True)]  # fmt: skip
        for x, y in spots(kind, mine):
            assert any(math.isclose(y, b) and (x is None or math.isclose(x, a)) for a, b in marks)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_with_failures_alone_and_the_same_bytes(kind, tmp_path):
    """A page holds many figures: ids and rules of one reach no other, and none fetches anything."""
    make, options = fake_points.POINTS[kind]
    points = make()
    assert kind == "claim_board" or any(p.get("failed") for p in points)
    for width, folder in (("half", "a"), ("half", "b"), ("full", "b")):
        drawn = draw(kind, points, tmp_path / folder, options, flavour="site", widths=(width,))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    flat = getattr(importlib.import_module(f"dgbench.harness.figures.{kind}"), "flat", list)
    assert len((tmp_path / "a" / "f.csv").read_text().splitlines()) == len(flat(points)) + 1
    assert drawn.image() in drawn.files
    if kind not in ("claim_board", "paper_vs_measured"):  # failures alone still make a figure
        failed = [{k: v for k, v in p.items() if not isinstance(v, float) and k != "word"}
                  | {"failed": "crash: signal 11"} for p in points[:20]]  # fmt: skip
        alone = draw(kind, failed, tmp_path / "c", options, flavour="site", widths=("half",))
        assert not alone.empty
    seen = set()
    for path in (tmp_path / "b").glob("*.svg"):
        text = path.read_text()
        root = ElementTree.fromstring(text)
        own, ids = root.get("id"), [e.get("id") for e in root.iter() if e.get("id")]
        assert len(ids) == len(set(ids))
        assert not seen & set(ids)
        seen |= set(ids)
        assert all(one == own or one.startswith(f"{own}-") for one in ids)
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) <= set(ids)
        rules = re.findall(r"(?:^|\})([^{}]+)\{", re.search("<style>(.*)</style>", text)[1])
        assert all(rule.startswith(f"#{own} .") for rule in rules)
        assert not re.search(r'@import|<image|DOCTYPE|(?:href|src)="https?:', text)


# Points that are refused, joined or judged.


@pytest.mark.parametrize("kind", ["ablation", "limit_share", "failed_cells", "frontier"])
def test_other_kinds_refuse_projections(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    with pytest.raises(InvalidInputError, match="projected"):
        draw(kind, [{**p, "projected": True} for p in make()], tmp_path, options)


def test_a_projection_is_never_called_faster_or_the_same(tmp_path):
    common = {"system": "esdg", "baseline": "pygt", "projected": True}
    points = [{**common, "row": "a", "value": 1.001}, {**common, "row": "b", "value": 9.0}]
    alone = draw("speedup", points, tmp_path, widths=()).alt
    assert "faster" not in alone
    assert "the same" not in alone
    sure = {"value": 2.0, "low": 1.9, "high": 2.1, "projected": False}
    mixed = draw("speedup", [*points, {**common, **sure, "row": "c"}], tmp_path, widths=())
    assert "1 of 1 workloads" in mixed.alt


def test_a_projection_of_ranks_names_its_topology_and_ends_where_the_paper_ends(tmp_path):
    def ranks(*xs, projected=True):
        return [{"series": "esdg", "x": x, "y": x**0.8, "projected": projected} for x in xs]

    for points, options, name in (
        (ranks(4, 8), {"most": 16}, "topology"),
        (ranks(16, 32), {"topology": "two nodes", "most": 16}, "32"),
        (ranks(0.5, 1, projected=False), {}, "x|rank"),
    ):
        with pytest.raises(InvalidInputError, match=name):
            draw("scaling", points, tmp_path, options)


def test_bad_points_and_options_are_named(tmp_path):
    point = {"row": "a", "system": "pipad", "baseline": "pygt"}
    with pytest.raises(InvalidInputError, match="value"):
        draw("speedup", [point], tmp_path)
    with pytest.raises(UnknownKeyError, match="speedups"):
        draw("speedups", [point], tmp_path)
    with pytest.raises(UnknownKeyError, match="width"):
        draw("speedup", [], tmp_path, widths=("third",))
    with pytest.raises(UnknownKeyError, match="flavour"):
        draw("speedup", [], tmp_path, flavour="poster")
    with pytest.raises(UnknownKeyError, match="beauty"):
        draw("correctness", [{"system": "a", "seconds": 1.0, "recall": 1.0}], tmp_path,
             {"columns": ("beauty",)})  # fmt: skip
    with pytest.raises(InvalidInputError, match="column"):
        draw("correctness", [{"system": "a", "seconds": 1.0}], tmp_path)
    with pytest.raises(InvalidInputError, match="start"):
        draw("curves", [{"series": "a", "x": 1, "y": 1.0}], tmp_path)
    lines = [{"series": f"s{n}", "setting": "x", "memory": 1e6 + n, "rate": 5}
             for n in range(MAX_LINES + 1)]  # fmt: skip
    with pytest.raises(InvalidInputError, match="series"):
        draw("frontier", lines, tmp_path)
    assert draw("speedup", [], tmp_path).empty
    assert not list(tmp_path.iterdir())
    no_number = draw("speedup", [{**point, "value": math.nan}], tmp_path, widths=())
    assert no_number.points[0]["failed"].startswith("check")


REPEATED = {
    "time_split": {"row": "a", "system": "pipad", "phase": "compute", "seconds": 1.0, "total": 2.0},
    "speedup": {"row": "a", "system": "pipad", "baseline": "pygt", "value": 2.0},
    "sweep": {"series": "pipad", "x": 8, "y": 1.0},
}


@pytest.mark.parametrize("kind", REPEATED)
def test_points_at_one_place_are_drawn_as_their_mean_with_its_interval(kind, tmp_path):
    first = REPEATED[kind] | {"row_ids": ["a-r1"]}
    key = {"time_split": "seconds", "speedup": "value", "sweep": "y"}[kind]
    points = [first, first | {key: 3.0, "row_ids": ["a-r2"]}]
    (drawn,) = draw(kind, points, tmp_path, widths=()).points
    mean = math.sqrt(first[key] * 3) if kind == "speedup" else (first[key] + 3) / 2
    assert drawn[key] == pytest.approx(mean)
    assert drawn["low"] < drawn[key] < drawn["high"]
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
def test_a_side_needs_an_interval_outside_an_undisturbed_noise_floor(low, high, noise, expected):
    for exchanged in (False, True):
        ends = (low, high) if not exchanged or low is None else (1 / high, 1 / low)
        point = {"value": 0.5 if exchanged else 2.0, "low": ends[0], "high": ends[1]}
        wanted = "slower" if exchanged and expected == "faster" else expected
        assert side(point, noise) == wanted
        said = {"faster": "SLOW", "slower": "FAST"}.get(wanted, "AMBG")  # of times, new over old
        assert verdict(ConfidenceInterval(point["value"], *ends, 5), noise or 0.0) == said


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=30)
def test_the_frontier_holds_what_nothing_beats(pairs):
    points = [{"memory": m, "rate": r} for m, r in pairs]
    slow = {
        (m, r) for m, r in pairs
        if not any(a <= m and b >= r and (a, b) != (m, r) for a, b in pairs)
    }  # fmt: skip
    assert [(p["memory"], p["rate"]) for p in best(points)] == sorted(slow)


def test_a_wrong_contender_is_never_the_fastest():
    right = {"system": "gnnflow", "seconds": 0.02, "recall": 1.0, "leaks": 0.0}
    quick = {"system": "quick", "seconds": 0.001, "recall": 0.9996, "leaks": 0.0}
    unjudged = {"system": "b", "seconds": 1e-6}
    assert fastest([right, quick, unjudged], {}, None) == [right]
    close = {**right, "system": "tgl", "seconds": 0.0203}
    assert len(fastest([right, close], {}, 0.03)) == 2
    assert len(fastest([right, {**close, "low": 0.019}], {}, None)) == 2
    assert wrong(quick, {}) == ["recall"]
    assert wrong({"system": "a", "deviation": 2e-5}, {}) == ["deviation"]
    assert not wrong({"system": "a", "deviation": 2e-5}, {"tolerance": 1e-4})


def test_a_curve_is_the_median_of_seeds_and_not_smoothed():
    points = [{"series": "dgc", "x": x, "y": 0.01 * x + seed, "seconds": 2.0 * x}
              for seed in (0.0, 0.3, -0.1) for x in range(1, 31)]  # fmt: skip
    curve = curve_of(points)
    assert curve.ys == pytest.approx([0.01 * x for x in range(1, 31)])
    assert curve.high[0] - curve.low[0] == pytest.approx(0.4)
    assert curve.seconds == [2.0 * x for x in range(1, 31)]
    assert curve.reached(0.095, True) == 9
    assert curve.reached(0.9, True) is None
    assert curve.reached(0.6, False) == 0


def test_a_peak_survives_when_pieces_of_time_are_merged():
    point = {"seconds": [i * 0.1 for i in range(400)], "low": [1.0] * 400, "step": 0.1,
             "high": [1.0] * 137 + [9.0] + [1.0] * 262}  # fmt: skip
    assert max(coarser(point, 1.5, 40.0)["high"]) == 9.0
    gone = coarser({**point, "low": [None] * 400, "high": [None] * 400}, 1.5, 40.0)
    assert set(gone["high"]) == {None}


# SVG and colours.


@given(st.lists(st.tuples(st.integers(-300, 300), st.integers(-300, 300)), min_size=2, max_size=12))
@settings(deadline=None, max_examples=30)
def test_a_shortened_path_visits_the_same_places(pairs):
    spots = [(x / 7, y / 7) for x, y in pairs]
    d = "M " + "\nL ".join(f"{x:.6f} {y:.6f}" for x, y in spots) + " z"
    seen, x, y = [], 0.0, 0.0
    for command, rest in re.findall(r"([MLHV])([^MLHVz]*)", short_path(d)):
        values = [float(v) for v in re.findall(r"-?\d*\.?\d+", rest)]
        x = x if command == "V" else values[0]
        y = y if command == "H" else values[-1]
        seen.append((x, y))
    rounded = [(float(number(x)), float(number(y))) for x, y in spots]
    assert all(abs(a - b) <= 0.005 + 1e-9
               for pair, spot in zip(rounded, spots, strict=True)
               for a, b in zip(pair, spot, strict=True))  # fmt: skip
    assert seen == [spot for i, spot in enumerate(rounded) if i < 2 or spot != rounded[i - 1]]


def test_systems_are_told_apart_by_everyone():
    hues = [mark.colour for name, mark in SYSTEMS.items() if name != "reference"]
    for (one, other), vision in itertools.product(itertools.combinations(hues, 2), VISIONS):
        assert difference(one, other, vision) >= 12, (one, other, vision)
        assert abs(lightness(one) - lightness(other)) >= 6
    near = type("Near", (), {"name": "mine", "colour": "#3A8EF5"})
    assert any("mine" in note for note in close_colours([near]))
    alone, crowd = looks(["pipad"], {}), looks(["a", "b", "pipad", "c"], {})
    assert alone["pipad"].mark == crowd["pipad"].mark
    assert len({look.mark for look in crowd.values()}) == 4
