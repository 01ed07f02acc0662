"""Reading which devices are linked, from a table such as `nvidia-smi topo -m` prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from dgbench.runtime.errors import InvalidInputError

HOST_PATHS: Final = ("SYS", "NODE", "PHB", "PXB", "PIX")
"""Connections of two GPUs without NVLink, from the longest (across sockets) to one PCIe switch."""

_DEVICE = re.compile(r"(?:GPU)?(\d+)$")
_ENTRY = re.compile(r"(?:X|NV\d+|" + "|".join(HOST_PATHS) + r")$")

LinkMatrix = tuple[tuple[str, ...], ...]
"""`entries[i][j]`: `X` on the diagonal, `NVn` for n NVLink bricks, else a way through the host."""


def parse_link_matrix(text: str, *, source: str = "the link matrix") -> LinkMatrix:
    """Read the GPU part of a link matrix; columns of NICs and affinities are left out.

    Args:
        text: a header line of devices, then one line per device; lines that begin with # and
            lines of other devices are skipped.
        source: what to call it in messages.

    Raises:
        InvalidInputError: no GPUs, a row missing, an entry that is not known, or links that are
            not the same in both directions.
    """
    # nvidia-smi underlines its header on a terminal.
    clean = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = [
        line.split() for line in clean.splitlines() if line.strip() and line.lstrip()[0] != "#"
    ]
    header = next((line for line in lines if _DEVICE.match(line[0])), None)
    if header is None:
        raise InvalidInputError(f"{source} names no GPU", hint="nvidia-smi topo -m > links.txt")
    count = 0
    while count < len(header) and _is_device(header[count], count):
        count += 1
    rows: dict[int, tuple[str, ...]] = {}
    for line in lines[lines.index(header) + 1 :]:
        found = _DEVICE.match(line[0])
        if found is None or int(found[1]) >= count or int(found[1]) in rows:
            continue
        entries = tuple(line[1 : count + 1])
        wrong = [e for e in entries if not _ENTRY.match(e)]
        if len(entries) < count or wrong:
            raise InvalidInputError(
                f"{source}, row {line[0]}: {wrong[0] if wrong else f'{len(entries)} entries'}, "
                f"needed: {count} of X, NV1, NV2, ..., {', '.join(HOST_PATHS)}"
            )
        rows[int(found[1])] = entries
    missing = [i for i in range(count) if i not in rows]
    if missing or count == 0:
        raise InvalidInputError(f"{source} has no row for GPU {missing[0] if missing else 0}")
    matrix = tuple(rows[i] for i in range(count))
    for i in range(count):
        for j in range(count):
            if (matrix[i][j] == "X") != (i == j) or matrix[i][j] != matrix[j][i]:
                raise InvalidInputError(
                    f"{source}: GPU {i} to {j} is {matrix[i][j]}, {j} to {i} is {matrix[j][i]}",
                    hint="X stands on the diagonal, and links are the same both ways",
                )
    return matrix


def read_link_matrix(path: Path) -> LinkMatrix:
    """`parse_link_matrix` of a file.

    Raises:
        InvalidInputError: the file cannot be read, or is not such a table.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"the link matrix {path} cannot be read: {error}") from None
    return parse_link_matrix(text, source=str(path))


def bricks(entry: str) -> int:
    """NVLink bricks of an entry: 2 for `NV2`, 0 for a way through the host."""
    return int(entry[2:]) if entry.startswith("NV") else 0


def _is_device(word: str, number: int) -> bool:
    found = _DEVICE.match(word)
    return found is not None and int(found[1]) == number
