"""Golden record of what the kept runs say: findings, verdicts, cells with hashes, figure points.

    python -m tests.golden write [PAPER ...]
    python -m tests.golden check [PAPER ...]

`write` records the present code's answers in `tests/golden/<paper>.json.gz`; `check` computes them
again and prints each difference, exit code 1 where there is one. A change of form must leave all
of them as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.claims.evaluate import evaluate
from dgbench.harness.plan.plan import cell_hash
from dgbench.harness.report.run import load_run
from dgbench.lab.paper import Check, Claim, Finding, Paper
from dgbench.systems.base.registry import find_paper

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "results" / "reference"
PRESETS = ("smoke", "quick", "full", "paper")
DEVICES = ("cpu", "cuda")
PAPERS = ("pipad", "esdg", "dgc", "gnnflow", "tgcn")
Record = dict[str, Any]


def _relabelled(rows: Sequence[Any]) -> list[Any]:
    return [msgspec.structs.replace(row, device="cuda") for row in rows]


def _with_failures(rows: Sequence[Any]) -> list[Any]:
    """Every seventh row out of memory, with no numbers."""
    found = []
    for number, row in enumerate(rows):
        if number % 7 == 0:
            row = msgspec.structs.replace(row, status="oom", reason="out of memory")
            row.drop_numbers()
        found.append(row)
    return found


VARIANTS: dict[str, Callable[[Sequence[Any]], list[Any]]] = {
    "all": list,
    "first half": lambda rows: list(rows[: len(rows) // 2]),
    "every second": lambda rows: list(rows[::2]),
    "relabelled": _relabelled,
    "failures": _with_failures,
    "none": lambda rows: [],
}


@cache
def kept_runs() -> dict[str, Any]:
    """Kept runs of papers by `machine/paper`."""
    return {
        f"{path.parent.parent.name}/{path.parent.name}": load_run(path.parent)
        for path in sorted(KEPT.glob("*/*/run.json"))
    }


def record(paper: Paper) -> Record:
    """All that is recorded of a paper: a flat mapping from what is asked to the answer."""
    found: Record = dict(_cells(paper))
    for name, run in kept_runs().items():
        rows = [row for row in run.everything if row.paper == paper.name]
        if rows:
            for variant, change in VARIANTS.items():
                changed = change(rows)
                found |= _of_claims(paper, changed, f"{name}|{variant}")
                found |= _of_figures(paper, changed, f"{name}|{variant}")
    return found


def _cells(paper: Paper) -> Iterator[tuple[str, Any]]:
    for experiment in paper.experiments:
        for preset in PRESETS:
            for device in DEVICES:
                cells = experiment.cells(preset, device)  # type: ignore[arg-type]
                plain = [
                    (cell_hash(cell, preset, device), msgspec.to_builtins(cell)) for cell in cells
                ]
                key = f"cells|{experiment.name}|{preset}|{device}"
                yield key, f"{len(plain)} {_digest(plain)}"


def _of_claims(paper: Paper, rows: Sequence[Any], where: str) -> Record:
    found: Record = {}

    def recorded(check: Check) -> Check:
        def finds(claim: Claim, mine: Any) -> Finding:
            key = f"finding|{where}|{claim.id}"
            try:
                finding = check(claim, mine)
            except Exception as error:
                found[key] = f"{type(error).__name__}: {error}"
                raise
            found[key] = _plain(asdict(finding))
            return finding

        return finds

    checks = {name: recorded(check) for name, check in paper.checks.items()}
    for verdict in evaluate(replace(paper, checks=checks), rows).verdicts:
        found[f"verdict|{where}|{verdict.id}"] = _plain(msgspec.to_builtins(verdict))
    return found


def _of_figures(paper: Paper, rows: Sequence[Any], where: str) -> Record:
    found: Record = {}
    for experiment in paper.experiments:
        mine = [row for row in rows if row.experiment == experiment.name]
        key = f"{where}|{experiment.name}"
        found[f"answer|{key}"] = _caught(partial(experiment.answer, mine))
        for figure in experiment.figures():
            points = _caught(partial(figure.points, mine))
            options = {k: v for k, v in figure.options.items() if not callable(v)}
            head = [figure.kind, figure.title, _plain(options)]
            found[f"points|{key}|{figure.name}"] = f"{len(points)} {_digest([head, points])}"
    return found


def _caught(ask: Callable[[], Any]) -> Any:
    try:
        return _plain(ask())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """A value as JSON has it, floats to twelve digits."""
    if isinstance(value, bool) or value is None or isinstance(value, int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.12g}") if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(str(one) for one in value)
    return _plain(value.item()) if hasattr(value, "item") else str(value)


def _digest(value: Any) -> str:
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def path_of(paper: str) -> Path:
    """Where the record of a paper lies."""
    return HERE / f"{paper}.json.gz"


def read(paper: str) -> Record:
    """The kept record of a paper."""
    with gzip.open(path_of(paper), "rt", encoding="utf-8") as file:
        return json.load(file)


def write(paper: str) -> int:
    """Record a paper; the number of entries."""
    found = json.loads(json.dumps(record(find_paper(paper))))
    text = json.dumps(found, sort_keys=True, ensure_ascii=False, separators=(",\n", ":"))
    path_of(paper).write_bytes(gzip.compress(text.encode(), mtime=0))
    return len(found)


def differences(paper: str) -> dict[str, tuple[Any, Any]]:
    """Differences between recorded and present answers: (recorded, found) by question."""
    old = read(paper)
    new = json.loads(json.dumps(record(find_paper(paper))))
    keys = dict.fromkeys((*old, *new))
    return {key: (old.get(key), new.get(key)) for key in keys if old.get(key) != new.get(key)}


def main(arguments: Sequence[str]) -> int:
    """Run `write` or `check` over the papers named, or over all."""
    if not arguments or arguments[0] not in ("write", "check"):
        print(__doc__)
        return 2
    bad = 0
    for paper in arguments[1:] or PAPERS:
        if arguments[0] == "write":
            print(f"{paper}: {write(paper)} entries")
            continue
        found = differences(paper)
        bad += len(found)
        print(f"{paper}: {len(found)} of {len(read(paper))} differ")
        for key, (old, new) in list(found.items())[:40]:
            print(f"  {key}")
            if isinstance(old, dict) and isinstance(new, dict):
                for name in old:
                    if old[name] != new.get(name):
                        print(f"    {name}: {old[name]!r} -> {new.get(name)!r}")
            else:
                print(f"    {old!r}\n    {new!r}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
