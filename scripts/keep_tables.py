#!/usr/bin/env python3
"""Keep tables of a device as rows: `compare`, pages and tools of tables then read them.

    scripts/keep_tables.py OUT MACHINE       OUT: the folder of scripts/gpu_run.sh

Reads what `tables`, `placements`, `differences` and `tgcn` leave in OUT (`*.jsonl`, also gzipped)
and writes a reference `results/reference/MACHINE/operators`, one row for each group of a table. The
facts of the machine come from a reference that is there already, or from a run in OUT.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from dgbench.harness.report.folders import put
from dgbench.harness.store import Row
from dgbench.harness.store.files import to_checked, to_line
from dgbench.harness.store.row import encode
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Observation, observation

REFERENCE = Path(__file__).parents[1] / "results" / "reference"
PAPER = "operators"
Line = dict[str, Any]


@dataclass
class Group:
    """Lines of a table that belong together, as they become a row.

    Attributes:
        experiment: name of the table. params: what tells the group from others.
        failed: why there are no numbers.
    """

    experiment: str
    params: dict[str, Any]
    observed: list[Observation] = field(default_factory=list)
    checks: list[ResultCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: str = ""

    def add(self, metric: str, value: float | None, **dims: Any) -> None:
        """A number, where there is one."""
        if value is not None:
            self.observed.append(observation(metric, value, **dims))

    def time(self, seconds: float | list[float], method: str, **dims: Any) -> None:
        """Seconds of a call, or of each turn."""
        samples = seconds if isinstance(seconds, list) else []
        value = median(samples) if samples else seconds
        self.add("operation_time", value, samples=samples, method=method, **dims)

    def compared(self, of: str, against: str, results: int, gap: float = 0.0) -> None:
        """Record a check of so many results that the script compared before timing (it does not
        time wrong ones)."""
        tolerance = 1e-5 if gap else 0.0
        self.checks.append(
            ResultCheck(of=of, against=against, gap=gap, tolerance=tolerance, compared=results)
        )


def grouped(lines: Iterable[Line], experiment: str, *names: str) -> Iterator[tuple[Group, list]]:
    """Lines by the values of these fields."""
    found: dict[str, tuple[Group, list]] = {}
    for line in lines:
        params = {name: line[name] for name in names if line[name] is not None}
        # One that is wrong makes no others void.
        operator = " ".join([experiment, *map(str, params.values())])
        made = Group(experiment, {"operator": operator, **params}), []
        found.setdefault(json.dumps(params), made)[1].append(line)
    yield from found.values()


def of_tables(lines: list[Line]) -> Iterator[Group]:
    """PiPAD's operators (`gpu_tables.py`) beside a copy; where a table has errors, they are from a
    product in float64. A table without any was compared with nothing, so that its row is void."""
    copies = [one for one in lines if one["group"] == "limit" and one["name"].startswith("copy")]
    lines = [_with_width(one) for one in lines if one["group"] != "limit"]
    balances = [one for one in lines if "gap" in one]
    timed = (one for one in lines if "us" in one)
    for group, mine in grouped(timed, "device_tables", "table", "width"):
        for one in copies:
            group.add("bandwidth", one["bytes"] / (one["us"] / 1e6), of="copy", place="device")
        for one in mine:
            group.time([us / 1e6 for us in one["samples_us"]], one["name"])
            if one["bytes"]:
                rate = one["bytes"] / (one["us"] / 1e6)
                group.add("bandwidth", rate, method=one["name"], place="device")
        worst = max(one["error"] for one in mine)
        if worst:
            group.compared("outputs", "float64 product", len(mine), worst)
        yield group
    for group, mine in grouped(balances, "device_tables", "table", "width"):
        for one in mine:
            group.add("worker_cycles", one["actual"], method=one["name"], statistic="actual")
            group.add("worker_cycles", one["balanced"], method=one["name"], statistic="balanced")
            group.add("workers", one["warps"], method=one["name"], of="warps")
        yield group


def _with_width(line: Line) -> Line:
    """A line with the width in its group's name ("rivals d=64") as a field of its own."""
    table, _, width = line["group"].partition(" d=")
    return {**line, "table": table, "width": int(width.split(" ")[0]) if width else None}


def of_placements(lines: list[Line]) -> Iterator[Group]:
    """GNNFlow's store and cache (`gpu_gnnflow.py`): the CPU's samples and rows are compared."""
    by_kind = {kind: [one for one in lines if one["what"] == kind] for kind in KINDS}
    for group, mine in grouped(by_kind["update"], "device_updates", "edges"):
        for one in mine:
            where = one["placement"]
            group.time(one["insert_s"], where, phase="insert")
            group.time(one["update_s"], where, phase="update")
            group.add("host_to_device", one["bytes"], method=where)
        # The samples after the updates are compared with the CPU's.
        group.compared("updates", "samples of the CPU", len(mine))
        yield group
    names = "policy", "fanouts", "batch", "walk"
    for group, mine in grouped(by_kind["sample"], "device_samples", *names):
        for one in mine:
            where = one["placement"]
            if "failed" in one:
                group.notes.append(f"{where} is left out: {one['failed']}")
                continue
            group.time(one["seconds"], where)
            if one["device_s"] is not None:
                group.time(one["device_s"], where, phase="device")
            group.add("records", one["neighbours"], method=where)
            for over, before, baseline in OVER:
                if over in one:
                    ends = {"low": one[f"{before}low"], "high": one[f"{before}high"]}
                    group.add("speedup", one[over], method=where, baseline=baseline, **ends)
        group.compared("samples", "samples of the CPU", len(mine))
        yield group
    for group, mine in grouped(by_kind["cache"], "device_cache", "hits", "table"):
        for one in mine:
            group.time(one["cache_s"], "cache")
            group.time(one["gather_s"], "gather")
            ends = {"low": one["low"], "high": one["high"]}
            group.add("speedup", one["gain"], method="cache", baseline="gather", **ends)
        group.compared("rows", "rows of the table", len(mine))
        yield group


KINDS = ("update", "sample", "cache")
OVER = (
    ("over_cpu", "", "cpu"),
    ("over_two", "over_two_", "cpu, 2 threads"),
    ("over_fed", "over_fed_", "faster of those that feed the device"),
)
"""Fields of a line that hold a ratio, what stands before its ends' names, and over what it is."""


def of_differences(lines: list[Line]) -> Iterator[Group]:
    """ESDG's differences, of a script that is no more: rebuilt snapshots are compared with sent
    ones."""
    rows = (one for one in lines if one["what"] == "difference")
    for group, (one,) in grouped(rows, "device_differences", "delta", "index"):
        group.time(one["rebuild_s"], "rebuild")
        group.add("throughput", one["keys_per_s"], of="keys", method="encode")
        group.time(one["plain_s"], "plain", phase="transfer")
        group.time(one["difference_s"], "difference", phase="transfer")
        group.add("relative_size", one["bytes_ratio"], method="plain", baseline="difference")
        group.add("edges", one["entries"])
        group.compared("entries", "snapshot that was sent", 1)
        yield group


def of_draws(lines: list[Line]) -> Iterator[Group]:
    """T-GCN's samplers and sums (`gpu_tgcn.py`): draws are compared with the CPU's, sums with
    float64."""
    rows = (one for one in lines if one["what"] != "copy")
    for group, mine in grouped(rows, "device_draws", "what"):
        for one in mine:
            if "failed" in one:
                group.failed = f"it is {one['failed']}"
                continue
            group.time(one["seconds"], one["contender"])
            if size := one.get("bytes"):
                group.add("bandwidth", size / one["seconds"], method=one["contender"])
        group.compared("results", "results of the CPU", len(mine))
        yield group


TABLES: dict[str, Callable[[list[Line]], Iterator[Group]]] = {
    "tables": of_tables,
    "placements": of_placements,
    "differences": of_differences,
    "tgcn_operators": of_draws,
}


def rows_of(groups: Iterable[Group], provenance: str, started: str) -> Iterator[Row]:
    """Rows of a device, one for each group."""
    for one in groups:
        key = hashlib.sha256(json.dumps([one.experiment, one.params]).encode()).hexdigest()[:16]
        params = {k: str(v) if isinstance(v, list) else v for k, v in one.params.items()}
        yield Row(
            id=f"{key[:8]}-r1", run="tables", cell_hash=key, paper=PAPER,
            experiment=one.experiment, params=params, group=str(params["operator"]),
            device="cuda", preset="full", status="check" if one.failed else "ok",
            reason=one.failed, started=started, provenance=provenance, notes=one.notes,
            checks=[] if one.failed else one.checks, observed=[] if one.failed else one.observed,
        )  # fmt: skip


def read_lines(path: Path) -> list[Line]:
    """Lines of a table."""
    packed = path.read_bytes()
    text = gzip.decompress(packed) if path.suffix == ".gz" else packed
    return [json.loads(line) for line in text.splitlines()]


def keep(out: Path, machine: str, root: Path = REFERENCE) -> tuple[Path, int]:
    """Keep the tables of a folder; the new reference, and how many rows it has.

    Raises:
        FileNotFoundError: there is no table, or nothing that tells the machine.
    """
    tables = {n: next(iter(sorted(out.glob(f"{n}.jsonl*"))), None) for n in TABLES}
    facts = next(iter(sorted((root / machine).glob("*/provenance.json"))), None)
    facts = next(iter(sorted(out.glob("runs/*/provenance.json"))), facts)
    if facts is None or not any(tables.values()):
        raise FileNotFoundError(f"{out} has no table, or no run tells the facts of '{machine}'")
    known = {k: v for k, v in json.loads(facts.read_text()).items() if k != "crc32"}
    started = json.loads(facts.with_name("run.json").read_text())["started"]
    key = next(iter(known))
    rows = [
        row
        for name, path in tables.items()
        if path is not None
        for row in rows_of(TABLES[name](read_lines(path)), key, started)
    ]
    folder = root / machine / PAPER
    folder.mkdir(parents=True, exist_ok=True)
    lines = b"".join(to_line(encode(row)) for row in rows)
    put(folder, "rows.jsonl.gz", gzip.compress(lines, 9, mtime=0))
    info = {
        "run": "tables", "stamp": started[:16].replace(":", ""), "state": "done",
        "planned": len(rows), "started": started, "ended": started, "papers": [PAPER],
        "experiments": [], "command": f"scripts/gpu_run.sh {' '.join(n for n in tables)}",
        "preset": "full", "device": "cuda", "note": "tables of scripts, kept as rows",
    }  # fmt: skip
    put(folder, "run.json", to_checked(info))
    put(folder, "provenance.json", to_checked({key: known[key]}))
    return folder, len(rows)


def main() -> int:
    """The command; 0, or 2 with a sentence that says what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path, help="folder of scripts/gpu_run.sh")
    parser.add_argument("machine", help="folder name of the machine, such as nvidia-h200")
    parser.add_argument("--root", type=Path, default=REFERENCE, help="default: results/reference")
    given = parser.parse_args()
    try:
        folder, count = keep(given.out, given.machine, given.root)
    except (FileNotFoundError, msgspec.DecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{count} rows kept in {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
