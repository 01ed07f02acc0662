"""Race: one epoch of DyGNN in grids of intervals (T-GCN) against edge by edge and in t-batches.

    python benchmarks/race_streaming.py [--graphs wikipedia,sx-mathoverflow] [--seeds 3]

All contenders begin with the same parameters, states and negatives. The sequential baseline has no
padding and no propagation: t-batches of all edges, an optimiser step for every 200 of them, which
is exactly one edge after the other, only faster. How much faster shows on the first edges, which
are also trained on one by one. T-GCN trains on half of the edges (`--share`) in intervals of
`--width` edges before sampling. All are scored on the same events, in t-batches.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
import torch

from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import t_quantile
from dgbench.systems.base import get_system
from dgbench.systems.base.interactions import InteractionWorkload, load_interactions

OFF = {"padding": False, "propagation": False}


def epoch(system: str, task: Any, data: Any, events: int | None = None, **options: Any) -> tuple:
    """Seconds of an epoch (or of its first events), of preparing it, and the trainer."""
    trainer = get_system(system).open(task, data=data, **options)
    start = time.perf_counter()
    trainer.prepare()
    trainer.groups(0, data.train_end if events is None else events)  # laid out once
    ready = time.perf_counter()
    if events is None:
        trainer.train_epoch()
    else:
        trainer.train(0, events)
    return time.perf_counter() - ready, ready - start, trainer


def interval(values: list[float]) -> str:
    """A mean and its 95 % interval over seeds."""
    x = torch.tensor(values, dtype=torch.float64)
    if x.numel() < 2:
        return f"{float(x.mean()):.4g}"
    half = t_quantile(x.numel() - 1, 0.95) * float(x.std()) / x.numel() ** 0.5
    return f"{float(x.mean()):.4g} +- {half:.2g}"


def race(name: str, seed: int, asked: argparse.Namespace) -> dict[str, float]:
    """One epoch of each contender on one graph; seconds and average precision."""
    task = InteractionWorkload(
        dataset=name, seed=seed, lr=asked.lr, aggregate=asked.aggregate, share=asked.share,
        events=asked.events,
    )  # fmt: skip
    data = load_interactions(task)
    first, last = data.train_end, min(data.validate_end, data.train_end + asked.scored)
    few = min(asked.few, data.train_end)
    one, _, _ = epoch("dygnn", task, data, few, switches={**OFF, "sequential": True})
    many, _, _ = epoch("dygnn", task, data, few, switches=OFF)
    seconds, ready, trainer = epoch("dygnn", task, data, switches=OFF)
    found = {
        "edge by edge s": one, "t-batches s": many, "sequential s": seconds,
        "sequential ready s": ready, "sequential ap": trainer.evaluate_range(first, last).ap,
    }  # fmt: skip
    own = msgspec.structs.replace(
        task, intervals=max(1, data.train_end // asked.width), lr=asked.own_lr or asked.lr
    )
    seconds, ready, trainer = epoch("tgcn", own, data, scoring="t-batches")
    found |= {
        "tgcn s": seconds, "tgcn ready s": ready,
        "tgcn ap": trainer.evaluate_range(first, last).ap,
    }  # fmt: skip
    print(f"  seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default="wikipedia,sx-mathoverflow")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--events", type=int, default=None, help="the first ones of each graph")
    parser.add_argument("--width", type=int, default=100, help="edges of an interval")
    parser.add_argument("--share", type=float, default=0.5, help="of the edges T-GCN trains on")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--own-lr", type=float, default=None, help="T-GCN's, where it differs")
    parser.add_argument("--aggregate", default="mean", choices=("mean", "last"))
    parser.add_argument("--scored", type=int, default=10_000, help="events that are scored at most")
    parser.add_argument("--few", type=int, default=1_000, help="events that go edge by edge")
    asked = parser.parse_args()
    for name in asked.graphs.split(","):
        print(f"{name}:", flush=True)
        try:
            runs = [race(name, seed, asked) for seed in range(1, asked.seeds + 1)]
        except DgbenchError as error:
            print(f"  {error}", flush=True)
            continue
        for words, ratio in (
            ("T-GCN over t-batches, epoch", lambda r: r["sequential s"] / r["tgcn s"]),
            (
                "T-GCN over t-batches, with sampling and layout",
                lambda r: (
                    (r["sequential s"] + r["sequential ready s"])
                    / (r["tgcn s"] + r["tgcn ready s"])
                ),
            ),
            (
                "T-GCN over edge by edge, by the first events",
                lambda r: r["edge by edge s"] / r["t-batches s"] * r["sequential s"] / r["tgcn s"],
            ),
        ):
            print(f"  {words}: {interval([ratio(run) for run in runs])}x")
        gaps = [100 * (run["tgcn ap"] - run["sequential ap"]) for run in runs]
        print(
            f"  average precision: T-GCN {interval([run['tgcn ap'] for run in runs])}, "
            f"sequential {interval([run['sequential ap'] for run in runs])}; "
            f"difference {interval(gaps)} points",
            flush=True,
        )


if __name__ == "__main__":
    main()
