"""How fast twins are generated on one core: edges a second, free and with repeated pairs refused.

    python benchmarks/race_twins.py [--sizes 1e6 1e7] [--rounds 3] [--threads 1] [--json]

Rows are real twins at the scale that gives the size. The bars are 5 M edges/s, and 2 M edges/s
where repeated pairs are refused. `edges` is the median of the rounds for the edge operator alone,
`stream` the whole call, with time stamps and validation. With one thread the clock is the
processor time of this process, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median
from time import perf_counter, process_time

from dgbench.datasets import twins
from dgbench.datasets.twins.params import params
from dgbench.datasets.twins.scaling import at_scale
from dgbench.kernels_cuda.twins import rank_copy

CONTENDERS = ("stack", "gdelt", "twitter", "flickr", "youtube", "epinions", "netflix")
BARS = {False: 5e6, True: 2e6}


def race(size: int, rounds: int, threads: int) -> list[dict[str, object]]:
    """One row a twin that is that large: edges a second, medians of interleaved rounds."""
    clock = process_time if threads == 1 else perf_counter
    names = [n for n in CONTENDERS if params(n).events >= size]
    scales = {n: size / params(n).events for n in names}
    seconds = {n: ([], []) for n in names}
    for _ in range(rounds):
        for n in names:
            spec = at_scale(n, params(n), scales[n])
            begin = clock()
            rank_copy(spec, 1, threads=threads)
            middle = clock()
            twins.generate(n, scales[n], 1, threads=threads)
            seconds[n][0].append(middle - begin)
            seconds[n][1].append(clock() - middle)
    rows = []
    for n in names:
        edges, stream = (size / median(times) for times in seconds[n])
        simple = params(n).simple
        rows.append(
            {
                "dataset": n,
                "edges": size,
                "simple": simple,
                "edges_per_s": edges,
                "stream_edges_per_s": stream,
                "bar": BARS[simple],
                "reached": edges >= BARS[simple],
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [r for size in options.sizes for r in race(int(size), options.rounds, options.threads)]
    if options.json:
        print(json.dumps(rows, indent=1))
    else:
        print(f"{'twin':10} {'edges':>11} {'pairs':>8} {'edges/s':>9} {'stream/s':>9}  bar")
        for r in rows:
            kind = "distinct" if r["simple"] else "free"
            print(
                f"{r['dataset']:10} {r['edges']:11,} {kind:>8} {r['edges_per_s'] / 1e6:7.1f} M "
                f"{r['stream_edges_per_s'] / 1e6:7.1f} M  "
                f"{'reached' if r['reached'] else 'MISSED'} ({r['bar'] / 1e6:g} M)"
            )
    return 0 if all(r["reached"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
