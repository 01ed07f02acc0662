"""Verifying a bundle: exact counters against runs that are here, and one cell that runs again."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.bundle.checking import Bundle
from dgbench.harness.bundle.labels import COUNTERS_VERIFIED, LABEL, RERUN, SELF_REPORTED
from dgbench.harness.quantities import PACE, cell_words, exact
from dgbench.harness.store.files import cannot_write, new_folder, to_checked, to_line
from dgbench.harness.store.row import VOID, Row, encode
from dgbench.harness.store.standing import judged, void_reasons
from dgbench.harness.store.store import Store
from dgbench.lab.compare import CONTROL, OWN_DATA
from dgbench.runtime.errors import DgbenchError, StoreError

MAX_SECONDS: Final = 120.0
"""Seconds that the sampled cell may have taken where it was measured."""
_WRONG: Final = ("check", VOID)
"""Statuses that speak against a result; others say what happened to the process."""
_Key = tuple[str, str, tuple[Any, ...]]
_Work = tuple[tuple[str, int], ...]
_Code = tuple[Any, ...]


class Verification(msgspec.Struct, kw_only=True):
    """Result of verifying a bundle.

    Attributes:
        digest: of the bundle. label: see `labels`. processes: rows of the bundle.
        cells, counters: cells with a count of their own here, and counters that were compared.
        differ: sentences about counters and results that are not the same; none may be.
        unclear: the same, where the other side is of other code, which may count otherwise. They
            keep the label low, and the bundle is no worse than its word.
        sampled: the cell that ran again, or "". note: why none did, or "".
    """

    digest: str
    label: str = SELF_REPORTED
    processes: int = 0
    cells: int = 0
    counters: int = 0
    differ: list[str] = []
    unclear: list[str] = []
    sampled: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class CountedRow:
    """A row with the code that counted: version of dgbench, commit, and whether it was changed."""

    row: Row
    code: _Code


def counted_rows(
    rows: Iterable[Row], provenance: Mapping[str, Mapping[str, Any]]
) -> list[CountedRow]:
    """Rows that may decide something, with their code; controls and limits are left out."""
    return [
        CountedRow(row, _code(provenance.get(row.provenance, {})))
        for row in judged(list(rows))
        if row.ok and row.paper != "-" and CONTROL not in row.params
    ]


def _code(facts: Mapping[str, Any]) -> _Code:
    code = facts.get("code") or {}
    return facts.get("dgbench"), code.get("commit"), code.get("dirty")


def verify(
    bundle: Bundle, known: Sequence[CountedRow], *, run: bool = True, seconds: float = MAX_SECONDS
) -> Verification:
    """Compare a bundle's exact counters with known rows, and run one of its cells again.

    A counter is exact: the same cell on the same data counts the same on every machine. The cell is
    drawn with the bundle's digest as seed, among those that can run here in `seconds`.

    Args:
        known: rows of runs that are here. run: False runs nothing.
    """
    found = Verification(digest=bundle.digest, processes=len(bundle.rows))
    theirs = counted_rows(bundle.rows, bundle.provenance)
    _compare(found, theirs, known, "a run here")
    if run and not found.differ:
        _run_one(found, bundle, theirs, seconds)
    if found.sampled:
        found.label = RERUN
    elif found.counters and not (found.differ or found.unclear):
        found.label = COUNTERS_VERIFIED
    return found


def keep_verified(bundle: Bundle, found: Verification, root: Path) -> Path:
    """Keep a verified bundle as a run below `root`, with its label; returns the run's folder.

    The run gets an id of its own, so that it takes the place of no run here.

    Raises:
        StoreError: something differs, it is kept already, or the folder cannot be written.
    """
    if found.differ:
        raise StoreError(f"{bundle.path} is not kept: {found.differ[0]}")
    name = bundle.digest[:8]
    info = bundle.info | {
        "run": name,
        "stamp": name,
        LABEL: found.label,
        "verified": msgspec.to_builtins(found),
    }
    rows = [msgspec.structs.replace(row, run=name) for row in bundle.rows]
    target = root / name
    if target.exists():
        raise StoreError(f"{target} is there already", hint="remove it to keep the bundle again")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with new_folder(root, ".new-") as folder:
            folder.chmod(0o755)
            (folder / "rows.jsonl").write_bytes(b"".join(to_line(encode(row)) for row in rows))
            (folder / "provenance.json").write_bytes(to_checked(bundle.provenance))
            (folder / "run.json").write_bytes(to_checked(info))
            folder.rename(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    return target


def known_rows(runs: Iterable[Path]) -> list[CountedRow]:
    """Rows of runs of this machine and of kept references; runs of others count for nothing."""
    rows: list[CountedRow] = []
    for path in runs:
        with contextlib.suppress(DgbenchError):
            store = Store.open(path)
            if LABEL not in store.info:
                rows += counted_rows(store.kept(), store.provenance())
    return rows


def _key(row: Row) -> _Key:
    """Cell, device and data of a row: what a counter may depend on."""
    data = row.touched.get("data") or [row.data]
    named = [(str(d.get("dataset")), d.get("kind", d.get("twin")), d.get("scale")) for d in data]
    return row.cell_hash, row.device, tuple(sorted(named, key=repr))


def _counts(row: Row) -> tuple[_Work, dict[str, int]]:
    """Amount of work of a row, and its exact counters; where `PACE` differs, others may, too."""
    counts = exact(row)
    work = tuple(sorted((k, v) for k, v in counts.items() if k in PACE))
    return work, {k: v for k, v in counts.items() if k not in PACE}


def _compare(
    found: Verification, theirs: Sequence[CountedRow], ours: Sequence[CountedRow], where: str
) -> int:
    """Compare exact counters of every row; returns the number that are equal, once a cell."""
    here: dict[tuple[_Key, _Work], tuple[dict[str, int], _Code]] = {}
    for one in ours:
        if not one.row.instrumented:
            work, counts = _counts(one.row)
            here.setdefault((_key(one.row), work), (counts, one.code))
    equal: set[tuple[_Key, _Work, str]] = set()
    said: set[str] = set()
    for one in theirs:
        work, counts = _counts(one.row)
        place = _key(one.row), work
        if one.row.instrumented or place not in here:
            continue
        own, code = here[place]
        for name in sorted(counts.keys() & own.keys()):
            if counts[name] == own[name]:
                equal.add((*place, name))
                continue
            sentence = (
                f"{cell_words(one.row)}: '{name}' is {counts[name]:,} in the bundle and "
                f"{own[name]:,} in {where}"
            )
            if sentence not in said:
                said.add(sentence)
                (found.differ if code == one.code else found.unclear).append(sentence)
    found.cells += len({key for key, _, _ in equal})
    found.counters += len(equal)
    return len(equal)


def _run_one(
    found: Verification, bundle: Bundle, theirs: Sequence[CountedRow], seconds: float
) -> None:
    """Run the sampled cell in the place and form that `dgbench run` gives it."""
    from dgbench.harness.runner import run_plan

    candidates = _candidates([one.row for one in theirs], seconds)
    if not candidates:
        found.note = f"no cell of it can run here in {seconds:.0f} s"
        return
    name = random.Random(bundle.digest).choice(sorted(candidates))
    plan, row = candidates[name]
    with (
        tempfile.TemporaryDirectory(prefix="dgbench-verify-") as folder,
        Store.create(Path(folder), {"papers": [row.paper]}, plan) as store,
    ):
        run_plan(plan, store, limits=False)
        rows = [one for one in store.rows() if one.cell_hash == row.cell_hash]
        ours = counted_rows(rows, store.provenance())
    if not ours:
        said = f"{rows[0].status}: {rows[0].reason}" if rows else "it left no row"
        if rows and rows[0].status in _WRONG:
            found.differ.append(f"{cell_words(row)} is wrong here ({said})")
        found.note = f"{cell_words(row)} has no result here ({said})"
        return
    if said := next((why for one in ours for why in void_reasons(one.row)), ""):
        found.differ.append(f"{cell_words(row)} is wrong here ({said})")
        return
    same = [one for one in theirs if one.row.cell_hash == row.cell_hash]
    unclear = len(found.unclear)
    if _key(ours[0].row) not in {_key(one.row) for one in same}:
        found.note = f"{cell_words(row)} ran here, on other data than in the bundle"
    elif not _compare(found, same, ours, "the run here") and exact(row):
        found.note = f"{cell_words(row)} ran here, and shares no counter with the bundle"
    elif found.differ:
        return
    elif len(found.unclear) > unclear:
        found.note = f"{cell_words(row)} ran here, by other code that counts otherwise"
    else:
        found.sampled = cell_words(row)


def _candidates(theirs: Sequence[Row], seconds: float) -> dict[str, tuple[Any, Row]]:
    """Cells that this machine plans, too: hash -> its plan and a row of the bundle.

    Those with exact counters, if there are any.
    """
    from dgbench.harness.machine import gpu_count

    gpus = gpu_count()
    rows: dict[tuple[str, str, str], dict[str, Row]] = defaultdict(dict)
    for row in theirs:
        quick = 0 < row.seconds <= seconds and OWN_DATA not in row.params
        if quick and not row.instrumented and (row.device == "cpu" or gpus):
            rows[row.paper, row.preset, row.asked].setdefault(row.cell_hash, row)
    found: dict[str, tuple[Any, Row]] = {}
    for (paper, preset, device), wanted in sorted(rows.items()):
        for plan in _plans(paper, preset, device, wanted):
            found[plan.cells[0].hash] = plan, wanted[plan.cells[0].hash]
    counted = {key: one for key, one in found.items() if exact(one[1])}
    return counted or found


def _plans(paper: str, preset: str, device: str, wanted: dict[str, Row]) -> list[Any]:
    """A plan of one process for each of the cells; a paper that is not installed has none."""
    from dgbench.datasets.first_use import settle_sources
    from dgbench.harness.plan import Plan
    from dgbench.harness.plan.sources import dataset_names, set_sources
    from dgbench.harness.plugins import get_paper

    try:
        names = sorted({row.experiment for row in wanted.values()})
        own = get_paper(paper)
        here = [e.name for e in own.experiments if e.name in names]
        plan = Plan.build([own], here, preset, device, control="none") if here else None
    except DgbenchError:
        return []
    if plan is None:
        return []
    plan.cells = [c for c in plan.cells if c.hash in wanted]
    set_sources(plan, settle_sources(dataset_names(plan), fetching=False))
    found = []
    for planned in plan.runnable:
        row = wanted[planned.hash]
        twin = "twin" if _is_twin(row) else "real"
        if planned.cell.params == row.params and planned.data in ("", twin):
            cell = msgspec.structs.replace(planned.cell, repeats=1, phases=False)
            one = msgspec.structs.replace(planned, cell=cell)
            found.append(msgspec.structs.replace(plan, cells=[one], sources=[], rounds=None))
    return found


def _is_twin(row: Row) -> bool:
    data = row.touched.get("data") or ()
    return any(d.get("kind") == "twin" for d in data) or bool(row.data.get("twin"))
