"""Dataset files and prepared forms that vanish, change or are written to between two cells."""

from __future__ import annotations

from functools import partial

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.checks import Loss, noted
from tests.faults.papers import cell
from tests.faults.plugins import readers
from tests.faults.runner import Runner
from tests.observed import NUMBER, numbers

HOW = readers.__name__


def _right(bench: Bench, runner: Runner) -> tuple[float, float]:
    """Numbers that the first cell, which no fault touched, read."""
    found = numbers(runner.rows(f"{HOW}:read")[0])
    if found["edges"] != len(readers.ROWS):
        raise Loss(f"the first cell read {found['edges']} edges")
    return found[NUMBER], found["edges"]


@fault(
    "data file between two cells",
    count=2 * len(readers.SOURCE),
    about="missing, cut off, altered, replaced",
)
def source(bench: Bench) -> None:
    cells = [cell(f"{HOW}:read", which="first")]
    for name in readers.SOURCE:
        cells += [
            cell(f"{HOW}:break_source", harm=name),
            cell(f"{HOW}:read", which=name),
            cell(f"{HOW}:mend_source", which=name),
            cell(f"{HOW}:read", which=f"{name}, mended"),
        ]
    runner = bench.run(cells, before=partial(readers.make, bench.folder))
    rows = {row.params["which"]: row for row in runner.rows(f"{HOW}:read")}
    right = _right(bench, runner)
    gone = ("missing", "a folder", "a broken link")
    for name in readers.SOURCE:
        with bench.fault(name):
            if name in gone:
                bench.named(rows[name], "skipped", "tiny", "not here")
            else:
                bench.named(rows[name], "crash", "tiny.csv.gz is not the file of the card")
        with bench.fault(f"{name}, mended"):
            bench.named(rows[f"{name}, mended"], "ok")
            if numbers(rows[f"{name}, mended"])[NUMBER] != right[0]:
                raise Loss("other data was read after the file was put back")
    bench.resumed(runner)


@fault(
    "prepared data between two cells",
    count=len(readers.PREPARED),
    about="missing, cut off, altered, replaced, in every file of it",
)
def prepared(bench: Bench) -> None:
    cells = [cell(f"{HOW}:read", which="first")]
    for name in readers.PREPARED:
        cells.append(cell(f"{HOW}:break_prepared", harm=name))
        cells += [cell(f"{HOW}:read", which=f"{name}{again}") for again in ("", ", again")]
    runner = bench.run(cells, before=partial(readers.make, bench.folder))
    rows = {row.params["which"]: row for row in runner.rows(f"{HOW}:read")}
    right = _right(bench, runner)
    quiet = {"all of it gone", *readers.HARMLESS}
    for name in readers.PREPARED:
        with bench.fault(name):
            row, again = rows[name], rows[f"{name}, again"]
            bench.named(row, "ok", *([] if name in quiet else ["damaged and has been made again"]))
            if name in quiet and noted(row):
                raise Loss(f"nothing was damaged, and it says: {row.notes}")
            for found in (row, again):
                if numbers(found)[NUMBER] != right[0]:
                    raise Loss("other data was read")
            if noted(again):
                raise Loss(f"it was not made good: {again.notes}")
    bench.resumed(runner)


@fault(
    "plugin changes the data",
    count=len(readers.OPENED),
    about="in its memory or on the disk; the next cell must not see it",
)
def changed(bench: Bench) -> None:
    cells = [cell(f"{HOW}:read", which="first")]
    for name in readers.OPENED:
        cells.append(cell(f"{HOW}:mutate", harm=name))
        cells.append(cell(f"{HOW}:read", which=name))
    runner = bench.run(cells, before=partial(readers.make, bench.folder))
    rows = {row.params["which"]: row for row in runner.rows(f"{HOW}:read")}
    done = {row.params["harm"]: row for row in runner.rows(f"{HOW}:mutate")}
    right = _right(bench, runner)
    for name in readers.OPENED:
        with bench.fault(name):
            if name == "cut while open":
                bench.named(done[name], "crash", "killed by SIGBUS")
            elif name == "on the disk":
                bench.named(done[name], "check", "was changed on disk while it ran")
            else:
                bench.named(done[name], "check", "it wrote to the prepared data 'tiny-")
            if rows[name].status != "ok" or numbers(rows[name])[NUMBER] != right[0]:
                raise Loss(f"the next cell saw it: {rows[name].status} {rows[name].reason}")
            if name in ("on the disk", "cut while open"):
                bench.named(rows[name], "ok", "damaged and has been made again")
    bench.resumed(runner)


@fault("data file gone, a twin in its place", count=2, about="a ratio would compare the two")
def twin(bench: Bench) -> None:
    read = f"{HOW}:read_what_is_there"
    cells = [
        cell(read, which="before"),
        cell(f"{HOW}:break_source", harm="missing"),
        cell(read, which="after"),
        cell(read, which="elsewhere", group="other"),
    ]
    runner = bench.run(cells, before=partial(readers.make, bench.folder))
    rows = {row.params["which"]: row for row in runner.rows(read)}
    with bench.fault("in its group"):
        bench.named(rows["before"], "ok")
        bench.named(rows["after"], "check", "it used the twin of 'tiny'", "the real data")
    with bench.fault("in a group that began afterwards"):
        bench.named(rows["elsewhere"], "ok")
    bench.resumed(runner)
