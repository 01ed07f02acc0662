"""`python -m tests.fuzz`: throw inputs at the readers, print what came of them; exit 1 on findings.

python -m tests.fuzz --list
python -m tests.fuzz table claims --runs 20000 --engine mutate
python -m tests.fuzz --seconds 20 --keep           # every target, every engine
python -m tests.fuzz claims --input crash.bin      # one input, with its traceback
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from tests.fuzz.attempt import Finding, Tally, plain
from tests.fuzz.target import Target, targets

ENGINES = ("mutate", "hypothesis", "atheris")
MAX_KEPT = 12
"""Inputs kept a target, so that replaying them stays a matter of seconds."""
LARGEST_KEPT = 4096


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="all by default")
    parser.add_argument("--runs", type=int, default=10**9, help="inputs a target and engine")
    parser.add_argument("--seconds", type=float, default=None, help="time a target and engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="add inputs that did something new")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where findings go")
    parser.add_argument("--input", type=Path, help="run one file through the target, and say")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(arguments)
    known = targets()
    unknown = [name for name in chosen.names if name not in known]
    if unknown:
        parser.error(f"no target '{unknown[0]}'; known: {', '.join(known)}")
    wanted = [known[name] for name in chosen.names or known]
    if chosen.list:
        for target in wanted:
            print(f"{target.name:16} {target.about}")
        return 0
    if chosen.input is not None:
        for target in wanted:
            _replay(target, chosen.input)
        return 0
    seconds = chosen.seconds if chosen.seconds is not None else 10.0
    if chosen.seconds is None and chosen.runs < 10**9:
        seconds = 3600.0
    tallies = []
    for target in wanted:
        for engine in chosen.engine or ENGINES:
            tally, new = _engine(engine, target, chosen.runs, seconds, chosen.seed)
            tallies.append(tally)
            for finding in tally.findings.values():
                _write(chosen.out, finding)
            if chosen.keep:
                _keep(target, new)
            print(json.dumps(plain(tally)), file=sys.stderr, flush=True)
    _table(tallies)
    return int(any(tally.findings for tally in tallies))


def _engine(
    name: str, target: Target, runs: int, seconds: float, seed: int
) -> tuple[Tally, list[bytes]]:
    if name == "mutate":
        from tests.fuzz import mutate

        return mutate.run(target, runs=runs, seconds=seconds, seed=seed)
    if name == "hypothesis":
        from tests.fuzz import generate

        return generate.run(target, runs=runs, seconds=seconds, seed_=seed)
    from tests.fuzz import guided

    if why := guided.missing():
        return Tally(target.name, name, notes=f"skipped: {why}"), []
    return guided.run(target, runs=runs, seconds=seconds, seed=seed)


def _replay(target: Target, file: Path) -> None:
    from dgbench.runtime.errors import DgbenchError

    try:
        target.run(file.read_bytes())
        print(f"{target.name}: accepted")
    except DgbenchError as error:
        print(f"{target.name}: refused, {type(error).__name__}: {error}")


def _write(out: Path, finding: Finding) -> None:
    """Keep a finding: its input and, beside it, what it broke."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{finding.target}-{hashlib.sha1(finding.key.encode()).hexdigest()[:8]}"
    (out / name).write_bytes(finding.data)
    (out / f"{name}.txt").write_text(f"{finding.key}\n{finding.words}\n\n{finding.trace}\n")


def _keep(target: Target, new: list[bytes]) -> None:
    """Add inputs that do what no kept one does, the shortest first."""
    from tests.fuzz.attempt import attempt

    tally = Tally(target.name, "")
    seen = {attempt(target, data, tally) for data in target.seeds()}
    target.folder.mkdir(parents=True, exist_ok=True)
    room = MAX_KEPT - len(target.corpus())
    for data in sorted(new, key=len):
        if room <= 0 or len(data) > LARGEST_KEPT:
            break
        word = attempt(target, data, tally)
        if word not in seen:
            seen.add(word)
            room -= 1
            (target.folder / hashlib.sha1(data).hexdigest()[:12]).write_bytes(data)


def _table(tallies: list[Tally]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Inputs")
    for name in ("target", "engine", "inputs", "accepted", "refused", "findings", "per second"):
        table.add_column(name, justify="left" if name in ("target", "engine") else "right")
    for tally in tallies:
        rate = f"{tally.inputs / tally.seconds:,.0f}" if tally.seconds else tally.notes
        numbers = (tally.inputs, tally.accepted, tally.refused, len(tally.findings))
        table.add_row(tally.target, tally.engine, *(f"{n:,}" for n in numbers), rate)
    total = [sum(t.inputs for t in tallies), sum(t.accepted for t in tallies),
             sum(t.refused for t in tallies), sum(len(t.findings) for t in tallies)]  # fmt: skip
    table.add_section()
    table.add_row("all", "", *(f"{n:,}" for n in total), "")
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    for tally in tallies:
        for finding in tally.findings.values():
            console.print(f"{finding.target} ({tally.engine}): {finding.key}: {finding.words}",
                          markup=False)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
