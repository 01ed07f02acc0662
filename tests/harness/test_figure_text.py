"""Every number and label of every kind of figure stands where the figure's CSV puts it.

A figure is drawn, its SVG is read back as a reader would (a row is what its label stands beside, a
panel what its title stands above, a value what the ticks say), and compared with its CSV.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from statistics import median

import fake_points
import fake_run
import pytest
from svg_text import Picture, says

from dgbench.harness.figures import draw_points
from dgbench.harness.figures.draw import KINDS
from dgbench.harness.figures.palette import STATUS_WORDS, VERDICTS, looks
from dgbench.harness.figures.strips import NAMES
from dgbench.harness.utilisation import IDLE

NOISE = fake_run.CONTEXT.noise
BLACK = "#000"


def read_rows(path):
    """Lines of a CSV; a name that says "(twin)" itself has the mark in its own column."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [{"failed": "", **row} for row in csv.DictReader(file)]
    for row in rows:
        for key in ("row", "x", "dataset"):
            if row.get(key, "").endswith(" (twin)"):
                row |= {key: plain(row[key]), "twin": "True"}
    return rows


def titled(names):
    return {name: look.title for name, look in looks(names).items()}


def plain(label):
    return label.removesuffix(" (twin)")


def panels(picture, rows, key="panel"):
    """Panels by the name that the CSV gives them; each is there once."""
    names = list(dict.fromkeys(row.get(key) or "" for row in rows))
    boxes = {plain(picture.title(box)): box for box in picture.panels if picture.title(box)}
    if names == [""]:
        return {"": picture.panels[0]}
    assert list(boxes) == [plain(name) for name in names]
    return dict(zip(names, boxes.values(), strict=True))


def of(rows, **wanted):
    return [row for row in rows if all((row.get(k) or "") == v for k, v in wanted.items())]


def check_twins(labels, rows, key="row"):
    """A label is called a twin exactly where its rows are."""
    for label in labels:
        mine = [row for row in rows if row[key] == plain(label)]
        twin = any(row.get("twin") == "True" for row in mine)
        assert not mine or label.endswith("(twin)") == twin or "(twin)" in plain(label), label


def check_failed(text, row):
    status = row["failed"].partition(":")[0]
    assert STATUS_WORDS.get(status, status) in text.replace("\n", " "), (text, row)


def check_factor(text, row):
    """A text beside a row says its factor, "same" inside the noise floor, or why there is none."""
    if row.get("failed"):
        return check_failed(text, row)
    value = float(row["value"])
    if text == "same":
        assert 1 / (1 + NOISE) <= value <= 1 + NOISE
        return None
    assert says(text, value), (text, row)
    if "[" in text:
        low, high = text.partition("[")[2].rstrip("]").split(",")
        assert says(low, float(row["low"])), (text, row)
        assert says(high, float(row["high"])), (text, row)
    return None


def split_stamps(said):
    """Stamps of idle GPUs, and the other words."""
    return [w for w in said if w.text == IDLE], [w for w in said if w.text != IDLE]


def is_stamped(words, stamps):
    return any(abs(stamp.y - words.y) < 2 and stamp.left >= words.right for stamp in stamps)


def check_speedup(picture, rows, options):
    names = titled([row["system"] for row in rows])
    colours = picture.legend()
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        read = picture.beside(box)
        assert [plain(label) for label in read] == list(dict.fromkeys(r["row"] for r in rows))
        check_twins([x for x in read if of(mine, row=plain(x))], mine)
        scale = picture.scale(box, up=False, log=True)
        for label, said in read.items():
            here = of(mine, row=plain(label)) or [{"failed": "skipped"}]
            stamps, said = split_stamps(said)
            for words, row in zip(said, here, strict=True):
                assert is_stamped(words, stamps) == bool(row.get("idle"))
                check_factor(words.text, row)
                if not row.get("failed"):
                    place = scale.place(float(row["value"]))
                    assert picture.marked(place, words.y, colours[names[row["system"]]]), row
                    if row.get("paper"):
                        assert picture.marked(scale.place(float(row["paper"])), words.y, BLACK)


def check_across(picture, rows, options):
    series = list(dict.fromkeys(row["series"] for row in rows))
    colours = picture.legend()
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        read = picture.beside(box)
        assert [plain(label) for label in read] == list(dict.fromkeys(r["row"] for r in mine))
        check_twins(read, mine)
        scale = picture.scale(box, up=False, log=True)
        for label, said in read.items():
            stamps, said = split_stamps(said)
            printed = {r["paper"] for r in of(mine, row=plain(label)) if not r["failed"]} - {""}
            middle = sum(w.y for w in said) / len(said)
            for value in printed:
                assert picture.marked(scale.place(float(value)), middle, BLACK)
            for name, words in zip(series, said, strict=True):
                here = of(mine, row=plain(label), series=name)
                assert is_stamped(words, stamps) == any(row.get("idle") for row in here)
                if not here:
                    assert words.text == "not run"
                    continue
                check_factor(words.text, here[0])
                if not here[0].get("failed"):
                    place = scale.place(float(here[0]["value"]))
                    assert picture.marked(place, words.y, colours[name]), here


def check_time_split(picture, rows, options):
    names = titled([row["system"] for row in rows])
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        bars = list(dict.fromkeys((row["row"], row["system"]) for row in mine))
        read = picture.beside(box)
        for (label, said), (row, system) in zip(read.items(), bars, strict=True):
            first, _, last = label.partition(" · ")
            assert plain(first) == row
            assert last in (names[system], "")
            here = of(mine, row=row, system=system)
            check_twins([first], here)
            (words,) = said
            if here[0].get("failed"):
                check_failed(words.text, here[0])
            else:
                assert says(words.text, float(here[0]["total"]))


def check_failed_cells(picture, rows, options):
    names = titled([row["system"] for row in rows])
    for model, box in panels(picture, rows, "model").items():
        mine = of(rows, model=model)
        heads = {
            system: next((w.left + w.right) / 2 for w in picture.words if w.text == title
                         and 0 < box.top - w.y < 60 and box.left < w.right < box.right + 20)
            for system, title in names.items()
        }  # fmt: skip
        read = picture.beside(box)
        assert [plain(label) for label in read] == list(dict.fromkeys(r["dataset"] for r in mine))
        check_twins(read, mine, "dataset")
        for label, said in read.items():
            here = {row["system"]: row for row in of(mine, dataset=plain(label))}
            cells = {system: [] for system in names}
            for words in said:
                middle = (words.left + words.right) / 2
                cells[min(heads, key=lambda s: abs(heads[s] - middle))].append(words.text)
            best = min((float(r["seconds"]) for r in here.values() if r["seconds"]), default=0)
            for system, texts in cells.items():
                row = here.get(system, {"failed": "skipped"})
                if row.get("failed"):
                    check_failed(" ".join(texts), row)
                    continue
                value = float(row["seconds"])
                assert says(texts[0], value), (model, label, system, texts)
                assert len(texts) == 1 + (value > best)
                assert len(texts) == 1 or says(texts[1], value / best)


def check_ablation(picture, rows, options):
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        read = picture.beside(box)
        for (label, said), row in zip(read.items(), mine, strict=True):
            first = row["step"] == "0"
            assert label == (row["technique"] or "all off" if first else f"+ {row['technique']}")
            (words,) = said
            if row["failed"]:
                check_failed(words.text, row)
            elif words.text == "same" and row.get("same") != "True":
                assert 1 / (1 + NOISE) <= float(row["gain"]) <= 1 + NOISE
            elif words.text != "same":
                assert says(words.text, float(row["seconds"] if first else row["gain"]))
        for side in picture.panels:
            if abs(side.top - box.top) < 1 and side.left > box.right:
                for (_, said), row in zip(picture.beside(side).items(), mine, strict=True):
                    assert len(said) == bool(row["alone"])
                    if said and said[0].text != "same":
                        assert says(said[0].text, float(row["alone"]))


def is_log(rows, key, asked):
    """Whether an axis is a log one: as asked for, but never with values at or below 0."""
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


def check_limit_share(picture, rows, options):
    names = titled([row["system"] for row in rows])
    read = picture.beside(picture.panels[0])
    for (label, said), row in zip(read.items(), rows, strict=True):
        first, _, last = label.partition(" · ")
        assert (plain(first), last) == (row["row"], names[row["system"]])
        check_twins([first], [row])
        (words,) = said
        if row["failed"]:
            check_failed(words.text, row)
            continue
        value, limit = float(row["value"]), float(row["limit"])
        first, _, rest = words.text.partition(" of ")
        if not rest:
            assert says(words.text, 100 * value / limit)
            continue
        assert says(first, value)
        assert says(rest, limit)
        assert f" {row['unit']}, {row['limit_name']}" in rest


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


def check_claim_board(picture, rows, options):
    for paper in dict.fromkeys(row["paper"] for row in rows):
        mine = of(rows, paper=paper)
        (head,) = [w for w in picture.words if w.text == mine[0]["title"] and w.bold]
        (text,) = [w.text for w in picture.words if w.text.startswith(f"{len(mine)} claims: ")
                   and -1 < w.y - head.y < 16]  # fmt: skip
        counts = [sum(row["glyph"] == glyph for row in mine) for glyph in VERDICTS]
        said = text.partition(": ")[2].split(" · ")
        words = [look.word for look in VERDICTS.values()]
        assert said in ([f"{n} {w}" for n, w in zip(counts, words, strict=True)],
                        [str(n) for n in counts])  # fmt: skip


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


def check_correctness(picture, rows, options):
    names = titled([row["system"] for row in rows])
    columns = {"time": "seconds", "recall": "recall", "leaks": "leaks", "repeats": "duplicates",
               "same again": "repeats"}  # fmt: skip
    for panel, box in panels(picture, rows).items():
        mine = of(rows, panel=panel)
        heads = {columns[w.text]: w.right for w in picture.words if w.text in columns
                 and 0 < box.top - w.y < 12 and w.left > box.left}  # fmt: skip
        assert len(heads) >= 3
        read = picture.beside(box)
        for (label, said), row in zip(read.items(), mine, strict=True):
            assert label == names[row["system"]]
            cells = [w for w in said if w.left > box.right]
            if row["failed"]:
                check_failed(" ".join(w.text for w in said), row)
                assert not cells
                continue
            assert len(cells) == len(heads)
            for words in cells:
                key = min(heads, key=lambda k: abs(heads[k] - words.right))
                assert abs(heads[key] - words.right) < 1
                text = words.text.removeprefix("\N{BALLOT X} ")
                if row[key] == "":
                    assert text in ("not judged", "?")
                elif key == "repeats":
                    assert text == ("yes" if row[key] == "1" else "no")
                elif text.startswith("<"):
                    assert 0 < float(row[key]) < 0.001
                else:
                    assert says(text, float(row[key]) * (1 if key == "seconds" else 100))


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


def check_device_use(picture, rows, options):
    (box,) = picture.panels
    heads = {}
    for words in picture.words:
        middle = (words.left + words.right) / 2
        if 0 < box.top - words.y < 30 and box.left < middle < box.right:
            near = next((x for x in heads if abs(x - middle) < 3), middle)
            heads.setdefault(near, []).append(words)
    heads = {x: " ".join(w.text for w in sorted(mine, key=lambda w: w.y))
             for x, mine in heads.items()}  # fmt: skip
    counters = list(dict.fromkeys(row["counter"] for row in rows))
    assert [heads[x] for x in sorted(heads)] == counters[: len(heads)]
    read = picture.beside(box)
    assert [plain(label) for label in read] == list(dict.fromkeys(r["row"] for r in rows))
    check_twins(read, rows)
    for label, said in read.items():
        cells = {counter: [] for counter in heads.values()}
        for words in said:
            middle = (words.left + words.right) / 2
            cells[heads[min(heads, key=lambda x: abs(x - middle))]].append(words.text)
        for counter, texts in cells.items():
            (row,) = of(rows, row=plain(label), counter=counter)
            text = " ".join(texts)
            if row["failed"]:
                assert text == ("not offered" if "not offered" in row["failed"] else "not read")
            elif text.startswith("<"):
                assert 0 < float(row["value"]) < 0.01
            elif row["unit"].endswith("/s"):
                scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text.split()[1].removesuffix("/s"), 1)
                assert says(text.split()[0], float(row["value"]) / scale)
            else:
                assert says(text, float(row["value"]))
                assert text.endswith(f" {row['unit']}")


def check_changes(picture, rows, options):
    read = picture.beside(picture.panels[0])
    scale = picture.scale(picture.panels[0], up=False, log=True)
    sizes = []
    for label, said in read.items():
        here = of(rows, row=plain(label))
        if not here:  # what shares a word
            count, _, what = label.partition(" ")
            mine = [row for row in rows if row["fold"] == "True"]
            if what == "the same":
                mine = of(rows, word="SAME")
            assert int(count) == len(mine), label
            continue
        (row,) = here
        check_twins([label], here)
        (words,) = said
        if row["failed"]:
            check_failed(words.text, row)
            continue
        shown = words.text.partition(" [")[0]
        value = float(row["value"])
        assert says(shown, 100 * (value - 1) if "%" in shown else value), (label, shown)
        assert picture.marked(scale.place(value), words.y)
        sizes.append((row["word"] == "AMBG", -abs(math.log(value))))
    assert sizes == sorted(sizes)


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items()
          if name.removeprefix("check_") in KINDS}  # fmt: skip


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


CASES = [(kind, shape) for kind in KINDS for shape in ("even", "uneven")]


@pytest.mark.parametrize("width", ["full", "half"])
@pytest.mark.parametrize(("kind", "shape"), [*CASES, ("sweep", "words")])
def test_numbers_stand_where_the_csv_puts_them(kind, shape, width, tmp_path):
    points, options = categories() if shape == "words" else make_points(kind)
    if shape == "uneven":
        points = uneven(points, kind)
    draw_points(kind, "f", "A title", points, tmp_path, fake_run.CONTEXT, options,
                flavour="site", widths=(width,))  # fmt: skip
    rows = read_rows(tmp_path / "f.csv")
    assert rows
    CHECKS[kind](Picture(tmp_path / f"f-{width}.svg"), rows, options)


def test_every_kind_is_compared_with_its_csv():
    assert set(CHECKS) == set(KINDS)
