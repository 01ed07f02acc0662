"""A run's folder: rows with their checks, and the JSON files beside them."""

from __future__ import annotations

import gzip
import itertools

import msgspec

from dgbench.harness.plan import Plan, PlannedCell, cell_hash, read_plan
from dgbench.harness.report.run import load_run
from dgbench.harness.store import Row, Store
from dgbench.harness.store.files import to_line
from dgbench.harness.store.row import decode, encode
from dgbench.lab.experiment import Cell
from dgbench.lab.table import observation
from tests.fuzz.target import sane, scratch, target

NUMBERS = (
    *(b"-1", b"1e400", b"9223372036854775808", b"null", b"[]", b"{}", b"true", b'""', b"0"),
    *(b"[" * 3000, b'{"a":' * 3000, b"NaN", b"1e308", b"5e-324", b'"\xff"', b"9" * 400),
)
RUN = {
    **{"run": "7f3a91c2", "stamp": "2026-01-02T0304", "state": "done", "preset": "quick"},
    **{"started": "2026-01-02T03:04:05+00:00", "ended": "2026-01-02T03:05:05+00:00", "note": ""},
    **{"device": "cpu", "threads": 2, "papers": ["toy"], "experiments": [], "planned": 2},
}
FACTS = {"69a814eec345": {"dgbench": "0.1.0", "code": {"commit": "", "dirty": None},
         "machine": {"cpu": {"model": "one", "usable": 2}, "gpus": [{"name": "G"}]}}}  # fmt: skip


def rows() -> list[Row]:
    """Rows of every shape: timed, controlled, with values, failed."""
    base = {"run": "7f3a91c2", "paper": "toy", "experiment": "fig1", "group": "g"}
    found = [Row(id="00000009-r1", cell_hash="9", status="oom", reason="too big", **base)]
    observed = [
        observation("step_time", 0.11, samples=[0.1, 0.11, 0.12]), observation("turns", 3),
        observation("speedup", 2.0, low=1.5, high=2.5, setting="x"),
        observation("epoch_time", 0.1, system="a", turn=1),
    ]  # fmt: skip
    for number, control in enumerate(({}, {"control": "aa"}), 1):
        params = {"system": "a", "dataset": "tiny", **control}
        data = {"dataset": "tiny", "twin": True, "scale": 1.0}
        found.append(Row(
            id=f"0000000{number}-r1", cell_hash=f"{number:016x}", params=params, round=1,
            observed=observed, data=data, started="2026-01-02T03:04:05+00:00", seconds=1.5,
            provenance="69a814eec345", **base,
        ))  # fmt: skip
    return found


def folder_with(name: str, **files: bytes):
    """A run's folder with some of its files replaced."""
    folder = scratch(name)
    plan = Plan(preset="quick", device="cpu", cells=[])
    standard = {
        "run.json": msgspec.json.encode(RUN),
        "plan.json": msgspec.json.encode(plan),
        "provenance.json": msgspec.json.encode(FACTS),
        "rows.jsonl": b"".join(to_line(encode(row)) for row in rows()),
    }
    for file, data in (standard | files).items():
        path = folder / file
        if data is not None:
            path.write_bytes(data)
        else:
            path.unlink(missing_ok=True)
    return folder


def lines() -> list[bytes]:
    """All rows, and one."""
    return [b"".join(to_line(encode(row)) for row in rows()), to_line(encode(rows()[0]))]


def lasts(row: Row) -> None:
    """A row that was read can be written and read again."""
    sane(encode(decode(encode(row))) == encode(row), "a row changes when it is written again")


@target("rows-sealed", seeds=lambda: [encode(row) for row in rows()], kind="json", tokens=NUMBERS)
def rows_sealed(data: bytes) -> None:
    """Payloads of rows behind a right checksum."""
    payloads = data.split(b"\n")
    folder = folder_with("rows-sealed", **{"rows.jsonl": b"".join(map(to_line, payloads))})
    store = Store.open(folder)
    sane(len(store.written(latest=False)) + len(store.torn) == len(payloads), "a line was lost")
    for row in store.written():
        lasts(row)
        row.time  # noqa: B018 - a median of what was accepted


@target("rows-packed", seeds=lambda: [gzip.compress(text, mtime=0) for text in lines()])
def rows_packed(data: bytes) -> None:
    """rows.jsonl.gz of a kept run: whole or refused."""
    folder = folder_with("rows-packed", **{"rows.jsonl": None, "rows.jsonl.gz": data})
    store = Store.open(folder)
    plain = gzip.decompress(data)
    sane(store.row_bytes() == plain, "unpacked otherwise")
    for row in store.written(latest=False):
        lasts(row)


@target("run-json", seeds=[msgspec.json.encode(RUN)], kind="json", tokens=NUMBERS)
def run_json(data: bytes) -> None:
    """run.json, as a report reads it."""
    run = load_run(folder_with("run-json", **{"run.json": data}))
    sane(run.planned >= 0 and isinstance(run.store.run, str), "facts of no kind")


@target("provenance-json", seeds=[msgspec.json.encode(FACTS)], kind="json", tokens=NUMBERS)
def provenance_json(data: bytes) -> None:
    """provenance.json, as a report reads it."""
    run = load_run(folder_with("provenance-json", **{"provenance.json": data}))
    sane(all(isinstance(v, dict) for v in run.store.provenance().values()), "facts that are none")


def plans() -> list[bytes]:
    """A plan of two cells."""
    cells = []
    for system, repeats in (("a", 3), ("c", 1)):
        cell = Cell(paper="toy", experiment="fig1", params={"system": system}, group="g",
                    repeats=repeats, phases=system == "a")  # fmt: skip
        cells.append(PlannedCell(cell=cell, hash=cell_hash(cell, "quick", "cpu")))
    return [msgspec.json.encode(Plan(preset="quick", device="cpu", cells=cells))]


@target("plan-json", seeds=plans, kind="json", tokens=NUMBERS)
def plan_json(data: bytes) -> None:
    """plan.json, as `--resume` and a report read it."""
    folder = folder_with("plan-json", **{"plan.json": data})
    plan = read_plan(Store.open(folder))
    steps = list(itertools.islice(plan._steps(), 1000))
    sane(all(0 <= s.index < len(plan.cells) and s.round >= 1 for s in steps), "a step of no cell")
    sane(plan.seconds >= 0 and plan.pairs >= 0, "less than no time")
