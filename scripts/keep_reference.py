#!/usr/bin/env python3
"""Keep a run as references: rows and provenance, one folder a paper.

    scripts/keep_reference.py RUN MACHINE       such as: last amd-epyc-2-cores

A run of several papers becomes several folders `results/reference/MACHINE/PAPER`, each with the
paper's rows (its A/A controls among them) and the machine's own. Paths and the suffix of a kernel's
name say nothing about what was measured and are left out. Rows and facts carry checksums, as those
of a run do. Each folder is replaced whole, and none of them if any part fails.

`python docs/hooks/performance.py` then writes the page of performance anew.

Whole trainings (preset `quality`) take hours and are made apart from what is timed, so they have a
life of their own beside it: keeping a run replaces the rows of its own kind, those of the preset
`quality` or all others, and leaves those of the other kind as they were kept. A run of a few groups
of cells, such as one of preset `full`, replaces just those with `--groups`.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from dgbench.harness.bundle.scrub import Scrubber, clean_facts, clean_info
from dgbench.harness.plugins import get_paper
from dgbench.harness.report.folders import beside, put, swap
from dgbench.harness.store import Row, Store, find_run
from dgbench.harness.store.files import to_checked, to_line
from dgbench.harness.store.row import encode
from dgbench.lab.compare import CONTROL, control_ratios
from dgbench.runtime.errors import DgbenchError, InvalidInputError, StoreError

REFERENCE = Path(__file__).parents[1] / "results" / "reference"
WHOLE = "quality"
"""Preset of whole trainings."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SCRUBBER = Scrubber()


def keep(run: Path, machine: str, root: Path = REFERENCE, *, groups: bool = False) -> list[Path]:
    """Keep the run in folder `run` below `root/machine`; returns the new folders.

    Args:
        groups: whether it replaces its own groups of cells in what is kept, and nothing else.

    Raises:
        InvalidInputError: the machine's name is no plain folder name, the run has no paper, or
            nothing is kept in which its groups could be replaced.
        StoreError: `run` is no run, or a folder cannot be written or is no reference.
        UnknownKeyError: a paper of the run is not installed.
    """
    if not _NAME.fullmatch(machine):
        raise InvalidInputError(
            f"machine is '{machine}', allowed are small letters, digits, '.', '_' and '-'"
        )
    store = Store.open(run)
    rows = store.kept()
    names = [n for n in dict.fromkeys(r.paper for r in rows) if n != "-"]
    if not names:
        raise InvalidInputError(f"{run} has no rows of a paper")
    papers = [get_paper(name) for name in names]
    targets = [root / machine / name for name in names]
    trained = store.info.get("preset") == WHOLE
    for target in targets:
        if target.exists() and not (target / "run.json").is_file():
            raise StoreError(f"{target} is there and holds no run; move it away first")
        if groups and not target.exists():
            raise InvalidInputError(
                f"groups of cells replace those of a run that is kept, and {target} has none"
            )
    with ExitStack() as stack:
        made = [stack.enter_context(beside(target)) for target in targets]
        for folder, paper, target in zip(made, papers, targets, strict=True):
            stay = (
                kept_beside_groups(target, rows, paper.name)
                if groups
                else kept_beside(target, trained=trained)
            )
            write_reference(store, rows, paper, folder, stay)
        for folder, target in zip(made, targets, strict=True):
            swap(folder, target)
    return targets


class KeptRows(NamedTuple):
    """Rows that a folder holds beside those that are replaced.

    Attributes:
        rows: in their order. provenance: facts by the key that rows carry.
        info: of the run that they are of, where it is the one that tells of the folder.
        trained: cells of whole trainings that were planned.
        groups: whether just groups of cells are replaced: then so many are planned as before.
    """

    rows: Sequence[Row] = ()
    provenance: Mapping[str, Any] = MappingProxyType({})
    info: Mapping[str, Any] = MappingProxyType({})
    trained: int = 0
    groups: bool = False


def kept_beside(folder: Path, *, trained: bool) -> KeptRows:
    """Rows of a reference that stay when whole trainings (`trained`) or others are replaced."""
    if not folder.exists():
        return KeptRows()
    store = Store.open(folder)
    if not trained:
        rows = [row for row in store.kept() if row.preset == WHOLE and row.paper != "-"]
        return KeptRows(rows, store.provenance(), trained=int(store.info.get("trained") or 0))
    rows = [row for row in store.kept() if row.preset != WHOLE]
    return KeptRows(rows, store.provenance(), store.info if rows else {})


def kept_beside_groups(folder: Path, rows: Sequence[Row], paper: str) -> KeptRows:
    """Rows of a reference that stay when only the groups of `paper` in `rows` are replaced."""
    replaced = {(row.experiment, row.group) for row in rows if row.paper == paper}
    store = Store.open(folder)
    stay = [
        row
        for row in store.kept()
        if row.paper == "-" or (row.experiment, row.group) not in replaced
    ]
    return KeptRows(stay, store.provenance(), store.info, groups=True)


def write_reference(
    store: Store, rows: Sequence[Row], paper: Any, folder: Path, beside: KeptRows = KeptRows()
) -> None:
    """Write one paper's part of a run into an empty folder, with the rows that are kept beside."""
    if beside.info:  # the run of what is timed tells of the folder, not that of whole trainings
        rows = [row for row in rows if row.paper != "-"]
    mine = [without_paths(row) for row in rows if row.paper in (paper.name, "-")]
    if control_ratios(row for row in mine if row.paper == paper.name):
        # its own A/A pairs say more of its cells than those of the reference
        mine = [row for row in mine if row.experiment != "noise" or row.paper != "-"]
    mine = sorted([*mine, *beside.rows], key=lambda row: row.preset == WHOLE)
    lines = b"".join(to_line(encode(row)) for row in mine)
    info = clean_info(beside.info or store.info, _SCRUBBER) | {"papers": [paper.name]}
    plan = store.read_plan() or {}
    cells = [c["cell"] for c in plan.get("cells", ()) if "cell" in c]
    planned = sum(c["paper"] == paper.name and CONTROL not in c.get("params", {}) for c in cells)
    if store.info.get("preset") == WHOLE and not beside.groups:
        info["trained"] = planned
    elif not beside.groups:
        info |= {k: v for k, v in (("planned", planned), ("trained", beside.trained)) if v}
    used = {row.provenance for row in mine}
    facts_of = [beside.provenance, store.provenance()]  # those of the run in run.json come last
    known = {k: v for part in facts_of[:: -1 if beside.info else 1] for k, v in part.items()}
    provenance = {k: clean_facts(v, _SCRUBBER) for k, v in known.items() if k in used}
    put(folder, "rows.jsonl.gz", gzip.compress(lines, 9, mtime=0))
    put(folder, "run.json", to_checked(info))
    put(folder, "provenance.json", to_checked(provenance))


def without_paths(row: Row) -> Row:
    """A row whose words name no place on the machine it was measured on."""
    return msgspec.convert(_SCRUBBER.clean(msgspec.to_builtins(row), spare=("log",)), Row)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 0, or 2 with a sentence that says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", help="a run: id, stamp, path, or 'last'")
    parser.add_argument("machine", help="folder name of the machine, such as amd-epyc-2-cores")
    parser.add_argument("--root", type=Path, default=REFERENCE, help="default: results/reference")
    parser.add_argument(
        "--groups", action="store_true", help="replace the run's groups of cells, nothing else"
    )
    given = parser.parse_args(arguments)
    try:
        for folder in keep(find_run(given.run), given.machine, given.root, groups=given.groups):
            print(f"kept in {folder}")
    except DgbenchError as error:
        print(f"error: {error}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
