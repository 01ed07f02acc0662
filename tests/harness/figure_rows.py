"""Figures of labelled rows held against their CSV: every number stands beside its row's label.

Each check takes a picture that was read back, the lines of the CSV and the figure's options.
"""

from __future__ import annotations

import csv
import math

import fake_run
from svg_text import says

from dgbench.harness.figures.palette import STATUS_WORDS, VERDICTS, looks
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
        titles = {"system": {row["system"]: names[row["system"]] for row in rows},
                  "dataset": {row["dataset"]: row["dataset"] for row in mine}}  # fmt: skip
        read = picture.beside(box)
        labels = [plain(label) for label in read]
        down, across = "dataset", "system"
        if labels != list(titles[down].values()):  # names too long to stand upright above few rows
            down, across = across, down
        assert labels == list(titles[down].values())
        if down == "dataset":
            check_twins(read, mine, "dataset")
        heads = {
            name: next((w.left + w.right) / 2 for w in picture.words if plain(w.text) == title
                       and 0 < box.top - w.y < 60 and box.left < w.right < box.right + 20)
            for name, title in titles[across].items()
        }  # fmt: skip
        best = {
            name: min((float(r["seconds"]) for r in of(mine, dataset=name) if r["seconds"]),
                      default=0)
            for name in titles["dataset"]
        }  # fmt: skip
        for (label, said), name in zip(read.items(), titles[down], strict=True):
            cells = {other: [] for other in heads}
            for words in said:
                middle = (words.left + words.right) / 2
                cells[min(heads, key=lambda s: abs(heads[s] - middle))].append(words.text)
            for other, texts in cells.items():
                (row,) = of(mine, **{down: name, across: other}) or [{"failed": "skipped"}]
                if row.get("failed"):
                    check_failed(" ".join(texts), row)
                    continue
                value, least = float(row["seconds"]), best[row["dataset"]]
                assert says(texts[0], value), (model, label, other, texts)
                assert len(texts) == 1 + (value > least)
                assert len(texts) == 1 or says(texts[1], value / least)


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


def check_claim_board(picture, rows, options):
    for paper in dict.fromkeys(row["paper"] for row in rows):
        mine = of(rows, paper=paper)
        (head,) = [w for w in picture.words if w.text == mine[0]["title"] and w.bold]
        (text,) = [w.text for w in picture.words if w.text.startswith(f"{len(mine)} claims")
                   and -1 < w.y - head.y < 16]  # fmt: skip
        counts = {look.word: sum(row["glyph"] == glyph for row in mine)
                  for glyph, look in VERDICTS.items()}  # fmt: skip
        said = text.partition(": ")[2].split(" · ") if ": " in text else []
        full = [f"{n} {word}" for word, n in counts.items() if n]
        assert said == full[: len(said)]


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
                assert text == ("not offered" if row.get("offered") == "False" else "not read")
            elif text.startswith("<"):
                assert 0 < float(row["value"]) < 0.01
            elif row["unit"].endswith("/s"):
                scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text.split()[1].removesuffix("/s"), 1)
                assert says(text.split()[0], float(row["value"]) / scale)
            else:
                assert says(text, float(row["value"]))
                assert text.endswith(f" {row['unit']}")
