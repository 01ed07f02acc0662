"""Race: one epoch of DyGNN in grids of intervals (T-GCN) against edge by edge and in t-batches.

    python benchmarks/race_streaming.py [--graphs wikipedia,sx-mathoverflow] [--seeds 3]

All contenders begin with the same parameters, states and negatives. The sequential baseline has no
padding and no propagation: t-batches of all edges, an optimiser step for every 200 of them, which
is exactly one edge after the other, only faster. How much faster shows on the first edges, which
are also trained on one by one. T-GCN trains in intervals of `--width` edges before sampling: on
half of the edges (`--share`), on which its states then rest as well; on the same half with states
that take in all edges (`WholeState`, whose forward passes are part of its epoch); and on all edges.
All are scored on the same events, in t-batches.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import t_quantile
from dgbench.systems.base import get_system
from dgbench.systems.base.interactions import InteractionWorkload, load_interactions
from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.whole_state import WholeState

OFF = {"padding": False, "propagation": False}
OURS = {"half": (None, Program), "half, whole state": (None, WholeState), "all": (1.0, Program)}
"""Of each form of T-GCN the share of the edges, None for the one asked for, and the program."""


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


def score(trainer: Any, data: Any, asked: argparse.Namespace) -> float:
    """Average precision of the first validation events, or of the test events behind them."""
    first = data.train_end
    if asked.test:  # the states pass through validation first, as they would in use
        trainer.evaluate_range(first, data.validate_end, remember=True)
        first = data.validate_end
    last = len(data.events) if asked.test else data.validate_end
    return trainer.evaluate_range(first, min(last, first + asked.scored)).ap


def race(name: str, seed: int, asked: argparse.Namespace) -> dict[str, float]:
    """One epoch of each contender on one graph; seconds and average precision."""
    task = InteractionWorkload(
        dataset=name, seed=seed, lr=asked.lr, aggregate=asked.aggregate, share=asked.share,
        events=asked.events,
    )  # fmt: skip
    data = load_interactions(task)
    few = min(asked.few, data.train_end)
    one, _, _ = epoch("dygnn", task, data, few, switches={**OFF, "sequential": True})
    many, _, _ = epoch("dygnn", task, data, few, switches=OFF)
    seconds, ready, trainer = epoch("dygnn", task, data, switches=OFF)
    found = {
        "edge by edge s": one, "t-batches s": many, "sequential s": seconds,
        "sequential ready s": ready, "sequential ap": score(trainer, data, asked),
    }  # fmt: skip
    own = msgspec.structs.replace(
        task, intervals=max(1, data.train_end // asked.width), lr=asked.own_lr or asked.lr
    )
    for form, (share, program) in OURS.items():
        one = msgspec.structs.replace(own, share=share or own.share)
        seconds, ready, trainer = epoch("tgcn", one, data, scoring="t-batches", program=program())
        found |= {
            f"{form} s": seconds, f"{form} ready s": ready,
            f"{form} ap": score(trainer, data, asked),
        }  # fmt: skip
    print(f"  seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", default="wikipedia,sx-mathoverflow")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--test", action="store_true", help="score test events, not validation's")
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
            seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
            runs = [race(name, seed, asked) for seed in seeds]
        except DgbenchError as error:
            print(f"  {error}", flush=True)
            continue
        print(f"  sequential: average precision {interval([r['sequential ap'] for r in runs])}")
        for form in OURS:
            tell(form, runs)


def tell(form: str, runs: list[dict[str, float]]) -> None:
    """What one form of T-GCN gains and loses against the sequential baseline, over seeds."""

    def both(run: dict[str, float], who: str) -> float:
        return run[f"{who} s"] + run[f"{who} ready s"]

    def ratios(of: Callable[[dict[str, float]], float]) -> str:
        return interval([of(run) for run in runs])

    epochs = ratios(lambda r: r["sequential s"] / r[f"{form} s"])
    whole = ratios(lambda r: both(r, "sequential") / both(r, form))
    edges = ratios(
        lambda r: r["edge by edge s"] / r["t-batches s"] * r["sequential s"] / r[f"{form} s"]
    )
    print(
        f"  T-GCN, {form}: {epochs}x the t-batches by epoch, {whole}x with sampling and layout, "
        f"{edges}x edge by edge; average precision {ratios(lambda r: r[f'{form} ap'])}, "
        f"{ratios(lambda r: 100 * (r[f'{form} ap'] - r['sequential ap']))} points more",
        flush=True,
    )


if __name__ == "__main__":
    main()
