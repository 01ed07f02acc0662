"""`python -m tests.golden.names [PAPER ...]`: names in kept rows that no pattern reads, if any."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from dgbench.harness.store import old_names
from tests.golden.record import PAPERS, kept_runs


def unread(paper: str) -> Counter[str]:
    """Number of rows with each name that no pattern reads, by `experiment: source: name`."""
    found: Counter[str] = Counter()
    for run in kept_runs().values():
        for row in run.everything:
            if row.paper == paper and not row.observed:
                sources = {name: getattr(row, name) for name in old_names.SOURCES}
                names = old_names.unread_names(row.paper, row.experiment, sources)
                found.update(f"{row.experiment}: {name}" for name in names)
    return found


def main(papers: Sequence[str]) -> int:
    """Print what is not read; exit code 1 where there is anything."""
    bad = 0
    for paper in papers or PAPERS:
        found = unread(paper)
        bad += len(found)
        print(f"{paper}: {len(found)} names are not read")
        for name, rows in list(found.items())[:60]:
            print(f"  {name}  ({rows} rows)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
