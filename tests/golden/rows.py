"""`python -m tests.golden.rows OLD NEW`: whether two runs of the same cells observed the same.

For every cell that both runs have, the observations must be of the same metrics and dimensions,
with intervals and samples in the same places, and counts and bytes must be equal. `OLD` may be a
run of older code, whose rows are read through `harness.store.old_names`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dgbench.harness.report.run import load_run
from dgbench.lab.metrics import metric

Key = tuple[str, str]


def _place(dims: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={dims[name]}" for name in sorted(dims))


def observed(rows: Iterable[Any]) -> dict[Key, dict[Key, Any]]:
    """By experiment and cell: by metric and dimensions, what must be the same."""
    found: dict[Key, dict[Key, Any]] = {}
    for row in rows:
        if row.status != "ok" or row.paper == "-" or "control" in row.params:
            continue
        mine = found.setdefault((f"{row.paper}/{row.experiment}", _place(row.params)), {})
        for one in row.observed:
            form = (one.low is not None, bool(one.samples))
            exact = one.value if metric(one.metric).exact else None
            mine[one.metric, _place(one.dims)] = (*form, exact)
    return found


def differences(old: Iterable[Any], new: Iterable[Any]) -> list[str]:
    """A line for each difference between the observations of two runs."""
    one, two = observed(old), observed(new)
    lines = [f"{'/'.join(key)}: only in one run" for key in set(one) ^ set(two)]
    for cell in (key for key in one if key in two):
        before, after = one[cell], two[cell]
        for key in dict.fromkeys((*before, *after)):
            if before.get(key) != after.get(key):
                lines.append(
                    f"{' '.join(cell)}: {key[0]}[{key[1]}] (interval, samples, count) "
                    f"{before.get(key, 'absent')} -> {after.get(key, 'absent')}"
                )
    return lines


def main(arguments: Sequence[str]) -> int:
    """Compare two runs' folders; exit code 1 where they differ."""
    if len(arguments) != 2:
        print(__doc__)
        return 2
    lines = differences(*(load_run(Path(one)).everything for one in arguments))
    for line in lines[:80]:
        print(line)
    print(f"{len(lines)} differences")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
