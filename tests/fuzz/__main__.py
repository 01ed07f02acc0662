"""`python -m tests.fuzz`: throw inputs at the readers, print what came of them; exit 1 on findings.

python -m tests.fuzz table claims --runs 20000
python -m tests.fuzz claims --input crash.bin      # one input, with its traceback
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from tests.fuzz import mutate
from tests.fuzz.attempt import Finding
from tests.fuzz.target import targets


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
    chosen = parser.parse_args(arguments)
    known = targets()
    if unknown := [name for name in chosen.names if name not in known]:
        parser.error(f"no target '{unknown[0]}'; known: {', '.join(known)}")
    wanted = [known[name] for name in chosen.names or known]
    if chosen.input is not None:
        for target in wanted:
            target.run(chosen.input.read_bytes())
        return 0
    limit = 10.0 if chosen.runs == 10**9 else 3600.0
    seconds = limit if chosen.seconds is None else chosen.seconds
    bad = False
    for target in wanted:
        one = mutate.run(target, runs=chosen.runs, seconds=seconds, seed=chosen.seed)
        counts = f"{one.accepted:,} accepted, {one.refused:,} refused, {len(one.findings)} findings"
        print(f"{one.target:16} {one.inputs:,} inputs, {counts}", flush=True)
        for finding in one.findings.values():
            print(f"{finding.target}: {finding.key}: {finding.words}", flush=True)
            _write(chosen.out, finding)
        bad = bad or bool(one.findings)
    return int(bad)


def _write(out: Path, finding: Finding) -> None:
    """Keep a finding: its input and, beside it, what it broke."""
    out.mkdir(parents=True, exist_ok=True)
    name = f"{finding.target}-{hashlib.sha1(finding.key.encode()).hexdigest()[:8]}"
    (out / name).write_bytes(finding.data)
    (out / f"{name}.txt").write_text(f"{finding.key}\n{finding.words}\n\n{finding.trace}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
