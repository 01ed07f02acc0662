"""Finding out how a file of events is written: delimiter, header, comments, columns, ids, times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from dgbench.datasets.catalogue import Delimiter, ReaderSpec, VertexSpec
from dgbench.datasets.readers.arrays import stored_columns
from dgbench.datasets.readers.ids import MISSING, is_whole
from dgbench.datasets.readers.text import DELIMITERS, TextTable, count_comments, normalised
from dgbench.runtime.errors import DataError, InvalidInputError, unknown_key

ROLES: Final = ("src", "dst", "t", "weight", "label", "feature")
_NAMES: Final = {
    "src": ("src", "source", "from", "u", "user", "user_id", "sender", "src_id", "source_id"),
    "dst": ("dst", "destination", "target", "to", "v", "i", "item", "item_id", "receiver",
            "recipient", "dst_id", "target_id"),
    "t": ("t", "ts", "time", "timestamp", "date", "datetime", "when", "unixtime", "unix_time"),
    "weight": ("weight",),
    "label": ("label", "state_label"),
}  # fmt: skip
"""Names of columns whose role is plain."""
_IDS: Final = ("auto", "compact", "keep", "names")
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.I)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
_ROWS: Final = 200
"""Rows that are looked at."""
TIME_UNITS: Final = ("s", "ms", "us", "ns", "min", "h", "day", "step")
_LISTED: Final = 8
"""Most columns that are not used and named all the same."""
_TWO_KINDS: Final = ({"u", "user", "user_id"}, {"i", "item", "item_id"})
"""Names of columns of sources and destinations that are often two kinds of vertices."""
_FEATURES: Final = re.compile("features?$")
"""End of the last name of a header that stands for all columns from there on."""


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that a user gives for a file; those left out are guessed from its content.

    Attributes:
        columns: `src=from,dst=to,t=when`, with the roles of `ROLES` and names of the header, or
            numbers of columns from 1; `feature` may stand several times.
        delimiter: comma, semicolon, tab, space or whitespace. header: whether there is one.
        comment: what lines of comment begin with; "" where there are none.
        ids: compact, keep or names. bipartite: whether sources and destinations are two kinds.
        snapshots: windows that the events are cut into by default.
        time_unit: unit of times that are numbers, one of `TIME_UNITS`.
        vertices: a file with a row per vertex. vertex_columns: `id=...,label=...`.
    """

    columns: str = ""
    delimiter: str = ""
    header: bool | None = None
    comment: str | None = None
    ids: str = "auto"
    bipartite: bool = False
    snapshots: int | None = None
    time_unit: str = ""
    vertices: Path | None = None
    vertex_columns: str = ""

    def roles(self) -> list[tuple[str, str]]:
        """(role, column) as `columns` names them; InvalidInputError for what it cannot mean."""
        return _pairs("--columns", self.columns, ROLES, ("src", "dst", "t"))

    def check(self) -> None:
        """Raise InvalidInputError for words that are not known."""
        _one_of("--delimiter", self.delimiter, ("", *get_args(Delimiter)))
        _one_of("--ids", self.ids, _IDS)
        _one_of("--time-unit", self.time_unit, ("", *TIME_UNITS))

    def vertices_spec(self) -> VertexSpec:
        """Reader settings of the vertex file."""
        table = _Sniffed.of((self.vertices or Path()).expanduser(), FileOptions())
        asked = _pairs("--vertex-columns", self.vertex_columns, ("id", "label", "feature"), ("id",))
        if not asked:
            plain = {"id": ("id", "node", "vertex", "name"), "label": ("label", "class")}
            asked = _by_names(table.names, plain) if table.header else [("id", "1"), ("label", "2")]
        places = table.places(asked)
        columns = tuple(places.get(place, "skip") for place in range(table.width))
        return VertexSpec(
            columns=columns,
            delimiter=table.delimiter,
            skip=int(table.header),
            comment=table.comment,
        )


class TableGuess(msgspec.Struct):
    """Reader settings of a file, as far as its first rows and names of columns show them.

    Attributes:
        reader: settings of the reader. sentences: how they were inferred.
        columns: name of the column of each role.
        guessed: roles that nobody asked for and an event can do without.
    """

    reader: ReaderSpec
    sentences: list[str]
    columns: dict[str, str]
    guessed: tuple[str, ...] = ()

    def two_kinds(self) -> bool:
        """Return True if the names of the columns of sources and destinations say two kinds."""
        ends = (self.columns["src"].lower(), self.columns["dst"].lower())
        return all(end in kind for end, kind in zip(ends, _TWO_KINDS, strict=True))


def guess_table(path: Path, options: FileOptions, without: Sequence[str] = ()) -> TableGuess:
    """Infer the reader settings of a text table.

    Args:
        path: the file. options: what is known of it.
        without: roles that no column is guessed to have.

    Raises:
        InvalidInputError: options that are not known, or columns that the file does not have.
        DataError: it is empty, or nobody can say which columns are what.
    """
    options.check()
    table = _Sniffed.of(path, options)
    asked = options.roles()
    roles = asked or table.own_roles()
    roles = [(role, column) for role, column in roles if role not in without]
    places = table.places(roles)
    columns = [places.get(place, "skip") for place in range(table.width)]
    if table.features and not asked and "feature" not in without:
        columns[table.features :] = ["rest"]
    sample = {role: [row[at] for row in table.rows] for at, role in places.items()}
    ids = _ids_of(options, sample["src"] + sample["dst"])
    time = _time_of(path, sample["t"], options)
    reader = ReaderSpec(
        format="table",
        columns=tuple(columns),
        delimiter=table.delimiter,
        skip=int(table.header),
        comment=table.comment,
        ids=ids,
        time=time,
    )
    named = {role: table.names[place] for place, role in places.items()}
    return TableGuess(
        reader,
        [table.sentence(), table.roles_sentence(places, columns), _kinds(ids, time)],
        named,
        () if asked else _spare(named) + ("feature",) * ("rest" in columns),
    )


def guess_arrays(
    path: Path, form: str, options: FileOptions, without: Sequence[str] = ()
) -> TableGuess:
    """Infer the reader settings of a Parquet file or an npz archive; raises as `guess_table`."""
    options.check()
    there = stored_columns(path, form)
    asked = options.roles()
    roles = [pair for pair in asked or _by_names(list(there), _NAMES) if pair[0] not in without]
    _need(path, roles, list(there))
    fields: dict[str, Any] = {}
    for role, column in roles:
        if column not in there:
            error = unknown_key("column", column, there)
            raise InvalidInputError(f"{path.name}: {error}", hint=error.hint)
        fields[role] = (*fields.get(role, ()), column) if role == "feature" else column
    texts = "text" in (there[fields["src"]], there[fields["dst"]])
    ids = _ids_of(options, ["name"] if texts else ["1"])
    time: Literal["number", "timestamp"] = "number"
    if there[fields["t"]] in ("clock", "text"):
        time = "timestamp"
        _no_unit(options)
    reader = ReaderSpec(format=form, fields=fields, ids=ids, time=time)
    said = ", ".join(f"{role} = '{column}'" for role, column in roles)
    return TableGuess(
        reader,
        [f"{path.name}: {form}; {said}", _kinds(ids, time)],
        dict(roles),
        () if asked else _spare(fields),
    )


def _spare(roles: Mapping[str, Any]) -> tuple[str, ...]:
    """Roles of columns that an event can do without."""
    return tuple(role for role in ("weight", "label") if role in roles)


class _Sniffed(msgspec.Struct):
    """The head of a table of text.

    Attributes:
        path: the file. delimiter, header, comment: how it is written.
        names: of the columns, or their numbers from 1. rows: fields of the first rows.
        dropped: lines of comment.
        features: first of the columns of features that share the last name of the header, or 0.
    """

    path: Path
    delimiter: Delimiter
    header: bool
    comment: str
    names: list[str]
    rows: list[list[str]]
    dropped: int = 0
    features: int = 0

    @property
    def width(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, path: Path, options: FileOptions) -> _Sniffed:
        plain = TextTable.open(path, VertexSpec(columns=()))
        start = plain.data.lstrip()[:1].decode("latin-1")
        comment = options.comment
        if comment is None:
            comment = start if start in ("#", "%") else ""
        named = (options.delimiter,) if options.delimiter else tuple(DELIMITERS)
        tried = {one: _head(plain, one, comment) for one in named if one != "space"}
        if options.delimiter == "space":
            tried["space"] = _head(plain, "space", comment)
        delimiter = _best(tried)
        rows = tried[delimiter]
        if not rows:
            raise DataError(f"{path} has no rows")
        header = _has_header(rows) if options.header is None else options.header
        names = rows[0] if header else [str(place + 1) for place in range(len(rows[0]))]
        names = [name.strip() for name in names]
        rows = rows[1:] if header else rows
        if not rows:
            raise DataError(f"{path} has a header and no rows")
        features = 0
        if header and len(rows[0]) > len(names) and _FEATURES.search(names[-1].lower()):
            features = len(names) - 1
            names += [str(place + 1) for place in range(len(names), len(rows[0]))]
        for number, row in enumerate(rows):
            if len(row) != len(names):
                layout = VertexSpec(columns=tuple(names), delimiter=delimiter, skip=int(header),  # type: ignore[arg-type]
                                    comment=comment)  # fmt: skip
                raise TextTable(path, layout, plain.data).fault(
                    number, f"it has {len(row)} columns, {len(names)} are expected ({delimiter})"
                )
        dropped = count_comments(plain.data, comment)
        return cls(path, delimiter, header, comment, names, rows, dropped, features)  # type: ignore[arg-type]

    def own_roles(self) -> list[tuple[str, str]]:
        """Roles by the names of the header, or of three columns without one by their order."""
        if not self.header and self.width == 3:
            return [("src", "1"), ("dst", "2"), ("t", "3")]
        found = _by_names(self.names, _NAMES) if self.header else []
        _need(self.path, found, self.names)
        return found

    def places(self, asked: Sequence[tuple[str, str]]) -> dict[int, str]:
        """Role of each column that has one, by its place from 0."""
        places: dict[int, str] = {}
        for role, column in asked:
            if column in self.names:
                place = self.names.index(column)
            elif column.isdigit() and 1 <= int(column) <= self.width:
                place = int(column) - 1
            else:
                error = unknown_key("column", column, self.names)
                raise InvalidInputError(f"{self.path.name}: {error}", hint=error.hint)
            if place in places:
                raise InvalidInputError(
                    f"{self.path.name}: the column '{column}' is both {places[place]} and {role}"
                )
            places[place] = role
        return places

    def sentence(self) -> str:
        words = {"whitespace": "white space", "space": "single blanks"}
        said = [f"{words.get(self.delimiter, self.delimiter)} between columns"]
        said.append("a header" if self.header else "no header")
        if self.comment:
            lines = "line that begins" if self.dropped == 1 else "lines that begin"
            said.append(
                f"{self.dropped:,} {lines} with '{self.comment}' left out as comments "
                "(--comment '' reads them)"
            )
        return f"{self.path.name}: {', '.join(said)}"

    def roles_sentence(self, places: dict[int, str], columns: Sequence[str]) -> str:
        said = [
            f"{role} = " + (f"'{self.names[at]}'" if self.header else f"column {at + 1}")
            for at, role in sorted(places.items(), key=lambda item: ROLES.index(item[1]))
        ]
        if columns[-1] == "rest":
            said.append(f"features = '{self.names[self.features]}' and what follows")
        unused = [self.names[at] or "''" for at, role in enumerate(columns) if role == "skip"]
        if len(unused) > _LISTED:
            unused[_LISTED:] = [f"{len(unused) - _LISTED:,} more"]
        return ", ".join(said) + (f"; not used: {', '.join(unused)}" if unused else "")


def _head(plain: TextTable, delimiter: str, comment: str) -> list[list[str]]:
    """Fields of the first rows, read with a delimiter."""
    layout = VertexSpec(columns=(), delimiter=delimiter, comment=comment)  # type: ignore[arg-type]
    part = plain.data[: 1 << 18]
    if len(part) < len(plain.data):  # the last line may be cut
        part = part[: max(part.rfind(b"\n"), part.rfind(b"\r")) + 1] or part
    return TextTable(plain.path, layout, normalised(part, layout)).head(_ROWS)


def _best(tried: dict[str, list[list[str]]]) -> str:
    """The delimiter that gives rows of one length; white space where it makes all of it numbers."""
    rows = tried.get("whitespace", [])
    even = {name: rows for name, rows in tried.items() if len({len(row) for row in rows}) == 1}
    even = even or {
        name: rows for name, rows in tried.items() if len({len(row) for row in rows[1:]}) == 1
    }
    numbers = rows and all(_NUMBER.fullmatch(field) for row in rows[1:] for field in row)
    if "whitespace" in even and numbers and len(rows[0]) > 1 and len(rows) > 1:
        return "whitespace"
    several = [name for name, rows in even.items() if len(rows[0]) > 1]
    if several:
        return several[0]
    return max(tried, key=lambda name: max((len(row) for row in tried[name]), default=0))


def _has_header(rows: list[list[str]]) -> bool:
    """Return True if the first row holds names: none of its fields is a number or a time."""
    if any(_value(field) for field in rows[0]):
        return False
    return len(rows) == 1 or any(_value(field) for field in rows[1])


def _value(field: str) -> bool:
    field = field.strip()
    return any(one.fullmatch(field) for one in (_NUMBER, _DAY, _CLOCK))


def _by_names(names: Sequence[str], known: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Roles of columns by their names."""
    plain = {name.strip().lower(): name for name in reversed(names)}
    found = []
    for role, words in known.items():
        hit = next((plain[word] for word in words if word in plain), None)
        if hit is not None:
            found.append((role, hit))
    return found


def _need(path: Path, found: Sequence[tuple[str, str]], names: Sequence[str]) -> None:
    lacking = [role for role in ("src", "dst", "t") if role not in dict(found)]
    if lacking:
        raise InvalidInputError(
            f"{path.name} has the columns {', '.join(names)}; which of them is `{lacking[0]}` is "
            "not plain",
            hint="name them: --columns src=...,dst=...,t=...",
        )


def _pairs(
    option: str, text: str, roles: Sequence[str], needed: Sequence[str]
) -> list[tuple[str, str]]:
    """(role, column) of `role=column,...`."""
    found: list[tuple[str, str]] = []
    for part in text.split(",") if text else ():
        role, equals, column = (word.strip() for word in part.partition("="))
        if role not in roles:
            error = unknown_key(f"role in {option}", role, roles)
            raise InvalidInputError(str(error), hint=error.hint)
        if not equals or not column:
            raise InvalidInputError(f"{option}: '{part}' names no column; write {role}=COLUMN")
        if role != "feature" and role in dict(found):
            raise InvalidInputError(f"{option} names `{role}` twice")
        found.append((role, column))
    lacking = [role for role in needed if role not in dict(found)]
    if text and lacking:
        raise InvalidInputError(
            f"{option} names no column for `{lacking[0]}`", hint=f"{', '.join(needed)} are needed"
        )
    return found


def _ids_of(options: FileOptions, sample: Sequence[str]) -> Any:
    kind = options.ids
    if kind == "auto":
        written = [word for word in sample if word.strip() not in MISSING]
        kind = "compact" if all(map(is_whole, written)) else "names"
    if not options.bipartite:
        return kind
    if kind == "keep":
        raise InvalidInputError("--ids keep and --bipartite exclude each other")
    return {"compact": "bipartite", "names": "names-bipartite"}[kind]


def _time_of(path: Path, sample: Sequence[str], options: FileOptions) -> Any:
    words = [word.strip() for word in sample]
    if _NUMBER.fullmatch(words[0]):
        return "number"
    _no_unit(options)
    if all(_DAY.fullmatch(word) for word in words):
        return "date"
    if _DAY.fullmatch(words[0]) or _CLOCK.fullmatch(words[0]):
        return "timestamp"
    raise DataError(
        f"{path}: the time of the first row is '{words[0]}'; a number, a date (YYYY-MM-DD) or a "
        "date with time is allowed",
        hint="--header says that the first row holds the names of columns",
    )


def _no_unit(options: FileOptions) -> None:
    if options.time_unit:
        raise InvalidInputError(
            f"--time-unit is '{options.time_unit}', and the times are dates, whose unit is known",
            hint="leave it out",
        )


def _kinds(ids: str, time: str) -> str:
    spaces = {
        "compact": "whole numbers, made dense",
        "bipartite": "whole numbers, made dense on each side",
        "keep": "taken as they are",
        "names": "names, one vertex for each on both sides",
        "names-bipartite": "names, numbered on each side",
    }
    clocks = {"number": "numbers", "date": "dates, as Unix seconds",
              "timestamp": "dates with time"}  # fmt: skip
    return f"ids are {spaces[ids]}; times are {clocks[time]}"


def _one_of(option: str, word: str, allowed: Sequence[str]) -> None:
    if word not in allowed:
        names = ", ".join(one for one in allowed if one)
        raise InvalidInputError(f"{option} is '{word}'; allowed: {names}")
