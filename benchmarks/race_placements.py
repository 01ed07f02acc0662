"""Race: epochs of DGC against PSS, PTS and PSS-TS on four ranks over Gloo, real graphs at length.

    python benchmarks/race_placements.py [--graphs wikipedia,email-eu-core] [--models dysat]

All contenders take turns inside one group of ranks; gains are formed turn by turn, with the
interval of the median by order statistics (95 % from six turns on).
"""

from __future__ import annotations

import argparse

from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import geometric_mean, median, paired_ratio
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.settings import BY_NAME, HELD, MODEL_TITLES, MODELS, workload
from dgbench.systems.dgc.settings_run import BASELINES, LADDER
from dgbench.systems.dgc.turns import take_rank_turns

RANKS = 4
KEPT = {"amazon-magazine": 60}
"""Snapshots where not all are: padded sequences of all would take more memory than most have."""
PLAIN = ("PyGT-PSS", "PyGT-PTS", "PyGT-PSS-TS")
OURS = ("DGC w/o SG", "DGC")


def race(name: str, model: str, budget_s: float) -> dict[str, float]:
    """Print a line for one graph and model; the gains of `OURS` over the best of `PLAIN`."""
    task = workload(BY_NAME[name], model, "full", snapshots=KEPT.get(name))
    contenders = {key: BASELINES[key] for key in PLAIN} | {key: LADDER[key] for key in OURS}
    found = take_rank_turns(
        task,
        load_sequences(task),
        RANKS,
        contenders,
        least=6,
        budget_s=budget_s,
        timeout_s=600,
        transport="gloo",
    )
    middle = {key: median(values) for key, values in found.seconds.items()}
    best = min(PLAIN, key=middle.__getitem__)
    words = ", ".join(f"{key} {1e3 * value:.0f}" for key, value in middle.items())
    print(f"{BY_NAME[name].title}, {MODEL_TITLES[model]}: ms {words}", flush=True)
    gains = {}
    for key in OURS:
        gain = paired_ratio(found.seconds[best], found.seconds[key], method="sign")
        gains[key] = gain.value
        print(
            f"    {key} over {best}: {gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}], "
            f"{len(found.seconds[key])} turns",
            flush=True,
        )
    return gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default=",".join(graph.name for graph in HELD))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=10.0, help="of turns for each pair")
    asked = parser.parse_args()
    gains: dict[str, list[float]] = {key: [] for key in OURS}
    for name in asked.graphs.split(","):
        for model in asked.models.split(","):
            try:
                found = race(name, model, asked.seconds)
            except DgbenchError as error:
                print(f"{name}, {model}: {error}", flush=True)
                continue
            for key in OURS:
                gains[key].append(found[key])
    for key, each in gains.items():
        if len(each) > 1:
            mean = geometric_mean(each)
            print(
                f"{key}, geometric mean of {len(each)}: {mean.value:.2f}x "
                f"[{mean.low:.2f}, {mean.high:.2f}]"
            )


if __name__ == "__main__":
    main()
