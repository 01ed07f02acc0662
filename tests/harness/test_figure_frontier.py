"""Gain from memory: the frontier is right, settings are named, and failures are crosses."""

from __future__ import annotations

import itertools

import fake_points
import fake_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_figure_layout import cut, drawn, words

from dgbench.harness.figures import draw_points
from dgbench.harness.figures.frontier import MAX_LINES, best
from dgbench.runtime.errors import InvalidInputError

WIDE = pytest.mark.parametrize("wide", [True, False])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=12))
@settings(deadline=None, max_examples=80)
def test_the_frontier_holds_what_nothing_beats(pairs):
    points = [{"memory": m, "rate": r} for m, r in pairs]

    def beaten(point):
        return any(
            other["memory"] <= point["memory"]
            and other["rate"] >= point["rate"]
            and (other["memory"], other["rate"]) != (point["memory"], point["rate"])
            for other in points
        )

    slow = {(p["memory"], p["rate"]) for p in points if not beaten(p)}
    front = best(points)
    assert [(p["memory"], p["rate"]) for p in front] == sorted(slow)
    assert all(a["rate"] < b["rate"] for a, b in itertools.pairwise(front))


def setting(memory, rate, name="a", **more):
    return {"series": name, "setting": f"{memory} MB", "memory": memory * 1e6, "rate": rate, **more}


@WIDE
def test_settings_are_named_once_and_inside(wide):
    points = [setting(10, 5), setting(20, 9, base=True), setting(30, 7), setting(40, 12)]
    figure = drawn("frontier", points, {}, wide)
    said = [text for text, _ in words(figure)]
    assert said.count("10 MB") == said.count("40 MB") == said.count("20 MB (base)") == 1
    assert "30 MB" not in said  # beaten in both: a small mark, no words
    assert "better" in said
    assert not cut(figure)


@WIDE
def test_names_of_settings_never_cover_each_other(wide):
    make, options = fake_points.POINTS["frontier"]
    figure = drawn("frontier", make(), options, wide)
    mine = [(t, b) for t, b in words(figure) if "blocks" in t or t == "better"]
    assert len(mine) > 8
    for i, (one, box) in enumerate(mine):
        for other, place in mine[i + 1 :]:
            assert not box.padded(-2).overlaps(place.padded(-2)), (one, other)


@WIDE
def test_what_ran_out_of_memory_is_a_cross_at_the_limit(wide):
    points = [setting(10, 5, limit=60e6), {**setting(90, 9, limit=60e6), "failed": "oom: 90 MB"}]
    figure = drawn("frontier", points, {}, wide)
    axes = figure.axes[0]
    cross = next(line for line in axes.lines if line.get_marker() == "x")
    x = cross.get_transform().transform((cross.get_xdata()[0], cross.get_ydata()[0]))[0]
    assert x == pytest.approx(axes.transData.transform((60e6 / 2**20, 1))[0], abs=1)
    said = " ".join(text for text, _ in words(figure))
    assert "90 MB: OOM" in said
    assert "limit of memory" in said
    assert not cut(figure)


def test_the_sentence_says_what_the_most_memory_buys(tmp_path):
    points = [setting(10, 5), setting(20, 9), setting(30, 7), setting(40, 12.5)]
    alt = draw_points("frontier", "f", "t", points, tmp_path, fake_run.CONTEXT, widths=()).alt
    assert "4x the memory (10 MB to 40 MB) buys 2.5x the events/s" in alt
    assert "1 of 4 settings are beaten in both" in alt
    alone = draw_points("frontier", "g", "t", points[:1], tmp_path, fake_run.CONTEXT, widths=()).alt
    assert "10 MB is best in both" in alone


def test_more_lines_than_can_be_read_are_refused(tmp_path):
    points = [setting(10 + i, 5, name=f"s{i}") for i in range(MAX_LINES + 1)]
    with pytest.raises(InvalidInputError, match="6 series"):
        draw_points("frontier", "f", "t", points, tmp_path, fake_run.CONTEXT)
    panels = [{**p, "panel": p["series"]} for p in points]
    drawn = draw_points(
        "frontier", "f", "t", panels, tmp_path, fake_run.CONTEXT, flavour="site", widths=("half",)
    )
    assert not drawn.empty
