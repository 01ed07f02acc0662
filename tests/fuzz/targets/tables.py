"""Tables of events, read as the cards say, against a parser of plain Python."""

from __future__ import annotations

import datetime
import re
from fractions import Fraction

import numpy as np

from dgbench.datasets import cards
from dgbench.datasets.catalogue import DatasetVariant, FileRef, ReaderSpec
from dgbench.datasets.events import EventStream
from dgbench.datasets.readers import read
from tests.fuzz.target import sane, scratch, target

FORMS = {
    f"{card.name} {form.name}": form
    for card in cards().values()
    for form in card.forms
    if form.reader.format == "table"
}
_DELIMITER = {"comma": ",", "space": " ", "tab": "\t", "whitespace": " "}
_FIELD = {
    **{"src": "7", "dst": "3", "t": "11", "weight": "1.5", "label": "0", "skip": "x"},
    **{"feature": "0.5", "rest": "0.25"},
}
TOKENS = (
    *(b"nan", b"NaN", b"inf", b"-inf", b"NULL", b"N/A", b"", b"-1", b"0x10", b"1e400", b"1e39"),
    *(b"9223372036854775807", b"9223372036854775808", b"2147483647", b"2147483648", b"1.0"),
    *(b'"', b'""', b"\r", b"\r\n", b"\n\n", b",", b"\t", b" ", b"%", b"%\n", b"\x00", b"\xff"),
    *(b"\xef\xbb\xbf", b"2000-01-02", b"1582-10-15", b"9999-12-31", b"true", b"+1", b"1_0"),
)


def first_lines() -> list[bytes]:
    """A small table of every form of every card, its name in front."""
    found = []
    for name, form in FORMS.items():
        spec = form.reader
        fields = [_FIELD[role] for role in spec.columns]
        if spec.time == "date":
            fields[spec.columns.index("t")] = "2000-01-02"
        row = _DELIMITER[spec.delimiter].join(fields)
        head = "header\n" * spec.skip
        mark = f"{spec.comment} about\n" if spec.comment else ""
        found.append(f"{name}\n{mark}{head}{row}\n{row}\n".encode())
    return found


@target("table", seeds=first_lines, kind="lines", tokens=TOKENS)
def table(data: bytes) -> None:
    """Tables of events, each form of each card (its name is the first line)."""
    name, _, text = data.partition(b"\n")
    form = FORMS.get(name.decode("latin-1"))
    if form is None:
        form = list(FORMS.values())[len(name) % len(FORMS)]
    path = scratch("table") / "events.csv"
    path.write_bytes(text)
    check(form.reader, read(form, [path]), text)


def check(spec: ReaderSpec, raw, text: bytes) -> None:
    """Check that the table is a stream, and holds the records that a plain parser finds in the
    text."""
    names = ("num_nodes", "num_src", "weight", "edge_feat", "node_feat", "label")
    columns = {name: getattr(raw, name) for name in names}
    stream = EventStream.build(raw.src, raw.dst, raw.t, sort=True, **columns)
    sane(len(stream) == raw.src.size, "events were lost")
    if b'"' in text:  # quoting is left to the library
        return
    rows = plain_rows(spec, text)
    sane(len(rows) == raw.src.size, f"{raw.src.size} events of {len(rows)} lines")
    columns = list(spec.columns)
    if not rows:
        return
    if columns[-1] == "rest":
        columns[-1:] = ["feature"] * (len(rows[0]) - len(columns) + 1)
    place = {role: number for number, role in enumerate(columns)}
    # Times that float64 cannot tell apart are counted from the first one, which a note says.
    first = min(Fraction(fields[place["t"]]) for fields in rows) if raw.notes else 0
    for row, fields in enumerate(rows):
        sane(len(fields) == len(columns), f"row {row + 1} has {len(fields)} fields")
        same_numbers(spec, raw, row, {role: fields[at] for role, at in place.items()}, first)
    same_vertices(spec, raw, [[fields[place[s]] for fields in rows] for s in ("src", "dst")])


def plain_rows(spec: ReaderSpec, text: bytes) -> list[list[str]]:
    """Fields of every line that is not empty, behind comments and header.

    White space alone is an empty table, behind comments, too.
    """
    words = text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    lines = re.split("\r\n|\n|\r", words)
    if spec.comment:
        lines = [line for line in lines if not line.lstrip(" \t").startswith(spec.comment)]
    if not "".join(lines).encode("utf-8", "surrogateescape").strip():
        return []
    if spec.delimiter == "whitespace":
        lines = [re.sub("[ \t\f\v]+", " ", line).strip(" ") for line in lines]
    return [line.split(_DELIMITER[spec.delimiter]) for line in lines[spec.skip :] if line]


def same_numbers(
    spec: ReaderSpec, raw, row: int, fields: dict[str, str], first: Fraction | int
) -> None:
    if spec.time == "number" and "t" in fields:
        wanted = float(Fraction(fields["t"]) - first) if first else float(fields["t"])
        sane(raw.t[row] == wanted, f"time {fields['t']!r} became {raw.t[row]}")
    if spec.time == "date":
        day = datetime.date.fromisoformat(fields["t"].strip())
        days = (day - datetime.date(1970, 1, 1)).days
        sane(raw.t[row] == days * 86400, f"date {fields['t']!r} became {raw.t[row]}")
    if "weight" in fields:
        one = np.float32(float(fields["weight"]))
        sane(raw.weight[row] == one, f"weight {fields['weight']!r} became {raw.weight[row]}")
    if "label" in fields:
        sane(raw.label[row] == whole(fields["label"]), f"label {fields['label']!r}")


def whole(word: str) -> int:
    """A whole number however it is written: `7`, `+7`, `007`, `7.0` or `7e0`."""
    sane(re.fullmatch(r"\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*", word), f"{word!r} became a number")
    found = Fraction(word)
    sane(found.denominator == 1, f"{word!r} became a whole number")
    return int(found)


def same_vertices(spec: ReaderSpec, raw, sides: list[list[str]]) -> None:
    """Two ends are one vertex where their names are equal, and only there."""
    named = spec.ids.startswith("names")
    numbers = [[v.strip() if named else whole(v) for v in side] for side in sides]
    one_set = raw.num_src is None
    names = [[(0 if one_set else k, v) for v in side] for k, side in enumerate(numbers)]
    flat = [*names[0], *names[1]]
    ids = [*raw.src.tolist(), *raw.dst.tolist()]
    if spec.ids == "keep":
        sane(ids == [v for _, v in flat], "kept ids changed")
        return
    sane(len(set(zip(flat, ids, strict=True))) == len(set(flat)) == len(set(ids)), "ids were mixed")
    sane(raw.num_nodes == len(set(ids)), f"{raw.num_nodes} vertices for {len(set(ids))} ids")
    if not spec.ids.startswith("names"):
        ordered = sorted(set(zip(flat, ids, strict=True)))
        sane([i for _, i in ordered] == sorted(set(ids)), "ids are out of order")


KEEP = ReaderSpec(format="table", columns=("src", "dst", "t"), ids="keep", sorted=False)


@target("table-keep", seeds=[b"0,1,5\n2,1,6\n"], kind="lines", tokens=TOKENS)
def table_keep(data: bytes) -> None:
    """A table whose ids are kept."""
    path = scratch("table-keep") / "events.csv"
    path.write_bytes(data)
    form = DatasetVariant(name="kept", files=(FileRef(path="events.csv"),), reader=KEEP)
    check(KEEP, read(form, [path]), data)
