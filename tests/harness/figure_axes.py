"""Figures of two axes held against their CSV: marks stand where ticks put their values.

Each check takes a picture that was read back, the lines of the CSV and the figure's options.
"""

from __future__ import annotations

import itertools
import math
import re
from statistics import median

from figure_rows import BLACK, check_failed, check_twins, of, panels, plain, titled
from svg_text import says

from dgbench.harness.figures.palette import STATUS_WORDS
from dgbench.harness.figures.strips import NAMES


def is_log(rows, key, asked):
    """Return True if an axis is logarithmic: as requested, but never with values at or below 0."""
    return asked and min(float(row[key]) for row in rows) > 0


def check_sweep(picture, rows, options):
    printed = [r for r in rows if r.get("paper") == "True" or r["series"].endswith(", paper")]
    names = titled(dict.fromkeys(row["series"] for row in rows if row not in printed))
    colours = picture.legend()
    words = any(re.fullmatch(r"[-+.\de]+", row["x"]) is None for row in rows)
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        good = [row for row in mine if not row.get("failed")]
        up_is_log = is_log(good, "y", options.get("ylog", True))
        looks_of = {row["series"]: colours.get(names.get(row["series"])) for row in good}
        looks_of |= {row["series"]: BLACK for row in printed}
        if words:
            read = dict(picture.row_labels(box))
            assert {plain(label) for label in read} == {row["x"] for row in mine}
            check_twins(read, mine, "x")
            heights = {plain(label): y for label, y in read.items()}
            scale = picture.scale(box, up=False, log=up_is_log)
            for row in good:
                place, colour = scale.place(float(row["y"])), looks_of[row["series"]]
                assert picture.marked(place, heights[row["x"]], colour, 8), row
            said = picture.beside(box)
            for row in mine:
                if row.get("failed"):
                    (text,) = [w.text for k, v in said.items() if plain(k) == row["x"] for w in v]
                    check_failed(text, row)
                    assert names[row["series"]] in text or len(names) == 1
            continue
        across = picture.scale(box, up=False, log=is_log(good, "x", options.get("xlog", True)))
        up = picture.scale(box, up=True, log=up_is_log)
        last = max(float(row["x"]) for row in good)
        sparse = options.get("together") or options.get("marks") == "few"
        beside = [w for w in picture.words if 0 < w.left - box.right < 12
                  and box.holds(box.left, w.y, 4) and w.text in names.values()]  # fmt: skip
        heights = {}
        for row in good:
            x, y = float(row["x"]), float(row["y"])
            assert sparse or picture.marked(across.place(x), up.place(y), looks_of[row["series"]])
            if x == last and row not in printed:
                heights[names[row["series"]]] = up.place(y)
        if beside:  # names stand beside the ends of their lines, in the order of these
            assert {w.text for w in beside} == set(heights)
            read = [heights[w.text] for w in sorted(beside, key=lambda w: w.y)]
            assert all(low <= high + 1 for low, high in itertools.pairwise(read))
        for row in mine:
            if row.get("failed"):
                start = f"{names[row['series']]}: "
                (text,) = [w.text for w in picture.words
                           if w.text.startswith(start) and box.holds(w.left, w.y)]  # fmt: skip
                check_failed(text, row)


def check_paper_vs_measured(picture, rows, options):
    (box,) = picture.panels
    factors = all(row.get("unit", "x") in ("x", "") for row in rows)
    good = [row for row in rows if not row["failed"]]
    values = {row["claim"]: (float(row["paper"]), float(row["measured"])) for row in good}
    off = [
        claim for claim, (paper, here) in values.items()
        if not 0.5 <= here / paper <= 2 or (factors and (here - 1) * (paper - 1) < 0)
    ]  # fmt: skip
    across, up = (picture.scale(box, up=which, log=True) for which in (False, True))
    listed = [w.text.split() for w in picture.words if " -> " in w.text]
    assert [claim for _, claim, *_ in listed] == off
    for mark, claim, *said in listed:
        paper, here = " ".join(said).split(" -> ")
        assert says(paper, values[claim][0])
        assert says(here, values[claim][1])
        x, y = across.place(values[claim][0]), up.place(values[claim][1])
        assert any(w.text == mark and math.dist((w.left, w.y), (x, y)) < 9 for w in picture.words)
    for paper, here in values.values():
        assert picture.marked(across.place(paper), up.place(here))
    missing = len(rows) - len(good)
    assert not missing or any(w.text == f"{missing} without a value" for w in picture.words)


def check_over_time(picture, rows, options):
    columns = list(dict.fromkeys(row["panel"] for row in rows))
    strips = [name for name in NAMES if of(rows, row=name)]
    assert len(picture.panels) == len(columns) * len(strips)
    tops = {plain(picture.title(box)): box for box in picture.panels if picture.title(box)}
    assert list(tops) == columns
    for column, top in tops.items():
        below = sorted((b for b in picture.panels if abs(b.left - top.left) < 1
                        and b.top >= top.top), key=lambda b: b.top)  # fmt: skip
        for strip, box in zip(strips, below, strict=False):
            named = [w for w in picture.words if w.left < 10 and box.holds(box.left, w.y, 4)]
            name = " ".join(w.text for w in sorted(named, key=lambda w: w.y))
            assert name.startswith(NAMES[strip][0].replace("\n", " "))
            mine = of(rows, panel=column, row=strip)
            said = [w for w in picture.words if box.holds(w.left, w.y)]
            text = " ".join(w.text for w in sorted(said, key=lambda w: w.y))
            failed = [row for row in mine if row["failed"]]
            highs = [float(row["high"]) for row in mine if row["high"]]
            if failed:
                assert failed[0]["failed"].partition(": ")[2].startswith(text.removesuffix(" ..."))
            elif NAMES[strip][1]:
                scale = 1024 if "GiB" in text else 1
                assert text.startswith("peak ")
                assert says(text, max(highs) / scale)
            else:
                assert not text


def check_frontier(picture, rows, options):
    names = titled(dict.fromkeys(row["series"] for row in rows))
    colours = picture.legend()
    (unit,) = {w.text.partition(", ")[2][:3] for w in picture.words if "peak memory, " in w.text}
    for panel, box in panels(picture, rows).items():
        across, up = (picture.scale(box, up=which, log=True) for which in (False, True))
        spots = {}
        for row in of(rows, panel=panel):
            if row["failed"]:
                who = f"{names[row['series']]}, {row['setting']}: "
                (text,) = [w.text for w in picture.words
                           if w.text.startswith(who) and box.holds(w.right, w.y)]  # fmt: skip
                check_failed(text, row)
                continue
            memory = float(row["memory"]) / {"MiB": 2**20, "GiB": 2**30, "KiB": 2**10}[unit]
            spot = across.place(memory), up.place(float(row["rate"]))
            assert picture.marked(*spot, colours[names[row["series"]]]), row
            said = row["setting"] + " (base)" * (row["base"] == "True")
            spots.setdefault(said, []).append(spot)
        for words in picture.words:
            if words.text in spots and box.holds(words.left, words.y):
                assert any(
                    words.left - 9 < x < words.right + 9 and abs(words.y - y) < 14
                    for x, y in spots[words.text]
                ), words


def check_scaling(picture, rows, options):
    for panel, box in panels(picture, rows).items():
        up = picture.scale(box, up=True, log=True)
        ticks = [w for w in picture.words if 0 < w.y - box.bottom < 14
                 and box.left < (w.left + w.right) / 2 < box.right]  # fmt: skip
        for row in of(rows, panel=panel):
            if row["failed"]:
                continue
            y = up.place(float(row["y"]))
            below = [(w.left + w.right) / 2 for w in ticks if w.text == row["x"]]
            inside = [m for m in picture.marks if box.holds(m.x, m.y, 3) and abs(m.y - y) < 1.5]
            assert inside, row
            assert not below or any(abs(m.x - x) < 1.5 for m in inside for x in below), row
        failed = [row for row in of(rows, panel=panel) if row["failed"]]
        said = [w.text for w in picture.words if box.holds(w.left, w.y)]
        for row in failed:
            assert any(STATUS_WORDS[row["failed"].partition(":")[0]] in text for text in said)


def check_curves(picture, rows, options):
    names = {n: "Reference (reference)" if n == "reference" else t
             for n, t in titled(dict.fromkeys(row["series"] for row in rows)).items()}  # fmt: skip
    colours = picture.legend()
    boxes = [box for box in picture.panels if picture.title(box)]
    columns = list(dict.fromkeys(row["panel"] for row in rows))
    assert len(boxes) == 2 * len(columns)
    for panel, pair in zip(columns, zip(boxes[::2], boxes[1::2], strict=True), strict=True):
        assert plain(picture.title(pair[0]).removesuffix(", per epoch")).startswith(panel)
        mine = of(rows, panel=panel)
        for box, key in zip(pair, ("x", "seconds"), strict=True):
            across = picture.scale(box, up=False, log=False)
            up = picture.scale(box if key == "x" or picture.row_labels(box) else pair[0],
                               up=True, log=False)  # fmt: skip
            spots = {}  # of every colour: forms of a system share one
            for series, title in names.items():
                curve = {}
                for row in of(mine, series=series):
                    if not row["failed"] and row[key] and row.get("reference") != "True":
                        curve.setdefault(row["x"], []).append((float(row[key]), float(row["y"])))
                spots.setdefault(colours.get(title), []).extend(
                    (
                        across.place(median(x for x, _ in seeds)),
                        up.place(median(y for _, y in seeds)),
                    )
                    for seeds in curve.values()
                )
            for colour, found in spots.items():
                marks = [m for m in picture.marks if m.colour == colour
                         and box.holds(m.x, m.y) and abs(m.y - box.bottom) > 2]  # fmt: skip
                assert bool(marks) == bool(found)
                assert all(min(math.dist((m.x, m.y), s) for s in found) < 1.5 for m in marks)
            said = [w.text for w in picture.words if box.holds(w.left, w.y)]
            for row in mine:
                if row["failed"]:
                    start = f"{names[row['series']]}: "
                    check_failed(next(t for t in said if t.startswith(start)), row)
