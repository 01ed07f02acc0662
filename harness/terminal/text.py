"""Plain text for any terminal: widths, wrapping, and a fallback where it is not UTF-8."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Any, TextIO

WIDTH = 80

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


def is_utf8(stream: TextIO) -> bool:
    """Whether a stream takes any character."""
    return (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def encodable(text: str, stream: TextIO) -> str:
    """`text` as it can be written to `stream`, with look-alikes where it is not UTF-8."""
    if is_utf8(stream):
        return text
    for fancy, plain in _PLAIN.items():
        text = text.replace(fancy, plain)
    encoding = getattr(stream, "encoding", None) or "ascii"
    return text.encode(encoding, errors="replace").decode(encoding)


def colours(stream: TextIO) -> bool:
    """Whether to use colour: only on a terminal, and not where NO_COLOR is set."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and is_utf8(stream)


def say(text: str = "", stream: TextIO | None = None) -> None:
    """Print to stdout (or `stream`), whatever its encoding."""
    stream = stream or sys.stdout
    print(encodable(text, stream), file=stream)


def say_json(value: Any) -> None:
    """Print a value as JSON to stdout; NaN and infinities become null."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value, order=None), indent=2)
    sys.stdout.write(text.decode("utf-8") if is_utf8(sys.stdout) else _ascii_json(text))
    sys.stdout.write("\n")


def _ascii_json(text: bytes) -> str:
    import json

    return json.dumps(json.loads(text), indent=2)


def wrapped(text: str, indent: str, width: int = WIDTH) -> str:
    """A paragraph with a hanging indent; words are never cut."""
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
