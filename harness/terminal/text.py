"""Plain text for any terminal: widths, wrapping, and a fallback where it is not UTF-8."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, TextIO

WIDTH = 80
"""Columns of a line, at most; also where the output is no terminal."""
MIN_WIDTH = 24
NARROW = 64
"""Below this width a table becomes blocks of lines."""

_PLAIN = {
    "±": "+-",
    "−": "-",
    "–": "-",
    "—": "-",
    "·": "-",
    "→": "->",
    "×": "x",
    "≈": "~",
    "≤": "<=",
    "≥": ">=",
    "\u2009": " ",
    "\u00a0": " ",
    "\u202f": " ",
    "…": "...",
    "█": "#",
    "▲": "^",
    "▼": "v",
    "“": '"',
    "”": '"',
    "’": "'",
}


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATE = 0xDC00
"""Added by Python to a byte of a file's name that is no UTF-8."""


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - _SURROGATE if code >= _SURROGATE else code:02x}"


def is_utf8(stream: TextIO) -> bool:
    """Return True if a stream takes any character."""
    return (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def encodable(text: str, stream: TextIO) -> str:
    """`text` as it can be written to `stream`, with look-alikes where it is not UTF-8.

    Control characters, which may come from any file, are escaped: none reaches a terminal.
    """
    text = _CONTROLS.sub(_written_out, text)
    if is_utf8(stream):
        return text
    for fancy, plain in _PLAIN.items():
        text = text.replace(fancy, plain)
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, errors="replace").decode(encoding)


def colours(stream: TextIO) -> bool:
    """Return True to use colour: only on a terminal, and not where NO_COLOR is set."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and is_utf8(stream)


def columns(stream: TextIO | None = None) -> int:
    """Columns to write to `stream` (default stdout): those of its terminal, 24 to 80.

    `COLUMNS` has precedence, as in other programs. 80 where it is no terminal.
    """
    stream = stream or sys.stdout
    asked = os.environ.get("COLUMNS", "")
    found = int(asked) if asked.isdecimal() else 0
    if not found and stream.isatty():
        with contextlib.suppress(OSError, ValueError):
            found = os.get_terminal_size(stream.fileno()).columns
    return max(MIN_WIDTH, min(found or WIDTH, WIDTH))


def say(text: str = "", stream: TextIO | None = None) -> None:
    """Print to stdout (or `stream`), whatever its encoding."""
    stream = stream or sys.stdout
    print(encodable(text, stream), file=stream)


UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Errors of an output that a disk or its quota has no room for."""


def lose_output(error: OSError) -> int:
    """Give the standard output up; what is still buffered goes nowhere, also at Python's end.

    Returns:
        Exit code: 0 where whoever read it has gone, as in `dgbench list | head -1`; 2 where it
        cannot be written, which is said on stderr.
    """
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return 0
    reason = (error.strerror or str(error)).lower()
    with contextlib.suppress(OSError, ValueError):
        print(f"error: the standard output cannot be written: {reason}", file=sys.stderr)
    return 2


def say_all(texts: Iterable[str]) -> int:
    """Print to stdout what the command goes on after, whether or not it can be written.

    Returns:
        0, or the exit code of `lose_output`; what is printed after it goes nowhere.
    """
    try:
        for text in texts:
            say(text)
        sys.stdout.flush()
    except OSError as error:
        return lose_output(error)
    return 0


def say_json(value: Any) -> None:
    """Print a value as JSON to stdout; NaN and infinities become null."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value, order=None), indent=2)
    sys.stdout.write(text.decode("utf-8") if is_utf8(sys.stdout) else _ascii_json(text))
    sys.stdout.write("\n")


def _ascii_json(text: bytes) -> str:
    import json

    return json.dumps(json.loads(text), indent=2)


def wrapped(text: str, indent: str, width: int = WIDTH, *, hanging: str | None = None) -> str:
    """A paragraph with an indent, and another one from its second line on with `hanging`.

    Words are cut only where they are longer than a line; addresses and paths never.
    """
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words="://" not in text and "/" not in text.strip()[:1],
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def fitted(text: str, width: int) -> str:
    """Lines that are longer than `width` wrapped, each below its own indent."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        fits = len(line) <= width
        lines.append(line if fits else wrapped(line.strip(), indent, width, hanging=f"{indent}  "))
    return "\n".join(lines)


def listing(
    header: list[str],
    rows: list[list[str]],
    width: int = WIDTH,
    right: set[int] | None = None,
    *,
    min_last: int = 24,
) -> str:
    """A table that fits `width`: as it is, with its last column wrapped, or as blocks.

    Blocks stand below the name of the first column and begin with its cell; every other cell
    follows as `header: cell`.

    Args:
        right: columns that are aligned right. min_last: columns that the last one needs to be
            wrapped in its place.
    """
    indent = "    "
    flat = table(header, rows, right)
    if all(len(line) <= width for line in flat.splitlines()):
        return flat
    short = table(header[:-1], [row[:-1] for row in rows], right).splitlines()
    start = max(map(len, short), default=0) + 2
    if width >= NARROW and width - start >= min_last:
        lasts = [header[-1], *(row[-1] for row in rows)]
        pairs = zip(short, lasts, strict=True)
        return "\n".join(
            wrapped(last, first.ljust(start), width, hanging=" " * start).rstrip() or first
            for first, last in pairs
        )
    blocks = [header[0]]
    for row in rows:
        lines = [wrapped(row[0], "", width, hanging=indent)]
        lines += [
            wrapped(f"{name}: {cell}" if name else cell, indent, width)
            for name, cell in zip(header[1:], row[1:], strict=True)
            if cell
        ]
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def table(header: list[str], rows: list[list[str]], right: set[int] | None = None) -> str:
    """Columns as wide as their widest cell, two spaces apart; `right` are aligned right.

    The last column is not padded and nothing is ever shortened.
    """
    right = right or set()
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i])
            for i, cell in enumerate(row)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)
