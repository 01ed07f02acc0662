"""Small streams for the tests of T-GCN: ties in time, self edges, repeated pairs, lone vertices."""

from __future__ import annotations

import numpy as np
import torch

from dgbench.datasets import EventStream
from dgbench.systems.base.interactions import InteractionWorkload, interaction_data
from dgbench.systems.tgcn.system import TgcnSystem
from dgbench.systems.tgcn.trainer import TgcnTrainer

SYSTEM = TgcnSystem()


def events(count: int = 120, vertices: int = 23, seed: int = 5) -> EventStream:
    """Vertex 0 and the last one have no edge."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(1, vertices - 1, size=(2, count))
    return EventStream.build(*ends, np.sort(rng.integers(0, count // 3, count)), num_nodes=vertices)


def task(**fields) -> InteractionWorkload:
    small = {"hidden_dim": 6, "batch": 8, "intervals": 4, "lr": 0.01}
    return InteractionWorkload(**{"dataset": "tiny", **small, **fields})


def opened(work=None, *, off=(), on=(), stream=None, dtype=torch.float64, **options) -> TgcnTrainer:
    """A trainer on a small stream."""
    work = task() if work is None else work
    data = interaction_data(events() if stream is None else stream, work)
    switches = dict.fromkeys(off, False) | dict.fromkeys(on, True)
    return SYSTEM.open(work, data=data, switches=switches, dtype=dtype, **options)


def losses(trainer: TgcnTrainer, epochs: int = 1) -> list[float]:
    """Of some epochs, and what is scored after them."""
    found = [trainer.train_epoch() for _ in range(epochs)]
    scores = trainer.evaluate_range(trainer.data.train_end, len(trainer.data.events))
    return [*found, scores.loss, scores.accuracy]
