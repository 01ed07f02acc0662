"""One training epoch: pipad against the real PyG-Temporal cells, interleaved, outputs compared.

    python benchmarks/race_epoch.py [--rounds 5] [--only synthetic|pems08|covid] [--json PATH]

The synthetic workload has 20 k vertices, 50 snapshots of 100 k edges of which 90 % stay from one
to the next, 16 features, hidden 32 and frames of 16. An epoch is the median step times the number
of frames, since every frame costs the same; all contenders of a round run one after the other, in
changing order, in this process. Deviations are of output and gradients against the reference.
The process keeps freed memory, for all contenders alike, unless --glibc-defaults is given.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from statistics import median

import torch

from dgbench.datasets import Origin, SnapshotSequence
from dgbench.kernels_cuda.memory import keep_freed_memory
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.runtime.statistics import paired_ratio
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Workload, get_system
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.race import relative

BARS = {"tgcn_model": 5.0, "mpnn_lstm": 3.0, "evolvegcn": 3.0}
NODES, SNAPSHOTS, EDGES, KEPT, WIDTH = 20_000, 50, 100_000, 0.9, 16


def synthetic() -> SnapshotSequence:
    """Power-law snapshots of which `KEPT` stay from one to the next."""
    draw = torch.Generator().manual_seed(7)

    def edges(count: int) -> torch.Tensor:
        u = torch.rand(2, count, generator=draw)
        return ((u**2.5) * NODES).long().clamp(max=NODES - 1)

    now = edges(EDGES)
    source, target, bins = [], [], []
    for t in range(SNAPSHOTS):
        if t:
            stay = torch.rand(now.shape[1], generator=draw) < KEPT
            now = torch.cat([now[:, stay], edges(int((~stay).sum()))], dim=1)
        source.append(now[0])
        target.append(now[1])
        bins.append(torch.full((now.shape[1],), t))
    topology = edge_snapshots(
        torch.cat(source), torch.cat(target), torch.cat(bins), SNAPSHOTS, NODES
    )
    features = torch.randn(SNAPSHOTS, NODES, WIDTH, generator=draw)
    targets = torch.randn(SNAPSHOTS, NODES, generator=draw)
    origin = Origin(dataset="synthetic-20k", kind="twin", scale=1.0, seed=7, notes=())
    return SnapshotSequence(
        topology=topology, features=features, targets=targets, num_nodes=NODES, origin=origin
    )


def tasks(only: str | None) -> list[tuple[str, Workload]]:
    """The named workloads of the bar, every model on each."""
    found = []
    for name, dataset, source in (
        ("synthetic", "synthetic-20k", "auto"),
        ("pems08", "pems08", "real"),
        ("covid", "covid19-england", "real"),
    ):
        if only in (None, name):
            for model in BARS:
                every = "every" if model == "evolvegcn" else "last"
                task = Workload(dataset=dataset, source=source, model=model, loss_on=every)
                found.append((name, task))
    return found


def race(name: str, task: Workload, rounds: int, budget_s: float) -> dict:
    """Interleaved steps of both systems and their deviations from the reference."""
    trainers = {}
    for system in ("pygt", "pipad"):
        trainers[system] = get_system(system).open(task)
        trainers[system].prepare()
    reference = get_system("reference").open(task)
    wanted, gradients = reference.evaluate(0), reference.gradients(0)
    scale = sum(float(g.double().square().sum()) for g in gradients.values()) ** 0.5
    gaps = {}
    for system, trainer in trainers.items():
        mine = trainer.gradients(0)
        gap = sum(
            float((mine[k].double() - g.double()).square().sum()) for k, g in gradients.items()
        )
        gaps[system] = max(relative(trainer.evaluate(0), wanted), gap**0.5 / scale)
    times: dict[str, list[float]] = {system: [] for system in trainers}
    order = list(trainers)
    for _ in range(rounds):
        random.shuffle(order)
        for system in order:
            step = iter(range(10**9))
            frames = trainers[system].num_frames
            steady = measure_steady(
                lambda s=system, i=step, n=frames: trainers[s].step(next(i) % n), budget_s=budget_s
            )
            times[system].append(steady.time)
    ratio = paired_ratio(times["pygt"], times["pipad"])
    frames = trainers["pipad"].num_frames
    return {
        "workload": name,
        "model": task.model,
        "pygt_step_s": median(times["pygt"]),
        "pipad_step_s": median(times["pipad"]),
        "pygt_epoch_s": median(times["pygt"]) * frames,
        "pipad_epoch_s": median(times["pipad"]) * frames,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "bar": BARS[task.model],
        "pygt_deviation": gaps["pygt"],
        "pipad_deviation": gaps["pipad"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds a system and round")
    parser.add_argument("--only", choices=["synthetic", "pems08", "covid"])
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument(
        "--glibc-defaults", action="store_true", help="map and return large blocks on every use"
    )
    args = parser.parse_args()
    if not args.glibc_defaults:
        keep_freed_memory()
    random.seed(1)
    made = synthetic() if args.only in (None, "synthetic") else None
    opened = workload_data.load

    def load(task: Workload) -> SnapshotSequence:
        return made if task.dataset == "synthetic-20k" else opened(task)

    workload_data.load = load
    rows = []
    print(
        f"{'workload':10} {'model':11} {'pygt ms':>9} {'pipad ms':>9} {'ratio':>22}  bar  deviation"
    )
    for name, task in tasks(args.only):
        row = race(name, task, args.rounds, args.budget)
        rows.append(row)
        interval = f"{row['ratio']:.2f}x [{row['low']:.2f}, {row['high']:.2f}]"
        print(
            f"{name:10} {task.model:11} {1e3 * row['pygt_step_s']:9.1f} "
            f"{1e3 * row['pipad_step_s']:9.1f} {interval:>22} {row['bar']:4.0f}x "
            f"{row['pipad_deviation']:.1e}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    missed = [f"{r['workload']}/{r['model']}" for r in rows if r["ratio"] < r["bar"]]
    print("all bars met" if not missed else f"below the bar: {', '.join(missed)}", file=sys.stderr)


if __name__ == "__main__":
    main()
