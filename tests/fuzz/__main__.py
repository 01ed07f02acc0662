"""`python -m tests.fuzz`: throw inputs at the readers, print what came of them; exit 1 on findings.

python -m tests.fuzz --list
python -m tests.fuzz table claims --runs 20000
python -m tests.fuzz claims --input crash.bin      # one input, with its traceback
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from dgbench.runtime.errors import DgbenchError
from tests.fuzz import mutate
from tests.fuzz.attempt import Finding, Tally
from tests.fuzz.target import Target, targets


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="TARGET", help="all by default")
    parser.add_argument("--engine", choices=["mutate"], help="the only one")
    parser.add_argument("--runs", type=int, default=10**9, help="inputs a target")
    parser.add_argument("--seconds", type=float, default=None, help="time a target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where findings go")
    parser.add_argument("--input", type=Path, help="run one file through the target, and say")
    parser.add_argument("--list", action="store_true")
    chosen = parser.parse_args(arguments)
    known = targets()
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"no target '{unknown[0]}'; known: {', '.join(known)}")
    wanted = [known[name] for name in chosen.names or known]
    if chosen.list or chosen.input is not None:
        for target in wanted:
            said = target.about if chosen.list else _replay(target, chosen.input)
            print(f"{target.name:16} {said}")
        return 0
    limit = 10.0 if chosen.runs == 10**9 else 3600.0
    seconds = limit if chosen.seconds is None else chosen.seconds
    tallies = []
    for target in wanted:
        print(target.name, file=sys.stderr, flush=True)
        tallies.append(mutate.run(target, runs=chosen.runs, seconds=seconds, seed=chosen.seed)[0])
        for finding in tallies[-1].findings.values():
            _write(chosen.out, finding)
    _print(tallies)
    return int(any(tally.findings for tally in tallies))


def _replay(target: Target, file: Path) -> str:
    try:
        target.run(file.read_bytes())
    except DgbenchError as error:
        return f"refused, {type(error).__name__}: {error}"
    return "accepted"


def _write(out: Path, finding: Finding) -> None:
    """Keep a finding: its input and, beside it, what it broke."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{finding.target}-{hashlib.sha1(finding.key.encode()).hexdigest()[:8]}"
    (out / name).write_bytes(finding.data)
    (out / f"{name}.txt").write_text(f"{finding.key}\n{finding.words}\n\n{finding.trace}\n")


def _print(tallies: list[Tally]) -> None:
    table = Table(title="Inputs")
    for name in ("target", "inputs", "accepted", "refused", "findings"):
        table.add_column(name, justify="left" if name == "target" else "right")
    for tally in tallies:
        numbers = (tally.inputs, tally.accepted, tally.refused, len(tally.findings))
        table.add_row(tally.target, *(f"{n:,}" for n in numbers))
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(table)
    for tally in tallies:
        for finding in tally.findings.values():
            console.print(f"{finding.target}: {finding.key}: {finding.words}", markup=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
