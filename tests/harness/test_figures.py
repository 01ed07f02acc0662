"""Figures: each kind draws with failures, and shows the numbers of its points."""

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
from dgbench.harness.figures.palette import STATUS_WORDS, SYSTEMS
from dgbench.harness.figures.style import styled
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError

NOISE = fake_run.CONTEXT.noise


def draw(kind, points, folder, options=None, context=fake_run.CONTEXT, **more):
    return draw_points(kind, "f", "A title", points, folder, context, options, **more)


# Kinds that write numbers: key of their panels, and the number of a point.
NUMBERED = {
    "speedup": ("panel", lambda p: p["value"]),
    "across": ("panel", lambda p: p["value"]),
    "time_split": ("panel", lambda p: p["total"]),
    "failed_cells": ("model", lambda p: p["seconds"]),
    "ablation": ("panel", lambda p: p["gain"] if p["step"] else p["seconds"]),
    "limit_share": ("panel", lambda p: p["value"]),
    "correctness": ("panel", lambda p: p["seconds"]),
    "changes": ("panel", lambda p: 100 * (p["value"] - 1)),
    "device_use": ("panel", lambda p: p["value"]),
}
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


@pytest.mark.parametrize("kind", NUMBERED)
def test_every_number_and_failure_stands_in_its_panel(kind):
    make, options = fake_points.POINTS[kind]
    key, value = NUMBERED[kind]
    module = importlib.import_module(f"dgbench.harness.figures.{kind}")
    with styled():
        figure = module.draw(make(), options, fake_run.CONTEXT, True)
    points = [p for p in make() if not p.get("fold") and p.get("word") != "SAME"]
    alone = len({p.get(key) for p in points}) == 1
    panels = {None if alone else axes.get_title(loc="left"): axes for axes in figure.axes[::-1]}
    for point in points:
        axes = panels[None if alone else point.get(key)]
        said = [text.get_text().replace("\n", " ") for text in axes.texts]
        if point.get("failed"):
            status = point["failed"].partition(":")[0]
            words = ("not read", "not offered", STATUS_WORDS.get(status, status))
            assert any(word in text for text in said for word in words), point
        else:
            assert any(says(text, value(point)) for text in said), (point, said)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_draws_with_failures_alone_and_the_same_bytes(kind, tmp_path):
    """A page holds many figures: ids and rules of one reach no other, and none fetches anything."""
    make, options = fake_points.POINTS[kind]
    points = make()
    assert kind == "claim_board" or any(p.get("failed") for p in points)
    for folder, widths in (("a", ["half"]), ("b", ["half", "full"])):
        drawn = draw(kind, points, tmp_path / folder, options, flavour="site", widths=widths)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name
    module = importlib.import_module(f"dgbench.harness.figures.{kind}")
    flat = getattr(module, "flat", list)
    assert len((tmp_path / "a" / "f.csv").read_text().splitlines()) == len(flat(points)) + 1
    assert drawn.image() in drawn.files
    if kind not in ("claim_board", "paper_vs_measured"):  # failures alone still make a figure
        failed = [{k: v for k, v in p.items() if not isinstance(v, float) and k != "word"}
                  | {"failed": "crash: signal 11"} for p in points[:20]]  # fmt: skip
        with styled():
            module.draw(failed, options, fake_run.CONTEXT, False)
    for path in (tmp_path / "b").glob("*.svg"):
        root = ElementTree.fromstring(path.read_text())
        own, ids = root.get("id"), [e.get("id") for e in root.iter() if e.get("id")]
        assert len(ids) == len(set(ids))
        assert all(one == own or one.startswith(f"{own}-") for one in ids)
        assert not re.search(r'@import|<image|DOCTYPE|(?:href|src)="https?:', path.read_text())


# Points that are refused, joined or judged.


@pytest.mark.parametrize("kind", ["ablation", "limit_share", "failed_cells", "frontier"])
def test_other_kinds_refuse_projections(kind, tmp_path):
    make, options = fake_points.POINTS[kind]
    with pytest.raises(InvalidInputError, match="projected"):
        draw(kind, [{**p, "projected": True} for p in make()], tmp_path, options)


POINT = {"row": "a", "system": "pipad", "baseline": "pygt"}
TIMED = {"system": "a", "seconds": 1.0}
RANKS = [{"series": "esdg", "x": x, "y": x, "projected": True} for x in (16, 32)]
LINES = [{"series": f"s{n}", "setting": "x", "memory": 1e6 + n, "rate": 5}
         for n in range(MAX_LINES + 1)]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "points", "options", "more", "named"),
    [
        ("speedup", [POINT], {}, {}, "value"),
        ("speedups", [POINT], {}, {}, "speedups"),
        ("speedup", [], {}, {"widths": ("third",)}, "width"),
        ("speedup", [], {}, {"flavour": "poster"}, "flavour"),
        ("correctness", [TIMED | {"recall": 1.0}], {"columns": ("beauty",)}, {}, "beauty"),
        ("correctness", [TIMED], {}, {}, "column"),
        ("curves", [{"series": "a", "x": 1, "y": 1.0}], {}, {}, "start"),
        ("frontier", LINES, {}, {}, "series"),
        ("scaling", RANKS, {"most": 32}, {}, "topology"),
        ("scaling", RANKS, {"topology": "two nodes", "most": 16}, {}, "32"),
    ],
)
def test_bad_points_and_options_are_named(tmp_path, kind, points, options, more, named):
    with pytest.raises((InvalidInputError, UnknownKeyError), match=named):
        draw(kind, points, tmp_path, options, **more)
    assert not list(tmp_path.iterdir())


def test_what_has_no_number_is_a_failure_and_nothing_is_an_empty_figure(tmp_path):
    assert draw("speedup", [], tmp_path).empty
    drawn = draw("speedup", [{**POINT, "value": math.nan}], tmp_path, widths=())
    assert drawn.points[0]["failed"].startswith("check")


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
    point = {"value": 2.0, "low": low, "high": high}
    assert side(point, noise) == expected


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


def test_systems_are_told_apart_with_every_vision_and_in_grey():
    hues = [mark.colour for name, mark in SYSTEMS.items() if name != "reference"]
    for (one, other), vision in itertools.product(itertools.combinations(hues, 2), VISIONS):
        assert difference(one, other, vision) >= 12
        assert abs(lightness(one) - lightness(other)) >= 6
