"""Strips over time: two ticks, labels above the limit, words where nothing was read."""

from __future__ import annotations

import csv
import io

import fake_points
import fake_run
import pytest

from dgbench.harness.figures import draw_points, over_time
from dgbench.harness.figures.palette import PHASES
from dgbench.harness.figures.phase_strip import OTHERS, SPARE, phase_looks
from dgbench.harness.figures.strips import HEADROOM, Scale, coarser, value_text
from dgbench.harness.figures.style import styled

POINTS, OPTIONS = fake_points.course_points(), {"workload": "HepTh (twin)"}


def figure(points, *, wide=True):
    with styled():
        return over_time.draw(points, OPTIONS, fake_run.CONTEXT, wide)


def texts(drawn):
    return [t.get_text() for axes in drawn.axes for t in axes.texts] + [
        t.get_text() for t in drawn.texts
    ]


@pytest.mark.parametrize("wide", [True, False])
def test_columns_share_seconds_and_strips_share_scales(wide):
    drawn = figure(POINTS, wide=wide)
    assert len(drawn.axes) == 3 * 5
    assert {axes.get_xlim() for axes in drawn.axes} == {(0.0, 9.7)}
    width = drawn.get_size_inches()[0]
    assert width == (7.0 if wide else 3.4)
    lefts = {round(axes.get_position().x0, 4) for axes in drawn.axes}
    assert len(lefts) == (3 if wide else 1)
    for axes in drawn.axes:
        ticks = axes.get_yticks()
        assert len(ticks) in (0, 2)
        if len(ticks):
            assert ticks[0] == 0
            assert axes.get_ylim()[1] == pytest.approx(ticks[1] * HEADROOM)


def test_peaks_are_numbered_above_the_limit_and_never_cut_off():
    drawn = figure(POINTS)
    for point in [p for p in POINTS if p["row"] == "gpu_memory"]:
        assert f"peak {value_text(max(point['high']), 'MiB')}" in texts(drawn)
    renderer = drawn.canvas.get_renderer()
    for axes in drawn.axes:
        for text in axes.texts:
            if text.get_text().startswith("peak"):
                box = text.get_window_extent(renderer).transformed(axes.transData.inverted())
                assert box.y0 > axes.get_yticks()[1] * 0.98
                assert box.x0 >= 0
                assert box.x1 <= axes.get_xlim()[1]


def test_a_peak_survives_when_pieces_of_time_are_merged():
    point = {"seconds": [i * 0.1 for i in range(400)], "low": [1.0] * 400, "step": 0.1,
             "high": [1.0] * 137 + [9.0] + [1.0] * 262}  # fmt: skip
    found = coarser(point, 1.5, 40.0)
    assert max(found["high"]) == 9.0
    assert min(found["low"]) == 1.0
    assert len(found["seconds"]) == len(found["low"]) == len(found["high"]) <= 1.5 * 72 / 1.8
    gone = coarser({**point, "low": [None] * 400, "high": [None] * 400}, 1.5, 40.0)
    assert set(gone["high"]) == {None}


def test_a_far_limit_does_not_press_the_data_flat_and_is_said():
    point = {"row": "memory", "unit": "MiB", "high": [410.0, None], "limit": 18 * 1024.0}
    scale = Scale.of("memory", [point])
    assert scale.far
    assert (scale.tick, scale.unit) == (500.0, "MiB")
    assert scale.said == ["MiB", "limit 18 GiB ↑"]
    near = Scale.of("memory", [{**point, "high": [9000.0]}])
    assert (near.tick, near.unit, near.far) == (18 * 1024.0, "GiB", False)
    assert Scale.of("gpu_power", [{**point, "unit": "W", "limit": None}]).tick == 500.0


def test_reasons_stand_in_the_strips_and_in_the_sentence():
    drawn = figure(POINTS)
    said = texts(drawn)
    assert sum("needs Hopper" in text for text in said) == 3
    assert any("no instruments" in text for text in said)
    assert any("power ended early: not offered: GPU is lost" in text for text in said)
    alt = over_time.describe(POINTS, OPTIONS, fake_run.CONTEXT)
    assert "4 strips have a reason" in alt
    assert "of 16 GiB" in alt


def test_the_table_and_the_csv_can_be_read(tmp_path):
    lines = over_time.flat(POINTS)
    assert len({tuple(line) for line in lines}) <= 2
    shown = draw_points("over_time", "f", "t", POINTS, tmp_path, fake_run.CONTEXT, OPTIONS,
                        widths=())  # fmt: skip
    assert shown.panels == 3
    table = list(csv.DictReader(io.StringIO((tmp_path / "f.csv").read_text())))
    assert len(table) == len(lines)
    powers = [line for line in table if (line["system"], line["row"]) == ("pipad", "gpu_power")]
    point = next(p for p in POINTS if (p["system"], p["row"]) == ("pipad", "gpu_power"))
    assert [float(line["high"]) for line in powers] == pytest.approx(point["high"], rel=1e-5)
    assert {line["row_ids"] for line in powers} == {"pipad-r1i"}
    assert any(line["failed"] for line in table)
    strips = over_time.summary(POINTS)
    assert not any(isinstance(value, list) for s in strips for k, value in s.items()
                   if k != "row_ids")  # fmt: skip
    assert next(s["peak"] for s in strips if s["strip"] == "phase compute") > 1
    assert sum("Hopper" in s["note"] for s in strips) == 3


def test_a_site_figure_of_four_processes_is_small(tmp_path):
    points = []
    for i in range(4):
        points += [{**p, "panel": f"{p['panel']} {i}"} for p in POINTS if p["system"] == "pygt-g"]
    for width in ("full", "half"):
        draw_points("over_time", "f", "t", points, tmp_path, fake_run.CONTEXT, OPTIONS,
                    flavour="site", widths=(width,))  # fmt: skip
        assert (tmp_path / f"f-{width}.svg").stat().st_size < 60_000


def test_phases_have_looks_bound_to_their_names():
    met = ["update", "score", "odd", "compute", "even", None]
    found = phase_looks(met)
    assert list(found) == ["compute", "update", "score", "odd", "even"]
    assert found["compute"] == PHASES["compute"]
    assert found["odd"] != found["even"]
    assert {found["odd"], found["even"]} <= set(SPARE)
    assert not set(OTHERS) & set(PHASES)
    looks = [*PHASES.values(), *OTHERS.values(), *SPARE]
    assert len(set(looks)) >= len(looks) - 1  # fetch and load are one thing


def test_many_short_phases_share_cells_and_few_long_ones_stand_alone():
    length = {"pipad": 4.1, "pygt-g": 6.3}
    drawn = figure([p for p in POINTS if p["system"] in length])
    strips = [axes for axes in drawn.axes if axes.get_ylim() == (0.0, 1.0) and axes.patches]
    tops = [max(float(x[1]) for patch in axes.patches for x in patch.get_path().vertices)
            for axes in strips]  # fmt: skip
    assert all(top <= 1.0 + 1e-9 for top in tops)
