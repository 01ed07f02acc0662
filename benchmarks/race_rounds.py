"""Race: rounds of continuous training on real streams, GNNFlow's against TGL's, at full length.

    python benchmarks/race_rounds.py [--graphs wikipedia,enron] [--models tgn,tgat] [--seconds 15]

All contenders play the same rounds in turns in one process, with the losses of the plain reference;
gains are formed turn by turn, with the interval of the median by order statistics. On a CPU the
network takes most of a round and is the same code, and a cache lies in the memory that it caches:
GNNFlow runs with its caches and without. The update is an insertion against a rebuild.
"""

from __future__ import annotations

import argparse

from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base.stream import load_stream
from dgbench.systems.gnnflow.experiments.round_race import (
    BARE,
    GNNFLOW,
    TGL,
    UNCACHED,
    Length,
    race,
)
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, HELD, MODEL_TITLES, workload

SHOWN = ((TGL, "GNNFlow over TGL"), (UNCACHED, "GNNFlow without caches over TGL"))
PARTS = (("", "whole round"), ("update ", "update"), ("without network ", "all but the network"))


def show(name: str, model: str, length: Length) -> None:
    """Race on one graph with one model and print its gains."""
    graph = BY_NAME[name]
    task = workload(graph, model, "full")
    found = race((TGL, BARE, GNNFLOW), task, load_stream(task), graph, length)
    values, counters = found.values, found.counters
    print(
        f"{graph.title}, {MODEL_TITLES[model]}: {counters['turns']} rounds of "
        f"{counters['events'] / counters['turns']:.0f} events at {counters['graph']} in the graph; "
        f"round {1e3 * values[f'retrain_s {TGL}']:.0f} ms with TGL, "
        f"{1e3 * values[f'retrain_s {BARE}']:.0f} without caches, "
        f"{1e3 * values[f'retrain_s {GNNFLOW}']:.0f} with; losses part by "
        f"{max(found.deviation.values()):.1g}",
        flush=True,
    )
    for key, words in SHOWN:
        gains = []
        for part, what in PARTS:
            value, low, high = (values[f"{kind} {part}{key}"] for kind in ("gain", "low", "high"))
            gains.append(f"{what} {value:.3g}x [{low:.3g}, {high:.3g}]")
        print(f"    {words}: {', '.join(gains)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default=",".join(graph.name for graph in HELD))
    parser.add_argument("--models", default="tgn")
    parser.add_argument("--seconds", type=float, default=12.0, help="of turns for each pair")
    asked = parser.parse_args()
    length = Length(least=6, most=40, budget_s=asked.seconds)
    for name in asked.graphs.split(","):
        for model in asked.models.split(","):
            try:
                show(name, model, length)
            except DgbenchError as error:
                print(f"{name}, {model}: {error}", flush=True)


if __name__ == "__main__":
    main()
