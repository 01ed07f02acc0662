"""Every number and label of every kind of figure stands where the figure's CSV puts it.

A figure is drawn, its SVG is read back as a reader would (a row is what its label stands beside, a
panel what its title stands above, a value what the ticks say), and compared with its CSV.
"""

from __future__ import annotations

import fake_points
import fake_run
import figure_axes
import figure_rows
import pytest
from figure_rows import read_rows
from svg_text import Picture

from dgbench.harness.figures import draw_points
from dgbench.harness.figures.draw import KINDS
from dgbench.harness.utilisation import IDLE

CHECKS = {
    name.removeprefix("check_"): check
    for module in (figure_rows, figure_axes)
    for name, check in vars(module).items()
    if name.removeprefix("check_") in KINDS
}


def uneven(points, kind):
    """The same points, of which the second panel lacks rows and has the others the other way round.

    Where a figure takes its rows, order or colours from another panel, they are now wrong.
    """
    key = "model" if kind == "failed_cells" else "panel"
    titles = list(dict.fromkeys(p.get(key) for p in points))
    if len(titles) < 2 or kind in ("over_time", "ablation", "curves"):
        return points
    row = {"failed_cells": "dataset", "sweep": "series", "frontier": "setting",
           "scaling": "series", "correctness": "system"}.get(kind, "row")  # fmt: skip
    second = [p for p in points if p.get(key) == titles[1]]
    names = list(dict.fromkeys(p[row] for p in second))[::-1]
    kept = [p for name in names[:-1] for p in second if p[row] == name]
    for point in kept[:1]:
        point["twin"] = not point.get("twin")
    first, *rest = ([p for p in points if p.get(key) == title] for title in titles)
    return [*first, *kept, *(p for mine in rest[1:] for p in mine)]


def make_points(kind):
    make, options = fake_points.POINTS[kind]
    if kind in ("speedup", "across"):
        points = make()
        return [{**p, "idle": f"{IDLE}: SM active 0.3 %"} if p["row"] == "PEMS08" and
                p.get("value") else p for p in points], options  # fmt: skip
    if kind == "sweep":
        lines = make()
        lines += [{**p, "panel": "another", **({"y": 3 * p["y"]} if "y" in p else {})}
                  for p in lines[::-1] if p["series"] != "pygt-g"]  # fmt: skip
        return lines, options
    return make(), options


def categories():
    """A sweep over words, with panels of other rows, and a series without a value."""
    points = [{**p, "panel": "bytes"} for p in fake_points.category_points()]
    more = [{**p, "panel": "time", "y": 7 / p["y"]} for p in points[::-1] if p["x"] != "PEMS08"]
    del more[0]["y"]
    more[0]["failed"] = "oom: 24 GiB"
    printed = [{**p, "series": "printed", "paper": True, "y": 1.1 * p["y"]} for p in points[::3]]
    return [*points, *printed, *more], {"ylabel": "bytes"}


def one_dataset():
    """Times of contenders with long names on one dataset of each model."""
    points = [p for p in fake_points.cell_points() if p["dataset"] in ("PEMS08", "Flickr")]
    return [{**p, "system": f"{p['system']} with all of its techniques"} for p in points
            if (p["dataset"] == "PEMS08") == (p["model"] == fake_points.MODELS[0])], {}  # fmt: skip


SHAPES = {"words": categories, "one": one_dataset}
CASES = [(kind, shape) for kind in KINDS for shape in ("even", "uneven")]


@pytest.mark.parametrize("width", ["full", "half"])
@pytest.mark.parametrize(("kind", "shape"), [*CASES, ("sweep", "words"), ("failed_cells", "one")])
def test_numbers_stand_where_the_csv_puts_them(kind, shape, width, tmp_path):
    points, options = SHAPES[shape]() if shape in SHAPES else make_points(kind)
    if shape == "uneven":
        points = uneven(points, kind)
    draw_points(kind, "f", "A title", points, tmp_path, fake_run.CONTEXT, options,
                flavour="site", widths=(width,))  # fmt: skip
    rows = read_rows(tmp_path / "f.csv")
    assert rows
    CHECKS[kind](Picture(tmp_path / f"f-{width}.svg"), rows, options)


@pytest.mark.parametrize("width", ["full", "half"])
def test_long_names_stand_beside_a_single_row_and_not_upright_above_it(width, tmp_path):
    points, options = one_dataset()
    draw_points("failed_cells", "f", "A title", points, tmp_path, fake_run.CONTEXT, options,
                flavour="site", widths=(width,))  # fmt: skip
    picture = Picture(tmp_path / f"f-{width}.svg")
    names = list(dict.fromkeys(point["system"] for point in points))
    for box in picture.panels:
        assert list(picture.beside(box)) == names


@pytest.mark.parametrize("ran", [True, False])
def test_only_values_are_called_counted(ran, tmp_path):
    points = fake_points.category_points()
    if not ran:
        points = [{"series": p["series"], "x": p["x"], "failed": "no GPU"} for p in points]
    draw_points("sweep", "f", "A title", points, tmp_path, fake_run.CONTEXT, {},
                flavour="site", widths=("full",))  # fmt: skip
    words = Picture(tmp_path / "f-full.svg").words
    assert any("counted" in line.text for line in words) == ran


def test_every_kind_is_compared_with_its_csv():
    assert set(CHECKS) == set(KINDS)
