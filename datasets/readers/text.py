"""Tables of text by way of pyarrow: delimiters, comments, headers, and the line of every row."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from dgbench.datasets.readers.containers import text_bytes
from dgbench.datasets.readers.ids import MISSING, names, whole_numbers
from dgbench.runtime.errors import DataError

DELIMITERS: Final = {
    "comma": ",",
    "space": " ",
    "tab": "\t",
    "semicolon": ";",
    "whitespace": " ",
}
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
"""Of pyarrow: a comment that ends with a lone return must not take a row with it."""
_ROW: Final = re.compile(r"^In CSV column #(\d+): Row #(\d+): |Row #(\d+): ")
_LARGE: Final = 1 << 20
_HEAD: Final = 1 << 20
"""Bytes of a file that are looked at to find its columns."""


class TextLayout(Protocol):
    """Layout of a text table: the fields shared by `ReaderSpec` and `VertexSpec`."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def delimiter(self) -> Any: ...
    @property
    def skip(self) -> int: ...
    @property
    def comment(self) -> str: ...


@dataclass(slots=True)
class TextTable:
    """A file of text as its rows are read: comments are gone, runs of white space are one blank.

    Attributes:
        path: the file. layout: how it is read.
        data: the text.
    """

    path: Path
    layout: TextLayout
    data: bytes

    @classmethod
    def open(cls, path: Path, layout: TextLayout) -> TextTable:
        """Read a file. Raises DataError where it is damaged or too large."""
        return cls(path, layout, normalised(text_bytes(path), layout))

    def head(self, rows: int) -> list[list[str]]:
        """Fields of the first rows, header lines included."""
        text = self.data[:_HEAD].decode("utf-8", "replace")
        return list(itertools.islice(split_rows(text, DELIMITERS[self.layout.delimiter]), rows))

    def columns(self, kinds: dict[str, Any]) -> dict[str, Any]:
        """Read columns by name.

        Args:
            kinds: name of each column of the file -> its arrow type, or None to skip it.

        Returns:
            Name -> pyarrow chunked array of strings without blanks at their ends, or numpy array of
            anything else.

        Raises:
            DataError: with the line of a row that has another number of fields, a field that is
                not of its type, or none.
        """
        import pyarrow as pa

        wanted = {name: kind for name, kind in kinds.items() if kind is not None}
        if not self.data.strip():
            return {name: np.zeros(0, kind.to_pandas_dtype()) for name, kind in wanted.items()}
        table = None
        if b"0x" not in self.data and b"0X" not in self.data:  # arrow takes 0x1 for 1
            with contextlib.suppress(pa.ArrowInvalid):
                table = self._read(list(kinds), wanted, threads=len(self.data) > _LARGE)
        if table is None:
            texts = {n: pa.string() if pa.types.is_integer(k) else k for n, k in wanted.items()}
            table = self._read_for_its_fault(list(kinds), texts)
        out: dict[str, Any] = {}
        for name, kind in wanted.items():
            column = table.column(name)
            if pa.types.is_string(kind):
                out[name] = names(column, self.fault, name)
                continue
            if column.null_count:
                row = int(column.is_null().to_numpy(zero_copy_only=False).argmax())
                raise self.fault(row, f"the column `{name}` is empty or not a number")
            whole = pa.types.is_string(column.type)
            out[name] = whole_numbers(column, self.fault, name) if whole else column.to_numpy()
        return out

    def _read(self, titles: list[str], wanted: dict[str, Any], *, threads: bool) -> Any:
        import pyarrow as pa
        from pyarrow import csv as arrow

        return arrow.read_csv(
            pa.BufferReader(self.data),
            read_options=arrow.ReadOptions(
                column_names=titles, skip_rows=self.header_lines(), use_threads=threads
            ),
            parse_options=arrow.ParseOptions(
                delimiter=DELIMITERS[self.layout.delimiter],
                newlines_in_values=b'"' in self.data,
            ),
            convert_options=arrow.ConvertOptions(
                column_types=wanted,
                include_columns=list(wanted),
                null_values=list(MISSING),
                strings_can_be_null=True,
                quoted_strings_can_be_null=not any(map(pa.types.is_string, wanted.values())),
            ),
        )

    def _read_for_its_fault(self, titles: list[str], wanted: dict[str, Any]) -> Any:
        """Read again on one thread, which counts rows, and say which one is wrong."""
        import pyarrow as pa

        try:
            return self._read(titles, wanted, threads=False)
        except pa.ArrowInvalid as error:
            said = str(error).removeprefix("CSV parse error: ")
            match = _ROW.search(said)
            if match is None:
                raise DataError(
                    f"{self.path} is not the table its card describes: {said}",
                    hint=f"columns by the card: {', '.join(self.layout.columns)}",
                ) from None
            row = int(match[2] or match[3]) - 1 - self.header_lines()
            what = f"the column `{titles[int(match[1])]}`: " if match[1] else ""
            said = _ROW.sub("", said)
            if "invalid UTF8" in said:
                said = "it is not UTF-8; write the file anew in UTF-8"
            raise self.fault(row, what + said) from None

    def header_lines(self) -> int:
        """Lines that the header rows take; a quoted field may hold ends of lines."""
        if b'"' not in self.data[:_HEAD]:
            return self.layout.skip
        rows, inside = 0, False
        for number, line in enumerate(_LINE_END.split(self.data[:_HEAD])):
            if rows == self.layout.skip:
                return number
            inside ^= line.count(b'"') % 2 == 1
            rows += not inside
        return self.layout.skip

    def fault(self, row: int, words: str) -> DataError:
        """The error for a row, counted from 0 after the header, with its line in the file."""
        return DataError(
            f"{self.path}, line {self.line(row)}: {words}",
            hint=f"columns by the card: {', '.join(self.layout.columns)}",
        )

    def line(self, row: int) -> int:
        """The line of the file, counted from 1, in which a row begins."""
        mark = self.layout.comment.encode()
        number, first, passed, open_quote = 0, 0, -self.layout.skip, False
        for number, line in enumerate(_LINE_END.split(text_bytes(self.path)), 1):
            if not open_quote:
                blank = not line.strip() if self.layout.delimiter == "whitespace" else not line
                if (mark and line.lstrip().startswith(mark)) or (blank and passed >= 0):
                    continue
                first = number
            open_quote ^= line.count(b'"') % 2 == 1
            if open_quote:
                continue
            if passed == row:
                return first
            passed += 1
        return first or number


def normalised(data: bytes, layout: TextLayout) -> bytes:
    """The text without lines of comment; with one blank for each run of white space, if so read."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    if layout.comment:
        data = _without_comments(data, layout.comment.encode())
    return _single_blanks(data) if layout.delimiter == "whitespace" else data


def _without_comments(data: bytes, mark: bytes) -> bytes:
    """Without lines that begin with the mark; those at the head go first, as most have no other."""
    start = 0
    while data.startswith(mark, start):
        end = _LINE_END.search(data, start)
        start = len(data) if end is None else end.end()
    data = data[start:]
    if mark not in data:
        return data
    line = rb"(?:(?<=[\r\n])|\A)[ \t]*" + re.escape(mark) + rb"[^\r\n]*(?:\r\n|\n|\r|\Z)"
    return re.sub(line, b"", data)


def count_comments(data: bytes, mark: str) -> int:
    """Lines that begin with the mark of comments."""
    if not mark:
        return 0
    line = rb"(?:(?<=[\r\n])|\A)[ \t]*" + re.escape(mark.encode())
    return sum(1 for _ in re.finditer(line, data))


def _single_blanks(data: bytes) -> bytes:
    """Tabs and runs of blanks as one blank, none at the ends of a line."""
    text = np.frombuffer(data.translate(bytes.maketrans(b"\t\f\v", b"   ")), np.uint8)
    blank, end = text == 32, (text == 10) | (text == 13)
    before = np.concatenate([[True], (blank | end)[:-1]])
    text, end = text[~(blank & before)], end[~(blank & before)]
    after = np.concatenate([end[1:], [True]])[: text.size]
    return text[~((text == 32) & after)].tobytes()


def split_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Fields of each row that is not empty."""
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row:
                yield row
    except csv.Error:  # a NUL, or a field of megabytes: the reader will say what it thinks of it
        return
