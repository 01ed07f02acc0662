"""Plugins that raise, print and leave things behind, and those that write to their data."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dgbench import datasets
from dgbench.datasets import catalogue, store
from dgbench.datasets.events import EventStream
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.checks import Loss, noted
from tests.faults.papers import cell
from tests.faults.plugins import HARMS
from tests.observed import NUMBER, numbers, told


def _inject(bench: Bench, kind: str) -> None:
    """A run of all behaviours of a kind, a good cell behind each."""
    cells = []
    for number, name in enumerate(HARMS[kind]):
        how = cell("tests.faults.plugins:run", harm=f"{kind}/{name}", group=name)
        cells += [how, cell("ok", after=number)]
    runner = bench.run(cells)
    # What disturbed a process is the machine's doing, and others run beside it here.
    good = [row for row in runner.rows("ok") if row.status == "ok" and not noted(row)]
    rows = {row.params.get("harm"): row for row in runner.rows()}
    for number, (name, harm) in enumerate(HARMS[kind].items()):
        with bench.fault(name):
            row = rows[f"{kind}/{name}"]
            bench.named(row, harm.status, harm.words)
            for text in (row.reason, *row.notes):
                if len(text) > 9000 or not all(c.isprintable() or c in "\n\t" for c in text):
                    raise Loss(f"{len(text)} letters, some of them no text: {text[:80]!r}")
            if row.status != "ok" and row.observed:
                raise Loss("a row that is not ok has numbers that a ratio could use")
            if not any(other.params["after"] == number for other in good):
                raise Loss("the good cell behind it is not ok, or has a note")
    bench.resumed(runner)


ABOUT = {
    "nonsense": "NaN, giants, depths, objects",
    "raised": "errors without words, without end", "left": "threads, children, files",
    "printed": "binary, without end, into nothing",
}  # fmt: skip


def _register(kind: str, about: str) -> None:
    @fault(f"plugin: {kind}", count=len(HARMS[kind]), about=about)
    def inject(bench: Bench) -> None:
        _inject(bench, kind)


for _kind, _about in ABOUT.items():
    _register(_kind, _about)

ROWS = [f"{3 * i % 17},{5 * i % 13},{i}" for i in range(20_000)]
CARD = """
- name: tiny
  title: Tiny
  about: Edges by a rule.
  snapshots: 3
  published: {{nodes: 17, edges: {edges}}}
  forms:
    - name: held
      files:
        - {{path: tiny.csv.gz, sha256: {sha256}, bytes: {size}}}
      reader: {{format: table, columns: [src, dst, t]}}
      counts: {{edges: {edges}}}
"""


def make_data(folder: Path) -> None:
    """Write a dataset and its card, and let this process and all its forks use them."""
    import pyarrow.csv  # noqa: F401  once, and not in every cell

    for name in ("data", "cards"):
        (folder / name).mkdir()
    packed = gzip.compress("".join(f"{row}\n" for row in ROWS).encode(), mtime=0)
    (folder / "data" / "tiny.csv.gz").write_bytes(packed)
    facts = {"edges": len(ROWS), "size": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
    (folder / "cards" / "tiny.yaml").write_text(CARD.format(**facts))
    os.environ["DGBENCH_DATA"] = str(folder / "data")
    os.environ["DGBENCH_CACHE"] = str(folder / "cache")
    catalogue.CARDS = folder / "cards"
    catalogue._catalogue.cache_clear()


def read(cell: Cell, context: RunContext) -> Measurement:
    """Open the data and say what was in it."""
    events = datasets.open_events("tiny", source="real")
    crc = zlib.crc32(events.src.numpy().tobytes() + events.dst.numpy().tobytes())
    return told({NUMBER: float(crc)}, data={"dataset": "tiny", "twin": False})


def write(cell: Cell, context: RunContext) -> Measurement:
    """Do `cell.params["harm"]` of `OPENED` to data that is open."""
    OPENED[str(cell.params["harm"])](datasets.open_events("tiny", source="real"))
    return told(samples=[1e-5])


def _on_disk(size: int | None) -> None:
    """Flip a bit of the prepared form, or cut it; its times stay."""
    path = next((store.cache_root() / "prepared").glob("tiny-*")) / "data.bin"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate(size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _cut(events: EventStream) -> None:
    _on_disk(0)
    events.src.sum()


OPENED: dict[str, Callable[[EventStream], object]] = {
    "by torch": lambda events: events.src.zero_(),
    "by numpy": lambda events: events.src.numpy().sort(),
    "on the disk": lambda events: _on_disk(None),
    "cut while open": _cut,
}
SAYS = {"on the disk": ("check", "was changed on disk"), "cut while open": ("crash", "SIGBUS")}


@fault("plugin changes the data", count=len(OPENED), about="the next cell must not see it")
def changed(bench: Bench) -> None:
    cells = [cell(f"{__name__}:read", which="first")]
    for name in OPENED:
        cells += [cell(f"{__name__}:write", harm=name), cell(f"{__name__}:read", which=name)]
    runner = bench.run(cells, before=partial(make_data, bench.folder))
    rows = {row.params["which"]: row for row in runner.rows(f"{__name__}:read")}
    done = {row.params["harm"]: row for row in runner.rows(f"{__name__}:write")}
    for name in OPENED:
        with bench.fault(name):
            bench.named(done[name], *SAYS.get(name, ("check", "wrote to the prepared data")))
            bench.named(rows[name], "ok")
            if numbers(rows[name])[NUMBER] != numbers(rows["first"])[NUMBER]:
                raise Loss("the next cell saw it")
    bench.resumed(runner)
