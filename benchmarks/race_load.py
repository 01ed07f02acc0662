"""Race reading a dataset from its source against opening its prepared form.

Usage: DGBENCH_DATA=... python benchmarks/race_load.py [NAME ...] [--json]

Exits with 1 if any dataset loads less than 20 times faster than it is read.
"""

from __future__ import annotations

import argparse
import json
import sys

from dgbench import datasets
from dgbench.datasets.sources import find_form
from dgbench.datasets.timing import time_loads

BAR = 20.0


def main() -> int:
    """Time the datasets named on the command line, or all that are held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="datasets; by default all that are held")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    chosen = [datasets.card(name) for name in arguments.names]
    chosen = chosen or [c for c in datasets.cards().values() if find_form(c) is not None]
    if not chosen:
        print("no real data is here; set DGBENCH_DATA", file=sys.stderr)
        return 2
    rows = []
    for card in chosen:
        for row in time_loads(card):
            rows.append({"dataset": card.name, **row})
            if not arguments.json:
                print(
                    f"{card.name:28} {row['what']:10} read {1e3 * row['parse_s']:9.2f} ms   "
                    f"load {1e3 * row['load_s']:7.3f} ms   {row['ratio']:8.0f} x"
                )
    worst = min(rows, key=lambda row: row["ratio"])
    if arguments.json:
        print(json.dumps({"bar": BAR, "worst": worst, "rows": rows}, indent=2))
    else:
        print(f"worst: {worst['dataset']} {worst['what']}, {worst['ratio']:.0f} x (bar {BAR:g} x)")
    return 0 if worst["ratio"] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
