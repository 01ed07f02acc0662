"""Small timelines for the tests of ESDG, and trainers on them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from tiny_data import TinySequence, tiny_sequence

from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload

MODELS = ("cd_gcn", "tm_gcn", "evolvegcn_o")
LIMIT_S = 240.0  # stops a hang; a busy machine may take a minute


@cache
def data(steps: int = 8, nodes: int = 11) -> TinySequence:
    """Random snapshots, every second one with values; one is empty, and one vertex isolated."""
    sequence = tiny_sequence(nodes, steps, 2 * nodes, 2, weighted=True)
    sequence.topology[::2] = [replace(csr, values=None) for csr in sequence.topology[::2]]
    return sequence


def workload(model: str, task: str = "link") -> TimelineWorkload:
    norm = "mean" if task == "class" else "sym"
    return TimelineWorkload(
        dataset="tiny", model=model, task=task, window=3, theta=0.5, lr=0.01, norm=norm
    )


class PlainResult(NamedTuple):
    """Gradients and outputs of the plain trainer before its first step, losses of its epochs."""

    gradients: dict[str, torch.Tensor]
    losses: list[float]
    outputs: torch.Tensor


@cache
def plain(
    model: str, task: str, sizes: tuple[int, int] = (8, 11), dtype: Any = torch.float64,
    epochs: int = 1,
) -> PlainResult:  # fmt: skip
    """Result of one process without partitions."""
    trainer = PlainTimeline(workload(model, task), data(*sizes), dtype=dtype)
    gradients, outputs = trainer.gradients(), torch.stack(list(trainer.outputs()))
    return PlainResult(gradients, [trainer.train_epoch() for _ in range(epochs)], outputs)


def losses_of(model: str, task: str = "link", epochs: int = 2) -> list[float]:
    """Losses of one process in single precision."""
    return plain(model, task, (8, 11), torch.float32, epochs).losses
