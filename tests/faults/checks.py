"""Invariants after a fault. Nothing here trusts the code that is checked."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

MARK = "DGBENCH_FAULTS"
"""Environment variable that every process of a campaign has, with the campaign's own value."""

KNOWN = {".lock"}
"""Hidden files that belong into a run's folder."""


class Loss(AssertionError):
    """A fault took something with it, or left something behind."""


def good_lines(text: bytes) -> list[bytes]:
    """The complete lines of rows.jsonl whose checksum holds, with their line breaks."""
    good = []
    for line in text.split(b"\n")[:-1]:
        try:
            crc = json.loads(line)["crc"]
        except (ValueError, KeyError, TypeError):
            continue
        payload = line.partition(b',"row":')[2][:-1]
        if line == b'{"crc":"%s","row":%s}' % (crc.encode(), payload) and (
            crc == f"{zlib.crc32(payload):08x}"
        ):
            good.append(line + b"\n")
    return good


def rows_intact(before: bytes, after: bytes) -> None:
    """Every complete row there was is still there, byte by byte, in front of all others."""
    kept = b"".join(good_lines(before))
    if not after.startswith(kept):
        have = set(good_lines(after))
        lost = [line for line in good_lines(before) if line not in have]
        what = f"{len(lost)} complete rows are gone: {lost[0][:120]!r}" if lost else "moved"
        raise Loss(f"rows.jsonl lost what it had ({what})")


def rows_sound(text: bytes) -> list[dict]:
    """All rows of a finished file: every line good, no id twice."""
    good = good_lines(text)
    if b"".join(good) != text:
        raise Loss("rows.jsonl holds a line that is cut off or does not match its checksum")
    rows = [json.loads(line)["row"] for line in good]
    ids = [row["id"] for row in rows]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice:
        raise Loss(f"two rows are called {twice[0]}")
    return rows


def every_step(rows: Iterable[dict], plan: dict) -> None:
    """Every process of a plan has its row, and no row is of no process."""
    wanted = set()
    for planned in plan["cells"]:
        cell = planned["cell"]
        if planned.get("status"):
            wanted.add((planned["hash"], 1, False))
            continue
        wanted |= {(planned["hash"], n + 1, False) for n in range(cell.get("repeats", 1))}
        if cell.get("phases") and "control" not in cell["params"]:
            wanted.add((planned["hash"], 1, True))
    have = {(r["cell_hash"], r["round"], r["instrumented"]) for r in rows if r["paper"] != "-"}
    if wanted - have:
        raise Loss(f"{len(wanted - have)} of {len(wanted)} processes have no row")
    if have - wanted:
        raise Loss(f"{len(have - wanted)} rows belong to no process of the plan")


def leftovers(root: Path, temporary: Path | None = None) -> list[str]:
    """Temporary files below the results, and anything in a folder for temporary files."""
    found = []
    for path in sorted(root.rglob("*")) if root.exists() else ():
        hidden = path.name.startswith(".") and path.name not in KNOWN
        if hidden or path.suffix in (".part", ".result", ".tmp"):
            found.append(str(path.relative_to(root)))
    if temporary is not None and temporary.exists():
        found += [f"TMPDIR/{p.relative_to(temporary)}" for p in sorted(temporary.iterdir())]
    return found


def living(pid: int) -> bool:
    """Return True if there is such a process and it has not ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def marked(mark: str, besides: Collection[int] = ()) -> list[tuple[int, str]]:
    """Living processes whose environment has `MARK=mark`: number and command."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in besides:
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if living(int(entry)):
            found.append((int(entry), command[:160]))
    return found


def noted(row: Any) -> list[str]:
    """Notes of a row besides what disturbed its process."""
    return [note for note in row.notes if note != f"disturbed: {row.disturbed}"]
