"""Parser of params and data that a row holds in words, into fields.

Cells keep their params, as their hashes are made of them: `"tgcn, streamed"` names a system and a
setting. The `data` of a row names several datasets in one string, and says in a note how much of
one was read. Nothing else in dgbench takes such a string apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

NO_DATA: Final = ("none", "all")
"""Names in rows that read no dataset of their own: none at all, or only printed sizes of all."""
PRINTED: Final = ("printed", "publishers'")
"""Prefixes of a note where sizes were taken and no file was read."""
_SCALE: Final = re.compile(r"\bf = [^,;]+, ")


def system_of(params: Mapping[str, Any]) -> str:
    """The system of `system: "tgcn, streamed"`, without its setting; "" where none is named."""
    return str(params.get("system") or "").partition(",")[0].strip()


def datasets_of(params: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """The datasets that a row read, or else (it did not run) was to read, without their parts.

    `wikipedia#1, movie` are two: a number behind `#` tells copies of one dataset apart.
    """
    named = data.get("dataset") or params.get("dataset") or ""
    parts = (part.strip().partition("#")[0] for part in str(named).split(","))
    return list(dict.fromkeys(p for p in parts if p and p.lower() not in NO_DATA))


def notes_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes of a row on its data, without the scale of a twin, which has a field of its own."""
    note = _SCALE.sub("", str(data.get("note") or ""))
    return tuple(part for part in dict.fromkeys(note.split("; ")) if part)


def printed(data: Mapping[str, Any]) -> bool:
    """Return True if only printed sizes were used and no data was read."""
    return str(data.get("note") or "").startswith(PRINTED)
