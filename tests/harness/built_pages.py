"""A report of an invented run and a site of two machines, built once for all tests in a browser."""

from __future__ import annotations

import atexit
import gzip
import shutil
import tempfile
from functools import cache
from pathlib import Path

import browser
import fake_run

from dgbench.harness.report.build import build_report, build_site

FRONTS = ("report.html", "index.html")


@cache
def built() -> dict[str, Path]:
    """Name of the front page -> its folder."""
    folder = Path(tempfile.mkdtemp(prefix="dgbench-pages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paper = fake_run.light_paper(folder)
    run = fake_run.make_run(folder / "results")
    build_report(run, [paper])
    kept = []
    for machine, scale in (("one", 1.0), ("two", 2.0)):
        made = fake_run.make_run(folder / "made", scale=scale)
        rows = made / "rows.jsonl"
        (made / "rows.jsonl.gz").write_bytes(gzip.compress(rows.read_bytes()))
        rows.unlink()
        kept.append(folder / "reference" / machine / "toy")
        kept[-1].parent.mkdir(parents=True)
        made.rename(kept[-1])
    build_site(kept, folder / "site", [paper])
    return dict(zip(FRONTS, (run, folder / "site"), strict=True))


@cache
def page() -> browser.Browser:
    """One browser for all tests."""
    profile = tempfile.mkdtemp(prefix="dgbench-browser-")
    atexit.register(shutil.rmtree, profile, ignore_errors=True)
    found = browser.Browser(Path(profile))
    atexit.register(found.close)
    return found


def one_of_each() -> list[Path]:
    """Of both: the front page, every index, and the first page of each folder."""
    found = []
    for folder in built().values():
        for place in (folder, *sorted(p for p in folder.iterdir() if p.is_dir())):
            pages = sorted(p for p in place.glob("*.html") if p.name != "index.html")
            found += [p for p in (place / "index.html",) if p.is_file()]
            found += pages if place == folder else pages[:1]
    return found
