"""Golden record of the kept runs: decisions and numbers as readable text, words apart.

    python -m tests.golden write [PAPER ...]
    python -m tests.golden check [PAPER ...]

`tests/golden/<paper>/` holds what the present code says of kept rows, in sorted lines:

    claims.tsv    a claim on a machine: verdict, strength, measured, interval, what decided, rows
    points.csv    points of figures, without titles and options
    cells.tsv     planned cells: params, and their hash for each preset and device
    words.txt     reasons and answers; never compared, only counted

Claims are asked of disturbed copies of the largest run too, where they decide what kept rows never
do. A change of form must leave the first three as they are. `check` prints the lines that differ,
exit code 1 where there are any.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.plan.plan import cell_hash
from dgbench.harness.report.run import load_run
from dgbench.lab.paper import Check, Claim, Finding, Paper
from dgbench.systems.base.registry import find_paper
from tests.golden.synthetic import disturbed, synthetic_rows

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "results" / "reference"
PRESETS = ("smoke", "quick", "full", "paper")
DEVICES = ("cpu", "cuda")
PAPERS = ("dgc", "pipad", "gnnflow", "tgcn", "esdg")
"""Those that take longest first."""
COMPARED = ("claims.tsv", "points.csv", "cells.tsv")
WORDS = "words.txt"
COLUMNS = (
    "claim", "machine", "variant", "verdict", "strength", "measured", "low", "high", "holds",
    "direction", "undecided", "rows", "lacks",
)  # fmt: skip
NUMBERS = ("x", "y", "low", "high", "value", "n", "seconds")
LABELS = ("panel", "series")
ROWS = ("row_ids", "row")
CURVE = 9
"""Points of one series in one panel from which on sums stand for them."""
EVERY: Final = 8
"""Epochs of a longer curve of a row of which one is recorded, beside the last: the rest take most
of the time and reach no other branch."""
Record = dict[str, list[str]]
"""Lines of each file by its name."""


def _with_failures(rows: Sequence[Any]) -> list[Any]:
    """Every seventh row out of memory, with no numbers."""
    found = []
    for number, row in enumerate(rows):
        if number % 7 == 0:
            row = msgspec.structs.replace(row, status="oom", reason="out of memory")
            row.observed = []
        found.append(row)
    return found


VARIANTS: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "all": list,
    "every second": lambda rows: list(rows[::2]),
    "failures": _with_failures,
}


DISTURBED = {f"disturbed {seed}": disturbed(seed) for seed in range(1, 9)}
"""Copies of the largest run, whose claims alone are asked."""
SYNTHETIC = (("full", "cpu"), ("paper", "cuda"))
"""Presets and devices of made rows; figures are asked for the last alone."""
DRAWN = ("synthetic", SYNTHETIC[-1][1])


@cache
def _run(folder: Path) -> Any:
    return load_run(folder)


def kept_runs(paper: str = "*") -> dict[str, Any]:
    """Kept runs of a paper, or of all, by `machine/paper`, each decoded once a process."""
    folders = (path.parent for path in sorted(KEPT.glob(f"*/{paper}/run.json")))
    return {f"{folder.parent.name}/{folder.name}": _run(folder) for folder in folders}


def thinned(row: Any) -> Any:
    """A row with one epoch in `EVERY` of its long curves, and the last."""
    last = max((one.dims.get("epoch", 0) for one in row.observed), default=0)
    if last < CURVE:
        return row
    kept = [
        one for one in row.observed
        if (epoch := one.dims.get("epoch", 0)) % EVERY == 0 or epoch == last
    ]  # fmt: skip
    row = msgspec.structs.replace(row, observed=kept)
    row.__dict__.pop("observations", None)
    return row


Case = tuple[str, str, list[Any]]
"""Machine, variant and rows."""


def cases(paper: Paper, *, sample: bool = False) -> list[Case]:
    """Cases that a paper is recorded on; the last ones are synthetic.

    Args:
        sample: variants of the largest run alone, three disturbed copies, and rows made for one
            device: half of the time.
    """
    runs = {
        name.partition("/")[0]: [thinned(row) for row in run.everything if row.paper == paper.name]
        for name, run in kept_runs(paper.name).items()
    }
    largest = max(runs, key=lambda machine: len(runs[machine]))
    chosen = [
        (machine, variant, change(rows))
        for machine, rows in runs.items()
        for variant, change in VARIANTS.items()
        if not sample or variant == "all" or machine == largest
    ]
    copies = list(DISTURBED.items())[: 3 if sample else None]
    chosen += [(largest, name, change(runs[largest])) for name, change in copies]
    kept = [row for rows in runs.values() for row in rows]
    for preset, device in SYNTHETIC[-1:] if sample else SYNTHETIC:
        made = synthetic_rows(paper, kept, preset, device)
        chosen.append(("synthetic", f"{preset} {device}", made))
    return chosen


def record(paper: Paper, on: Sequence[Case], *, words: bool = True) -> Record:
    """All that is recorded of a paper; without answers, which are words, if they are not asked."""
    found: Record = {name: [] for name in (*COMPARED, WORDS)}
    found["cells.tsv"] += sorted(_cells(paper))
    for machine, variant, rows in on:
        for line, said in _claims(paper, rows, machine, variant):
            found["claims.tsv"].append(line)
            found[WORDS] += said if variant not in DISTURBED else []
        if machine != "synthetic" and variant not in DISTURBED:
            _add_drawn(found, paper, rows, machine, variant, words=words)
    firsts = [row for row in on[-1][2] if row.round == 1]
    _add_drawn(found, paper, firsts, *DRAWN, words=words)
    return {name: sorted(set(lines)) for name, lines in found.items()}


def _add_drawn(
    found: Record, paper: Paper, rows: Sequence[Any], machine: str, variant: str, *, words: bool
) -> None:
    for experiment in paper.experiments:
        mine = [row for row in rows if row.experiment == experiment.name]
        where = (machine, variant, experiment.name)
        if words and (said := _caught(experiment.answer, mine)):
            found[WORDS].append("\t".join((*where, str(said))))
        for figure in experiment.figures():
            points = _caught(figure.points, mine)
            lines = [(points,)] if isinstance(points, str) else _points(points)
            found["points.csv"] += (_csv((*where, figure.name, *line)) for line in lines)


def _claims(
    paper: Paper, rows: Sequence[Any], machine: str, variant: str
) -> Iterator[tuple[str, list[str]]]:
    """A line and words for each claim, and a line for each of its readings."""
    findings: dict[str, Finding] = {}

    def recorded(check: Check) -> Check:
        def finds(claim: Claim, mine: Any) -> Finding:
            findings[claim.id] = finding = check(claim, mine)
            return finding

        return finds

    checks = {name: recorded(check) for name, check in paper.checks.items()}
    for verdict in evaluate(replace(paper, checks=checks), rows).verdicts:
        finding = findings.get(verdict.id, Finding())
        word = "broken" if verdict.broken else "void" if verdict.void else verdict.verdict
        told = (verdict.id, machine, variant)
        words = ["\t".join((*told, verdict.reason))]
        if isinstance(verdict.measured, str):
            words.append("\t".join((*told, "measured", verdict.measured)))
        fields = (
            word, verdict.strength, _number(verdict.measured), _number(verdict.low),
            _number(verdict.high), *_decisions(finding), _ids(verdict.rows),
            "; ".join(verdict.lacks),
        )  # fmt: skip
        yield "\t".join((*told, *fields)), words
        for name, reading in finding.readings.items():
            fields = (
                verdict.readings.get(name, ""), "", _number(reading.measured),
                _number(reading.low), _number(reading.high), *_decisions(reading),
                _ids(reading.rows), "",
            )  # fmt: skip
            yield "\t".join((f"{verdict.id}#{name}", machine, variant, *fields)), []


def _decisions(finding: Finding) -> tuple[str, str, str]:
    """Decisions of a finding; `holds` and `direction` of an undecided one decide nothing."""
    if finding.undecided:
        return "", "", "True"
    return _number(finding.holds), _number(finding.direction), ""


def _cells(paper: Paper) -> Iterator[str]:
    """A line for each cell with the same params and limits, its hash per preset and device."""
    hashes: dict[tuple[str, str, str], dict[str, str]] = {}
    for experiment in paper.experiments:
        for preset in PRESETS:
            for device in DEVICES:
                for cell in experiment.cells(preset, device):  # type: ignore[arg-type]
                    plain = msgspec.to_builtins(cell)
                    params = _flat(plain.pop("params"))
                    unavailable = bool(plain.pop("unavailable", ""))
                    plain = {k: v for k, v in plain.items() if k not in ("paper", "experiment")}
                    key = (experiment.name, params, _flat(plain) + " unavailable" * unavailable)
                    own = hashes.setdefault(key, {})
                    own[f"{preset} {device}"] = cell_hash(cell, preset, device)[:8]
    for key, own in hashes.items():
        yield "\t".join((*key, *(f"{where}={value}" for where, value in own.items())))


def _points(points: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Fields of a line for each point; of a curve one line, with sums of its numbers."""
    curves: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for point in points:
        curves.setdefault(tuple(str(point.get(name, "")) for name in LABELS), []).append(point)
    for labels, own in curves.items():
        if len(own) < CURVE:
            yield from (_point(point, labels) for point in own)
            continue
        sums = []
        for name in NUMBERS:
            told = [one[name] for one in own if isinstance(one.get(name), int | float)]
            sums.append(_number(math.fsum(told)) if told else "")
        rows = [row for one in own for row in _rows_of(one)]
        told = sorted({name for one in own for name in one} - {*NUMBERS, *LABELS, *ROWS})
        yield (*sums, *labels, _ids(rows), f"sums of {len(own)}: {' '.join(told)}")


def _point(point: Mapping[str, Any], labels: tuple[str, ...]) -> tuple[str, ...]:
    """Numbers, labels, rows, and what else a point says, sorted."""
    rest = {k: v for k, v in point.items() if k not in (*NUMBERS, *LABELS, *ROWS)}
    if isinstance(rest.get("failed"), str):
        rest["failed"] = bool(rest["failed"])
    numbers = (_number(point.get(name)) for name in NUMBERS)
    return (*numbers, *labels, _ids(_rows_of(point)), _flat(rest))


def _rows_of(point: Mapping[str, Any]) -> list[str]:
    return [*(point.get("row_ids") or ()), *([point["row"]] if point.get("row") else ())]


def _csv(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def _flat(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_number(value)}" for name, value in sorted(fields.items()))


def _ids(rows: Sequence[str]) -> str:
    """Number of rows and a hash of which they are."""
    if not rows:
        return "0"
    every = sorted(set(rows))
    return f"{len(every)}:{hashlib.sha256(' '.join(every).encode()).hexdigest()[:8]}"


def _number(value: Any) -> str:
    """A value as text, numbers to eight digits; text of a measured value is words."""
    if value is None:
        return ""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.8g}" if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return json.dumps({str(k): _number(v) for k, v in value.items()}, sort_keys=True)
    if isinstance(value, list | tuple):
        return json.dumps([_number(one) for one in value])
    if isinstance(value, set | frozenset):
        return json.dumps(sorted(map(str, value)))
    return " ".join(str(value).split())


def _caught(ask: Callable[[Any], Any], rows: Sequence[Any]) -> Any:
    try:
        return ask(rows)
    except Exception as error:
        return f"{type(error).__name__}"


def read(paper: str) -> Record:
    """The kept record of a paper."""
    folder = HERE / paper
    return {
        name: (folder / name).read_text(encoding="utf-8").splitlines()
        for name in (*COMPARED, WORDS)
    }


def write(paper: str) -> int:
    """Record a paper; the number of lines."""
    folder, plugin = HERE / paper, find_paper(paper)
    found = record(plugin, cases(plugin))
    folder.mkdir(exist_ok=True)
    for name, lines in found.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return sum(map(len, found.values()))


def differences(paper: str, *, words: bool = True, sample: bool = False) -> tuple[list[str], int]:
    """Lines of decisions, numbers and cells that differ, as a diff has them, and the number of
    words that do; of a sample of the cases alone where it is asked for."""
    plugin = find_paper(paper)
    on = cases(plugin, sample=sample)
    old, new = read(paper), record(plugin, on, words=words)
    if sample:
        where = {*(case[:2] for case in on), DRAWN}
        for name, cut, at in (("claims.tsv", "\t", 1), ("points.csv", ",", 0)):
            old[name] = [x for x in old[name] if (*x.split(cut)[at : at + 2],) in where]
    found: list[str] = []
    for name in COMPARED:
        lines = difflib.unified_diff(old[name], new[name], name, name, n=0, lineterm="")
        found += list(lines) if old[name] != new[name] else []
    return found, len(set(old[WORDS]) ^ set(new[WORDS]))


def main(arguments: Sequence[str]) -> int:
    """Run `write` or `check` over the papers named, or over all."""
    if not arguments or arguments[0] not in ("write", "check"):
        print(__doc__)
        return 2
    bad, papers = 0, arguments[1:] or PAPERS
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        if arguments[0] == "write":
            for paper, lines in zip(papers, pool.map(write, papers), strict=True):
                print(f"{paper}: {lines} lines")
            return 0
        for paper, (found, words) in zip(papers, pool.map(differences, papers), strict=True):
            bad += len(found)
            print(f"{paper}: {len(found)} lines differ, and {words} of words")
            print(*found[:80], sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
